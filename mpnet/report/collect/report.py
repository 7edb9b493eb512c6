# SPDX-License-Identifier: MIT
"""Collects everything that a report shows: stored results first, then what can still be found out about them.

The page itself never runs a network. What the store lacks is computed here when the files are still there and have the
digests that were measured; otherwise the page says what is missing and why.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.config.measures import HELD_OUT, MEASURES
from mpnet.data.dataset import Dataset
from mpnet.errors import ConfigError, MpnetError, StoreError
from mpnet.evaluation.compare import DRAWS
from mpnet.evaluation.operating_point import OperatingPoint
from mpnet.explain.explain import explain
from mpnet.formats.cfg.read import read_cfg_bytes
from mpnet.model.task import DETECTION
from mpnet.progress import Progress
from mpnet.report.collect.cached import kept
from mpnet.report.collect.cfg_template import cfg_template
from mpnet.report.collect.rerun import Compared, Machine, opened, run_with
from mpnet.report.collect.results import from_results, layers_of
from mpnet.report.collect.sweep_store import from_store
from mpnet.report.collect.task import Shows, View, view_of
from mpnet.report.data.differences import Change, Confusion, ObjectChange, Pair
from mpnet.report.data.explanation import sentence
from mpnet.report.data.report_data import Missing, ReportData, Status
from mpnet.report.data.task_words import words_of
from mpnet.resolve.configurations import Configurations
from mpnet.resolve.stored import find_configuration, split_source
from mpnet.resolve.stored_sweep import read_sweep
from mpnet.sweep.choose.findings import sweep_status
from mpnet.sweep.evaluate.scoring import split_positions
from mpnet.sweep.store.latest import is_store
from mpnet.trial.reopen import image_loader, reason, reopen
from mpnet.trial.result import Result, finished, read_result

FRONT_RUNS = 32
"""Most configurations of a front that run again for their intervals; of more, evenly spread ones."""
SAME = 1e-6
"""Percent points by which a configuration that runs again may differ from its stored quality."""
WORST_IMAGES = 6
CROPS = 48


def collect(
    sources: Sequence[Path],
    *,
    progress: Progress,
    draws: int = DRAWS,
    seed: int = 0,
    compute: bool = True,
    choose: str | None = None,
    sweep: int | None = None,
    score: float | None = None,
    explain_worst: int = 0,
    unlabelled: Path | None = None,
) -> ReportData:
    """Everything about runs or about one sweep.

    sources: runs, of which the first is the baseline and the last the chosen configuration; or one store. A single run
             brings the baseline that it was measured with, when that is stored beside it.
    compute: whether networks may run to find out what is not stored.
    choose:  the configuration of a sweep that the page is about; None: the sweep's own choice.
    sweep:   which of a store's sweeps, by number; None: the last one.
    score:   threshold at which a detector's errors are counted; None: the one with the best F1 of the baseline.
    explain_worst: lost objects of which layers are named, those whose score fell most.
    unlabelled: images without labels, on which runs run as well.
    Raises: StoreError for what is neither run nor store, ConfigError for runs on different data.
    """
    sources = [split_source(str(source))[0] if source.is_dir() else source for source in sources]
    if unlabelled is not None and any(is_store(source) for source in sources):
        raise ConfigError("--unlabelled: a sweep's report is of the images that it was swept on; sweep with --unlabelled")
    if len(sources) == 1 and is_store(sources[0]):
        return _of_sweep(sources[0], progress, draws, seed, compute, choose, sweep, score, explain_worst)
    if any(is_store(source) for source in sources):
        raise ConfigError("a report is of one sweep or of runs, not of both; name one store, or runs only")
    results = _with_baseline([read_result(source) for source in sources])
    runs = [Compared(result) for result in results]
    if unlabelled is not None:
        runs = [run_with(find_configuration(str(result.folder)), unlabelled, progress) for result in results]
        results = [run.result for run in runs]
    data, predictions = _with_comparison(from_results(results), runs, draws, seed, score)
    if compute:
        data = _with_layers(data, results, predictions, progress, explain_worst)
    else:
        data = with_missing(data, _not_computed("Error and time per layer"))
    return _with_cfg(data, results[-1].document)


def _of_sweep(
    path: Path,
    progress: Progress,
    draws: int,
    seed: int,
    compute: bool,
    choose: str | None,
    sweep: int | None,
    score: float | None,
    explain_worst: int,
) -> ReportData:
    status = sweep_status(path, sweep)
    state = {"finished": "finished", "stopped": "finished", "running": "running"}.get(status["state"], "interrupted")
    stored = read_sweep(path, choose, sweep, finished=state == "finished")
    document = stored.document
    data = from_store(stored, path, Status(state, int(status["trials"]), status["total"]))
    data = _with_cfg(data, document)
    what = "Intervals, classes, lost and gained objects, images, error and time per layer"
    if not compute:
        return with_missing(data, _not_computed(what))
    try:
        machine = Machine(reopen(document))
    except MpnetError as error:
        return with_missing(data, Missing(what, reason(error), "Put the files back, or sweep again."))
    key = data.configurations.keys[data.configurations.chosen or 0]
    data = replace(data, layers=layers_of(machine.rows(key)))

    def computed() -> ReportData:
        return _with_errors(_with_front(data, machine, document, progress, draws, seed, score, explain_worst), machine)

    deciding = [data, document, machine.bench.kernels.name, draws, seed, score, explain_worst]
    return _timed(kept(deciding, computed, lambda whole: whole.missing == data.missing), machine, progress)


def _with_front(
    data: ReportData,
    machine: Machine,
    document: Mapping[str, Any],
    progress: Progress,
    draws: int,
    seed: int,
    score: float | None,
    explain_worst: int,
) -> ReportData:
    """Run baseline, chosen configuration and front again, for what a store does not keep: what they find."""
    table = data.configurations
    if table.baseline is None or table.chosen is None:
        return data
    named = list(dict.fromkeys([table.baseline, table.chosen, *(p.row for p in data.picks if p.row is not None)]))
    front = [int(row) for row in np.flatnonzero(table.front) if row not in named]
    if len(front) > FRONT_RUNS:
        front = [front[i * len(front) // FRONT_RUNS] for i in range(FRONT_RUNS)]
    rows = [*named, *front]
    images = len(machine.bench.dataset.images)
    try:
        with progress("front", images) as advance:
            predictions = machine.predictions([table.keys[row] for row in rows], advance)
        view, dataset, chosen = view_of(data.task), machine.bench.dataset, predictions[rows.index(table.chosen)]
        sets = _sets(dataset, document)
        whole = view.pairing(dataset, predictions[0], draws, seed)
        with progress("intervals", len(sets) * (len(rows) - 1)) as advance:
            for prefix, positions in sets.items():
                # A figure and its interval are of the same images: the stored figures' own.
                part = dataset.subset(positions.tolist())
                pairing = view.pairing(part, predictions[0].of_images(positions), draws, seed) if len(sets) > 1 else whole
                pairs = {}
                for row, other in zip(rows[1:], predictions[1:], strict=True):
                    pairs[row] = pairing.pair(other.of_images(positions) if len(sets) > 1 else other)
                    _check_same(data, row, prefix + data.task.quality, pairs[row].values.get(data.task.quality))
                    advance(1)
                data = with_pairs(data, pairs, pairing.intervals_by, prefix)
        data = _with_losses(data)
        data = with_changes(data, whole.pair(chosen), view.gallery(dataset, predictions[0], chosen, image_loader(document)))
        if explain_worst:
            keys = table.keys[table.baseline], table.keys[table.chosen]
            data = with_explained(data, machine, keys, (predictions[0], chosen), explain_worst, progress)
        data = _with_operating_point(data, dataset, predictions[0], chosen, score, draws, seed)
        return _with_confusion(data, view, dataset, predictions[0], chosen)
    except MpnetError as error:
        return with_missing(data, Missing("Intervals, classes, lost and gained objects, images", reason(error)))


def _with_losses(data: ReportData) -> ReportData:
    """Picks with the intervals of this report, which all its other parts show: the stored ones may be another version's."""
    columns = [prefix + data.task.quality for prefix in (HELD_OUT, "")]
    picks = []
    for pick in data.picks:
        known = {} if pick.row is None else data.intervals.get(pick.row, {})
        losses = {data.images_of(column): known[column] for column in columns if column in known}
        picks.append(replace(pick, losses=losses or pick.losses))
    return replace(data, picks=tuple(picks))


