# SPDX-License-Identifier: MIT
"""Reports of sweeps: from whole, unfinished, foreign and damaged stores."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Callable

import numpy as np
import pytest

from mpnet.errors import ConfigError, StoreError
from mpnet.evaluation.compare import Interval
from mpnet.report.collect.report import collect
from mpnet.report.collect.results import thinned
from mpnet.report.data.figures import NOISE_BARS, layer_noise, sensitivities, stabilities
from mpnet.report.data.summary import sentences
from mpnet.report.html.page import render
from mpnet.resolve.configurations import front_knee
from mpnet.resolve.stored import find_configuration, split_source
from mpnet.sweep.store import TrialStore
from tests.report.made_store import SUBJECT, entry, make_store
from tests.report.synthetic import configurations


@contextlib.contextmanager
def quiet(title: str, total: int) -> Iterator[Callable[[int], None]]:
    yield lambda count: None


def test_every_trial_arrives_as_it_was_stored(tmp_path: Path) -> None:
    data = collect([make_store(tmp_path / "s.sqlite")], progress=quiet)
    expected = configurations()
    assert sorted(data.configurations.keys) == sorted(expected.keys)
    rows = [expected.keys.index(key) for key in data.configurations.keys]
    for name, values in data.configurations.columns.items():
        # Not-a-number is how SQLite keeps an infinite ratio apart: everything finite is equal to the last bit.
        assert np.array_equal(values, expected.columns[name][rows]), name
    on_front = {key for key, front in zip(data.configurations.keys, data.configurations.front, strict=True) if front}
    assert {key for key, front in zip(expected.keys, expected.front, strict=True) if front} <= on_front


def test_the_baseline_and_the_sweeps_choice_are_marked(tmp_path: Path) -> None:
    store = make_store(tmp_path / "s.sqlite", findings={"best": entry("fqqqqqqqqqf")})
    table = collect([store], progress=quiet).configurations
    assert table.keys[table.baseline or 0] == "f" * 11
    assert table.keys[table.chosen or 0] == "fqqqqqqqqqf"


def test_a_report_says_what_proved_that_configurations_are_not_on_the_front(tmp_path: Path) -> None:
    findings = {"best": entry("f" * 11), "ruled_out": 1900, "space": 2048, "ruled_out_after": {"2": 900, "5": 700, "9": 300}}
    store = make_store(tmp_path / "s.sqlite", findings=findings, sweep={"selecting": 40})
    page = render(collect([store], progress=quiet))
    assert "1,900 of 2,048 configurations were not measured to the end" in page
    assert "by part of the images, half of them after 5, the last after 9 of 40." in page


def test_another_configuration_can_be_chosen(tmp_path: Path) -> None:
    store = make_store(tmp_path / "s.sqlite")
    table = collect([store], progress=quiet, choose="q" * 11).configurations
    assert table.keys[table.chosen or 0] == "q" * 11
    with pytest.raises(StoreError, match="is not in the store"):
        collect([store], progress=quiet, choose="x" * 11)


@pytest.mark.parametrize(("state", "word"), [("running", "is still running"), ("finished", "were measured")])
def test_unfinished_sweeps_make_a_report_that_says_so(tmp_path: Path, state: str, word: str) -> None:
    data = collect([make_store(tmp_path / "s.sqlite", count=700, state=state)], progress=quiet)
    assert word in sentences(data)[0]
    assert "700" in sentences(data)[0]
    assert word in render(data)


def test_a_sweep_whose_process_died_was_interrupted(tmp_path: Path) -> None:
    path = make_store(tmp_path / "s.sqlite", count=5)
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    with TrialStore.open(path, SUBJECT) as store:
        dead = store.owner.split(":")
        store.set_note("status", f'{{"state": "running", "owner": "{dead[0]}:{child}:x", "total": 2048}}')
    data = collect([path], progress=quiet)
    assert data.status.state == "interrupted"
    assert "was interrupted: 5 of 2,048" in sentences(data)[0]


def test_a_report_is_made_while_the_sweep_writes(tmp_path: Path) -> None:
    path = make_store(tmp_path / "s.sqlite", count=50)
    with TrialStore.open(path, SUBJECT) as writing:
        writing.claim(["unit"])
        data = collect([path], progress=quiet)
        assert data.status.state == "running"
        assert len(data.configurations) == 50


def test_a_store_is_only_read(tmp_path: Path) -> None:
    path = make_store(tmp_path / "s.sqlite", count=50)
    content = path.read_bytes()
    collect([path], progress=quiet)
    assert path.read_bytes() == content


def test_an_empty_store_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="holds no finished trial yet"):
        collect([make_store(tmp_path / "s.sqlite", count=0)], progress=quiet)


def test_store_and_run_do_not_mix(tmp_path: Path) -> None:
    store = make_store(tmp_path / "s.sqlite", count=5)
    with pytest.raises(ConfigError, match="one sweep or of runs"):
        collect([store, tmp_path], progress=quiet)


def test_files_that_are_gone_are_named(tmp_path: Path) -> None:
    data = collect([make_store(tmp_path / "s.sqlite", count=50)], progress=quiet)
    reasons = {omission.subject: omission.reason for omission in data.omissions}
    assert len(reasons) == 2
    assert all("does not name its" in reason for reason in reasons.values())
    assert all(reason in render(data) for reason in reasons.values())


def test_held_out_figures_stand_beside_those_that_chose(tmp_path: Path) -> None:
    store = make_store(tmp_path / "s.sqlite", held_out=True, findings={"best": entry("q" * 11)})
    data = collect([store], progress=quiet)
    assert "of which 57 chose and 58 were held out" in sentences(data)[0]
    held_out = data.configurations.value(data.configurations.chosen, "held_out_AP")
    assert sentences(data)[1].startswith(
        f"On the 58 held-out images the chosen configuration reaches AP {held_out:.2f} against"
    )
    assert "that chose" not in sentences(data)[1]
    assert "partly luck" not in sentences(data)[1]
    assert find_configuration(f"{store}:{'q' * 11}").held_out.keys() == {"AP"}


def test_without_a_holdout_luck_is_named(tmp_path: Path) -> None:
    assert "partly luck" in sentences(collect([make_store(tmp_path / "s.sqlite")], progress=quiet))[1]


def test_names_of_configurations(tmp_path: Path) -> None:
    store = make_store(tmp_path / "a:b.sqlite")
    assert split_source(f"{store}:fqq+3:q") == (store, "fqq+3:q")
    assert split_source(str(store)) == (store, None)
    assert find_configuration(f"{store}:baseline").key == "f" * 11
    with pytest.raises(StoreError, match="did you mean 'safe'"):
        find_configuration(f"{store}:saef")


def test_thinning_keeps_front_ends_and_sensitivities() -> None:
    table = configurations(codes="fq")
    thin = thinned(table, limit=300)
    assert len(thin) == 300
    assert thin.dropped == len(table) - 300
    assert thin.keys[thin.chosen or 0] == table.keys[table.chosen or 0]
    assert thin.front.sum() == table.front.sum()
    singles = {"f" * position + "q" + "f" * (10 - position) for position in range(11)}
    assert singles <= set(thin.keys)
    assert thinned(table, limit=300).keys == thin.keys


def test_the_knee_is_farthest_from_the_line_between_the_ends() -> None:
    columns = {"AP": np.array([10.0, 40.0, 44.0, 45.0]), "bit_operations": np.array([1.0, 2.0, 6.0, 11.0])}
    assert front_knee(columns, np.arange(4), "AP", "bit_operations") == 1


def test_a_table_of_one_row_is_its_own_knee() -> None:
    table = replace(configurations(), chosen=0)
    columns = {name: values[:1] for name, values in table.columns.items()}
    assert front_knee(columns, np.arange(1), "agreement_AP", "bit_operations") == 0


def test_the_front_is_the_one_that_the_terminal_shows(tmp_path: Path) -> None:
    front = ["f" * 11, "fqqqqqqqqqf", "q" * 11]
    rows = [*map(entry, front), {**entry("fffffffffff"), "options": "calibrated"}]
    store = make_store(tmp_path / "s.sqlite", findings={"front": rows, "best": entry("q" * 11)})
    data = collect([store], progress=quiet)
    table = data.configurations
    assert sorted(table.keys[row] for row in np.flatnonzero(table.front)) == sorted(front)
    assert "3 of them are on the front" in sentences(data)[0]
    assert "1 of them have other quantisation options" in " ".join(data.notes)


def pick(key: str, loss: tuple[float, float, float]) -> dict[str, object]:
    """Return a pick as findings hold it."""
    return {
        **entry(key),
        "saves": {"bit_operations": 93.75, "weight_bytes": 75.0},
        "losses": {
            name: {"pictures": count, "AP": dict(zip(("difference", "low", "high"), loss, strict=True))}
            for name, count in (("selecting", 57), ("held_out", 58))
        },
    }


def test_picks_come_with_loss_and_saving_on_held_out_images(tmp_path: Path) -> None:
    picks = {"safe": pick("fqqqqqqqqqf", (-0.1, -0.6, 0.3)), "smallest": pick("q" * 11, (-3.0, -4.0, -2.0))}
    pick_data = {"picks": picks, "best": entry("q" * 11)}
    data = collect([make_store(tmp_path / "s.sqlite", held_out=True, findings=pick_data)], progress=quiet)
    assert [(p.name, p.key, data.configurations.keys[p.row or 0]) for p in data.picks] == [
        ("safe", "fqqqqqqqqqf", "fqqqqqqqqqf"),
        ("smallest", "q" * 11, "q" * 11),
    ]
    assert next(iter(data.picks[0].losses.items())) == ("the 58 held-out images", Interval(-0.1, -0.6, 0.3))
    assert data.picks[0].saves["bit_operations"] == 93.75


def test_the_page_says_what_resampled_images_would_choose(tmp_path: Path) -> None:
    shares = [{"layer": 0, "percent": 96.0}, {"layer": 10, "percent": 12.5}]
    stability = {"draws": 200, "judged": 7, "front": [], "picks": {"safe": 41.0}, "layers": {"safe": shares, "smallest": []}}
    findings = {"best": entry("fqqqqqqqqqf"), "picks": {"safe": pick("fqqqqqqqqqf", (-0.1, -0.6, 0.3))}, "stability": stability}
    data = collect([make_store(tmp_path / "s.sqlite", findings=findings)], progress=quiet)
    [figure] = stabilities(data)
    assert (figure.name, *zip(figure.series[0].x, figure.series[0].y, strict=True)) == (
        "stability-safe",
        ("layer 0", 96.0),
        ("layer 10", 12.5),
    )
    network = tuple(
        replace(layer, kind="convolutional", index=2 * layer.index, name=f"conv-{layer.index}") for layer in data.layers
    )
    [stability_figure] = stabilities(replace(data, layers=network))
    assert stability_figure.series[0].x[5] == "conv-5"
    assert list(stability_figure.series[0].y) == [96.0, *[0.0] * 4, 12.5, *[0.0] * 5]
    page = render(data)
    assert "picked again in 41 % of the resampled image sets" in page
    assert 'id="plot-stability-safe"' in page


def test_the_page_ranks_layers_by_the_noise_that_was_screened(tmp_path: Path) -> None:
    rows = [
        {
            "layers": [layer],
            "names": [name],
            "precision": "int8",
            "mac_share": 0.25,
            "noise": percent / 1e4,
            "noise_percent": percent,
            "saved_percent": 12.5,
        }
        for layer, name, percent in ((4, "conv-5", 61.25), (0, "conv-1", 38.75))
    ]
    path = make_store(tmp_path / "s.sqlite", findings={"best": entry("fqqqqqqqqqf"), "layers_by_noise": rows})
    data = collect([path], progress=quiet)
    figure = layer_noise(data)
    assert figure is not None
    assert [(s.name, list(s.x), list(s.y)) for s in figure.series] == [("to int8", ["conv-5", "conv-1"], [61.25, 38.75])]
    page = render(data)
    assert page.index('id="plot-layer-noise"') < page.index('id="table-layer-noise"') < page.index('id="plot-heat"')
    many = replace(
        data, layers_by_noise=tuple(replace(data.layers_by_noise[0], layers=(i,), names=(f"conv-{i}",)) for i in range(84))
    )
    crowded = layer_noise(many)
    assert crowded is not None
    assert len(crowded.series[0].x) == NOISE_BARS
    assert len(crowded.columns["name"]) == 84
    assert "24 of 84" in crowded.note
    # Single layers that were measured by chance have no figure beside that.
    few = make_store(tmp_path / "few.sqlite", count=5, findings={"best": entry("fqqqqqqqqqf"), "layers_by_noise": rows})
    assert sensitivities(collect([few], progress=quiet)) == []
    assert sensitivities(data)
    assert layer_noise(collect([make_store(tmp_path / "other.sqlite")], progress=quiet)) is None


def test_the_page_says_what_the_front_is_worth_under_conditions(tmp_path: Path) -> None:
    def make_conditions(clean: float, fog: float) -> dict[str, dict[str, float]]:
        return {
            name: {"agreement_AP": value}
            for name, value in zip(("clean", "fog:3", "mean", "worst"), (clean, *[fog] * 3), strict=True)
        }

    robust_key, fragile_key = "fqqqqqqqqqf", "fqqqqqqqqqq"
    rows = [
        {"precision": key, "trial": key.ljust(64, "-"), "options": "", "costs": {}, "under": make_conditions(*values)}
        for key, values in ((robust_key, (99.0, 97.5)), (fragile_key, (98.0, 61.25)))
    ]
    conditions = {
        "conditions": ["fog:3"],
        "images": 115,
        "of_front": 2,
        "rows": rows,
        "front": {"clean": [robust_key, fragile_key], "mean": [robust_key], "worst": [robust_key]},
        "picks": {"clean": {"smallest": fragile_key}, "mean": {"smallest": robust_key}, "worst": {"smallest": robust_key}},
    }
    smallest = {**pick(fragile_key, (-0.1, -0.6, 0.3)), "trial": rows[1]["trial"]}
    findings = {"best": entry(robust_key), "front": [], "picks": {"smallest": smallest}, "conditions": conditions}
    page = render(collect([make_store(tmp_path / "s.sqlite", findings=findings)], progress=quiet))
    section = page[page.index('<section id="conditions"') :].split("</section>")[0]
    assert "1 of the 2 configurations of the front stay on it; smallest would be fqqqqqqqqqf in place of fqqqqqqqqqq" in section
    assert "<td>fog:3</td><td>61.25</td>" in section
    assert '<td>smallest</td><td>98.00</td><td>61.25</td><td>61.25</td><td class="wrap">clean</td>' in section
    assert 'href="#conditions"' in page
    assert 'id="conditions"' not in render(collect([make_store(tmp_path / "t.sqlite")], progress=quiet))


def test_thinning_keeps_required_keys() -> None:
    table = configurations()
    dropped = next(key for key in table.keys if key not in thinned(table, limit=100).keys)
    assert dropped in thinned(table, limit=100, required=[dropped]).keys
