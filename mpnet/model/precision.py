# SPDX-License-Identifier: MIT
"""The registry of precisions: one row holds all that the rest of the program asks about one.

A further precision is one row here, and what docs/adding-a-precision.md lists. Nothing outside the registry and the
kernels asks which precision it has, but what that precision is like.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterable

import numpy as np

from mpnet.errors import PrecisionError


@dataclass(frozen=True, eq=False)
class StoredType:
    """The form of one value of a tensor in memory. Rows are compared by identity.

    name:    the word in messages and documents.
    dtype:   of the NumPy arrays that hold it; each stored type has its own.
    c_name:  what follows MP_TYPE_ in csrc/mpnet.h.
    is_code: whether values are integers that mean reals through their tensor's scale and zero point.
    """

    name: str
    dtype: np.dtype[np.generic]
    c_name: str
    is_code: bool = False

    @property
    def item_bytes(self) -> int:
        """Return the bytes of one value."""
        return self.dtype.itemsize


FLOAT32 = StoredType("float32", np.dtype(np.float32), "F32")
FLOAT16 = StoredType("float16", np.dtype(np.float16), "F16")
# NumPy has no bfloat16: such tensors hold its bits, which mpnet.model.reals converts.
BFLOAT16 = StoredType("bfloat16", np.dtype(np.uint16), "BF16")
CODE8 = StoredType("int8", np.dtype(np.int8), "I8", is_code=True)
CODE16 = StoredType("int16", np.dtype(np.int16), "I16", is_code=True)

STORED_TYPES: dict[str, StoredType] = {t.name: t for t in (FLOAT32, FLOAT16, BFLOAT16, CODE8, CODE16)}


@dataclass(frozen=True, eq=False)
class Precision:
    """The selection of a layer's `fp32=`, `fp16=`, `bf16=`, `int8=` or `int16=`. Rows compare by identity, pickled by name.

    name:        the word in cfg, YAML, code and reports; in capitals behind MP_ that of csrc/mpnet.h.
    code:        one character, used in a plan's canonical text (its identity).
    base:        the precision that tensors between layers have; a variant (fp16_half, int4, int16w4) shares its base's.
    stored:      how activations lie in memory.
    weight_bits: bits of one stored weight.
    accumulates: NumPy dtype name of what a convolution's sums are held in.
    widens_to:   name of the precision that results have before anything quantises them: of codes fp32, else the base.
    rank:        order for "the highest of its inputs" (routes, shortcuts).
    exact:       whether its results equal fp32 direct convolution bit for bit.
    """

    name: str
    code: str
    base: str
    stored: StoredType
    weight_bits: int
    accumulates: str
    widens_to: str
    rank: int
    exact: bool = False

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return precision, (self.name,)

    @property
    def carries_scale(self) -> bool:
        """Return whether tensors of it carry scale and zero point, and weights of it scales."""
        return self.stored.is_code

    @property
    def largest_code(self) -> int:
        """Return the largest magnitude of a weight's code, where weights are codes."""
        return (1 << (self.weight_bits - 1)) - 1

    @property
    def is_narrow(self) -> bool:
        """Return whether weights are codes of fewer than eight bits: they lie packed, and are rounded with more care."""
        return self.carries_scale and self.weight_bits < 8 * self.weights.item_bytes

    @property
    def weights(self) -> StoredType:
        """Return how kernels take weights: codes are int8, whatever those of activations are."""
        return CODE8 if self.carries_scale else self.stored

    @property
    def multiplies_bytes(self) -> bool:
        """Return whether its products are of two codes of at most eight bits."""
        return self.stored is CODE8

    @property
    def tensor(self) -> Precision:
        """Return the precision of its tensors: its base."""
        return PRECISIONS[self.base]

    @property
    def widened(self) -> Precision:
        """Return the precision that `widens_to` names."""
        return PRECISIONS[self.widens_to]


FP32 = Precision("fp32", "f", "fp32", FLOAT32, 32, "float32", "fp32", 3, exact=True)
FP16 = Precision("fp16", "h", "fp16", FLOAT16, 16, "float32", "fp16", 2)
BF16 = Precision("bf16", "b", "bf16", BFLOAT16, 16, "float32", "bf16", 2)
INT8 = Precision("int8", "q", "int8", CODE8, 8, "int32", "fp32", 1)
INT16 = Precision("int16", "i", "int16", CODE16, 8, "int64", "fp32", 2)
# Declared variants: other arithmetic over the same storage, with their own fixed order of operations.
FP32_WINOGRAD = Precision("fp32_winograd", "w", "fp32", FLOAT32, 32, "float32", "fp32", 3)
FP16_HALF = Precision("fp16_half", "H", "fp16", FLOAT16, 16, "float16", "fp16", 2)
FP16_HALF_WINOGRAD = Precision("fp16_half_winograd", "W", "fp16", FLOAT16, 16, "float16", "fp16", 2)
# int8 and int16 with fewer bits for each weight.
INT6 = Precision("int6", "6", "int8", CODE8, 6, "int32", "fp32", 1)
INT5 = Precision("int5", "5", "int8", CODE8, 5, "int32", "fp32", 1)
INT4 = Precision("int4", "4", "int8", CODE8, 4, "int32", "fp32", 1)
INT3 = Precision("int3", "3", "int8", CODE8, 3, "int32", "fp32", 1)
INT16W6 = Precision("int16w6", "j", "int16", CODE16, 6, "int64", "fp32", 2)
INT16W5 = Precision("int16w5", "k", "int16", CODE16, 5, "int64", "fp32", 2)
INT16W4 = Precision("int16w4", "l", "int16", CODE16, 4, "int64", "fp32", 2)
INT16W3 = Precision("int16w3", "m", "int16", CODE16, 3, "int64", "fp32", 2)

PRECISIONS: dict[str, Precision] = {
    p.name: p
    for p in (
        *(FP32, FP16, BF16, INT8, FP32_WINOGRAD, FP16_HALF, INT6, INT5, INT4, INT3),
        *(INT16, INT16W6, INT16W5, INT16W4, INT16W3, FP16_HALF_WINOGRAD),
    )
}
BY_CODE: dict[str, Precision] = {p.code: p for p in PRECISIONS.values()}
BASE_NAMES: tuple[str, ...] = tuple(p.name for p in PRECISIONS.values() if p.base == p.name)
USUAL_NAMES: tuple[str, ...] = (FP32.name, FP16.name, INT8.name)
"""What a cfg's full set of keys switches between, what bundles can be timed in and targets have; others are rarer."""


def highest(met: Iterable[Precision]) -> Precision:
    """Return the precision that tensors of these precisions, which are bases, meet in.

    It is the highest; of two that rank alike (fp16 and bf16, neither of which holds the other's values) the next above both.
    """
    bases = set(met)
    top = max(base.rank for base in bases)
    of_top = [base for base in bases if base.rank == top]
    if len(of_top) == 1:
        return of_top[0]
    return min((PRECISIONS[name] for name in BASE_NAMES if PRECISIONS[name].rank > top), key=lambda base: base.rank)


def precision(name: str) -> Precision:
    """Return the registry row called `name`. Raises PrecisionError for an unknown one."""
    try:
        return PRECISIONS[name]
    except KeyError:
        raise PrecisionError(f"unknown precision {name!r}; known are {', '.join(PRECISIONS)}") from None
