# SPDX-License-Identifier: MIT
"""Kernels of GPUs, on PoCL: the bits of the CPU's, devices that differ are refused, compiled programs and belief are kept.

What is no convolution has its cases in test_elementwise.py and test_integer.py, which take a GPU along where there is one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpnet.errors import KernelError, NonFiniteError
from mpnet.formats.files.cache import FileCache
from mpnet.kernels import isa
from mpnet.kernels.core import constant
from mpnet.kernels.gpu import known_cases, opencl, source
from mpnet.kernels.gpu.driver import Arguments
from mpnet.kernels.gpu.gpu_kernels import GpuKernels
from mpnet.kernels.gpu.opencl import OpenCLDriver
from mpnet.kernels.gpu.packed import is_shared
from mpnet.kernels.interface import ACTIVATION_CODE, NORMALISATIONS, ConvShape, TensorQuant
from mpnet.kernels.native import TYPE_CODE
from mpnet.model.precision import PRECISIONS, precision
from tests.kernels.cases import conv_cases
from tests.kernels.gpus import gpu_driver, gpu_kernels
from tests.kernels.test_conv import have_same_bits, run
from tests.kernels.test_integer import SHAPES, convolved

PROGRAMS = [source.OPERATIONS, source.DOUBLES, *source.convolution_programs()]
CASES = [case for case in conv_cases() if case.products <= 1 << 21]


def differing(cases: list[Any], kernels: GpuKernels | None = None) -> list[str]:
    """Return the cases whose results or ranges have other bits than the CPU's."""
    gpu, names = kernels or gpu_kernels(), []
    for case in cases:
        (expected, ranges), (actual, actual_ranges) = run(isa.kernels(), case), run(gpu, case)
        if not (have_same_bits(expected, actual) and have_same_bits(ranges, actual_ranges)):
            names.append(str(case))
    return names


def test_some_convolutions_have_the_same_bits() -> None:
    assert differing(CASES[::40]) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", list(PRECISIONS))
def test_every_convolution_has_the_same_bits(name: str) -> None:
    cases = [case for case in CASES if case.precision == name]
    assert cases
    assert differing(cases) == []


@pytest.mark.slow
@pytest.mark.parametrize("has_byte_products", [False, True])
def test_groups_that_share_memory_have_the_same_bits(has_byte_products: bool) -> None:
    driver = gpu_driver()
    assert isinstance(driver, OpenCLDriver)
    # As on a GPU: few channels of a work item, and memory of a group.
    like_gpu = OpenCLDriver(driver._library, driver._device, driver.description.name)
    like_gpu.channels, like_gpu.shares_memory, like_gpu.has_byte_products = 4, True, has_byte_products
    gpu = GpuKernels(like_gpu, isa.kernels(), None, lambda *_: None)
    names = ("int8", "int4") if has_byte_products else ("fp32", "fp16", "int8")
    rows = {name: source.sums_of(precision(name)) for name in names}
    cases = [case for case in CASES if case.precision in rows and is_shared(case.shape, rows[case.precision], like_gpu)][::5]
    assert len(cases) > 5
    assert differing(cases, gpu) == []


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_device_shows_its_bits(program: source.ProgramText) -> None:
    assert len(list(known_cases.known_cases(program))) >= 12
    known_cases.check_program(gpu_kernels(), program)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong", "program"),
    [
        ("FMA(a, b, c) fma(a, b, c)", "FMA(a, b, c) ((a) * (b) + (c))", source.convolution_program("CHAIN", np.dtype("f4"))),
        ("return REAL(sign | BITS(MUL(FROM_I32(mantissa), 0x1p-24f)))", "return REAL(sign)", source.OPERATIONS),
        ("define ROUND_EVEN(x) rint(x)", "define ROUND_EVEN(x) round(x)", source.OPERATIONS),
        ("define NARROW(x) convert_float_rte(x)", "define NARROW(x) convert_float_rtz(x)", source.DOUBLES),
        ("(value) * (weight)", "(value) * (i32)(i8)((weight) & 0x7e)", source.convolution_program("INTEGERS", np.dtype("i1"))),
    ],
    ids=["no fma", "subnormal halves", "half away", "towards zero", "lost bits"],
)  # fmt: skip
def test_a_device_with_other_bits_is_refused(
    right: str, wrong: str, program: source.ProgramText, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = source.read_source
    assert any(right in read(name) for name in program.files)
    monkeypatch.setattr(source, "read_source", lambda name: read(name).replace(right, wrong))
    gpu = GpuKernels(gpu_driver(), isa.kernels(), None, known_cases.check_program)
    for _ in range(2):  # what was refused stays so
        with pytest.raises(KernelError, match=r"is refused: known case \d+ of \d+ of its .* has other bits in .* or use cpu$"):
            gpu.program(program)


@pytest.mark.slow
def test_belief_and_compiled_programs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, driver = FileCache(tmp_path, 1 << 28), gpu_driver()
    program = source.convolution_program("INTEGERS", np.dtype(np.int8))
    case = next(case for case in CASES if case.precision == "int8")
    expected, _ = run(isa.kernels(), case)
    checked: list[str] = []
    check = known_cases.check_program
    monkeypatch.setattr(
        known_cases, "check_program", lambda kernels, program: (checked.append(program.name), check(kernels, program))
    )
    for _ in range(2):
        gpu = GpuKernels(driver, isa.kernels(), cache, known_cases.program_checker(cache))
        assert have_same_bits(run(gpu, case)[0], expected)
        assert program.name in checked
        assert len(checked) == 2  # convolutions, and what makes their ranges ready
    assert cache.load(driver.key_of("program", program)) is not None
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:-100])  # damaged: compiled and checked again
    gpu = GpuKernels(driver, isa.kernels(), cache, known_cases.program_checker(cache))
    assert have_same_bits(run(gpu, case)[0], expected)
    assert len(checked) == 4


