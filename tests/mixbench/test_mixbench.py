# SPDX-License-Identifier: MIT
"""The benchmark of methods: its tables, what methods may ask, and its scores."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mixbench.problem
from mixbench import elsewhere, intervals
from mixbench.errors import BenchmarkError
from mixbench.front import best_pairs, front_gap
from mixbench.layer_figures import figures_path
from mixbench.measure import Measurer, group_macs, sweep_of
from mixbench.page import page
from mixbench.problem import CHOOSING, COST, HELD_OUT_AGREEMENT, QUALITY, BudgetSpent, Problem, load_problem, points, read_table
from mixbench.run import METHODS, run
from mixbench.run import main as run_main
from mixbench.score import exact_front, picks, progress, score
from mixbench.score import main as score_main
from mixbench.submission import Submission, read_submission, write_submission
from mixbench.table import add, check, make, write_layers
from mpnet.formats.documents.experiment import read_experiment
from mpnet.sweep.run import run_sweep
from mpnet.sweep.store import TrialStore
from tests.networks import small_cfg, write_experiment

SWEEP = """
sweep:
  strategy: {strategy}
  precisions: [fp32, int8]
  objectives: [agreement_AP, bit_operations]
  holdout: 0.5
output: {folder}/runs
"""


def experiment(folder: Path, strategy: str = "exhaustive", side: int = 64) -> Path:
    path = write_experiment(folder, small_cfg(side))
    other_lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("output:")]
    path.write_text("\n".join(other_lines) + SWEEP.format(strategy=strategy, folder=folder), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of tables of a small network: small.npz."""
    folder = tmp_path_factory.mktemp("mixbench")
    make(experiment(folder), folder / "small.npz", workers=1)
    return folder


