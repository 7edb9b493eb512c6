# SPDX-License-Identifier: MIT
"""What a sweep says while it runs, and what an interrupted one says is kept."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest
from rich.console import Console

from mpnet.cli import sweep_view
from mpnet.cli.sweep_view import SweepView
from mpnet.config.experiment import ConstraintSection
from mpnet.model.plan_words import PlanWords
from mpnet.sweep.problem.problem import Problem, objectives_of
from mpnet.sweep.problem.space import Assignment, build_space
from mpnet.sweep.run import SweepStart
from mpnet.sweep.search.failed import FailedTrials
from mpnet.sweep.search.state import SweepState
from mpnet.sweep.store import Trial
from tests.sweep.sweep_networks import tiny_yolo


@pytest.mark.parametrize(
    ("ruled_out", "message"),
    [
        (0, "no trial was finished yet; the same command begins again\n"),
        (2, "all 2 finished configurations (2 ruled out) are in s.sqlite; the same command goes on from there\n"),
    ],
)
def test_what_was_ruled_out_is_no_trial(ruled_out: int, message: str) -> None:
    network, output = tiny_yolo(), io.StringIO()
    problem = Problem(
        build_space(network, ("fp32", "int8")),
        tuple(layer.macs for layer in network.convolutions),
        objectives_of(("AP", "bit_operations")),
    )
    view = SweepView(Console(file=output, width=200), quiet=True)
    view.start(SweepStart(problem, 1.0, 5, 5, Path("s.sqlite"), "a second", True))
    view.update(SweepState(FailedTrials(network), total=100, ruled_out=ruled_out))
    view.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert output.getvalue() == message


def test_what_is_interrupted_while_it_prepares_says_that_it_begins_again() -> None:
    output = io.StringIO()
    with pytest.raises(KeyboardInterrupt), SweepView(Console(file=output, width=200), quiet=True):
        raise KeyboardInterrupt
    assert output.getvalue() == "this run has measured nothing yet; the same command begins again\n"


@pytest.mark.parametrize(
    ("stage", "rest"),
    [("", "left for all trials"), ("exchanges around it, 2 of 3", "left for this stage (exchanges around it, 2 of 3)")],
)
def test_progress_is_in_words_and_says_what_its_time_is_of(monkeypatch: pytest.MonkeyPatch, stage: str, rest: str) -> None:
    network, output = tiny_yolo(), io.StringIO()
    problem = Problem(
        build_space(network, ("fp32", "int8")),
        tuple(layer.macs for layer in network.convolutions),
        objectives_of(("AP", "bit_operations")),
        ConstraintSection(ap_drop=5.0),
    )
    monkeypatch.setattr(sweep_view, "PLAIN_SECONDS", 0.0)
    view = SweepView(Console(file=output, width=300), quiet=False)
    view.start(SweepStart(problem, 1.0, 5, 5, Path("s.sqlite"), "a second", False, words=PlanWords.of_network(network)))
    state = SweepState(FailedTrials(network), total=8, settled=2, stage=stage, committed=time.monotonic())
    state.start_time = state.committed - 10
    for key, quality, cost in (("f" * 6, 60.0, 34.73e12), ("qfffff", 59.0, 2.084e12)):
        state.trials.add(Assignment(key), Trial(key, {"AP": quality, "bit_operations": cost}))
    view.update(state)
    line = output.getvalue().splitlines()[-1]
    best = PlanWords.of_network(network)("qfffff")
    assert f"best so far {best}: AP 59.00, 2.08 T bit operations (6.0 % of the baseline's)" in line
    assert rest in line
    assert line.startswith("2 of 8 trials asked for so far" if stage else "2 of 8 trials,")
    assert "_" not in line
    assert "e+" not in line
