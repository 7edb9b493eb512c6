# SPDX-License-Identifier: MIT
"""Checks, on data, that simulating int8 with fake-quantised fp32 gives what the integer kernels give.

Quantize steps: the codes equal those of the NumPy formula, one by one.
Convolutions: the dequantised input and weights convolved in fp32 differ from the integer kernel by rounding alone. With
depth products per output, u = 2^-24 and M = |bias| + sum of |input| * |weight|,

    |simulated - kernel| <= 1.1 * (depth + 16) * u * M

depth roundings of the fp32 chain, up to 16 of scales, products, offset and activation on both sides; no activation
stretches a difference by more than 1.1. Source: docs/arithmetic.md, section 6.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.execute import execute
from mpnet.engine.folding import conv_shape
from mpnet.engine.operations import Convolve, IntegerAdd, IntegerConvolve, IntegerQuantize, IntegerRescale, Quantize
from mpnet.engine.plan import Plan, Step
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.engine.tensor import Tensor
from mpnet.errors import ConfigError, DataError
from mpnet.kernels.interface import ConvShape, PackedConv
from mpnet.model.precision import FP32
from mpnet.model.reals import widened
from mpnet.quantization.native import dequantize_activations, quant_params
from mpnet.quantization.scheme import quantize_activation
from mpnet.quantization.weights import dequantize_weights

Floats = NDArray[np.float32]
STRETCH = 1.1
ROUNDINGS = 16


@dataclass(frozen=True)
class StepCheck:
    """One step.

    Quantize: differing counts codes. Convolve: differing counts values beyond the bound; largest is the largest difference,
    share the largest quotient of difference and bound.
    """

    number: int
    name: str
    operation: str
    values: int
    differing: int
    largest: float
    share: float

    @property
    def passed(self) -> bool:
        """Return whether everything is as promised."""
        return self.differing == 0


@dataclass(frozen=True)
class _Simulation:
    """Packed fp32 copies of int8 weights, of them and of their magnitudes, for an input that is padded beforehand."""

    shape: ConvShape
    padding: int
    weights: PackedConv
    magnitudes: PackedConv


_INTEGER_OPERATIONS = (IntegerAdd, IntegerConvolve, IntegerQuantize, IntegerRescale)
"""What is compared with the oracle, code by code."""


class Verifier:
    """A comparison of every int8 step of a plan with its simulation; those in whole numbers with the oracle."""

    def __init__(self, prepared: Prepared, plan: Plan, threads: int = 1) -> None:
        """Prepare the simulation. Raises: ConfigError when no step of the plan is int8."""
        if not any(step.output_precision.carries_scale or step.input_precision.carries_scale for step in plan.steps):
            raise ConfigError("no layer runs in int8, so there is nothing to verify; lower some or leave --verify out")
        self._prepared = prepared
        self._plan = plan
        self._threads = threads
        self._simulations: dict[int, _Simulation] = {}
        self._checks: dict[int, StepCheck] = {}

    @cached_property
    def _oracle(self) -> Prepared:
        from mpnet.kernels.reference import ReferenceKernels  # only few runs are verified, and fewer in whole numbers

        return self._prepared.on(ReferenceKernels())

    def run(self, batches: Iterable[Floats]) -> tuple[StepCheck, ...]:
        """Check all steps on these images (n, height, width, channels). Raises: DataError without any."""
        session = Session(self._prepared, self._plan, self._threads)
        images = 0
        for batch in batches:
            session.observe(batch, self._check)
            images += len(batch)
        if images == 0:
            raise DataError("there is no image to verify on; give at least one")
        return tuple(self._checks[number] for number in sorted(self._checks))

    def _check(self, number: int, step: Step, inputs: Sequence[Tensor], result: Tensor) -> None:
        operation, x = step.operation, inputs[0]
        if isinstance(operation, _INTEGER_OPERATIONS):
            expected = execute(operation, inputs, self._oracle).host()
            wrong_count = int(np.count_nonzero(result.host() != expected))
            largest = float(np.abs(result.host().astype(np.float64) - expected.astype(np.float64)).max())
            self._add(number, step, result.host().size, wrong_count, largest, float(wrong_count > 0))
        elif isinstance(operation, Quantize):
            assert result.params is not None
            wrong_count = sum(
                int(
                    np.count_nonzero(
                        result.host()[i] != quantize_activation(widened(x.host()[i]), quant_params(result.params, i))
                    )
                )
                for i in range(x.images)
            )
            self._add(number, step, result.host().size, wrong_count, float(wrong_count > 0), float(wrong_count > 0))
        elif isinstance(operation, Convolve) and operation.weights is not None:
            simulated, bound = self._simulate(number, operation, x)
            difference = np.abs(result.host().astype(np.float64) - simulated)
            share = np.divide(difference, bound, out=np.where(difference > 0, np.inf, 0.0), where=bound > 0)
            self._add(
                number, step, difference.size, int(np.count_nonzero(share > 1)), float(difference.max()), float(share.max())
            )

    def _add(self, number: int, step: Step, values: int, differing: int, largest: float, share: float) -> None:
        name = self._plan.network.layers[step.layer].name
        earlier = self._checks.get(number) or StepCheck(number, name, step.operation.name, 0, 0, 0.0, 0.0)
        self._checks[number] = replace(
            earlier,
            values=earlier.values + values,
            differing=earlier.differing + differing,
            largest=max(earlier.largest, largest),
            share=max(earlier.share, share),
        )

    def _simulate(self, number: int, operation: Convolve, x: Tensor) -> tuple[Floats, NDArray[np.float64]]:
        """Return the simulated result and the bound of its difference from the kernel's."""
        if number not in self._simulations:
            self._simulations[number] = self._pack(operation)
        simulation = self._simulations[number]
        ready = self._prepared.convolution(operation)
        values = self._padded(x, simulation.padding)
        simulated = self._convolve(simulation.weights, simulation.shape, values, ready.bias, ready.activation)
        magnitude = self._convolve(simulation.magnitudes, simulation.shape, np.abs(values), np.abs(ready.bias), "linear")
        bound = STRETCH * (simulation.shape.depth + ROUNDINGS) * 2.0**-24 * magnitude.astype(np.float64)
        return simulated, bound

    def _pack(self, operation: Convolve) -> _Simulation:
        layer = operation.layer_of(self._plan.network)
        constants = self._prepared.constants(operation)
        assert constants.weight_scale is not None
        weights = dequantize_weights(constants.codes, constants.weight_scale)
        shape = conv_shape(layer)
        wide = replace(shape, in_h=shape.in_h + 2 * shape.padding, in_w=shape.in_w + 2 * shape.padding, padding=0)
        pack = self._prepared.kernels.pack_conv
        return _Simulation(wide, shape.padding, pack(wide, FP32, weights), pack(wide, FP32, np.abs(weights)))

    def _padded(self, x: Tensor, padding: int) -> Floats:
        """Return the input as reals, with the border that the kernel reads: taps outside hold zero_point, so offset."""
        assert x.params is not None
        values = dequantize_activations(x.codes(), x.params, tensorflow=False)
        if padding == 0:
            return values
        n, height, width, channels = values.shape
        wide = np.empty((n, height + 2 * padding, width + 2 * padding, channels), np.float32)
        wide[:] = x.params["offset"][:, None, None, None]
        wide[:, padding:-padding, padding:-padding] = values
        return wide

    def _convolve(self, packed: PackedConv, shape: ConvShape, x: Floats, bias: Floats, activation: str) -> Floats:
        out = np.empty((len(x), shape.out_h, shape.out_w, shape.out_channels), np.float32)
        self._prepared.kernels.conv(packed, x, out, bias=bias, activation=activation, threads=self._threads)
        return out
