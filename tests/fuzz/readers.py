# SPDX-License-Identifier: MIT
"""Mutated files through everything that reads them, under the command line's own error handling.

python -m tests.fuzz.readers FORMAT RUNS [SEED] [--found FOLDER]: each must end with exit code 0, or with 2 and one line, within
10 seconds and 1 GB; what does not is kept in FOLDER and named. FORMAT may be `all`. --corpus FOLDER keeps the smallest file for
each sentence that an error has, at most MOST_FILES for a format: what tests/fuzz/corpus/readers holds, which each `make test`
reads.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

import numpy as np
from rich.console import Console

from mpnet.cli.main import cli, guarded
from mpnet.detection.images import read_image
from mpnet.engine.assign import assign
from mpnet.engine.options import resolve_options
from mpnet.engine.prepare import Prepared
from mpnet.evaluation.compare import MIN_DRAWS
from mpnet.export import Configuration, export
from mpnet.formats.cfg.read import parse_cfg, read_cfg
from mpnet.formats.documents.detections import read_detections
from mpnet.formats.documents.experiment import read_experiment
from mpnet.formats.documents.ranges import read_ranges, write_ranges
from mpnet.formats.files.cache import FileCache
from mpnet.formats.labels.dataset import load_dataset
from mpnet.formats.labels.yolo import read_names
from mpnet.formats.weights import read_weights
from mpnet.importing import import_model
from mpnet.kernels.isa import kernels
from mpnet.model.quantization import ActivationOptions, QuantizationOptions
from mpnet.model.ranges import CalibratedRanges, TensorRange
from mpnet.model.weights import random_weights
from mpnet.progress import silent
from mpnet.report.collect.compare_runs import compare_runs
from mpnet.report.collect.report import collect
from mpnet.report.data.summary import sentences
from mpnet.report.html.page import render
from mpnet.report.text.comparison import print_comparison
from mpnet.report.text.sweep_status import print_status
from mpnet.resolve.stored import find_configuration
from mpnet.speed.latency_table import TABLE, read_table
from mpnet.sweep.choose.status import sweep_status
from mpnet.sweep.store.salvage import salvage
from tests.engine.family import LAYERS, family_cfg
from tests.fuzz.mutate import Mutation, bytes_of, json_of, store_of
from tests.networks import NAMES, small_cfg, tiny_cfg, write_experiment

SECONDS, MEMORY_BYTES = 10, 1 << 30
PRINTED, RENDERED = 8, 200  # of so many, one becomes a table, or a whole page, which take long
DRAWS = MIN_DRAWS
MOST_FILES, MOST_BYTES = 24, 400_000
"""Files of a format in the corpus, and their bytes."""
KEY = "5" * 64
"""Of the cache's entry."""


class Hang(BaseException):
    """It took too long."""


@dataclass(frozen=True)
class Format:
    """seed: file below the workspace that is mutated. look_at: what reads it, given the workspace and a number.

    extra_contents: other contents of that file to begin with.
    """

    seed: str
    mutation: Mutation
    look_at: Callable[[Path, int], Any]
    extra_contents: tuple[bytes, ...] = ()


def _quiet() -> Console:
    return Console(file=io.StringIO(), width=200)


def _result(folder: Path, number: int) -> None:
    run_folder, base = folder / "result", folder / "base"
    find_configuration(str(run_folder))
    compared = compare_runs([base, run_folder], draws=DRAWS)
    if number % PRINTED == 0:
        print_comparison(compared, _quiet())
    data = collect([base, run_folder] if number % 2 else [run_folder], progress=silent, draws=DRAWS, compute=False)
    sentences(data)
    if number % RENDERED == 0:
        render(data)


def _store(folder: Path, number: int) -> None:
    path = folder / "store.sqlite"
    if number % 7 == 0:
        salvage(path, folder / f"salvaged-{number}.sqlite")
        return
    if number % 3 == 0:
        print_status(sweep_status(path), _quiet())
    elif number % 3 == 1:
        find_configuration(str(path))
    else:
        sentences(collect([path], progress=silent, compute=False))


def _dataset(folder: Path, **keywords: Any) -> Any:
    return load_dataset(**{"images": folder / "images", "names": NAMES, **keywords})


def _lists(format: str, labels: str, **keywords: Any) -> Callable[[Path, int], Any]:
    return lambda folder, number: _dataset(folder, format=format, labels=folder / labels, **keywords).digest


