# SPDX-License-Identifier: MIT
"""An experiment: one network, one data set, one protocol, a precision per layer and perhaps a sweep. Frozen, no I/O.

Each field says what its key in an experiment file may hold; `formats.documents.experiment` reads files by that, and
docs/experiments.md lists every key.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Mapping

from mpnet.config.backends import CPU, GPU, REFERENCE
from mpnet.config.limits import MAX_THREADS
from mpnet.config.measures import DROP, droppable, limits, objectives
from mpnet.config.protocol import BATCH_NORMS, DIALECTS, NMS_KINDS, ORIENTATIONS, RESIZES
from mpnet.model.keys import Key, flag, inline, integer, number, path, section, selectors, text, word
from mpnet.model.precision import PRECISIONS
from mpnet.model.quantization import NO_OPTIONS, QuantizationOptions
from mpnet.model.task import TASKS
from mpnet.packages import module_names

LABEL_KEYS: dict[str, str | None] = {
    "yolo": "labels",
    "coco": "annotations",
    "imagefolder": None,
    "list": "labels",
    "darknet": "labels",
    "ultralytics": "labels",
}
"""Formats of data, and the key that names the labels; None: folders do."""
LISTED: tuple[str, ...] = ("darknet", "ultralytics")
"""Those whose file names the images as well, and may name the classes."""
DATA_FORMATS: tuple[str, ...] = tuple(name for task in TASKS.values() for name in task.formats)
STRATEGIES: tuple[str, ...] = module_names(Path(__file__).parents[1] / "sweep" / "search" / "strategies")
"""One file each."""
SAMPLERS: tuple[str, ...] = ("nsga2", "tpe")
OWN_BACKENDS: tuple[str, ...] = ("mpnet",)
DEFAULT_OUTPUT = Path("runs")
HOLDOUT, MANY_IMAGES = 0.6, 200
"""What a sweep holds out when nobody says, and the images from which luck in choosing is small beside that of having
these images at all."""
MAX_IMAGES = 10_000_000


@dataclass(frozen=True)
class ModelSection:
    """Files of a network.

    dialect:    whose program's ways to follow where the two differ; auto: by what the cfg uses.
    batch_norm: the formula (docs/engine.md); auto: the dialect's.
    parent:     weights of the same cfg whose baseline is the reference of agreement, None: these weights' own.
    tuning:     the record of `mpnet tune` that made the weights of the parent; its images may not judge them.
    """

    cfg: Path = field(metadata=path())
    weights: Path = field(metadata=path())
    names: Path | None = field(default=None, metadata=path())
    batch_norm: str = field(default="auto", metadata=word(BATCH_NORMS))
    dialect: str = field(default="auto", metadata=word(DIALECTS))
    parent: Path | None = field(default=None, metadata=path())
    tuning: Path | None = field(default=None, metadata=path())


@dataclass(frozen=True)
class CalibrationSection:
    """Images for calibration: `count` of the folder `images`, None: of the data's own, drawn with `seed`."""

    images: Path | None = field(default=None, metadata=path())
    count: int = field(default=32, metadata=integer(1, MAX_IMAGES))
    seed: int = field(default=0, metadata=integer(0))


