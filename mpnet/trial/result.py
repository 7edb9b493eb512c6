# SPDX-License-Identifier: MIT
"""Results: what an outcome says as result.json, folders of them that appear whole or not at all, and reading them."""

from __future__ import annotations

import json
import math
import os
import re
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import Mapping

from mpnet.config.identity import ID_DIGITS, TrialIdentity
from mpnet.config.measures import AGREEMENT, names_of
from mpnet.engine.cost import layer_costs, plan_cost
from mpnet.errors import StoreError
from mpnet.formats.documents.typed import as_json, build
from mpnet.formats.files.atomic import recover, write_folder, write_link
from mpnet.formats.files.foreign import foreign_model
from mpnet.json_values import Json
from mpnet.kernels.environment import versions
from mpnet.model.plan_words import PlanWords
from mpnet.model.task import Task, task_of_protocol
from mpnet.speed.latency import Latency, doubt_of, layer_ms
from mpnet.tables import Chart, Table, Tabular, columns_of, layer_table
from mpnet.trial.identity import calibration_images, identity_of, notes_of, protocol_of
from mpnet.trial.inference import Outcome
from mpnet.trial.run_result import RUN_RESULT, Precisions, RunResult
from mpnet.trial.workbench import Workbench

RESULT_FILE = "result.json"
LATEST = "latest"
_ID = re.compile(rf"[0-9a-f]{{{ID_DIGITS}}}\Z")


@dataclass(frozen=True)
class Result(Tabular):
    """A finished run. folder: where it is stored. run: what its result.json holds."""

    folder: Path
    run: RunResult

    @cached_property
    def document(self) -> dict[str, Json]:
        """Return the whole of result.json, as docs/architecture.md describes it."""
        return {**RUN_RESULT.head, **as_json(self.run)}

    @property
    def name(self) -> str:
        """Return the experiment's name."""
        return self.run.name

    @property
    def id(self) -> str:
        """Return the first 16 hex digits of the trial's digest."""
        return self.run.id

    @property
    def metrics(self) -> Mapping[str, float]:
        """Return AP, AP50, AP75, AR100, darknet_mAP50, ... in percent; -1 where nothing could be measured."""
        return self.run.metrics

    @property
    def words(self) -> str:
        """Return the precisions for people: `int8, but fp16 in heads`."""
        weighted = (layer for layer in self.run.precision.layers if layer.parameters)
        return PlanWords.of((layer.name or layer.type, layer.selectors) for layer in weighted)(self.run.precision.key)

    @property
    def task(self) -> Task:
        """Return what the network is for."""
        return task_of_protocol(self.run.protocol)

    @property
    def measures(self) -> dict[str, float]:
        """Return the accuracy by names of measures, agreement with the baseline among them; percent."""
        stored = {} if self.run.agreement is None else self.run.agreement.values
        agreement = {AGREEMENT + name: value for name, value in stored.items()}
        values = {**self.metrics, **{name: agreement[name] for name in names_of("agreement") if name in agreement}}
        return {name: float(value) for name, value in values.items() if value is not None and value >= 0}

    @property
    def table(self) -> Table:
        """Return one row a measure, agreement with the baseline among them."""
        measures = self.measures
        title = f"{self.name}, {self.words}"
        return Table({"measure": list(measures), "percent": list(measures.values())}, title, Chart("percent", "measure"))

    @property
    def layers(self) -> Table:
        """Return one row a layer: what it is, its precision, and what it costs; milliseconds where they can be believed."""
        latency = self.run.latency
        rows = [as_json(layer) for layer in self.run.precision.layers]
        return layer_table(rows, self.name, None if doubt_of(latency) else layer_ms(latency))

    @property
    def classes(self) -> Table:
        """Return one row a class: how often it is labelled, and its measures in percent."""
        quality = self.task.quality
        rows = [{**as_json(row), **({quality: math.nan} if row.values[quality] < 0 else {})} for row in self.run.per_class]
        return Table(columns_of(rows), f"{self.name}: {quality} by class", Chart(quality, "name"))

    @property
    def predictions_path(self) -> Path:
        """Return the file with what the network says of the images: detections in COCO results format, or the best classes."""
        return self.folder / self.task.file