def test_a_program_of_another_driver_is_compiled_again(tmp_path: Path) -> None:
    cache, driver = FileCache(tmp_path, 1 << 28), gpu_driver()
    cache.store(driver.key_of("program", source.OPERATIONS), [np.frombuffer(b"no program", np.uint8)])
    assert GpuKernels(driver, isa.kernels(), cache, lambda *_: None).program(source.OPERATIONS) is not None
    assert [block.tobytes() for block in cache.load(driver.key_of("program", source.OPERATIONS)) or ()] != [b"no program"]


@dataclass(frozen=True)
class _Flags:
    DENORM: int = 1
    FMA: int = 2
    ROUND_TO_NEAREST: int = 4
    INF_NAN: int = 8
    CORRECTLY_ROUNDED_DIVIDE_SQRT: int = 16


@dataclass(frozen=True)
class _Library:
    device_fp_config: _Flags = _Flags()


@dataclass(frozen=True)
class _Properties:
    single_fp_config: int = 31
    available: bool = True
    endian_little: bool = True
    compiler_available: bool = True


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        (_Properties(), ""),
        (_Properties(30), "flushes subnormal numbers to zero"),
        (_Properties(29), "has no fused multiply-add"),
        (_Properties(15), "does not round divisions correctly"),
        (_Properties(available=False), "is not available"),
        (_Properties(compiler_available=False), "has no compiler"),
    ],
)
def test_what_a_device_says_of_itself_is_believed(properties: _Properties, words: str) -> None:
    assert opencl._problem(_Library(), properties) == words


def test_numbers_are_those_of_the_c_core() -> None:
    text = source.read_source("common.cl") + source.read_source("doubles.cl") + source.read_source("operations.cl")
    numbers = {name: int(value) for name, value in re.findall(r"\b([A-Z][A-Z0-9_]*) = (\d+)", text)}
    assert {name: numbers[name.upper()] for name in ACTIVATION_CODE} == ACTIVATION_CODE
    names = {0: "TYPE_F32", 1: "TYPE_F16", 2: "TYPE_I8", 3: "TYPE_BF16", 4: "TYPE_I16"}
    assert {numbers[names[code]] for code in TYPE_CODE.values()} == set(TYPE_CODE.values())
    for name in names.values():
        assert numbers[name] == constant(f"MP_{name}")
    assert numbers["TYPE_I32"] == max(TYPE_CODE.values()) + 1
    kinds = ("SOFTMAX", "SHARES", "SHARES_OF_EXP", "SHARES_OF_EXP_MAX", "L2_NORM", "LOCAL_RESPONSE", "LAYER_NORM")
    assert [numbers[kind] for kind in kinds] == list(range(len(NORMALISATIONS)))
    for name in ("MP_BAD_ARGUMENT", "MP_NONFINITE"):
        assert numbers[name] == constant(name)


@pytest.mark.parametrize(("row", "result"), [("int8", "int8"), ("int16", "int16"), ("int8", "int16"), ("int16w5", "int16")])
def test_whole_numbers_give_the_same_codes(row: str, result: str) -> None:
    for shape in SHAPES:
        for leaky, pool in ((False, None), (True, 1), (True, 0)):
            arguments = shape, precision(row), precision(result), leaky, pool if shape.out_h > 1 else None
            expected, actual = (convolved(kernels, *arguments) for kernels in (isa.kernels(), gpu_kernels()))
            assert have_same_bits(expected, actual), (shape, leaky, pool)


