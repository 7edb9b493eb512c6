# SPDX-License-Identifier: MIT
"""The kernels of a GPU: calls whose tensors lie there, with the bits of the CPU's."""

from __future__ import annotations

import threading
from typing import Any, Callable, Iterable, cast

import numpy as np

from mpnet.arrays import Array
from mpnet.errors import KernelError
from mpnet.kernels.arguments import ConvFields, KernelArgument
from mpnet.kernels.call import Call
from mpnet.kernels.codes import CScheme
from mpnet.kernels.core import constant
from mpnet.kernels.device import Storage, Values
from mpnet.kernels.gpu.driver import Arguments, Driver, KernelCache, Launch
from mpnet.kernels.gpu.memory import GpuDevice, GpuStorage
from mpnet.kernels.gpu.packed import GpuWeights, pack_weights
from mpnet.kernels.gpu.source import (
    CHAIN,
    DOUBLES,
    HALF_WINOGRAD,
    HALVES,
    OPERATIONS,
    WINOGRAD,
    ProgramText,
    convolution_fields,
    convolution_memories,
    convolution_program,
    sums_of,
)
from mpnet.kernels.implementation import Kernels
from mpnet.kernels.interface import ConvShape, PackedConv
from mpnet.kernels.native import TYPE_CODE, NativeKernels
from mpnet.kernels.reference import ReferenceKernels
from mpnet.kernels.scales import ImageScales
from mpnet.model.precision import Precision

_INTEGER_CODE = max(TYPE_CODE.values()) + 1
"""The number of int32, which no stored type has, in common.cl."""
_DOUBLE_FUNCTIONS = ("normalize", "attention")
_PLAIN_FUNCTIONS = (
    "value_range", "quantize", "dequantize", "cast", "maxpool", "avgpool", "upsample", "copy_channels", "add", "map", "combine",
    "multiply", "gather", "local_avgpool", "channel_max", "shuffle", "rescale", "add_codes", "quantize_by_division",
)  # fmt: skip
_CONVOLUTIONS = ("conv", "integer_conv", "ranges_to_params")
# Those that read two tensors before the one that they fill.
_OF_TWO = ("add", "combine", "multiply", "add_codes")
_STRETCH, _ATTENDED, _PIXELS, _WINOGRAD_TILE, _SIDE = 64, 32, 4, 4, 8
"""Of one work item: values that are measured, values of an attention, pixels; the side of a tile; tiles of a group.
As the sources have them."""
_CAN_FAIL = ("value_range", "quantize_by_division", "gather", "add_codes")
_ASKED_OF_THE_CPU = ("rescale", "quantize_by_division")
"""Their arguments are numbers, of which the C core says whether they make sense; kernels look at what lies in memory."""
Check = Callable[["GpuKernels", ProgramText], None]


