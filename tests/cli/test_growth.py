# SPDX-License-Identifier: MIT
"""Commands whose input is ten and a hundred times as large do ten and a hundred times as much, in calls and in memory.

Work is counted, not timed: calls of functions, in Python and in C, and the most bytes that were allocated at once.
"""

from __future__ import annotations

import gc
import json
import shutil
import tracemalloc
from cProfile import Profile
from pathlib import Path
from typing import Callable

import cv2
import numpy as np
import pytest

from mpnet.cli.main import cli
from tests.networks import small_cfg, write_experiment, write_network
from tests.report.made_store import make_store

LINEAR = 1.3
"""Of ten times as much: what more may come on top."""
FEW_CALLS = 3_000
"""What may come and go between two runs of a command whatever its input."""
FEW_BOXES = ("--threads=1", "-q", "--set", "detection.confidence=0.8")
CONV = "[convolutional]\nfilters=4\nsize=1\nactivation=linear\n\n"


def images(folder: Path, count: int) -> Path:
    """Write small images, each with a labelled object."""
    for kind in ("images", "labels"):
        (folder / kind).mkdir()
    for number in range(count):
        cv2.imwrite(str(folder / "images" / f"{number:05d}.png"), np.full((32, 32, 3), number % 250, np.uint8))
        (folder / "labels" / f"{number:05d}.txt").write_text("0 0.5 0.5 0.25 0.25\n", encoding="ascii")
    return folder / "images"


def layers(folder: Path, size: int) -> list[str]:
    (folder / "net.cfg").write_text("[net]\nwidth=8\nheight=8\nchannels=3\n\n" + 3 * size * CONV, encoding="ascii")
    return ["show", str(folder / "net.cfg")]


def classes(folder: Path, size: int) -> list[str]:
    text = small_cfg().replace("filters=24", f"filters={3 * (5 + 4 * size)}").replace("classes=3", f"classes={4 * size}")
    write_network(folder, text=text)
    (folder / "net.names").write_text("".join(f"class {number}\n" for number in range(4 * size)), encoding="ascii")
    network = [f"--{name}={folder / f'net.{name}'}" for name in ("cfg", "weights", "names")]
    return ["init", *network, "--images", str(images(folder, 3)), "-o", str(folder / "made.yaml")]


def images_of_init(folder: Path, size: int) -> list[str]:
    write_network(folder, text=small_cfg())
    network = [f"--{name}={folder / f'net.{name}'}" for name in ("cfg", "weights", "names")]
    return ["init", *network, "--images", str(images(folder, 3 * size)), "-o", str(folder / "made.yaml")]


def boxes_of_init(folder: Path, size: int) -> list[str]:
    arguments = images_of_init(folder, 1)
    (folder / "labels" / "00000.txt").write_text("0 0.5 0.5 0.25 0.25\n" * 10 * size, encoding="ascii")
    return arguments


def boxes_of_report(folder: Path, size: int) -> list[str]:
    """Prepare a report of objects that the network misses, side by side."""
    experiment = write_experiment(folder, small_cfg())
    random = np.random.default_rng(0)
    lines = [f"{n % 3} {x:.4f} {y:.4f} 0.01 0.01\n" for n, (x, y) in enumerate(random.uniform(0.1, 0.9, (10 * size, 2)))]
    (folder / "labels" / "scene-0.txt").write_text("".join(lines), encoding="ascii")
    cli.main(["run", str(experiment), "--threads=1", "-q", "--set", "data.limit=2"], standalone_mode=False)
    result_path = min(folder.glob("runs/tiny/*/result.json"))
    return ["report", str(result_path.parent), "-o", str(folder / "page.html")]


def results(folder: Path, size: int, name: str = "tiny") -> list[str]:
    experiment = write_experiment(folder, small_cfg())
    cli.main(["run", str(experiment), "--threads=1", "-q", "--set", f"name={name[:40]}"], standalone_mode=False)
    result_path = min(folder.glob("runs/*/*/result.json"))
    document = json.loads(result_path.read_text(encoding="utf-8")) | {"name": name}
    for number in range(2 * size):
        copy = result_path.parent.with_name(f"{number:016x}")
        shutil.copytree(result_path.parent, copy)
        (copy / "result.json").write_text(json.dumps(document), encoding="utf-8")
    return ["list", str(folder / "runs")]


def long_names(folder: Path, size: int) -> list[str]:
    return results(folder, 1, "x" * 100 * size)


def trials_of_status(folder: Path, size: int) -> list[str]:
    return ["sweep", "--status", str(make_store(folder / "s.sqlite", count=20 * size))]


def trials_of_list(folder: Path, size: int) -> list[str]:
    make_store(folder / "s.sqlite", count=20 * size)
    return ["list", str(folder)]


def trials_of_report(folder: Path, size: int) -> list[str]:
    return ["report", str(make_store(folder / "s.sqlite", count=20 * size)), "-o", str(folder / "page.html")]


def trials_of_export(folder: Path, size: int) -> list[str]:
    store = make_store(folder / "s.sqlite", count=20 * size)
    return ["export", str(store), "--to", "csv", "-o", str(folder / "trials.csv")]