@dataclass(frozen=True)
class DataSection:
    """Labelled images, and images without labels.

    format yolo: `labels` holds one text file per image; coco: `annotations` is an instances JSON. For classifiers:
    imagefolder: `images` holds a folder per class; list: `labels` is a text file of paths with a class.
    darknet, ultralytics: `labels` is a .data or a list of images, or a data.yaml; `images`, None: found from there, is the
    folder that its paths count from.
    limit: use the first so many images in order of their names (imagefolder: of every class in turn; list: of its
           lines); None: all.
    unlabelled_limit: the same of the images without labels, of a video of the frames that are taken; None: as limit.
    unlabelled: images that nobody has labelled: a folder, a text file with one path a line, or a video. Agreement and what
           follows from it are measured on them as well; accuracy is not. With them alone there is no format ('').
    condition: what the images are put through before they are evaluated, such as `fog` or `fog:4` (detection.conditions);
           calibration sees them as they are. None: nothing.
    orientation: `stored`: images as they are stored, `exif`: as EXIF turns them. None: as the program does whose format it is,
           Ultralytics exif, all others stored.
    """

    format: str = field(default="", metadata=word(DATA_FORMATS))
    images: Path | None = field(default=None, metadata=path())
    labels: Path | None = field(default=None, metadata=path())
    annotations: Path | None = field(default=None, metadata=path())
    limit: int | None = field(default=None, metadata=integer(1, MAX_IMAGES))
    calibration: CalibrationSection = field(default=CalibrationSection(), metadata=section(CalibrationSection))
    unlabelled: Path | None = field(default=None, metadata=path())
    unlabelled_limit: int | None = field(default=None, metadata=integer(1, MAX_IMAGES))
    condition: str | None = field(default=None, metadata=text())
    orientation: str | None = field(default=None, metadata=word(ORIENTATIONS))


@dataclass(frozen=True)
class DetectionSection:
    """Options of the way from images to the network, and from head tensors to boxes.

    resize:         None: as networks of the task take them (model.task).
    confidence:     boxes are kept if above.
    nms, nms_kind:  threshold of overlap within a class, and its measure; None: as the cfg says.
    max_detections: the best so many of each image, None: all.
    deployed:       score threshold in use, at which `mpnet run` counts errors; None: the one with the baseline's best F1.
    """

    resize: str | None = field(default=None, metadata=word(RESIZES))
    confidence: float = field(default=0.005, metadata=number(0, 1))
    nms: float = field(default=0.45, metadata=number(0, 1))
    nms_kind: str | None = field(default=None, metadata=word(NMS_KINDS))
    max_detections: int | None = field(default=None, metadata=integer(1, 100_000))
    deployed: float | None = field(default=None, metadata=number(0, 1))

    @property
    def fitted(self) -> str:
        """Return `resize` of an experiment whose network is known (trial.task.for_task)."""
        assert self.resize is not None
        return self.resize


@dataclass(frozen=True)
class PrecisionSection:
    """A precision per layer.

    default: for layers whose cfg section declares none.
    layers:  (selector, precision) pairs over the cfg, later ones win.
    """

    default: str | None = field(default=None, metadata=word(tuple(PRECISIONS)))
    layers: tuple[tuple[str, str], ...] = field(default=(), metadata=selectors(word(tuple(PRECISIONS))))


@dataclass(frozen=True)
class QuantizationSection:
    """options: for all layers, over the cfg; layers: (selector, options) pairs over those, later ones win."""

    options: QuantizationOptions = field(default=NO_OPTIONS, metadata=inline(QuantizationOptions))
    layers: tuple[tuple[str, QuantizationOptions], ...] = field(default=(), metadata=selectors(section(QuantizationOptions)))


@dataclass(frozen=True)
class OptionRange:
    """One quantisation option that a sweep varies.

    path: such as `activations.percentile`; values: as written;
    options: the same values, parsed, each saying that one thing only.
    """

    path: str
    values: tuple[str, ...]
    options: tuple[QuantizationOptions, ...]


AUTO_TIES = (("auto",),)
"""`tied: auto`: layers that a recipe can only name together."""

BLOCK_TIES = (("blocks",),)
"""`tied: blocks`: layers of one block of the model that the network came from."""


