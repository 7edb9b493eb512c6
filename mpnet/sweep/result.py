# SPDX-License-Identifier: MIT
"""A sweep's result as `mpnet sweep --json` prints it and as stores keep it; the order of the fields is the order of its keys.

`from_json` checks a stored document and returns these classes, and `as_json` writes them (both of
`mpnet.formats.documents.typed`). Fields with defaults came later than the first stores, which lack them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Mapping

from mpnet.config.measures import DEPLOYED
from mpnet.formats.documents.schema import Count, Many
from mpnet.model.keys import json_key
from mpnet.model.task import TASKS
from mpnet.speed.latency import Latency
from mpnet.sweep.layer_ranks import LayerNoise, LayerRank
from mpnet.trial.run_result import KEY

RESULT_FORMAT, RESULT_VERSION = "mpnet-sweep-result", 1
QUALITIES = tuple(name for task in TASKS.values() for name in (task.quality, task.agreement))
"""Measures of accuracy that losses are given in: of each task its quality and its agreement with the baseline."""
_VERIFIED_MEASURES = tuple(prefix + name for prefix in ("", DEPLOYED) for name in (*QUALITIES, "latency_ms"))

Key = Annotated[str, KEY]
Values = Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class ConfigurationRow:
    """A configuration and its figures.

    precision:   its precision string. options: the option set that it runs under, '' for the experiment's own.
    trial:       digest of the trial. is_baseline: whether others are compared with it.
    is_tried:    whether the sweep's strategy asked for it; else the store had it from another one.
    metrics:     on the images that select, by measure. held_out: on those that do not, {} where there are none.
    costs:       by measure.
    """

    precision: Key
    trial: str
    is_baseline: bool = field(default=False, metadata=json_key("baseline"))
    is_tried: bool = field(default=True, metadata=json_key("tried"))
    options: str
    metrics: Values
    held_out: Values = field(default_factory=dict, metadata=json_key(omit_default=True))
    costs: Values


@dataclass(frozen=True, kw_only=True)
class FrontRow(ConfigurationRow):
    """A configuration of the front, the baseline, or the best. words: its precision string in words."""

    words: str = field(default="", metadata=json_key(omit_default=True))


@dataclass(frozen=True, kw_only=True)
class MeasureLoss:
    """The difference of a configuration from the baseline in one measure, percent points, with the ends of its interval.

    told_from_none: whether the interval is below zero; None where a margin decides instead. images: that it is measured on.
    """

    difference: float
    low: float
    high: float
    told_from_none: bool | None = field(default=None, metadata=json_key(omit_default=True))
    images: int | None = field(default=None, metadata=json_key(omit_default=True))


@dataclass(frozen=True, kw_only=True)
class SetLosses:
    """The losses of a configuration on one set of images. images: how many. losses: by measure."""

    images: int = field(metadata=json_key("pictures"))
    losses: Mapping[str, MeasureLoss] = field(default_factory=dict, metadata=json_key(inline=QUALITIES))


@dataclass(frozen=True, kw_only=True)
class Pick(ConfigurationRow):
    """A configuration that somebody could take, by a stated rule.

    losses: by set of images: `all`, or `selecting` and `held_out`. saves: percent of the baseline's costs, by measure.
    words:  its precision string in words.
    """

    losses: Mapping[str, SetLosses]
    saves: Values
    words: str = field(default="", metadata=json_key(omit_default=True))


@dataclass(frozen=True, kw_only=True)
class Recommendation(Pick):
    """The configuration that a sweep recommends.

    is_shown:    whether it is shown to keep the budget; else its measured loss keeps it.
    reason:      why it is this one, in a clause. more_images: about how many more would tell, None: nobody knows.
    budget:      percent points that it may lose, by measure.
    """

    is_shown: bool = field(metadata=json_key("shown"))
    reason: str
    more_images: int | None
    budget: Values


@dataclass(frozen=True, kw_only=True)
class NearestRow(ConfigurationRow):
    """The configuration that comes nearest to the limits, where none keeps them. beyond: by how much, by limit."""

    beyond: Values


@dataclass(frozen=True)
class LossBounds:
    """A loss on the images that test. least, most: ends of its one-sided intervals; images: that bring information of it.

    standard_error: of the loss, in percent points; 0 in stores of older versions.
    """

    least: float
    most: float
    loss: float
    images: int
    standard_error: float = 0.0


@dataclass(frozen=True)
class TestedRow:
    """A configuration that was tested against the margins.

    state:       `met`, `not met`, or `cannot be told`. more_images: about how many more would decide it, None: no number would.
    """

    precision: Key
    options: str
    state: str
    more_images: int | None
    losses: Mapping[str, LossBounds]


@dataclass(frozen=True)
class HalfWidths:
    """Half the width of a loss's interval, now and with twice as many images."""

    now: float
    twice: float


