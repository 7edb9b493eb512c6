# SPDX-License-Identifier: MIT
"""`mpnet init`: an experiment file for a network and images of one's own."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click

from mpnet.cli.options import OUTPUT_FILE, PATH, declare
from mpnet.cli.output import console, note, print_json
from mpnet.errors import ConfigError, FormatError
from mpnet.formats.documents.target_file import target_file, target_names
from mpnet.formats.files.atomic import write_text
from mpnet.formats.files.foreign import foreign_model
from mpnet.messages import counted
from mpnet.trial.template import InitFiles, experiment_template


@declare(
    "mpnet init --cfg net.cfg --weights net.weights --names net.names --images val/images",
    "mpnet init --cfg net.cfg --weights net.weights --images street.data -o street.yaml",
    "mpnet init --cfg net.cfg --weights net.weights --images coco8.yaml",
    quiet=False,
)
@click.argument("network", metavar="[CFG]", required=False, type=PATH)
@click.option("--cfg", type=PATH, help="Darknet cfg; the same as the argument.")
@click.option("--weights", type=PATH, help="Darknet weights.  [default: beside the cfg]")
@click.option("--images", type=PATH, help="Labelled images: a folder, Darknet's .data or valid.txt, or Ultralytics' data.yaml.")
@click.option(
    "--unlabelled",
    type=PATH,
    help="Images without labels, beside the others or alone: a folder, a list of paths (.txt), a video.",
)
@click.option(
    "--labels", type=PATH, help="Folder of label files.  [default: labels/ in place of images/, or beside the images]"
)
@click.option("--annotations", type=PATH, help="Labels as an instances JSON (COCO).")
@click.option("--names", type=PATH, help="Class names, one a line.  [default: as the .data or data.yaml says]")
@click.option(
    "--target",
    "target_name",
    metavar="NAME|FILE",
    help="What will run the choice, a program or a family of chips: the file quantises as it does, and a sweep searches what "
    f"it can run. One of {', '.join(target_names())}, or a target file of your own (.yaml).",
)
@click.option("-o", "--out", type=OUTPUT_FILE, help="The file to write.  [default: NAME.yaml, of the cfg]")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def command(
    network: Path | None,
    cfg: Path | None,
    weights: Path | None,
    images: Path | None,
    unlabelled: Path | None,
    labels: Path | None,
    annotations: Path | None,
    names: Path | None,
    target_name: str | None,
    out: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write a commented experiment file, after reading network, weights and labels once to see that they fit.

    Paths in it count from its folder, so that it may be moved with its files. For models of other programs there is
    mpnet import.
    """
    cfg = _choose_cfg(network, cfg)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", (out or cfg).stem).strip("-._") or "experiment"
    target = out or Path(f"{name}.yaml")
    if images is None and unlabelled is None:
        raise ConfigError("name images with labels (--images), or images without (--unlabelled)")
    if target.exists() and not force:
        raise ConfigError(f"{target}: exists already; name another file with -o, or replace it with --force")
    runner = None if target_name is None else target_file(target_name)
    parts = InitFiles(cfg, weights or cfg.with_suffix(".weights"), images, names, labels, annotations, unlabelled)
    text, dataset, spec = experiment_template(parts, target, name, runner)
    for warning in (*spec.warnings, *dataset.notes):
        note(warning)
    write_text(target, text)
    if as_json:
        print_json(
            {
                "experiment": str(target),
                "images": len(dataset.images),
                **({"unlabelled": dataset.unlabelled} if dataset.unlabelled else {}),
                "boxes": len(dataset.box),
                "classes": list(dataset.names),
                "warnings": [*spec.warnings, *dataset.notes],
            }
        )
        return
    without = f" ({dataset.unlabelled} without labels)" if dataset.unlabelled else ""
    console().print(
        f"{target}: {counted(len(dataset.images))}{without}, {counted(len(dataset.box), 'labelled object')}, "
        f"{len(dataset.names)} classes. Next: mpnet run {shlex.quote(str(target))}",
        soft_wrap=True,
    )


def _choose_cfg(argument: Path | None, option: Path | None) -> Path:
    """Return the network file that the command line names. Raises: ConfigError, FormatError: a model of another program."""
    if argument is not None and option is not None:
        raise ConfigError(f"{argument} and --cfg {option} are two networks; name one")
    cfg = argument or option
    if cfg is None:
        raise ConfigError(
            "name a network: `mpnet init net.cfg --images val/images`, or for a model of another program "
            "`mpnet import model.onnx -o model/`, which writes an experiment file as well"
        )
    foreign = foreign_model(cfg) if cfg.is_file() else ""
    if foreign:
        raise FormatError(f"{cfg}: {foreign}")
    return cfg
