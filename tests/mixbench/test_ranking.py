# SPDX-License-Identifier: MIT
"""Rank correlations of methods that rank layers, and figures of single layers beside a table."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mixbench.divergence import head_divergences
from mixbench.errors import BenchmarkError
from mixbench.layer_figures import LayerFigures, Operator, figures_path, read_layer_figures, write_layer_figures
from mixbench.methods import kl_coverage, roofline
from mixbench.problem import COLUMNS, COST, HELD_OUT_AGREEMENT, QUALITY, Problem
from mixbench.ranking import mid_ranks, rank_figures, spearman

LOSSES = (0.0, 4.0, 1.0, 1.0, 8.0, 2.0)
"""Points of agreement that each of six layers loses alone; they add up."""


@pytest.fixture
def problem() -> Problem:
    """Return a problem of six layers, fp32 and int8, whose losses add up."""
    result = Problem("made", tuple("abcdef"), (1,) * 6, ("fq",) * 6, {}, {"contexts": ["c"], "heads": [5]}, "0")
    lost = result.lowered() @ np.array(LOSSES)
    result.columns = {name: 100 - lost for name in COLUMNS}
    result.columns[COST] = np.arange(result.size, dtype=np.float64)
    result.columns["head_sqnr_db"] = 40 - lost
    return result


def test_equal_values_share_the_mean_of_their_ranks() -> None:
    assert mid_ranks(np.array([3.0, 1.0, 3.0, 2.0, 3.0])).tolist() == [4, 1, 4, 2, 4]
    # By hand: ranks 1 2.5 2.5 4 and 1 3 2 4; d = 0 0.5 0.5 0, of which Pearson's correlation is 4.5 / sqrt(4.5 * 5).
    value = spearman(np.array([0.0, 5.0, 5.0, 9.0]), np.array([1.0, 3.0, 2.0, 4.0]))
    assert value == pytest.approx(4.5 / math.sqrt(4.5 * 5), abs=1e-15)
    assert spearman(np.array([1.0, 1.0, 1.0]), np.array([1.0, 2.0, 3.0])) is None
    assert spearman(np.array([1.0, 2.0]), np.array([1.0, 2.0])) is None


def test_a_ranking_by_the_losses_themselves_is_perfect_and_its_reverse_is_not(problem: Problem) -> None:
    figures = rank_figures(problem, LOSSES)
    assert (figures.layers, figures.top_fifth) == (pytest.approx(1), 1)
    assert figures.assignments == pytest.approx(1)
    reverse = rank_figures(problem, [-loss for loss in LOSSES])
    assert (reverse.layers, reverse.top_fifth) == (pytest.approx(-1), 0)
    # Of six layers two are the top fifth, rounded up: layers 4 and 1, of which this finds one.
    assert rank_figures(problem, (0, 0, 0, 3, 4, 0)).top_fifth == 0.5


def test_what_a_table_lacks_has_no_figure(problem: Problem) -> None:
    problem.columns[HELD_OUT_AGREEMENT][problem.number("ffffqf")] = math.nan
    figures = rank_figures(problem, LOSSES)
    assert (figures.layers, figures.top_fifth) == (None, None)
    assert figures.assignments == pytest.approx(1)
    problem.metadata = {"front": {}}
    assert rank_figures(problem, LOSSES).assignments is None


@pytest.mark.parametrize("sensitivities", [(1.0,), (1.0, 2.0, 3.0, 4.0, 5.0, math.inf), (math.nan,) * 6])
def test_a_ranking_has_one_finite_number_for_each_layer(sensitivities: tuple[float, ...], problem: Problem) -> None:
    with pytest.raises(BenchmarkError, match="one finite sensitivity for each of 6 layers"):
        problem.rank_layers(sensitivities)


@pytest.fixture
def figures(problem: Problem, tmp_path: Path) -> LayerFigures:
    """Return figures that lie beside the problem's table: layer 3 diverges most, layer 0 least."""
    divergences = tuple({"q": value} for value in (0.1, 0.3, 0.2, 9.0, 0.6, 0.5))
    # As many bytes in each layer, where arithmetic does not take longer: in layer 1.
    operators = tuple((Operator(macs, 10, 100, 100),) for macs in (100, 100_000, 100, 100, 100, 100))
    problem.path = tmp_path / "made.npz"
    result = LayerFigures(divergences, operators, 3)
    write_layer_figures(result, problem.path, problem.metadata)
    return result


