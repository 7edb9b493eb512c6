"""`mpnet detect`: find objects in pictures, folders and videos, and draw them."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Callable

import click
import numpy as np
from numpy.typing import NDArray

from mpnet.cli.options import declare, dialect_option, layer_option, selected_precisions
from mpnet.cli.output import fail, note, print_json, progress
from mpnet.cli.picture_files import Source, find_sources
from mpnet.detection.pictures import read_picture
from mpnet.errors import ConfigError, DataError
from mpnet.spec.precision import PRECISIONS
from mpnet.spec.protocol import NMS_KINDS, RESIZES
from mpnet.spec.task import CLASSIFICATION, DETECTION
from mpnet.trial.network import Box, Label, load_network

Detect = Callable[[NDArray[np.uint8]], "list[Box] | list[Label]"]


@dataclass(frozen=True)
class _Look:
    """find: in a picture. key: of what is found, in JSON."""

    find: Detect
    key: str


@declare(
    "mpnet detect --cfg net.cfg --weights net.weights --names net.names street.jpg --out found/",
    "mpnet detect --cfg net.cfg --weights net.weights --default int8 --layer 'heads=fp16' pictures/ drive.mp4 --json",
    runtime=True,
)
@click.argument("images", nargs=-1, required=True, metavar="IMAGE...", type=click.Path(path_type=Path))
@click.option("--cfg", required=True, type=click.Path(path_type=Path), help="Darknet cfg.")
@click.option("--weights", required=True, type=click.Path(path_type=Path), help="Darknet weights.")
@click.option("--names", type=click.Path(path_type=Path), help="Class names, one a line.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for copies with boxes, or the best class, drawn.")
@click.option("--confidence", type=click.FloatRange(0, 1, max_open=True), default=0.25, show_default=True,
              help="Least score of a box.")
@click.option("--nms", type=click.FloatRange(0, 1), default=0.45, show_default=True,
              help="Overlap beyond which the weaker of two boxes of a class goes.")
@click.option("--nms-kind", type=click.Choice(NMS_KINDS), help="Measure of overlap.  [default: as the cfg says]")
@click.option("--resize", type=click.Choice(RESIZES),
              help="How a picture is fitted to the network.  [default: stretch; of classifiers crop]")
@click.option("--default", type=click.Choice(list(PRECISIONS)), help="Precision of layers for which the cfg says none.")
@layer_option
@dialect_option
def command(
    images: tuple[Path, ...], cfg: Path, weights: Path, names: Path | None, out: Path | None, confidence: float,
    nms: float, nms_kind: str | None, resize: str | None, default: str | None, layers: tuple[str, ...], dialect: str,
    threads: int | None, isa: str | None, quiet: bool, as_json: bool,
) -> int:
    """Find objects in pictures, all pictures of folders, and videos; with a classifier, the best five classes of each.

    With --out, copies with boxes drawn are written there; boxes are in pixels: x, y of the upper left corner, width,
    height. A file that is damaged is named, the others are looked at, and the exit code is 2.
    """
    sources = find_sources(images)
    if out is not None:
        from mpnet.formats.atomic import check_writable

        check_writable(out)
    network = load_network(
        cfg, weights, names, default=default, layers=selected_precisions(layers), dialect=dialect, threads=threads, isa=isa
    )
    for warning in network.spec.warnings:
        note(warning)

    detect: Detect
    task = network.spec.task or DETECTION
    fitted = resize or task.resize
    protocol: dict[str, Any] = {
        "input": list(network.spec.in_shape), "resize": fitted, "dialect": network.spec.dialect,
        "batch_norm": network.options.batch_norm,
    }
    if task is CLASSIFICATION:
        protocol["task"], detect = task.name, partial(network.classify, resize=fitted)
    else:
        kind = nms_kind or (network.spec.yolos[-1].nms_kind if network.spec.yolos else None)
        protocol |= {"confidence": confidence, "nms": nms, "nms_kind": kind}
        detect = partial(network.detect, confidence=confidence, nms=nms, nms_kind=kind, resize=fitted)
    look = _Look(detect, task.key)
    files: list[dict[str, Any]] = []
    failed: list[dict[str, str]] = []
    targets = [_target(source, out) for source in sources]
    with progress(quiet or len(sources) == 1)("files", len(sources)) as advance:
        for source, target in zip(sources, targets, strict=True):
            try:
                found = _video(source, target, look, quiet) if source.is_video else _picture(source, target, look)
            except DataError as error:
                if len(sources) == 1:
                    raise
                failed.append({"path": str(source.path), "reason": str(error)})
                fail(str(error))
            else:
                files.append(found)
                if not as_json:
                    _print(found)
            advance(1)
    if as_json:
        print_json({"cfg": str(cfg), "precision": network.precision, "protocol": protocol, "files": files,
                    **({"failed": failed} if failed else {})})
    if failed:
        fail(f"{len(failed)} of {len(sources)} files could not be looked at; they are named above")
    return 2 if failed else 0


def _target(source: Source, out: Path | None) -> Path | None:
    if out is None:
        return None
    target = out / source.out_name
    if os.path.realpath(target) == os.path.realpath(source.path):
        raise ConfigError(f"{target}: would replace the picture that is looked at; choose another --out")
    return target


def _picture(source: Source, target: Path | None, look: _Look) -> dict[str, Any]:
    picture = read_picture(source.path, repaired=lambda path: note(
        f"{path}: a damaged JPEG, decoded by OpenCV, which guesses what is missing; restore it"))
    found = look.find(picture)
    if target is not None:
        from mpnet.cli.drawing import write_drawn  # brings OpenCV, which reading a JPEG does without

        write_drawn(target, picture, found)
    return {
        "path": str(source.path), "kind": "picture", "width": picture.shape[1], "height": picture.shape[0],
        look.key: [one.plain() for one in found], "out": None if target is None else str(target),
    }


def _video(source: Source, target: Path | None, look: _Look, quiet: bool) -> dict[str, Any]:
    from mpnet.cli.drawing import look_at_video

    return look_at_video(source, target, look.find, look.key, quiet)


def _print(file: dict[str, Any]) -> None:
    target = f" -> {file['out']}" if file["out"] else ""
    if file["kind"] == "video":
        click.echo(f"{file['path']}: {len(file['frames'])} frames, {_headline(file['frames'])}{target}")
        return
    click.echo(f"{file['path']}: {_headline([file])}{target}")
    for box in file.get("detections", ()):
        x, y, width, height = box["box"]
        click.echo(f"  {box['score']:.3f}  {box['name']:<20} {x:7.1f} {y:7.1f} {width:7.1f} {height:7.1f}")
    for label in file.get("classes", ()):
        click.echo(f"  {label['score']:.3f}  {label['name']}")


def _headline(frames: list[dict[str, Any]]) -> str:
    """What was found in one picture, or in the frames of a video."""
    if "detections" in frames[0]:
        return f"{sum(len(frame['detections']) for frame in frames)} objects"
    best = Counter(frame["classes"][0]["name"] for frame in frames)
    return str(best.most_common(1)[0][0])
