# SPDX-License-Identifier: MIT
"""Published cfgs that do not fit the weights published with them, known by what their layers are.

A precision, another size of the image, training keys, spaces or comments make no difference: layers, anchors, classes
and masks are compared. Networks of one's own with other classes are trained with the mask that they say, and fit it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

from mpnet.model.layers import ConvolutionSpec, LayerSpec, YoloSpec


@dataclass(frozen=True)
class Misfit:
    """filters: of the convolutions, in order. masks: as published; trained: what the weights were trained with."""

    name: str
    filters: tuple[int, ...]
    classes: int
    anchors: tuple[float, ...]
    masks: tuple[tuple[int, ...], ...]
    trained: tuple[tuple[int, ...], ...]
    costs: str
    remedy: str

    def warning(self, layers: Sequence[LayerSpec]) -> tuple[LayerSpec, str] | None:
        """Return the head with the wrong mask, and what to say of it; None where the layers are of another network."""
        heads = [layer for layer in layers if isinstance(layer, YoloSpec)]
        filters = tuple(layer.filters for layer in layers if isinstance(layer, ConvolutionSpec))
        if filters != self.filters or tuple(head.mask for head in heads) != self.masks:
            return None
        if any(head.classes != self.classes or sum(head.anchors, ()) != self.anchors for head in heads):
            return None
        wrong, right = next((h, right) for h, right in zip(heads, self.trained, strict=True) if h.mask != right)
        written, trained = (",".join(map(str, mask)) for mask in (wrong.mask, right))
        return wrong, (
            f"mask = {written} is that of the official {self.name}.cfg, but its published weights were trained with "
            f"{trained}; with them {self.costs}; {self.remedy}, unless these weights were trained with this mask"
        )


MISFITS = (
    Misfit(
        "yolov3-tiny",
        (16, 32, 64, 128, 256, 512, 1024, 256, 512, 255, 128, 256, 255),
        80,
        (10, 14, 23, 27, 37, 58, 81, 82, 135, 169, 344, 319),
        ((3, 4, 5), (0, 1, 2)),
        ((3, 4, 5), (1, 2, 3)),
        "a third of AP is lost",
        "write mask = 1,2,3 or use cfg/yolov3-tiny.cfg",
    ),
)


def misfits(layers: Sequence[LayerSpec], source: str) -> list[str]:
    """Return a warning for each published misfit that these layers are: `source:line: ...`."""
    warnings = [misfit.warning(layers) for misfit in MISFITS]
    return [f"{source}:{warning[0].line}: {warning[1]}" for warning in warnings if warning is not None]