@dataclass(frozen=True)
class SpaceSection:
    """The precisions and layers that a sweep may choose from.

    layers: (selector, precisions) pairs over `sweep.precisions`, later ones win; a single precision pins a layer.
    tied:   groups of selectors; all layers of a group always have the same precision. AUTO_TIES and BLOCK_TIES: those that the
            network has.
    quantization: options to vary besides.
    target: a target file, by its name or path, whose limits and ties hold besides; None: mpnet's own arithmetic has none.
    tuned:  an experiment that `mpnet tune` wrote, whose weights and options are one more choice; None: the network's alone.
    """

    layers: tuple[tuple[str, tuple[str, ...]], ...] = field(default=(), metadata=selectors(word(tuple(PRECISIONS), many=True)))
    tied: tuple[tuple[str, ...], ...] = field(default=(), metadata={"key": Key("groups")})
    quantization: tuple[OptionRange, ...] = field(default=(), metadata={"key": Key("options")})
    target: str | None = field(default=None, metadata=text())
    tuned: Path | None = field(default=None, metadata=path())


@dataclass(frozen=True)
class ConstraintSection:
    """Limits that a chosen configuration must keep.

    ap_drop: in AP points; ap_drop_relative: share of the baseline's AP; drops: of other measures of accuracy, each in
    its own unit, by key (`agreement_AP_drop`); at_most: of costs by name.
    """

    ap_drop: float | None = field(default=None, metadata=number(0, 100))
    ap_drop_relative: float | None = field(default=None, metadata=number(0, 1))
    drops: Mapping[str, float] = field(
        default_factory=dict, metadata=inline({row.name + DROP: number(0) for row in droppable()})
    )
    at_most: Mapping[str, float] = field(
        default_factory=dict, metadata=inline({row.name: integer(1) if row.whole else number(0) for row in limits()})
    )

    def as_json(self) -> dict[str, float | None]:
        """Return every limit by its key in experiment files, None where there is none."""
        return {
            "ap_drop": self.ap_drop,
            "ap_drop_relative": self.ap_drop_relative,
            **self.drops,
            **{row.name: self.at_most.get(row.name) for row in limits()},
        }

    @property
    def drop_names(self) -> tuple[str, ...]:
        """Return the measures that `drops` limits."""
        return tuple(key.removesuffix(DROP) for key in self.drops)

    @property
    def measures(self) -> tuple[str, ...]:
        """Return all that is limited, by the measure's name."""
        ap = () if self.ap_drop is None and self.ap_drop_relative is None else ("AP",)
        return (*ap, *self.drop_names, *self.at_most)

    @property
    def on_accuracy(self) -> bool:
        """Return whether anything says how much accuracy may be lost."""
        return bool(self.drops) or not (self.ap_drop is None and self.ap_drop_relative is None)


@dataclass(frozen=True)
class MarginSection:
    """Most points that a choice called safe may lose. points: by measure; what is missing is `sweep.margins`' own."""

    points: Mapping[str, float] = field(
        default_factory=dict,
        metadata=inline({name: number(0, 100) for task in TASKS.values() for name in (task.agreement, task.quality)}),
    )


@dataclass(frozen=True)
class BudgetSection:
    """The end of a sweep: after so many trials, after so many seconds. None: when it is complete."""

    trials: int | None = field(default=None, metadata=integer(1))
    seconds: float | None = field(default=None, metadata=number(0))


@dataclass(frozen=True)
class VerifySection:
    """The verification of a sweep's configurations in another engine.

    engine: a backend's name, or several by preference; (): those of the experiment.
    front:  check the whole front; else only what the sweep chose.
    """

    engine: tuple[str, ...] = field(default=(), metadata=text(many=True))
    front: bool = field(default=True, metadata=flag())


