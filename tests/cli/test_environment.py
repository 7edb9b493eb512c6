# SPDX-License-Identifier: MIT
"""What surrounds the program is not as it should be: one line, no traceback, no hang."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from mpnet.errors import FormatError
from mpnet.formats.documents.json_text import parse_json
from mpnet.messages import one_line
from tests.cli.conftest import Mpnet, document_of
from tests.report.made_store import make_store


def start(*arguments: object, shell: str = 'exec "$@"', **keywords: Any) -> subprocess.CompletedProcess[bytes]:
    """Run the program in a process of its own; shell: a script that starts it as "$@"."""
    return subprocess.run(
        ["sh", "-c", shell, "-", sys.executable, "-m", "mpnet", *map(str, arguments)],
        capture_output=True,
        timeout=60,
        **keywords,
    )


@pytest.mark.slow
@pytest.mark.parametrize("redirections", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_closed_streams(experiment: Path, redirections: str) -> None:
    process = start("show", experiment.parent / "net.cfg", shell=f'exec "$@" {redirections}')
    assert (process.returncode, process.stderr) == (0, b"")
    assert start("show", "missing.cfg", shell=f'exec "$@" {redirections}').returncode == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [("show", "net.cfg"), ("show", "net.cfg", "--json"), ("run", "experiment.yaml", "-q"), ("info",), ("--help",)]
)
def test_a_reader_that_goes_away_ends_it_as_it_ends_other_programs(experiment: Path, arguments: tuple[str, ...]) -> None:
    """Not with 1, which says that a check failed: Rich and Click both leave with that."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mpnet", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=experiment.parent
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(60) == 141
    process.stderr.close()


def test_a_full_disk_behind_standard_output(experiment: Path) -> None:
    process = start("show", experiment.parent / "net.cfg", shell='exec "$@" >/dev/full')
    assert process.returncode == 2
    assert process.stderr.endswith(b"No space left on device; free some space or choose another folder\n")
    assert process.stderr.count(b"\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "variables",
    [
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "OMP_NUM_THREADS": "many", "COLUMNS": "1", "TZ": "x/y"},
        {"LC_ALL": "nowhere", "OMP_NUM_THREADS": "-3", "HOME": "/nowhere", "TERM": "dumb", "NO_COLOR": "1"},
    ],
)
def test_odd_variables(experiment: Path, variables: dict[str, str]) -> None:
    process = start("run", experiment, "--json", "-q", env={**os.environ, **variables})
    assert (process.returncode, process.stderr) == (0, b"")
    assert json.loads(process.stdout)


def test_names_of_half_characters_are_shown(experiment: Path, mpnet: Mpnet) -> None:
    """A lone surrogate, from `\\ud800` in JSON or a file name that is no UTF-8, cannot be encoded."""
    folder = experiment.parent
    name = os.fsdecode(b"a\xff")
    images = sorted((folder / "images").iterdir())
    sizes = [cv2.imread(str(path)).shape for path in images]
    categories = [{"id": 1, "name": "\ud800"}, *({"id": 2 + i, "name": f"c{i}"} for i in range(classes(folder) - 1))]
    (folder / "labels.json").write_text(
        json.dumps(
            {
                "images": [
                    {"id": i, "file_name": path.name, "width": shape[1], "height": shape[0]}
                    for i, (path, shape) in enumerate(zip(images, sizes, strict=True))
                ],
                "categories": categories,
                "annotations": [{"id": 1, "image_id": 0, "category_id": 1, "bbox": [1, 1, 5, 5]}],
            }
        )
    )
    run = mpnet(
        "run",
        experiment,
        "--set",
        f"data={{format: coco, images: {folder}/images, annotations: labels.json}}",
        "--set",
        f"name={json.dumps('s')}",
        "--json",
        "-q",
        cwd=folder,
    )
    document = document_of(run)
    assert mpnet("report", folder_of(document), "--no-compute", "-q", "-o", f"{name}.html", cwd=folder).returncode == 0
    assert "\\ud800" in (folder / f"{name}.html").read_text(encoding="utf-8")
    assert mpnet("compare", folder_of(document), folder_of(document), cwd=folder).returncode == 0


def classes(folder: Path) -> int:
    text = (folder / "net.cfg").read_text()
    return int(text.split("classes=")[1].split()[0])


