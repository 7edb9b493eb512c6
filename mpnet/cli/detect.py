"""`mpnet detect`: find objects in pictures, folders and videos, and draw them."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Callable, Iterator

import click
import cv2
import numpy as np
from numpy.typing import NDArray

from mpnet.cli.options import declare, layer_option, selected_precisions
from mpnet.cli.output import console, note, print_json, progress
from mpnet.cli.picture_files import Source, find_sources
from mpnet.errors import ConfigError, DataError
from mpnet.evaluation.dataset import read_picture
from mpnet.formats.atomic import atomic_path, write_bytes
from mpnet.formats.images import MAX_PIXELS
from mpnet.report.draw import Label, draw_labels
from mpnet.spec.experiment import NMS_KINDS, RESIZES
from mpnet.spec.precision import PRECISIONS
from mpnet.trial.network import Box, load_network

JPEG_QUALITY = 92
Detect = Callable[[NDArray[np.uint8]], list[Box]]


@declare(
    "mpnet detect --cfg net.cfg --weights net.weights --names net.names street.jpg --out found/",
    "mpnet detect --cfg net.cfg --weights net.weights --default int8 --layer 'heads=fp16' pictures/ drive.mp4 --json",
    runtime=True,
)
@click.argument("images", nargs=-1, required=True, metavar="IMAGE...", type=click.Path(path_type=Path))
@click.option("--cfg", required=True, type=click.Path(path_type=Path), help="Darknet cfg.")
@click.option("--weights", required=True, type=click.Path(path_type=Path), help="Darknet weights.")
@click.option("--names", type=click.Path(path_type=Path), help="Class names, one a line.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for copies with boxes drawn.")
@click.option("--confidence", type=click.FloatRange(0, 1, max_open=True), default=0.25, show_default=True,
              help="Least score of a box.")
@click.option("--nms", type=click.FloatRange(0, 1), default=0.45, show_default=True,
              help="Overlap beyond which the weaker of two boxes of a class goes.")
@click.option("--nms-kind", type=click.Choice(NMS_KINDS), help="Measure of overlap.  [default: as the cfg says]")
@click.option("--resize", type=click.Choice(RESIZES), default="stretch", show_default=True,
              help="How a picture is fitted to the network.")
@click.option("--default", type=click.Choice(list(PRECISIONS)), help="Precision of layers for which the cfg says none.")
@layer_option
def command(
    images: tuple[Path, ...], cfg: Path, weights: Path, names: Path | None, out: Path | None, confidence: float,
    nms: float, nms_kind: str | None, resize: str, default: str | None, layers: tuple[str, ...], threads: int | None,
    isa: str | None, quiet: bool, as_json: bool,
) -> None:
    """Find objects in pictures, all pictures of folders, and videos.

    With --out, copies with boxes drawn are written there; boxes are in pixels: x, y of the upper left corner, width,
    height.
    """
    sources = find_sources(images)
    network = load_network(
        cfg, weights, names, default=default, layers=selected_precisions(layers), threads=threads, isa=isa
    )
    for warning in network.spec.warnings:
        note(warning)

    def detect(picture: NDArray[np.uint8]) -> list[Box]:
        return network.detect(picture, confidence=confidence, nms=nms, nms_kind=nms_kind, resize=resize)

    files: list[dict[str, Any]] = []
    with progress(quiet or len(sources) == 1)("files", len(sources)) as advance:
        for source in sources:
            target = _target(source, out)
            files.append(_video(source, target, detect, quiet) if source.is_video else _picture(source, target, detect))
            if not as_json:
                _print(files[-1])
            advance(1)
    if as_json:
        kind = nms_kind or (network.spec.yolos[-1].nms_kind if network.spec.yolos else None)
        protocol = {"resize": resize, "confidence": confidence, "nms": nms, "nms_kind": kind,
                    "input": list(network.spec.in_shape)}
        print_json({"cfg": str(cfg), "precision": network.precision, "protocol": protocol, "files": files})


def _target(source: Source, out: Path | None) -> Path | None:
    if out is None:
        return None
    target = out / source.out_name
    if os.path.realpath(target) == os.path.realpath(source.path):
        raise ConfigError(f"{target}: would replace the picture that is looked at; choose another --out")
    return target


def _picture(source: Source, target: Path | None, detect: Detect) -> dict[str, Any]:
    picture = read_picture(source.path)
    boxes = detect(picture)
    if target is not None:
        options = [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY] if target.suffix == ".jpg" else []
        done, data = cv2.imencode(target.suffix, _drawn(picture, boxes)[:, :, ::-1], options)
        if not done:
            raise DataError(f"{target}: the picture cannot be encoded as {target.suffix}")
        write_bytes(target, data.tobytes())
    return {
        "path": str(source.path), "kind": "picture", "width": picture.shape[1], "height": picture.shape[0],
        "detections": [_box(box) for box in boxes], "out": None if target is None else str(target),
    }


def _video(source: Source, target: Path | None, detect: Detect, quiet: bool) -> dict[str, Any]:
    reader = cv2.VideoCapture(str(source.path))
    if not reader.isOpened():
        raise DataError(f"{source.path}: is not a video that OpenCV can read; convert it, for example to MP4")
    rate = reader.get(cv2.CAP_PROP_FPS)
    rate = rate if 0 < rate < 1000 else 25.0
    count = int(reader.get(cv2.CAP_PROP_FRAME_COUNT))
    width, height = int(reader.get(cv2.CAP_PROP_FRAME_WIDTH)), int(reader.get(cv2.CAP_PROP_FRAME_HEIGHT))
    if not 0 < width * height <= MAX_PIXELS:
        raise DataError(f"{source.path}: frames of {width} x {height} pixels are outside the limit of {MAX_PIXELS}")
    frames: list[dict[str, Any]] = []
    with ExitStack() as stack:
        stack.callback(reader.release)
        writer = None
        if target is not None:
            # The part has the target's suffix, by which OpenCV chooses the container.
            part = stack.enter_context(atomic_path(target))
            writer = cv2.VideoWriter(str(part), cv2.VideoWriter.fourcc(*"mp4v"), rate, (width, height))
            stack.callback(writer.release)
            if not writer.isOpened():
                raise DataError(f"{target}: the video cannot be written; check the folder, or leave --out away")
        advance = stack.enter_context(progress(quiet)(source.path.name, count if count > 0 else None))
        for number, frame in enumerate(_frames(reader)):
            boxes = detect(frame)
            frames.append({
                "frame": number, "time_ms": 1000 * number / rate, "detections": [_box(box) for box in boxes],
            })
            if writer is not None:
                writer.write(np.ascontiguousarray(_drawn(frame, boxes)[:, :, ::-1]))
            advance(1)
        if not frames:
            raise DataError(f"{source.path}: holds no frame that can be decoded")
    return {"path": str(source.path), "kind": "video", "width": width, "height": height, "frames_per_second": rate,
            "frames": frames, "out": None if target is None else str(target)}


def _frames(reader: cv2.VideoCapture) -> Iterator[NDArray[np.uint8]]:
    while True:
        done, frame = reader.read()
        if not done:
            return
        yield np.ascontiguousarray(frame[:, :, ::-1], dtype=np.uint8)


def _drawn(picture: NDArray[np.uint8], boxes: list[Box]) -> NDArray[np.uint8]:
    return draw_labels(picture, [
        Label((box.x, box.y, box.width, box.height), box.category, f"{box.name} {100 * box.score:.0f}%")
        for box in boxes
    ])


def _box(box: Box) -> dict[str, Any]:
    return {"name": box.name, "category": box.category, "score": box.score,
            "box": [box.x, box.y, box.width, box.height]}


def _print(file: dict[str, Any]) -> None:
    out = console()
    target = f" -> {file['out']}" if file["out"] else ""
    if file["kind"] == "video":
        found = sum(len(frame["detections"]) for frame in file["frames"])
        out.print(f"{file['path']}: {len(file['frames'])} frames, {found} objects{target}")
        return
    out.print(f"{file['path']}: {len(file['detections'])} objects{target}")
    for box in file["detections"]:
        x, y, width, height = box["box"]
        out.print(f"  {box['score']:.3f}  {box['name']:<20} {x:7.1f} {y:7.1f} {width:7.1f} {height:7.1f}")
