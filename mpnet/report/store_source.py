"""A sweep's store to ReportData, read only: also while the sweep runs, and after it was interrupted."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.config.measures import measure, names_of
from mpnet.errors import StoreError
from mpnet.evaluation.compare import Interval
from mpnet.model.plan_key import split_key
from mpnet.model.task import TASKS
from mpnet.report.model import Configurations, Layer, Pick, ReportData, Status, images_text
from mpnet.report.source import axes, front_rows, thinned
from mpnet.sweep.front import knee
from mpnet.sweep.picks import PICK_RULES
from mpnet.sweep.record import Record, choose_record
from mpnet.sweep.store import TrialStore
from mpnet.sweep.store_schema import damaged


def from_store(
    path: Path, status: Status, choose: str | None = None, number: int | None = None
) -> tuple[ReportData, dict[str, Any]]:
    """What a store holds, and a document like a result's that says what it was measured on.

    status: as `mpnet sweep --status` finds it. choose: a precision string; None: the sweep's own choice.
    number: of a sweep of the store, as `--status` lists them; None: the last one that has `choose`.
    Raises: StoreError for a file that is no store, a store without trials, or a configuration that is not in it.
    """
    with TrialStore.read(path) as store:
        record = choose_record(store, number, choose)
        sweep: Mapping[str, Any] = record.sweep if record else {}
        findings = record.findings if record else None
        created = store.note("created")
        contexts = store.contexts()
        context, others = _context(record, contexts)
        if choose is not None and record is not None:
            context = next((n for n in record.contexts if store.find(n, [choose])), context)
        trials = list(store.trials(context)) if context is not None else []
        if not trials or context is None:
            raise StoreError(f"{path}: holds no finished trial yet; wait for the sweep, or start it again")
        keys = [trial.key for trial in trials]
        if len({len(split_key(key)[0]) for key in keys}) > 1:
            raise damaged(path, "its configurations have different numbers of layers")
        columns = _columns(trials)
        options = str(contexts[context].get("options") or "")
        verified = (findings or {}).get("verified")
        checked = _checked(verified, context)
        columns.update(_verified_columns(checked, keys))
        objective, cost = axes(columns, sweep.get("objectives") or ())
        baseline = _row(keys, sweep.get("baseline"))
        front = _front(keys, findings, options, status) if findings else None
        if front is None:
            front = front_rows(columns, objective, cost)
        if choose is not None and choose not in keys:
            raise StoreError(
                f"{path}: configuration {choose[:80]!r} is not in the store; it has {keys[0]} and others; "
                f"`mpnet sweep --status {path}` lists its sweeps"
            )
        chosen, note = _chosen(keys, columns, front, baseline, findings, choose, objective, cost)
        digests = _digests(store, contexts[context], context, keys[chosen])
    picks = (findings or {}).get("picks") or {}
    table = thinned(
        Configurations(tuple(keys), columns, front, objective, cost, baseline, chosen),
        wanted=[str(pick.get("precision")) for pick in picks.values()],
    )
    notes = [note] if note else []
    whole = (findings or {}).get("front") or ()
    foreign = sum(entry.get("options", "") != options for entry in whole)
    if foreign:
        notes.append(
            f"The sweep's front has {len(whole)} configurations; {foreign} of them have other quantisation options "
            "than this page shows."
        )
    notes += _survival(verified, checked)
    if others:
        notes.append(f"The sweep tried {others} more set(s) of quantisation options; this page shows one of them.")
    if baseline is None:
        notes.append("The baseline is not among the finished trials, so there is nothing to compare with yet.")
    protocol = dict(sweep.get("protocol") or {})
    held_out = max(0, sweep.get("images", 0) - sweep.get("selecting", 0)) if sweep.get("holdout") else 0
    if sweep.get("holdout"):
        protocol["selected on"] = f"{sweep.get('selecting')} of {sweep.get('images')} images; the rest only reports"
    data = ReportData(
        title=str(sweep.get("name") or path.stem),
        kind="sweep",
        source=str(path),
        created=_date(created),
        status=status,
        layers=_unnamed(keys[0]),
        configurations=table,
        protocol=protocol,
        digests=digests,
        held_out=held_out,
        notes=tuple(notes),
        objectives=tuple(sweep.get("objectives") or ()),
        picks=_picks(picks, table, options),
        board=_board(sweep.get("latency") or {}),
        versions={"strategy": sweep.get("strategy", ""), "command": sweep.get("command", "")},
    )
    measured = dict(sweep.get("protocol") or {})
    identity = contexts[context].get("identity") or {}
    if "options" in identity:  # of this set of quantisation options
        measured["quantization"] = identity["options"]
    document = {
        "name": data.title,
        "protocol": measured,
        "sources": sweep.get("sources") or {},
        "digests": digests,
        "holdout": sweep.get("holdout", 0.0),
        "calibration": sweep.get("calibration"),
        "seed": (contexts[context].get("measures") or {}).get("seed"),
    }
    return data, document


def _front(keys: Sequence[str], findings: Mapping[str, Any], options: str, status: Status) -> NDArray[np.bool_] | None:
    """The rows of the front that the sweep found, which terminal and JSON show; None while that may still change."""
    found = {row["precision"] for row in findings.get("front") or () if row.get("options", "") == options}
    front = np.fromiter((key in found for key in keys), dtype=bool, count=len(keys))
    return front if front.any() and status.state == "finished" else None


def _picks(picks: Mapping[str, Any], table: Configurations, options: str) -> tuple[Pick, ...]:
    """What the sweep's findings offer, held-out images first."""
    rows = {key: row for row, key in enumerate(table.keys)}
    found = []
    for name, rule in PICK_RULES.items():
        entry = picks.get(name)
        if entry is None:
            continue
        losses = {}
        for kind in ("held_out", "all", "selecting"):
            loss = (entry.get("losses") or {}).get(kind)
            of = next((loss[task.quality] for task in TASKS.values() if task.quality in loss), None) if loss else None
            if loss and of:
                losses[images_text(kind, int(loss["pictures"]))] = Interval(of["difference"], of["low"], of["high"])
        said = str(entry.get("options") or "")
        found.append(
            Pick(
                name,
                rule,
                str(entry["precision"]),
                rows.get(entry["precision"]) if said == options else None,
                losses,
                dict(entry.get("saves") or {}),
                said,
            )
        )
    return tuple(found)


