# SPDX-License-Identifier: MIT
"""One sweep of a store as columns of its finished trials, read only: also while it runs, and after it was interrupted."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.config.measures import measure, names_of
from mpnet.errors import StoreError
from mpnet.formats.documents.typed import build
from mpnet.json_values import JsonObject
from mpnet.model.plan_key import split_key
from mpnet.resolve.configurations import Configurations, axes, front_knee, front_rows
from mpnet.sweep.choose.findings import failures
from mpnet.sweep.choose.picks import PICK_RULES
from mpnet.sweep.choose.recommend import RECOMMENDED, read_findings
from mpnet.sweep.result import FailedLayer, SweepResult, VerifiedRow
from mpnet.sweep.store import Trial, TrialStore
from mpnet.sweep.store.notes import ContextDocument, SweepNote
from mpnet.sweep.store.records import Record, choose_record
from mpnet.sweep.store.schema import damage_error
from mpnet.trial.run_result import Provenance

CHOSEN = "chosen"
"""The name of what sweeps chose before they recommended; its rule is in docs/sweeps.md."""


@dataclass(frozen=True)
class StoredSweep:
    """The finished trials of one sweep under one set of quantisation options.

    configurations: one row a trial; `chosen` is the row that was asked for, else what the sweep recommends.
    why_chosen: a sentence where nobody chose that row, else ''.
    sweep, result: the sweep's own record, and what it found, None before it ended.
    options: the text of the option set. other_options: how many further sets the sweep tried.
    failed: why configurations under these options have no figures, as `findings.failures`.
    verified: rows of the findings that were checked in another engine under these options.
    created: seconds since 1970 as the store notes them. provenance: what was measured on what.
    holdout: share of the images that only report. seed: that chose them.
    """

    configurations: Configurations
    why_chosen: str
    sweep: SweepNote
    result: SweepResult | None
    options: str
    other_options: int
    failed: Sequence[FailedLayer]
    verified: Sequence[VerifiedRow]
    created: str | None
    provenance: Provenance
    holdout: float = 0.0
    seed: int = 0


def read_sweep(path: Path, choose: str | None = None, number: int | None = None, *, finished: bool = True) -> StoredSweep:
    """Read one sweep of a store.

    choose: a precision string, followed by `@2` where it means that of the sweep's second option set; None: what it recommends.
    number: of a sweep, as `mpnet sweep --status` lists them; None: the last one that has `choose`.
    finished: whether its front can change no more, so that the one it found is taken.
    Raises: StoreError for a file that is no store, a store without trials, or a configuration that is not in it.
    """
    key, option_set = split_option_set(choose)
    with TrialStore.read(path) as store:
        record = choose_record(store, number, key)
        result = read_findings(record.findings) if record and record.findings else None
        context, other_options = _select_context(path, store, record, result, key, option_set)
        trials = _read_trials(path, store, context)
        if key is not None and key not in {trial.key for trial in trials}:
            raise _unknown_configuration(path, store, record, key, trials[0].key)
        document = build(ContextDocument, store.contexts()[context])
        options = document.options
        sweep = record.sweep if record else SweepNote()
        verified = [row for row in (result.verified.rows if result and result.verified else ()) if row.context == context]
        stored_front = _stored_front(trials, result, options) if finished else None
        table = _tabulate(trials, sweep, result, verified, stored_front)
        chosen, why_chosen = _chosen(table, result, key)
        return StoredSweep(
            replace(table, chosen=chosen),
            why_chosen,
            sweep,
            result,
            options,
            other_options,
            failures(store, [context]),
            verified,
            store.note("created"),
            _provenance(path, sweep, document, _digests(store, document, context, table.keys[chosen])),
            sweep.holdout or 0.0,
            document.measures.seed or 0,
        )


def _select_context(
    path: Path, store: TrialStore, record: Record | None, result: SweepResult | None, key: str | None, option_set: int | None
) -> tuple[int, int]:
    """Return the context of a configuration, None: of what the sweep chose; and how many other option sets there are."""
    context, other_options = _context(record, result, store.contexts())
    if key is not None and record is not None:
        context = next((n for n in _context_of_set(path, record, option_set) if store.find(n, [key])), context)
    if context is None:
        raise _empty_store(path)
    return context, other_options


def _read_trials(path: Path, store: TrialStore, context: int) -> list[Trial]:
    trials = list(store.trials(context))
    if not trials:
        raise _empty_store(path)
    if len({len(split_key(trial.key)[0]) for trial in trials}) > 1:
        raise damage_error(path, "its configurations have different numbers of layers")
    return trials


def _empty_store(path: Path) -> StoreError:
    return StoreError(f"{path}: holds no finished trial yet; wait for the sweep, or start it again")


def _unknown_configuration(path: Path, store: TrialStore, record: Record | None, key: str, example: str) -> StoreError:
    """Return the error of a configuration that has no trial: that it failed, or a name that may be meant."""
    for context in record.contexts if record else ():
        for failure in store.find_failed(context, [key]):
            return StoreError(f"{path}: configuration {key} failed: {failure.reason}; choose another one")
    suggestions = get_close_matches(key, (RECOMMENDED, *PICK_RULES, "baseline", CHOSEN), n=1)
    command = f"mpnet sweep --status {shlex.quote(str(path))}"
    remedy = f"did you mean {suggestions[0]!r}?" if suggestions else f"`{command}` lists its sweeps"
    return StoreError(f"{path}: configuration {key[:80]!r} is not in the store, which has {example} and others; {remedy}")


def _tabulate(
    trials: Sequence[Trial],
    sweep: SweepNote,
    result: SweepResult | None,
    verified: Sequence[VerifiedRow],
    stored_front: NDArray[np.bool_] | None,
) -> Configurations:
    """Return the trials as columns. stored_front: the rows of the front that the sweep found, None: it is computed.

    Where the space does not have the baseline, such as fp32 of fp16 and int8, its highest configuration stands for it.
    """
    keys = tuple(trial.key for trial in trials)
    columns = {**_columns(trials), **_verified_columns(verified, keys)}
    objective, cost = axes(columns, sweep.objectives or ())
    front = front_rows(columns, objective, cost) if stored_front is None else stored_front
    baseline = _position(keys, sweep.baseline)
    if baseline is None and result is not None and result.baseline is not None:
        baseline = _position(keys, result.baseline.precision)
    return Configurations(keys, columns, front, objective, cost, baseline)


def _provenance(path: Path, sweep: SweepNote, context: ContextDocument, digests: Mapping[str, str]) -> Provenance:
    identity, protocol = context.identity_of(), sweep.protocol or {}
    return Provenance(
        sweep.name or path.stem,
        # of this set of quantisation options
        protocol if identity is None else {**protocol, "quantization": identity.options},
        {**(sweep.sources or {}), **(sweep.tuned.get(identity.weights, {}) if identity else {})},
        digests,
        sweep.calibration,
    )


def _stored_front(trials: Sequence[Trial], result: SweepResult | None, options: str) -> NDArray[np.bool_] | None:
    """Return the rows of the front that the sweep found, which terminal and JSON show; None where it found none of these."""
    members = {row.precision for row in (result.front if result else ()) if row.options == options}
    front = np.fromiter((trial.key in members for trial in trials), dtype=bool, count=len(trials))
    return front if front.any() else None


def _context(record: Record | None, result: SweepResult | None, contexts: Mapping[int, JsonObject]) -> tuple[int | None, int]:
    """Return the option set to show (that of the sweep's choice, else its first), and how many others there are."""
    numbers = [number for number in record.contexts if number in contexts] if record else list(contexts)
    if not numbers:
        return None, 0
    best = None if result is None else result.recommended or result.best
    with_same_options = [n for n in numbers if best and build(ContextDocument, contexts[n]).options == best.options]
    return (with_same_options or numbers)[0], len(numbers) - 1


def _columns(trials: Sequence[Trial]) -> dict[str, NDArray[np.float64]]:
    quantities = [measure(name) for name in sorted({name for trial in trials for name in trial.values})]
    return {
        quantity.name: quantity.measured(np.array([trial.get(quantity.name) for trial in trials], dtype=np.float64))
        for quantity in quantities
        if quantity.kind != "count"
    }


def _verified_columns(rows: Sequence[VerifiedRow], keys: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    measures = {row.precision: row.measures for row in rows}
    columns = {}
    for name in names_of("deployed"):
        values = [measures.get(key, {}).get(name) for key in keys]
        if any(value is not None for value in values):
            columns[name] = measure(name).measured(np.array([np.nan if v is None else v for v in values], dtype=np.float64))
    return columns


def split_option_set(name: str | None) -> tuple[str | None, int | None]:
    """Split `fqq@2` into the precision string and the number of an option set; None where the name has none."""
    match = re.fullmatch(r"(.*)@([0-9]{1,6})", name or "", re.DOTALL)
    return (match[1], int(match[2])) if match else (name, None)


def name_assignment(path: Path, number: int | None, key: str, options: str) -> str:
    """Return a name for a precision string under one option set of a sweep: `fqq`, or `fqq@2` where there are several sets."""
    if not options:  # nothing varies: there is one set
        return key
    with TrialStore.read(path) as store:
        record, contexts = choose_record(store, number, key), store.contexts()
        texts = [str(contexts[n].get("options") or "") for n in (record.contexts if record else ()) if n in contexts]
    return f"{key}@{1 + texts.index(options)}" if len(texts) > 1 and options in texts else key


def _context_of_set(path: Path, record: Record, option_set: int | None) -> Sequence[int]:
    """Return the contexts of a sweep that a name may mean: all, or that of the set with this number."""
    if option_set is None:
        return record.contexts
    if not 1 <= option_set <= len(record.contexts):
        raise StoreError(f"{path}: has no option set @{option_set}; this sweep has @1 to @{len(record.contexts)}")
    return record.contexts[option_set - 1 : option_set]


def chosen_key(path: Path, number: int | None) -> str:
    """Return the name of `chosen` of a sweep that has ended: its best one, or in place of the baseline the knee.

    Raises: StoreError as `read_sweep`.
    """
    stored = read_sweep(path, None, number)
    best = None if stored.result is None else stored.result.best
    if best is not None and not best.is_baseline:
        return name_assignment(path, number, best.precision, best.options)
    table = stored.configurations
    key = table.keys[_chosen(table, stored.result and replace(stored.result, recommended=None), None)[0]]
    return name_assignment(path, number, key, stored.options)


def _chosen(table: Configurations, result: SweepResult | None, choose: str | None) -> tuple[int, str]:
    """Return the row that was asked for, else what the sweep recommends, and a sentence that says why where it is neither."""
    if choose is not None:
        return table.keys.index(choose), ""
    recommended = _position(table.keys, result.recommended.precision if result and result.recommended else None)
    if recommended is not None:
        return recommended, ""
    best = _position(table.keys, result.best.precision if result and result.best else None)
    if best is not None and best != table.baseline:
        return best, ""
    rows = np.flatnonzero(table.front)
    if not len(rows):
        return best if best is not None else 0, ""
    why = "The sweep set no limit to accuracy" if result else "The sweep has not ended"
    return front_knee(table.columns, rows, table.objective, table.cost), (
        f"{why}, so the configuration shown as chosen is the knee of the front: the one farthest above the straight "
        "line between its ends. Choose another one with a click, or with --choose."
    )


def _position(keys: Sequence[str], key: str | None) -> int | None:
    return keys.index(key) if key in keys else None


def _digests(store: TrialStore, context: ContextDocument, number: int, key: str) -> dict[str, str]:
    subject = store.subject
    identity = context.identity_of()
    return {
        "cfg": subject.network,
        "weights": (identity.weights if identity else "") or subject.weights,
        "data": subject.data,
        "protocol": subject.protocol,
        **({"arithmetic": identity.arithmetic} if identity else {}),
        **({"calibration": identity.calibration} if identity and identity.calibration else {}),
        **({"lessons": identity.statistics} if identity and identity.statistics else {}),
        "chosen trial": store.trial_digest(number, key),
    }
