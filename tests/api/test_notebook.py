# SPDX-License-Identifier: MIT
"""What notebooks get: results as tables, DataFrames and plots, a sweep that is watched, and the notebooks themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mpnet.api import MpnetError, compare, export, load_network, notebook, report, run_experiment, sweep
from mpnet.tables import Table
from tests.networks import write_experiment

SWEEP = ["sweep={strategy: one_at_a_time, precisions: [fp32, int8]}"]
NOTEBOOKS = ("choosing", "first-look", "own-network")


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    return write_experiment(tmp_path)


def test_a_sweep_hands_every_trial_on_and_shows_its_picks(experiment: Path) -> None:
    figures: dict[str, float] = {}
    outcome = sweep(experiment, SWEEP, workers=1, on_trial=lambda key, values: figures.update({key: values["AP"]}))
    assert len(figures) == outcome.document["trials"]
    assert ", ".join(outcome.picks.columns["pick"]).split(", ").count("recommended") == 1
    assert {*outcome.document["picks"], "recommended"} == set(", ".join(outcome.picks.columns["pick"]).split(", "))
    assert outcome.table.columns["precision"] == [entry["precision"] for entry in outcome.document["front"]]
    assert outcome._repr_html_().count("<table>") == 2
    assert all(ms > 0 for ms in outcome.picks.columns["ms here"])
    [path] = export(f"{outcome.store}:smallest", experiment.parent / "smallest.cfg")
    assert "int8" in path.read_text()
    page = report(outcome, out=experiment.parent / "page.html", compute=False)
    assert page.path.read_text() == page.html
    assert page._repr_html_().startswith("<iframe srcdoc=")


def test_a_notebook_sees_the_front_grow(experiment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawings: list[str] = []
    monkeypatch.setattr(notebook, "_notebook_display", lambda: drawings.append)
    monkeypatch.setattr(notebook, "LIVE_SECONDS", 0.0)
    outcome = sweep(experiment, SWEEP, workers=1, timed=False)
    assert f"{outcome.document['trials']} of {outcome.document['trials']} trials" in drawings[-1]
    assert "<svg" in drawings[-1]


def test_runs_and_comparisons_are_tables(experiment: Path) -> None:
    pandas = pytest.importorskip("pandas")
    run = run_experiment(experiment)
    assert run.baseline is not None
    frame = run.result.to_pandas()
    assert dict(zip(frame["measure"], frame["percent"], strict=True))["AP50"] == run.result.metrics["AP50"]
    layers = run.result.layers.to_pandas()
    assert layers["weight_bytes"].sum() == run.result.document["cost"]["weight_bytes"]
    assert isinstance(run.result.classes.to_pandas(), pandas.DataFrame)
    compared = compare(run.baseline, run.result)
    first_row = compared.to_pandas().iloc[0]
    assert first_row["value"] - first_row["baseline"] == pytest.approx(first_row["difference"], abs=1e-9)
    assert first_row["low"] <= first_row["difference"] <= first_row["high"]
    assert "<caption>Differences from" in compared._repr_html_()


def test_results_are_drawn(experiment: Path) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    run = run_experiment(experiment)
    axes = run.result.layers.plot()
    assert [tick.get_text() for tick in axes.get_yticklabels()] == run.result.layers.columns["name"]
    outcome = sweep(experiment, SWEEP, workers=1)
    assert {text.get_text() for text in outcome.plot().texts} == set(outcome.table.columns["pick"]) - {""}
    assert compare(run.baseline or run.result, run.result).plot(axes) is axes


def test_a_network_says_what_it_is(experiment: Path) -> None:
    folder = experiment.parent
    network = load_network(next(folder.rglob("*.cfg")), next(folder.rglob("*.weights")))
    assert network.precision in repr(network) or "precisions" in repr(network)
    assert len(network.layers) == len(network.spec.layers)
    assert network.layers.columns["precision"][0] in network._repr_html_()


def test_names_do_not_turn_a_table_around() -> None:
    html = Table({"a\u202eb": ["c\u202ed"]}, "e\u202ef").html()
    assert "\u202e" not in html
    assert [html.count(name) for name in ("a\\u202eb", "c\\u202ed", "e\\u202ef")] == [1, 1, 1]


def test_overrides_of_what_is_no_file_are_refused(experiment: Path) -> None:
    from mpnet.api import read_experiment

    with pytest.raises(MpnetError, match="overrides change an experiment file"):
        sweep(read_experiment(experiment), SWEEP)


def test_all_notebooks_are_tested(repository: Path) -> None:
    assert tuple(sorted(path.stem for path in (repository / "docs/notebooks").glob("*.ipynb"))) == NOTEBOOKS


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_run(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Cell by cell; what draws, where matplotlib is there. No output is stored."""
    pytest.importorskip("pandas")
    try:
        import matplotlib
    except ImportError:
        plots = False
    else:
        matplotlib.use("Agg")
        plots = True
    monkeypatch.chdir(tmp_path)
    cells = json.loads((repository / f"docs/notebooks/{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    variables: dict[str, Any] = {}
    for cell in (cell for cell in cells if cell["cell_type"] == "code"):
        assert cell["outputs"] == []
        if plots or "plot" not in cell["metadata"].get("tags", ()):
            exec("".join(cell["source"]), variables)
