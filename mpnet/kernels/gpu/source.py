# SPDX-License-Identifier: MIT
"""Programs for GPUs: texts that are compiled on their own, so that a network waits for those alone that it needs."""

from __future__ import annotations

import functools
import hashlib
import re
from dataclasses import dataclass
from importlib import resources

import numpy as np

from mpnet.arrays import DType
from mpnet.kernels.native import TYPE_CODE
from mpnet.model.precision import FP16_HALF_WINOGRAD, FP32_WINOGRAD, PRECISIONS, Precision

CHAIN, HALVES, INTEGERS, LONG_INTEGERS = "CHAIN", "HALVES", "INTEGERS", "LONG_INTEGERS"
WINOGRAD, HALF_WINOGRAD = "WINOGRAD", "HALF_WINOGRAD"
"""How sums are held, as convolution.cl calls it."""
_STORED_NAMES = {0: "TYPE_F32", 1: "TYPE_F16", 2: "TYPE_I8", 3: "TYPE_BF16", 4: "TYPE_I16"}
_TYPES = {"i64": np.int64, "i32": np.int32}


@dataclass(frozen=True)
class ProgramText:
    """A text to compile. name: for messages. definitions: of the preprocessor, beside those of a device."""

    name: str
    files: tuple[str, ...]
    definitions: tuple[tuple[str, str], ...] = ()
    needs_doubles: bool = False

    def text(self, channels: int, has_byte_products: bool) -> str:
        """Return the source. channels: of one work item of a convolution. has_byte_products: of the device, four at once."""
        definitions = (*self.definitions, ("CHANNELS", str(channels)), ("BYTE_PRODUCTS", str(int(has_byte_products))))
        lines = [f"#define {name} {value}" for name, value in definitions]
        return "\n".join([*lines, *(read_source(name) for name in self.files)])

    def digest(self, channels: int, has_byte_products: bool) -> str:
        """Return the SHA-256 (hex) of the source."""
        return hashlib.sha256(self.text(channels, has_byte_products).encode()).hexdigest()


OPERATIONS = ProgramText("operations", ("common.cl", "operations.cl"))
"""Everything but convolutions and what follows."""
DOUBLES = ProgramText("operations in double", ("common.cl", "doubles.cl"), needs_doubles=True)
"""Operations whose sums are doubles."""


@functools.cache
def convolution_program(sums: str, stored: DType) -> ProgramText:
    """Return the program of convolutions that hold sums so and read a stored type."""
    code = TYPE_CODE[stored]
    definitions = (("SUMS", sums), ("STORED", _STORED_NAMES[code]))
    return ProgramText(
        f"convolutions of {stored} ({sums.lower()})", ("common.cl", "convolution.cl", "convolution_tiles.cl"), definitions
    )


def sums_of(row: Precision) -> str:
    """Return how convolutions of a precision hold their sums, but for shapes where a Winograd variant is its direct one."""
    if row.carries_scale:
        return INTEGERS if row.multiplies_bytes else LONG_INTEGERS
    if row.accumulates == "float16":
        return HALF_WINOGRAD if row is FP16_HALF_WINOGRAD else HALVES
    return WINOGRAD if row is FP32_WINOGRAD else CHAIN


def convolution_programs() -> dict[ProgramText, tuple[Precision, ...]]:
    """Return all programs of convolutions and the precisions that each computes."""
    programs: dict[ProgramText, tuple[Precision, ...]] = {}
    for row in PRECISIONS.values():
        program = convolution_program(sums_of(row), row.stored.dtype)
        programs[program] = (*programs.get(program, ()), row)
    return programs


@functools.cache
def read_source(name: str) -> str:
    """Return a file of this folder."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


@functools.cache
def convolution_fields() -> np.dtype[np.void]:
    """Return the layout of a convolution's numbers, as convolution.cl declares them."""
    declaration = re.search(r"typedef struct \{([^}]*)\} convolution;", read_source("convolution.cl"))
    assert declaration is not None
    fields = [
        (name, _TYPES[kind])
        for kind, names in re.findall(r"(i64|i32) ([^;]+);", declaration[1])
        for name in re.split(r",\s*", names)
    ]
    return np.dtype(fields, align=True)


@functools.cache
def convolution_memories() -> tuple[str, ...]:
    """Return the names of a convolution's tensors, in the order in which its kernels take their memory."""
    declaration = re.search(r"#define MEMORIES(.*?)GLOBAL i32 \*status", read_source("convolution.cl"), re.DOTALL)
    assert declaration is not None
    return tuple(re.findall(r"\*(\w+)_memory", declaration[1]))
