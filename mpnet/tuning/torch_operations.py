# SPDX-License-Identifier: MIT
"""Operations of a plan as PyTorch computes them on reals (n, c, h, w), with gradients.

What quantises does so by mpnet's formulas and gives back the reals that its codes stand for; gradients pass straight through
the rounding, and stop where codes saturate.
"""

from __future__ import annotations

from typing import Any, Callable, Sequence

import torch
import torch.nn.functional as F

from mpnet.engine import operations as op
from mpnet.engine.operations.rearrange import Reshape
from mpnet.engine.prepare import Prepared
from mpnet.errors import ConfigError
from mpnet.model.layers import ConvolutionSpec
from mpnet.quantization.scheme import SMALLEST_SCALE, ActivationScheme, range_to_params

Tensor = Any
"""A torch.Tensor."""
Compute = Callable[[Any, Sequence[Tensor], Prepared], Tensor]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda x: x,
    "leaky": lambda x: F.leaky_relu(x, 0.1),
    "relu": F.relu,
    "relu6": F.relu6,
    "logistic": torch.sigmoid,
    "mish": F.mish,
    "swish": F.silu,
    "tanh": torch.tanh,
    "elu": F.elu,
    "selu": F.selu,
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_erf": F.gelu,
    "hard_sigmoid": F.hardsigmoid,
    "hard_swish": F.hardswish,
}
"""By the words of layers; others are refused."""


def check(operation: op.Operation) -> None:
    """Check that an operation can be computed here. Raises: ConfigError that says what of it has no gradient."""
    if isinstance(operation, op.Quantize):
        _check_scheme(operation.scheme)
    elif type(operation) is op.Normalize:
        is_softmax = operation.kind == "softmax" and operation.tree is None and operation.groups == 1
        if not is_softmax or operation.over_image:
            raise ConfigError(f"the normalisation {operation.kind} has no gradient here")
    elif not operation.is_head and not operation.is_conversion and type(operation) not in (*COMPUTE, op.Convolve):
        raise ConfigError(f"{operation.name} has no gradient here")
    check_activation(getattr(operation, "activation", "linear"))


def check_activation(word: str) -> None:
    """Check that an activation has a formula here. Raises: ConfigError."""
    if word not in ACTIVATIONS:
        raise ConfigError(f"the activation {word} has no gradient here")


def _check_scheme(scheme: ActivationScheme) -> None:
    if scheme.mode not in ("affine", "symmetric", "power_of_two") or scheme.rounding != "half_to_even":
        raise ConfigError(f"activations of mode {scheme.mode}, rounded {scheme.rounding}, have no gradient here")