@pytest.fixture(autouse=True)
def small_problem(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `small` the only problem."""
    monkeypatch.setattr(mixbench.problem, "TABLES", tables)


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the exact front of the same network: front.npz, without what was ruled out."""
    folder = tmp_path_factory.mktemp("front")
    make(experiment(folder, "exact_front"), folder / "front.npz", workers=1)
    # So few images rule nothing out before the last one: what the front beats is left out here.
    with np.load(folder / "front.npz") as file:
        arrays = {name: file[name] for name in file.files}
    metadata = json.loads(str(arrays["metadata"]))
    front_table = read_table(folder / "front.npz")
    is_on_front = np.isin(front_table.columns[QUALITY], exact_front(front_table)[:, 0])
    metadata["front"]["ruled_out"] = int((~is_on_front).sum())
    arrays = {name: values if name == "metadata" else values[is_on_front] for name, values in arrays.items()}
    arrays["metadata"] = np.array(json.dumps(metadata))
    np.savez_compressed(folder / "front.npz", **arrays)
    return folder


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a sample of the same network, as one too deep to list has: sample.npz."""
    folder = tmp_path_factory.mktemp("sample")
    make(experiment(folder, "deep"), folder / "sample.npz", workers=1)
    return folder


def load_sample(folder: Path, measurer: Measurer) -> Problem:
    problem = read_table(folder / "sample.npz")
    problem.measure = measurer
    return problem


def test_a_table_has_what_assignments_run_anew_give(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tables / "experiment.yaml", tables / "small.npz", 4) == 0
    assert "4 assignments run anew, 0 differ" in capsys.readouterr().out


def test_a_table_that_was_changed_is_noticed(tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with np.load(tables / "small.npz") as file:
        columns = {name: file[name] for name in file.files}
    columns[QUALITY] = np.nextafter(columns[QUALITY], 200.0)
    np.savez_compressed(tmp_path / "small.npz", **columns)
    assert check(tables / "experiment.yaml", tmp_path / "small.npz", 3) == 3
    assert QUALITY in capsys.readouterr().out


def test_the_highest_precision_costs_most_and_has_no_error() -> None:
    problem = load_problem("small")
    assert problem.cost(problem.highest) == problem.columns[COST].max()
    assert problem.head_error(problem.highest) == 0.0


def test_asking_again_is_free_and_the_budget_ends_asking() -> None:
    problem = load_problem("small", budget=2)
    problem.evaluate(problem.highest)
    problem.evaluate(problem.highest)
    problem.evaluate(problem.lowest)
    assert problem.passes == 2
    with pytest.raises(BudgetSpent):
        problem.evaluate(problem.keys[1])
    with pytest.raises(BudgetSpent):
        problem.spend(1, "a Hessian")


def test_a_front_is_that_of_all_assignments_and_knows_all_costs(front: Path) -> None:
    front_table, full_table = read_table(front / "front.npz"), load_problem("small")
    assert front_table.is_front
    assert not full_table.is_front
    np.testing.assert_array_equal(exact_front(front_table), exact_front(full_table))
    np.testing.assert_array_equal(front_table.costs(), full_table.costs())
    is_measured = ~np.isnan(front_table.columns[QUALITY])
    assert is_measured.sum() + front_table.metadata["front"]["ruled_out"] == front_table.size
    assert 0 < is_measured.sum() < front_table.size
    for name in CHOOSING:
        np.testing.assert_array_equal(front_table.columns[name][is_measured], full_table.columns[name][is_measured])


def test_a_front_is_checked_against_new_runs(front: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(front / "experiment.yaml", front / "front.npz", 4) == 0
    assert "4 that were ruled out run anew, 0 could be on the front" in capsys.readouterr().out
    with np.load(front / "front.npz") as file:
        arrays = {name: file[name] for name in file.files}
    arrays[QUALITY] = np.zeros_like(arrays[QUALITY])
    np.savez_compressed(tmp_path / "front.npz", **arrays)
    assert check(front / "experiment.yaml", tmp_path / "front.npz", 4) > 4


def test_what_a_front_lacks_is_run_or_refused(front: Path, tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixbench.problem, "TABLES", front)
    problem = load_problem("front", budget=5)
    lacking = problem.keys[int(np.flatnonzero(np.isnan(problem.columns[QUALITY]))[0])]
    with pytest.raises(BenchmarkError, match="is not on the front"):
        problem.evaluate(lacking)
    assert problem.passes == 0
    with Measurer(front / "experiment.yaml") as measurer:
        measurer.check(problem.metadata)
        problem.measure = measurer
        values = problem.evaluate(lacking)
    full_table = read_table(tables / "small.npz")
    assert values == full_table.evaluate(lacking)
    assert problem.passes == 1


def test_a_sample_has_what_the_table_of_all_has(sample: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sampled, full_table = read_table(sample / "sample.npz"), load_problem("small")
    assert sampled.is_sample
    assert (sampled.is_complete, full_table.is_complete) == (False, True)
    assert 2 < len(sampled.keys) < sampled.size == full_table.size
    rows = [full_table.number(key) for key in sampled.keys]
    for name, column in sampled.columns.items():
        np.testing.assert_array_equal(column, full_table.columns[name][rows])
    assert check(sample / "experiment.yaml", sample / "sample.npz", 2) == 0
    assert "2 assignments run anew, 0 differ" in capsys.readouterr().out


def test_a_sample_made_again_keeps_what_the_table_had(sample: Path, tables: Path, tmp_path: Path) -> None:
    problem, full_table = read_table(sample / "sample.npz"), load_problem("small")
    lacking = [key for key in full_table.keys if key not in problem.keys][:3]
    with Measurer(experiment(tmp_path, "deep")) as measurer:
        measurer(lacking)
    # Added without a sweep, they are there as well; in the table before this one there is nothing that is not in the other.
    copy = Path(shutil.copy(sample / "sample.npz", tmp_path / "added.npz"))
    assert add(tmp_path / "experiment.yaml", copy) == len(lacking)
    assert set(read_table(copy).keys) == {*problem.keys, *lacking}
    with pytest.raises(BenchmarkError, match="is no sample"):
        add(tmp_path / "experiment.yaml", tables / "small.npz")
    make(tmp_path / "experiment.yaml", tmp_path / "again.npz", workers=1)
    (tmp_path / "runs").rename(tmp_path / "other_runs")
    make(tmp_path / "experiment.yaml", tmp_path / "again.npz", workers=1)
    again = read_table(tmp_path / "again.npz")
    assert set(again.keys) == {*problem.keys, *lacking}
    rows = [full_table.number(key) for key in again.keys]
    for name, column in again.columns.items():
        np.testing.assert_array_equal(column, full_table.columns[name][rows])


def test_what_a_sample_lacks_is_run_or_refused(sample: Path) -> None:
    problem, full_table = read_table(sample / "sample.npz", budget=5), load_problem("small")
    lacking = next(key for key in full_table.keys if key not in problem.keys)
    assert problem.cost(lacking) == full_table.cost(lacking)
    with pytest.raises(BenchmarkError, match="is not in the sample"):
        problem.evaluate(lacking)
    assert problem.passes == 0
    with Measurer(sample / "experiment.yaml", sample / "other.sqlite") as measurer:
        measurer.check(problem.metadata)
        problem.measure = measurer
        assert problem.evaluate(lacking) == full_table.evaluate(lacking)
    assert problem.passes == 1


@pytest.mark.parametrize("method", [method for method in METHODS if method != "exhaustive"])
def test_each_method_answers_on_a_sample(method: str, sample: Path) -> None:
    with Measurer(sample / "experiment.yaml", sample / "methods.sqlite") as measurer:
        submission = run(method, "sample", load=lambda name, budget: load_sample(sample, measurer))
    assert submission.answers
    result = score(submission)
    assert result.regret_mean >= 0
    # What adds up over layers finds the same answers layer by layer as from the list of all.
    if method in ("hawq", "modelopt"):
        assert submission.answers == run(method, "small").answers


def test_a_sample_is_never_run_exhaustively(sample: Path) -> None:
    with pytest.raises(BenchmarkError, match="too many to run all"):
        run("exhaustive", "sample", load=lambda name, budget: read_table(sample / "sample.npz"))


@pytest.mark.parametrize("method", METHODS)
def test_each_method_answers_and_pays_for_it(method: str, tmp_path: Path) -> None:
    submission = run(method, "small")
    assert set(submission.answers) <= set(submission.problem.keys)
    assert submission.passes >= len(submission.answers)
    write_submission(submission, tmp_path / "s.json")
    assert score(read_submission(tmp_path / "s.json")) == score(submission)
    assert run(method, "small").answers == submission.answers


@pytest.mark.parametrize("method", METHODS)
def test_no_method_spends_more_than_its_budget(method: str) -> None:
    assert run(method, "small", budget=3).passes <= 3


def test_exhaustive_has_no_regret_where_it_chose() -> None:
    result = score(run("exhaustive", "small"))
    assert (result.regret_mean, result.regret_max, result.hypervolume, result.uncovered) == (0.0, 0.0, 1.0, 0)
    assert result.passes == load_problem("small").size


def test_regret_falls_with_the_passes_that_a_method_may_spend() -> None:
    for method in ("mpnet-greedy", "modelopt", "first-and-last", "hawq"):
        submission = run(method, "small")
        counts = [1, 5, 20, submission.passes]
        regrets = list(progress(submission, counts).regrets.values())
        assert regrets == sorted(regrets, reverse=True)
        # All that it asked for and answered, beside the lowest, which counts as known.
        problem = submission.problem
        keys = [problem.lowest, *problem.asked, *submission.answers]
        assert regrets[-1] == front_gap(best_pairs(points(problem, keys)), exact_front(problem)).quality_lost_mean


def test_progress_is_printed_by_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s.json"
    write_submission(run("modelopt", "small"), path)
    assert score_main([str(path), "--after", "2", "1000"]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[-4:] == ["after", "2", "after", "1000"]
    regret = progress(read_submission(path), [1000]).regrets["1000"]
    assert row.split()[-1] == f"{regret:.2f}"


def test_intervals_are_of_what_scores_see_on_the_others(tables: Path, tmp_path: Path) -> None:
    submissions = [run(name, "small") for name in ("exhaustive", "first-and-last")]
    cache_path = tmp_path / "drawn.npz"
    exact, rule = intervals.rows(submissions, tables / "experiment.yaml", cache_path)
    assert (exact.quality_loss, exact.low, exact.high) == (0, 0, 0)  # it is what all are held against
    problem = submissions[1].problem
    costs = exact_front(problem)[:, 1]
    pairs = zip(picks(problem, problem.keys, costs), picks(problem, submissions[1].answers, costs), strict=True)
    pairs_of_picks = [(best, key) for best, key in pairs if best and key]
    best, mine = (points(problem, keys, HELD_OUT_AGREEMENT)[:, 0] for keys in zip(*pairs_of_picks, strict=True))
    assert rule.quality_loss == pytest.approx(np.mean(best - mine), abs=1e-9)
    assert rule.low <= rule.high
    assert intervals.rows(submissions, tmp_path / "nothing.yaml", cache_path) == [exact, rule]  # nothing runs again


@pytest.mark.slow
def test_a_front_elsewhere_is_run_on_all_images_of_the_other_problem(tables: Path, tmp_path: Path) -> None:
    cache_path = tmp_path / "drawn.npz"
    rows = elsewhere.rows("small", tables / "experiment.yaml", cache_path)
    problem = load_problem("small")
    np.testing.assert_array_equal([row.chose for row in rows], exact_front(problem)[:, 0])
    assert [row.judge for row in rows] == points(problem, [row.key for row in rows], HELD_OUT_AGREEMENT)[:, 0].tolist()
    all_images = read_experiment(tables / "experiment.yaml", ["sweep.holdout=0", f"output={tmp_path}"])
    with TrialStore.read(Path(run_sweep(all_images, workers=1).store)) as store:
        agreement = {trial.key: trial.get(QUALITY) for trial in store.trials(1)}
    assert {row.key: row.elsewhere for row in rows} == {row.key: agreement[row.key] for row in rows}
    assert all(row.low <= row.high for row in rows)
    assert elsewhere.rows("small", tmp_path / "nothing.yaml", cache_path) == rows  # nothing runs again


def test_figures_of_layers_made_again_are_the_same(tables: Path, tmp_path: Path) -> None:
    path = figures_path(tables / "small.npz")
    content, figures = path.read_bytes(), load_problem("small").layer_figures()
    assert all(divergence > 0 for row in figures.divergences for divergence in row.values())
    assert [sum(operator.macs for operator in group) for group in figures.operators] == list(load_problem("small").macs)
    write_layers(tables / "experiment.yaml", tables / "small.npz")
    assert path.read_bytes() == content
    with pytest.raises(BenchmarkError, match="not those of the table"):
        write_layers(experiment(tmp_path, side=32), tables / "small.npz")


def test_layers_that_share_a_precision_count_together(tmp_path: Path) -> None:
    path = experiment(tmp_path)
    _, alone = sweep_of(path)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("  holdout:", "  space: {tied: [[conv-1, conv-3]]}\n  holdout:"), encoding="utf-8")
    _, tied = sweep_of(path)
    first, second, third, *others = group_macs(alone)
    assert group_macs(tied) == (first + third, second, *others)


def test_a_front_does_not_run_on_another_network(tables: Path, tmp_path: Path) -> None:
    other_experiment = experiment(tmp_path, side=32)
    with pytest.raises(BenchmarkError, match="another network"):
        elsewhere.rows("small", other_experiment, tmp_path / "drawn.npz")


def test_scores_are_the_gap_that_a_sweep_of_the_same_strategy_states(tables: Path) -> None:
    sweep_result = run_sweep(read_experiment(tables / "experiment.yaml", ["sweep.strategy=greedy"]), workers=1)
    gap, result = sweep_result.gap, score(run("mpnet-greedy", "small"))
    assert gap is not None
    assert result.regret_mean == gap.quality_lost_mean
    assert result.regret_max == gap.quality_lost_max
    assert result.hypervolume == gap.hypervolume_ratio


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"format": "other"}, '"format" must be'),
        ({"table": "0" * 64}, "of another table"),
        ({"problem": "none"}, "no problem of this name"),
        ({"answers": ["ff"]}, "no assignment of"),
        ({"answers": []}, "has no answers"),
        ({"asked": [3]}, '"asked" must hold keys'),
        ({"asked": [["ffff"]]}, '"asked" must hold keys'),
        ({"answers": [{"ffff": 1}]}, '"answers" must hold keys'),
        ({"answers": [None]}, '"answers" must hold keys'),
        ({"budget": 10**400}, '"budget" must be'),
        ({"budget": float("inf")}, '"budget" must be'),
        ({"budget": float("nan")}, '"budget" must be'),
        ({"spent": [[0, 10**400, "x"]]}, '"spent" must hold'),
        ({"version": True}, "is no submission of version 1"),
        ({"method": "m\x1b[31mRED\r\n"}, '"method" must begin with a letter'),
        ({"method": "m" * 101}, '"method" must begin with a letter'),
        ({"method": "_hidden"}, '"method" must begin with a letter'),
        ({"method": ""}, '"method" must begin with a letter'),
        ({"asked": "all"}, '"asked" must be a list'),
        ({"budget": 1}, "spends"),
        ({"budget": "many"}, '"budget" must be'),
        ({"spent": [[0, -1, "x"]]}, '"spent" must hold'),
        ({"sensitivities": "none"}, '"sensitivities" must be a list of numbers'),
        ({"sensitivities": [True, 0, 0, 0]}, '"sensitivities" must be a list of numbers'),
        ({"sensitivities": [1.0]}, "one finite sensitivity for each of"),
        ({"sensitivities": [10**400, 0, 0, 0]}, '"sensitivities": '),
    ],
)
def test_a_wrong_submission_is_refused_in_one_line(
    change: dict[str, Any], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s.json"
    write_submission(run("amp", "small"), path)
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **change}), encoding="utf-8")
    assert score_main([str(path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {path}") or "no problem" in error
    assert expected in error
    assert error.count("\n") == 1


@pytest.fixture
def dear(tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Submission:
    """Return a submission whose one answer costs more than the whole exact front: a cheaper assignment is better."""
    with np.load(tables / "small.npz") as file:
        arrays = {name: file[name] for name in file.files}
    highest = load_problem("small").highest
    arrays[QUALITY][load_problem("small").number(highest)] = arrays[QUALITY].min() - 1
    np.savez_compressed(tmp_path / "small.npz", **arrays)
    monkeypatch.setattr(mixbench.problem, "TABLES", tmp_path)
    return Submission("dear $x$", load_problem("small"), (highest,))


def test_answers_dearer_than_the_whole_front_have_no_regret(
    dear: Submission, tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = score(dear)
    assert (figures.regret_mean, figures.regret_max, figures.others_mean, figures.others_max) == (None,) * 4
    assert figures.uncovered == len(exact_front(dear.problem))
    write_submission(dear, tmp_path / "s.json")
    assert score_main([str(tmp_path / "s.json")]) == 0
    assert capsys.readouterr().out.splitlines()[1].split().count("-") == 8
    with pytest.raises(BenchmarkError, match="every answer costs more"):
        intervals.rows([dear], tables / "experiment.yaml", tmp_path / "drawn.npz")


@pytest.mark.slow
def test_a_page_shows_any_method(dear: Submission) -> None:
    pytest.importorskip("matplotlib")
    text = page([dear, run("exhaustive", "small")])
    assert text.count("dear $x$") == 2  # in the legend and in the table, as it is
    assert text.index("<td>exhaustive") < text.index("<td>dear")


@pytest.mark.parametrize("content", ["", "{", "[]", "\0", "[" * 100_000])
def test_what_is_no_submission_is_refused_in_one_line(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s.json"
    path.write_text(content, encoding="utf-8")
    assert score_main([str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_damaged_table_is_refused(tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    intact = (tables / "small.npz").read_bytes()
    monkeypatch.setattr(mixbench.problem, "TABLES", tmp_path)
    for content in (b"", intact[:100], intact[:-30], intact[: len(intact) // 2] + b"\0" * 64 + intact[len(intact) // 2 + 64 :]):
        (tmp_path / "small.npz").write_bytes(content)
        with pytest.raises(BenchmarkError, match=r"small\.npz"):
            load_problem("small")


def test_the_commands_run_and_score_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main(["-o", str(tmp_path), "--budget", "40"]) == 0
    paths = sorted(map(str, tmp_path.glob("*.json")))
    assert score_main([*paths, "--json"]) == 0
    output = capsys.readouterr().out
    assert {row["method"] for row in json.loads(output[output.index("[") :])} <= set(METHODS)
    assert run_main(["--method", "nobody"]) == 2


def test_problems_whose_tables_lack_assignments_are_left_out_unless_these_can_run(
    front: Path, tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (front / "front.npz", tables / "small.npz"):
        shutil.copy(path, tmp_path)
    monkeypatch.setattr(mixbench.problem, "TABLES", tmp_path)
    assert run_main(["--method", "first-and-last", "-o", str(tmp_path)]) == 0
    assert capsys.readouterr().err == "front: left out, as their tables lack assignments; --measure runs these\n"
    assert [path.name for path in tmp_path.glob("*.json")] == ["small.first-and-last.0.json"]


def test_answers_that_were_not_asked_for_cost_a_pass_each() -> None:
    problem = load_problem("small")
    assert Submission("mine", problem, (problem.highest, problem.lowest)).passes == 2
