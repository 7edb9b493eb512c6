# SPDX-License-Identifier: MIT
"""The story of `mpnet tune`: from a configuration and images without labels to weights that lose less, or to nothing at all.

A part of the images tunes. The others are kept apart: on them mpnet's own runs judge every stage, and what does not gain there
(the paired 95 % interval of the gain in agreement lies above 0) is thrown away.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Sequence

from mpnet import __version__
from mpnet.config.experiment import Experiment
from mpnet.engine.options import resolve_options
from mpnet.errors import ConfigError, EngineError
from mpnet.evaluation.compare import Interval
from mpnet.formats.documents.experiment_text import experiment_text
from mpnet.formats.documents.typed import as_json
from mpnet.formats.files.atomic import check_writable, write_files
from mpnet.formats.weights import weights_content
from mpnet.json_values import JsonObject
from mpnet.packages import version_of
from mpnet.progress import Progress, silent
from mpnet.trial.calibration import calibrated
from mpnet.trial.experiment import open_workbench
from mpnet.trial.setup import Calibration
from mpnet.trial.tuning_images import TuneOptions, TuningImages, split_images
from mpnet.trial.tuning_judge import Judge
from mpnet.trial.tuning_stages import Proposal, chosen_stages
from mpnet.trial.workbench import Workbench
from mpnet.tuning.record import TUNING_RECORD, StageResult, TuningRecord, read_tuning
from mpnet.tuning.write import tuned_weights

_NEARLY_ALL = 99.95
"""Percent of agreement from which on no gain could be told from none."""


@dataclass(frozen=True, eq=False)
class TuneReport:
    """record: what was done and gained. experiment, weights, document: the written files, None where nothing was gained.

    notes: what the user should know, a line each. is_interrupted: whether somebody stopped it.
    """

    record: TuningRecord
    experiment: Path | None
    weights: Path | None
    document: Path | None
    notes: tuple[str, ...] = ()
    is_interrupted: bool = False

    def as_json(self) -> JsonObject:
        """Return everything but the images' digests; `files` names what was written, null where nothing was."""
        paths = {"experiment": self.experiment, "weights": self.weights, "record": self.document}
        record = {name: value for name, value in as_json(self.record).items() if name != "images"}
        files = {name: None if path is None else str(path) for name, path in paths.items()}
        return {"kept": self.experiment is not None, "files": files, "notes": list(self.notes), **record}


def tune_experiment(
    experiment: Experiment,
    unlabelled: Path,
    target: Path,
    options: TuneOptions = TuneOptions(),  # noqa: B008 (frozen)
    *,
    command: str = "",
    progress: Progress = silent,
) -> TuneReport:
    """Tune the weights of an experiment's configuration on images without labels, and write what gained.

    unlabelled: a folder, a list of paths or a video; none of its images may be among those that the experiment evaluates.
    target:     the experiment file to be written, with weights and record of the same stem beside it; none may be there.
    Raises: ConfigError, DataError, FormatError, EngineError, StoreError, each one line. KeyboardInterrupt where nothing was
    gained before somebody stopped it; later it ends the tuning, and what was gained is written.
    """
    files = _Files.beside(target)
    stages, notes = chosen_stages(options)
    bench = open_workbench(experiment)
    if bench.options.integer_only:
        raise ConfigError(
            f"{experiment.source}: quantization.integer_only computes in whole numbers alone, which is not tuned; leave it out"
        )
    images = split_images(bench, unlabelled, options)
    judge = Judge(bench, images.apart, images.baseline)
    judge.check(unlabelled)
    current, results, interrupted = bench, list[StageResult](), False
    for name, stage in stages.items():
        if judge.agreement(current) >= _NEARLY_ALL:
            break
        try:
            started = time.monotonic()
            proposal = stage(current, images, options, progress)
            seconds = time.monotonic() - started
            candidate = _with_proposal(current, proposal)
            interval = judge.gain(current, candidate)
        except KeyboardInterrupt:
            if current is bench:
                raise
            interrupted = True
            break
        except (EngineError, ConfigError) as error:
            results.append(StageResult(name, False, 0.0, 0.0, 0.0, judge.agreement(current), 0.0, {}, str(error)))
            continue
        kept = interval.low > 0
        results.append(
            StageResult(
                name,
                kept,
                *(interval.difference, interval.low, interval.high),
                judge.agreement(candidate),
                round(seconds, 1),
                proposal.details,
            )
        )
        current = candidate if kept else current
        if kept and proposal.is_equivalent:
            images = replace(images, aim=candidate)
        interrupted = proposal.is_interrupted
        if interrupted:
            break
    record = _record(bench, current, judge, images, options, results, command)
    if current is bench:
        if interrupted:
            raise KeyboardInterrupt
        return TuneReport(record, None, None, None, notes, interrupted)
    files.write(_experiment_of(current, bench, files), current, record)
    return TuneReport(record, files.experiment, files.weights, files.document, notes, interrupted)


