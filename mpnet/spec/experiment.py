"""An experiment: one network, one data set, one protocol, a precision per layer and perhaps a sweep. Frozen, no I/O.

`formats.experiment_yaml` reads it from YAML; docs/experiments.md lists every key.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Mapping

from mpnet.spec.measures import limits
from mpnet.spec.quantization import NOTHING_SAID, QuantizationOptions

RESIZES: tuple[str, ...] = ("stretch", "letterbox")
NMS_KINDS: tuple[str, ...] = ("default", "greedynms", "diounms")
BATCH_NORMS: tuple[str, ...] = ("darknet", "alexeyab")
DATA_FORMATS: tuple[str, ...] = ("yolo", "coco")
STRATEGIES: tuple[str, ...] = ("grid", "one_at_a_time", "exhaustive", "greedy", "pareto", "additive")
SAMPLERS: tuple[str, ...] = ("nsga2", "tpe")


@dataclass(frozen=True)
class ModelSection:
    """Files of a network. batch_norm: the formula of BATCH_NORMS (docs/arithmetic.md)."""

    cfg: Path
    weights: Path
    names: Path | None = None
    batch_norm: str = "darknet"


@dataclass(frozen=True)
class CalibrationSection:
    """Pictures for calibration: `count` of the folder `images`, None: of the data's own, drawn with `seed`."""

    images: Path | None = None
    count: int = 32
    seed: int = 0


@dataclass(frozen=True)
class DataSection:
    """Labelled pictures.

    format yolo: `labels` holds one text file per picture; coco: `annotations` is an instances JSON.
    limit: use the first so many pictures in order of their names; None: all.
    """

    format: str
    images: Path
    labels: Path | None = None
    annotations: Path | None = None
    limit: int | None = None
    calibration: CalibrationSection = CalibrationSection()


@dataclass(frozen=True)
class DetectionSection:
    """From head tensors to boxes.

    confidence:     boxes are kept if above.
    nms, nms_kind:  threshold of overlap within a class, and its measure; None: as the cfg says.
    max_detections: the best so many of each picture, None: all.
    """

    resize: str = "stretch"
    confidence: float = 0.005
    nms: float = 0.45
    nms_kind: str | None = None
    max_detections: int | None = None


@dataclass(frozen=True)
class PrecisionSection:
    """A precision per layer.

    default: for layers whose cfg section declares none.
    layers:  (selector, precision) pairs over the cfg, later ones win.
    """

    default: str | None = None
    layers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class QuantizationSection:
    """options: for all layers, over the cfg; layers: (selector, options) pairs over those, later ones win."""

    options: QuantizationOptions = NOTHING_SAID
    layers: tuple[tuple[str, QuantizationOptions], ...] = ()


@dataclass(frozen=True)
class OptionRange:
    """One quantisation option that a sweep varies. path: such as `activations.percentile`; values: as written;
    options: the same values, parsed, each saying that one thing only."""

    path: str
    values: tuple[str, ...]
    options: tuple[QuantizationOptions, ...]


@dataclass(frozen=True)
class SpaceSection:
    """What a sweep may choose.

    layers: (selector, precisions) pairs over `sweep.precisions`, later ones win; a single precision pins a layer.
    tied:   groups of selectors; all layers of a group always have the same precision.
    quantization: options to vary besides.
    """

    layers: tuple[tuple[str, tuple[str, ...]], ...] = ()
    tied: tuple[tuple[str, ...], ...] = ()
    quantization: tuple[OptionRange, ...] = ()


@dataclass(frozen=True)
class ConstraintSection:
    """What a chosen configuration must keep.

    ap_drop: in AP points; ap_drop_relative: share of the baseline's AP; at_most: of costs by name.
    """

    ap_drop: float | None = None
    ap_drop_relative: float | None = None
    at_most: Mapping[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, float | None]:
        """Every limit by its key in experiment files, None where there is none."""
        return {"ap_drop": self.ap_drop, "ap_drop_relative": self.ap_drop_relative,
                **{row.name: self.at_most.get(row.name) for row in limits()}}


@dataclass(frozen=True)
class BudgetSection:
    """When a sweep stops: after so many trials, after so many seconds. None: when it is complete."""

    trials: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class SweepSection:
    """A search over precisions.

    precisions: the choices of every layer with weights, highest first.
    objectives: of the front; the first is the accuracy measure that constraints and rankings use.
    holdout:    share of the pictures that only reports figures and never selects, 0: none.
    sampler:    of strategy pareto: nsga2 or tpe.
    latency:    a table written by `mpnet profile`, None: no latency objective from a table.
    """

    strategy: str
    precisions: tuple[str, ...] = ("fp32", "int8")
    space: SpaceSection = SpaceSection()
    objectives: tuple[str, ...] = ("AP", "bit_operations")
    constraints: ConstraintSection = ConstraintSection()
    budget: BudgetSection = BudgetSection()
    holdout: float = 0.0
    seed: int = 0
    sampler: str = "nsga2"
    latency: Path | None = None


@dataclass(frozen=True)
class RuntimeSection:
    """How it runs; none of it changes a result.

    threads: None: all cores. isa: auto, or the name of a kernel table. batch: pictures in one forward pass.
    """

    threads: int | None = None
    isa: str = "auto"
    batch: int = 4


@dataclass(frozen=True)
class Experiment:
    """All that an experiment file says. source: the file's path, for messages."""

    name: str
    model: ModelSection
    data: DataSection | None = None
    detection: DetectionSection = DetectionSection()
    precision: PrecisionSection = PrecisionSection()
    quantization: QuantizationSection = QuantizationSection()
    sweep: SweepSection | None = None
    runtime: RuntimeSection = RuntimeSection()
    output: Path = field(default_factory=lambda: Path("runs"))
    baseline: str | None = "fp32"
    source: str = "experiment"
