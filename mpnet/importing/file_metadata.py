# SPDX-License-Identifier: MIT
"""The metadata of a file beside its graph: names of classes, and how images enter."""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass, replace
from typing import Any

from mpnet.config.protocol import RESIZES
from mpnet.importing.graph import NodeGraph
from mpnet.messages import shown

_MAX_TEXT = 1 << 20
_LARGEST = 1e30
_MAX_NAMES = 100_000


@dataclass(frozen=True)
class Pixels:
    """The network's input for an image whose values go from 0 to 255: (value - mean) / std, by channel of the network.

    bgr: blue comes first, in mean and std as well. resize: as `detection.resize`. note: where that comes from, for people.
    """

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (255.0,)
    bgr: bool = False
    resize: str = "stretch"
    note: str = ""

    @property
    def plain(self) -> bool:
        """Return whether that is what mpnet gives a network: 0 to 1, red first."""
        return not self.bgr and set(self.mean) == {0.0} and set(self.std) == {255.0}

    def text(self) -> str:
        """Return the range of values, the order of colours and the resizing, for people."""
        low = [(0 - m) / s for m, s in zip(self._per_channel(self.mean), self._per_channel(self.std), strict=True)]
        high = [(255 - m) / s for m, s in zip(self._per_channel(self.mean), self._per_channel(self.std), strict=True)]
        return f"{min(low):.4g} to {max(high):.4g}, {'BGR' if self.bgr else 'RGB'}, {self.resize}"

    def _per_channel(self, values: tuple[float, ...]) -> tuple[float, ...]:
        return values if len(values) > 1 else values * max(len(self.mean), len(self.std))


@dataclass(frozen=True)
class PixelOptions:
    """What a user says of the network's input, in the words of `Pixels`; None and '' leave it to the file.

    Without mean, deviation and blue first what is assumed of a decoder's family holds; with one of them what the file says.
    """

    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    bgr: bool = False
    resize: str = ""


@dataclass(frozen=True)
class ImageValues:
    """The values of an image that a graph itself takes: (value - mean) / std of values from 0 to 255. reason: how it tells."""

    mean: float
    std: float
    reason: str


def find_pixels(graph: NodeGraph, decoder: str, options: PixelOptions | None, values: ImageValues | None) -> Pixels:
    """Return how images enter: as the user says, as the file says, else assumed, which the note says.

    values: what the graph itself shows of the image's values, None for nothing. Raises: FormatError.
    """
    stated = _state_pixels(graph)
    assumed = _assume_pixels(decoder)
    if stated is None and values is not None:
        stated = replace(assumed, mean=(values.mean,), std=(values.std,))
        order = f"{values.reason}; order and resizing are assumed: --bgr and --resize say otherwise"
        stated = replace(stated, note=f"images: {stated.text()}: {order}")
    if options is None:
        return stated or assumed
    if options.mean is None and options.std is None and not options.bgr:
        pixels = replace(stated or assumed, resize=options.resize)
        return replace(pixels, note=f"images: {pixels.text()}: {options.resize} as asked for, else as the file says or assumed")
    base = stated or Pixels()
    pixels = Pixels(options.mean or base.mean, options.std or base.std, options.bgr or base.bgr, options.resize or "stretch")
    return replace(pixels, note=f"images: {pixels.text()}, as asked for")


def _state_pixels(graph: NodeGraph) -> Pixels | None:
    """Return how images enter as the file's metadata say, None where they do not. Raises: FormatError."""
    exported, stated = _parse_json(graph.metadata.get("input", "")), _parse_json(graph.metadata.get("mpnet.pixels", ""))
    if isinstance(exported, dict) and "resize" in exported:
        if exported["resize"] not in RESIZES:
            graph.fail(f"its metadata resize by {shown(exported['resize'])}; name one of {', '.join(RESIZES)} with --resize")
        pixels = Pixels(resize=exported["resize"])
        return replace(pixels, note=f"images: {pixels.text()}, as the file says")
    if isinstance(stated, dict):
        mean, std = (_read_numbers(stated.get(key)) for key in ("mean", "std"))
        if not mean or not std or 0 in std or len({len(mean), len(std)} - {1}) > 1:
            graph.fail("its metadata hold no mean and deviation of pixels; say them with --mean and --std")
        pixels = Pixels(mean, std)
        return replace(pixels, note=f"images: {pixels.text()}, as the file's metadata say (stretch is assumed)")
    return None


def _assume_pixels(decoder: str) -> Pixels:
    """Return how images enter networks of a decoder's family."""
    # YOLOX's own programs give it bytes in OpenCV's order; most others take shares of 255.
    pixels = Pixels(
        resize={
            "yolov5": "letterbox_opencv",
            "yolov8": "letterbox_opencv",
            "yolov8_obb": "letterbox_opencv",
            "yolox": "letterbox",
        }.get(decoder, "stretch")
    )
    if decoder == "yolox":
        pixels = replace(pixels, std=(1.0,), bgr=True)
    if decoder == "rtmdet":  # as MMDetection and NanoDet train: blue first
        pixels = replace(pixels, mean=(103.53, 116.28, 123.675), std=(57.375, 57.12, 58.395), bgr=True)
    if decoder == "picodet":  # as PaddleDetection trains
        pixels = replace(pixels, mean=(123.675, 116.28, 103.53), std=(58.395, 57.12, 57.375))
    return replace(pixels, note=f"images: {pixels.text()}: assumed; --mean, --std, --bgr and --resize say otherwise")


def _read_numbers(values: Any) -> tuple[float, ...]:
    """Return finite numbers, at most one for each channel of an image; () for anything else."""
    if not isinstance(values, list) or not 0 < len(values) <= 64:
        return ()
    if any(isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > _LARGEST for value in values):
        return ()
    return tuple(float(value) for value in values if value == value)


def find_class_names(graph: NodeGraph, classes: int) -> tuple[tuple[str, ...], str]:
    """Return one name for each class, and where they come from."""
    text = graph.metadata.get("names", "")
    names: Any = _parse_json(text)
    if names is None and 0 < len(text) < _MAX_TEXT:
        try:
            names = ast.literal_eval(text)  # Ultralytics writes a mapping as Python shows it
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            names = None
    if isinstance(names, dict):
        names = [names[key] for key in sorted(names, key=_class_number)]
    if isinstance(names, list) and len(names) == classes and all(isinstance(name, (str, int)) for name in names):
        clean = tuple("".join(c if c.isprintable() else "?" for c in _number_text(name)).strip()[:200] or "?" for name in names)
        return clean, f"names: {classes}, from the file"
    if classes > _MAX_NAMES:
        graph.fail(f"{classes} classes; the limit is {_MAX_NAMES}")
    numbered_names = tuple(f"class-{number}" for number in range(classes))
    first_and_last = "class-0" if classes < 2 else f"class-0 to class-{classes - 1}"
    return numbered_names, f"names: {first_and_last}, for the file has none that fit; edit the .names"


def _class_number(key: object) -> int:
    if isinstance(key, str) and key.isdecimal() and len(key) < 10:
        return int(key)
    return key if isinstance(key, int) else 1 << 30


def _number_text(name: str | int) -> str:
    # Python refuses to write integers of more than 4,300 digits.
    return name if isinstance(name, str) else str(name) if abs(name) < 1 << 1000 else "?"


def _parse_json(text: str) -> object:
    if not 0 < len(text) < _MAX_TEXT:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
