# SPDX-License-Identifier: MIT
"""Commands of guides run, page by page and in their order, in a folder with a tiny network; others have their reason here."""

from __future__ import annotations

import re
import shlex
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from mpnet.backends import backends
from mpnet.errors import ConfigError
from mpnet.packages import require
from tests.cli.conftest import Mpnet
from tests.networks import write_experiment
from tests.test_docs_blocks import REPLAYED, blocks, lines

PAGES = (
    "docs/board.md",
    "docs/ci.md",
    "docs/deployment.md",
    "docs/doctor.md",
    "docs/mprun.md",
    "docs/sweeps.md",
    "docs/toolchains.md",
)
"""Pages whose commands a folder with an experiment.yaml can run."""
ELSEWHERE = {
    "docs/benchmarks.md": "minutes on a quiet machine; tests/cli/test_bench.py",
    "docs/gpu.md": "an OpenCL driver and a network of the reader; tests/engine/test_devices.py",
    "docs/import.md": "files of other projects; tests/importing/",
    "docs/results/": "the developers' data, or hours",
    "docs/tuning.md": "images that are not evaluated, and a gain; tests/trial/test_tune.py",
}
"""Page, or the folder of pages, -> why none of its commands runs here."""
NOT_HERE = {
    "--scheduler": "needs a cluster; tests/sweep/test_dask_executor.py has one",
    "--on": "needs a board; tests/deploy/test_board.py has one on loopback",
    "--log": "needs mlflow; tests/report/test_tracking.py",
    "--live": "serves until the reader ends it; tests/report/test_live.py",
    "tune": "needs images that gain; tests/cli/test_tune.py",
    "sweep.space.tuned=tuned.yaml": "needs what `mpnet tune` writes; tests/cli/test_tuned_weights.py",
}
"""Word of a command -> why one that has it does not run here."""
SPACE = "{strategy: additive, precisions: [fp32, int8], holdout: 0, latency_error: 1000, space: {tied: [['2..6'], ['8..21']]}}"
"""Sixteen configurations, so that exhaustive sweeps take seconds; a table of a busy machine is taken."""
NCNN = ("--set", "name=ncnn", "--set", "quantization.activations={ranges: calibrated, mode: symmetric}")


def adapt_command(words: list[str]) -> list[str]:
    """Return a command with what a page only invents: the digits of stores and runs, and networks by other names."""
    stores = [str(path) for path in sorted(Path("runs").glob("*/sweep-*.sqlite"))]
    name = "ncnn" if "ncnn" in words else "tiny"  # a run in ncnn's own mode
    runs = [str(path.parent) for path in sorted(Path("runs", name).glob("*/result.json"))]
    adapted = []
    for word in words:
        if stores:
            word = re.sub(r"runs/\w+/sweep-0123456789ab\.sqlite", stores[0], word)
        word = re.sub(r"^runs/demo(?=$|:)", "runs/tiny", word)
        if runs:
            word = re.sub(r"runs/\w+/0123456789abcdef", runs[0], word)
        word = {"cfg/yolov3-tiny-int8.cfg": "net.cfg", "yolov3-tiny.weights": "net.weights", "coco.names": "net.names"}.get(
            word, word
        )
        adapted.append(word.replace(":safe", ":recommended"))  # five images show nothing
    return adapted


def engines_of(words: list[str]) -> list[str]:
    """Return engines that a command names, in its options or by the form that it writes."""
    forms = {"tflite": "litert", "ncnn": "ncnn", "onnx": "onnxruntime"}
    requested = [forms.get(word, word) for option, word in pairwise(words) if option in ("--engine", "--to")]
    requested += [engine for option, word in pairwise(words) if option == "--backends" for engine in word.split(",")]
    return [engine for engine in requested if engine in backends()]


def test_every_page_with_commands_is_replayed_or_says_why_not(repository: Path) -> None:
    pages_with_commands = {
        block.page for block in blocks(repository) if block.language == "sh" or (block.page, block.language) not in REPLAYED
    }
    pages = {
        page
        for page in pages_with_commands
        for block in blocks(repository)
        if block.page == page and block.language in ("sh", "console") and any(w[0] == "mpnet" for w in lines(block))
    }
    unexplained = {page for page in pages if page not in PAGES and not page.startswith(tuple(ELSEWHERE))}
    assert unexplained - {page for page, _ in REPLAYED} == set()
    assert set(PAGES) <= pages


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run_in_order(
    repository: Path, tmp_path: Path, mpnet: Mpnet, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = write_experiment(tmp_path)
    text = experiment.read_text(encoding="utf-8") + f"sweep: {SPACE}\n"
    experiment.write_text(text, encoding="utf-8")
    (tmp_path / "street.yaml").write_text(re.sub(r"^name: .*$", "name: street", text, flags=re.MULTILINE), encoding="utf-8")
    if not (tmp_path / "net.names").is_file():
        shutil.copy(next(tmp_path.glob("*.names")), tmp_path / "net.names")
    monkeypatch.chdir(tmp_path)
    # What pages assume to be there: runs, a sweep, a board's table.
    assumed = [["run", "experiment.yaml"], ["run", "experiment.yaml", *NCNN], ["sweep", "experiment.yaml"]]
    if "board.json" in (repository / page).read_text(encoding="utf-8"):
        assumed.append(["profile", "net.cfg", "-o", "board.json", "--repeats", "3"])
    for command in assumed:
        assert mpnet(*command, "-q").returncode in (0, 1), command
    run_count = 0
    for block in (block for block in blocks(repository) if block.page == page and block.language in ("sh", "console")):
        for words in lines(block):
            if words[0] != "mpnet" or NOT_HERE.keys() & set(words):
                continue
            try:
                for engine in engines_of(words):
                    require(engine, backends()[engine].packages, backends()[engine].extra)
            except ConfigError:
                continue
            command = adapt_command(words[1:])
            process = mpnet(*command)
            assert process.returncode == 0 or (command[0] == "profile" and process.returncode == 1), (
                f"{shlex.join(command)}\n{process.stderr}"
            )
            run_count += 1
    assert run_count
