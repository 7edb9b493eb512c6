# SPDX-License-Identifier: MIT
"""Codes of weights, and biases, that make each layer's output what it is in fp32, learnt layer by layer.

A layer of the lowered network reads what the layers before it give, whose weights were learnt already. A gain of each channel
takes back what its inputs lack, its codes are the best for the output of the weights that this gives, on these inputs
(`mpnet.quantization.learnt_rounding`), and its bias takes back the mean error that is left. Cells of heads count as much as an
object is likely there. The same images give the same bits on every CPU.

Least squares of all weights, in place of a gain, learnt the images by heart: the heads of Yolo-Fastest came out 0.4 dB worse
than without any of it (16 images), where gains bring 1.9 dB.
"""

from __future__ import annotations

from typing import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.assign import PrecisionPlan
from mpnet.engine.observe import head_convolutions
from mpnet.engine.options import EngineOptions
from mpnet.engine.prepare import Prepared
from mpnet.errors import ConfigError, DataError
from mpnet.model.network import NetworkSpec
from mpnet.model.quantization import LEARNT, PER_GROUP, WEIGHTS
from mpnet.model.weights import Weights
from mpnet.progress import Advance, unseen
from mpnet.quantization.cell_weights import cell_weights
from mpnet.quantization.equalise import FoldedConvolution
from mpnet.quantization.learnt_rounding import MOST_INPUTS, InputProducts, learn_codes
from mpnet.quantization.weights import WeightScheme, dequantize_weights
from mpnet.tuning.channel_fit import ChannelFit
from mpnet.tuning.lockstep import LayerPass, Lockstep

Floats = NDArray[np.float32]
Cells = NDArray[np.float64]
"""How often each position of a batch's images counts: whole numbers (n, h, w)."""


def rounded_layers(
    prepared: Prepared,
    weights: Weights,
    precisions: PrecisionPlan,
    options: EngineOptions,
    batches: Sequence[Floats],
    cells: Mapping[int, Sequence[Cells]] | None = None,
    threads: int = 1,
    advance: Advance = unseen,
) -> dict[int, FoldedConvolution]:
    """Return every convolution folded, with weights that stand for learnt codes, and biases that fit them.

    options: those under which the result runs: weights rounded to nearest, biases not corrected.
    cells:   see `likely_cells`; positions of layers without any count alike. The other arguments as of `Lockstep`.
    Raises: EngineError that names the layer, ConfigError for weights whose codes are not learnt, DataError without images.
    """
    lockstep = Lockstep(prepared, weights, precisions, options, batches, threads)
    return lockstep.run_all(lambda layer_pass: _Layer(layer_pass, cells or {}).learnt(), advance)


def likely_cells(network: NetworkSpec, heads: Iterable[Sequence[Floats]]) -> dict[int, list[Cells]]:
    """Return how often the positions of convolutions that heads decode count, of each batch, by layer index.

    heads: of each batch the tensors that enter the heads in fp32, (n, h, w, c), in the order of `NetworkSpec.outputs`.
    """
    decoded = head_convolutions(network)
    cells: dict[int, list[Cells]] = {index: [] for index in decoded}
    for tensors in heads:
        by_head = dict(zip(network.outputs, tensors, strict=True))
        for index, (_, head) in decoded.items():
            assert head.objectness is not None
            tensor = np.asarray(by_head[head.index])
            cells[index].append(cell_weights(tensor, len(head.head_anchors), head.objectness, head.new_coords))
    return cells


