# SPDX-License-Identifier: MIT
"""The support table asks every target of every operation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mpnet.export import targets
from mpnet.export.table import support_table
from mpnet.model.layers import LAYER_KINDS
from mpnet.model.precision import PRECISIONS


def test_every_kind_of_layer_is_asked_of_every_target() -> None:
    requested: set[tuple[str, str]] = set()

    def support(layer: Any, precision: Any, quantization: Any, flavour: str) -> str:
        requested.add((layer.kind, flavour))
        return "codes are not for it" if precision.carries_scale else ""

    two_targets = {"cfg": targets()["cfg"], "other": replace(targets()["cfg"], support=support, flavours={"a": 0, "b": 0})}
    rows = support_table(two_targets)
    assert requested == {(kind.kind, flavour) for kind in LAYER_KINDS for flavour in "ab"}
    assert {name for row in rows for name in row.reasons} == {"cfg", "other/a", "other/b"}
    refused = {row.precision for row in rows if row.reasons["other/a"]}
    assert refused == {row.name for row in PRECISIONS.values() if row.carries_scale}
    assert not any(row.reasons["cfg"] for row in rows)
