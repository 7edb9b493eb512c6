# SPDX-License-Identifier: MIT
"""A run's result as result.json holds it; checked where it is read, so that nothing behind has to.

docs/architecture.md shows the whole document. The order of the fields is the order of its keys.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Mapping

from mpnet.backends.placement import LayerPlacement
from mpnet.config.identity import ID_DIGITS
from mpnet.config.measures import AGREEMENT, counted, names_of
from mpnet.config.measures import DEPLOYED as DEPLOYED_
from mpnet.engine.cost import LayerCost
from mpnet.errors import StoreError
from mpnet.formats.documents.json_text import DocumentFormat
from mpnet.formats.documents.schema import Fields, Many, Maybe, Text, Within
from mpnet.formats.documents.typed import kind_of
from mpnet.json_values import JsonObject
from mpnet.model.keys import json_key
from mpnet.speed.latency import Latency

KEY = Text(r"\w{0,4096}(\+[0-9]{1,6}:\w(,[0-9]{1,6}:\w)*)?", "a precision string, such as fqqh")
DECIBELS = Within(-10_000, 10_000)
_PROTOCOL = Fields(
    {"dataset": str, "images": int, "batch_norm": str},
    {
        "boxes": int,
        "unlabelled": int,
        "condition": str,
        "orientation": str,
        "resize": str,
        "confidence": float,
        "nms": float,
        "nms_kind": Maybe(str),
        "task": str,
        "classes": int,
        "max_detections": Maybe(int),
        "quantization": Maybe(dict),
        "metric": str,
        "input": Many(int),
    },
)
"""Plain values, since identities digest them, comparisons go through them key by key, and each task has its own."""
_COST = Fields(
    {"macs": float, **{row.name: float for row in counted() if not row.optional}},
    {row.name: float for row in counted() if row.optional},
)
_ID = Text(rf"[0-9a-f]{{{ID_DIGITS}}}", "the first digits of a digest")
_AGREEMENTS = tuple(name.removeprefix(AGREEMENT) for name in names_of("agreement"))
_DEPLOYED = tuple(name.removeprefix(DEPLOYED_) for name in names_of("deployed"))
_DEPLOYED_TIMES = ("mpnet_latency_ms", "fp32_latency_ms", "int8_latency_ms")


def count_images(protocol: JsonObject, of: str = "images") -> int:
    """Return how many images a protocol says, 0 where it says nothing. of: `images` for all, or `unlabelled`."""
    count = protocol.get(of)
    return count if isinstance(count, int) else 0


@dataclass(frozen=True)
class Precisions:
    """key: precision string. layers: what each layer is and costs."""

    key: Annotated[str, KEY]
    layers: tuple[LayerCost, ...] = field(default=(), metadata=json_key(omit_default=True))


@dataclass(frozen=True)
class BaselineAgreement:
    """The agreement of a run with its baseline.

    baseline:     the baseline's trial id. values: percent by measure, without the prefix `agreement_`.
    head_sqnr_db: of each output; None where it equals the baseline's bit for bit.
    """

    baseline: str
    values: Mapping[str, float | None] = field(metadata=json_key(inline=_AGREEMENTS))
    head_sqnr_db: tuple[Annotated[float, DECIBELS] | None, ...]


@dataclass(frozen=True)
class ClassResult:
    """One class. truths: how often it is labelled. values: percent by measure, -1 without truths."""

    id: int
    name: str
    truths: int
    values: Mapping[str, float] = field(metadata=json_key(inline=(*names_of("accuracy"), "darknet_AP50")))


@dataclass(frozen=True)
class PlacedLayer(LayerPlacement):
    """The place where an engine runs a layer. ms: its time, None where the engine does not say."""

    ms: float | None = None


@dataclass(frozen=True)
class EngineRun:
    """The result of another engine beside mpnet's own.

    reference: trial id of mpnet's result of the same configuration.
    values:    measures of kind `deployed` without their prefix, head_error, and medians in milliseconds: latency_ms of the
               engine, mpnet_latency_ms, and fp32_latency_ms, int8_latency_ms of the engine with all layers at that precision.
    """

    engine: str
    version: str
    reference: str
    values: Mapping[str, float | None] = field(metadata=json_key(inline=(*_DEPLOYED, "head_error", *_DEPLOYED_TIMES)))
    layers: tuple[PlacedLayer, ...] = ()

    @property
    def measures(self) -> dict[str, float]:
        """Return the measures of kind `deployed` that the run has."""
        values = {name: self.values.get(name.removeprefix(DEPLOYED_)) for name in names_of("deployed")}
        return {name: float(value) for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class CalibrationImages:
    """The images that ranges were found on. images: their folder, None: among the data's own."""

    images: str | None = field(default=None, metadata=json_key(omit_default=True))
    count: int = field(kw_only=True)
    seed: int = field(kw_only=True)


@dataclass(frozen=True)
class Provenance:
    """The origin of a measurement, as results and sweeps keep it, so that it can be opened again.

    name: of the experiment. protocol: everything between files and figures. sources: paths of the files by what they are.
    digests: of what decides the result, SHA-256 (hex). calibration: None where nothing was calibrated.
    """

    name: str
    protocol: JsonObject
    sources: Mapping[str, str]
    digests: Mapping[str, str | None]
    calibration: CalibrationImages | None = None


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """A finished run.

    id:        first digits of the trial's digest; digests: of all that decides it.
    created:   ISO 8601, UTC. command: the command line.
    metrics:   percent by measure, -1 where nothing could be measured.
    cost:      totals for one image, by name.
    sources:   paths of the files that it was made from, by what they are. notes: what a reader should know, a line each.
    deployed:  of a run in another engine. selection, held_out: of a sweep's trial that ran again, the metrics that chose it
               and those on the images that did not.
    """

    name: str
    id: Annotated[str, _ID]
    created: str = field(default="", metadata=json_key(omit_default=True))
    command: str = ""
    digests: Mapping[str, str | None]
    protocol: Annotated[JsonObject, _PROTOCOL]
    precision: Precisions
    metrics: Mapping[str, float]
    agreement: BaselineAgreement | None = None
    per_class: tuple[ClassResult, ...]
    cost: Annotated[Mapping[str, float], _COST]
    latency: Latency | None = None
    versions: Mapping[str, str | None]
    sources: Mapping[str, str] | None = None
    calibration: CalibrationImages | None = None
    notes: tuple[str, ...] = ()
    deployed: EngineRun | None = field(default=None, metadata=json_key(omit_default=True))
    selection: Mapping[str, float] | None = field(default=None, metadata=json_key(omit_default=True))
    held_out: Mapping[str, float] | None = field(default=None, metadata=json_key(omit_default=True))

    @property
    def images(self) -> int:
        """Count the images that it was measured on."""
        return count_images(self.protocol)

    @property
    def provenance(self) -> Provenance:
        """Return what was measured on what."""
        return Provenance(self.name, self.protocol, self.sources or {}, self.digests, self.calibration)


RUN_RESULT = DocumentFormat(
    "mpnet-result",
    1,
    "result of mpnet",
    "run the experiment again, with --force if need be",
    64 << 20,
    kind_of(RunResult).required,
    StoreError,
    kind_of(RunResult).optional,
)