def folder_of(document: Any) -> str:
    return str(document.get("folder") or document["run"]["folder"])


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_stopped_at_any_moment_of_its_start(experiment: Path, number: signal.Signals) -> None:
    """From when the interpreter runs our code on; before that Python itself answers."""
    script = "import sys; print(flush=True); sys.argv[0] = 'mpnet'; from mpnet.__main__ import main; main()"
    for delay in (0.0, 0.05, 0.1, 0.2, 0.3, 0.6):
        child = subprocess.Popen(
            [sys.executable, "-c", script, "sweep", str(experiment), "--workers", "2", "-q"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            cwd=experiment.parent,
        )
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(delay + 0.02)
        os.killpg(child.pid, number)
        _, errors = child.communicate(timeout=60)
        assert "Traceback" not in errors, f"{delay} s: {errors}"
        assert child.returncode in (0, 2, 128 + number, -number), f"{delay} s: {child.returncode}"


@pytest.mark.slow
def test_a_memory_limit(experiment: Path) -> None:
    process = start(
        "run",
        experiment,
        "-q",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (260 << 20, 260 << 20)),
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert process.returncode in (0, 2), process.stderr
    assert process.stderr.count(b"\n") <= 1 or b"OpenBLAS" in process.stderr


def test_a_file_that_takes_too_much_memory_is_refused() -> None:
    with pytest.raises(FormatError, match=r"^a\.json: its values would take about 1\.\d+ GB of memory, more than 1\.07 GB"):
        parse_json(b"[" + b"[]," * 12_000_000 + b"1]", "a.json")


def test_a_message_is_one_line_of_bounded_length() -> None:
    assert one_line("a\nb\u2028" + "x" * 5_000).startswith("a\\nb\\u2028xxx")
    assert len(one_line("x" * 5_000)) < 1_010


def test_a_kernel_table_of_the_file_is_not_blamed_on_an_option(experiment: Path, mpnet: Mpnet) -> None:
    errors = mpnet("run", experiment, "--set", "runtime.isa=mmx").stderr
    assert errors.startswith("error: runtime.isa (or --isa): unknown ISA level 'mmx'")


def test_a_damaged_jpeg_that_is_repaired_is_mentioned(experiment: Path, mpnet: Mpnet) -> None:
    folder = experiment.parent
    image = sorted((folder / "images").iterdir())[0]
    pixels = cv2.resize(np.random.RandomState(0).randint(0, 256, (8, 8, 3), dtype=np.uint8), (64, 64))
    data = cv2.imencode(".jpg", pixels)[1].tobytes()
    data = data[:-30] + data[-2:]
    damaged = image.with_suffix(".jpg")
    damaged.write_bytes(data)
    if damaged != image:
        image.unlink()
    run = document_of(mpnet("run", experiment, "--json", "-q"))
    notes = json.loads((Path(folder_of(run)) / "result.json").read_text())["notes"]
    assert f"1 damaged JPEGs were decoded by OpenCV, which guesses what is missing: {damaged.name}" in notes
    model = [f"--{kind}={folder / 'net'}.{kind}" for kind in ("cfg", "weights")]
    process = mpnet("detect", *model, damaged)
    assert (process.returncode, process.stderr.count("a damaged JPEG, decoded by OpenCV")) == (0, 1)


def test_a_jpeg_without_its_end_marker_is_read_and_mentioned(experiment: Path, mpnet: Mpnet) -> None:
    folder = experiment.parent
    images = sorted((folder / "images").iterdir())
    data = cv2.imencode(".jpg", cv2.imread(str(images[0])))[1].tobytes()
    cut, extended = (image.with_suffix(".jpg") for image in images[:2])
    for image in images[:2]:
        image.unlink()
    cut.write_bytes(data[:-2])
    extended.write_bytes(data[:-2] + b"between" + data[-2:])
    run = document_of(mpnet("run", experiment, "--json", "-q"))
    notes = json.loads((Path(folder_of(run)) / "result.json").read_text())["notes"]
    assert f"1 JPEGs lack their end marker; their pixels are all there: {cut.name}" in notes
    assert any(note.startswith("1 JPEGs hold bytes that belong to none of their parts") for note in notes)
    model = [f"--{kind}={folder / 'net'}.{kind}" for kind in ("cfg", "weights")]
    process = mpnet("detect", *model, cut, extended)
    assert process.returncode == 0
    assert f"{cut}: a JPEG without its end marker; its pixels are all there" in process.stderr
    assert f"{extended}: a JPEG with bytes that belong to none of its parts" in process.stderr


def test_inputs_that_are_pipes_are_refused_at_once(experiment: Path, tmp_path: Path, mpnet: Mpnet) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    coco = f"data={{format: coco, images: x, annotations: {pipe}}}"
    for arguments in (
        ("run", pipe),
        ("run", experiment, "--set", f"model.names={pipe}"),
        ("run", experiment, "--set", coco),
        ("sweep", experiment, "--set", f"sweep.latency={pipe}", "--set", "sweep.objectives=[AP,latency_ms]"),
        ("compare", pipe, pipe),
        ("report", pipe),
        ("export", pipe, "--to", "cfg"),
        ("sweep", "--status", pipe),
        ("sweep", "--salvage", pipe),
        ("sweep", experiment, "--store", pipe),
        ("show", pipe),
    ):
        process = mpnet(*arguments)
        assert (process.returncode, process.stderr.count("\n")) == (2, 1), arguments


def test_a_store_is_left_alone_by_what_reads_it(tmp_path: Path, mpnet: Mpnet) -> None:
    store = make_store(tmp_path / "s.sqlite", count=20)
    assert mpnet("sweep", "--status", store).returncode == 0
    assert mpnet("report", store, "--no-compute", "-q").returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "s.sqlite"]