@dataclass(frozen=True)
class SafetyWithTwice:
    """The results that the tests would have with twice as many images, if losses stayed what they are.

    safe: the configuration that would be shown to keep the margins, None: none. half_widths: by measure.
    """

    images: int
    safe: Key | None
    half_widths: Mapping[str, HalfWidths]


@dataclass(frozen=True, kw_only=True)
class Safety:
    """The configuration that is shown to lose no more than the margins, and its tests.

    margin:      percent points by measure. is_asked: whether the user named them.
    error:       probability of a wrong answer of each test. is_held_out: whether the images that test did not choose.
    images:      that test. safe: the cheapest configuration that is shown to keep the margins, None: none is.
    why:         what the tests showed, in a sentence. tested: from accurate to cheap.
    untested:    those that come after the first that is not shown and were measured on the same images, as long as the loss
                 that was measured keeps the margins by its standard error.
    """

    margin: Values
    is_asked: bool = field(metadata=json_key("asked"))
    error: float
    is_held_out: bool = field(metadata=json_key("held_out"))
    images: int
    safe: Key | None
    why: str
    twice: SafetyWithTwice | None = field(default=None, metadata=json_key(omit_default=True))
    tested: tuple[TestedRow, ...]
    untested: tuple[TestedRow, ...] = field(default=(), metadata=json_key(omit_default=True))


@dataclass(frozen=True)
class FrontShare:
    """The share of draws in which a configuration is on the front of images drawn again, percent."""

    precision: Key
    options: str
    percent: float


@dataclass(frozen=True)
class LayerShare:
    """The share of draws in which a layer is raised, percent."""

    layer: int
    percent: float


@dataclass(frozen=True, kw_only=True)
class Stability:
    """The stability of the choice on other images; without draws, {} in JSON.

    draws:  how often images were drawn again. judged: how many configurations that is known of.
    front:  share of each of them. picks: how often each pick would be picked again, percent.
    layers: for each pick, how often each layer with a choice is raised in what agrees best at the pick's cost at most.
    """

    draws: int = field(default=0, metadata=json_key(omit_default=True))
    judged: int = field(default=0, metadata=json_key(omit_default=True))
    front: tuple[FrontShare, ...] = field(default=(), metadata=json_key(omit_default=True))
    picks: Values = field(default_factory=dict, metadata=json_key(omit_default=True))
    layers: Mapping[str, tuple[LayerShare, ...]] = field(default_factory=dict, metadata=json_key(omit_default=True))


@dataclass(frozen=True)
class Gap:
    """The distance of a front from the exact one.

    hypervolume_ratio: share of the exact front's hypervolume that this one reaches, 1 when nothing is missing.
    quality_lost_max, quality_lost_mean: over the exact front's points, the quality that this front lacks at equal or
        lower cost, in the quality's own unit (percent points for AP).
    uncovered: points of the exact front that are cheaper than anything on this front; they count in no mean.
    shared: how many points of the exact front are on this one.
    exact_points: how many points the exact front has.
    """

    hypervolume_ratio: float
    quality_lost_max: float
    quality_lost_mean: float
    uncovered: int
    shared: int = field(metadata=json_key("found"))
    exact_points: int


@dataclass(frozen=True)
class FailedLayer:
    """A layer at which configurations failed: why the first of them did, and how many there are."""

    layer: int
    reason: str
    configurations: int


@dataclass(frozen=True, kw_only=True)
class VerifiedRow:
    """A configuration in another engine.

    context:    number of the store's context. version: of the engine. files: digest of the exported files, None: not exported.
    measures:   percent, and milliseconds of a pass, in mpnet's kernels; with the prefix `deployed_` in the engine.
    head_error: the engine's largest relative difference in an output. falls_back: what it runs otherwise than asked.
    survived:   whether it is as good there. why: why it is not, '' when it is.
    """

    precision: Key
    options: str
    trial: str = ""
    context: int
    version: str
    measures: Mapping[str, float | None] = field(default_factory=dict, metadata=json_key(inline=_VERIFIED_MEASURES))
    head_error: float | None = field(default=None, metadata=json_key(omit_default=True))
    falls_back: tuple[str, ...] | None = field(default=None, metadata=json_key(omit_default=True))
    files: str | None = field(default=None, metadata=json_key(omit_default=True))
    survived: bool
    why: str


