# SPDX-License-Identifier: MIT
"""Kernels of GPUs as CUDA C++, by NVRTC, which needs no GPU: reals round to nearest, nothing is flushed or approximate.

pip install nvidia-cuda-nvrtc cuda-bindings
"""

from __future__ import annotations

import re
from importlib.util import find_spec

import numpy as np
import pytest

from mpnet.engine.devices import list_gpus, open_kernels
from mpnet.errors import MpnetError
from mpnet.kernels.gpu import cuda, source
from mpnet.kernels.gpu.driver import Arguments, Memory

PROGRAMS = [source.OPERATIONS, source.DOUBLES, *source.convolution_programs()]
OPTIONS = ("--gpu-architecture=compute_75", *cuda.OPTIONS)
ARITHMETIC = re.compile(
    r"^\s*(?:@!?%p\d+\s+)?((?:add|sub|mul|div|fma|mad|sqrt|rsqrt|rcp|ex2|lg2|sin|cos|tanh)\.[\w.]*f(?:16|32|64))\b", re.M
)
CONVERSION = re.compile(r"\b(cvt\.[\w.]*f(?:16|32|64)[\w.]*)")


def require_nvrtc() -> None:
    """Skip the test, aloud, without NVRTC."""
    if find_spec("cuda") is None or find_spec("cuda.bindings") is None:
        pytest.skip("SKIPPED WITHOUT NVRTC: pip install nvidia-cuda-nvrtc cuda-bindings")


def compile_ptx(text: str) -> str:
    """Return the assembler text that NVRTC makes; the test is skipped, aloud, without it."""
    require_nvrtc()
    from cuda.bindings import nvrtc

    _, program = nvrtc.nvrtcCreateProgram(text.encode(), b"kernels.cu", 0, [], [])
    (status,) = nvrtc.nvrtcCompileProgram(program, len(OPTIONS), [option.encode() for option in OPTIONS])
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = b" " * size
    nvrtc.nvrtcGetProgramLog(program, log)
    assert int(status) == 0, log.decode()
    _, size = nvrtc.nvrtcGetPTXSize(program)
    ptx = b" " * size
    nvrtc.nvrtcGetPTX(program, ptx)
    return ptx.decode()


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_operations_are_those_of_ieee_754(program: source.ProgramText) -> None:
    ptx = compile_ptx(program.text(channels=4, has_byte_products=True))
    arithmetic = set(ARITHMETIC.findall(ptx))
    assert "mul.rn.f32" in arithmetic
    assert {operation for operation in arithmetic if ".rn." not in operation} == set()
    assert {operation.split(".")[0] for operation in arithmetic} <= {"add", "sub", "mul", "div", "fma", "sqrt"}
    # To float to nearest; from float towards zero; to whole numbers in float as rint, trunc and floor; wider without a choice.
    roundings = {"rn", "rzi", "rni", "rmi"}
    for conversion in set(CONVERSION.findall(ptx)) - {"cvt.f64.f32"}:
        assert roundings & set(conversion.split(".")), conversion
    assert "ftz" not in ptx
    assert "approx" not in ptx
    assert ptx.count(".entry mp_") == text_kernels(program)
    assert ("dp4a.s32.s32" in ptx) == (dict(program.definitions).get("SUMS") == "INTEGERS")


def test_a_program_is_compiled_to_code_of_a_gpu() -> None:
    require_nvrtc()
    library = cuda.load_library("test")
    text = 'extern "C" __global__ void mp_nothing(int *x) { x[threadIdx.x] += 1; }'
    assert cuda.compile_text(library, text, (7, 5)).startswith(b"\x7fELF")
    with pytest.raises(ValueError, match="error"):
        cuda.compile_text(library, text.replace("int", "integer"), (7, 5))


def test_parameters_lie_as_kernels_take_them() -> None:
    fields = np.zeros((), source.convolution_fields())
    fields["items"], fields["leaky_high"] = 7, 9
    values = (fields[()], Memory(1 << 40), None, np.int64(-5), np.float32(0.5))
    structure, *parameters = cuda.parameters_of(Arguments(values, has_status=True))
    assert structure.dtype == source.convolution_fields()
    assert structure[0] == fields[()]  # whose bytes between fields are anybody's
    assert [parameter.tobytes() for parameter in parameters] == [
        (1 << 40).to_bytes(8, "little"),
        bytes(8),
        (-5).to_bytes(8, "little", signed=True),
        np.float32(0.5).tobytes(),
    ]


def test_without_a_gpu_of_nvidias_one_line_says_so() -> None:
    if any(gpu.name.startswith("cuda") for gpu in list_gpus()):
        pytest.skip("there is one: test_gpu.py and benchmarks/gpu.py look at it")
    with pytest.raises(MpnetError, match=r"cuda:0:? needs (NVIDIA's driver and one of its GPUs|cuda-bindings)[^\n]*$"):
        open_kernels(device="cuda:0")


def text_kernels(program: source.ProgramText) -> int:
    """Count the kernels of a program: of convolutions by Winograd one, by chains and by bytes those in tiles as well."""
    sums = dict(program.definitions).get("SUMS")
    if sums is not None:
        return 1 if "WINOGRAD" in sums else 3 if sums in ("CHAIN", "INTEGERS") else 2
    return sum(source.read_source(name).count("\nKERNEL void") for name in program.files)