@pytest.mark.parametrize("name", [name for name, row in PRECISIONS.items() if row.multiplies_bytes])
def test_sums_of_some_channels_are_continued(name: str) -> None:
    rng, row = np.random.default_rng(3), precision(name)
    shape, part = ConvShape(6, 7, 24, 19, 3, 1, 1), ConvShape(6, 7, 12, 19, 3, 1, 1)
    weights = rng.integers(-row.largest_code, row.largest_code + 1, (19, 24, 3, 3)).astype(np.int8)
    x = rng.integers(-128, 128, (2, 6, 7, 24)).astype(np.int8)
    scales = TensorQuant(np.array([0.1, 0.2], np.float32), np.array([-128, 5], np.int32), np.zeros(2, np.float32))
    options: dict[str, Any] = {
        "bias": rng.standard_normal(19).astype(np.float32),
        "weight_scale": np.full(19, 0.01, np.float32),
        "in_quant": scales,
    }
    expected = np.empty((2, 6, 7, 19), np.float32)
    isa.kernels().conv(isa.kernels().pack_conv(shape, row, weights), x, expected, activation="leaky", **options)
    gpu = gpu_kernels()
    first, second = (gpu.pack_conv(part, row, np.ascontiguousarray(half)) for half in np.split(weights, 2, axis=1))
    assert gpu.takes_sums(first)
    sums, actual = np.empty((2, 6, 7, 19), np.int32), np.empty_like(expected)
    gpu.conv(first, np.ascontiguousarray(x[..., :12]), sums, **options)
    gpu.conv(second, np.ascontiguousarray(x[..., 12:]), actual, sums=sums, activation="leaky", **options)
    assert have_same_bits(expected, actual)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_result_that_is_not_finite_is_reported(value: float) -> None:
    gpu, shape = gpu_kernels(), ConvShape(9, 9, 3, 20, 3, 1, 1)
    packed = gpu.pack_conv(shape, precision("fp32"), np.ones((20, 3, 3, 3), np.float32))
    x, out, bias = np.zeros((2, 9, 9, 3), np.float32), np.empty((2, 9, 9, 20), np.float32), np.zeros(20, np.float32)
    x[1, 8, 8, 2] = value
    with pytest.raises(NonFiniteError, match="NaN or infinite"):
        gpu.conv(packed, x, out, bias=bias, activation="relu")
    x[1, 8, 8, 2] = 0  # the failure is forgotten
    gpu.conv(packed, x, out, bias=bias, activation="relu")
    assert (out == 0).all()


def test_weights_that_are_no_weights_are_refused() -> None:
    gpu = gpu_kernels()
    with pytest.raises(KernelError, match="cannot be computed"):
        gpu.pack_conv(ConvShape(2, 2, 3, 3, 3), precision("fp32"), np.zeros((3, 3, 3, 3), np.float32))
    with pytest.raises(KernelError, match="at most 66311"):
        gpu.pack_conv(ConvShape(1, 1, 66312, 1, 1), precision("int8"), np.zeros((1, 66312, 1, 1), np.int8))


def test_a_device_that_fails_is_one_line() -> None:
    driver = gpu_driver()
    assert isinstance(driver, OpenCLDriver)
    with pytest.raises(MemoryError, match="at most"):
        driver.allocate(1 << 62)
    error = driver._library.RuntimeError("clEnqueueNDRangeKernel failed: DEVICE_NOT_AVAILABLE")

    def fail() -> None:
        raise error

    with pytest.raises(KernelError, match=r"^opencl:\d+, .*, failed \(.*DEVICE_NOT_AVAILABLE.*\); use another device, or cpu$"):
        driver._guarded(fail)


def test_a_driver_that_refuses_an_argument_is_one_line() -> None:
    driver = gpu_driver()
    program = driver.compile_program(source.OPERATIONS)
    arguments = Arguments((np.float32(1), np.float32(2)))  # begin_ranges takes whole numbers of 64 bits, and memory
    with pytest.raises(KernelError, match=r"^opencl:\d+, .*, failed \(.*\); use another device, or cpu$"):
        driver.launch(program, "begin_ranges", 1, arguments).start(0)


def test_a_compiler_that_hangs_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    driver, end = gpu_driver(), threading.Event()
    assert isinstance(driver, OpenCLDriver)

    class Hanging:
        def build(self, options: list[str]) -> None:
            end.wait(60)

    monkeypatch.setattr(opencl, "COMPILE_SECONDS", 0.05)
    try:
        with pytest.raises(KernelError, match="compiling operations did not end within"):
            driver._built(Hanging(), source.OPERATIONS)
    finally:
        end.set()


def test_a_program_that_cannot_be_compiled_is_one_line() -> None:
    driver = gpu_driver()
    assert isinstance(driver, OpenCLDriver)

    class Failing:
        def build(self, options: list[str]) -> None:
            raise ValueError("build log\nx.cl:3: error: no such thing\nmore")

    with pytest.raises(KernelError, match=r"cannot compile operations: x.cl:3: error: no such thing; update"):
        driver._built(Failing(), source.OPERATIONS)