@dataclass(frozen=True)
class VerifiedRows:
    """The configurations in another engine. rule: what surviving means. notes: of the export, one line each."""

    engine: str
    version: str
    rule: str
    notes: tuple[str, ...]
    rows: tuple[VerifiedRow, ...]


@dataclass(frozen=True)
class ConditionRow:
    """A configuration under conditions. under: its measures by condition, `clean`, `mean` and `worst` among them."""

    precision: Key
    options: str
    trial: str
    costs: Values
    under: Mapping[str, Values]


@dataclass(frozen=True)
class FailedCondition:
    """A configuration with values that are not finite under a condition."""

    condition: str
    precision: Key
    options: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class ConditionRows:
    """The front on images that are noisy, blurred, dark or foggy.

    images:   that each configuration ran on. of_front: how many configurations the front has, of which some ran.
    front, picks: precision strings under `clean`, `mean` and `worst`.
    """

    conditions: tuple[str, ...]
    images: int
    of_front: int
    rows: tuple[ConditionRow, ...]
    failed: tuple[FailedCondition, ...] = ()
    front: Mapping[str, tuple[Key, ...]]
    picks: Mapping[str, Mapping[str, Key]]


@dataclass(frozen=True)
class Holdout:
    """The number of images that select, and of those that were held out and only report."""

    selecting: int
    held_out: int


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """The result of a sweep.

    strategy:     that chose what to try. state: `finished`, or `stopped` by the budget that `stopped` names.
    trials:       configurations that the strategy asked for and that have figures; computed: in this run.
    known:        configurations that the store has figures of; ruled_out: of which it knows that they are not on the front;
                  ruled_out_after: how many of them by images seen (texts, as keys of JSON are); space: all there are.
    forward_equivalents: work of this run, in passes of one image per image; _theory: of one walk through the space without
                  interruption; _store: all that went into the store. seconds, seconds_store: the same as time.
    images:       of the data. objectives: measures that the front is made of, the first of accuracy before costs.
    precisions:   that layers may have. limits: on measures, by key of the constraints.
    recommended:  the configuration to take, None: none is, for the reason that not_recommended gives.
    best_found:   what costs clearly less than a recommendation that is shown, and keeps the budget by its measured loss.
    best:         the cheapest under limits on accuracy, without them the safe or the most accurate one. nearest: to the limits,
                  where none keeps them.
    intervals_by: where the intervals of losses come from, in words.
    front:        the best first by the first objective. own_front: precision strings of the front of what the strategy tried.
    gap:          of own_front to the exact front; None until the whole space is known.
    store:        the file. table: what predicted latencies, None: nothing did.
    layers:       most harm first. layers_by_noise: most noise first, where the strategy screened; () in other sweeps.
    verified:     in another engine, None: not asked for. times: of passes, by pick, of the
                  baseline and of int8 everywhere.
    """

    format: str = RESULT_FORMAT
    version: int = RESULT_VERSION
    name: str = ""
    strategy: str = ""
    state: str = ""
    stopped: str | None = None
    trials: int
    known: int = 0
    ruled_out: int = 0
    ruled_out_after: Mapping[str, int] = field(default_factory=dict)
    failed: tuple[FailedLayer, ...] = ()
    computed: int = 0
    space: Annotated[int, Count()]
    forward_equivalents: float = 0.0
    forward_equivalents_theory: float = 0.0
    forward_equivalents_store: float = 0.0
    images: int = 0
    seconds: float = 0.0
    seconds_store: float = 0.0
    objectives: Annotated[tuple[str, ...], Many(str, 1)]
    holdout: Holdout
    precisions: tuple[str, ...] = ()
    baseline: FrontRow | None
    limits: Values = field(default_factory=dict)
    recommended: Recommendation | None = None
    not_recommended: str = field(default="", metadata=json_key(omit_default=True))
    best_found: Recommendation | None = field(default=None, metadata=json_key(omit_default=True))
    best: FrontRow | None
    picks: Mapping[str, Pick] = field(default_factory=dict)
    safety: Safety | None = None
    stability: Stability = field(default_factory=Stability)
    intervals_by: str = ""
    nearest: NearestRow | None = None
    front: tuple[FrontRow, ...]
    own_front: tuple[Key, ...] = ()
    gap: Gap | None = None
    store: str = ""
    table: str | None = None
    layers: tuple[LayerRank, ...] = ()
    layers_by_noise: tuple[LayerNoise, ...] = field(default=(), metadata=json_key(omit_default=True))
    verified: VerifiedRows | None = field(default=None, metadata=json_key(omit_default=True))
    conditions: ConditionRows | None = field(default=None, metadata=json_key(omit_default=True))
    times: Mapping[str, Latency] = field(default_factory=dict)