FORMATS: dict[str, Format] = {
    "cfg": Format(
        "net.cfg",
        bytes_of,
        lambda folder, number: cli.main(
            ["show", str(folder / "net.cfg"), *(["--json"] if number % 5 else [])], standalone_mode=False
        ),
        extra_contents=tuple(text.encode() for text in (tiny_cfg(), *map(family_cfg, LAYERS))),
    ),
    "weights": Format(
        "net.weights", bytes_of, lambda folder, number: read_weights(folder / "net.weights", read_cfg(folder / "net.cfg"))
    ),
    "experiment": Format("experiment.yaml", bytes_of, lambda folder, number: read_experiment(folder / "experiment.yaml")),
    "labels": Format("labels/scene-0.txt", bytes_of, _lists("yolo", "labels")),
    "names": Format("net.names", bytes_of, lambda folder, number: read_names(folder / "net.names")),
    "darknet": Format("valid.txt", bytes_of, _lists("darknet", "valid.txt", images=None)),
    "ultralytics": Format("data.yaml", bytes_of, _lists("ultralytics", "data.yaml", images=None, names=None)),
    "classes": Format("classes.txt", bytes_of, _lists("list", "classes.txt")),
    "cache": Format(f"cache/{KEY}.mpc", bytes_of, lambda folder, number: FileCache(folder / "cache", 1 << 30).load(KEY)),
    "coco": Format(
        "coco.json", json_of, lambda folder, number: _dataset(folder, format="coco", annotations=folder / "coco.json").digest
    ),
    "detections": Format(
        "detections.json",
        json_of,
        lambda folder, number: read_detections(
            folder / "detections.json", _dataset(folder, format="yolo", labels=folder / "labels")
        ),
    ),
    "result": Format("result/result.json", json_of, _result),
    "store": Format("store.sqlite", store_of, _store),
    "ranges": Format("ranges.json", json_of, lambda folder, number: read_ranges(folder / "ranges.json")),
    "latency": Format("latency.json", json_of, lambda folder, number: read_table(folder / "latency.json").as_json()),
    **{
        name: Format(f"image.{name}", bytes_of, lambda folder, number, name=name: read_image(folder / f"image.{name}"))
        for name in ("jpg", "png", "bmp", "webp", "ppm")
    },
    **{
        name.replace(".", "_"): Format(name, bytes_of, lambda folder, number, name=name: import_model(folder / name))
        for name in ("fp32.onnx", "int8.onnx", "fp32.tflite", "int8.tflite")
    },
}
PACKAGES = {"onnx": "onnx", "tflite": "ai_edge_litert"}
"""What a format of other programs needs."""
MODEL = (
    "[net]\nwidth=17\nheight=17\nchannels=3\n[convolutional]\nfilters=4\nsize=3\nstride=2\npad=1\nactivation=relu6\n"
    "[convolutional]\nfilters=4\nsize=3\npad=1\ngroups=4\nactivation=relu\n[convolutional]\nfilters=4\nsize=1\nactivation=linear\n"
    "[shortcut]\nfrom=-3\nactivation=linear\n[convolutional]\nfilters=6\nsize=3\npad=1\nactivation=leaky\n[maxpool]\nsize=2\n"
    "stride=2\n[upsample]\nstride=2\n[convolutional]\nfilters=6\nsize=1\nactivation=swish\n[route]\nlayers=-1\ngroups=2\n"
    "group_id=1\n[convolutional]\nfilters=5\nsize=1\nactivation=logistic\n"
)
"""A network of few weights, so that mutations of its files hit what describes it."""


def available(name: str) -> bool:
    """Return whether the packages that a format needs are here."""
    package = PACKAGES.get(FORMATS[name].seed.rpartition(".")[2])
    return package is None or importlib.util.find_spec(package) is not None


