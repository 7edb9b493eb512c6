# SPDX-License-Identifier: MIT
"""Tables of measured time per step, so that a workstation can sweep accuracy with a board's latency.

`mpnet profile` writes such a file and `sweep.latency` names it: milliseconds of every step, on one machine. A step's time
depends on what it does and on the shapes, not on what comes before it, so the time of a configuration is the sum of its
steps' as they run (fused), conversions included. The file says how far that sum is from whole configurations that were
measured as well.
"""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Iterable, Mapping

from mpnet.config.identity import digest_of
from mpnet.engine.covering import step_signature
from mpnet.engine.fuse import fuse_plan
from mpnet.engine.plan import Plan
from mpnet.errors import ConfigError
from mpnet.formats.documents.json_text import DocumentFormat
from mpnet.formats.documents.schema import Within
from mpnet.formats.documents.typed import as_json, build, kind_of
from mpnet.json_values import Json, JsonObject
from mpnet.kernels.core import constant
from mpnet.messages import shown
from mpnet.model.keys import json_key
from mpnet.model.network import NetworkSpec

BOUND_PERCENT = float(constant("MPB_PROFILE_PERCENT"))
"""The mean error of predictions above which a table misleads a sweep."""


_TIME = Within(0, 1e9)


@dataclass(frozen=True)
class CheckedConfiguration:
    """A whole configuration that was measured, and predicted as well. precision: its precision string."""

    precision: str
    measured_ms: Annotated[float, Within(1e-9, 1e9)]
    predicted_ms: Annotated[float, _TIME]


@dataclass(frozen=True)
class LatencyTable:
    """network: SHA-256 of the cfg. machine: CPU, ISA, threads. step_ms: by signature (see engine.covering)."""

    network: str
    precisions: tuple[str, ...]
    machine: JsonObject = field(default_factory=dict)
    step_ms: Mapping[str, Annotated[float, _TIME]] = field(metadata=json_key("steps"), kw_only=True)
    checks: tuple[CheckedConfiguration, ...] = ()

    @property
    def digest(self) -> str:
        """Return the SHA-256 (hex) of what decides predictions: the network and the steps' times."""
        return digest_of({"network": self.network, "steps": {step: float(ms) for step, ms in self.step_ms.items()}})

    @property
    def errors_percent(self) -> tuple[float, float]:
        """Return (mean, largest) absolute error of the predictions for the checked configurations."""
        errors = [abs(check.predicted_ms / check.measured_ms - 1) * 100 for check in self.checks]
        return (sum(errors) / len(errors), max(errors)) if errors else (math.nan, math.nan)

    @property
    def good(self) -> bool:
        """Return whether the predictions are near enough to choose by; a table without checks says nothing of itself."""
        return not self.errors_percent[0] > BOUND_PERCENT and not self.doubt

    @property
    def doubt(self) -> str:
        """Return why the table itself says that its times are not to be believed, such as a board that throttled, or ''."""
        return str(self.machine.get("doubt") or "")

    @property
    def text(self) -> str:
        """Return whose milliseconds these are, and how sure: for people."""
        machine, mean = self.machine, self.errors_percent[0]
        sure = "unchecked" if math.isnan(mean) else f"off by {mean:.1f} % on average"
        return f"a table of {machine.get('cpu')}, {machine.get('isa')}, {machine.get('threads')} threads ({sure})"

    def check(self, network: NetworkSpec, precisions: Iterable[str], error: float | None = None) -> None:
        """Raise ConfigError unless the table is of this network, holds all of these precisions and predicts well.

        error: the mean error in percent that is accepted; None: BOUND_PERCENT.
        """
        if self.network != network.digest:
            raise ConfigError(
                f"sweep.latency: the table is of another network (digest {self.network[:12]}, this one's is "
                f"{network.digest[:12]}); make one with `mpnet profile {shlex.quote(network.source)}`"
            )
        missing = [name for name in precisions if name not in self.precisions]
        if missing:
            raise ConfigError(
                f"sweep.latency: the table lacks {', '.join(missing)}; make it again with "
                f"`mpnet profile --precisions {','.join((*self.precisions, *missing))}`"
            )
        if self.doubt and error is None:
            raise ConfigError(
                f"sweep.latency: the table's times are not to be believed: {shown(self.doubt)}; make it again on a board that "
                "keeps its clock, or accept it with sweep.latency_error"
            )
        mean = self.errors_percent[0]
        if mean > (BOUND_PERCENT if error is None else error):
            raise ConfigError(
                f"sweep.latency: the table's predictions are off by {mean:.1f} % on average (at most {BOUND_PERCENT:g} % are "
                f"taken); make it again on a quiet machine, or accept it with sweep.latency_error: {math.ceil(mean)}"
            )

    def as_json(self) -> dict[str, Json]:
        """Return the document that the file holds."""
        mean, largest = self.errors_percent
        return {**TABLE.head, **as_json(self), "error_percent": {"mean": mean, "largest": largest}}


TABLE = DocumentFormat(
    "mpnet-latency",
    1,
    "latency table",
    "make one with `mpnet profile` and name it in sweep.latency",
    16 << 20,
    kind_of(LatencyTable).required,
    ConfigError,
    kind_of(LatencyTable).optional,
)


def read_table(path: Path) -> LatencyTable:
    """Read a table. Raises: ConfigError, one line, for a file that is none."""
    return build(LatencyTable, TABLE.read(path))


def predicted_ms(plan: Plan, step_ms: Mapping[str, float]) -> float:
    """Sum of the table's times over a plan's steps. Raises: ConfigError for a step that the table lacks."""
    total = 0.0
    for step in fuse_plan(plan).steps:
        signature = step_signature(plan, step)
        if signature not in step_ms:
            raise ConfigError(
                f"sweep.latency: the table has no time for {signature!r} (layer, step, precisions); make it again with "
                f"`mpnet profile` for this network and all precisions of the sweep"
            )
        total += step_ms[signature]
    return total