@dataclass(frozen=True)
class SweepSection:
    """A search over precisions.

    precisions: the choices of every layer with weights, highest first.
    objectives: of the front; the first measure of accuracy ranks. (): as networks of the task have them (model.task).
    holdout:    share of the images that only reports figures and never selects, 0: none, None: HOLDOUT of fewer than
                MANY_IMAGES, and where some have no labels.
    sampler:    of strategy pareto: nsga2 or tpe.
    latency:    a table written by `mpnet profile`, None: no latency objective from a table.
    verify:     run what was found in another engine once the sweep has ended, None: do not.
    margin:     most that the pick `safe` may lose; max_loss: the same in the user's words, such as `3 agreement`, over it.
    max_time, max_bytes: limits to costs in the user's words, such as `1.2x` or `2MB`, which join the constraints.
    conditions: what the front is measured under besides, such as `fog` or `noise:5` (detection.conditions), (): nothing.
    latency_error: percent that the table's predictions may be off on average, None: as little as `mpnet profile` asks for.
    """

    strategy: str = field(metadata=word(STRATEGIES))
    precisions: tuple[str, ...] = field(default=("fp32", "int8"), metadata=word(tuple(PRECISIONS), many=True))
    space: SpaceSection = field(default=SpaceSection(), metadata=section(SpaceSection))
    objectives: tuple[str, ...] = field(default=(), metadata=word(objectives(), many=True))
    constraints: ConstraintSection = field(default=ConstraintSection(), metadata=section(ConstraintSection))
    budget: BudgetSection = field(default=BudgetSection(), metadata=section(BudgetSection))
    holdout: float | None = field(default=None, metadata=number(0, 0.95))
    seed: int = field(default=0, metadata=integer(0))
    sampler: str = field(default="nsga2", metadata=word(SAMPLERS))
    latency: Path | None = field(default=None, metadata=path())
    verify: VerifySection | None = field(default=None, metadata=section(VerifySection))
    latency_error: float | None = field(default=None, metadata=number(0))
    margin: MarginSection = field(default=MarginSection(), metadata=section(MarginSection))
    max_loss: str | None = field(default=None, metadata=text())
    max_time: str | None = field(default=None, metadata=text())
    max_bytes: str | None = field(default=None, metadata=text())
    conditions: tuple[str, ...] = field(default=(), metadata=text(many=True))

    def held_out(self, images: int, unlabelled: int = 0) -> float:
        """Return the share of so many images that only reports and tests; unlabelled: how many of them have no labels."""
        return self.holdout if self.holdout is not None else HOLDOUT if images < MANY_IMAGES or unlabelled else 0.0


@dataclass(frozen=True)
class RuntimeSection:
    """Options of execution; none of them changes a result.

    threads:  None: all cores. isa: auto, or the name of a kernel table. device: auto, cpu, opencl or opencl:N, cuda or cuda:N.
    backends: kernels by preference: each operation goes to the first that has it, the reference being the last of every list;
              (): those that `device` names.
    batch:    images in one forward pass.
    """

    threads: int | None = field(default=None, metadata=integer(1, MAX_THREADS, none="auto"))
    isa: str = field(default="auto", metadata=text())
    device: str = field(default="auto", metadata=text())
    backends: tuple[str, ...] = field(default=(), metadata=word((GPU, CPU, REFERENCE), many=True))
    batch: int = field(default=4, metadata=integer(1, 1024))


@dataclass(frozen=True)
class Experiment:
    """All that an experiment file says.

    backends: who runs the layers of `mpnet run`, by preference; what none of them supports runs on mpnet's scalar kernels.
              Sweeps search with mpnet's own kernels and verify what they found in these (`sweep.verify`).
    source:   the file's path, for messages.
    """

    name: str = field(metadata=text())
    model: ModelSection = field(metadata=section(ModelSection))
    data: DataSection | None = field(default=None, metadata=section(DataSection))
    detection: DetectionSection = field(default=DetectionSection(), metadata=section(DetectionSection))
    precision: PrecisionSection = field(default=PrecisionSection(), metadata=section(PrecisionSection))
    quantization: QuantizationSection = field(default=QuantizationSection(), metadata=section(QuantizationSection))
    sweep: SweepSection | None = field(default=None, metadata=section(SweepSection))
    runtime: RuntimeSection = field(default=RuntimeSection(), metadata=section(RuntimeSection))
    output: Path = field(default=DEFAULT_OUTPUT, metadata=path())
    baseline: str | None = field(default="fp32", metadata=word(tuple(PRECISIONS), none="none"))
    backends: tuple[str, ...] = field(default=OWN_BACKENDS, metadata=text(many=True))
    source: str = "experiment"
