"""The file that `mpnet profile` writes and `sweep.latency` names: milliseconds of every step, on one machine."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterable, Mapping

from mpnet.errors import ConfigError
from mpnet.spec.identity import digest_of
from mpnet.spec.network import NetworkSpec

FORMAT = "mpnet-latency"
VERSION = 1
MAX_TABLE_BYTES = 16 << 20


@dataclass(frozen=True)
class LatencyTable:
    """network: SHA-256 of the cfg. step_ms: by signature (see latency.step_signature). machine: CPU, ISA, threads.

    checks: whole configurations that were measured and predicted as well: precision, measured_ms, predicted_ms.
    """

    network: str
    precisions: tuple[str, ...]
    step_ms: Mapping[str, float]
    machine: Mapping[str, Any]
    checks: tuple[Mapping[str, Any], ...]

    @property
    def digest(self) -> str:
        """What of it decides predictions."""
        return digest_of({"network": self.network, "steps": dict(self.step_ms)})

    @property
    def errors_percent(self) -> tuple[float, float]:
        """(mean, largest) absolute error of the predictions for the checked configurations."""
        errors = [abs(c["predicted_ms"] / c["measured_ms"] - 1) * 100 for c in self.checks]
        return (sum(errors) / len(errors), max(errors)) if errors else (math.nan, math.nan)

    def check(self, network: NetworkSpec, precisions: Iterable[str]) -> None:
        """Raise ConfigError unless the table is of this network and holds all of these precisions."""
        if self.network != network.digest:
            raise ConfigError(
                f"sweep.latency: the table is of another network (digest {self.network[:12]}, this one's is "
                f"{network.digest[:12]}); make one with `mpnet profile {network.source}`"
            )
        missing = [name for name in precisions if name not in self.precisions]
        if missing:
            raise ConfigError(f"sweep.latency: the table lacks {', '.join(missing)}; make it again with "
                              f"`mpnet profile --precisions {','.join((*self.precisions, *missing))}`")

    def as_json(self) -> dict[str, Any]:
        """The file's document."""
        mean, largest = self.errors_percent
        return {
            "format": FORMAT, "version": VERSION, "network": self.network, "precisions": list(self.precisions),
            "machine": dict(self.machine), "steps": dict(self.step_ms), "checks": [dict(c) for c in self.checks],
            "error_percent": {"mean": mean, "largest": largest},
        }


def read_table(path: Path) -> LatencyTable:
    """Read a table. Raises: ConfigError, one line, for a file that is none."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_TABLE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error}); check sweep.latency") from None
    if len(data) > MAX_TABLE_BYTES:
        raise ConfigError(f"{path}: is larger than {MAX_TABLE_BYTES >> 20} MiB; this is no latency table")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or document.get("format") != FORMAT or document.get("version") != VERSION:
        raise ConfigError(f"{path}: is no latency table of version {VERSION}; make one with `mpnet profile`")
    network, precisions, steps = (document.get(name) for name in ("network", "precisions", "steps"))
    checks, machine = document.get("checks", []), document.get("machine", {})
    fits = (
        isinstance(network, str) and isinstance(precisions, list) and all(isinstance(p, str) for p in precisions)
        and isinstance(steps, dict) and all(_is_time(value) for value in steps.values())
        and isinstance(machine, dict) and isinstance(checks, list)
        and all(isinstance(c, dict) and _is_time(c.get("measured_ms"), low=1e-9) and _is_time(c.get("predicted_ms"))
                for c in checks)
    )
    if not fits:
        raise ConfigError(f"{path}: a damaged latency table; make it again with `mpnet profile`")
    assert isinstance(network, str)
    assert isinstance(precisions, list)
    assert isinstance(steps, dict)
    return LatencyTable(network, tuple(precisions), {k: float(v) for k, v in steps.items()}, machine, tuple(checks))


def _is_time(value: Any, low: float = 0.0) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value < 1e9
