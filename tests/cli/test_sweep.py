# SPDX-License-Identifier: MIT
"""`mpnet sweep` and `mpnet profile` on a tiny network: fronts, equality with runs, resume, latency, bad input."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

from mpnet.config.identity import digest_of
from mpnet.config.measures import AGREEMENT, names_of, trial_costs
from mpnet.evaluation.intervals import METHOD
from mpnet.model.task import DETECTION
from mpnet.sweep.evaluate.evaluator import Evaluator
from mpnet.sweep.evaluate.work_chunks import ChunkResult, WorkChunk
from mpnet.sweep.search import chunk_sizes
from mpnet.sweep.store import TrialStore
from tests.cli.conftest import Mpnet, document_of

WEIGHTED = (0, 2, 4, 6, 8, 10, 12, 13, 14, 15, 18, 21, 22)
SMALL_SPACE = ("--set", "sweep.precisions=[fp32, int8]", "--set", "sweep.space.tied=[['2..6'], ['8..21']]", "--workers", "1")


@pytest.fixture
def sweep_file(experiment: Path) -> Path:
    with experiment.open("a", encoding="utf-8") as file:
        file.write("sweep: {strategy: exhaustive, objectives: [agreement_AP, bit_operations], holdout: 0}\n")
    return experiment


def test_the_document_says_what_was_found(mpnet: Mpnet, sweep_file: Path) -> None:
    document = document_of(mpnet("sweep", sweep_file, *SMALL_SPACE, "--json"))
    assert (document["trials"], document["computed"], document["space"]) == (16, 16, 16)
    # The baseline's pass was run for the workers, so that theory holds what only it would have cost: its last layer.
    assert 0 < document["forward_equivalents_theory"] - document["forward_equivalents"] < 0.01
    assert document["forward_equivalents"] < 16
    assert document["holdout"] == {"selecting": 5, "held_out": 0}
    assert document["baseline"]["precision"] == "f" * 13
    assert document["baseline"]["metrics"]["head_sqnr_db"] == 150
    costs = [row["costs"]["bit_operations"] for row in document["front"]]
    quality = [row["metrics"]["agreement_AP"] for row in document["front"]]
    assert costs == sorted(costs, reverse=True)
    assert quality == sorted(quality, reverse=True)
    assert Path(document["store"]).is_file()


def test_label_files_without_any_object_are_said(mpnet: Mpnet, sweep_file: Path) -> None:
    for labels in (sweep_file.parent / "labels").iterdir():
        labels.write_text("")
    process = mpnet("sweep", sweep_file, *SMALL_SPACE, "--no-time")
    assert process.stderr.count("note: no image has a labelled object, so nothing can be found or missed") == 1


def test_every_trial_is_what_a_run_gives(mpnet: Mpnet, sweep_file: Path) -> None:
    """Equal metrics, costs, agreement and identity: nothing tells a swept configuration from a run of it."""
    document = document_of(mpnet("sweep", sweep_file, *SMALL_SPACE, "--json"))
    with TrialStore.read(document["store"]) as store:
        trials = {trial.key: trial for trial in store.trials(1)}
        digests = {key: store.trial_digest(1, key) for key in trials}
    for key in random.Random(2).sample(sorted(trials), 4):
        names = {"f": "fp32", "q": "int8"}
        layers = {index: names[code] for index, code in zip(WEIGHTED, key, strict=True)}
        run = document_of(mpnet("run", sweep_file, "--json", "--set", f"precision.layers={json.dumps(layers)}"))
        trial = trials[key].values
        assert run["precision"]["key"] == key
        assert run["digests"]["trial"] == digests[key]
        metrics = [name for name in names_of("accuracy", stored="trials") if name in trial]
        assert {"AP", "AP50", "AP75", "AR100"} <= set(metrics)
        assert [run["metrics"][name] for name in metrics] == [trial[name] for name in metrics]
        costs = [name for name in trial_costs() if name != "latency_ms"]  # a sweep predicts it from a table, here without
        assert [run["cost"][name] for name in costs] == [trial[name] for name in costs]
        if run["agreement"]:
            for name in names_of("agreement", stored="trials", task=DETECTION):
                assert run["agreement"][name.removeprefix(AGREEMENT)] == trial[name]


def test_running_again_computes_nothing(mpnet: Mpnet, sweep_file: Path) -> None:
    document = document_of(mpnet("sweep", sweep_file, *SMALL_SPACE, "--json"))
    second_document = document_of(mpnet("sweep", sweep_file, *SMALL_SPACE, "--json"))
    assert (second_document["computed"], second_document["forward_equivalents"]) == (0, 0)
    assert second_document["front"] == document["front"]
    assert second_document["forward_equivalents_store"] == document["forward_equivalents"]


@pytest.mark.slow
def test_worker_processes_change_nothing(mpnet: Mpnet, sweep_file: Path, tmp_path: Path) -> None:
    one_worker = document_of(mpnet("sweep", sweep_file, *SMALL_SPACE, "--json", "--store", tmp_path / "a.sqlite"))
    two_workers = document_of(
        mpnet("sweep", sweep_file, *SMALL_SPACE, "--workers", "2", "--json", "--store", tmp_path / "b.sqlite")
    )
    assert two_workers["front"] == one_worker["front"]
    assert two_workers["computed"] == 16


@pytest.mark.slow
def test_a_proxy_is_compared_with_the_exact_front(mpnet: Mpnet, sweep_file: Path) -> None:
    exact = document_of(mpnet("sweep", sweep_file, *SMALL_SPACE, "--json"))
    greedy = document_of(mpnet("sweep", sweep_file, *SMALL_SPACE, "--json", "--set", "sweep.strategy=greedy"))
    assert exact["gap"]["hypervolume_ratio"] == 1
    assert (greedy["computed"], greedy["gap"]["exact_points"]) == (0, len(exact["front"]))
    assert 0 < greedy["gap"]["hypervolume_ratio"] <= 1
    assert "of its hypervolume" in mpnet("sweep", sweep_file, *SMALL_SPACE, "--set", "sweep.strategy=greedy").stdout


def test_a_front_is_of_everything_that_the_store_knows(mpnet: Mpnet, sweep_file: Path) -> None:
    exact = document_of(mpnet("sweep", sweep_file, *SMALL_SPACE, "--json"))
    short_sweep = document_of(mpnet("sweep", sweep_file, *SMALL_SPACE, "--json", "--set", "sweep.strategy=one_at_a_time"))
    assert [row["precision"] for row in short_sweep["front"]] == [row["precision"] for row in exact["front"]]
    assert (short_sweep["trials"] < 16, short_sweep["known"]) == (True, 16)
    assert {row["precision"] for row in short_sweep["front"] if row["tried"]} <= set(short_sweep["own_front"])


def test_picks_are_named_and_can_be_exported(mpnet: Mpnet, sweep_file: Path, tmp_path: Path) -> None:
    document = document_of(mpnet("sweep", sweep_file, *SMALL_SPACE, "--json", "--set", "sweep.holdout=0.4"))
    picks = document["picks"]
    assert {"balanced", "smallest"} <= set(picks) <= {"safe", "balanced", "smallest"}
    assert picks["smallest"]["precision"] == "q" * 13
    assert set(picks["smallest"]["losses"]) == {"selecting", "held_out"}
    assert picks["smallest"]["losses"]["held_out"]["pictures"] == 2
    assert document["intervals_by"] == METHOD
    cost = [pick["costs"]["bit_operations"] for pick in document["front"]]
    assert min(cost) <= picks["balanced"]["costs"]["bit_operations"] <= max(cost)
    text = mpnet("sweep", sweep_file, *SMALL_SPACE, "--set", "sweep.holdout=0.4").stdout
    assert "What you could take" in text
    assert re.search(r"\nrecommended.* int8 everywhere +[+-]", text)
    assert mpnet("export", f"{document['store']}:smallest", "--to", "cfg", "-o", tmp_path / "s.cfg").returncode == 0
    run = document_of(mpnet("run", sweep_file, "--json", "--set", f"model.cfg={tmp_path / 's.cfg'}"))
    assert run["precision"]["key"] == "q" * 13


def test_a_loss_is_that_of_two_runs(mpnet: Mpnet, sweep_file: Path) -> None:
    """The interval of a pick is what `mpnet compare` says of a run of it."""
    pick = document_of(mpnet("sweep", sweep_file, *SMALL_SPACE, "--json"))["picks"]["smallest"]
    run = document_of(mpnet("run", sweep_file, "--json", "--set", "precision.default=int8"))
    folder = sweep_file.parent / "runs" / run["name"]
    compared = document_of(mpnet("compare", folder / run["agreement"]["baseline"], folder / run["id"], "--json"))
    interval, loss = compared["runs"][1]["intervals"]["AP"], pick["losses"]["all"]["AP"]
    assert [loss[name] for name in ("difference", "low", "high")] == [interval[name] for name in ("difference", "low", "high")]


@pytest.mark.slow
def test_a_loss_is_from_each_sweeps_own_baseline(mpnet: Mpnet, sweep_file: Path) -> None:
    """Two sweeps of one store judge the same configuration beside different baselines."""
    differences = set()
    for high in ("fp32", "int8"):
        document = document_of(mpnet("sweep", sweep_file, *SMALL_SPACE, "--json", "--set", f"sweep.precisions=[{high}, int6]"))
        pick = document["picks"]["smallest"]
        difference = pick["losses"]["all"]["AP"]["difference"]
        assert difference == pytest.approx(pick["metrics"]["AP"] - document["baseline"]["metrics"]["AP"], abs=1e-9)
        differences.add(difference)
    assert len(differences) == 2


def test_limits_that_nothing_meets_are_said(mpnet: Mpnet, sweep_file: Path) -> None:
    limits = (*SMALL_SPACE, "--set", "sweep.constraints={weight_bytes: 10, ap_drop: 3}")
    result = mpnet("sweep", sweep_file, *limits, "--json")
    document = json.loads(result.stdout)
    assert (result.returncode, document["best"], document["picks"]) == (1, None, {})
    assert document["nearest"]["beyond"]["weight_bytes"] > 0
    text = mpnet("sweep", sweep_file, *limits)
    assert (text.returncode, "Nothing meets the limits" in text.stdout) == (1, True)
    refused = mpnet("export", document["store"], "--to", "cfg")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "nothing meets the limits" in refused.stderr
    # What comes nearest has a name, and its key needs not be typed.
    nearest = document_of(mpnet("show", f"{document['store']}:nearest", "--json"))
    assert nearest["precision_key"] == document["nearest"]["precision"]
    assert f"{document['store']}:nearest" in text.stdout
    document_of_met_limits = document_of(mpnet("sweep", sweep_file, *SMALL_SPACE, "--json"))
    assert "this sweep's limits are met" in mpnet("show", f"{document_of_met_limits['store']}:nearest").stderr


def test_text_shows_the_front_and_says_that_nothing_was_held_out(mpnet: Mpnet, sweep_file: Path) -> None:
    result = mpnet("sweep", sweep_file, *SMALL_SPACE)
    assert "16 of 16 configurations (16 computed now)" in result.stdout
    assert "fffffffffffff" in result.stdout
    assert "No image was held out" in result.stdout
    assert "16 configurations, 5 images (all select; none is held out)" in result.stderr
    assert mpnet("sweep", sweep_file, *SMALL_SPACE, "--quiet").stderr == ""


def test_held_out_images_report_beside_those_that_select(mpnet: Mpnet, sweep_file: Path) -> None:
    arguments = (*SMALL_SPACE, "--set", "sweep.holdout=0.4")
    document = document_of(mpnet("sweep", sweep_file, *arguments, "--json"))
    assert document["holdout"] == {"selecting": 3, "held_out": 2}
    assert all("AP" in row["held_out"] for row in document["front"])
    text = mpnet("sweep", sweep_file, *arguments).stdout
    assert "on the 3 images that select, and on the 2 held out" in " ".join(text.split())
    assert " held " in text
    assert "No image was held out" not in text


def test_status_reads_a_store(mpnet: Mpnet, sweep_file: Path) -> None:
    document = document_of(mpnet("sweep", sweep_file, *SMALL_SPACE, "--json"))
    status = document_of(mpnet("sweep", "--status", document["store"], "--json"))
    assert (status["state"], status["trials"], status["strategy"]) == ("finished", 16, "exhaustive")
    assert status["findings"]["front"] == document["front"]
    assert "finished, 16 of 16 trials" in mpnet("sweep", "--status", document["store"]).stdout


@pytest.mark.slow
def test_an_older_sweep_stays_within_reach(mpnet: Mpnet, sweep_file: Path, tmp_path: Path) -> None:
    """After a sweep with a holdout the one before it is listed, reported and exported; a key is found wherever it is."""
    first = document_of(mpnet("sweep", sweep_file, *SMALL_SPACE, "--json"))
    smaller_sweep = (
        "--set",
        "sweep.holdout=0.4",
        "--set",
        "sweep.strategy=one_at_a_time",
        "--set",
        "sweep.precisions=[fp32, fp16]",
    )
    second = document_of(mpnet("sweep", sweep_file, *SMALL_SPACE, *smaller_sweep, "--json"))
    store = second["store"]
    status = document_of(mpnet("sweep", "--status", store, "--json"))
    assert [(row["sweep"], row["trials"], row["holdout"]) for row in status["sweeps"]] == [
        (1, 16, 0.0),
        (2, second["trials"], 0.4),
    ]
    assert (status["sweep"], status["trials"], status["total"]) == (2, second["trials"], second["trials"])
    older = document_of(mpnet("sweep", "--status", store, "--sweep", 1, "--json"))
    assert (older["findings"], older["trials"], older["state"]) == (first, 16, "finished")
    assert "Sweeps of this store" in mpnet("sweep", "--status", store).stdout
    assert mpnet("export", f"{store}:{'q' * 13}", "--to", "cfg").returncode == 0
    exported = document_of(mpnet("export", f"{store}:1/smallest", "--to", "cfg", "--json"))
    assert exported["precision"] == first["picks"]["smallest"]["precision"]
    page = document_of(mpnet("report", store, "--sweep", 1, "--no-compute", "--json", "-o", tmp_path / "r.html"))
    assert any("16 configurations" in sentence for sentence in page["summary"])
    refused = mpnet("report", store, "--sweep", 9, "-o", tmp_path / "r.html")
    assert (refused.returncode, "has no sweep 9" in refused.stderr) == (2, True)


def test_a_strategy_with_fewer_trials_than_the_store_is_not_beyond_its_total(mpnet: Mpnet, sweep_file: Path) -> None:
    document_of(mpnet("sweep", sweep_file, *SMALL_SPACE, "--json"))
    short_sweep = document_of(mpnet("sweep", sweep_file, *SMALL_SPACE, "--json", "--set", "sweep.strategy=one_at_a_time"))
    status = document_of(mpnet("sweep", "--status", short_sweep["store"], "--json"))
    assert (status["trials"], status["total"], status["known"]) == (short_sweep["trials"], short_sweep["trials"], 16)


@pytest.mark.slow
def test_a_killed_sweep_says_interrupted_and_goes_on(mpnet: Mpnet, sweep_file: Path, tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    arguments = [
        sys.executable,
        "-m",
        "mpnet",
        "sweep",
        str(sweep_file),
        "--store",
        str(store),
        "--workers",
        "1",
        "--set",
        "sweep.strategy=one_at_a_time",
        "--set",
        "sweep.precisions=[fp32, fp16, int8]",
    ]
    child = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    child.stderr.readline()  # it has begun
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stderr.close()
    deadline = time.monotonic() + 60
    while not store.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    status = document_of(mpnet("sweep", "--status", store, "--json"))
    assert status["state"] == "interrupted"
    document = document_of(mpnet("sweep", *arguments[4:], "--json"))
    assert document["trials"] == 55
    assert document_of(mpnet("sweep", "--status", store, "--json"))["state"] == "finished"


@pytest.mark.slow
def test_interrupting_ends_workers_and_says_how_to_go_on(sweep_file: Path) -> None:
    arguments = [
        sys.executable,
        "-m",
        "mpnet",
        "sweep",
        str(sweep_file),
        "--workers",
        "2",
        "--set",
        "sweep.space.layers={first: fp32, heads: fp32}",
    ]
    child = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    first_line = child.stderr.readline()
    os.kill(child.pid, signal.SIGINT)
    output, errors = child.communicate(timeout=120)
    assert child.returncode == 130, first_line + errors
    assert output == ""
    assert "the same command begins again" in errors or "the same command goes on from there" in errors
    assert "Traceback" not in errors


@pytest.fixture
def read_only(mpnet: Mpnet, sweep_file: Path) -> Iterator[Callable[..., Any]]:
    """Yield a call of `mpnet sweep` on the experiment's store, for whom its folder is read-only, as on a medium."""
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        shutil.copytree(sweep_file.parent, folder, dirs_exist_ok=True)
        assert mpnet("sweep", folder / sweep_file.name, *SMALL_SPACE, "--store", folder / "made/a.sqlite").returncode == 0
        user = os.getuid()

        def call(*options: str) -> Any:
            for path in (folder, folder / "made", folder / "made/a.sqlite"):
                path.chmod(0o444 if path.is_file() else 0o555)
            if user == 0:
                os.setresuid(65534, 65534, 0)  # an administrator writes everywhere
            try:
                return mpnet(
                    "sweep", folder / sweep_file.name, *SMALL_SPACE, "--store", folder / "made/a.sqlite", *options, cwd=folder
                )
            finally:
                if user == 0:
                    os.setresuid(0, 0, 0)
                for path in (folder, folder / "made"):
                    path.chmod(0o755)

        yield call


