# SPDX-License-Identifier: MIT
"""The progress of a sweep, as `mpnet sweep --status` prints it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from mpnet.json_values import JsonObject
from mpnet.model.keys import json_key
from mpnet.sweep.choose.findings import failures
from mpnet.sweep.choose.recommend import complete_findings, read_findings
from mpnet.sweep.result import FailedLayer, SweepResult
from mpnet.sweep.store import TrialStore
from mpnet.sweep.store.notes import StatusNote
from mpnet.sweep.store.owners import format_owner
from mpnet.sweep.store.records import SweepSummary, choose_record, read_records


@dataclass(frozen=True, kw_only=True)
class SweepStatus:
    """How far one sweep of a store is.

    state:    finished, stopped (by its budget), running, or interrupted.
    trials:   of this sweep; total: how many it asks for, None when that is not known. stored_trials: all that the store has for
              its options, whichever strategy tried them. ruled_out: what cannot be on this sweep's front.
    number:   of the sweep, None in an empty store. sweeps: all of the store.
    failed:   layers at which configurations failed. seconds: of work. workers, claims: who works on it, and on what.
    findings: of its last end as the store keeps them, None: it never ended.
    """

    store: str
    state: str
    name: str | None
    strategy: str | None
    trials: int
    stored_trials: int = field(metadata=json_key("known"))
    number: int | None = field(metadata=json_key("sweep"))
    ruled_out: int
    failed: tuple[FailedLayer, ...]
    sweeps: tuple[SweepSummary, ...]
    total: int | None
    seconds: float
    workers: tuple[str, ...]
    claims: tuple[str, ...]
    findings: JsonObject | None

    @property
    def result(self) -> SweepResult | None:
        """Return the findings as an object."""
        return None if self.findings is None else read_findings(self.findings)


def sweep_status(path: Path, number: int | None = None) -> SweepStatus:
    """Return how far a sweep is; reads only, also while the sweep runs.

    number: of a sweep of the store, None: the last one.
    Raises: StoreError for a file that is no store, or a number that there is none of.
    """
    with TrialStore.read(path) as store:
        records = read_records(store)
        record = choose_record(store, number, records=records)
        status = store.read_note("status", StatusNote) if record is None or record.is_last else None
        result = record.result if record else None
        if status is None:
            status = StatusNote() if result is None else StatusNote(state=result.state, total=result.trials)
        claims, state, trials = store.claims(), status.state or "interrupted", record.trials(store) if record else 0
        is_final = result is not None and state in ("finished", "stopped")
        if state == "running" and store.is_alive(status.owner) is False:
            state = "interrupted"
        if claims and (record is None or record.is_last):
            state, is_final = "running", False
        return SweepStatus(
            store=str(path),
            state=state,
            name=record.sweep.name if record else None,
            strategy=record.sweep.strategy if record else None,
            trials=result.trials if is_final and result is not None else trials,
            stored_trials=trials,
            number=record.number if record else None,
            ruled_out=store.count_ruled_out(record.contexts, record.sweep.front_name) if record else 0,
            failed=failures(store, record.contexts) if record else (),
            sweeps=tuple(each.summarize(store) for each in records),
            total=status.total,
            seconds=store.work().seconds,
            workers=tuple(sorted({format_owner(owner) for owner in claims.values()})),
            claims=tuple(claims),
            findings=complete_findings(record.findings) if record and record.findings else None,
        )
