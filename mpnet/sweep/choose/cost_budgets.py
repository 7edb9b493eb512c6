# SPDX-License-Identifier: MIT
"""Budgets of costs in an experiment's words, such as `sweep.max_bytes: 1.5x`, as constraints of its sweep."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Callable

from mpnet.config.experiment import ConstraintSection
from mpnet.engine.assign import assign_key
from mpnet.engine.cost import plan_cost
from mpnet.engine.plan import Plan
from mpnet.errors import ConfigError
from mpnet.model.precision import INT8
from mpnet.speed.latency_table import predicted_ms
from mpnet.sweep.choose.budgets import BYTE_UNITS, BYTES, PERCENT, TIME, TIMES, read_budgets
from mpnet.sweep.setup import SweepSetup

_ROUNDING = 1e-6
"""Room for rounding: a budget that is the value of a configuration keeps it."""


def with_cost_budgets(setup: SweepSetup, source: str) -> ConstraintSection:
    """Return the constraints of a sweep's section with `max_time` and `max_bytes` among them, in milliseconds and bytes.

    source: the experiment file. Raises: ConfigError for what is no budget, one that a constraint limits as well, and one of
    time where no table says times.
    """
    section, task = setup.section, setup.bench.kit.task
    limits = dict(section.constraints.at_most)
    for option, key, text, name in (
        (TIME, "max_time", section.max_time, "latency_ms"),
        (BYTES, "max_bytes", section.max_bytes, "weight_bytes"),
    ):
        if text is None:
            continue
        place = f"{source}: sweep.{key}"
        [budget] = read_budgets(option, text, task, place)
        if name in limits:
            raise ConfigError(f"{place}: sweep.constraints.{name} limits the same; leave one of the two out")
        if option == TIME and setup.table is None:
            raise ConfigError(
                f"{place}: nothing says the time of a configuration before it is chosen; name a table of `mpnet profile` with "
                "sweep.latency, or leave it out and ask "
                f"`mpnet pick STORE {TIME} {budget.written(budget.amount)}`, which knows what the sweep has timed"
            )
        cost = _predict_time(setup) if option == TIME else _count_bytes
        if budget.unit == TIMES:
            limit = budget.amount * cost(_uniform_plan(setup, INT8.code))
        elif budget.unit == PERCENT:
            limit = budget.amount / 100 * cost(_uniform_plan(setup, None))
        else:
            limit = budget.amount * (1.0 if option == TIME else BYTE_UNITS[budget.unit])
        limits[name] = limit + _ROUNDING if option == TIME else math.floor(limit + _ROUNDING)
    return replace(section.constraints, at_most=limits)


def _uniform_plan(setup: SweepSetup, code: str | None) -> Plan:
    """Return the plan with one precision everywhere. code: of the precision, None: the baseline."""
    bench, space = setup.benches[0], setup.space
    baseline = setup.baseline or space.highest()
    key = baseline if code is None else code * len(space.layers) + space.suffix
    return bench.plan(assign_key(bench.network, key))


def _count_bytes(plan: Plan) -> float:
    return float(plan_cost(plan)["weight_bytes"])


def _predict_time(setup: SweepSetup) -> Callable[[Plan], float]:
    table = setup.table
    assert table is not None
    return lambda plan: predicted_ms(plan, table.step_ms)
