# SPDX-License-Identifier: MIT
"""A network as it would run, as `mpnet show --json` prints it; the order of the fields is the order of its keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping

from mpnet.engine.cost import LayerCost
from mpnet.model.keys import json_key


@dataclass(frozen=True)
class ShownLayer(LayerCost):
    """One layer. detail: its kernel, stride, activation and groups in a few characters.

    backend: that runs it, None where one runs all. source: nodes of the file that it was imported from, None: not asked for.
    """

    detail: str = ""
    backend: str | None = field(default=None, metadata=json_key(omit_default=True))
    source: tuple[str, ...] | None = field(default=None, metadata=json_key(omit_default=True))


@dataclass(frozen=True)
class Dialect:
    """The program whose rules a cfg follows, why it is taken for that one, and how batch norm is computed."""

    name: str
    why: str
    batch_norm: str


@dataclass(frozen=True, kw_only=True)
class ShownNetwork:
    """A network. digest: of its cfg. input: [h, w, c]. totals: of all layers, by name.

    per_tensor_layers: how many layers have weights in codes with one scale for all of them; coded_layers: in codes at all.
    """

    cfg: str
    digest: str
    dialect: Dialect
    input: tuple[int, ...]
    precision_key: str
    layers: tuple[ShownLayer, ...]
    totals: Mapping[str, float]
    coded_layers: int = 0
    per_tensor_layers: int = 0
    warnings: tuple[str, ...]
