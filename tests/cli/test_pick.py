# SPDX-License-Identifier: MIT
"""`mpnet pick`: budgets in the user's words on a store of 2,048 configurations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpnet.resolve.stored import in_store
from mpnet.sweep.store import Subject, TrialStore
from tests.cli.conftest import Mpnet, document_of
from tests.report.made_store import make_store
from tests.report.synthetic import configurations


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "s.sqlite")


def test_the_cheapest_within_a_loss_is_picked(mpnet: Mpnet, store: Path) -> None:
    table = configurations()
    agreement, bits = table.columns["agreement_AP"], table.columns["bit_operations"]
    document = document_of(mpnet("pick", store, "--max-loss", "4 agreement", "--json"))
    fitting = 100 - agreement <= 4
    assert document["count"] == len(table) == 2048
    assert document["pick"]["cost"] == bits[fitting].min()
    assert fitting[table.keys.index(document["pick"]["precision"])]
    assert document["pick"]["shown"] is False
    runner_up = table.keys.index(document["runner_up"]["precision"])
    assert fitting[runner_up]
    assert bits[runner_up] >= document["pick"]["cost"]


def test_all_budgets_are_kept_and_without_a_loss_the_most_accurate_is_picked(mpnet: Mpnet, store: Path) -> None:
    table = configurations()
    size, agreement = table.columns["weight_bytes"], table.columns["agreement_AP"]
    int8, fp32 = table.keys.index("q" * 11), table.keys.index("f" * 11)
    for text, limit in (("1.5x", 1.5 * size[int8]), ("40%", 0.4 * size[fp32]), (f"{size[int8] / 1e3 + 1}kB", size[int8] + 1e3)):
        row = document_of(mpnet("pick", store, "--max-bytes", text, "--json"))["pick"]
        assert agreement[table.keys.index(row["precision"])] == np.max(agreement[size <= limit * (1 + 1e-9)])
    constrained = document_of(mpnet("pick", store, "--max-loss", "6 agreement", "--max-bytes", "50 %", "--json"))["pick"]
    assert size[table.keys.index(constrained["precision"])] <= size[fp32] / 2
    assert 100 - agreement[table.keys.index(constrained["precision"])] <= 6


@pytest.mark.parametrize(
    "budgets", [("--max-loss", "4 agreement"), ("--max-loss", "5 agreement", "--max-bytes", "1.5x"), ("--max-bytes", "2x")]
)
def test_looser_and_tighter_budgets_give_what_they_promise(mpnet: Mpnet, store: Path, budgets: tuple[str, ...]) -> None:
    def picked(options: dict[str, str]) -> Any:
        return document_of(mpnet("pick", store, *(word for item in options.items() for word in item), "--json"))

    budget_of = dict(zip(budgets[::2], budgets[1::2], strict=True))
    document = picked(budget_of)
    assert document["looser"]
    assert document["tighter"]
    for alternative in (*document["looser"], *document["tighter"]):
        changed_pick = picked({**budget_of, alternative["option"]: alternative["budget"]})
        assert changed_pick["pick"]["precision"] == alternative["row"]["precision"] != document["pick"]["precision"]


def test_a_table_says_what_was_picked_and_how_to_take_it(mpnet: Mpnet, store: Path) -> None:
    text = mpnet("pick", store, "--max-loss", "4 agreement").stdout
    key = document_of(mpnet("pick", store, "--max-loss", "4 agreement", "--json"))["pick"]["precision"]
    assert f"export {store}:{key}" in text
    assert "keeps, on the images at hand and not shown, --max-loss 4 agreement" in " ".join(text.split())
    for word in ("pick", "runner-up", "looser", "tighter"):
        assert f"\n{word} " in text


def test_a_budget_in_percent_is_shown_by_the_points_that_it_is(mpnet: Mpnet, tmp_path: Path) -> None:
    table = configurations()
    key = "q" * 11  # the cheapest of all, which loses less than either budget on the images at hand
    bound = {"least": 0.0, "most": 2.0, "loss": 1.0, "images": 58}
    tested = {"precision": key, "options": "", "state": "met", "more_images": None, "losses": {"AP": bound}}
    safety = {"margin": {"AP": 2.0}, "asked": True, "error": 0.05, "held_out": True, "images": 58, "safe": key, "why": ""}
    findings = {"best": None, "safety": {**safety, "tested": [tested]}}
    store = make_store(tmp_path / "s.sqlite", findings=findings)
    baseline = table.columns["AP"][0]
    for points, is_shown in ((3.0, True), (1.9, False)):
        pick = document_of(mpnet("pick", store, "--max-loss", f"{100 * points / baseline} %", "--json"))["pick"]
        assert (pick["precision"], pick["shown"]) == (key, is_shown)


def test_nothing_that_fits_ends_with_one(mpnet: Mpnet, store: Path) -> None:
    process = mpnet("pick", store, "--max-loss", "0.0001 agreement", "--max-bytes", "1%", "--json")
    document = json.loads(process.stdout)
    assert (process.returncode, document["pick"]) == (1, None)
    assert document["nearest"]["precision"]
    assert "keeps --max-bytes 1B" in mpnet("pick", store, "--max-bytes", "1B").stdout


@pytest.mark.parametrize(
    ("budgets", "words"),
    [
        ((), "name a budget"),
        (("--max-loss", "1 apple"), "write a number and a unit (agreement, AP, %)"),
        (("--max-loss", "agreement"), "is no budget"),
        (("--max-loss", "-1 AP"), "is no budget"),
        (("--max-loss", "1 agreement, 2 agreement"), "limits one measure twice"),
        (("--max-loss", "1 AP, 2 %"), "limits one measure twice"),
        (("--max-bytes", "2 ms"), "kB, MB, x, %"),
        (("--max-time", "1.2"), "x, ms, %"),
    ],
)
def test_what_is_no_budget_ends_in_one_line(mpnet: Mpnet, store: Path, budgets: tuple[str, ...], words: str) -> None:
    process = mpnet("pick", store, *budgets)
    assert (process.returncode, process.stderr.count("\n")) == (2, 1)
    assert words in process.stderr


BUDGETS = {"--max-loss": "5 agreement, 40 AP", "--max-bytes": "2x"}
NAME = "max_loss=5 agreement, 40 AP, max_bytes=2x"


def test_names_and_reports_take_the_same_budgets(mpnet: Mpnet, store: Path) -> None:
    options = tuple(word for item in BUDGETS.items() for word in item)
    picked = document_of(mpnet("pick", store, *options, "--json"))["pick"]["precision"]
    for name in (NAME, "max_loss=5agreement,40AP,max_bytes=2x", "1/" + NAME.replace(", max_bytes", "; max_bytes")):
        path, _, key = in_store(f"{store}:{name}")
        assert (path, key) == (store, picked)
    assert in_store(f"{store.parent}:{NAME}")[2] == picked
    for source in ((f"{store}:{NAME}",), (store, *options)):
        assert mpnet("report", *source, "--no-compute", "-o", "page.html").returncode == 0
        assert f'title="{picked}"' in (store.parent / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("export", "STORE:max_size=2MB", "--to", "cfg"), "'max_size' is no budget; name max_loss, max_time, max_bytes"),
        (("export", "STORE:max_bytes=2MB,max_bytes=1MB", "--to", "cfg"), "max_bytes is named twice; leave one of the two"),
        (("export", "STORE:max_bytes=2 apples", "--to", "cfg"), "write a number and a unit (kB, MB, x, %)"),
        (
            ("export", "STORE:max_loss=0 agreement,max_bytes=1B", "--to", "cfg"),
            "keeps --max-loss 0 agreement, --max-bytes 1B; nearest",
        ),
        (("report", "STORE", "--max-bytes", "1B"), "none of its 2,048 configurations keeps --max-bytes 1B"),
        (("report", "STORE:ffffffffffq", "--max-bytes", "2x"), "leave one of the two out"),
        (("report", "nothing-here", "--max-bytes", "2x"), "are of a sweep; name its store"),
    ],
)
def test_budgets_that_nothing_keeps_or_knows_end_in_one_line(
    mpnet: Mpnet, store: Path, arguments: tuple[str, ...], words: str
) -> None:
    process = mpnet(*(argument.replace("STORE", str(store)) for argument in arguments))
    assert (process.returncode, process.stderr.count("\n")) == (2, 1)
    assert words in process.stderr


def test_times_are_of_the_table_or_of_what_was_timed(mpnet: Mpnet, experiment: Path) -> None:
    sweep = (
        "sweep",
        experiment,
        "--set",
        "sweep={strategy: one_at_a_time, precisions: [fp32, int8]}",
        "--workers",
        "1",
        "--json",
    )
    untimed = document_of(mpnet(*sweep, "--no-time"))["store"]
    process = mpnet("pick", untimed, "--max-time", "1.2x")
    assert (process.returncode, process.stderr.count("\n")) == (2, 1)
    assert "holds no times" in process.stderr
    timed = document_of(mpnet(*sweep))
    slowest = max(time["median_ms"] for time in timed["times"].values())
    row = document_of(mpnet("pick", timed["store"], "--max-time", f"{slowest + 1} ms", "--json"))["pick"]
    int8 = "q" * len(row["precision"])
    assert row["precision"] in {int8, timed["baseline"]["precision"], *(pick["precision"] for pick in timed["picks"].values())}
    # Times int8's, which is timed whether the sweep names it or not.
    for factor, kept in ((1.0, True), (0.999, False)):
        outcome = json.loads(mpnet("pick", timed["store"], "--max-time", f"{factor}x", "--json").stdout)
        fits = any(t["median_ms"] <= factor * timed["times"]["int8"]["median_ms"] for t in timed["times"].values())
        assert (outcome["pick"] is not None) == fits
        assert fits or not kept
    assert outcome["timed"] == len({entry["min_ms"] for entry in timed["times"].values()})
    assert "no other one counts" in mpnet("pick", timed["store"], "--max-time", "90%").stdout
    # A store whose sweep timed no int8 says what does.
    with TrialStore.open_or_read(Path(timed["store"]), _subject(Path(timed["store"]))) as store:
        for name in store.notes("findings"):
            document = store.document(name)
            assert document is not None
            store.set_note(name, json.dumps({**document, "times": {"baseline": document["times"]["baseline"]}}))
    process = mpnet("pick", timed["store"], "--max-time", "1.2x")
    assert (process.returncode, process.stderr.count("\n")) == (2, 1)
    assert "int8 everywhere was not timed, of which 1.2x is; the same `mpnet sweep` again" in process.stderr


@pytest.mark.slow
def test_the_export_line_names_the_option_set(mpnet: Mpnet, experiment: Path) -> None:
    space = "space: {quantization: {weights.granularity: [per_tensor, per_channel]}}"
    section = f"sweep={{strategy: one_at_a_time, precisions: [fp32, int8], {space}}}"
    swept = document_of(mpnet("sweep", experiment, "--set", section, "--workers", 1, "--no-time", "--json"))
    assert swept["store"]
    outcome = document_of(mpnet("pick", swept["store"], "--max-bytes", "1.5x", "--json"))
    path, at, number = outcome["source"].rpartition("@")
    assert (path, at) == (f"{swept['store']}:{outcome['pick']['precision']}", "@")
    assert number in ("1", "2")
    assert f"export {outcome['source']} " in mpnet("pick", swept["store"], "--max-bytes", "1.5x").stdout.replace("'", "")
    assert document_of(mpnet("show", outcome["source"], "--json"))["precision_key"] == outcome["pick"]["precision"]


def test_a_space_without_fp32_is_compared_with_its_highest_configuration(mpnet: Mpnet, experiment: Path) -> None:
    section = "sweep={strategy: one_at_a_time, precisions: [fp16, int8], objectives: [agreement_AP, bit_operations]}"
    sweep_document = document_of(mpnet("sweep", experiment, "--set", section, "--workers", 1, "--json"))
    baseline = sweep_document["baseline"]
    assert set(baseline["precision"]) == {"h"}
    pick = document_of(mpnet("pick", sweep_document["store"], "--max-bytes", "100%", "--json"))["pick"]
    assert pick["saves"] == pytest.approx(100 * (1 - pick["cost"] / baseline["costs"]["bit_operations"]))


def _subject(path: Path) -> Subject:
    with TrialStore.read(path) as store:
        return store.subject


def test_a_pick_that_is_not_shown_ends_with_4_where_that_is_asked_for(mpnet: Mpnet, store: Path) -> None:
    process = mpnet("pick", store, "--max-loss", "4 agreement", "--require-shown", "--json")
    assert (process.returncode, json.loads(process.stdout)["pick"]["shown"]) == (4, False)
    without = mpnet("pick", store, "--max-bytes", "2x", "--require-shown")
    assert (without.returncode, without.stderr) == (
        2,
        "error: --require-shown: name the loss that is to be shown with --max-loss\n",
    )
