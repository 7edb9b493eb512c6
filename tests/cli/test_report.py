# SPDX-License-Identifier: MIT
"""`mpnet report`, `mpnet export` and `mpnet compare STORE:KEY` on a tiny network."""

from __future__ import annotations

import base64
import difflib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpnet.errors import FormatError, StoreError
from mpnet.formats.cfg.edit import cfg_for_key
from mpnet.model.precision import USUAL_NAMES
from mpnet.report.collect.cfg_template import cfg_template
from tests.cli.conftest import Mpnet, document_of
from tests.networks import tiny_cfg, write_experiment
from tests.report.made_store import make_store

SWEEP = """
sweep:
  strategy: exhaustive
  precisions: [fp32, int8]
  space: {layers: {"*": [fp32], 0: [fp32, int8], 2: [fp32, int8], 4: [fp32, int8]}}
  objectives: [agreement_AP, bit_operations]
  holdout: 0
"""


@pytest.fixture
def store(tmp_path: Path, mpnet: Mpnet) -> Path:
    """Return a finished sweep over three layers of the tiny network."""
    path = write_experiment(tmp_path)
    path.write_text(path.read_text().replace("precision: {default: int8}\n", "") + SWEEP)
    document = document_of(mpnet("sweep", path, "--workers", 1, "--json"))
    assert document["trials"] == 8
    return tmp_path / document["store"]


def embedded(html: Path) -> dict[str, Any]:
    match = re.search(r'id="data">(.*?)</script>', html.read_text(encoding="utf-8"), re.DOTALL)
    assert match is not None
    document = json.loads(match[1])
    assert isinstance(document, dict)
    return document


def column(page: dict[str, Any], name: str) -> list[float]:
    """Return the values of one measure on a page, one a configuration."""
    return np.frombuffer(base64.b64decode(page["table"]["columns"][name]), "<f8").tolist()


def test_report_of_a_run_brings_its_baseline(mpnet: Mpnet, experiment: Path) -> None:
    run = document_of(mpnet("run", experiment, "--json"))
    report_document = document_of(mpnet("report", run["folder"], "-o", "page.html", "--figures", "f", "--data", "d", "--json"))
    assert report_document["missing"] == []
    assert (experiment.parent / "page.html").stat().st_size == report_document["bytes"]
    table = embedded(experiment.parent / "page.html")["table"]
    assert table["keys"] == ["f" * 13, "q" * 13]
    assert {"error-sqnr.svg", "time.svg", "bytes.svg"} <= {path.name for path in (experiment.parent / "f").iterdir()}
    assert (experiment.parent / "d" / "error-sqnr.csv").read_text().count("\n") == 14


def test_a_report_of_runs_has_the_agreement_and_the_intervals_of_compare(mpnet: Mpnet, experiment: Path) -> None:
    fp32 = document_of(mpnet("run", experiment, "--set", "name=a", "--set", "precision={default: fp32}", "--json"))
    mixed = document_of(mpnet("run", experiment, "--json"))
    alone = document_of(
        mpnet("run", experiment, "--set", "name=c", "--set", "precision={default: fp16}", "--no-baseline", "--json")
    )
    for reference, *candidates in ([fp32, mixed, alone], [alone, fp32, mixed], [mixed, alone]):
        folders = [run["folder"] for run in (reference, *candidates)]
        compared = document_of(mpnet("compare", *folders, "--json"))["runs"]
        mpnet("report", *folders, "-o", "page.html")
        html = (experiment.parent / "page.html").read_text(encoding="utf-8")
        page = embedded(experiment.parent / "page.html")
        agreement = column(page, "agreement_AP")
        assert agreement == [100.0, *(run["agreement"]["AP"] for run in compared[1:])]
        for row, run in enumerate(compared[1:], 1):
            ours, theirs = page["intervals"][str(row)]["agreement_AP"], run["intervals"]["agreement_AP"]
            assert ours == [theirs["difference"], theirs["low"], theirs["high"]]
            assert ours[0] == agreement[row] - 100
        assert page["shown"] == "Last run"
        assert "Back to the last run" in html
        assert "chosen configuration" not in html