def prepare(folder: Path) -> None:
    """Write a workspace: a tiny network with everything that is made of it."""
    import cv2

    experiment = write_experiment(folder, small_cfg())
    text = experiment.read_text() + "sweep: {strategy: one_at_a_time, precisions: [fp32, int8]}\n"
    text = text.replace("confidence: 0.05", "confidence: 0.8")  # some fifty boxes, not thousands
    experiment.write_text(text)
    (folder / "valid.txt").write_text("".join(f"images/{path.name}\n" for path in sorted((folder / "images").iterdir())))
    (folder / "data.yaml").write_text(f"path: .\ntrain: images\nval: valid.txt\nnc: {len(NAMES)}\nnames: {list(NAMES)}\n")
    (folder / "classes.txt").write_text("".join(f"scene-{k}.png {k}\n" for k in range(2)))
    FileCache(folder / "cache", 1 << 30).store(KEY, [np.arange(40, dtype=np.float32), np.arange(3, dtype=np.int8)])
    working_folder = os.getcwd()
    os.chdir(folder)
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            assert guarded(lambda: cli.main(["run", "experiment.yaml", "-q"], standalone_mode=False)) == 0
            assert (
                guarded(
                    lambda: cli.main(
                        ["sweep", "experiment.yaml", "-q", "--workers", "1", "--store", "store.sqlite"], standalone_mode=False
                    )
                )
                == 0
            )
    finally:
        os.chdir(working_folder)
    runs = [path for path in sorted((folder / "runs/tiny").iterdir()) if not path.is_symlink() and path.is_dir()]
    for path in runs:
        agreement = json.loads((path / "result.json").read_text())["agreement"]
        path.rename(folder / ("base" if agreement is None else "result"))
    (folder / "detections.json").write_bytes((folder / "result/detections.json").read_bytes())
    images = sorted((folder / "images").iterdir())
    (folder / "coco.json").write_text(
        json.dumps(
            {
                "images": [
                    {"id": i, "file_name": path.name, "height": shape[0], "width": shape[1]}
                    for i, path in enumerate(images)
                    for shape in [cv2.imread(str(path)).shape]
                ],
                "categories": [{"id": i + 1, "name": name} for i, name in enumerate(NAMES)],
                "annotations": [
                    {"id": i, "image_id": i, "category_id": 1, "bbox": [1, 2, 30.5, 20], "area": 600, "iscrowd": 0}
                    for i in range(len(images))
                ],
            }
        )
    )
    write_ranges(
        folder / "ranges.json",
        CalibratedRanges(
            (
                TensorRange(-1, "picture", 0.0, 1.0, 0.0, 1.0, "min_max"),
                TensorRange(0, "conv-1", -1.5, 2.5, -2.0, 3.0, "percentile 99.9"),
            ),
            5,
            {"network": "n" * 64, "weights": "w" * 64},
        ),
    )
    (folder / "latency.json").write_text(
        json.dumps(
            {
                **TABLE.head,
                "network": "n" * 64,
                "precisions": ["fp32", "int8"],
                "machine": {"cpu": "x", "threads": 1},
                "steps": {"Convolve a": 1.5, "Quantize b": 0.1},
                "checks": [{"precision": "fq", "measured_ms": 2.0, "predicted_ms": 1.9}],
            }
        )
    )
    pixels = cv2.resize(np.random.RandomState(0).randint(0, 256, (5, 6, 3), dtype=np.uint8), (48, 32))
    for name in ("jpg", "png", "bmp", "webp", "ppm"):
        (folder / f"image.{name}").write_bytes(cv2.imencode(f".{name}", pixels)[1].tobytes())
    for name in filter(available, FORMATS):
        if FORMATS[name].seed.endswith(tuple(PACKAGES)):
            (folder / FORMATS[name].seed).write_bytes(_model(*FORMATS[name].seed.split(".")))


def _model(precision: str, target: str) -> bytes:
    """Return MODEL as `mpnet export` writes it, calibrated."""
    network = parse_cfg(MODEL, "model.cfg")
    quantization = QuantizationOptions(ActivationOptions(mode="affine", ranges="calibrated"))
    options = resolve_options(network, quantization, ranges=dict.fromkeys(range(-1, len(network.layers)), (-3.0, 3.0)))
    prepared = Prepared(network, random_weights(network, 3), kernels())
    flavour = "armnn" if (target, precision) == ("tflite", "int8") else ""
    return export(
        target, Configuration.from_prepared(prepared, assign(network, precision), options, names=NAMES), flavour
    ).content


def attempt(kind: Format, folder: Path, number: int) -> str | None:
    """Read what lies there; what is wrong with how that ended, None: nothing."""
    return ending(kind, folder, number)[0]


