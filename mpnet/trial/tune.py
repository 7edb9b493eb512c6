# SPDX-License-Identifier: MIT
"""The story of `mpnet tune`: from a configuration and images without labels to weights that lose less, or to nothing at all.

A part of the images tunes. The others are kept apart: on them mpnet's own runs judge every stage, and what does not gain there
(the paired 95 % interval of the gain in agreement lies above 0) is thrown away.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Sequence

import numpy as np

from mpnet import __version__
from mpnet.config.experiment import Experiment, QuantizationSection
from mpnet.config.identity import digest_of
from mpnet.data.dataset import Dataset, ImageRecord
from mpnet.detection.images import image
from mpnet.engine.options import resolve_options
from mpnet.engine.session import Session
from mpnet.errors import ConfigError, DataError, EngineError
from mpnet.evaluation.compare import Interval
from mpnet.formats.documents.experiment_text import experiment_text
from mpnet.formats.documents.typed import as_json
from mpnet.formats.files.atomic import check_writable, write_files
from mpnet.formats.images.orientation import is_turned
from mpnet.formats.images.unlabelled import read_unlabelled
from mpnet.formats.weights import weights_content
from mpnet.json_values import JsonObject
from mpnet.messages import few
from mpnet.model.quantization import NarrowOptions, QuantizationOptions, WeightOptions
from mpnet.packages import require, requirements, version_of
from mpnet.progress import Progress, silent
from mpnet.quantization.equalise import FoldedConvolution
from mpnet.trial.calibration import calibrated
from mpnet.trial.experiment import open_workbench
from mpnet.trial.inference import own_runner, run_all
from mpnet.trial.inputs import Inputs
from mpnet.trial.kit import Predictions
from mpnet.trial.setup import Calibration
from mpnet.trial.workbench import Workbench
from mpnet.tuning.layerwise import corrected_layers, images_that_fit
from mpnet.tuning.record import TUNING_RECORD, StageResult, TuningRecord, read_tuning
from mpnet.tuning.write import tuned_weights

if TYPE_CHECKING:
    from mpnet.tuning.torch_network import TorchNetwork

CHANNELS, END_TO_END = "channels", "end-to-end"
LEAST_IMAGES = 8
"""With fewer, a part of them neither tunes nor judges."""
_CHANNEL_IMAGES = 48
_WATCHED_IMAGES = 40
"""Of those that tune, at most: they choose the best state of a training instead."""
_NEARLY_ALL = 99.95
"""Percent of agreement from which on no gain could be told from none."""


@dataclass(frozen=True)
class TuneOptions:
    """Options of a tuning.

    stages:  by name, in the order of STAGES; (): all that can run here.
    images:  the first so many of the images, None: all. apart: the share of them that judges and does not tune.
    minutes: most wall time of a stage that goes on until it is told to stop. seed: of everything random.
    steps:   most steps of a training, None: as many as the minutes have.
    """

    stages: tuple[str, ...] = ()
    images: int | None = 1000
    apart: float = 0.4
    minutes: float = 10.0
    steps: int | None = None
    seed: int = 0


@dataclass(frozen=True, eq=False)
class TuningImages:
    """Workbenches on the images that tune, and on those that judge. records: of all of them.

    reference, baseline: whose heads are the aim, and in which precision.
    """

    tuning: Workbench
    apart: Workbench
    records: tuple[ImageRecord, ...]
    reference: Workbench
    baseline: str


@dataclass(frozen=True, eq=False)
class Proposal:
    """The outcome of a stage, before it is judged.

    folded: every convolution, as it is to be quantised. quantization: how, in place of the experiment's own section.
    details: figures of the stage. is_interrupted: whether somebody stopped it, so that this is the best so far.
    """

    folded: dict[int, FoldedConvolution]
    quantization: QuantizationSection
    details: JsonObject = field(default_factory=dict)
    is_interrupted: bool = False


Stage = Callable[[Workbench, TuningImages, TuneOptions, Progress], Proposal]


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
    stages, notes = _chosen_stages(options)
    bench = open_workbench(experiment)
    if bench.options.integer_only:
        raise ConfigError(
            f"{experiment.source}: quantization.integer_only computes in whole numbers alone, which is not tuned; leave it out"
        )
    images = _split_images(bench, unlabelled, options)
    judge = _Judge(bench, images.apart, images.baseline)
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


def _chosen_stages(options: TuneOptions) -> tuple[dict[str, Stage], tuple[str, ...]]:
    """Return the stages to run, and what to say of those that cannot. Raises: ConfigError for one that was asked for."""
    for name in options.stages:
        if name not in STAGES:
            raise ConfigError(f"--stages: {name!r} is unknown; known are {', '.join(STAGES)}")
    chosen = {name: stage for name, stage in STAGES.items() if not options.stages or name in options.stages}
    if END_TO_END not in chosen:
        return chosen, ()
    try:
        require(f"stage {END_TO_END}", requirements("torch"), "tune")
    except ConfigError as error:
        if options.stages:
            raise
        del chosen[END_TO_END]
        return chosen, (str(error),)
    return chosen, ()


def _split_images(bench: Workbench, unlabelled: Path, options: TuneOptions) -> TuningImages:
    """Read the images and divide them. Raises: DataError for too few; ConfigError for some that the experiment evaluates."""
    data = bench.experiment.data
    assert data is not None
    records = read_unlabelled(unlabelled, is_turned(data.orientation, data.format), options.images)
    dataset = Dataset.of((), bench.dataset.categories, ()).with_unlabelled(records, options.images)
    judging = {record.sha256 for record in bench.dataset.images}
    shared = [Path(record.path).name for record in dataset.images if record.sha256 in judging]
    if shared:
        raise ConfigError(
            f"{unlabelled}: {len(shared)} of its {len(dataset.images)} images are among those that {bench.experiment.source} "
            f"evaluates, and what tunes cannot judge: {few(shared)}; tune on others"
        )
    if len(dataset.images) < LEAST_IMAGES:
        raise DataError(
            f"{unlabelled}: has {len(dataset.images)} images; tuning takes at least {LEAST_IMAGES}, better hundreds"
        )
    order = sorted(range(len(dataset.images)), key=lambda i: _drawn(dataset.images[i].sha256, options.seed))
    count = min(max(2, math.ceil(options.apart * len(order))), len(order) - 4)
    inputs = Inputs(dataset.images, bench.network, bench.experiment.detection.fitted, image, workers=bench.threads)
    inputs.check()
    whole = replace(bench, dataset=dataset, inputs=inputs, parent=None)
    tuning, apart = _positions(whole, order[count:]), _positions(whole, order[:count])
    return TuningImages(tuning, apart, dataset.images, bench.reference, bench.experiment.baseline or "fp32")


def _drawn(digest: str, seed: int) -> str:
    return hashlib.sha256(f"{seed} {digest}".encode()).hexdigest()


def _positions(bench: Workbench, positions: Sequence[int]) -> Workbench:
    ordered = sorted(positions)
    return replace(bench, dataset=bench.dataset.subset(ordered), inputs=bench.inputs.of(ordered))


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


class _Judge:
    """The judge of stages: mpnet's own runs on the images apart, each made once."""

    def __init__(self, parent: Workbench, apart: Workbench, baseline: str) -> None:
        self._apart = apart
        self._baseline = baseline
        self._runs: dict[tuple[str, str], tuple[Predictions, Predictions]] = {}
        reference = parent.reference
        self.reference: Predictions = self._run(reference)[1]
        self._meter = apart.kit.meter(apart.dataset, self.reference)
        self.measure = apart.kit.task.agreement

    def check(self, unlabelled: Path) -> None:
        """Check that there is something to agree with. Raises: DataError."""
        if self._value(self.reference) < 0:
            raise DataError(
                f"{unlabelled}: the {self._baseline} network finds nothing on the {len(self._apart.inputs)} images that are "
                "kept apart, so no gain could be seen; name images of what it finds"
            )

    def _run(self, bench: Workbench) -> tuple[Predictions, Predictions]:
        """Return what the configuration and the baseline of a workbench find on the images apart."""
        key = (bench.weights.digest, digest_of(bench.quantization))
        if key not in self._runs:
            plans = [bench.plan(bench.assign()), bench.plan(bench.uniform(self._baseline))]
            here = replace(bench, dataset=self._apart.dataset, inputs=self._apart.inputs)
            here.__dict__["prepared"] = bench.prepared
            first, second = run_all(here, [own_runner(bench.prepared, plan) for plan in plans])
            self._runs[key] = first.predictions, second.predictions
        return self._runs[key]

    def _value(self, predictions: Predictions) -> float:
        return float(self._meter.values(predictions, (self.measure,))[self.measure])

    def agreement(self, bench: Workbench) -> float:
        """Return the agreement of a configuration with the parent's baseline, percent."""
        return self._value(self._run(bench)[0])

    def own_baseline(self, bench: Workbench) -> float:
        """Return the agreement of the weights' own baseline with the parent's, percent."""
        return self._value(self._run(bench)[1])

    def gain(self, before: Workbench, after: Workbench) -> Interval:
        """Return how much more the second configuration agrees, with its paired 95 % interval."""
        found: Interval = self._apart.kit.gain(self._apart.dataset, self.reference, self._run(before)[0], self._run(after)[0])
        return found


