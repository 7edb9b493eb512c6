# SPDX-License-Identifier: MIT
"""Labelled images on disk and finished runs on them, made from a seed without any network."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

from mpnet.data.dataset import Dataset
from mpnet.data.detections import Detections
from mpnet.formats.documents.detections import detections_json
from mpnet.formats.documents.typed import as_json, from_json
from mpnet.formats.labels.dataset import load_dataset
from mpnet.trial.measure import measure_detections
from mpnet.trial.result import Result, publish
from mpnet.trial.run_result import RunResult

NAMES = ("circle", "<script>alert(1)</script>", "a \"quoted\" 'name'")


def make_dataset(folder: Path, count: int = 16, seed: int = 1, names: tuple[str, ...] = NAMES) -> Dataset:
    """Write `count` images of 160 x 120 with two to four boxes each, as images/, labels/ and net.names."""
    random = np.random.default_rng(seed)
    for subfolder in ("images", "labels"):
        (folder / subfolder).mkdir(parents=True)
    (folder / "net.names").write_text("\n".join(names) + "\n", encoding="utf-8")
    for number in range(count):
        image = random.integers(40, 200, (120, 160, 3), dtype=np.uint8)
        lines = []
        for slot in range(int(random.integers(2, 5))):
            category = int(random.integers(len(names)))
            x, y, w, h = (0.2 + 0.3 * (slot % 3), 0.3 + 0.4 * (slot // 3), 0.2, 0.25)
            lines.append(f"{category} {x:.4f} {y:.4f} {w:.4f} {h:.4f}\n")
        cv2.imwrite(str(folder / "images" / f"p{number:02d}.png"), image)
        (folder / "labels" / f"p{number:02d}.txt").write_text("".join(lines), encoding="utf-8")
    return load_dataset("yolo", folder / "images", labels=folder / "labels", names=names)


def make_detections(dataset: Dataset, seed: int, jitter: float, miss: float) -> Detections:
    """Return the truths, moved by about `jitter` pixels; a share `miss` of them not found, plus a few false ones."""
    random = np.random.default_rng(seed)
    is_found = random.random(len(dataset.box)) >= miss
    box = dataset.box[is_found] + random.normal(0, jitter, (int(is_found.sum()), 4))
    score = random.uniform(0.3, 0.99, len(box))
    extra = len(dataset.images)
    return Detections.of(
        extra,
        np.concatenate([dataset.image_index[is_found], np.arange(extra)]),
        np.concatenate([dataset.category[is_found], random.integers(0, len(dataset.categories), extra)]),
        np.concatenate([score, random.uniform(0.01, 0.3, extra)]),
        np.concatenate([box, random.uniform(5, 60, (extra, 4))]),
    )


def publish_run(folder: Path, dataset: Dataset, data: Path, detections: Detections, name: str, key: str, trial: str) -> Result:
    """Store a run as `mpnet run` stores it: folder/<name>/<trial>."""
    metrics, per_class = measure_detections(detections, dataset)
    layers = [
        {
            "index": i,
            "type": "convolutional",
            "name": f"conv-{i}",
            "selectors": [str(i)],
            "precision": {"f": "fp32", "q": "int8", "h": "fp16"}[code],
            "conversions": [],
            "shape": [10, 10, 4],
            "macs": 1000 * (i + 1),
            "parameters": 100,
            "weight_bytes": 100 if code == "q" else 400,
            "activation_bytes": 400,
        }
        for i, code in enumerate(key)
    ]
    low = key.count("q")
    document = {
        "format": "mpnet-result",
        "version": 1,
        "name": name,
        "id": trial,
        "created": "2000-01-01T00:00:00+00:00",
        "command": "mpnet run made.yaml",
        "digests": {"cfg": "1" * 64, "weights": "2" * 64, "data": dataset.digest, "trial": trial * 4},
        "protocol": {
            "dataset": "yolo",
            "images": len(dataset.images),
            "boxes": len(dataset.box),
            "resize": "stretch",
            "confidence": 0.005,
            "nms": 0.45,
            "nms_kind": "default",
            "batch_norm": "darknet",
        },
        "precision": {"key": key, "layers": layers},
        "metrics": metrics,
        "agreement": None,
        "per_class": [as_json(row) for row in per_class],
        "cost": {
            "weight_bytes": sum(row["weight_bytes"] for row in layers),
            "peak_activation_bytes": 9000,
            "macs": 6000,
            "int8_macs": 1000 * low,
            "bit_operations": 1024 * 6000 - 900_000 * low,
        },
        "latency": {
            "isa": "scalar",
            "threads": 1,
            "median_ms": 3.0 - 0.4 * low,
            "min_ms": 2.0,
            "images": 3,
            "steps": [{"step": f"convolve {i}", "ms": 0.5} for i in range(len(key))],
        },
        "versions": {"mpnet": "0.1.0"},
        "sources": {"images": str(data / "images"), "labels": str(data / "labels"), "names": str(data / "net.names")},
        "notes": [],
    }
    return publish(from_json(RunResult, document, "made"), detections_json(detections, dataset), folder / name / trial)


def make_runs(folder: Path) -> tuple[Result, Result, Result]:
    """Make a baseline, one run close to it and one that is clearly worse."""
    dataset = make_dataset(folder / "data")
    baseline = make_detections(dataset, 5, 0.8, 0.1)
    nearly_equal = Detections.of(
        baseline.image_count, baseline.image_index, baseline.category, baseline.score, baseline.box + np.float32(0.1)
    )
    worse = make_detections(dataset, 6, 5.0, 0.5)
    return tuple(  # type: ignore[return-value]
        publish_run(folder / "runs", dataset, folder / "data", detections, name, key, trial)
        for detections, name, key, trial in (
            (baseline, "fp32", "fff", "a" * 16),
            (nearly_equal, "mixed", "fqf", "b" * 16),
            (worse, "int8", "qqq", "c" * 16),
        )
    )
