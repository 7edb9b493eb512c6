# SPDX-License-Identifier: MIT
"""Heads computed where a box can come from, for looks that want to know what is found and nothing else.

A box needs an objectness above the confidence, which few cells have. So the objectness channels come first, and the other
channels only in cells that pass. A cell of a 1x1 convolution depends on no other: what is found has the same bits.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Sequence
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from mpnet.detection.decode import Cells, YoloHead
from mpnet.engine.execute import convert, convolve, on_device, prepared_for, run_lowering
from mpnet.engine.lowering import Lowering
from mpnet.engine.operations import Convolve, PreparedConvolution
from mpnet.engine.prepare import Prepared
from mpnet.engine.tensor import Tensor
from mpnet.errors import NonFiniteError
from mpnet.kernels.device import Storage
from mpnet.kernels.heads import likely_cells
from mpnet.kernels.interface import ConvShape
from mpnet.kernels.scales import ImageScales
from mpnet.model.network import ConvolutionSpec, NetworkSpec
from mpnet.model.precision import FP32, Precision
from mpnet.trial.detection import DetectionDecoder
from mpnet.trial.kit import Decoded, Decoder, Predictions

BLOCK = 12
"""Cells of an image that are computed together, as an image of their own: one shape serves any number of cells."""


@dataclass(eq=False)
class HeadCells(Tensor):
    """Some cells of a head: data has the shape (blocks, 1, BLOCK, channels), cells says which they are."""

    cells: Cells | None = None


@dataclass(eq=False)
class _Widths:
    """The objectness channels of a head's convolution at all widths that were met so far, as one convolution.

    They read the same codes, and the filters of all widths are still so few that they cost no more than those of one.

    results: of the convolution, (n, h, w, widths * anchors), which live as long as what was read.
    """

    operations: list[Convolve] = field(default_factory=list)
    convolution: PreparedConvolution | None = None
    results: WeakKeyDictionary[Tensor, NDArray[np.float32]] = field(default_factory=WeakKeyDictionary)


class LikelyHeads:
    """A runner and decoder of heads where that is possible cell by cell, all other layers and heads as ever."""

    def __init__(self, network: NetworkSpec, decoder: Decoder[Predictions]) -> None:
        self._network, self._decoder = network, decoder
        self._heads: dict[int, YoloHead] = {}
        self._confidence = 0.0
        if isinstance(decoder, DetectionDecoder):
            self._heads, self._confidence = _heads_by_convolution(network, decoder.heads), decoder.confidence
        self._full_heads: dict[tuple[Prepared, Convolve], PreparedConvolution] = {}
        self._widths: dict[tuple[Prepared, int, Precision], _Widths] = {}
        # Kept, since memory of this size is asked of the system anew each time.
        self._gathered = np.empty(0, np.uint8)

    def decode(self, output: int, tensor: Tensor, geometry: NDArray[np.float32]) -> Decoded:
        """Decode a head's tensor, as `Decoder.decode`."""
        if isinstance(tensor, HeadCells) and isinstance(self._decoder, DetectionDecoder):
            return self._decoder.decode(output, tensor.floats(), geometry, tensor.cells)
        return self._decoder.decode(output, tensor.floats(), geometry)

    def run(self, lowering: Lowering, inputs: Sequence[Tensor], prepared: Prepared, threads: int) -> Tensor:
        """Run as `run_lowering`; of convolutions that only heads read, give `HeadCells` with all cells that can give a box."""
        head, operation = self._heads.get(lowering.layer.index), lowering.main
        if (
            head is None
            or not isinstance(operation, Convolve)
            or lowering.result is not FP32
            or lowering.rest
            or any(lowering.slices)
        ):
            return run_lowering(lowering, inputs, prepared, threads)
        x = convert(inputs[0], lowering.convert[0], prepared, threads)
        prepared = prepared_for(operation, x, prepared)
        x, device = on_device(x, prepared), prepared.kernels.device
        scales = None if x.code_map is None else x.code_map.scales
        objectness, offset = self._objectness(operation, head, x, prepared, threads)
        cells, gathered = self._gather(objectness, offset, len(head.anchors), x.host())
        if scales is not None:
            scales = scales.of_images(np.repeat(np.arange(x.images), (cells.starts[1:] - cells.starts[:-1]) // BLOCK), device)
        if (prepared, operation) not in self._full_heads:
            self._full_heads[prepared, operation] = _pack([operation], np.arange(head.channels), 1, BLOCK, prepared)
        result = _convolve(operation, self._full_heads[prepared, operation], device.upload(gathered), scales, prepared, threads)
        return HeadCells(result, cells=cells)

    def _objectness(
        self, operation: Convolve, head: YoloHead, x: Tensor, prepared: Prepared, threads: int
    ) -> tuple[NDArray[np.float32], int]:
        """Return raw objectness in all cells (n, h, w, of anchors at several widths), and the first value of this width's."""
        scales = None if x.code_map is None else x.code_map.scales
        filters = np.arange(len(head.anchors)) * (5 + head.classes) + 4
        widths = self._widths.setdefault((prepared, operation.layer, _packing_precision(operation)), _Widths())
        if operation not in widths.operations:
            widths.operations.append(operation)
            widths.convolution = _pack(widths.operations, filters, *x.shape[:2], prepared)
        offset = widths.operations.index(operation) * len(filters)
        objectness = widths.results.get(x)
        if objectness is None or objectness.shape[3] <= offset:
            assert widths.convolution is not None
            try:
                objectness = widths.results[x] = _convolve(
                    operation, widths.convolution, x.storage, scales, prepared, threads
                ).floats()
            except NonFiniteError:
                # Perhaps of a width that nobody asked for.
                convolution = _pack([operation], filters, *x.shape[:2], prepared)
                return _convolve(operation, convolution, x.storage, scales, prepared, threads).floats(), 0
        return objectness, offset

    def _gather(
        self, objectness: NDArray[np.float32], offset: int, anchors: int, x: NDArray[Any]
    ) -> tuple[Cells, NDArray[Any]]:
        """Return the cells that can give a box, and what is read there: (blocks, 1, BLOCK, channels).

        objectness, offset: as above.
        """
        images, height, width, _ = objectness.shape
        row_bytes, max_cells = x.shape[3] * x.itemsize, images * -(-height * width // BLOCK) * BLOCK
        if self._gathered.size < max_cells * row_bytes:
            self._gathered = np.empty(max_cells * row_bytes, np.uint8)
        starts, indices = np.empty(images + 1, np.int64), np.empty(max_cells, np.int32)
        results = (starts, indices, self._gathered)
        likely_cells(objectness, offset, anchors, self._confidence, x, row_bytes, BLOCK, *results)
        cells = Cells((height, width), starts, indices)
        gathered = self._gathered[: cells.rows * row_bytes].view(x.dtype)
        return cells, gathered.reshape(cells.rows // BLOCK, 1, BLOCK, x.shape[3])


def _heads_by_convolution(network: NetworkSpec, heads: Sequence[YoloHead]) -> dict[int, YoloHead]:
    """Return plain [yolo] layers by the convolution that they alone read, where its cells do not depend on each other."""
    readers = Counter(index for layer in network.layers for index in layer.inputs)
    by_convolution = {}
    for output, head in zip(network.outputs, heads, strict=True):
        [source] = network.layers[output].inputs
        layer = network.layers[source] if source >= 0 else None
        if isinstance(layer, ConvolutionSpec) and readers[source] == 1 and head.other is None and not head.new_coords:
            pixelwise = (layer.size, layer.stride, layer.padding, layer.groups) == (1, 1, 0, 1)
            if pixelwise and layer.activation == "linear" and layer.kernel_output == layer.out_shape:
                by_convolution[source] = head
    return by_convolution


def _packing_precision(operation: Convolve) -> Precision:
    """Return how codes are packed: fewer bits as eight, which they are at any rate; so few cells do not pay for unpacking."""
    return operation.precision.tensor if operation.precision.is_narrow else operation.precision


def _pack(
    operations: Sequence[Convolve], filters: NDArray[np.intp], height: int, width: int, prepared: Prepared
) -> PreparedConvolution:
    """Pack some filters of 1x1 convolutions, of one after the other, for images of this size."""
    constants = [prepared.constants(operation) for operation in operations]
    weights = np.concatenate([constant.weights[filters] for constant in constants])
    scales = [constant.weight_scale[filters] for constant in constants if constant.weight_scale is not None]
    shape = ConvShape(height, width, weights.shape[1], len(weights), 1)
    return PreparedConvolution(
        prepared.kernels.pack_conv(shape, _packing_precision(operations[0]), weights),
        np.concatenate([constant.bias[filters] for constant in constants]),
        np.concatenate(scales) if scales else None,
        "linear",
    )


def _convolve(
    operation: Convolve,
    convolution: PreparedConvolution,
    x: Storage,
    scales: ImageScales | None,
    prepared: Prepared,
    threads: int,
) -> Storage:
    """Return the convolution of x (n, h, w, c)."""
    shape = convolution.packed.shape
    result = x.device.allocate((x.shape[0], shape.out_h, shape.out_w, shape.out_channels), FP32.stored.dtype)
    convolve(operation, convolution, x, result, scales, prepared, threads)
    return result
