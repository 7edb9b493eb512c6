# SPDX-License-Identifier: MIT
"""Compare finished runs and configurations of sweeps, with images and detections where these are still there."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Sequence

from mpnet.data.dataset import Dataset
from mpnet.errors import MpnetError
from mpnet.evaluation.compare import DRAWS
from mpnet.progress import Progress, silent
from mpnet.report.comparison import Comparison, compare_results
from mpnet.report.images import LoadImage, write_changes
from mpnet.report.rerun import Machine
from mpnet.report.task import View, view_of
from mpnet.resolve.stored import StoredConfiguration, find_configuration, split_source
from mpnet.sweep.store.latest import is_store
from mpnet.trial.inference import run_plans
from mpnet.trial.latency import measure_in_turn
from mpnet.trial.reopen import image_loader, open_dataset, reason, reopen
from mpnet.trial.result import Result, build_document, read_result
from mpnet.trial.task import kit_of

_Compared = tuple[Result, Any]
"""One of what is compared; what a sweep's configuration finds, which ran again, None: in the run's folder."""


def compare_runs(
    runs: Sequence[str | Path], *, draws: int = DRAWS, seed: int = 0, images: Path | None = None, progress: Progress = silent
) -> Comparison:
    """Everything against the first.

    runs:     folders or result.json files, or STORE:KEY; configurations of a sweep run again, since a store keeps
              figures only.
    images: a folder for one JPEG per lost or gained object (of a classifier: image) and run.
    Raises: StoreError for what is neither run nor store, ConfigError for runs on different data, DataError for
    images that are asked for and not there.
    """
    sides = _sides([str(run) for run in runs], progress)
    results = [result for result, _ in sides]
    try:
        dataset = open_dataset(results[0].document)
        found = [kit_of(result.task).read(result.found_path, dataset) if known is None else known for result, known in sides]
    except MpnetError as error:
        if images is not None:
            raise
        return compare_results(results, missing=reason(error))
    compared = compare_results(results, dataset, found, draws=draws, seed=seed)
    if images is not None:
        _write_images(compared, view_of(results[0].task), dataset, found, images, image_loader(results[0].document))
    return compared


def _write_images(
    compared: Comparison, view: View, dataset: Dataset, found: Sequence[Any], images: Path, load: LoadImage
) -> None:
    for run, pair, other in zip(compared.document["runs"][1:], compared.pairs, found[1:], strict=True):
        drawn = view.gallery(dataset, found[0], other, load).changes(pair.changes, len(pair.changes))
        folder = images if len(found) == 2 else images / run["id"]
        names = write_changes(drawn, folder)
        run["changes"] = [{**change.as_json(), "file": str(folder / name)} for change, name in zip(drawn, names, strict=True)]


def _sides(sources: Sequence[str], progress: Progress) -> list[_Compared]:
    """Results of all sources; those of one store run together, on images that are decoded once."""
    found: dict[int, _Compared] = {}
    trials: dict[Path, list[int]] = {}
    for place, source in enumerate(sources):
        path = split_source(source)[0]
        if is_store(path):
            trials.setdefault(path.resolve(), []).append(place)
        else:
            found[place] = (read_result(path), None)
    for places in trials.values():
        configurations = [find_configuration(sources[place]) for place in places]
        found.update(zip(places, _run_again(configurations, progress), strict=True))
    return [found[place] for place in range(len(sources))]


def _run_again(configurations: Sequence[StoredConfiguration], progress: Progress) -> list[_Compared]:
    machine = Machine(reopen(configurations[0].document, configurations[0].output))
    bench = machine.bench
    with progress("images", len(bench.inputs)) as advance:
        outcomes = run_plans(bench, [machine.plan(found.key) for found in configurations], advance)
    sides: list[_Compared] = []
    turns = measure_in_turn(bench, {outcome.plan.precision.key: outcome.plan for outcome in outcomes})
    for found, outcome in zip(configurations, outcomes, strict=True):
        document = build_document(
            bench, outcome, baseline=outcomes[0], command="mpnet compare", latency=turns.latency(outcome.plan.precision.key)
        )
        if found.held_out:
            chose = {name: found.values[name] for name in found.held_out if name in found.values}
            document["selection"], document["held_out"] = chose, found.held_out
        sides.append((Result(found.store or Path(), document), outcome.found))
    return sides