def run_result_of(
    bench: Workbench,
    outcome: Outcome,
    *,
    baseline: Outcome | None,
    command: str,
    identity: TrialIdentity | None = None,
    latency: Latency | None,
) -> RunResult:
    """Return the result of one outcome.

    baseline: what it is compared with. command: the command line, for the record.
    identity: of an outcome of another engine; None: mpnet's own. latency: None where nothing was timed.
    """
    identity = identity or identity_of(bench, outcome.plan.precision)
    kit, dataset = bench.kit, bench.dataset
    metrics, per_class = kit.measure(outcome.predictions, dataset)
    agreement = None
    compared = None if baseline is None else identity_of(bench.reference, baseline.plan.precision).id
    if baseline is not None and compared is not None and compared != identity.id:
        agreement = kit.agreement(baseline.predictions, outcome.predictions, dataset, compared, outcome.head_sqnr_db)
    return RunResult(
        name=bench.experiment.name,
        id=identity.id,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        command=command,
        digests=identity.digests(),
        protocol=protocol_of(bench),
        precision=Precisions(outcome.plan.precision.key, layer_costs(outcome.plan)),
        metrics=metrics,
        agreement=agreement,
        per_class=tuple(per_class),
        cost=plan_cost(outcome.plan),
        latency=latency,
        versions=versions(),
        sources=dict(bench.sources),
        calibration=calibration_images(bench, outcome.plan.precision.of_weights),
        notes=tuple(notes_of(bench, outcome.plan.precision.of_weights)),
    )


def publish(run: RunResult, predictions: bytes, folder: Path) -> Result:
    """Write result.json and the predictions (`Result.predictions_path`) into `folder`, which appears complete or not at all.

    A result that is there already is replaced. Raises: StoreError naming the folder when it cannot be written.
    """
    result = Result(folder, run)
    text = json.dumps(result.document, indent=1, ensure_ascii=True, allow_nan=False) + "\n"
    write_folder(folder, {result.task.file: predictions, RESULT_FILE: text.encode()})
    return result


def republish(result: Result) -> Result:
    """Write a result that was changed anew, with the detections that it has. Raises: StoreError as `publish`."""
    try:
        predictions = result.predictions_path.read_bytes()
    except OSError as error:
        raise StoreError(f"{result.predictions_path}: cannot be read ({error.strerror}); run the experiment again") from None
    return publish(result.run, predictions, result.folder)


def mark_latest(folder: Path) -> None:
    """Let the link `latest` beside a result point to it, so that its experiment's folder stands for it.

    Raises: StoreError when the link cannot be made.
    """
    write_link(folder.parent / LATEST, folder.name)


def finished(folder: Path) -> Result | None:
    """Return the result in `folder`, or None when there is none. Raises: StoreError for a damaged one."""
    recover(folder)
    return read_result(folder) if (folder / RESULT_FILE).is_file() else None


def read_result(path: str | Path) -> Result:
    """Read a result: its folder, its result.json, or the experiment's folder, meaning its only or latest result.

    Raises: StoreError when there is none, it is unclear which, or it is damaged.
    """
    path = Path(path)
    folder = path.parent if path.name == RESULT_FILE else path
    if not folder.exists():
        recover(folder)
    if not (folder / RESULT_FILE).is_file():
        folder = _only_result(folder)
    file = folder / RESULT_FILE
    result = Result(folder, build(RunResult, RUN_RESULT.read(file)))
    for row in result.run.per_class:
        if result.task.quality not in row.values:
            raise RUN_RESULT.damaged(file, f"per_class: {result.task.quality} of {row.name[:40]!r} is missing")
    return result


def holds_result(path: Path) -> bool:
    """Return whether a path is a result, or a folder of some."""
    try:
        return (
            path.name == RESULT_FILE
            or (path / RESULT_FILE).is_file()
            or any(_ID.match(entry.name) and (entry / RESULT_FILE).is_file() for entry in path.iterdir())
        )
    except (OSError, ValueError):
        return False


def _only_result(folder: Path) -> Path:
    try:
        results = sorted(entry for entry in folder.iterdir() if _ID.match(entry.name) and (entry / RESULT_FILE).is_file())
    except (OSError, ValueError):
        results = []
    if len(results) == 1:
        return results[0]
    latest = folder / LATEST
    if results and latest.is_symlink() and (folder / os.readlink(latest)) in results:
        return folder / os.readlink(latest)
    if results:
        names = ", ".join(entry.name for entry in results[:8])
        raise StoreError(f"{folder}: holds {len(results)} results ({names}); name one of them")
    foreign = foreign_model(folder) if folder.is_file() else ""
    missing = "holds no result; name a folder that `mpnet run` wrote, such as runs/<name>/<id>"
    raise StoreError(f"{folder}: {foreign or missing}")