def test_a_finished_sweep_answers_from_a_read_only_store(mpnet: Mpnet, read_only: Callable[..., Any]) -> None:
    answered = read_only("--json")
    document = document_of(answered)
    assert (document["trials"], document["computed"], document["state"]) == (16, 0, "finished")
    assert "note: the store cannot be written" in answered.stderr


def test_an_unfinished_sweep_on_a_read_only_store_is_one_line(read_only: Callable[..., Any]) -> None:
    process = read_only("--set", "sweep.precisions=[fp32, fp16, int8]")
    assert process.returncode == 2
    assert re.search(r"error: \S+a\.sqlite: cannot be written; choose another --store or output folder\n$", process.stderr)


def test_what_an_interruption_says_is_kept_is_kept(mpnet: Mpnet, sweep_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The baseline, and parts of one configuration each, of which the third is interrupted."""
    evaluate, remaining_calls = Evaluator.evaluate, [2]

    def interrupted(worker: Evaluator, unit: WorkChunk) -> ChunkResult:
        remaining_calls[0] -= 1
        if remaining_calls[0] < 0:
            raise KeyboardInterrupt
        return evaluate(worker, unit)

    monkeypatch.setattr(chunk_sizes, "LEAST_PASSES", 0)
    monkeypatch.setattr(chunk_sizes, "CHUNK_SECONDS", 0.0)
    monkeypatch.setattr(chunk_sizes, "CHUNK_SHARE", 0.0)
    monkeypatch.setattr(Evaluator, "evaluate", interrupted)
    process = mpnet("sweep", sweep_file, *SMALL_SPACE)
    assert process.returncode == 130
    assert re.search(r"all 3 finished trials are in \S+\.sqlite; the same command goes on from there", process.stderr)
    remaining_calls[0] = 1000
    document = document_of(mpnet("sweep", sweep_file, *SMALL_SPACE, "--json"))
    assert (document["trials"], document["computed"]) == (16, 13)


def test_the_baseline_is_kept_before_workers_begin(mpnet: Mpnet, sweep_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its trial is that of a whole sweep, which computes it among others."""

    def interrupted(worker: Evaluator, unit: WorkChunk) -> ChunkResult:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Evaluator, "evaluate", interrupted)
        process = mpnet("sweep", sweep_file, *SMALL_SPACE, "--set", "sweep.holdout=0.4", "--store", "a.sqlite")
    assert "preparing: 5 images are read, and the baseline runs on them\n" in process.stderr
    assert process.stderr.endswith("1 finished trial is in a.sqlite; the same command goes on from there\n\ninterrupted\n")
    with monkeypatch.context() as patch:
        patch.setattr(Evaluator, "baseline_trial", lambda self: None)
        assert mpnet("sweep", sweep_file, *SMALL_SPACE, "--set", "sweep.holdout=0.4", "--store", "b.sqlite").returncode == 0
    with (
        TrialStore.read(sweep_file.parent / "a.sqlite") as interrupted_store,
        TrialStore.read(sweep_file.parent / "b.sqlite") as complete_store,
    ):
        [trial] = interrupted_store.trials(1)
        assert trial == complete_store.find(1, [trial.key])[trial.key]
        assert trial.key == "f" * 13