def _board(machine: Mapping[str, Any]) -> str:
    threads = machine.get("threads")
    return f"{machine['cpu']}, {threads} thread{'' if threads == 1 else 's'}" if machine.get("cpu") else ""


def _context(record: Record | None, contexts: Mapping[int, Mapping[str, Any]]) -> tuple[int | None, int]:
    """The option set to show (that of the sweep's choice, else its first), and how many others there are."""
    known = [number for number in record.contexts if number in contexts] if record else list(contexts)
    if not known:
        return None, 0
    best = ((record.findings if record else None) or {}).get("best") or {}
    same = [number for number in known if best and contexts[number].get("options") == best.get("options")]
    return (same or known)[0], len(known) - 1


def _columns(trials: Sequence[Any]) -> dict[str, NDArray[np.float64]]:
    rows = [measure(name) for name in sorted({name for trial in trials for name in trial.values})]
    return {
        row.name: row.measured(np.array([trial.get(row.name) for trial in trials], dtype=np.float64))
        for row in rows
        if row.kind != "count"
    }


def _checked(verified: Mapping[str, Any] | None, number: int) -> list[Mapping[str, Any]]:
    """What was checked in another engine, of one set of options."""
    return [row for row in (verified or {}).get("rows", []) if row.get("context") == number]


def _verified_columns(checked: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    rows = {row["precision"]: row for row in checked}
    found = {}
    for name in names_of("deployed"):
        values = [(rows.get(key) or {}).get(name) for key in keys]
        if any(value is not None for value in values):
            found[name] = measure(name).measured(np.array([np.nan if v is None else v for v in values], dtype=np.float64))
    return found


def _survival(verified: Mapping[str, Any] | None, checked: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sentences for the page: what of the front survives in the engine, by which rule, and what does not."""
    if verified is None or not checked:
        return []
    lost = [row for row in checked if not row["survived"]]
    engine = f"{verified['engine']} {verified['version']}".strip()
    said = [f"Checked in {engine}: {len(checked) - len(lost)} of {len(checked)} configurations survive; {verified['rule']}."]
    said += [f"Does not survive in {engine}: {row['precision']} ({row['why']})." for row in lost]
    return said + [f"{line}." for line in verified.get("notes", [])]


def _row(keys: Sequence[str], key: object) -> int | None:
    return keys.index(str(key)) if key in keys else None


def _chosen(
    keys: Sequence[str],
    columns: Mapping[str, NDArray[np.float64]],
    front: NDArray[np.bool_],
    baseline: int | None,
    findings: Mapping[str, Any] | None,
    choose: str | None,
    objective: str,
    cost: str,
) -> tuple[int, str]:
    """The row that the page is about, and a sentence that says why when nobody chose it."""
    if choose is not None:
        return keys.index(choose), ""
    best = _row(keys, ((findings or {}).get("best") or {}).get("precision"))
    if best is not None and best != baseline:
        return best, ""
    rows = np.flatnonzero(front)
    if not len(rows):
        return best if best is not None else 0, ""
    why = "The sweep set no limit to accuracy" if findings else "The sweep has not ended"
    return front_knee(columns, rows, objective, cost), (
        f"{why}, so the configuration shown as chosen is the knee of the front: the one farthest above the straight "
        "line between its ends. Choose another one with a click, or with --choose."
    )


def front_knee(columns: Mapping[str, NDArray[np.float64]], rows: NDArray[np.intp], objective: str, cost: str) -> int:
    """The front's row farthest from the line between its cheapest and its most accurate end, both axes as shares."""
    x, y = columns[cost][rows], columns[objective][rows]
    if measure(objective).stand_in is not None:
        y = np.minimum(y, np.sort(y)[-2] + 6 if len(y) > 1 else y)  # equal tensors have a ratio without meaning
    return int(rows[knee(x, y)])


def _digests(store: TrialStore, context: Mapping[str, Any], number: int, key: str) -> dict[str, str]:
    subject = store.subject
    identity = context.get("identity") or {}
    return {
        "cfg": subject.network,
        "weights": subject.weights,
        "data": subject.data,
        "protocol": subject.protocol,
        **({"arithmetic": str(identity["arithmetic"])} if "arithmetic" in identity else {}),
        **{name: str(identity[name]) for name in ("calibration", "lessons") if identity.get(name)},
        "chosen trial": store.trial_digest(number, key),
    }


def _unnamed(key: str) -> tuple[Layer, ...]:
    """Layers of which only the place in precision strings is known."""
    count = len(split_key(key)[0])
    return tuple(Layer(place, "", f"weights-{place + 1}", place, (), 0, 0) for place in range(count))


def _date(seconds: str | None) -> str:
    try:
        return datetime.fromtimestamp(float(seconds or ""), timezone.utc).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return ""
