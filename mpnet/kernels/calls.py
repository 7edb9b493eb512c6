# SPDX-License-Identifier: MIT
"""Calls of kernels, their arguments checked and ready: what the C tables and the NumPy oracle have in common.

Activations are dense NHWC arrays, C-contiguous, of a stored type. N images go through one call; whatever is measured or
scaled dynamically is so per image, and no result depends on N, on the number of threads or on the ISA level
(docs/arithmetic.md).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Sequence, TypeVar

import numpy as np

from mpnet.arrays import Array
from mpnet.errors import KernelError
from mpnet.kernels import arguments
from mpnet.kernels.arguments import (
    ANY,
    CODES,
    FLOAT,
    INT,
    REALS,
    ConvFields,
    KernelArgument,
    activation_code,
    check,
    check_images,
    check_output,
    code_of,
)
from mpnet.kernels.call import Call
from mpnet.kernels.codes import CScheme, ParamsArray, scale_call
from mpnet.kernels.conv_fields import code_fields, conversion_fields, integer_fields, output_fields
from mpnet.kernels.device import HOST, Device, Storage, Values, array_of
from mpnet.kernels.interface import ACTIVATIONS, ALL_ACTIVATIONS, CodeRules, IntegerOutput, PackedConv
from mpnet.kernels.memory import aligned, scratch
from mpnet.kernels.scales import ImageScales, Quant, per_image, scales_of
from mpnet.model.quantization import ROUNDINGS

_TENSORS = (np.ndarray, Storage)
_Argument = TypeVar("_Argument", bound=KernelArgument)
DEFAULT_RULES = CodeRules()


class CallMaker(ABC):
    """What makes the calls of one implementation of the kernels, of arguments that fit.

    name: of the implementation, as reports show it. device: where the tensors of its calls lie.
    """

    name: str
    device: Device = HOST

    @abstractmethod
    def takes_sums(self, packed: PackedConv) -> bool:
        """Return whether `Binder.conv` takes and gives sums with these weights.

        It does with codes, unless a faster algorithm than adding one product after the other was chosen for them.
        """

    @abstractmethod
    def call(self, function: str, x: Values, *rest: KernelArgument) -> Call:
        """Return the call of mp_<function>, which takes what csrc/mpnet.h says: tensors for addresses, dtypes for types.

        Tensors lie on the kernels' device; on the CPU they may be arrays as well.
        """

    @abstractmethod
    def conv_call(self, packed: PackedConv, x: Values, fields: ConvFields) -> Call:
        """Return the call of mp_conv. fields: of mp_conv_args, as `call` takes them."""

    def ranges_to_scales(self, ranges: Storage, params: Storage, scales: ImageScales, scheme: CScheme, mode: str) -> list[Call]:
        """Return the calls of `Binder.ranges_to_scales`."""
        function, arguments = scale_call(array_of(ranges), array_of(params), scheme)
        calls = [Call(function, arguments, keep=(ranges, params), scaled_mode=mode)]
        if params.size > 1:
            columns = [(array_of(getattr(scales, name)), name) for name in ("scale", "inv_scale", "zero_point", "offset")]
            calls.append(Call(_spread, (array_of(params), columns)))
        return calls


class Binder:
    """A maker of calls for one table of kernels and one number of threads.

    All calls share one scratch memory, so they must not run at the same time. `Kernels` runs the methods of the same names at
    once.

    Tensors lie on the kernels' device. NumPy arrays among the arguments are tensors on the CPU, and constants elsewhere.
    Raises: KernelError that names the argument that does not fit.
    """

    def __init__(self, kernels: CallMaker, threads: int) -> None:
        self._kernels = kernels
        self._device = kernels.device
        self._threads = arguments.check_threads(threads)
        self._scratch_bytes = 64
        self._convolutions: list[Call] = []

    def finish(self, *, at_once: bool = False) -> None:
        """Give the convolutions their scratch memory; call once, after the last binding.

        at_once: whether all calls run before the thread binds others; its scratch memory then serves them all.
        """
        memory = (scratch if at_once else aligned)(self._scratch_bytes)
        for call in self._convolutions:
            call.use_scratch(memory)

    def conv(
        self,
        packed: PackedConv,
        x: Values,
        out: Values,
        *,
        bias: Values,
        activation: str = "linear",
        weight_scale: Values | None = None,
        in_quant: Quant = None,
        out_quant: Quant = None,
        out_rules: CodeRules = DEFAULT_RULES,
        ranges: Values | None = None,
        pool: bool = False,
        converts: CodeRules | None = None,
        sums: Values | None = None,
        integer: IntegerOutput | None = None,
    ) -> Call:
        """Return the call of out = activation(conv(x) + bias), stored as out's dtype; it can run after `finish`.

        x:            (n, h, w, c).
        out:          (n, h, w, c): reals, rounded half to even; or codes with out_quant, which is calibrated, by out_rules.
        weight_scale: (out_channels,) for codes, with in_quant.
        ranges:       (n, 2) receives [min, max] per image of the float32 result; of out itself when it is pooled, where it may
                      not be codes.
        pool:         out is what maxpool of size 2 and stride 2 makes of the result, with padding 0 or 1 as out's shape says.
        converts:     x holds reals of another stored type, which become what the precision reads as by `cast`, or as by
                      `quantize` with in_quant, whose offset is 0, and these rules.
        sums:         what the sums of products begin from, shaped like out; where `takes_sums`. out may be int32 there: it
                      receives the sums as they are. So those of some input channels are continued by those of the others;
                      offsets are 0.
        integer:      out holds codes by these integers, out_quant's zero point and the bounds of out_rules alone.
        When it runs: NonFiniteError (both a KernelError and an EngineError) when a result is not finite before the
        activation, or after rounding to half; out is then unspecified.
        """
        in_scales = scales_of(in_quant, "in_quant", written=converts is not None)
        if packed.made_by != self._kernels.name:
            raise KernelError(f"these weights were not packed by ISA level {self._kernels.name}; call its pack_conv")
        shape, precision = packed.shape, packed.precision
        images = x.shape[0] if isinstance(x, _TENSORS) and x.shape else 0
        check(
            x,
            "x",
            (precision.stored.dtype,) if converts is None else REALS,
            (images, shape.in_h, shape.in_w, shape.in_channels),
        )
        height, width = arguments.pooled_size(shape, out) if pool else (shape.out_h, shape.out_w)
        check(out, "out", (*ANY, *INT), (images, height, width, shape.out_channels))
        check_output(out, x)
        check(bias, "bias", FLOAT, (shape.out_channels,))
        # Named as in mp_conv_args.
        fields: ConvFields = {
            "images": images,
            "threads": self._threads,
            "out": out,
            "out_type": out.dtype,
            "bias": bias,
            "activation": activation_code(activation, ALL_ACTIVATIONS),
        }
        if precision.carries_scale:
            fields |= code_fields(packed, images, in_scales, weight_scale)
        if converts is not None:
            fields |= conversion_fields(precision, x, images, in_scales, converts)
        if sums is not None or out.dtype in INT:
            if not self._kernels.takes_sums(packed):
                raise KernelError("sums are neither taken nor given by this convolution; see takes_sums")
            if sums is not None:
                check(sums, "sums", INT, out.shape)
                check_output(out, sums)
                fields["sums"] = sums
            if out.dtype in INT:
                fields |= {"gives_sums": 1, "out_type": FLOAT[0]}
        if out.dtype in CODES:
            fields |= output_fields(out, images, out_quant, out_rules)
        if integer is not None:
            if ranges is not None or sums is not None:
                raise KernelError("whole numbers make codes of codes, neither measured nor continued")
            fields |= integer_fields(integer, packed, out)
        if ranges is not None:
            if pool and out.dtype in CODES:
                raise KernelError("ranges are not measured of pooled codes; their scale is known")
            check(ranges, "ranges", FLOAT, (images, 2))
            check_output(ranges, x, out)
            fields["ranges"] = ranges
        if pool:
            fields |= {"pool_h": height, "pool_w": width}
        if self._device is not HOST:
            x, fields = self._placed(x), {name: self._placed(value) for name, value in fields.items()}
        call = self._kernels.conv_call(packed, x, fields)
        self._scratch_bytes = max(self._scratch_bytes, call.scratch_bytes)
        self._convolutions.append(call)
        return call

    def _call(self, function: str, x: Values, *rest: KernelArgument) -> Call:
        if self._device is not HOST:
            x, rest = self._placed(x), tuple(map(self._placed, rest))
        return self._kernels.call(function, x, *rest, self._threads)

    def _placed(self, value: _Argument) -> _Argument | Storage:
        """Return an argument as kernels of another device take it: constants uploaded. Raises: KernelError."""
        if isinstance(value, np.ndarray):
            return self._device.constant(value)
        if isinstance(value, Storage) and value.device is not self._device:
            raise KernelError(f"a tensor {value!r} went to kernels of {self._device.name}; transfer it first")
        return value

    def call(self, function: str, x: Values, *rest: KernelArgument) -> Call:
        """Return a call of mp_<function>, which has no method here; its arguments are as csrc/mpnet.h declares them."""
        for array in (x, *rest):
            if isinstance(array, _TENSORS):
                check(array, f"an argument of {function}", (*ANY, *INT))
        return self._call(function, x, *rest)

    def ranges_to_scales(self, ranges: Storage, params: Storage, scales: ImageScales, scheme: CScheme, mode: str) -> list[Call]:
        """Return the calls that fill params (n,) of `codes.PARAMS`, and scales, from the [min, max] of each image (n, 2)."""
        return self._kernels.ranges_to_scales(ranges, params, scales, scheme, mode)

    def value_range(self, x: Values, ranges: Values) -> Call:
        """Return the call that fills ranges (n, 2) with the minimum and maximum of each image of x."""
        check(x, "x", REALS)
        if x.size == 0 or not x.shape:
            raise KernelError(f"x has shape {x.shape}; an empty tensor has no range")
        check(ranges, "ranges", FLOAT, (x.shape[0], 2))
        return self._call("value_range", x, x.dtype, x.shape[0], x.size // x.shape[0], ranges)

    def quantize(
        self, x: Values, out: Values, quant: Quant, rounding: str = "half_to_even", low: int = -128, high: int = 127
    ) -> Call:
        """Quantize: q = clamp(round(x / scale) + zero_point, low, high) as docs/arithmetic.md says; quant.offset must be 0."""
        scales = scales_of(quant, "quant", written=True)
        check_images(x, "x", REALS)
        check(out, "out", CODES, x.shape)
        check_output(out, x)
        arguments.check_codes(low, high, out.dtype)
        return self._call(
            "quantize",
            x,
            x.dtype,
            out,
            out.dtype,
            x.shape[0],
            x.size // x.shape[0],
            *per_image(scales, x.shape[0], "quant", "inv_scale", "zero_point"),
            code_of(rounding, ROUNDINGS, "rounding"),
            low,
            high,
        )

    def dequantize(self, x: Values, out: Values, quant: Quant) -> Call:
        """Dequantize: out (reals) = (q - zero_point) * scale + offset."""
        check_images(x, "x", CODES)
        check(out, "out", REALS, x.shape)
        check_output(out, x)
        return self._call(
            "dequantize",
            x,
            x.dtype,
            out,
            out.dtype,
            x.shape[0],
            x.size // x.shape[0],
            *per_image(scales_of(quant, "quant"), x.shape[0], "quant", "scale", "zero_point", "offset"),
        )

    def cast(self, x: Values, out: Values) -> Call:
        """Cast reals of one stored type to another, to nearest even."""
        check(x, "x", REALS)
        check(out, "out", REALS, x.shape)
        check_output(out, x)
        return self._call("cast", x, x.dtype, out, out.dtype, x.size)

    def maxpool(self, x: Values, out: Values, size: int, stride: int, padding: int) -> Call:
        """Take the maximum of each window, of any stored type.

        padding: total padding; offset padding // 2; outside is minus infinity.
        """
        check_images(x, "x", ANY)
        if min(size, stride) < 1 or padding < 0 or max(size, stride, padding) > 1 << 24:
            raise KernelError(f"maxpool: size {size}, stride {stride}, padding {padding} make no sense")
        n, h, w, c = x.shape
        out_h, out_w = (h + padding - size) // stride + 1, (w + padding - size) // stride + 1
        if out_h < 1 or out_w < 1:
            raise KernelError(f"maxpool: a window of {size} does not fit into {h}x{w} padded by {padding}")
        check(out, "out", (x.dtype,), (n, out_h, out_w, c))
        check_output(out, x)
        return self._call("maxpool", x, out, x.dtype, n, h, w, c, out_h, out_w, size, stride, padding)

    def avgpool(self, x: Values, out: Values) -> Call:
        """Average all pixels of each channel: (n, h, w, c) -> (n, 1, 1, c); reals, summed in float32 in row order."""
        check_images(x, "x", REALS)
        n, h, w, c = x.shape
        check(out, "out", (x.dtype,), (n, 1, 1, c))
        check_output(out, x)
        return self._call("avgpool", x, out, x.dtype, n, h, w, c)

    def upsample(self, x: Values, out: Values, factor: int) -> Call:
        """Repeat each pixel (nearest neighbour), of any stored type."""
        check_images(x, "x", ANY)
        if not 1 <= factor <= 1 << 16:
            raise KernelError(f"upsample: factor {factor} makes no sense")
        n, h, w, c = x.shape
        check(out, "out", (x.dtype,), (n, h * factor, w * factor, c))
        check_output(out, x)
        return self._call("upsample", x, out, x.dtype, n, h, w, c, factor)

    def concat(self, inputs: Sequence[Values], out: Values) -> list[Call]:
        """Concatenate along channels, of one stored type; one call per input."""
        if not inputs:
            raise KernelError("concat: there are no inputs")
        check_images(out, "out", ANY)
        check_output(out, *inputs)
        calls, start, width = [], 0, out.shape[3]
        for i, x in enumerate(inputs):
            check_images(x, f"input {i}", (out.dtype,))
            if x.shape[:3] != out.shape[:3]:
                raise KernelError(f"concat: input {i} has shape {x.shape}, out {out.shape}; they differ before channels")
            channels = x.shape[3]
            pixels = out.size // width
            calls.append(self._call("copy_channels", x, out, x.dtype, pixels, channels, 0, width, start, channels))
            start += channels
        if start != width:
            raise KernelError(f"concat: the inputs have {start} channels, out has {width}")
        return calls

    def take_channels(self, x: Values, out: Values, start: int) -> Call:
        """Return the call that fills out with the channels of x from `start` on; both are of one stored type."""
        check_images(x, "x", ANY)
        channels, width = out.shape[-1], x.shape[3]
        if not 0 <= start <= width - channels:
            raise KernelError(f"take_channels: x has {width} channels, not {start} to {start + channels}")
        check(out, "out", (x.dtype,), (*x.shape[:3], channels))
        check_output(out, x)
        return self._call("copy_channels", x, out, x.dtype, x.size // width, width, start, channels, 0, channels)

    def add(self, a: Values, b: Values, out: Values, activation: str = "linear") -> Call:
        """Add: activation(a + b) in float32, stored as reals."""
        check(a, "a", REALS)
        check(b, "b", (a.dtype,), a.shape)
        check(out, "out", REALS, a.shape)
        check_output(out, a, b)
        code = activation_code(activation, ACTIVATIONS)
        return self._call("add", a, b, out, a.dtype, out.dtype, code, a.size)


def _spread(params: ParamsArray, columns: Sequence[tuple[Array, str]]) -> None:
    """Copy fields of params (n,) to arrays of their own."""
    for array, name in columns:
        array[...] = params[name]
