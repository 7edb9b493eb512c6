# SPDX-License-Identifier: MIT
"""Records of a store's sweeps: one for each set of contexts, whichever strategies worked in it.

The notes `sweep`, `findings` and `status` are those of the last sweep; each set of contexts keeps its own under names
that end in its numbers, so that an older sweep stays readable after one with other options, holdout or baseline.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field, replace
from typing import Mapping, Sequence

from mpnet.errors import StoreError
from mpnet.formats.documents.typed import build
from mpnet.json_values import JsonObject
from mpnet.model.keys import json_key
from mpnet.sweep.result import SweepResult
from mpnet.sweep.store.notes import ContextDocument, SweepNote
from mpnet.sweep.store.trial_store import TrialStore

SWEEP, FINDINGS = "sweep", "findings"
_NAME = re.compile(rf"{SWEEP}/[0-9]{{1,9}}(,[0-9]{{1,9}})*")


@dataclass(frozen=True, kw_only=True)
class SweepSummary:
    """A sweep as lists show it. number: in its store. state: of its last end. options: texts of its option sets.

    trials: how many are finished. holdout: share of the images that only report. is_last: whether it worked in the store last.
    """

    number: int = field(metadata=json_key("sweep"))
    name: str | None
    state: str
    contexts: tuple[int, ...]
    strategy: str | None
    trials: int
    options: tuple[str, ...]
    holdout: float | None
    objectives: tuple[str, ...] | None
    created: str | None
    is_last: bool = field(metadata=json_key("last"))


@dataclass(frozen=True)
class Record:
    """One sweep. number: 1, 2, ... as its contexts were begun; what people name it by.

    sweep:    what was looked for and on what, as `setup.describe` notes it.
    findings: the result of its last end as it is stored, None: it never ended.
    is_last:  whether it is the one that worked in the store last.
    """

    number: int
    contexts: tuple[int, ...]
    sweep: SweepNote
    findings: JsonObject | None
    is_last: bool

    @property
    def result(self) -> SweepResult | None:
        """Return the findings as an object, with defaults for what older versions of mpnet did not write."""
        return None if self.findings is None else build(SweepResult, self.findings)

    def trials(self, store: TrialStore) -> int:
        """Count the finished trials."""
        return sum(store.count(context) for context in self.contexts)

    def summarize(self, store: TrialStore) -> SweepSummary:
        """Return the sweep as lists show it."""
        documents = store.contexts()
        options = [build(ContextDocument, documents[context]).options for context in self.contexts if context in documents]
        return SweepSummary(
            number=self.number,
            name=self.sweep.name,
            state=str((self.findings or {}).get("state", "interrupted")),
            contexts=self.contexts,
            strategy=self.sweep.strategy,
            trials=self.trials(store),
            options=tuple(text for text in options if text),
            holdout=self.sweep.holdout,
            objectives=self.sweep.objectives,
            created=self.sweep.created,
            is_last=self.is_last,
        )


def write_record(store: TrialStore, contexts: Sequence[int], name: str, document: JsonObject) -> None:
    """Note the sweep or its findings, as the last one's and as that of its contexts."""
    text = json.dumps(document)
    store.set_note(name, text)
    store.set_note(_note_name(name, contexts), text)


def read_records(store: TrialStore) -> list[Record]:
    """Return all sweeps of a store, in the order of their contexts."""
    last_sweep = store.read_note(SWEEP, SweepNote) or SweepNote()
    documents = store.contexts()
    sets = {last_sweep.contexts} - {()}
    sets |= {tuple(map(int, name.rpartition("/")[2].split(","))) for name in store.notes(SWEEP + "/") if _NAME.fullmatch(name)}
    covered = {number for contexts in sets for number in contexts}
    # Stores from before records, and sweeps that were stopped before they noted anything.
    sets |= {(number,) for number in documents if number not in covered}
    records = []
    for number, contexts in enumerate(sorted(sets), start=1):
        is_last = contexts == last_sweep.contexts
        own_sweep = store.read_note(_note_name(SWEEP, contexts), SweepNote)
        findings = store.document(_note_name(FINDINGS, contexts)) or (store.document(FINDINGS) if is_last else None)
        sweep = own_sweep or (last_sweep if is_last else _guess_sweep(last_sweep, contexts, documents))
        records.append(Record(number, contexts, sweep, findings or None, is_last))
    return records


def choose_record(
    store: TrialStore, number: int | None = None, key: str | None = None, records: Sequence[Record] | None = None
) -> Record | None:
    """Return the sweep of a number; else the last one, or one that has `key` if that has not; None for an empty store.

    records: of the store, None: to be read. Raises: StoreError for a number that there is none of.
    """
    records = read_records(store) if records is None else records
    if number is not None:
        for record in records:
            if record.number == number:
                return record
        raise StoreError(
            f"{store.path}: has no sweep {number}; `mpnet sweep --status {shlex.quote(str(store.path))}` lists "
            f"{', '.join(str(r.number) for r in records) or 'none'}"
        )
    records = sorted(records, key=lambda record: (not record.is_last, -record.number))
    if key is not None:
        for record in records:
            if any(store.find(context, [key]) for context in record.contexts):
                return record
    return records[0] if records else None


def _guess_sweep(last_sweep: SweepNote, contexts: tuple[int, ...], documents: Mapping[int, JsonObject]) -> SweepNote:
    """Return what is the same for all sweeps of a store, with what the contexts themselves say."""
    document = build(ContextDocument, documents.get(contexts[0]) or {})
    identity = document.identity_of()
    protocol, options = ({}, {}) if identity is None else (identity.protocol, identity.options)
    return replace(
        last_sweep,
        contexts=contexts,
        strategy=None,
        holdout=document.measures.holdout or 0.0,
        protocol={**(last_sweep.protocol or {}), **protocol, "quantization": options},
    )


def _note_name(name: str, contexts: Sequence[int]) -> str:
    return f"{name}/{','.join(map(str, contexts))}"
