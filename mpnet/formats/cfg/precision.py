# SPDX-License-Identifier: MIT
"""The precision keys of a section: which precision, whether conversions are wanted, how to quantise."""

from __future__ import annotations

from mpnet.errors import PrecisionError
from mpnet.formats.cfg.keys import PRECISION_KEYS, QUANTIZATION_KEYS
from mpnet.formats.cfg.tokens import CfgSection
from mpnet.model.layers import PrecisionKeys
from mpnet.model.precision import BASE_NAMES, PRECISIONS
from mpnet.model.quantization import QuantizationOptions


def precision_keys(section: CfgSection) -> PrecisionKeys | None:
    """Return the section's precision keys, or None when it has none.

    Raises: PrecisionError at the line when a key is given twice or when not exactly one of the given precisions is 1.
    """
    for key, entry in section.repeated:
        if key in PRECISION_KEYS or key in QUANTIZATION_KEYS:
            first = section.entries[key].line
            raise PrecisionError(f"{section.source}:{entry.line}: {key} is already given in line {first}; keep one")
    given = [key for key in PRECISIONS if key in section.entries]
    chosen = [key for key in given if section.flag(key, False)]
    line = section.entries[(chosen or given)[-1]].line if given else section.line
    if given and len(chosen) != 1:
        problem = f"{' and '.join(chosen)} are 1" if chosen else f"{', '.join(given)}: none is 1"
        raise PrecisionError(
            f"{section.source}:{line}: {problem} in [{section.name}]; exactly one of {', '.join(BASE_NAMES)} must be 1, "
            "or none of them given"
        )
    quantize = section.flag("quantize", True) if "quantize" in section.entries else None
    options = any(key in section.entries for key in QUANTIZATION_KEYS)
    reals = section.reals("quantize_range", -3e38, 3e38)
    if reals and (len(reals) != 2 or reals[0] > reals[1]):
        section.fail("quantize_range is minimum,maximum of the section's result, such as -1.5,6", "quantize_range")
    stated = (reals[0], reals[1]) if reals else None
    if not given and quantize is None and not options and stated is None:
        return None
    quantize_line = section.entries["quantize"].line if quantize is not None else 0
    precision = PRECISIONS[chosen[0]] if chosen else None
    quantization = QuantizationOptions(**section.fields_of(QuantizationOptions))
    return PrecisionKeys(precision, line, quantize, quantize_line, quantization, stated)
