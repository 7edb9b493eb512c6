# SPDX-License-Identifier: MIT
"""Tensors that enter a yolo layer -> scored boxes. The work is done in csrc/detect/decode.c."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.data.detections import rows_of
from mpnet.detection.decoders import ImportedHead, ready
from mpnet.detection.other_heads import HeadContext, OtherHead, ready_head
from mpnet.detection.preprocess import Geometry, geometry_array
from mpnet.errors import ConfigError, DataError
from mpnet.kernels.heads import decode_yolo
from mpnet.model.layers import DecodedSpec, DetectionSpec, GaussianYoloSpec, RegionSpec, YoloSpec
from mpnet.model.network import NetworkSpec


@dataclass(frozen=True)
class YoloHead:
    """The values of a [yolo] section that decoding needs.

    anchors:     the masked ones, (width, height) in pixels of the network input.
    net_width, net_height: network input, pixels.
    scale_x_y:   AlexeyAB's stretch of the centre, 1 unless the cfg says so.
    new_coords:  the convolution before is already logistic; width and height are (2 v)^2 of the anchor.
    other:       how the head differs from [yolo], None: not at all.
    """

    anchors: tuple[tuple[float, float], ...]
    classes: int
    net_width: int
    net_height: int
    scale_x_y: float = 1.0
    new_coords: bool = False
    other: OtherHead | ImportedHead | None = None

    @property
    def channels(self) -> int:
        """Return the channels of the tensor: per anchor x, y, w, h, objectness, classes."""
        return len(self.anchors) * (5 + self.classes) if self.other is None else self.other.channels(len(self.anchors))


@dataclass(frozen=True, eq=False)
class Candidates:
    """The boxes of one head before suppression, by image, then class, then falling score, then cell and anchor.

    offsets:  int64 (images + 1,); category: int32 (n,); score: float32 (n,);
    box:      float32 (n, 4), centre x, centre y, width, height relative to the image.
    Decoded once per head tensor; any two heads of one set of images can be joined by `nms.suppress`.
    """

    offsets: NDArray[np.int64]
    category: NDArray[np.int32]
    score: NDArray[np.float32]
    box: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.score)

    @property
    def image_count(self) -> int:
        """Return the number of images."""
        return len(self.offsets) - 1

    @property
    def nbytes(self) -> int:
        """Return the memory that the boxes take."""
        return self.category.nbytes + self.score.nbytes + self.box.nbytes

    def in_order(self, order: NDArray[np.intp]) -> Candidates:
        """Return the candidates with image order[i] as image i."""
        offsets, chosen = rows_of(self.offsets, order)
        return Candidates(offsets, self.category[chosen], self.score[chosen], self.box[chosen])


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of the grid that the rows of a head's tensor are, where they are not all.

    grid:   height, width.
    starts: int64 (images + 1,): image i has rows starts[i] to starts[i + 1] - 1.
    chosen: int32 (rows,): row r is this cell, counted along the grid's rows and rising in each image; -1: no cell.
    """

    grid: tuple[int, int]
    starts: NDArray[np.int64]
    chosen: NDArray[np.int32]

    @property
    def rows(self) -> int:
        """Return the number of rows of all images together."""
        return int(self.starts[-1])


def join_images(groups: Sequence[Candidates]) -> Candidates:
    """Return candidates of consecutive groups of images as those of all of them."""
    if not groups:
        raise ConfigError("no candidates to join")
    if len(groups) == 1:
        return groups[0]
    row_offsets = np.cumsum([0, *(len(group) for group in groups)])
    shift = np.repeat(row_offsets[:-1], [group.image_count for group in groups])
    offsets = np.concatenate([np.zeros(1, np.int64), np.concatenate([group.offsets[1:] for group in groups]) + shift])
    return Candidates(
        offsets,
        np.concatenate([p.category for p in groups]),
        np.concatenate([p.score for p in groups]),
        np.concatenate([p.box for p in groups]),
    )


def decode_head(
    head: NDArray[np.float32],
    yolo: YoloHead,
    geometry: Sequence[Geometry] | NDArray[np.float32],
    confidence: float = 0.005,
    cells: Cells | None = None,
) -> Candidates:
    """Return boxes with a class score above `confidence`, scores being objectness * class probability.

    head:      float32 (n, grid height, grid width, anchors * (5 + classes)), before the yolo layer's logistic.
    geometry:  one per image, or `geometry_array` of them.
    cells:     of a plain [yolo]: head has these cells alone, one row after the other in whatever shape.
    Result:    a box gives one entry for each class above the confidence.
    Raises: DataError for shapes that do not fit, ConfigError for a confidence outside [0, 1), NonFiniteError for boxes
    that are not finite.
    Source: reference Darknet's yolo layer; exp and logistic as in csrc/mp_math.h.
    """
    _check_head(head, yolo, confidence)
    geometries = geometry if isinstance(geometry, np.ndarray) else geometry_array(geometry)
    images = head.shape[0] if cells is None else len(cells.starts) - 1
    _check_images(head, yolo, geometries, images, cells)
    anchors = np.array(yolo.anchors, dtype=np.float32)
    tensor = _as_plain_yolo(np.ascontiguousarray(head, dtype=np.float32), yolo, anchors, confidence)
    height, width = tensor.shape[1:3] if cells is None else cells.grid
    starts, chosen = (None, None) if cells is None else (cells.starts, cells.chosen)
    geometries = np.ascontiguousarray(geometries, dtype=np.float32)
    fields = _kernel_fields(yolo, height, width)
    return Candidates(*decode_yolo(fields, anchors, tensor, starts, chosen, images, geometries, confidence))