@dataclass(frozen=True)
class _Files:
    """The files of a tuning, beside one another."""

    experiment: Path
    weights: Path
    document: Path

    @classmethod
    def beside(cls, target: Path) -> _Files:
        """Return the files of an experiment file to be written. Raises: ConfigError where one of them is there already."""
        if target.suffix not in (".yaml", ".yml"):
            raise ConfigError(f"{target}: what is written is an experiment file; give -o a name that ends in .yaml")
        files = cls(target, target.with_suffix(".weights"), target.with_suffix(".json"))
        for path in (files.experiment, files.weights, files.document):
            if os.path.lexists(path):
                raise ConfigError(f"{path}: is there already, and nothing is overwritten; give -o another name, or remove it")
            check_writable(path, is_folder=False)
        return files

    def write(self, experiment: Experiment, bench: Workbench, record: TuningRecord) -> None:
        """Write all three, or none. Raises: StoreError."""
        head = "# Written by `mpnet tune`; what the weights were made of: " + self.document.name + "\n"
        text = head + experiment_text(experiment, self.experiment.absolute().parent)
        document = json.dumps({**TUNING_RECORD.head, **as_json(record)}, indent=1, allow_nan=False) + "\n"
        write_files(
            {
                self.weights: weights_content(bench.weights, bench.network),
                self.document: document.encode(),
                self.experiment: text.encode("utf-8", "backslashreplace"),
            }
        )


def _with_proposal(bench: Workbench, proposal: Proposal) -> Workbench:
    """Return the workbench with a stage's weights and options, calibrated anew."""
    network, section = bench.network, proposal.quantization
    return calibrated(
        replace(
            bench,
            experiment=replace(bench.experiment, quantization=section),
            weights=tuned_weights(network, bench.weights, proposal.folded, bench.options.batch_norm),
            options=resolve_options(network, section.options, section.layers, batch_norm=bench.options.batch_norm),
            calibration=Calibration(),
        )
    )


def _record(
    bench: Workbench,
    tuned: Workbench,
    judge: Judge,
    images: TuningImages,
    options: TuneOptions,
    stages: Sequence[StageResult],
    command: str,
) -> TuningRecord:
    gain = Interval(0.0, 0.0, 0.0) if tuned is bench else judge.gain(bench, tuned)
    model = bench.experiment.model
    earlier = () if model.tuning is None else read_tuning(model.tuning).images
    return TuningRecord(
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        command=command,
        mpnet=__version__,
        cfg=bench.network.digest,
        parent=bench.reference.weights.digest,
        weights=tuned.weights.digest,
        precision=bench.assign().key,
        measure=judge.measure,
        options={
            "stages": [stage.stage for stage in stages],
            "apart": options.apart,
            "minutes": options.minutes,
            "steps": options.steps,
            "seed": options.seed,
            "torch": version_of("torch"),
        },
        tuned_on=len(images.tuning.inputs),
        apart=len(images.apart.inputs),
        agreement_before=judge.agreement(bench),
        agreement_after=judge.agreement(tuned),
        gain=gain.difference,
        low=gain.low,
        high=gain.high,
        own_fp32=judge.own_baseline(tuned),
        stages=tuple(stages),
        images=tuple(sorted({record.sha256 for record in images.records} | set(earlier))),
    )


def _experiment_of(tuned: Workbench, bench: Workbench, files: _Files) -> Experiment:
    """Return the experiment that runs the tuned weights beside their parent's baseline."""
    experiment = bench.experiment
    model = experiment.model
    return replace(
        experiment,
        name=f"{experiment.name[:94]}-tuned",
        model=replace(model, weights=files.weights, parent=model.parent or model.weights, tuning=files.document),
        quantization=tuned.experiment.quantization,
    )