def board(mpnet: Mpnet, folder: Path, *options: Any) -> Path:
    result = mpnet("profile", folder / "net.cfg", "-o", folder / "board.json", "--repeats", 3, "--threads", 1, *options)
    # 1: this machine was too busy for sums that a sweep would take unasked.
    table = json.loads((folder / "board.json").read_text(encoding="utf-8"))
    assert result.returncode == (0 if table["error_percent"]["mean"] <= 8 else 1), result.stderr
    assert ("too busy" in result.stderr) == (result.returncode == 1)
    return folder / "board.json"


@pytest.mark.slow
def test_a_profile_predicts_every_configuration(mpnet: Mpnet, sweep_file: Path) -> None:
    table = json.loads(board(mpnet, sweep_file.parent).read_text(encoding="utf-8"))
    assert table["precisions"] == ["fp32", "fp16", "int8"]
    assert len(table["checks"]) == 8
    assert all(check["measured_ms"] > 0 and check["predicted_ms"] > 0 for check in table["checks"])
    assert set(table["error_percent"]) == {"mean", "largest"}
    document = document_of(
        mpnet(
            "sweep",
            sweep_file,
            "--workers",
            1,
            "--json",
            "--set",
            "sweep.latency=board.json",
            "--set",
            "sweep.strategy=one_at_a_time",
            "--set",
            "sweep.precisions=[fp32, fp16, int8]",
            "--set",
            "sweep.objectives=[agreement_AP, latency_ms]",
            "--set",
            "sweep.latency_error=1000",
        )
    )
    assert all(row["costs"]["latency_ms"] > 0 for row in document["front"])


