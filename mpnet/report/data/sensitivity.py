# SPDX-License-Identifier: MIT
"""The effect of each layer's precision on accuracy, both ways, read from configurations that were measured."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Mapping

from mpnet.model.plan_key import split_key
from mpnet.model.precision import BY_CODE
from mpnet.report.data.report_data import Layer
from mpnet.resolve.configurations import Configurations


@dataclass(frozen=True)
class Sensitivity:
    """One layer and one lower precision, for one measure, in the measure's unit.

    alone: change against the baseline when only this layer is lowered. kept_high: change against 'everything at the
    lower precision' when only this layer is kept high. Where the baseline's value is infinite (a ratio without noise)
    both are values, not changes. NaN where that configuration was not measured.
    """

    layer: Layer
    precision: str
    code: str
    alone: float
    kept_high: float


def by_layer(configurations: Configurations, layers: tuple[Layer, ...], measure: str) -> tuple[Sensitivity, ...]:
    """Return both sensitivities of every layer for every precision below the baseline's that occurs, in layer order."""
    baseline = configurations.baseline
    if baseline is None or measure not in configurations.columns:
        return ()
    rows: Mapping[str, int] = {key: row for row, key in enumerate(configurations.keys)}
    baseline_key = configurations.keys[baseline]
    weighted, rest_of_key = split_key(baseline_key)
    sensitivities = []
    for layer in layers:
        position = layer.position
        if position is None or position >= len(baseline_key):
            continue
        codes = sorted(
            {key[position] for key in rows if len(key) > position} - {baseline_key[position]},
            key=lambda code: -BY_CODE[code].rank if code in BY_CODE else 0,
        )
        for code in codes:
            row_alone = rows.get(baseline_key[:position] + code + baseline_key[position + 1 :])
            lowered_key = code * len(weighted) + rest_of_key
            row_kept = rows.get(lowered_key[:position] + baseline_key[position] + lowered_key[position + 1 :])
            start = configurations.value(baseline, measure)
            floor = configurations.value(rows.get(lowered_key), measure)
            if math.isinf(start):
                start = floor = 0.0
            change_alone = configurations.value(row_alone, measure) - start
            change_kept = configurations.value(row_kept, measure) - floor
            if not (math.isnan(change_alone) and math.isnan(change_kept)):
                name = BY_CODE[code].name if code in BY_CODE else code
                sensitivities.append(Sensitivity(layer, name, code, change_alone, change_kept))
    return tuple(sensitivities)
