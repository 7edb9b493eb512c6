# SPDX-License-Identifier: MIT
"""Everything that a report shows, collected: stored results first, then what can still be found out about them.

The page itself never runs a network. What the store lacks is computed here when the files are still there and have the
digests that were measured; otherwise the page says what is missing and why.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.config.measures import HELD_OUT
from mpnet.data.dataset import Dataset
from mpnet.errors import ConfigError, MpnetError, StoreError
from mpnet.evaluation.compare import DRAWS
from mpnet.formats.cfg.read import read_cfg_bytes
from mpnet.formats.documents.typed import as_json
from mpnet.progress import Progress
from mpnet.report.collect.additions import (
    with_changes,
    with_confusion,
    with_explained,
    with_omissions,
    with_operating_point,
    with_pairs,
)
from mpnet.report.collect.cached import load_or_compute
from mpnet.report.collect.cfg_template import cfg_template
from mpnet.report.collect.rerun import ComparedResult, NetworkRunner, open_predictions, run_with_unlabelled
from mpnet.report.collect.results import from_results, layers_of
from mpnet.report.collect.sweep_store import from_store
from mpnet.report.collect.task import prediction_tools
from mpnet.report.data.report_data import Omission, ReportData, Status
from mpnet.resolve.stored import find_configuration, split_source
from mpnet.resolve.stored_sweep import StoredSweep, read_sweep
from mpnet.sweep.choose.status import sweep_status
from mpnet.sweep.evaluate.scoring import split_positions
from mpnet.sweep.store.latest import is_store
from mpnet.trial.identity import identity_of
from mpnet.trial.kit import Predictions
from mpnet.trial.reopen import image_loader, reason, reopen
from mpnet.trial.result import Result, finished, read_result
from mpnet.trial.run_result import Provenance

FRONT_RUNS = 32
"""Most configurations of a front that run again for their intervals; of more, evenly spread ones."""
QUALITY_TOLERANCE = 1e-6
"""Percent points by which a configuration that runs again may differ from its stored quality."""


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
    """Collect everything about runs or about one sweep.

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
    runs = [ComparedResult(result) for result in results]
    if unlabelled is not None:
        runs = [run_with_unlabelled(find_configuration(str(result.folder)), unlabelled, progress) for result in results]
        results = [run.result for run in runs]
    data, predictions = _with_comparison(from_results(results), runs, draws, seed, score)
    if compute:
        data = _with_layers(data, results, predictions, progress, explain_worst)
    else:
        data = with_omissions(data, _not_computed("Error and time per layer"))
    return _with_cfg(data, results[-1].run.provenance)


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
    state = {"finished": "finished", "stopped": "finished", "running": "running"}.get(status.state, "interrupted")
    stored_sweep = read_sweep(path, choose, sweep, finished=state == "finished")
    data = from_store(stored_sweep, path, Status(state, status.trials, status.total))
    data = _with_cfg(data, stored_sweep.provenance)
    contents = "Intervals, classes, lost and gained objects, images, error and time per layer"
    if not compute:
        return with_omissions(data, _not_computed(contents))
    try:
        runner = NetworkRunner(reopen(stored_sweep.provenance))
    except MpnetError as error:
        return with_omissions(data, Omission(contents, reason(error), "Put the files back, or sweep again."))
    key = data.configurations.keys[data.configurations.chosen or 0]
    data = replace(data, layers=layers_of(runner.rows(key)))

    def compute_all() -> ReportData:
        return _with_errors(_with_front(data, runner, stored_sweep, progress, draws, seed, score, explain_worst), runner)

    measured = [as_json(stored_sweep.provenance), stored_sweep.holdout, stored_sweep.seed]
    deciding = [data, measured, runner.bench.kernels.name, draws, seed, score, explain_worst]
    return _timed(load_or_compute(deciding, compute_all, lambda result: result.omissions == data.omissions), runner, progress)