@pytest.mark.slow
def test_report_of_a_sweep_shows_what_the_store_lacks_too(mpnet: Mpnet, store: Path, tmp_path: Path) -> None:
    key = "fq" + "f" * 11
    report_document = document_of(mpnet("report", store, "-o", "page.html", "--choose", key, "--draws", 100, "--json"))
    assert report_document["missing"] == []
    document = embedded(tmp_path / "page.html")
    table = document["table"]
    assert table["keys"][table["chosen"]] == key
    assert document["layers"][0]["name"] == "conv-1"
    assert document["intervals"]
    assert {str(pick["row"]) for pick in document["picks"] if pick["row"] != table["baseline"]} <= set(document["intervals"])
    assert "error-noise" in document["figures"]


@pytest.mark.slow
def test_a_page_in_markdown_has_the_figures_of_runs_of_whole_precisions_too(mpnet: Mpnet, store: Path, tmp_path: Path) -> None:
    key = "fq" + "f" * 11
    assert mpnet("report", f"{store}:{key}", "-o", "page.md", "--draws", 100, "-q").returncode == 0
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    keys = re.findall(r"<br>`(\w+)`", page)
    assert keys[0] == "f" * 13
    assert {key, "q" * 13} <= set(keys)
    run = document_of(mpnet("run", tmp_path / "experiment.yaml", "--set", "precision={default: int8}", "--json"))
    int8 = next(line for line in page.splitlines() if f"`{'q' * 13}`" in line and "<br>" in line)
    assert f"{run['agreement']['AP']:.2f} (" in int8
    assert "By parts: int8 in `conv-2`; fp32 in all other parts." in page
    assert "**fp32**, 12 layers: `conv-1`, `conv-3`" in page


@pytest.mark.slow
def test_intervals_are_of_the_images_that_their_figures_are_of(mpnet: Mpnet, store: Path, tmp_path: Path) -> None:
    swept = document_of(
        mpnet(
            "sweep",
            tmp_path / "experiment.yaml",
            "--set",
            "sweep.holdout=0.5",
            "--store",
            "held.sqlite",
            "--workers",
            1,
            "--json",
        )
    )
    assert swept["holdout"]["held_out"] > 0
    assert document_of(mpnet("report", "held.sqlite", "-o", "page.html", "--draws", 100, "--json"))["missing"] == []
    document = embedded(tmp_path / "page.html")
    table = document["table"]
    columns = {name: np.frombuffer(base64.b64decode(text), dtype="<f8") for name, text in table["columns"].items()}
    names = set()
    for row, intervals in document["intervals"].items():
        for name, (difference, _, _) in intervals.items():
            if name in columns and np.isfinite(columns[name]).all():
                start = columns[name][table["baseline"]]
                assert difference == pytest.approx(columns[name][int(row)] - start, abs=1e-9)
                names.add(name)
    assert {"agreement_AP", "held_out_agreement_AP", "AP", "held_out_AP"} <= names
    assert [table["keys"][row] for row in sorted(table["front"])] == sorted(row["precision"] for row in swept["front"])


def test_report_says_why_something_is_missing(mpnet: Mpnet, store: Path, tmp_path: Path) -> None:
    with (tmp_path / "net.weights").open("ab") as file:
        file.write(b"\0\0\0\0")
    report_document = document_of(mpnet("report", store, "--json"))
    assert len(report_document["missing"]) == 1
    assert "net.weights" in report_document["missing"][0]["why"]


def test_compare_configurations_of_a_sweep(mpnet: Mpnet, store: Path) -> None:
    comparison = document_of(mpnet("compare", f"{store}:baseline", f"{store}:qqq{'f' * 10}", "--draws", 100, "--json"))
    assert [run["precision"] for run in comparison["runs"]] == ["f" * 13, "qqq" + "f" * 10]
    assert comparison["runs"][1]["agreement"]["AP"] < 100
    assert [row["index"] for row in comparison["layers"] if row["differs"]][:3] == [0, 2, 4]


def test_a_limit_decides_the_exit_code(mpnet: Mpnet, store: Path) -> None:
    runs = (f"{store}:baseline", f"{store}:qqq{'f' * 10}", "--draws", 100)
    assert mpnet("compare", *runs, "--fail-under", "agreement_AP=-100").returncode == 0
    process = mpnet("compare", *runs, "--fail-under", "agreement_AP=0")
    assert process.returncode == 1
    assert "agreement_AP differs by -" in process.stderr
    invalid = mpnet("compare", *runs, "--fail-under", "AP")
    assert (invalid.returncode, "METRIC=DIFFERENCE" in invalid.stderr) == (2, True)