def _sets(dataset: Dataset, document: Mapping[str, Any]) -> dict[str, NDArray[np.intp]]:
    """The images of a sweep's columns by their prefix: those that select and those that only report, or all."""
    ids = [image.sha256 for image in dataset.images]
    seed = document.get("seed")
    select, report = split_positions(ids, document.get("holdout") or 0.0, seed if isinstance(seed, int) else 0)
    return {"": select, HELD_OUT: report} if len(report) else {"": select}


def _check_same(data: ReportData, row: int, column: str, again: float | None) -> None:
    """What runs again must give what was stored. Raises: StoreError when it does not."""
    stored = data.configurations.value(row, column)
    if again is not None and np.isfinite(stored) and abs(stored - again) > SAME:
        key = data.configurations.keys[row]
        raise StoreError(f"{key} gives {column} {again:.4f} now, but {stored:.4f} is stored; sweep again with this version")


def _with_layers(
    data: ReportData, results: list[Result], predictions: list[Any], progress: Progress, explain_worst: int
) -> ReportData:
    """Error and time per layer of the last run, when its network still gives what was measured.

    predictions: of all runs; empty where they could not be opened, so that no object is explained.
    """
    document, first = results[-1].document, results[0].document
    try:
        machine = Machine(reopen(document))
        key = str(document["precision"]["key"])
        identity = machine.bench.identity(machine.plan(key).precision).id
        if identity != (document.get("deployed") or {}).get("reference", document["id"]):
            raise StoreError("network, data or arithmetic are not what was measured (another identity)")
        if explain_worst and predictions:
            if any(first["digests"].get(name) != document["digests"].get(name) for name in ("cfg", "weights")):
                raise StoreError("the baseline is of another network, so its layers cannot be raised to")
            keys = str(first["precision"]["key"]), key

            def explained(data: ReportData = data) -> ReportData:
                return with_explained(data, machine, keys, predictions, explain_worst, progress)

            data = kept([data, document, first, explain_worst], explained)
        analysed = kept([data, document], lambda: _with_errors(data, machine), lambda whole: whole.missing == data.missing)
    except MpnetError as error:
        return with_missing(data, Missing("Error and time per layer", reason(error), "Measure again."))
    return _timed(analysed, machine, progress)