def _with_front(
    data: ReportData,
    runner: NetworkRunner,
    stored_sweep: StoredSweep,
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
    named_rows = list(dict.fromkeys([table.baseline, table.chosen, *(p.row for p in data.picks if p.row is not None)]))
    front = [int(row) for row in np.flatnonzero(table.front) if row not in named_rows]
    if len(front) > FRONT_RUNS:
        front = [front[i * len(front) // FRONT_RUNS] for i in range(FRONT_RUNS)]
    rows = [*named_rows, *front]
    images = len(runner.bench.dataset.images)
    try:
        with progress("front", images) as advance:
            predictions = runner.predictions([table.keys[row] for row in rows], advance)
        tools, dataset, chosen_predictions = (
            prediction_tools(data.task),
            runner.bench.dataset,
            predictions[rows.index(table.chosen)],
        )
        sets = split_images(dataset, stored_sweep)
        pairing_of_all = tools.pairing(dataset, predictions[0], draws, seed)
        with progress("intervals", len(sets) * (len(rows) - 1)) as advance:
            for prefix, positions in sets.items():
                # A figure and its interval are of the same images: the stored figures' own.
                subset = dataset.subset(positions.tolist())
                pairing = (
                    tools.pairing(subset, predictions[0].of_images(positions), draws, seed) if len(sets) > 1 else pairing_of_all
                )
                pairs = {}
                for row, row_predictions in zip(rows[1:], predictions[1:], strict=True):
                    pairs[row] = pairing.pair(row_predictions.of_images(positions) if len(sets) > 1 else row_predictions)
                    _check_same(data, row, prefix + data.task.quality, pairs[row].values.get(data.task.quality))
                    advance(1)
                data = with_pairs(data, pairs, pairing.intervals_by, prefix)
        data = _with_losses(data)
        data = with_changes(
            data,
            pairing_of_all.pair(chosen_predictions),
            tools.gallery(dataset, predictions[0], chosen_predictions, image_loader(stored_sweep.provenance.protocol)),
        )
        if explain_worst:
            keys = table.keys[table.baseline], table.keys[table.chosen]
            data = with_explained(data, runner, keys, (predictions[0], chosen_predictions), explain_worst, progress)
        data = with_operating_point(data, dataset, predictions[0], chosen_predictions, score, draws, seed)
        return with_confusion(data, tools, dataset, predictions[0], chosen_predictions)
    except MpnetError as error:
        return with_omissions(data, Omission("Intervals, classes, lost and gained objects, images", reason(error)))


def _with_losses(data: ReportData) -> ReportData:
    """Return picks with the intervals of this report, which the rest of it shows: stored ones may be another version's."""
    columns = [prefix + data.task.quality for prefix in (HELD_OUT, "")]
    picks = []
    for pick in data.picks:
        intervals = {} if pick.row is None else data.intervals.get(pick.row, {})
        losses = {data.images_of(column): intervals[column] for column in columns if column in intervals}
        picks.append(replace(pick, losses=losses or pick.losses))
    return replace(data, picks=tuple(picks))


def split_images(dataset: Dataset, stored_sweep: StoredSweep) -> dict[str, NDArray[np.intp]]:
    """Return the images of a sweep's columns by their prefix: those that select and those that only report, or all."""
    ids = [image.sha256 for image in dataset.images]
    select, report = split_positions(ids, stored_sweep.holdout, stored_sweep.seed)
    return {"": select, HELD_OUT: report} if len(report) else {"": select}


def _check_same(data: ReportData, row: int, column: str, value: float | None) -> None:
    """Check that a configuration gives again what was stored. Raises: StoreError when it does not."""
    stored_value = data.configurations.value(row, column)
    if value is not None and np.isfinite(stored_value) and abs(stored_value - value) > QUALITY_TOLERANCE:
        key = data.configurations.keys[row]
        raise StoreError(
            f"{key} gives {column} {value:.4f} now, but {stored_value:.4f} is stored; sweep again with this version"
        )


def _with_layers(
    data: ReportData, results: list[Result], predictions: list[Predictions], progress: Progress, explain_worst: int
) -> ReportData:
    """Add error and time per layer of the last run, when its network still gives what was measured.

    predictions: of all runs; empty where they could not be opened, so that no object is explained.
    """
    run, baseline_run = results[-1].run, results[0].run
    document = results[-1].document
    try:
        runner = NetworkRunner(reopen(run.provenance))
        key = run.precision.key
        identity = identity_of(runner.bench, runner.plan(key).precision).id
        if identity != (run.id if run.deployed is None else run.deployed.reference):
            raise StoreError("network, data or arithmetic are not what was measured (another identity)")
        if explain_worst and predictions:
            if any(baseline_run.digests.get(name) != run.digests.get(name) for name in ("cfg", "weights")):
                raise StoreError("the baseline is of another network, so its layers cannot be raised to")
            keys = baseline_run.precision.key, key

            def explain_objects(data: ReportData = data) -> ReportData:
                return with_explained(data, runner, keys, predictions, explain_worst, progress)

            data = load_or_compute([data, document, results[0].document, explain_worst], explain_objects)
        analysed = load_or_compute(
            [data, document], lambda: _with_errors(data, runner), lambda result: result.omissions == data.omissions
        )
    except MpnetError as error:
        return with_omissions(data, Omission("Error and time per layer", reason(error), "Measure again."))
    return _timed(analysed, runner, progress)


def _with_errors(data: ReportData, runner: NetworkRunner) -> ReportData:
    table = data.configurations
    try:
        return replace(data, errors=runner.errors(table.keys[table.chosen or 0]))
    except MpnetError as error:
        return with_omissions(data, Omission("Error per layer", reason(error)))


def _timed(data: ReportData, runner: NetworkRunner, progress: Progress) -> ReportData:
    """Return `data` with the time of each layer here; times of a busy machine are marked, and not kept in the cache."""
    table = data.configurations
    chosen = table.keys[table.chosen or 0]
    baseline = table.keys[table.baseline] if table.baseline is not None else chosen
    isa, threads = runner.bench.kernels.name, runner.bench.threads
    with progress("time of layers", 1) as advance:
        rows = [[as_json(row) for row in runner.rows(key)] for key in (baseline, chosen)]
        deciding = ["times", data.digests, data.protocol, rows, isa, threads]
        costs, doubt = load_or_compute(deciding, lambda: runner.costs(baseline, chosen), lambda timed: not timed[1])
        advance(1)
    return replace(data, costs=costs, doubt=doubt, latency={"isa": isa, "threads": threads, **data.latency})


def _not_computed(contents: str) -> Omission:
    # Also on the page of --live, where nobody gave the option.
    remedy = "`mpnet report` without --no-compute shows it; of a running sweep, when that has ended."
    return Omission(contents, "this is not stored, and this page runs no network", remedy)


def _with_baseline(results: list[Result]) -> list[Result]:
    """Return a single run after its baseline, and one of another engine after mpnet's own, when these are there."""
    if len(results) > 1:
        return results
    run = results[0].run
    related = [
        _find_related(results[0], None if run.agreement is None else run.agreement.baseline),
        _find_related(results[0], None if run.deployed is None else run.deployed.reference),
    ]
    by_id = {result.id: result for result in related if result is not None}
    return [*by_id.values(), *results]


def _find_related(result: Result, trial: str | None) -> Result | None:
    """Return the result of another trial id in the same folder, when it is there."""
    if trial is None:
        return None
    try:
        related = finished(result.folder.parent / trial)
    except StoreError:
        return None
    return related if related is not None and related.id != result.id else None


def _with_comparison(
    data: ReportData, runs: Sequence[ComparedResult], draws: int, seed: int, score: float | None
) -> tuple[ReportData, list[Predictions]]:
    """Compare every run with the first; return the data, and the predictions of all runs, none where a file is gone."""
    if len(runs) == 1:
        contents, reason_text = "Differences, lost and gained objects", "there is one run and no baseline beside it"
        return with_omissions(data, Omission(contents, reason_text, "Name two runs, the baseline first.")), []
    predictions: list[Predictions] = []
    try:
        dataset, predictions = open_predictions(runs)
        tools = prediction_tools(data.task)

        def compare(data: ReportData = data) -> ReportData:
            pairing = tools.pairing(dataset, predictions[0], draws, seed)
            pairs = {row: pairing.pair(run_predictions) for row, run_predictions in enumerate(predictions) if row}
            data = with_pairs(data, pairs, pairing.intervals_by)
            load = image_loader(runs[-1].result.run.protocol)
            data = with_changes(data, pairs[len(runs) - 1], tools.gallery(dataset, predictions[0], predictions[-1], load))
            data = with_operating_point(data, dataset, predictions[0], predictions[-1], score, draws, seed)
            return with_confusion(data, tools, dataset, predictions[0], predictions[-1])

        if any(run.predictions is not None for run in runs):  # on images of this moment
            return compare(), predictions
        files = [hashlib.sha256(run.result.predictions_path.read_bytes()).hexdigest() for run in runs]
        data = load_or_compute([data, [dict(run.result.document) for run in runs], files, draws, seed, score], compare)
    except MpnetError as error:
        contents = "Intervals, classes, lost and gained objects, images"
        data = with_omissions(data, Omission(contents, reason(error), "Put the files back, or measure again."))
    return data, predictions


def _with_cfg(data: ReportData, provenance: Provenance) -> ReportData:
    sources = provenance.sources
    try:
        if not sources.get("cfg"):
            raise StoreError("the result does not name its network file")
        path = Path(sources["cfg"])
        content = read_cfg_bytes(path)
        if hashlib.sha256(content).hexdigest() != provenance.digests.get("cfg"):
            raise StoreError(f"{path}: has changed since this was measured")
        return replace(data, cfg=cfg_template(content, data.configurations.keys, path.name))
    except MpnetError as error:
        return with_omissions(
            data,
            Omission("Saving a .cfg", reason(error), "`mpnet export --cfg FILE` writes it from a copy of the network file."),
        )