def ending(kind: Format, folder: Path, number: int) -> tuple[str | None, str]:
    """Read what lies there: what is wrong with how that ended, None: nothing; and the text on standard error."""
    output, errors = io.StringIO(), io.StringIO()
    signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of this process's CPU time: others may have the cores
    try:
        with redirect_stdout(output), redirect_stderr(errors):
            code = guarded(lambda: _look_at(kind, folder, number))
    except Hang:
        return f"took more than {SECONDS} s", ""
    except BaseException:  # this is what is looked for
        return traceback.format_exc(), ""
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    printed = errors.getvalue()
    error_count = sum(line.startswith("error: ") for line in printed.splitlines())
    if code not in (0, 2) or error_count != (code == 2) or max(map(len, printed.splitlines() or [""])) > 1_500:
        return f"exit code {code}, {error_count} lines: {printed[:300]!r}", printed
    return None, printed


def sentence(printed: str) -> str:
    """Return an error without what it says of one file: numbers, names and quoted values."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|\S*/\S*|[0-9.eE+-]*[0-9][0-9.eE+-]*", "#", printed)[:120]


def _look_at(kind: Format, folder: Path, number: int) -> None:
    kind.look_at(folder, number)


def hunt(name: str, runs: int, seed: int, finding_folder: Path | None, corpus: Path | None = None) -> int:
    """Mutate and read. Result: how many were wrong; each is named on standard output, once per place."""
    kind = FORMATS[name]
    signal.signal(signal.SIGPROF, _hang)
    failures: dict[str, int] = {}
    smallest: dict[str, tuple[int, str, bytes]] = {}
    slowest = 0.0
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as space:
        folder = Path(space)
        prepare(folder)
        path = folder / kind.seed
        seeds = [path.read_bytes(), *kind.extra_contents]
        rng = random.Random(seed)
        for number in range(runs):
            content = kind.mutation(rng.choice(seeds), rng)
            path.write_bytes(content)
            for sidecar in folder.glob(f"{path.name}-*"):
                sidecar.unlink()
            began = time.process_time()
            problem, printed = ending(kind, folder, number)
            entry = (len(content), f"{name}-{number % 210}-{hashlib.sha1(content).hexdigest()[:12]}", content)
            error_sentence = sentence(printed)
            smallest[error_sentence] = min(smallest.get(error_sentence, entry), entry)
            slowest = max(slowest, time.process_time() - began)
            for salvaged in folder.glob("salvaged-*"):
                salvaged.unlink()
            if problem is not None:
                problem_lines = problem.strip().splitlines()
                key = "\n".join(problem_lines[-3:])[:600] if len(problem_lines) > 1 else problem[:40]
                if key not in failures and finding_folder is not None:
                    finding_folder.mkdir(parents=True, exist_ok=True)
                    (finding_folder / f"{name}-{number % 210}-{hashlib.sha1(content).hexdigest()[:12]}").write_bytes(content)
                    print(f"--- {name} {number}\n{problem if len(failures) < 5 else key}", flush=True)
                failures[key] = failures.get(key, 0) + 1
    room = MOST_BYTES
    for size, file, content in sorted(smallest.values())[:MOST_FILES] if corpus else ():
        room -= size
        if room >= 0:
            (corpus / file).write_bytes(content)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if peak > MEMORY_BYTES:
        failures[f"took {peak / 1e6:.0f} MB"] = 1
    print(
        f"{name}: {runs} runs from seed {seed}, {sum(failures.values())} wrong in {len(failures)} places, at most "
        f"{peak / 1e6:.0f} MB, {slowest * 1e3:.0f} ms",
        flush=True,
    )
    return len(failures)


def _hang(signum: int, frame: Any) -> None:
    raise Hang


def main(arguments: list[str]) -> int:
    options = {word: Path(arguments[arguments.index(word) + 1]) for word in ("--found", "--corpus") if word in arguments}
    plain = arguments[: min(map(arguments.index, options), default=None)]
    requested_name, runs, seed = plain[0], int(plain[1]), int(plain[2]) if len(plain) > 2 else 0
    for folder in options.values():
        folder.mkdir(parents=True, exist_ok=True)
    if requested_name != "all":
        return 1 if hunt(requested_name, runs, seed, options.get("--found"), options.get("--corpus")) else 0
    codes = [
        subprocess.run([sys.executable, "-m", "tests.fuzz.readers", name, *arguments[1:]], check=False).returncode
        for name in filter(available, FORMATS)
    ]
    return 1 if any(codes) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