def _with_errors(data: ReportData, machine: Machine) -> ReportData:
    table = data.configurations
    try:
        return replace(data, errors=machine.errors(table.keys[table.chosen or 0]))
    except MpnetError as error:
        return with_missing(data, Missing("Error per layer", reason(error)))


def _timed(data: ReportData, machine: Machine, progress: Progress) -> ReportData:
    """`data` with the time of each layer here; what was taken on a busy machine is said to be, and is not kept."""
    table = data.configurations
    chosen = table.keys[table.chosen or 0]
    baseline = table.keys[table.baseline] if table.baseline is not None else chosen
    isa, threads = machine.bench.kernels.name, machine.bench.threads
    with progress("time of layers", 1) as advance:
        rows = [machine.rows(key) for key in (baseline, chosen)]
        deciding = ["times", data.digests, data.protocol, rows, isa, threads]
        costs, doubt = kept(deciding, lambda: machine.costs(baseline, chosen), lambda taken: not taken[1])
        advance(1)
    return replace(data, costs=costs, doubt=doubt, latency={"isa": isa, "threads": threads, **data.latency})


def _not_computed(what: str) -> Missing:
    # Also on the page of --live, where nobody gave the option.
    remedy = "`mpnet report` without --no-compute shows it; of a running sweep, when that has ended."
    return Missing(what, "this is not stored, and this page runs no network", remedy)


