# SPDX-License-Identifier: MIT
"""The notes of a store and the documents of its contexts as dataclasses; the order of the fields is the order of the keys.

Fields that are None may be missing in stores of older versions, or cannot be known of a sweep that was interrupted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Mapping

from mpnet.config.identity import TrialIdentity
from mpnet.engine.cost import LayerCost
from mpnet.formats.documents.schema import Fields, Many, Within
from mpnet.formats.documents.typed import build, kind_of
from mpnet.json_values import JsonObject
from mpnet.trial.run_result import KEY, CalibrationImages

_RUN_IDENTITY = kind_of(TrialIdentity)
# Contexts are shared by plans.
_IDENTITY = Fields({name: kind for name, kind in _RUN_IDENTITY.required.items() if name != "plan"}, _RUN_IDENTITY.optional)


@dataclass(frozen=True, kw_only=True)
class SweepNote:
    """What a sweep looked for and on what, under the names that a result has.

    front_name: of the front that configurations are ruled out of. contexts: their numbers, one per option set.
    holdout:    share of the images that only report. selecting: how many of `images` select.
    suffix:     what keyed layers without weights have in every precision string. baseline: its precision string.
    latency:    the machine of the latency table, None: without one.
    tuned:      paths in place of those of `sources`, by the digest of the weights that option sets have of their own.
    """

    name: str | None = None
    strategy: str | None = None
    command: str = ""
    created: str | None = None
    versions: Mapping[str, str | None] | None = None
    digests: Mapping[str, str | None] | None = None
    layers: tuple[LayerCost, ...] = ()
    notes: tuple[str, ...] = ()
    objectives: tuple[str, ...] | None = None
    front_name: str = ""
    contexts: tuple[int, ...] = ()
    holdout: Annotated[float, Within(0, 1)] | None = None
    suffix: str = ""
    baseline: Annotated[str, KEY] | None = None
    selecting: int | None = None
    images: int | None = None
    protocol: JsonObject | None = None
    constraints: JsonObject | None = None
    sources: Mapping[str, str] | None = None
    calibration: CalibrationImages | None = None
    latency: JsonObject | None = None
    tuned: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class StatusNote:
    """How far a sweep is. state: such as `running`. total: trials that it asks for. time: seconds since 1970."""

    state: str | None = None
    owner: str = ""
    strategy: str = ""
    total: int | None = None
    time: float = 0.0


@dataclass(frozen=True)
class SetLossNote:
    """The losses of a configuration on one set of images, as numbers: `evaluation.noninferiority` and `evaluation.compare`."""

    images: int
    labelled: int
    quality: Annotated[tuple[float, ...], Many(float, 3)] | None
    losses: Mapping[str, Annotated[tuple[float, ...], Many(float, 8)]]


@dataclass(frozen=True)
class JudgementNote:
    """A configuration against the baseline, by set of images; its agreement on images drawn again, percent."""

    sets: Mapping[str, SetLossNote]
    drawn: tuple[float, ...]


@dataclass(frozen=True)
class ContextMeasures:
    """What decides the figures of a context's trials. seed: that chose the images held out, None: none are.

    baseline: codes of the run that others are compared with. latency: digest of the latency table.
    """

    holdout: float | None = None
    seed: int | None = None
    baseline: str | None = None
    darknet: bool = False
    latency: str | None = None


@dataclass(frozen=True)
class ContextDocument:
    """What the trials of a context share: what decides them beside their plans, {} where a store does not say.

    options: the text of the option set.
    """

    identity: Annotated[JsonObject, _IDENTITY] = field(default_factory=dict)
    options: str = ""
    measures: ContextMeasures = ContextMeasures()

    def identity_of(self, plan: str = "") -> TrialIdentity | None:
        """Return what decides the trial of a plan; None where the context does not say."""
        return build(TrialIdentity, {**self.identity, "plan": plan}) if self.identity else None
