# SPDX-License-Identifier: MIT
"""Trials that are kept packed are those that were put in, in little memory."""

from __future__ import annotations

import math
import tracemalloc

from mpnet.config.measures import trial_columns
from mpnet.sweep.problem.packed_trials import PackedTrials
from mpnet.sweep.problem.space import Assignment
from mpnet.sweep.store import Trial


def test_trials_come_back_as_they_were_in_their_order() -> None:
    expected = {
        Assignment("qf"): Trial("qf", {"AP": 1 / 3, "weight_bytes": 5.0}),
        Assignment("ff", 1): Trial("ff", {"AP": -0.0, "weight_bytes": 1e300}),
        Assignment("ff"): Trial("ff", {"AP": math.inf, "weight_bytes": 5e-324}),
        Assignment("qq"): Trial("qq", {"weight_bytes": 5.0, "AP": 2.0}),  # in another order
        Assignment("fq"): Trial("fq", {"AP": 7.0}),
        Assignment("hh"): Trial("hh", {}),
    }
    trials = PackedTrials()
    for configuration, trial in expected.items():
        trials.add(configuration, trial)
    assert list(trials.items()) == list(expected.items())
    assert [list(trial.values.items()) for trial in trials.values()] == [list(t.values.items()) for t in expected.values()]
    assert math.copysign(1, trials[Assignment("ff", 1)].values["AP"]) == -1
    assert Assignment("qf", 1) not in trials
    assert trials.get(Assignment("ff", 2)) is None
    trials.add(Assignment("qf"), Trial("qf", {"AP": 4.0, "weight_bytes": 1.0}))
    assert (len(trials), trials[Assignment("qf")].values["AP"]) == (6, 4.0)


def test_a_trial_takes_about_300_bytes() -> None:
    """20 values of 8 bytes in an object of 33, a key of 62, and their place in a dictionary, at most 100 as it grows."""
    names, trials = trial_columns()[:20], PackedTrials()
    count = 20_000
    tracemalloc.start()
    for number in range(count):
        key = f"{number:013d}"
        trials.add(Assignment(key), Trial(key, {name: number + 0.5 for name in names}))
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size / count < 20 * 8 + 33 + 62 + 100


def test_only_those_that_came_since_are_handed_on() -> None:
    results = PackedTrials()
    trials = [Trial(key, {"AP": float(number)}) for number, key in enumerate(("ff", "fq", "qf"))]
    for trial in trials:
        results.add(Assignment(trial.key), trial)
    assert [list(results.iterate_from(count)) for count in range(4)] == [trials[count:] for count in range(4)]