class _Rounding(torch.autograd.Function):  # type: ignore[misc]
    """Multiples of a step per image, where none saturates: gradients pass straight through, and nothing is kept for them."""

    @staticmethod
    def forward(context: Any, x: Tensor, scale: Tensor) -> Tensor:
        """Return the nearest multiples of scale (n, 1, 1, 1), half to even."""
        return (x * (1 / scale)).round_().mul_(scale)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Return the gradient as it is."""
        return gradient, None


def fake_quantize(x: Tensor, quantize: op.Quantize) -> Tensor:
    """Return the reals that remain of x after a trip through codes; those of 16 bits are taken as they are."""
    scheme = quantize.scheme
    if scheme.bits == 16:
        return x
    if quantize.range is not None:
        params = range_to_params(*quantize.range, scheme)
        return torch.fake_quantize_per_tensor_affine(x, params.scale, params.zero_point, params.low, params.high)
    with torch.no_grad():
        low = x.amin((1, 2, 3)).clamp_max(0)
        high = x.amax((1, 2, 3)).clamp_min(0)
        # Both ends have codes of their own, so that no zero point is needed to know what becomes of a value.
        if scheme.mode == "affine":
            scale = high / 255 - low / 255
        else:
            scale = torch.maximum(-low, high) / scheme.high
            if scheme.mode == "power_of_two":
                mantissa, exponent = torch.frexp(scale)
                scale = torch.ldexp(torch.ones_like(scale), exponent - (mantissa == 0.5).int())
        scale = torch.where(low == high, torch.ones_like(scale), scale.clamp_min(SMALLEST_SCALE))
    return _Rounding.apply(x, scale[:, None, None, None])


def convolve(x: Tensor, weights: Tensor, bias: Tensor, layer: ConvolutionSpec) -> Tensor:
    """Return a convolution's result. One thread gets oneDNN's kernels too, which `conv2d` has for several threads alone."""
    if torch.backends.mkldnn.is_available():
        padding, stride, dilation = ([number] * 2 for number in (layer.padding, layer.stride, layer.dilation))
        return torch.mkldnn_convolution(x, weights, bias, padding, stride, dilation, layer.groups)
    return F.conv2d(x, weights, bias, layer.stride, layer.padding, layer.dilation, layer.groups)


def quantized_weights(weights: Tensor, steps: Tensor, largest: int) -> Tensor:
    """Return the weights (out, in / groups, h, w) that codes up to `largest` of these steps (out,) stand for."""
    zeros = torch.zeros(len(steps), dtype=torch.int32)
    return torch.fake_quantize_per_channel_affine(weights, steps.detach(), zeros, 0, -largest, largest)


def _maxpool(operation: op.MaxPool, inputs: Sequence[Tensor], _: Prepared) -> Tensor:
    before = operation.padding // 2
    after = operation.padding - before
    padded = F.pad(inputs[0], (before, after, before, after), value=float("-inf"))
    return F.max_pool2d(padded, operation.size, operation.stride)


def _gather(operation: Any, inputs: Sequence[Tensor], prepared: Prepared) -> Tensor:
    """Return values elsewhere, by the index that the kernel takes."""
    x = inputs[0]
    count, channels, height, width = x.shape
    index = torch.from_numpy(operation.index((height, width, channels)).astype("int64"))
    result = operation.result_shape(prepared.network, [(height, width, channels)])
    flat = F.pad(x.permute(0, 2, 3, 1).reshape(count, -1), (0, 1))  # index -1 takes the zero behind all values
    return flat[:, index].reshape(count, *result).permute(0, 3, 1, 2)


def _combine(operation: op.Combine, inputs: Sequence[Tensor], prepared: Prepared) -> Tensor:
    shapes = [(x.shape[2], x.shape[3], x.shape[1]) for x in inputs]
    if len(set(shapes)) > 1:
        raise ConfigError("a sum of tensors of different shapes has no gradient here")
    total = inputs[0]
    for operand, (first, second) in zip(inputs[1:], operation.factors(prepared, shapes), strict=True):
        total = total * torch.from_numpy(first)[:, None, None] + operand * torch.from_numpy(second)[:, None, None]
    return ACTIVATIONS[operation.activation](total)


def _multiply(operation: op.Multiply, inputs: Sequence[Tensor], _: Prepared) -> Tensor:
    a, b = inputs[::-1] if operation.swapped else inputs
    return ACTIVATIONS[operation.activation](a * b)


def _shuffle(operation: op.Shuffle, inputs: Sequence[Tensor], _: Prepared) -> Tensor:
    x = inputs[0]
    count, channels, height, width = x.shape
    grouped = x.reshape(count, operation.groups, channels // operation.groups, height, width)
    return grouped.transpose(1, 2).reshape(x.shape)


def _softmax(operation: op.Normalize, inputs: Sequence[Tensor], _: Prepared) -> Tensor:
    return torch.softmax(inputs[0] / (operation.parameters or (1.0,))[0], dim=1)


COMPUTE: dict[type, Compute] = {
    op.Add: lambda operation, inputs, _: ACTIVATIONS[operation.activation](inputs[0] + inputs[1]),
    op.Map: lambda operation, inputs, _: ACTIVATIONS[operation.activation](inputs[0] * operation.scale + operation.shift),
    op.Combine: _combine,
    op.Multiply: _multiply,
    op.Concat: lambda operation, inputs, _: torch.cat(list(inputs), 1),
    op.Slice: lambda operation, inputs, _: inputs[0][:, operation.start : operation.stop],
    op.Upsample: lambda operation, inputs, _: F.interpolate(inputs[0], scale_factor=operation.factor, mode="nearest"),
    op.MaxPool: _maxpool,
    op.AvgPool: lambda operation, inputs, _: inputs[0].mean((2, 3), keepdim=True),
    op.Shuffle: _shuffle,
    op.Normalize: _softmax,
    **{kind: _gather for kind in (op.Crop, op.Pad, op.Sample, op.Spread, Reshape, op.Flatten, op.Unflatten, op.Reorg)},
}
"""By the class of an operation; convolutions are `torch_network`'s own, others are refused."""
