# SPDX-License-Identifier: MIT
"""Latencies say when they cannot be believed, and are measured again then."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mpnet.errors import ConfigError
from mpnet.kernels.environment import cpu_name
from mpnet.speed.clock import Times, in_turn, together
from mpnet.speed.latency import Latency, doubt_of, latency_of, latency_text, stale
from mpnet.speed.latency_table import BOUND_PERCENT, CheckedConfiguration, LatencyTable
from mpnet.speed.steps import believable
from tests.sweep.sweep_networks import tiny_yolo

CALM = Times((10.0, 10.1, 10.2, 10.4))
NOISY = Times((10.0, 30.0, 31.0, 40.0))
CROWDED = Times((10.0, 10.1, 10.2, 10.4), others=3.5)


@pytest.mark.parametrize(
    ("times", "threads", "cores", "doubted"),
    [(CALM, 2, 2, ""), (NOISY, 1, 8, "3.0 times the least"), (CROWDED, 2, 4, "kept 3.5 of 4 cores busy"), (CROWDED, 4, 8, "")],
)
def test_what_speaks_against_a_figure_is_said(times: Times, threads: int, cores: int, doubted: str) -> None:
    doubt = times.doubt(threads, cores)
    assert doubted in doubt
    assert bool(doubt) == bool(doubted)


def test_a_stored_latency_shows_its_middle_half_and_its_doubt() -> None:
    calm, noisy = (latency_of(times, "scalar", 1) for times in (CALM, NOISY))
    assert latency_text(calm) == "10.15 ms (10.07 to 10.25)"
    assert latency_text(noisy).startswith("unreliable: 30.50 ms")
    assert (doubt_of(calm), bool(doubt_of(noisy)), doubt_of(None)) == ("", True, "")


def test_figures_of_0_1_0_are_doubted_by_what_they_hold() -> None:
    assert doubt_of(Latency(isa="avx2", threads=1, median_ms=432.0, min_ms=28.0)) == "the median is 15.4 times the least"
    assert doubt_of(Latency(isa="avx2", threads=1, median_ms=28.6, min_ms=28.0)) == ""


@pytest.mark.parametrize(
    ("change", "is_stale"),
    [({}, False), ({"isa": "avx2"}, True), ({"threads": 7}, True), ({"cpu": "another"}, True), ({"doubt": "noise"}, True)],
)
def test_a_latency_of_another_machine_is_measured_again(change: dict[str, Any], is_stale: bool) -> None:
    latency = replace(latency_of(CALM, "scalar", 1), **{"doubt": "", "cpu": cpu_name(), **change})
    assert stale(latency, "scalar", 1) is is_stale
    assert stale(None, "scalar", 1)


def test_a_disturbed_measurement_is_repeated_and_the_calmest_kept() -> None:
    measurements = iter([[NOISY], [Times((10.0, 14.0, 14.0))], [Times((10.0, 20.0, 20.0))]])
    assert believable(lambda: next(measurements), 1) == [Times((10.0, 14.0, 14.0))]
    once = iter([[CALM]])
    assert believable(lambda: next(once), 1) == [CALM]


def test_what_is_added_up_keeps_its_rounds() -> None:
    assert together([Times((1.0, 2.0), 0.5), Times((10.0, 20.0), 1.5)]) == Times((11.0, 22.0), 1.5)
    [rounds] = in_turn(lambda: None, repeats=3)
    assert len(rounds.ms) == 3


def table(error: float) -> LatencyTable:
    checks = (CheckedConfiguration("f", 100.0, 100.0 + error),)
    return LatencyTable(tiny_yolo().digest, ("fp32",), step_ms={}, checks=checks)


def test_a_table_that_predicts_badly_is_refused_unless_told_otherwise() -> None:
    good_table, poor_table = table(BOUND_PERCENT - 1), table(60.0)
    assert (good_table.good, poor_table.good) == (True, False)
    good_table.check(tiny_yolo(), ["fp32"])
    with pytest.raises(ConfigError, match=r"off by 60\.0 % on average .*sweep\.latency_error: 61"):
        poor_table.check(tiny_yolo(), ["fp32"])
    poor_table.check(tiny_yolo(), ["fp32"], 61)
