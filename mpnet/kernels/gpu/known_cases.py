# SPDX-License-Identifier: MIT
"""The bits that a GPU has to show before it is believed: known cases of every program, against the kernels of the CPU."""

from __future__ import annotations

from itertools import cycle
from typing import Any, Callable, Iterator, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpnet.arrays import Array, DType
from mpnet.errors import KernelError, MpnetError
from mpnet.kernels.arguments import CODES, REALS
from mpnet.kernels.calls import Binder
from mpnet.kernels.codes import PARAMS, CScheme
from mpnet.kernels.device import HOST, Values
from mpnet.kernels.gpu.driver import KernelCache
from mpnet.kernels.gpu.gpu_kernels import GpuKernels
from mpnet.kernels.gpu.source import DOUBLES, OPERATIONS, ProgramText, convolution_programs
from mpnet.kernels.implementation import Kernels
from mpnet.kernels.interface import ACTIVATION_CODE, ALL_ACTIVATIONS, NORMALISATIONS, CodeRules, ConvShape, TensorQuant
from mpnet.kernels.scales import ImageScales
from mpnet.model.precision import CODE8, STORED_TYPES, Precision
from mpnet.model.quantization import ROUNDINGS
from mpnet.model.reals import narrowed, widened

_SHAPES = (
    ConvShape(5, 7, 3, 17, 3, 1, 1),
    ConvShape(6, 9, 20, 33, 1),
    ConvShape(8, 8, 12, 18, 3, 2, 1, 1, 3),
    ConvShape(9, 9, 19, 19, 3, 1, 2, 2, 19),
    ConvShape(7, 9, 16, 20, 3, 1, 1),
    ConvShape(6, 5, 5, 9, 5, 1, 2),
)
_MAGIC = np.frombuffer(b"bits seen", np.uint8)
Compute = Callable[[Kernels], list[Array]]


class KnownCase(NamedTuple):
    """Something to compute. name: for messages. compute: returns its results on kernels."""

    name: str
    compute: Compute


def program_checker(cache: KernelCache | None) -> Callable[[GpuKernels, ProgramText], None]:
    """Return what checks a program before its first use, unless this device and driver have shown its bits before.

    cache: where that is remembered, None for nowhere.
    """

    def check(kernels: GpuKernels, program: ProgramText) -> None:
        key = kernels.driver.key_of("bits", program)
        if cache is not None and (kept := cache.load(key)) is not None and kept[0].tobytes() == _MAGIC.tobytes():
            return
        check_program(kernels, program)
        if cache is not None:
            cache.store(key, [_MAGIC])

    return check


def check_program(kernels: GpuKernels, program: ProgramText) -> None:
    """Compare the known cases of a program with the CPU's results. Raises: KernelError that names the first that differs."""
    cases = list(known_cases(program))
    for number, case in enumerate(cases):
        expected = case.compute(kernels.host_kernels)
        try:
            actual = case.compute(kernels)
        except MpnetError as error:
            outcome = f"fails ({error})"
        else:
            differing = sum(_count_differing(a, b) for a, b in zip(expected, actual, strict=True))
            if not differing:
                continue
            outcome = f"has other bits in {differing} of {sum(a.size for a in expected)} values"
        description = kernels.driver.description
        raise KernelError(
            f"{description.name}, {description.title}, is refused: known case {number + 1} of {len(cases)} of its "
            f"{program.name}, {case.name}, {outcome}; update the driver, or use cpu"
        )


def _count_differing(expected: Array, actual: Array) -> int:
    a, b = (np.frombuffer(np.ascontiguousarray(x).tobytes(), np.uint8).reshape(x.size, -1) for x in (expected, actual))
    return int((a != b).any(axis=1).sum())


def known_cases(program: ProgramText) -> Iterator[KnownCase]:
    """Yield the known cases of a program."""
    if program == OPERATIONS:
        yield from _value_cases()
        yield from _window_cases()
        yield from _integer_cases()
        yield from _scale_cases()
    elif program == DOUBLES:
        yield from _double_cases()
    else:
        for row in convolution_programs()[program]:
            yield from _convolution_cases(row)