def _with_baseline(results: list[Result]) -> list[Result]:
    """A single run after its baseline, and one of another engine after mpnet's own, when these are there."""
    if len(results) > 1:
        return results
    named = [_beside(results[0], "agreement", "baseline"), _beside(results[0], "deployed", "reference")]
    by_id = {result.id: result for result in named if result is not None}
    return [*by_id.values(), *results]


def _beside(result: Result, part: str, key: str) -> Result | None:
    """Another result that one names, when it is there."""
    named = result.document.get(part)
    if not isinstance(named, dict):
        return None
    try:
        other = finished(result.folder.parent / str(named.get(key, "")))
    except StoreError:
        return None
    return other if other is not None and other.id != result.id else None


def _with_comparison(
    data: ReportData, runs: Sequence[Compared], draws: int, seed: int, score: float | None
) -> tuple[ReportData, list[Any]]:
    """Every run against the first, lost and gained objects of the last; and the predictions of all, none if missing."""
    if len(runs) == 1:
        what, why = "Differences, lost and gained objects", "there is one run and no baseline beside it"
        return with_missing(data, Missing(what, why, "Name two runs, the baseline first.")), []
    predictions: list[Any] = []
    try:
        dataset, predictions = opened(runs)
        view = view_of(data.task)

        def compared(data: ReportData = data) -> ReportData:
            pairing = view.pairing(dataset, predictions[0], draws, seed)
            pairs = {row: pairing.pair(other) for row, other in enumerate(predictions) if row}
            data = with_pairs(data, pairs, pairing.intervals_by)
            load = image_loader(runs[-1].result.document)
            data = with_changes(data, pairs[len(runs) - 1], view.gallery(dataset, predictions[0], predictions[-1], load))
            data = _with_operating_point(data, dataset, predictions[0], predictions[-1], score, draws, seed)
            return _with_confusion(data, view, dataset, predictions[0], predictions[-1])

        if any(run.predictions is not None for run in runs):  # on images of this moment
            return compared(), predictions
        files = [hashlib.sha256(run.result.predictions_path.read_bytes()).hexdigest() for run in runs]
        data = kept([data, [dict(run.result.document) for run in runs], files, draws, seed, score], compared)
    except MpnetError as error:
        what = "Intervals, classes, lost and gained objects, images"
        data = with_missing(data, Missing(what, reason(error), "Put the files back, or measure again."))
    return data, predictions


def _with_cfg(data: ReportData, document: Mapping[str, Any]) -> ReportData:
    sources = document.get("sources") or {}
    try:
        if not sources.get("cfg"):
            raise StoreError("the result does not name its network file")
        path = Path(str(sources["cfg"]))
        content = read_cfg_bytes(path)
        if hashlib.sha256(content).hexdigest() != document["digests"].get("cfg"):
            raise StoreError(f"{path}: has changed since this was measured")
        return replace(data, cfg=cfg_template(content, data.configurations.keys, path.name))
    except MpnetError as error:
        return with_missing(
            data,
            Missing("Saving a .cfg", reason(error), "`mpnet export --cfg FILE` writes it from a copy of the network file."),
        )


def with_pairs(data: ReportData, pairs: Mapping[int, Pair], intervals_by: str, prefix: str = "") -> ReportData:
    """`data` with intervals of the rows in `pairs`, which are of the images whose columns begin with `prefix`."""
    table = _filled(data.configurations, pairs, prefix)
    named = {row: {prefix + name: interval for name, interval in pair.metrics.items()} for row, pair in pairs.items()}
    intervals = {row: {**data.intervals.get(row, {}), **named.get(row, {})} for row in {**data.intervals, **named}}
    known = any(interval.tells for by_name in intervals.values() for interval in by_name.values())
    return replace(data, configurations=table, intervals=intervals, intervals_by=intervals_by if known else "")


