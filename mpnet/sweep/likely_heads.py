"""Heads computed where a box can come from, for looks that want to know what is found and nothing else.

A box needs an objectness above the confidence, which few cells have. So the objectness channels come first, and the other
channels only in cells that pass. A cell of a 1x1 convolution depends on no other: what is found has the same bits.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.detection.decode import Cells, YoloHead
from mpnet.engine.bind import run_call
from mpnet.engine.execute import convert, run_lowering
from mpnet.engine.lowering import Lowering
from mpnet.engine.operations import Convolve
from mpnet.engine.prepare import Prepared, PreparedConvolution
from mpnet.engine.tensor import Tensor
from mpnet.kernels._core import lib
from mpnet.kernels.call import ImageScales, scratch
from mpnet.kernels.calls import Binder
from mpnet.kernels.core import c_arguments, check_status
from mpnet.kernels.interface import ConvShape
from mpnet.spec.network import ConvolutionSpec, NetworkSpec
from mpnet.spec.precision import FP32, INT8
from mpnet.trial.detection import DetectionDecoder
from mpnet.trial.task import Decoder

BLOCK = 12
"""Cells of a picture that are computed together, as an image of their own: one shape serves any number of cells."""


@dataclass(eq=False)
class HeadCells(Tensor):
    """Some cells of a head: data has the shape (blocks, 1, BLOCK, channels), cells says which they are."""

    cells: Cells | None = None


@dataclass(frozen=True, eq=False)
class _Parts:
    """A head's convolution: its objectness channels alone, for all cells, and all channels, for a block of cells."""

    objectness: PreparedConvolution
    whole: PreparedConvolution


class LikelyHeads:
    """Runs and decodes heads where that is possible cell by cell, all other layers and heads as ever."""

    def __init__(self, network: NetworkSpec, decoder: Decoder[Any]) -> None:
        self._network, self._decoder = network, decoder
        self._heads: dict[int, YoloHead] = {}
        self._confidence = 0.0
        if isinstance(decoder, DetectionDecoder):
            self._heads, self._confidence = _heads_by_convolution(network, decoder.heads), decoder.confidence
        self._made: dict[tuple[Prepared, Convolve], _Parts] = {}
        # Kept, since memory of this size is asked of the system anew each time.
        self._gathered = np.empty(0, np.uint8)

    def decode(self, output: int, tensor: Tensor, places: NDArray[np.float32]) -> Any:
        """What a head says: see `Decoder.decode`."""
        if isinstance(tensor, HeadCells) and isinstance(self._decoder, DetectionDecoder):
            return self._decoder.decode(output, tensor.data, places, tensor.cells)
        return self._decoder.decode(output, tensor.data, places)

    def run(self, low: Lowering, inputs: Sequence[Tensor], prepared: Prepared, threads: int) -> Tensor:
        """As `run_lowering`; of convolutions that only heads read, `HeadCells` with all cells that can give a box."""
        head, operation = self._heads.get(low.layer.index), low.main
        if head is None or not isinstance(operation, Convolve) or low.result is not FP32 or low.rest:
            return run_lowering(low, inputs, prepared, threads)
        x = convert(inputs[0], low.convert[0], prepared, threads)
        scales = None if x.code_map is None else x.code_map.scales
        parts = self._parts(operation, head, prepared)
        objectness = _convolve(operation, parts.objectness, x.data, scales, prepared, threads)
        cells, gathered = self._gather(objectness, x.data)
        if scales is not None:
            scales = scales.of_images(np.repeat(np.arange(x.images), np.diff(cells.starts) // BLOCK))
        data = _convolve(operation, parts.whole, gathered, scales, prepared, threads)
        return HeadCells(data, cells=cells)

    def _gather(self, objectness: NDArray[np.float32], x: NDArray[Any]) -> tuple[Cells, NDArray[Any]]:
        """Cells that can give a box, and what is read there: (blocks, 1, BLOCK, channels)."""
        images, height, width, anchors = objectness.shape
        row_bytes, most = x.shape[3] * x.itemsize, images * -(-height * width // BLOCK) * BLOCK
        if self._gathered.size < most * row_bytes:
            self._gathered = np.empty(most * row_bytes, np.uint8)
        starts, chosen = np.empty(images + 1, np.int64), np.empty(most, np.int32)
        check_status(lib.mp_likely_cells(*c_arguments(
            objectness, images, height * width, anchors, self._confidence, x, row_bytes, BLOCK, starts, chosen,
            self._gathered,
        )), "finding likely cells")
        cells = Cells((height, width), starts, chosen)
        gathered = self._gathered[:cells.rows * row_bytes].view(x.dtype)
        return cells, gathered.reshape(cells.rows // BLOCK, 1, BLOCK, x.shape[3])

    def _parts(self, operation: Convolve, head: YoloHead, prepared: Prepared) -> _Parts:
        key = prepared, operation
        if key not in self._made:
            height, width, _ = operation.layer_of(self._network).kernel_input
            objectness = np.arange(len(head.anchors)) * (5 + head.classes) + 4
            self._made[key] = _Parts(_pack(operation, objectness, height, width, prepared),
                                     _pack(operation, np.arange(head.channels), 1, BLOCK, prepared))
        return self._made[key]


def _heads_by_convolution(network: NetworkSpec, heads: Sequence[YoloHead]) -> dict[int, YoloHead]:
    """Plain [yolo] layers by the convolution that they alone read, where its cells do not depend on each other."""
    readers = Counter(index for layer in network.layers for index in layer.inputs)
    found = {}
    for output, head in zip(network.outputs, heads, strict=True):
        [source] = network.layers[output].inputs
        layer = network.layers[source] if source >= 0 else None
        if isinstance(layer, ConvolutionSpec) and readers[source] == 1 and head.other is None and not head.new_coords:
            pixelwise = (layer.size, layer.stride, layer.padding, layer.groups) == (1, 1, 0, 1)
            if pixelwise and layer.activation == "linear" and layer.kernel_output == layer.out_shape:
                found[source] = head
    return found


def _pack(operation: Convolve, filters: NDArray[np.intp], height: int, width: int, prepared: Prepared) -> PreparedConvolution:
    """Some filters of a 1x1 convolution for images of this size. Codes of fewer bits are packed as int8, which they are at any
    rate: so few cells do not pay for unpacking them."""
    constants = prepared.constants(operation)
    precision = INT8 if operation.precision.carries_scale else operation.precision
    weights, scale = np.ascontiguousarray(constants.weights[filters]), constants.weight_scale
    packed = prepared.kernels.pack_conv(ConvShape(height, width, weights.shape[1], len(filters), 1), precision, weights)
    return PreparedConvolution(packed, constants.bias[filters], None if scale is None else scale[filters], "linear")


def _convolve(
    operation: Convolve, ready: PreparedConvolution, x: NDArray[Any], scales: ImageScales | None, prepared: Prepared,
    threads: int,
) -> NDArray[np.float32]:
    """The convolution of x (n, h, w, c). Raises: KernelError, of values that are not finite as well."""
    shape = ready.packed.shape
    out = np.empty((len(x), shape.out_h, shape.out_w, shape.out_channels), np.float32)
    binder = Binder(prepared.kernels, threads)
    call = binder.conv(ready.packed, x, out, bias=ready.bias, activation=ready.activation, weight_scale=ready.weight_scale,
                       in_scales=scales, ranges=None)
    binder.finish(scratch)
    run_call(operation, call)
    return out