def _reals(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Return random values with ties, zeros of both signs and subnormals of the type among them."""
    smallest = 1e-41 if dtype.itemsize == 4 else 3e-7
    special = np.array([0.0, -0.0, 0.5, -0.5, 1.5, -2.5, 12.75, smallest, -smallest], np.float32)
    values = rng.standard_normal(shape).astype(np.float32)
    return narrowed(np.where(rng.random(shape) < 0.4, rng.choice(special, shape), values), dtype)


def _ends(dtype: DType) -> tuple[int, int]:
    """Return the least and the largest code of a type."""
    beyond = 1 << (8 * dtype.itemsize - 1)
    return -beyond, beyond - 1


def _codes(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    low, high = _ends(dtype)
    return rng.integers(low, high + 1, shape).astype(dtype)


def _convolution_cases(row: Precision) -> Iterator[KnownCase]:
    """Yield convolutions of a precision: every kind of geometry, every type of result, pooled and not."""
    rng = np.random.default_rng(row.weight_bits)
    types, activations = cycle(STORED_TYPES.values()), cycle(("linear", "leaky", "mish", "relu6", "hard_swish"))
    for number, shape in enumerate((*_SHAPES, *_SHAPES)):
        stored, activation, is_pooled = next(types), next(activations), number % 3 == 1
        weights_shape = (shape.out_channels, shape.in_channels // shape.groups, shape.size, shape.size)
        x_shape = (2, shape.in_h, shape.in_w, shape.in_channels)
        options: dict[str, Any] = {"bias": _reals(rng, (shape.out_channels,), np.dtype(np.float32)), "activation": activation}
        weights: Array
        if row.carries_scale:
            largest = row.largest_code
            weights = rng.integers(-largest, largest + 1, weights_shape).astype(np.int8)
            x = _codes(rng, x_shape, row.stored.dtype)
            is_narrow = row.stored is CODE8
            options["weight_scale"] = (rng.random(shape.out_channels) * 0.01 + 0.001).astype(np.float32)
            options["in_quant"] = TensorQuant(
                np.array([0.037, 0.0041], np.float32),
                np.array([-128, 77], np.int32) * is_narrow,
                np.array([0.0, 0.013 * (number % 2)], np.float32),
            )
        else:
            weights = narrowed(rng.standard_normal(weights_shape).astype(np.float32), np.dtype(np.float32))
            if number % 4 == 3:
                weights[:, :, 0] = 0  # an edge that is not summed, where it is half of the taps
            x = _reals(rng, x_shape, row.stored.dtype)
        if stored.is_code:
            zero_points = np.array([-5, 100], np.int32) * (stored is CODE8)
            options["out_quant"] = TensorQuant(np.array([0.05, 0.011], np.float32), zero_points, np.zeros(2, np.float32))
            options["out_rules"] = CodeRules(ROUNDINGS[number % len(ROUNDINGS)], *_ends(stored.dtype))
        sides = (shape.out_h, shape.out_w)
        out_h, out_w = ((side + 1) // 2 for side in sides) if is_pooled else sides
        out_shape = (2, out_h, out_w, shape.out_channels)

        def compute(
            kernels: Kernels,
            shape: ConvShape = shape,
            weights: Array = weights,
            x: Array = x,
            out_shape: tuple[int, ...] = out_shape,
            dtype: DType = stored.dtype,
            is_pooled: bool = is_pooled,
            options: dict[str, Any] = options,
        ) -> list[Array]:
            out, ranges = np.zeros(out_shape, dtype), np.zeros((2, 2), np.float32)
            measured = None if is_pooled and dtype in CODES else ranges
            kernels.conv(kernels.pack_conv(shape, row, weights), x, out, ranges=measured, pool=is_pooled, **options)
            return [out, ranges]

        yield KnownCase(f"{row.name} {shape} to {stored.dtype}, {activation}{', pooled' if is_pooled else ''}", compute)


def _filled(function: str, x: Array, out: Array, *arguments: Any) -> Compute:
    """Return what calls mp_<function>, which takes x and then these arguments, `out` among them."""

    def compute(kernels: Kernels) -> list[Array]:
        result = np.zeros_like(out)
        kernels.run_function(function, x, *(result if value is out else value for value in arguments))
        return [result]

    return compute


def _value_cases() -> Iterator[KnownCase]:
    """Yield operations on values one by one."""
    rng, single = np.random.default_rng(1), np.dtype(np.float32)
    x = np.concatenate(
        [
            np.linspace(-120, 120, 2401),
            np.geomspace(1e-30, 3e38, 150),
            -np.geomspace(1e-30, 3e38, 150),
            _reals(rng, (99,), single),
        ]
    ).astype(np.float32)
    for activation in ALL_ACTIVATIONS:
        code = ACTIVATION_CODE[activation]
        out = np.zeros_like(x)
        yield KnownCase(activation, _filled("map", x, out, single, out, single, code, 1.0, 0.0, x.size))
    for dtype in REALS:
        values = _reals(rng, (2, 3, 50, 3), dtype)
        ranges = np.zeros((2, 2), np.float32)
        yield KnownCase(f"range of {dtype}", _filled("value_range", values, ranges, dtype, 2, 450, ranges))
        for rounding in range(len(ROUNDINGS)):
            for kind, zero in zip(CODES, (np.array([3, -128], np.int32), np.zeros(2, np.int32)), strict=True):
                out = np.zeros(values.shape, kind)
                inverse = np.array([2.0, 27.1], np.float32)
                arguments = (dtype, out, kind, 2, 450, inverse, zero, rounding, *_ends(kind))
                yield KnownCase(f"{dtype} to {kind}, {ROUNDINGS[rounding]}", _filled("quantize", values, out, *arguments))
        codes = _codes(rng, values.shape, CODES[0])
        out = np.zeros(values.shape, dtype)
        scales = (np.array([0.031, 2.0**-20], np.float32), np.array([5, -128], np.int32), np.array([0, 0.01], np.float32))
        yield KnownCase(f"codes to {dtype}", _filled("dequantize", codes, out, CODES[0], out, dtype, 2, 450, *scales))
        added, other = np.zeros(values.shape, dtype), _reals(rng, values.shape, dtype)
        swish = ACTIVATION_CODE["swish"]
        yield KnownCase(f"sum of {dtype}", _filled("add", values, added, other, added, dtype, dtype, swish, 900))
        if dtype.itemsize == 2:
            every = np.arange(65536, dtype=np.uint16).view(dtype)
            every = every[np.isfinite(widened(every))]
            wide = np.zeros(every.shape, np.float32)
            yield KnownCase(f"every {dtype}", _filled("cast", every, wide, dtype, wide, single, every.size))
            halves = _between(every, dtype)
            narrow = np.zeros(halves.shape, dtype)
            yield KnownCase(f"float32 to {dtype}", _filled("cast", halves, narrow, single, narrow, dtype, halves.size))


def _between(every: Array, dtype: DType) -> NDArray[np.float32]:
    """Return float32 values in the middle of neighbours of a type, and beside it."""
    exact = np.sort(widened(every).astype(np.float64))
    middle = ((exact[:-1] + exact[1:]) / 2).astype(np.float32)
    ends = np.array([np.inf, -np.inf], np.float32)
    return np.concatenate([middle, np.nextafter(middle, ends[0]), np.nextafter(middle, ends[1])])


def _window_cases() -> Iterator[KnownCase]:
    """Yield pooling and copies."""
    rng = np.random.default_rng(2)
    for dtype in (*REALS, *CODES):
        x = _codes(rng, (2, 7, 9, 6), dtype) if dtype in CODES else _reals(rng, (2, 7, 9, 6), dtype)
        pooled = np.zeros((2, 4, 5, 6), dtype)
        yield KnownCase(f"maxpool of {dtype}", _filled("maxpool", x, pooled, pooled, dtype, *x.shape, 4, 5, 3, 2, 2))
        large = np.zeros((2, 14, 18, 6), dtype)
        yield KnownCase(f"upsampling of {dtype}", _filled("upsample", x, large, large, dtype, *x.shape, 2))
        part = np.zeros((2, 7, 9, 4), dtype)
        yield KnownCase(f"channels of {dtype}", _filled("copy_channels", x, part, part, dtype, 126, 6, 2, 4, 0, 4))
        mixed = np.zeros(x.shape, dtype)
        yield KnownCase(f"shuffle of {dtype}", _filled("shuffle", x, mixed, mixed, dtype, 126, 6, 3))
        largest = np.zeros((2, 7, 9, 4), dtype)
        yield KnownCase(f"channel maximum of {dtype}", _filled("channel_max", x, largest, largest, dtype, 126, 6, 4))
        index = np.append(rng.integers(0, 378, 50), -1).astype(np.int32)
        gathered, fill = np.zeros((2, 51), dtype), np.array([3, -4], np.int32)
        arguments = (gathered, dtype, 2, 378, 51, index, fill)
        yield KnownCase(f"gathering of {dtype}", _filled("gather", x, gathered, *arguments))
        if dtype in CODES:
            continue
        mean, means = np.zeros((2, 1, 1, 6), dtype), np.zeros((2, 3, 5, 6), dtype)
        yield KnownCase(f"mean of {dtype}", _filled("avgpool", x, mean, mean, dtype, *x.shape))
        yield KnownCase(f"local means of {dtype}", _filled("local_avgpool", x, means, means, dtype, *x.shape, 3, 5, 4, 2, 3, 3))
        product, swish = np.zeros(x.shape, dtype), ACTIVATION_CODE["swish"]
        for kind, shape in enumerate(((2, 7, 9, 6), (2, 1, 1, 6), (2, 7, 9, 1))):
            factor = _reals(rng, shape, dtype)
            arguments = (factor, product, dtype, dtype, swish, kind, *x.shape)
            yield KnownCase(f"product of {dtype}", _filled("multiply", x, product, *arguments))
        for other_shape in ((3, 4, 8), (14, 18, 5)):
            other, weights = _reals(rng, (2, *other_shape), dtype), _reals(rng, (2, 6), np.dtype(np.float32))
            arguments = (other, product, dtype, dtype, swish, weights[0].copy(), weights[1].copy(), *x.shape, *other_shape)
            yield KnownCase(f"weighted sum of {dtype}", _filled("combine", x, product, *arguments))


def _integer_cases() -> Iterator[KnownCase]:
    """Yield operations in whole numbers alone."""
    rng, single = np.random.default_rng(3), np.dtype(np.float32)
    for dtype in CODES:
        a, b = _codes(rng, (2, 3000), dtype)
        out = np.zeros_like(a)
        factors = ((1 << 30) + 12345, 1, (1 << 31) - 1, -3)
        bounds = _ends(dtype)
        yield KnownCase(f"rescaling of {dtype}", _filled("rescale", a, out, dtype, out, dtype, 0, 0, *bounds, *factors, a.size))
        zeros = np.array([5, -7, 1], np.int32) * (dtype.itemsize == 1)
        multipliers = np.array([(1 << 30) + 99, (1 << 31) - 7, (1 << 30) + 5], np.int32)
        shifts = np.array([0, -2, -18 if dtype.itemsize == 1 else -13], np.int32)
        arguments = (b, out, dtype, zeros, multipliers, shifts, *bounds, a.size)
        yield KnownCase(f"sum of {dtype}", _filled("add_codes", a, out, *arguments))
        reals = _reals(rng, (3000,), single) * np.float32(20)
        yield KnownCase(f"division to {dtype}", _filled("quantize_by_division", reals, out, out, dtype, 0.0071, 0, reals.size))


def _scale_cases() -> Iterator[KnownCase]:
    """Yield ranges that become scales."""
    ranges = np.array(
        [[-1.7, 3.3], [0, 0], [0.5, 0.7], [-4, -2], [-3e38, 3e38], [1e-45, 1e-44], [-1e-30, 2e-31], [-127, 127], [0, 32767]],
        np.float32,
    )
    for mode, bits in ((0, 8), (1, 8), (2, 8), (1, 16), (2, 16)):
        scheme = CScheme(mode, 0, 0, 0.0, bits)

        def compute(kernels: Kernels, scheme: CScheme = scheme) -> list[Array]:
            device, n = kernels.device, len(ranges)
            measured, params = device.upload(ranges.copy()), device.upload(np.zeros(n, PARAMS))
            types = (np.float32, np.float32, np.int32, np.float32)
            columns = [device.upload(np.zeros(n, dtype)) for dtype in types]
            values: list[Values] = [column.host() if device is HOST else column for column in columns]
            calls = Binder(kernels, 1).ranges_to_scales(measured, params, ImageScales(*values), scheme, "")
            for call in calls:
                call.function(*call.arguments)
            device.finish()
            return [params.host(), *(column.host() for column in columns)]

        yield KnownCase(f"scales of {bits} bits, mode {mode}", compute)


def _double_cases() -> Iterator[KnownCase]:
    """Yield operations whose sums are doubles."""
    rng = np.random.default_rng(4)
    for dtype in REALS:
        x = narrowed(widened(_reals(rng, (9, 70), dtype)) + np.float32(1), dtype)
        for kind, name in enumerate(NORMALISATIONS):
            starts = np.array([0, 70] if name == "local_response" else [0, 33, 70], np.int32)
            parameters = (5.0, 1e-4, 0.75, 1.0) if name == "local_response" else (1.0, 0.0, 0.0, 0.0)
            out = np.zeros(x.shape, dtype)
            arguments = (out, dtype, kind, 9, 70, starts, len(starts) - 1, *parameters)
            yield KnownCase(f"{name} of {dtype}", _filled("normalize", x, out, *arguments))
    qkv = _reals(rng, (2, 24, 3 * (2 * 12 + 33)), np.dtype(np.float32))
    attended = np.zeros((2, 24, 99), np.float32)
    yield KnownCase("attention", _filled("attention", qkv, attended, attended, 2, 24, 3, 12, 33, 2, 0.288675))
