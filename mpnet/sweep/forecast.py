# SPDX-License-Identifier: MIT
"""A forecast of the width of a sweep's intervals, before it begins: from a few configurations on some of the images."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping

from mpnet.config.experiment import Experiment
from mpnet.engine.assign import assign_key
from mpnet.errors import ConfigError
from mpnet.evaluation.noninferiority import POOLED
from mpnet.model.keys import json_key
from mpnet.model.plan_words import PlanWords
from mpnet.progress import Progress, silent
from mpnet.sweep.problem.space import Space
from mpnet.sweep.run import prepare
from mpnet.sweep.search.failed import baseline_error
from mpnet.trial.inference import run_each
from mpnet.trial.inputs import spread

IMAGES = 64
"""Images that a forecast runs on: enough for a variance, few beside a sweep."""
FACTORS = (1, 2, 4)
"""Images that half-widths are given for: those that will test, and so many times as many."""


@dataclass(frozen=True)
class ForecastLoss:
    """The loss of a configuration on a forecast's images, and how well a sweep will know it.

    half_widths:    half of what lies between the ends of its one-sided 95 % intervals, with FACTORS times the testing images.
    images_to_tell: how many would tell whether the margin is kept, None: more than anybody has, or too few labels.
    """

    loss: float
    half_widths: tuple[float, ...]
    images_to_tell: int | None


@dataclass(frozen=True)
class ForecastRow:
    """A configuration that a forecast ran. words: its precision string in words. losses: by measure."""

    precision: str
    words: str
    losses: Mapping[str, ForecastLoss]


@dataclass(frozen=True)
class FailedForecast:
    """A configuration with values that are not finite, and why."""

    precision: str
    words: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What a sweep will be able to tell.

    images: that the forecast was made from. testing: those that will test the sweep's choice, of which `labelled` have labels.
    is_held_out: whether these choose nothing. margin: percent points by measure.
    """

    name: str
    images: int
    testing: int
    labelled: int
    is_held_out: bool = field(metadata=json_key("held_out"))
    margin: Mapping[str, float]
    factors: tuple[int, ...]
    configurations: tuple[ForecastRow, ...]
    failed: tuple[FailedForecast, ...]


def forecast(experiment: Experiment, progress: Progress = silent) -> Forecast:
    """Return how wide a sweep's intervals will be.

    Raises: EngineError where the baseline has such values, and whatever `prepare` does, as the sweep itself.
    """
    plan = prepare(experiment)
    network, margins, setup = plan.network, plan.margins, plan.setup
    space, bench = setup.space, setup.bench
    task = bench.kit.task
    if margins.percent:
        raise ConfigError(
            f"{experiment.source}: sweep.max_loss: % of the baseline's {task.quality} is not known to a forecast; name points, "
            f"such as '1 {task.quality}'"
        )
    testing = bench.of_images((setup.report if len(setup.report) else setup.select).tolist()).dataset
    sample = setup.benches[0].of_images(spread(len(bench.dataset.images), IMAGES))
    keys = [key for key in _sample_keys(space) if key != setup.baseline]
    baseline = setup.baseline or space.highest()
    with progress("images", len(sample.dataset.images)) as advance:
        baseline_outcome, *outcomes = run_each(
            sample, [sample.plan(assign_key(network, key)) for key in (baseline, *keys)], advance
        )
    if isinstance(baseline_outcome, str):
        raise baseline_error(network, baseline, baseline_outcome)
    loss = sample.kit.loss(sample.dataset, baseline_outcome.predictions)
    counts = {task.agreement: len(testing.images), task.quality: testing.labelled_count}
    words = PlanWords.of_network(network)
    configurations, failed = [], []
    for key, outcome in zip(keys, outcomes, strict=True):
        if isinstance(outcome, str):
            failed.append(FailedForecast(key, words(key), outcome))
            continue
        losses = {name: (known, name.removesuffix(POOLED)) for name, known in loss(outcome.predictions).losses.items()}
        configurations.append(
            ForecastRow(
                key,
                words(key),
                {
                    name: ForecastLoss(
                        known.loss,
                        tuple(known.with_images(factor * counts[base]).half_width() for factor in FACTORS),
                        known.images_to_tell(margins.points[base]),
                    )
                    for name, (known, base) in losses.items()
                    if base in margins.points and counts[base]
                },
            )
        )
    return Forecast(
        name=plan.experiment.name,
        images=len(sample.dataset.images),
        testing=len(testing.images),
        labelled=testing.labelled_count,
        is_held_out=len(setup.report) > 0,
        margin=dict(margins.points),
        factors=FACTORS,
        configurations=tuple(configurations),
        failed=tuple(failed),
    )


def _sample_keys(space: Space) -> list[str]:
    """Return the keys with everything lowered; everything but the last layer; the first half; the last half."""
    high, low = space.codes_of(space.highest()), space.codes_of(space.lowest())
    count, half = len(high), len(high) // 2
    lowered = (range(count), range(count - 1), range(half), range(half, count))
    return list(
        dict.fromkeys(space.key_of([low[i] if i in positions else high[i] for i in range(count)]) for positions in lowered)
    )