def with_changes(data: ReportData, chosen: Pair, gallery: Shows | None = None) -> ReportData:
    """`data` with everything that compares the chosen configuration with the baseline, on all images.

    gallery: of both, for images; None leaves them out.
    """
    changes, images = chosen.changes, data.worst
    if gallery is not None:
        changes = gallery.changes(_spread(changes), CROPS)
        images = gallery.worst(chosen.images, WORST_IMAGES)
    harmed_first = sorted(chosen.classes, key=lambda of_class: of_class.interval.difference if of_class.interval else 0.0)
    changes = tuple(replace(change, image=Path(change.image).name) for change in changes)
    return replace(data, classes=tuple(harmed_first), changes=changes, worst=images, verdict=chosen.verdict)


def with_explained(
    data: ReportData, machine: Machine, keys: tuple[str, str], predictions: Sequence[Any], worst: int, progress: Progress
) -> ReportData:
    """`data` whose lost and moved objects say which layers lose them, the `worst` of them.

    keys: of the baseline and of the configuration that the page is about. predictions: theirs.
    """
    if data.task is not DETECTION:
        return data
    baseline, given = (machine.plan(key).precision for key in keys)
    explanation = explain(machine.bench, given, baseline, (predictions[0], predictions[-1]), worst=worst, progress=progress)
    known = {}
    for row in explanation.document()["objects"]:
        x, y, width, height = row["box"]
        shares = tuple((share["name"], share["percent"]) for share in row["shares"])
        known[Path(row["image"]).name, (x, y, x + width, y + height)] = sentence(row), shares

    def with_shares(change: Change) -> Change:
        if not isinstance(change, ObjectChange) or (change.image, change.box) not in known:
            return change
        text, shares = known[change.image, change.box]
        return replace(change, explained=text, shares=shares)

    changes = map(with_shares, data.changes)
    return replace(data, changes=tuple(changes))


def _spread(changes: Sequence[Change]) -> list[Change]:
    """The surest lost and gained of every class first: images are drawn of the first ones."""
    seen: Counter[tuple[str, str]] = Counter()
    ranked = []
    for change in sorted(changes, key=lambda change: -change.score):
        seen[change.kind, change.name] += 1
        ranked.append((seen[change.kind, change.name], change))
    return [change for _, change in sorted(ranked, key=lambda pair: pair[0])]


def _with_operating_point(
    data: ReportData, dataset: Dataset, baseline: Any, chosen: Any, score: float | None, draws: int, seed: int
) -> ReportData:
    if data.task is not DETECTION:
        return data
    return replace(data, operating_point=OperatingPoint(dataset, baseline, score, draws, seed).of(chosen))


def _with_confusion(data: ReportData, view: View, dataset: Dataset, baseline: Any, chosen: Any) -> ReportData:
    nothing = words_of(data.task).nothing
    names = (*dataset.names, nothing) if nothing else dataset.names
    return replace(data, confusion=Confusion(names, view.confusion(baseline, dataset), view.confusion(chosen, dataset)))


def _filled(table: Configurations, pairs: Mapping[int, Pair], prefix: str) -> Configurations:
    """What pairs know and the table does not: agreement with this baseline."""
    columns = dict(table.columns)
    for name, itself in ((m.name, m.itself) for m in MEASURES if m.itself is not None):
        values = {row: pair.values[name] for row, pair in pairs.items() if name in pair.values}
        if not values:
            continue
        column = np.full(len(table), np.nan)
        column[list(values)] = list(values.values())
        if table.baseline is not None:
            column[table.baseline] = itself
        stored = columns.get(prefix + name, column)
        columns[prefix + name] = np.where(np.isnan(stored), column, stored)
    return replace(table, columns=columns)


def with_missing(data: ReportData, *missing: Missing) -> ReportData:
    """`data` saying what it cannot show and why."""
    return replace(data, missing=(*data.missing, *missing))
