# SPDX-License-Identifier: MIT
"""Compare finished runs and configurations of sweeps, with images and detections where these are still there."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Sequence

from mpnet.data.dataset import Dataset
from mpnet.errors import ConfigError, DataError, MpnetError
from mpnet.evaluation.compare import DRAWS
from mpnet.json_values import JsonObject
from mpnet.progress import Progress, silent
from mpnet.report.collect.comparison import compare_results
from mpnet.report.collect.images import LoadImage, write_changes
from mpnet.report.collect.rerun import ComparedResult, NetworkRunner, open_predictions, run_with_unlabelled
from mpnet.report.collect.task import PredictionTools, prediction_tools
from mpnet.report.data.comparison import Comparison
from mpnet.resolve.stored import StoredConfiguration, find_configuration, split_source
from mpnet.sweep.store.latest import is_store
from mpnet.trial.inference import run_plans
from mpnet.trial.kit import Predictions
from mpnet.trial.latency import measure_in_turn
from mpnet.trial.reopen import image_loader, reason, reopen
from mpnet.trial.result import Result, read_result, run_result_of


def compare_runs(
    runs: Sequence[str | Path],
    *,
    draws: int = DRAWS,
    seed: int = 0,
    images: Path | None = None,
    score: float | None = None,
    unlabelled: Path | None = None,
    progress: Progress = silent,
) -> Comparison:
    """Compare runs and configurations of sweeps with the first one.

    runs:     folders or result.json files, or STORE:KEY; configurations of a sweep run again, since a store keeps
              figures only.
    score:  threshold at which errors are counted; None: the one with the best F1 of the first.
    unlabelled: images without labels, on which all of them run as well.
    images: a folder for one JPEG per lost or gained object (of a classifier: image) and run.
    Raises: StoreError for what is neither run nor store, ConfigError for runs on different data, DataError for
    images that are asked for and not there.
    """
    sides = _sides([str(run) for run in runs], unlabelled, progress)
    results = [side.result for side in sides]
    try:
        dataset, predictions = open_predictions(sides)
    except MpnetError as error:
        if images is not None:
            raise
        return compare_results(results, reason=reason(error))
    comparison = compare_results(results, dataset, predictions, draws=draws, seed=seed, score=score)
    if images is not None:
        tools, load = prediction_tools(comparison.task), image_loader(results[0].run.protocol)
        return _with_images(comparison, tools, dataset, predictions, images, load)
    return comparison


def _with_images(
    comparison: Comparison,
    tools: PredictionTools,
    dataset: Dataset,
    predictions: Sequence[Predictions],
    images: Path,
    load: LoadImage,
) -> Comparison:
    """Write an image of each change; return the comparison whose changes name the files."""
    runs = [comparison.runs[0]]
    for run, other in zip(comparison.runs[1:], predictions[1:], strict=True):
        gallery = tools.gallery(dataset, predictions[0], other, load)
        changes = gallery.changes(run.changes, len(run.changes), captions=True)
        folder = images if len(predictions) == 2 else images / run.id
        names = write_changes(changes, folder)
        changes = tuple(replace(change, file=str(folder / name)) for change, name in zip(changes, names, strict=True))
        runs.append(replace(run, changes=changes))
    return replace(comparison, runs=tuple(runs))


def _sides(sources: Sequence[str], unlabelled: Path | None, progress: Progress) -> list[ComparedResult]:
    """Return the results of all sources; those of one store run together, on images that are decoded once.

    unlabelled: further images, for which runs run again as well.
    """
    side_by_position: dict[int, ComparedResult] = {}
    trials: dict[Path, list[int]] = {}
    for position, source in enumerate(sources):
        path = split_source(source)[0]
        if is_store(path):
            trials.setdefault(path.resolve(), []).append(position)
        elif unlabelled is None:
            side_by_position[position] = ComparedResult(read_result(path))
        else:
            side_by_position[position] = run_with_unlabelled(find_configuration(source), unlabelled, progress)
    for positions in trials.values():
        configurations = [find_configuration(sources[position]) for position in positions]
        side_by_position.update(zip(positions, _run_again(configurations, unlabelled, progress), strict=True))
    return [side_by_position[position] for position in range(len(sources))]


def _run_again(
    configurations: Sequence[StoredConfiguration], unlabelled: Path | None, progress: Progress
) -> list[ComparedResult]:
    runner = NetworkRunner(reopen(configurations[0].provenance, configurations[0].output, unlabelled))
    bench = runner.bench
    with progress("images", len(bench.inputs)) as advance:
        outcomes = run_plans(bench, [runner.plan(configuration.key) for configuration in configurations], advance)
    sides: list[ComparedResult] = []
    turns = measure_in_turn(bench, {outcome.plan.precision.key: outcome.plan for outcome in outcomes})
    for configuration, outcome in zip(configurations, outcomes, strict=True):
        run_result = run_result_of(
            bench, outcome, baseline=outcomes[0], command="mpnet compare", latency=turns.latency(outcome.plan.precision.key)
        )
        if configuration.held_out:
            selection = {name: configuration.values[name] for name in configuration.held_out if name in configuration.values}
            run_result = replace(run_result, selection=selection, held_out=configuration.held_out)
        sides.append(ComparedResult(Result(configuration.store or Path(), run_result), outcome.predictions, bench.dataset))
    return sides


def score_to_deploy(text: str, source: str) -> JsonObject:
    """Return the score threshold that `text` asks for, and what is known of it, as exported files hold it.

    text: a number, or `recall`: the one that finds as many of the images' objects as the baseline does with its best F1.
    source: RUN or STORE[:KEY]; a sweep's configurations run again.
    Raises: ConfigError for another text or source, DataError where the images do not say it; as `compare_runs`.
    """
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if 0 <= score <= 1:
        return {"score": score}
    if text != "recall" or Path(source).suffix in (".yaml", ".yml", ".cfg"):
        raise ConfigError(f"--score {text[:40]}: is a number from 0 to 1, or for a RUN or STORE[:KEY] `recall`")
    path = split_source(source)[0]
    baseline = f"{path}:baseline" if is_store(path) else _baseline_of(read_result(path))
    point = compare_runs([baseline, source]).runs[1].operating_point
    same_recall = None if point is None else point.get("same_recall")
    if point is None or same_recall is None:
        raise DataError(f"{source}: its images do not say which score has the baseline's recall; write a number, such as 0.25")
    return {
        "baseline_score": point["score"],
        "iou": point["iou"],
        "score": same_recall["score"],
        "chosen_on": same_recall["chosen_on"],
        "judged_on": same_recall["judged_on"],
        "baseline": same_recall["baseline"],
        "run": same_recall["run"],
    }


def _baseline_of(result: Result) -> Path:
    """Return the folder of the run that a result was compared with. Raises: ConfigError where there is none."""
    agreement = result.run.agreement
    if agreement is None:
        raise ConfigError(f"{result.folder}: has no baseline beside it; write a number after --score, such as 0.25")
    return result.folder.parent / agreement.baseline
