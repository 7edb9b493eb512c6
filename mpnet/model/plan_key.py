# SPDX-License-Identifier: MIT
"""The canonical text of a precision plan: short, exact, the same for equal plans.

One character per layer with weights, in layer order, by the registry's code: `fqqqqqqqhqh`. Layers without weights that
have a precision of their own follow after a `+`, as `index:code`, joined by commas: `fqqqqqqqhqh+3:q,7:h`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from itertools import groupby
from typing import Iterable, Mapping, Sequence

from mpnet.errors import PrecisionError
from mpnet.model.network import NetworkSpec, YoloSpec
from mpnet.model.precision import BY_CODE, Precision

SHORT = 24
"""Characters that a key takes in a table at most."""


def format_key(weighted: Sequence[Precision], keyed: Mapping[int, Precision]) -> str:
    """Format a key.

    weighted: precisions of the layers with weights, in order; keyed: of layers without weights that have keys.
    """
    key = "".join(precision.code for precision in weighted)
    rest = ",".join(f"{index}:{keyed[index].code}" for index in sorted(keyed))
    return f"{key}+{rest}" if rest else key


def split_key(key: str) -> tuple[str, str]:
    """Return the codes of the layers with weights, and what follows them: '' or such as `+3:q,7:h`."""
    codes, plus, keyed = key.partition("+")
    return codes, plus + keyed


def short_key(key: str, longest: int = SHORT) -> str:
    """Shorten a key for people to about `longest` characters.

    A longer key is shown as runs, `h q*70 h*4`; else as how many layers have each precision and the first digits of its digest,
    so that keys that count alike stay apart: `q*70 h*14 #3f2a1c`.

    What layers without weights have is shortened in the same way, to their number: `+12 more`. No two ways look alike,
    and only a key as it is can be read back.
    """
    if len(key) <= longest:
        return key
    codes, rest = split_key(key)
    keyed = rest if len(rest) <= longest // 3 else f" +{rest.count(',') + 1} more"
    for shown in (codes, _counted((code, len(list(same))) for code, same in groupby(codes))):
        if len(shown + keyed) <= longest and keyed in ("", rest):
            return shown + keyed
    counts = _counted(Counter(codes).most_common())
    return f"{counts}{keyed} #{hashlib.sha256(key.encode()).hexdigest()[:6]}"


def _counted(pairs: Iterable[tuple[str, int]]) -> str:
    return " ".join(code if count == 1 else f"{code}*{count}" for code, count in pairs)


def parse_key(network: NetworkSpec, key: str) -> dict[int, Precision]:
    """Return layer index -> precision, for every layer that the key names.

    Raises: PrecisionError if the key does not fit this network.
    """
    codes, rest = split_key(key)
    convolutions = network.convolutions
    if len(codes) != len(convolutions):
        raise PrecisionError(
            f"precision key {key[:80]!r} names {len(codes)} layers with weights, not the {len(convolutions)} of "
            f"{network.source}"
        )
    chosen = {layer.index: _precision(code, key) for layer, code in zip(convolutions, codes, strict=True)}
    for part in rest[1:].split(",") if rest else []:
        number, colon, code = part.partition(":")
        index = int(number) if number.isascii() and number.isdigit() and len(number) < 7 else -1
        if not colon or not 0 <= index < len(network.layers) or index in chosen:
            raise PrecisionError(f"precision key {key[:80]!r}: {part[:20]!r} names no layer without weights")
        if isinstance(network.layers[index], YoloSpec):
            raise PrecisionError(f"precision key {key[:80]!r}: layer {index} is a [yolo], which is always fp32")
        chosen[index] = _precision(code, key)
    return chosen


def _precision(code: str, key: str) -> Precision:
    if code not in BY_CODE:
        known = ", ".join(f"{p.code} ({p.name})" for p in BY_CODE.values())
        raise PrecisionError(f"precision key {key[:80]!r}: unknown code {code!r}; known are {known}")
    return BY_CODE[code]
