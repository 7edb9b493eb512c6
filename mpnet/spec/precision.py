"""The registry of precisions: one row holds all that the rest of the program asks about one.

A further precision is one row here, one kernel template, one oracle function and one section of
docs/arithmetic.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from mpnet.errors import PrecisionError


@dataclass(frozen=True)
class Precision:
    """What a layer's `fp32=`, `fp16=` or `int8=` selects.

    name:         the word in cfg, YAML, code and reports.
    code:         one character, used in a plan's canonical text (its identity).
    base:         the cfg key that selects it; a variant (fp16_half, fp32_winograd) shares its base's key.
    storage:      NumPy dtype name of activations in memory.
    weight_bits:  bits of one stored weight.
    carries_scale: whether tensors of it carry scale and zero point.
    rank:         order for "the highest of its inputs" (routes, shortcuts).
    exact:        whether its results equal fp32 direct convolution bit for bit.
    """

    name: str
    code: str
    base: str
    storage: str
    weight_bits: int
    carries_scale: bool
    rank: int
    exact: bool

    def __str__(self) -> str:
        return self.name


FP32 = Precision("fp32", "f", "fp32", "float32", 32, False, 3, True)
FP16 = Precision("fp16", "h", "fp16", "float16", 16, False, 2, False)
INT8 = Precision("int8", "q", "int8", "int8", 8, True, 1, False)
# Declared variants: other arithmetic over the same storage, with their own fixed order of operations.
FP32_WINOGRAD = Precision("fp32_winograd", "w", "fp32", "float32", 32, False, 3, False)
FP16_HALF = Precision("fp16_half", "H", "fp16", "float16", 16, False, 2, False)

PRECISIONS: dict[str, Precision] = {p.name: p for p in (FP32, FP16, INT8, FP32_WINOGRAD, FP16_HALF)}
BY_CODE: dict[str, Precision] = {p.code: p for p in PRECISIONS.values()}
BASE_NAMES: tuple[str, ...] = ("fp32", "fp16", "int8")


def precision(name: str) -> Precision:
    """Return the registry row called `name`. Raises PrecisionError for an unknown one."""
    try:
        return PRECISIONS[name]
    except KeyError:
        known = ", ".join(PRECISIONS)
        raise PrecisionError(f"unknown precision {name!r}; known are {known}") from None
