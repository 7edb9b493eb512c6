# SPDX-License-Identifier: MIT
"""What an interrupted sweep says is kept."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from mpnet.cli.sweep_view import SweepView
from mpnet.sweep.problem.problem import Problem, objectives_of
from mpnet.sweep.problem.space import build_space
from mpnet.sweep.run import SweepStart
from mpnet.sweep.search.failed import FailedTrials
from mpnet.sweep.search.state import SweepState
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
