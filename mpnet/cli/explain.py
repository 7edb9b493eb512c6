# SPDX-License-Identifier: MIT
"""`mpnet explain`: which layers lose an object."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from mpnet.cli.options import OUTPUT_FOLDER, declare, experiment_of, set_option, unlabelled_option, with_unlabelled
from mpnet.cli.output import print_result, progress
from mpnet.diagnose.explain import PAIRS, WORST, explain_experiment
from mpnet.formats.documents import typed
from mpnet.report.collect.explained_images import write_objects
from mpnet.report.text.explanation import print_explanation


@declare(
    "mpnet explain experiments/demo.yaml --set precision.default=int8",
    "mpnet explain sweep.sqlite:smallest --object scene-007.jpg:3 --images lost/",
    runtime=True,
)
@click.argument("source", metavar="EXPERIMENT|RUN|STORE[:KEY]")
@click.option("--object", "objects", multiple=True, metavar="IMAGE:N", help="An object to explain; may be repeated.")
@click.option(
    "--worst",
    type=click.IntRange(1, 10_000),
    default=WORST,
    show_default=True,
    help="Without --object: so many, those whose score fell most.",
)
@click.option(
    "--orders",
    type=click.IntRange(2, 10_000),
    default=PAIRS,
    show_default=True,
    help="Orders of raising layers to draw for an object: more make the intervals of shares narrower.",
)
@click.option(
    "--images", type=OUTPUT_FOLDER, metavar="DIR", help="Write an image of each object: baseline left, the configuration right."
)
@set_option
@unlabelled_option
def command(
    source: str,
    objects: tuple[str, ...],
    worst: int,
    orders: int,
    images: Path | None,
    overrides: tuple[str, ...],
    unlabelled: Path | None,
    threads: int | None,
    isa: str | None,
    device: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Name the layers that lose objects: those that the baseline finds and the configuration of an EXPERIMENT, a RUN or a sweep
    (STORE:smallest) does not, puts elsewhere or finds twice.

    For each object, layers are raised to the baseline's precision on its image. A layer's share of the loss is its gain,
    averaged over orders of raising layers; the sentence names the least to raise so that the object is back. In images
    without labels, what the baseline detects counts as objects.
    """
    explanation = explain_experiment(
        experiment_of(source, with_unlabelled(overrides, unlabelled), threads, isa, device),
        objects=objects,
        worst=worst,
        pairs=orders,
        progress=progress(quiet),
    )
    document = explanation.document()
    if images is not None:
        names = write_objects(explanation, images)
        rows = zip(document.objects, names, strict=True)
        document = replace(document, objects=tuple(replace(row, file=str(images / name)) for row, name in rows))
    print_result(typed.as_json(document), as_json, lambda _, out: print_explanation(document, out))