def _record(
    bench: Workbench,
    tuned: Workbench,
    judge: _Judge,
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


def with_options(section: QuantizationSection, changes: QuantizationOptions) -> QuantizationSection:
    """Return a section whose options say something of all layers, whatever they say of single ones."""
    layers = tuple((selector, options.overlaid(changes)) for selector, options in section.layers)
    return QuantizationSection(section.options.overlaid(changes), layers)


def _without_equalisation(bench: Workbench) -> QuantizationSection:
    """Return the section under which folded weights are quantised as they are: their channels are equalised already."""
    section = bench.experiment.quantization
    if bench.options.equalise is False:
        return section
    return with_options(section, QuantizationOptions(equalisation=False))


def _tune_channels(bench: Workbench, images: TuningImages, options: TuneOptions, progress: Progress) -> Proposal:
    """Fit a scale and a bias of each channel, layer by layer."""
    inputs = images.tuning.inputs
    count = images_that_fit(bench.network, min(_CHANNEL_IMAGES, len(inputs)))
    batches = [np.array(batch.x) for batch in inputs.batches(bench.experiment.runtime.batch, range(count))]
    with progress("layers", len(bench.network.layers)) as advance:
        folded = corrected_layers(bench.prepared, bench.weights, bench.assign(), bench.options, batches, bench.threads, advance)
    return Proposal(folded, _without_equalisation(bench), {"images": count})


def _train(bench: Workbench, images: TuningImages, options: TuneOptions, progress: Progress) -> Proposal:
    """Train the quantised network against the heads of the reference's baseline, by PyTorch."""
    from mpnet.tuning.end_to_end import Schedule, train  # brings torch
    from mpnet.tuning.torch_network import TorchNetwork

    inputs, reference = images.tuning.inputs, images.reference
    network = TorchNetwork(bench.prepared, bench.assign(), bench.options)
    session = Session(reference.prepared, reference.plan(reference.uniform(images.baseline)), bench.threads)
    order = sorted(range(len(inputs)), key=lambda i: _drawn(inputs.records[i].sha256, options.seed + 1))
    count = max(1, min(_WATCHED_IMAGES, len(order) // 6))
    schedule = Schedule(options.minutes, options.steps, options.seed, bench.threads)
    with progress("percent of the training", 100) as advance:
        trained = train(
            bench.network,
            network,
            session.forward,
            lambda positions: inputs.take(positions).x,
            sorted(order[count:]),
            sorted(order[:count]),
            schedule,
            advance,
        )
    section = _without_equalisation(bench)
    return Proposal(trained.folded, with_options(section, _as_trained(network)), trained.details, trained.is_interrupted)


def _as_trained(network: TorchNetwork) -> QuantizationOptions:
    """Return the options under which weights become the codes that were trained, and biases stay as they are."""
    fixed = [layer.scheme.bits for layer in network.convolutions.values() if layer.is_fixed and layer.scheme is not None]
    return QuantizationOptions(
        bias_correction=False,
        weights=WeightOptions(method="min_max", rounding="half_to_even") if 8 in fixed else WeightOptions(),
        narrow=NarrowOptions(method="min_max", rounding="nearest", bias_correction=False),
    )


STAGES: dict[str, Stage] = {CHANNELS: _tune_channels, END_TO_END: _train}
"""In the order in which they run."""
