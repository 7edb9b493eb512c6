# SPDX-License-Identifier: MIT
"""What travels with a file beside the graph: names of classes, and how images enter."""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass
from typing import Any

from mpnet.importing.graph import Graph

_MAX_TEXT = 1 << 20
_MAX_NAMES = 100_000


@dataclass(frozen=True)
class Pixels:
    """What the network takes of an image whose values go from 0 to 255: (value - mean) / std, by channel.

    bgr: blue comes first. resize: as `detection.resize`. note: where that comes from, for people.
    """

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (255.0,)
    bgr: bool = False
    resize: str = "stretch"
    note: str = ""

    @property
    def plain(self) -> bool:
        """Whether that is what mpnet gives a network: 0 to 1, red first."""
        return not self.bgr and set(self.mean) == {0.0} and set(self.std) == {255.0}

    def text(self) -> str:
        """For people."""
        low = [(0 - m) / s for m, s in zip(self._all(self.mean), self._all(self.std), strict=True)]
        high = [(255 - m) / s for m, s in zip(self._all(self.mean), self._all(self.std), strict=True)]
        return f"{min(low):.4g} to {max(high):.4g}, {'BGR' if self.bgr else 'RGB'}, {self.resize}"

    def _all(self, values: tuple[float, ...]) -> tuple[float, ...]:
        return values if len(values) > 1 else values * max(len(self.mean), len(self.std))


def pixels_of(graph: Graph, decoder: str, said: Pixels | None) -> Pixels:
    """How images enter: as the user says, as the file says, else assumed, which the note says."""
    if said is not None:
        return Pixels(said.mean, said.std, said.bgr, said.resize, f"images: {said.text()}, as asked for")
    own = _json(graph.metadata.get("input", ""))
    if isinstance(own, dict) and "resize" in own:
        found = Pixels(resize=str(own["resize"]))
        return Pixels(resize=found.resize, note=f"images: {found.text()}, as the file says")
    stated = _json(graph.metadata.get("mpnet.pixels", ""))
    if isinstance(stated, dict):
        found = Pixels(tuple(stated["mean"]), tuple(stated["std"]))
        return Pixels(found.mean, found.std, note=f"images: {found.text()}, as the file's metadata say (stretch is assumed)")
    # YOLOX's own programs give it bytes in OpenCV's order; all others take shares of 255.
    found = (
        Pixels(std=(1.0,), bgr=True, resize="letterbox")
        if decoder == "yolox"
        else Pixels(resize="letterbox" if decoder in ("yolov5", "yolov8") else "stretch")
    )
    return Pixels(
        found.mean,
        found.std,
        found.bgr,
        found.resize,
        f"images: {found.text()}: assumed; --mean, --std, --bgr and --resize say otherwise",
    )


def class_names(graph: Graph, classes: int) -> tuple[tuple[str, ...], str]:
    """One name per class, and where they come from."""
    said = graph.metadata.get("names", "")
    found: Any = _json(said)
    if found is None and 0 < len(said) < _MAX_TEXT:
        try:
            found = ast.literal_eval(said)  # Ultralytics writes a mapping as Python shows it
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            found = None
    if isinstance(found, dict):
        found = [found[key] for key in sorted(found, key=lambda key: int(key) if str(key).isdigit() else 1 << 30)]
    if isinstance(found, list) and len(found) == classes and all(isinstance(name, (str, int)) for name in found):
        clean = tuple("".join(c if c.isprintable() else "?" for c in str(name)).strip()[:200] or "?" for name in found)
        return clean, f"names: {classes}, from the file"
    if classes > _MAX_NAMES:
        graph.fail(f"{classes} classes; the limit is {_MAX_NAMES}")
    made = tuple(f"class-{number}" for number in range(classes))
    shown = "class-0" if classes < 2 else f"class-0 to class-{classes - 1}"
    return made, f"names: {shown}, for the file has none that fit; edit the .names"


def _json(text: str) -> Any:
    if not 0 < len(text) < _MAX_TEXT:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