def test_figures_of_layers_are_read_as_they_were_written(figures: LayerFigures, problem: Problem) -> None:
    assert problem.layer_figures() == figures


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"contexts": "0"}, "of other images, options or layers"),
        ({"layers": []}, "of other images, options or layers"),
        ({"version": 2}, "cannot be read"),
        ({"passes": "many"}, "cannot be read"),
        ({"passes": -1}, "passes below 0"),
        ({"layers": 3}, "cannot be read"),
        ({"layers": [{"divergences": {"q": math.inf}, "operators": []}] * 6}, "not finite"),
    ],
)
def test_wrong_figures_of_layers_are_refused_in_one_line(
    change: dict[str, Any], expected: str, figures: LayerFigures, problem: Problem
) -> None:
    assert problem.path is not None
    path = figures_path(problem.path)
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **change}), encoding="utf-8")
    with pytest.raises(BenchmarkError, match=expected) as refusal:
        read_layer_figures(problem.path, problem.metadata, problem.choices)
    assert "mixbench.table layers made" in str(refusal.value)
    path.unlink()
    with pytest.raises(BenchmarkError, match="is missing"):
        problem.layer_figures()


def test_coverage_raises_the_greatest_divergence_first(figures: LayerFigures, problem: Problem) -> None:
    answers = list(kl_coverage.search(problem, np.random.default_rng(0)))
    assert answers[:4] == ["qqqqqq", "qqqfqq", "qqqffq", "qqqfff"]
    assert answers[-1] == "ffffff"
    assert problem.passes == figures.passes  # answers are paid for by whoever hands them in
    assert problem.sensitivities == (0.1, 0.3, 0.2, 9.0, 0.6, 0.5)


def test_a_roofline_takes_the_longer_of_arithmetic_and_bytes() -> None:
    by_bytes, by_arithmetic = Operator(8, 10, 100, 100), Operator(8_000, 10, 100, 100)
    assert [roofline.operator_time(by_bytes, code) for code in "fhq4"] == [840, 420, 210, 205]
    assert [roofline.operator_time(by_arithmetic, code) for code in "fhq4"] == [4000, 2000, 1000, 1000]


def test_a_roofline_raises_what_is_cheap_first_in_each_class(figures: LayerFigures, problem: Problem) -> None:
    # Errors at the heads of 10^-4 to 10^-3.2 are one class, but that of layer 1 with 10^-3.6 takes longest there.
    order = list(roofline.search(problem, np.random.default_rng(0)))
    assert order[:6] == ["qqqqqq", "fqqqqq", "fqfqqq", "fqffqq", "fqfffq", "fqffff"]
    # An error of 10^-2 makes a layer the most sensitive class, whatever it costs.
    problem.columns["head_sqnr_db"][problem.number("fqffff")] = 20
    assert next(key for key in roofline.search(problem, np.random.default_rng(0)) if key != "qqqqqq") == "qfqqqq"
    assert problem.columns[QUALITY][problem.number("ffffff")] == 100


def test_divergence_is_that_of_softmaxes_averaged_over_heads() -> None:
    # Two images; the second head is the same in both runs, so that the mean over heads is half of the first one's.
    first = np.log(np.array([[[0.5, 0.5]], [[0.25, 0.75]]], np.float32))
    second = np.log(np.array([[[0.25, 0.75]], [[0.25, 0.75]]], np.float32))
    same = np.zeros((2, 3, 1), np.float32)
    expected = [(0.5 * math.log(2) + 0.5 * math.log(2 / 3)) / 2, 0]
    np.testing.assert_allclose(head_divergences([first, same], [second + 7, same]), expected, atol=1e-7)
