# SPDX-License-Identifier: MIT
"""Sentences about the times of what a sweep offers."""

from __future__ import annotations

from mpnet.messages import whole_text
from mpnet.report.data.sweep_sentences import time_lines
from mpnet.speed.latency import Latency


def latency(median_ms: float, doubt: str = "") -> Latency:
    return Latency(isa="avx2", threads=2, cpu="some CPU", median_ms=median_ms, min_ms=median_ms, doubt=doubt)


def test_a_slower_pick_is_named() -> None:
    lines = time_lines({"baseline": latency(3.5), "safe": latency(3.0), "smallest": latency(3.85)})
    assert lines == [
        "The baseline takes 3.50 ms an image (some CPU, avx2, 2 threads).",
        "Slower than the baseline on this machine, although it costs fewer bit operations: smallest +10% time.",
    ]


def test_times_of_a_busy_machine_are_doubted_in_a_line_and_a_slower_pick_in_another() -> None:
    busy = "other programs kept 2.0 of 2 cores busy"
    [_, doubt, slower] = time_lines({"baseline": latency(3.5), "smallest": latency(3.85, busy)})
    assert doubt.startswith(f"These times are unreliable ({busy})")
    assert slower == "By them slower than the baseline, although it costs fewer bit operations: smallest +10% time."
    [_, doubt] = time_lines({"baseline": latency(3.5, busy), "smallest": latency(3.0)})
    assert doubt.startswith("These times are unreliable")


def test_nothing_is_said_of_a_sweep_without_times() -> None:
    assert time_lines({}) == []


def test_a_space_is_counted_as_far_as_anybody_reads_it() -> None:
    assert [whole_text(count) for count in (0, 8192, 10**12 - 1, 3**84)] == ["0", "8,192", "999,999,999,999", "1.2e+40"]