class GpuKernels(Kernels):
    """Kernels of one GPU. Raises: KernelError where the device fails.

    cache: where compiled programs are kept, None for nowhere. check: looks at a program before its first use, and raises
    KernelError where it does not give the bits that it must. falls_back: whether the functions of a program that cannot be
    used are not supported, so that the CPU runs them; what needs one is an error otherwise.
    """

    device: GpuDevice

    def __init__(
        self, driver: Driver, host: NativeKernels, cache: KernelCache | None, check: Check, falls_back: bool = False
    ) -> None:
        self.name = driver.description.name
        self.device = GpuDevice(driver)
        self._host, self._cache, self._check = host, cache, check
        self._driver = driver
        self.falls_back = falls_back
        self._programs: dict[ProgramText, Any] = {}
        self._refused: dict[ProgramText, KernelError] = {}
        self._lock = threading.RLock()

    @property
    def host_kernels(self) -> NativeKernels:
        """Return the kernels of the CPU, which run what these do not support."""
        return self._host

    @property
    def driver(self) -> Driver:
        """Return what reaches the device."""
        return self._driver

    def supports(self, function: str, precision: Precision) -> bool:
        """Implement `Kernels.supports`."""
        return not self.refusal(function, precision)

    def refusal(self, function: str, precision: Precision) -> str:
        """Implement `Kernels.refusal`."""
        if function in _DOUBLE_FUNCTIONS and not self._driver.has_doubles:
            return f"{self.name} does not compute in double"
        if function not in (*_DOUBLE_FUNCTIONS, *_PLAIN_FUNCTIONS, *_CONVOLUTIONS):
            return f"{self.name} has no kernel for it"
        if self.falls_back:
            for text in programs_of(function, precision):
                try:
                    self.program(text)
                except KernelError as error:
                    return str(error)
        return ""

    def precisions(self) -> tuple[str, ...]:
        """Return the names of the precisions that it computes."""
        return self._host.precisions()

    def takes_sums(self, packed: PackedConv) -> bool:
        """Implement `Kernels.takes_sums`."""
        return packed.precision.multiplies_bytes

    def check_status(self, status: int | None, what: str) -> None:
        """Implement `Kernels.check_status`: statuses are those of the C core."""
        self._host.check_status(status or 0, what)

    def pack_conv(self, shape: ConvShape, precision: Precision, weights: Array) -> PackedConv:
        """Implement `Kernels.pack_conv`."""
        self._host.check_conv(shape, precision, weights)
        stored = ReferenceKernels().pack_conv(shape, precision, weights).data
        on_device = pack_weights(shape, precision, stored, self.device)
        return PackedConv(shape, precision, self.name, on_device.weights.nbytes, np.empty(0, np.uint8), on_device)

    def program(self, text: ProgramText) -> Any:
        """Return a compiled program that has shown its bits. Raises: KernelError."""
        with self._lock:
            if text in self._refused:
                raise self._refused[text]
            program = self._programs.get(text)
            return self._open_program(text) if program is None else program

    def _open_program(self, text: ProgramText) -> Any:
        """Load or compile a program, see its bits, and keep it. Raises: KernelError."""
        key = self._driver.key_of("program", text)
        kept = None if self._cache is None else self._cache.load(key)
        loaded = None if kept is None or len(kept) != 1 else self._driver.load_program(text, kept[0])
        try:
            program = self._programs[text] = self._driver.compile_program(text) if loaded is None else loaded
            self._check(self, text)
        except KernelError as error:
            self._programs.pop(text, None)
            self._refused[text] = error
            raise
        # Behind the check: some drivers compile a kernel when it is launched first, and bytes taken before lack that.
        if self._cache is not None and loaded is None:
            self._cache.store(key, [self._driver.binary_of(program)])
        return program

    def call(self, function: str, x: Values, *rest: KernelArgument) -> Call:
        """Implement `Kernels.call`."""
        arguments = rest[:-1]  # without the number of threads
        tensors = [value for value in arguments if isinstance(value, GpuStorage)]
        out = tensors[1 if function in _OF_TWO else 0]
        if function in _ASKED_OF_THE_CPU:
            self._check_numbers(function, x, arguments)
        program = self.program(DOUBLES if function in _DOUBLE_FUNCTIONS else OPERATIONS)
        items = _items(function, out, arguments)
        can_fail = function in _CAN_FAIL
        launches = [self._launch(program, function, items, (x, *arguments), can_fail)]
        if function == "value_range":
            launches = self._measured(out, launches)
        return self._call(launches, (x, *tensors))

    def conv_call(self, packed: PackedConv, x: Values, fields: ConvFields) -> Call:
        """Implement `Kernels.conv_call`."""
        weights = cast(GpuWeights, packed.c_shape)
        before: list[Launch] = []
        keep: list[object] = [packed]
        if "converts" in fields:
            x, conversion = self._converted(packed, x, fields)
            before = [conversion]
        out, sums = fields["out"], fields.get("sums")
        assert isinstance(out, GpuStorage)
        numbers = self._numbers(packed, weights, x, out, fields)
        tensors = {
            name: value for name in convolution_memories() if isinstance(value := fields.get(name), GpuStorage) and name != "x"
        }
        tensors |= {"x": cast(GpuStorage, x), "weights": weights.weights}
        if weights.weight_sum is not None:
            tensors["weight_sum"] = weights.weight_sum
        for name, tensor in tensors.items():
            numbers[f"{name}_start"] = tensor.start_bytes
        memories = [tensors[name].memory if name in tensors else None for name in convolution_memories()]
        launch = self._driver.launch(
            self.program(weights.program),
            weights.kernel,
            int(numbers["items"]),
            Arguments((cast(np.void, numbers[()]), *memories), has_status=True),
        )
        launches = [*before, launch]
        if "ranges" in tensors:
            launches = self._measured(tensors["ranges"], launches)
        return self._call(launches, (*keep, *tensors.values(), sums))

    def ranges_to_scales(self, ranges: Storage, params: Storage, scales: ImageScales, scheme: CScheme, mode: str) -> list[Call]:
        """Implement `CallMaker.ranges_to_scales`, of modes that are not TensorFlow's."""
        columns = [getattr(scales, name) for name in ("scale", "inv_scale", "zero_point", "offset")]
        arguments = (ranges, params, *columns, scheme.mode, scheme.rounding, scheme.bits)
        launch = self._launch(self.program(OPERATIONS), "ranges_to_params", params.size, arguments, True)
        call = self._call([launch], (ranges, params, *columns))
        call.scaled_mode = mode
        return [call]

    def _call(self, launches: list[Launch], keep: tuple[object, ...]) -> Call:
        call = Call(_start, (self.device, launches), keep=keep)
        call.arguments = (self.device, launches, _Reference(call))
        return call

    def _launch(
        self, program: Any, kernel: str, items: int, arguments: Iterable[KernelArgument], can_fail: bool = False
    ) -> Launch:
        """Return a kernel with arguments as `Kernels.call` takes them."""
        values: list[Any] = [np.int64(items)]
        for value in arguments:
            if isinstance(value, GpuStorage):
                values += [value.memory, np.int64(value.start_bytes)]
            elif isinstance(value, np.dtype):
                values.append(np.int64(TYPE_CODE[value]))
            else:
                values.append(np.float32(value) if isinstance(value, float) else np.int64(cast(int, value)))
        return self._driver.launch(program, kernel, items, Arguments(tuple(values), can_fail))

    def _measured(self, ranges: GpuStorage, launches: list[Launch]) -> list[Launch]:
        """Return launches that measure ranges, between those that make them ready and turn them into reals."""
        program = self.program(OPERATIONS)
        first, last = (self._launch(program, name, ranges.size, (ranges,)) for name in ("begin_ranges", "end_ranges"))
        return [first, *launches, last]

    def _converted(self, packed: PackedConv, x: Values, fields: ConvFields) -> tuple[GpuStorage, Launch]:
        """Return a copy of the input as the precision reads it, and what fills it."""
        assert isinstance(x, GpuStorage)
        stored, program = packed.precision.stored.dtype, self.program(OPERATIONS)
        copy = self.device.allocate(x.shape, stored)
        if not packed.precision.carries_scale:
            return copy, self._launch(program, "cast", x.size, (x, x.dtype, copy, stored, x.size))
        scales = (fields["in_inv_scale"], fields["in_zero_point"])
        rules = (fields["in_rounding"], fields["in_low"], fields["in_high"])
        counts = (x.shape[0], x.size // x.shape[0])
        return copy, self._launch(program, "quantize", x.size, (x, x.dtype, copy, stored, *counts, *scales, *rules))

    def _numbers(
        self, packed: PackedConv, weights: GpuWeights, x: Values, out: GpuStorage, fields: ConvFields
    ) -> np.ndarray[Any, np.dtype[np.void]]:
        """Return the numbers of a convolution, as convolution.cl lists them, but where its tensors begin."""
        shape, numbers = packed.shape, np.zeros((), convolution_fields())
        for name in ("in_h", "in_w", "in_channels", "out_channels", "size", "stride", "padding", "dilation", "groups"):
            numbers[name] = getattr(shape, name)
        for name in ("activation", "out_rounding", "out_low", "out_high", "leaky_low", "leaky_high", "gives_sums"):
            numbers[name] = fields.get(name, 0)
        is_pooled = "pool_h" in fields
        result_h, result_w = (fields["pool_h"], fields["pool_w"]) if is_pooled else (shape.out_h, shape.out_w)
        numbers["out_h"], numbers["out_w"] = shape.out_h, shape.out_w
        numbers["result_h"], numbers["result_w"], numbers["is_pooled"] = result_h, result_w, is_pooled
        numbers["out_type"] = TYPE_CODE.get(out.dtype, _INTEGER_CODE)
        numbers["padded_channels"] = weights.padded_channels
        numbers["top"], numbers["bottom"], numbers["left"], numbers["right"] = weights.taps
        numbers["has_ranges"], numbers["has_sums"] = "ranges" in fields, "sums" in fields
        numbers["is_leaky"] = "leaky_multiplier" in fields
        if "multiplier" in fields:
            is_narrow = packed.precision.multiplies_bytes and out.dtype == np.int8
            numbers["integer_rule"] = 32 if is_narrow else 64
        blocks = weights.padded_channels // self._driver.channels
        images = int(cast(int, fields["images"]))
        if weights.kernel == "convolve_winograd":
            tiles = -(-shape.out_h // _WINOGRAD_TILE) * -(-shape.out_w // _WINOGRAD_TILE)
        else:
            results = cast(int, result_h) * cast(int, result_w)
            tiles = results if is_pooled else -(-results // _PIXELS)
            blocks *= shape.groups if weights.kernel == "convolve" else 1
        if weights.kernel == "convolve_tiles":
            tiles, blocks = (-(-count // _SIDE) * _SIDE for count in (tiles, blocks))
        numbers["items"] = images * tiles * blocks
        return numbers

    def _check_numbers(self, function: str, x: Values, arguments: tuple[KernelArgument, ...]) -> None:
        """Have the C core look at the arguments of a call for no values. Raises: KernelError."""
        values = [np.empty(1, value.dtype) if isinstance(value, GpuStorage) else value for value in (x, *arguments[:-1])]
        call = self._host.call(function, cast(Array, values[0]), *values[1:], 0, 1)
        self._host.check_status(call.function(*call.arguments), function)


def programs_of(function: str, precision: Precision) -> tuple[ProgramText, ...]:
    """Return the programs that a function of `Kernels.supports` may need for tensors, or weights, of a precision."""
    if function in ("conv", "integer_conv"):
        sums = sums_of(precision)
        kinds = dict.fromkeys((sums, {WINOGRAD: CHAIN, HALF_WINOGRAD: HALVES}.get(sums, sums)))
        return (OPERATIONS, *(convolution_program(kind, precision.stored.dtype) for kind in kinds))
    return (DOUBLES if function in _DOUBLE_FUNCTIONS else OPERATIONS,)


class _Reference:
    """A call as one of its own arguments, without a circle."""

    def __init__(self, call: Call) -> None:
        import weakref

        self.call = weakref.ref(call)


def _start(device: GpuDevice, launches: list[Launch], reference: _Reference) -> None:
    call = reference.call()
    assert call is not None
    number = device.started(call)
    for launch in launches:
        launch.start(number)


def _items(function: str, out: GpuStorage, arguments: tuple[KernelArgument, ...]) -> int:
    """Return the work items of a function."""
    numbers = [value for value in arguments if isinstance(value, int)]
    if function == "value_range":
        images, count = numbers[:2]
        return images * -(-count // _STRETCH)
    if function == "copy_channels":
        return numbers[0] * numbers[-1]
    if function == "normalize":
        _, rows, _, segments = numbers[:4]
        return rows * segments
    if function == "attention":
        images, pixels, heads, _, value, areas = numbers[:6]
        if pixels // areas > constant("MP_MOST_POSITIONS"):
            raise KernelError(f"attention: {pixels // areas} positions are too many; at most {constant('MP_MOST_POSITIONS')}")
        return images * pixels * heads * -(-value // _ATTENDED)
    return out.size