@pytest.mark.slow
def test_a_budget_of_time_is_held_against_the_table(mpnet: Mpnet, sweep_file: Path) -> None:
    path = board(mpnet, sweep_file.parent, "--precisions", "fp32,int8")
    table = json.loads(path.read_text(encoding="utf-8"))
    # Of no machine: a convolution takes 4 ms, one of codes 1 ms, and everything else nothing to speak of.
    times_ms = dict.fromkeys(table["steps"], 0.001)
    for step in times_ms:
        _, operation, precision, *_ = step.split()
        if operation.startswith("Convolve"):
            times_ms[step] = {"fp32": 4.0, "int8": 1.0}[precision]
    path.write_text(json.dumps({**table, "steps": times_ms}), encoding="utf-8")
    section = "sweep={strategy: greedy, precisions: [fp32, int8], latency: board.json, latency_error: 1e9}"
    command = ("sweep", sweep_file, "--set", section, "--workers", 1, "--no-time", "--json")
    plain = document_of(mpnet(*command))
    assert plain["objectives"][-1] == "latency_ms"
    times = {row["precision"]: row["costs"]["latency_ms"] for row in (*plain["front"], plain["baseline"])}
    fp32, int8 = times["f" * 13], times["q" * 13]
    for text, limit in (("1x", int8), ("1.5 x", 1.5 * int8), ("90%", 0.9 * fp32), ("20 ms", 20.0)):
        document = json.loads(mpnet(*command, "--max-time", text).stdout)
        assert document["limits"] == {"latency_ms": pytest.approx(limit, abs=1e-5)}
        assert document["computed"] == 0
        assert {row["precision"] for row in document["picks"].values()} <= set(times)
        for row in document["picks"].values():
            assert row["costs"]["latency_ms"] <= limit + 1e-5
        # `pick` says the same of the same budget.
        [(_, picked_time)] = document_of(mpnet("pick", document["store"], "--max-time", f"{limit + 1e-5} ms", "--json"))[
            "pick"
        ]["values"].items()
        assert picked_time <= limit + 1e-5
    refused = mpnet(*command, "--max-time", "0.1x")
    assert (refused.returncode, json.loads(refused.stdout)["recommended"]) == (1, None)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("{}", "is no latency table"),
        ("not json", "is no latency table"),
        ('{"format": "mpnet-latency", "version": 1, "network": "x", "precisions": ["fp32"], "steps": {"a": -1}}', "damaged"),
        (
            '{"format": "mpnet-latency", "version": 1, "network": "x", "precisions": ["fp32"], "steps": {}}',
            "the table is of another network",
        ),
    ],
)
def test_a_table_that_is_none_is_one_line(mpnet: Mpnet, sweep_file: Path, table: str, message: str) -> None:
    (sweep_file.parent / "board.json").write_text(table, encoding="utf-8")
    result = mpnet("sweep", sweep_file, *SMALL_SPACE, "--set", "sweep.latency=board.json")
    assert result.returncode == 2
    assert message in result.stderr.splitlines()[-1]