def layers_of_export(folder: Path, size: int) -> list[str]:
    head = small_cfg().index("[convolutional]", small_cfg().index("[convolutional]") + 1)
    write_network(folder, text=small_cfg()[:head] + 3 * size * CONV + small_cfg()[head:])
    return ["export", str(folder / "net.cfg"), "--to", "bundle", "-o", str(folder / "net.mpnet"), "--no-profile"]


def deep_run(folder: Path, size: int) -> list[str]:
    """Prepare a run of three times `size` layers of one kind before the head."""
    head = small_cfg().index("[convolutional]", small_cfg().index("[convolutional]") + 1)
    layers = 3 * size * CONV.replace("linear", "logistic")  # linear ones grow beyond all bounds
    experiment = write_experiment(folder, small_cfg()[:head] + layers + small_cfg()[head:])
    return ["run", str(experiment), *FEW_BOXES, "--set", "data.limit=2"]


def images_of_run(folder: Path, size: int, factor: int = 3) -> list[str]:
    experiment = write_experiment(folder, small_cfg())
    for kind in ("images", "labels"):
        shutil.rmtree(folder / kind)
    images(folder, factor * size)
    return ["run", str(experiment), *FEW_BOXES]


def images_of_sweep(folder: Path, size: int) -> list[str]:
    arguments = images_of_run(folder, size, 1)
    settings = ["sweep.strategy=one_at_a_time", "sweep.precisions=[fp32,int8]"]
    return ["sweep", *arguments[1:], "--workers=1", *(word for setting in settings for word in ("--set", setting))]


def images_of_detect(folder: Path, size: int) -> list[str]:
    write_network(folder, text=small_cfg())
    paths = sorted(map(str, images(folder, 3 * size).iterdir()))
    return ["detect", f"--cfg={folder / 'net.cfg'}", f"--weights={folder / 'net.weights'}", *paths, "--conf=0.8", "--threads=1"]


def boxes_of_compare(folder: Path, size: int) -> list[str]:
    run_folder = boxes_of_report(folder, size)[1]
    return ["compare", run_folder, run_folder]


def images_of_analyze(folder: Path, size: int) -> list[str]:
    arguments = images_of_run(folder, size, 1)
    return ["analyze", *arguments[1:], f"--images={size}"]


def images_of_explain(folder: Path, size: int) -> list[str]:
    """Prepare the explanation of images of noise without labels, in which 3 bits lose what fp32 finds."""
    experiment, random = write_experiment(folder, small_cfg()), np.random.default_rng(0)
    (folder / "more").mkdir()
    for number in range(3 * size):
        cv2.imwrite(str(folder / "more" / f"{number:05d}.png"), random.integers(0, 256, (32, 32, 3), np.uint8))
    settings = ("--unlabelled", str(folder / "more"), "--set", "precision.default=int3")
    return ["explain", str(experiment), *FEW_BOXES, *settings, "--worst=2", "--orders=2"]


def layers_of_import(folder: Path, size: int) -> list[str]:
    onnx, graphs = pytest.importorskip("onnx"), pytest.importorskip("tests.importing.graphs")
    builder = graphs.Builder(8)
    x = "images"
    for _ in range(3 * size):
        x = builder.conv(x, 4, act="Relu")
    onnx.save(builder.model([x]), folder / "net.onnx")
    return ["import", str(folder / "net.onnx"), "-o", str(folder / "made")]


def work(arguments: list[str]) -> tuple[int, int]:
    """Count the calls, and the most bytes at once, of a command."""
    gc.collect()
    profile = Profile(builtins=True)
    tracemalloc.start()
    profile.enable()
    try:
        cli.main(arguments, standalone_mode=False)
    finally:
        profile.disable()
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return sum(entry.callcount for entry in profile.getstats()), peak_bytes


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        layers,
        classes,
        boxes_of_init,
        boxes_of_report,
        images_of_init,
        results,
        long_names,
        trials_of_status,
        trials_of_list,
        trials_of_report,
        trials_of_export,
        layers_of_export,
        deep_run,
        images_of_run,
        images_of_sweep,
        images_of_detect,
        boxes_of_compare,
        images_of_analyze,
        images_of_explain,
        layers_of_import,
    ],
)
def test_work_grows_with_the_input(
    command: Callable[[Path, int], list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MPNET_CACHE_LIMIT", "0")
    # On a busy machine latencies are taken longer, and again.
    monkeypatch.setattr("mpnet.speed.steps.ATTEMPTS", 1)
    monkeypatch.setattr("mpnet.speed.steps.LATENCY_SECONDS", 0.0)
    measures = []
    for size in (1, 1, 10, 100):  # the first fills caches and imports
        folder = tmp_path / f"{len(measures)}"
        folder.mkdir()
        measures.append(work(command(folder, size)))
        capsys.readouterr()
    _, size_1, size_10, size_100 = measures
    assert size_100[0] - size_10[0] <= LINEAR * 10 * (size_10[0] - size_1[0]) + FEW_CALLS
    assert size_100[1] <= LINEAR * 10 * size_10[1]
