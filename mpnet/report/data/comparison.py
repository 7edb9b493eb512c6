# SPDX-License-Identifier: MIT
"""Runs beside each other, as `mpnet compare --json` prints them and notebooks show them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from mpnet.report.data.differences import RunDifferences
from mpnet.tables import Chart, Table, Tabular, columns_of


@dataclass(frozen=True)
class Comparison(Tabular):
    """Runs compared with the first.

    document: what --json prints. pairs: one per run but the baseline, empty when images or detections are gone.
    """

    document: dict[str, Any]
    pairs: tuple[RunDifferences, ...]

    @property
    def table(self) -> Table:
        """One row a run and measure; low, high: ends of the difference's 95 % interval, NaN where they are unknown."""
        baseline, *runs = self.document["runs"]
        rows = []
        for run in runs:
            for name, change in run["differences"].items():
                interval = run["intervals"].get(name, {})
                rows.append(
                    {
                        "run": run["name"],
                        "measure": name,
                        "baseline": baseline["metrics"].get(name),
                        "value": run["metrics"].get(name),
                        "difference": change,
                        "low": interval.get("low", math.nan),
                        "high": interval.get("high", math.nan),
                    }
                )
        return Table(
            columns_of(rows), f"Differences from {baseline['name']}", Chart("difference", "measure", low="low", high="high")
        )