class _Layer:
    """A layer whose codes are learnt, with what it reads and what it is to give, for each batch."""

    def __init__(self, layer_pass: LayerPass, cells: Mapping[int, Sequence[Cells]]) -> None:
        self._pass = layer_pass
        self._layer = layer_pass.layer
        numbers = range(len(layer_pass.inputs))
        self._targets = [layer_pass.target(number) for number in numbers]
        self._counts: Sequence[Cells | None] = cells.get(self._layer.index, [None for _ in numbers])

    def learnt(self) -> FoldedConvolution:
        """Return the convolution with the weights that stand for its codes, and the bias that fits them."""
        if not self._targets:
            raise DataError("there is no image to tune on; name at least one")
        convolution, scheme = self._pass.convolution, self._scheme()
        if scheme is not None and self._layer.weight_count // self._layer.filters <= MOST_INPUTS:
            gain = ChannelFit()
            products = self._products(gain)
            wanted = gain.result().applied_to(convolution).weights
            weights = learn_written_weights(wanted, products.covariance(), scheme, products.positions)
        else:
            weights = convolution.weights
        return FoldedConvolution(weights, convolution.bias + self._bias_change(weights))

    def _products(self, gain: ChannelFit) -> InputProducts:
        """Return the products of what the lowered layer reads; `gain` is shown what fp32 weights make of that."""
        layer = self._layer
        reads = [self._pass.read(number) for number in range(len(self._targets))]
        products = InputProducts(
            layer.kernel_input[2],
            max(float(np.abs(read).max()) for read in reads),
            size=layer.size,
            stride=layer.stride,
            padding=layer.padding,
            dilation=layer.dilation,
            groups=layer.groups,
        )
        for target, read, counts in zip(self._targets, reads, self._counts, strict=True):
            gain.observe(target, self._pass.plain_of(read))
            products.observe(read.reshape(-1, *layer.kernel_input), counts)
        return products

    def _bias_change(self, weights: Floats) -> Floats:
        """Return what the layer with these weights lacks in the mean, float32 (filters,)."""
        lockstep = self._pass.lockstep
        convolution = FoldedConvolution(weights, self._pass.convolution.bias)
        prepared = lockstep.prepared_with({**lockstep.folded, self._layer.index: convolution})
        total, count = np.zeros(len(weights)), 0.0
        for number, (target, counts) in enumerate(zip(self._targets, self._counts, strict=True)):
            lacking = (target - self._pass.result(number, prepared)).astype(np.float64)
            if counts is not None:
                lacking *= counts[..., None]
            # Rows are added one after the other, so the sums are the same on every CPU.
            total += lacking.reshape(-1, len(weights)).sum(axis=0)
            count += lacking[..., 0].size if counts is None else float(counts.sum())
        return (total / count).astype(np.float32)

    def _scheme(self) -> WeightScheme | None:
        """Return how the weights become codes, learnt; None where they are none, or all have one step.

        Raises: ConfigError for schemes whose steps and codes cannot be written as reals.
        """
        precision = self._pass.lowered.precision
        if not precision.carries_scale:
            return None
        scheme, _ = self._pass.lockstep.options.of(self._layer.index).rounded_to(precision)
        if scheme.granularity == PER_GROUP:
            raise ConfigError("weights in groups of 32 channels are not learnt; set narrow.granularity to per_channel")
        if WEIGHTS[scheme.method].tensorflow:
            raise ConfigError(f"weights by TensorFlow's {scheme.method} are not learnt; set weights.method to min_max or mse")
        if scheme.granularity == "per_tensor":
            return None
        return WeightScheme(scheme.granularity, scheme.method, LEARNT, scheme.bits)


def learn_written_weights(
    weights: NDArray[np.float32], covariance: NDArray[np.float64], scheme: WeightScheme, positions: int
) -> NDArray[np.float32]:
    """Return weights that a scheme rounds, to nearest, to the codes that are best for the output of `weights`.

    They are the reals of these codes. So that the scheme finds the same step again, every filter has a code of the largest
    magnitude; where the best codes have none, others with the step of its largest weight take their place. Arguments as of
    `learn_codes`.
    """
    codes, scales = learn_codes(weights, covariance, scheme, positions)
    if scheme.method == "power_of_two":  # any multiple of a power of two is found again
        return dequantize_weights(codes, scales)
    missing = np.abs(codes.astype(np.int32)).reshape(len(codes), -1).max(axis=1) < scheme.largest
    if missing.any():
        plain = WeightScheme(scheme.granularity, "min_max", scheme.rounding, scheme.bits)
        others, steps = learn_codes(weights, covariance, plain, positions)
        rows, values = others.reshape(len(others), -1), weights.reshape(len(weights), -1)
        places = np.abs(values).argmax(axis=1)
        numbers = np.arange(len(rows))
        rows[numbers, places] = np.sign(values[numbers, places]).astype(np.int8) * np.int8(scheme.largest)
        codes = np.where(missing[:, None, None, None], others, codes)
        scales = np.where(missing, steps, scales)
    return dequantize_weights(codes, scales)