def _check_head(head: NDArray[np.float32], yolo: YoloHead, confidence: float) -> None:
    # A [detection] layer takes all values as one row, whatever shape they have.
    is_flat = isinstance(yolo.other, OtherHead) and yolo.other.kind == "detection"
    if head.ndim != 4 or (head[0].size if is_flat else head.shape[3]) != yolo.channels:
        raise DataError(
            f"a head of {len(yolo.anchors)} anchors and {yolo.classes} classes has {yolo.channels} "
            f"channels; got an array of shape {head.shape}"
        )
    if not 0 <= confidence < 1:
        raise ConfigError(f"detection.confidence: {confidence} is outside [0, 1)")


def _check_images(
    head: NDArray[np.float32], yolo: YoloHead, geometries: NDArray[np.float32], images: int, cells: Cells | None
) -> None:
    if geometries.shape != (images, 4):
        raise DataError(f"{images} images need as many geometries, not {len(geometries)}")
    if cells is not None and (yolo.other is not None or head.size != cells.rows * yolo.channels):
        raise DataError(f"{cells.rows} cells of a [yolo] layer need as many rows; got an array of shape {head.shape}")


def _as_plain_yolo(
    tensor: NDArray[np.float32], yolo: YoloHead, anchors: NDArray[np.float32], confidence: float
) -> NDArray[np.float32]:
    """Return a head's tensor as that of a plain [yolo] layer would be."""
    if yolo.other is None:
        return tensor
    if isinstance(yolo.other, ImportedHead):
        return ready(tensor, yolo.other)
    context = HeadContext(yolo.net_width, yolo.net_height, yolo.scale_x_y, yolo.classes, confidence)
    return ready_head(tensor, yolo.other, anchors, context)


def _kernel_fields(yolo: YoloHead, height: int, width: int) -> dict[str, float]:
    """Return the fields of the C struct of a head with a grid of this height and width."""
    return {
        "grid_h": height,
        "grid_w": width,
        "anchors": len(yolo.anchors),
        "classes": yolo.classes,
        "net_w": yolo.net_width,
        "net_h": yolo.net_height,
        # The centres of other heads are stretched already.
        "scale_x_y": yolo.scale_x_y if yolo.other is None else 1.0,
        "new_coords": int(yolo.new_coords) if yolo.other is None else yolo.other.coordinates,
    }


def yolo_heads(network: NetworkSpec) -> tuple[YoloHead, ...]:
    """Return what decoding needs of every yolo layer, in order."""
    return tuple(_head(network, yolo) for yolo in network.yolos)


def _head(network: NetworkSpec, layer: YoloSpec) -> YoloHead:
    width, height = network.width, network.height
    if isinstance(layer, RegionSpec):
        classes_by = "tree" if layer.tree else "softmax" if layer.softmax else "nothing" if layer.raw_classes else "logistic"
        other_head = OtherHead("region", layer.classes, classes_by, layer.tree, layer.map, background=layer.background)
        rows, columns, _ = layer.in_shape
        anchors = tuple((w * width / columns, h * height / rows) for w, h in layer.head_anchors)
        return YoloHead(anchors, layer.scored_classes, width, height, other=other_head)
    if isinstance(layer, GaussianYoloSpec):
        other_head = OtherHead("gaussian", layer.classes, point=layer.point)
        return YoloHead(layer.head_anchors, layer.classes, width, height, layer.scale_x_y, other=other_head)
    if isinstance(layer, DecodedSpec):
        imported = ImportedHead(layer, width, height)
        return YoloHead(imported.anchors, layer.classes, width, height, other=imported)
    if isinstance(layer, DetectionSpec):
        classes_by = "softmax" if layer.softmax else "nothing"
        other_head = OtherHead("detection", layer.classes, classes_by, side=layer.side, boxes=layer.boxes, root=layer.root)
        # A quarter of the image: decoding multiplies the square of a side by 4.
        return YoloHead(((width / 4, height / 4),) * layer.boxes, layer.classes, width, height, other=other_head)
    return YoloHead(layer.head_anchors, layer.classes, width, height, layer.scale_x_y, layer.new_coords)
