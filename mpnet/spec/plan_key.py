"""The canonical text of a precision plan: short, exact, the same for equal plans.

One character per layer with weights, in layer order, by the registry's code: `fqqqqqqqhqh`. Layers without weights that
have a precision of their own follow after a `+`, as `index:code`, joined by commas: `fqqqqqqqhqh+3:q,7:h`.
"""

from __future__ import annotations

from typing import Mapping, Sequence

from mpnet.errors import PrecisionError
from mpnet.spec.network import NetworkSpec, YoloSpec
from mpnet.spec.precision import BY_CODE, Precision


def format_key(weighted: Sequence[Precision], own: Mapping[int, Precision]) -> str:
    """weighted: precisions of the layers with weights, in order; own: of layers without weights that have keys."""
    key = "".join(precision.code for precision in weighted)
    rest = ",".join(f"{index}:{own[index].code}" for index in sorted(own))
    return f"{key}+{rest}" if rest else key


def split_key(key: str) -> tuple[str, str]:
    """The codes of the layers with weights, and what follows them: '' or such as `+3:q,7:h`."""
    codes, plus, rest = key.partition("+")
    return codes, plus + rest


def parse_key(network: NetworkSpec, key: str) -> dict[int, Precision]:
    """Layer index -> precision, for every layer that the key names.

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