def test_a_table_without_a_precision_says_which(mpnet: Mpnet, sweep_file: Path) -> None:
    board(mpnet, sweep_file.parent, "--precisions", "fp32")
    result = mpnet("sweep", sweep_file, *SMALL_SPACE, "--set", "sweep.latency=board.json")
    assert (result.returncode, "the table lacks int8" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["sweep.precisions=[int8]"], "every layer is pinned to one precision"),
        (["sweep.space.layers.conv-99=fp32"], "sweep.space.layers.conv-99: "),
        (["sweep.strategy=annealing"], "annealing"),
        (["sweep.objectives=[AP]"], "name at least one cost"),
        (["sweep.objectives=[AP, latency_ms]"], "make a table with `mpnet profile`"),
        (["sweep.objectives=[agreement_AP, bit_operations]", "baseline=none"], "give the experiment a baseline"),
        (["sweep.strategy=deep", "baseline=none"], "deep needs a baseline to compare heads with"),
        (["sweep.strategy=grid"], "grid is for up to 4,096 configurations, this space has 8,192"),
        (["sweep.precisions=[fp32, fp16, int8, fp32_winograd, fp16_half]"], "more than can be tried"),
    ],
)
def test_what_cannot_be_swept_is_one_line(mpnet: Mpnet, sweep_file: Path, changes: list[str], message: str) -> None:
    arguments = [word for change in changes for word in ("--set", change)]
    if "baseline=none" in changes or "sweep.objectives=[AP, latency_ms]" in changes:
        arguments += list(SMALL_SPACE)
    result = mpnet("sweep", sweep_file, "--workers", 1, "--quiet", *arguments)
    assert result.returncode == 2, result.stdout
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr


def test_a_long_exact_sweep_asks_first(mpnet: Mpnet, sweep_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpnet.sweep.run.ASK_SECONDS", 0.0)
    result = mpnet("sweep", sweep_file, *SMALL_SPACE)
    assert result.returncode == 2
    assert "exhaustive over 16 configurations takes about" in result.stderr
    assert "start it with --yes, narrow sweep.space, or use another strategy" in result.stderr
    assert mpnet("sweep", sweep_file, *SMALL_SPACE, "--yes").returncode == 0


def test_a_store_of_another_network_is_one_line(mpnet: Mpnet, sweep_file: Path, tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    assert mpnet("sweep", sweep_file, *SMALL_SPACE, "--store", store).returncode == 0
    cfg = sweep_file.parent / "net.cfg"
    cfg.write_text(cfg.read_text(encoding="utf-8") + "\n# another\n", encoding="utf-8")
    result = mpnet("sweep", sweep_file, *SMALL_SPACE, "--store", store, "--quiet")
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "a store of another network (cfg)" in result.stderr


def test_without_a_sweep_section_it_says_what_to_write(mpnet: Mpnet, experiment: Path) -> None:
    result = mpnet("sweep", experiment)
    assert result.returncode == 2
    assert "key 'sweep' is missing" in result.stderr
    assert mpnet("sweep").returncode == 2


def test_no_scheduler_is_one_line(mpnet: Mpnet, sweep_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="SKIPPED WITHOUT DASK: pip install 'mpnet[dask]'")
    monkeypatch.setattr("mpnet.sweep.evaluate.dask_executor.CONNECT_SECONDS", 1.0)
    result = mpnet("sweep", sweep_file, *SMALL_SPACE, "--scheduler", "tcp://127.0.0.1:9", "--quiet")
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "no Dask scheduler answers" in result.stderr


@pytest.mark.slow
def test_options_may_ask_for_calibration(mpnet: Mpnet, sweep_file: Path) -> None:
    ways = "{activations.ranges: [dynamic, calibrated], bias_correction: [false, true]}"
    document = document_of(mpnet("sweep", sweep_file, *SMALL_SPACE, "--set", f"sweep.space.quantization={ways}", "--json"))
    assert (document["trials"], document["space"]) == (64, 64)
    with TrialStore.read(document["store"]) as store:
        calibrations = [d["identity"]["calibration"] for d in store.contexts().values()]
        trials = [store.find(number, ["q" * 13])["q" * 13] for number in store.contexts()]
        digest = store.trial_digest(4, "q" * 13)
    assert calibrations[0] is None
    assert len(set(calibrations)) == 3
    assert len({trial.values["head_sqnr_db"] for trial in trials}) == 4
    run = document_of(
        mpnet("run", sweep_file, "--json", "--set", "quantization={activations: {ranges: calibrated}, bias_correction: true}")
    )
    assert run["digests"]["trial"] == digest
    assert run["metrics"]["AP"] == trials[3].values["AP"]
    assert run["agreement"]["AP"] == trials[3].values["agreement_AP"]


def test_identities_are_of_the_options_as_well(mpnet: Mpnet, sweep_file: Path) -> None:
    options = ("--set", "sweep.space.quantization={weights.granularity: [per_channel, per_tensor]}")
    document = document_of(mpnet("sweep", sweep_file, *SMALL_SPACE, *options, "--json"))
    assert (document["trials"], document["space"]) == (32, 32)
    with TrialStore.read(document["store"]) as store:
        contexts = store.contexts()
        assert [store.count(number) for number in contexts] == [16, 16]
        assert store.trial_digest(1, "q" * 13) != store.trial_digest(2, "q" * 13)
        assert {digest_of(d["identity"]["options"]) for d in contexts.values()} != set()