def test_export_changes_precision_keys_only(mpnet: Mpnet, store: Path, tmp_path: Path) -> None:
    text = (tmp_path / "net.cfg").read_text()
    process = mpnet("export", f"{store}:fq{'f' * 11}", "--to", "cfg")
    assert process.returncode == 0, process.stderr
    changed_lines = [line for line in difflib.ndiff(text.splitlines(), process.stdout.splitlines()) if line[0] in "+-"]
    assert changed_lines == [f"+ {name}={int(name == 'int8')}" for name in USUAL_NAMES]


def test_an_exported_cfg_runs_to_the_figures_of_its_trial(mpnet: Mpnet, store: Path, tmp_path: Path) -> None:
    key = "qfq" + "f" * 10
    assert mpnet("export", f"{store}:{key}", "--to", "cfg", "-o", "chosen.cfg").returncode == 0
    experiment = tmp_path / "experiment.yaml"
    run = document_of(mpnet("run", experiment, "--set", "model.cfg=chosen.cfg", "--json"))
    trial = document_of(mpnet("compare", f"{store}:baseline", f"{store}:{key}", "--draws", 100, "--json"))["runs"][1]
    assert run["precision"]["key"] == key
    assert run["metrics"] == trial["metrics"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("report", "nowhere"), "holds no result"),
        (("export", "nowhere", "--to", "cfg"), "holds no result"),
        (("report", "experiment.yaml"), "holds no result"),
        (("report", "experiment.yaml", "-o", "page.md"), "a page in Markdown is of one sweep"),
        (("report", "a", "b", "-o", "page.md"), "a page in Markdown is of one sweep"),
        (("compare", "a"), "at least two runs"),
    ],
)
def test_bad_sources_are_one_line(mpnet: Mpnet, experiment: Path, arguments: tuple[str, ...], message: str) -> None:
    process = mpnet(*arguments)
    assert process.returncode == 2
    assert process.stderr.count("\n") == 1
    assert "Traceback" not in process.stderr
    assert message in process.stderr or message == "at least two runs"


def keys(count: int) -> list[str]:
    return ["f" * count, "q" * count, "fqh" * (count // 3) + "q" * (count % 3), "h" * count]


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_pieces_give_the_exported_file(line_end: str, encoding: str) -> None:
    text = (
        tiny_cfg()
        .replace("[convolutional]\n", "[convolutional] # größe\n", 1)
        .replace("filters=6\n", "filters=6\nint8 = 1 ; why not\n", 1)
    )
    content = text.replace("\n", line_end).encode(encoding)
    template = cfg_template(content, keys(13), "net.cfg")
    assert template.encoding == encoding
    for key in keys(13):
        assert template.fill(key).encode(encoding) == cfg_for_key(content, key, "net.cfg")


def test_pieces_refuse_what_they_cannot_set() -> None:
    content = tiny_cfg().encode()
    with pytest.raises(StoreError, match="layers without weights"):
        cfg_template(content, ["f" * 13, "f" * 13 + "+1:q"], "net.cfg")
    with pytest.raises(FormatError, match=r"net\.cfg"):
        cfg_template(b"[net]\nwidth=x\n", ["f"], "net.cfg")


def test_a_live_report_of_what_is_no_sweep_is_refused(mpnet: Mpnet, tmp_path: Path) -> None:
    process = mpnet("report", tmp_path, "--live")
    assert process.returncode == 2
    assert "--live: follows one sweep" in process.stderr


def test_a_live_report_of_a_finished_sweep_is_written_at_once(mpnet: Mpnet, tmp_path: Path) -> None:
    make_store(tmp_path / "s.sqlite", count=40)
    process = mpnet("report", "s.sqlite", "--live", "--no-compute", "-o", "page.html")
    assert process.returncode == 0, process.stderr
    assert "http://127.0.0.1:" in process.stderr
    assert (tmp_path / "page.html").is_file()
