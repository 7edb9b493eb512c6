# SPDX-License-Identifier: MIT
"""Does the choice survive in the target? Configurations of real networks, exported and run by other engines.

Usage: python benchmarks/deployment.py measure --data ../shared/data --network aix --engine openvino [--out FOLDER]
       python benchmarks/deployment.py times   --data ../shared/data --network aix --engine openvino [--out FOLDER]
       python benchmarks/deployment.py floor   --data ../shared/data --network aix --engine openvino [--out FOLDER]
       python benchmarks/deployment.py table   [--out FOLDER]

`pip install -e ".[bench]"` installs every engine. measure: all layers in fp32, in fp16 and in int8, on all images, then
`--count` mixed configurations drawn with `--seed` on the first `--images`; the engine's own quantisation mode, mpnet
beside it: head error (relative RMS against mpnet's own heads), AP, agreement AP with mpnet's fp32, and how many pairs more
than a point of agreement apart keep their order. times: passes of engine and mpnet in turn, and milliseconds per layer
where the engine says. floor: all in fp16 and the mixed configurations again, mpnet beside itself on images of which every
value changed by up to 1e-6 (`--disturbed`), in the engine's mode: no engine that is not equal bit by bit can be nearer,
since a sum beside a rounding step moves a code. `--draws` repeats it with other changes: how far it goes is chance.
What was measured is a JSON file each; table prints them as Markdown.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import combinations
from pathlib import Path
from typing import Any, Callable, Mapping

import numpy as np

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))

from mpnet.backends import backend  # noqa: E402
from mpnet.backends.deployment import Deployment  # noqa: E402
from mpnet.demo.project import write_project  # noqa: E402
from mpnet.engine.assign import assign_key  # noqa: E402
from mpnet.errors import ConfigError  # noqa: E402
from mpnet.formats.documents.experiment import parse_experiment  # noqa: E402
from mpnet.formats.files.atomic import write_text  # noqa: E402
from mpnet.model.precision import PRECISIONS  # noqa: E402
from mpnet.trial.comparison import deployment_of  # noqa: E402
from mpnet.trial.experiment import open_workbench  # noqa: E402
from mpnet.trial.inference import Forward, Runner, own_runner, run_all  # noqa: E402
from mpnet.trial.latency import measure_in_turn  # noqa: E402
from mpnet.trial.measure import Meter  # noqa: E402
from mpnet.trial.workbench import Workbench  # noqa: E402

COCO = {"format": "coco", "images": "coco/images", "annotations": "coco/instances_dev.json"}
NETWORKS: dict[str, dict[str, Any]] = {
    "aix": {
        "model": {
            "cfg": "aix2022/yolov3-tiny-aix2022.cfg",
            "weights": "aix2022/yolov3-tiny-aix2022.weights",
            "names": "aix2022/yolohw.names",
        },
        "data": {"format": "yolo", "images": "aix2022/images", "labels": "aix2022/labels"},
    },
    "yolov3-tiny": {
        "model": {
            "cfg": "yolov3-tiny/yolov3-tiny.cfg",
            "weights": "yolov3-tiny/yolov3-tiny.weights",
            "names": "yolo-fastest/coco.names",
        },
        "data": COCO,
    },
    "yolo-fastest": {
        "model": {
            "cfg": "yolo-fastest/yolo-fastest-1.1.cfg",
            "weights": "yolo-fastest/yolo-fastest-1.1.weights",
            "names": "yolo-fastest/coco.names",
        },
        "data": COCO,
    },
    "demo": {},
}
DRAWN_SHARES = (("f", 0.25), ("h", 0.25), ("q", 0.5))
"""Codes of mixed configurations and how often each layer gets them."""
UNIFORM = ("fp32", "fp16", "int8")
AT_ONCE = 4
OWN_KERNELS = "itself"


def workbench(name: str, data: Path, engine: str, limit: int | None, output_folder: Path) -> Workbench:
    """Open a network with its images, quantised in the engine's mode."""
    if name == "demo":
        folder = write_project(output_folder / "demo-files", 39, workers=1).folder
        tree: dict[str, Any] = {
            "model": {kind: str(folder / "model" / f"demo.{kind}") for kind in ("cfg", "weights", "names")},
            "data": {"format": "yolo", "images": str(folder / "val/images"), "labels": str(folder / "val/labels")},
        }
    else:
        tree = {
            section: {key: value if key == "format" else str((data / value).resolve()) for key, value in keys.items()}
            for section, keys in NETWORKS[name].items()
        }
        if name == "yolov3-tiny":
            tree["model"]["cfg"] = str(FOLDER.parent / "cfg" / "yolov3-tiny.cfg")
            tree["model"]["weights"] = str(next((data / "yolov3-tiny").glob("*.weights")))
    if limit is not None:
        tree["data"]["limit"] = limit
    mode = dict(backend(engine).mode)
    document = {
        "name": name,
        **tree,
        "quantization": mode,
        "runtime": {"threads": 1, "batch": 4},
        "output": str(output_folder / "runs"),
    }
    return open_workbench(parse_experiment(json.dumps(document), source=name))


def mixed(layers: int, count: int, seed: int) -> list[str]:
    """Precision strings drawn layer by layer."""
    random = np.random.Generator(np.random.PCG64(seed))
    codes, shares = zip(*DRAWN_SHARES, strict=True)
    return ["".join(random.choice(codes, layers, p=shares)) for _ in range(count)]


def measure(bench: Workbench, engine: str, keys: list[str], size: float = 0.0, draw: int = 0) -> list[dict[str, Any]]:
    """AP, agreement and head error of configurations, mpnet's own and the engine's, or those of ITSELF on disturbed images.

    A group shares each image. size, draw: see `disturbed`.
    """
    network = bench.network
    base = bench.plan(bench.uniform("fp32"))
    rows: list[dict[str, Any]] = []
    for start in range(0, len(keys), AT_ONCE):
        runners, runner_indices = [own_runner(bench.prepared, base)], []
        for key in keys[start : start + AT_ONCE]:
            plan = bench.plan(assign_key(network, key))
            deployment = None
            try:
                deployment = None if engine == OWN_KERNELS else deployment_of(bench, plan, engine)
            except ConfigError as error:
                rows.append({"key": key, "refused": str(error)})
                continue
            own_index = 0 if key == base.precision.key else len(runners)
            if own_index:
                runners.append(own_runner(bench.prepared, plan))
            if deployment is None:
                open_forward = disturb(own_runner(bench.prepared, plan).open, size, draw)
            else:
                open_forward = forward_of(deployment)
            runners.append(Runner(plan, open_forward, own_index))
            runner_indices.append((key, own_index, len(runners) - 1, deployment))
        outcomes = run_all(bench, runners)
        meter = Meter(bench.dataset, outcomes[0].predictions)
        for key, own_index, engine_index, deployment in runner_indices:
            figures = {}
            for side, number in (("mpnet", own_index), ("engine", engine_index)):
                values = meter.measure(outcomes[number].predictions, sizes=False, darknet=False).values
                figures[side] = {"AP": values["AP"], "agreement_AP": values["agreement_AP"]}
            row: dict[str, Any] = {"key": key, **figures, "head_error": outcomes[engine_index].head_error}
            if deployment is not None:
                executed = deployment.executed or {}
                row["version"] = deployment.version
                row["executed"] = "".join(
                    {"fp32": "f", "fp16": "h", "int8": "q"}.get(executed[i][0], "?") if i in executed else "."
                    for i in assign_key(network, key).weighted
                )
            rows.append(row)
            print(json.dumps(row), file=sys.stderr, flush=True)
    return rows


def forward_of(deployment: Deployment) -> Callable[[], Forward]:
    """Return what opens the engine's model."""
    return lambda: deployment.open(1).forward


def disturb(open_own: Callable[[], Forward], size: float, draw: int) -> Callable[[], Forward]:
    """Return the same passes on images of which every value changed by at most `size`, each draw in another way."""

    def open_disturbed() -> Forward:
        forward, random = open_own(), np.random.Generator(np.random.PCG64(draw))
        return lambda x: forward(x + random.uniform(-size, size, x.shape).astype(np.float32))

    return open_disturbed


def times(bench: Workbench, engine: str, keys: list[str]) -> list[dict[str, Any]]:
    """Milliseconds of passes in turn, and per layer where the engine says."""
    rows = []
    for key in keys:
        plan = bench.plan(assign_key(bench.network, key))
        deployment = deployment_of(bench, plan, engine)
        turns = measure_in_turn(bench, {"own": plan}, deployment)
        rows.append(
            {
                "key": key,
                "version": deployment.version,
                "engine_ms": turns.times["deployed"].median_ms,
                "mpnet_ms": turns.times["own"].median_ms,
                "engine_min_ms": turns.times["deployed"].min_ms,
                "layers": dict(turns.layer_ms or {}),
            }
        )
    return rows


def kept_pairs(rows: list[Mapping[str, Any]], apart: float = 1.0) -> tuple[int, int]:
    """(pairs more than `apart` points of mpnet's agreement apart, how many of them the engine orders alike)."""
    points = [(row["mpnet"]["agreement_AP"], row["engine"]["agreement_AP"]) for row in rows if "mpnet" in row]
    pairs = [(a, b) for a, b in combinations(points, 2) if abs(a[0] - b[0]) > apart]
    return len(pairs), sum((a[0] - b[0]) * (a[1] - b[1]) > 0 for a, b in pairs)


def table(output_folder: Path) -> str:
    """All that was measured, as Markdown."""
    lines = [
        "| network | engine | configurations | head error, median / max | AP apart, mean / max | agreement apart, mean / "
        "max | rank correlation | pairs kept |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for path in sorted(output_folder.glob("*-measure.json")):
        document = json.loads(path.read_text())
        for choice, rows in document["rows"].items():
            name, rows_measured = (
                f"{document['network']}, {document['pictures'][choice]} images",
                [r for r in rows if "mpnet" in r],
            )
            if rows_measured:
                lines.append(
                    f"| {name} | {document['engine']} {rows_measured[0]['version']} | "
                    f"{choice}, {len(rows_measured)} of {len(rows)} | " + " | ".join(summary(rows_measured)) + " |"
                )
            else:
                lines.append(f"| {name} | {document['engine']} | {choice} | refused: {rows[0]['refused']} | | | | |")
    lines += [
        "",
        "| network | engine | configuration | engine, ms | mpnet, ms | engine's ms by layer, where it says |",
        "|---|---|---|---|---|---|",
    ]
    for path in sorted(output_folder.glob("*-times.json")):
        document = json.loads(path.read_text())
        for row in document["rows"]:
            lines.append(
                f"| {document['network']} | {document['engine']} {row['version']} | `{row['key']}` | "
                f"{row['engine_ms']:.1f} | {row['mpnet_ms']:.1f} | "
                + ", ".join(f"{layer}: {ms:.2f}" for layer, ms in row["layers"].items())
                + " |"
            )
    lines += [
        "",
        "| network, mode of | head error of mpnet against itself, median / max | AP apart, mean / max | "
        "agreement apart, mean / max | rank correlation | pairs kept |",
        "|---|---|---|---|---|---|",
    ]
    for path in sorted(output_folder.glob("*-floor.json")):
        document = json.loads(path.read_text())
        for choice, rows in document["rows"].items():
            lines.append(
                f"| {document['network']}, {document['pictures'][choice]} images, {document['engine']}: {choice} | "
                + " | ".join(summary(rows))
                + " |"
            )
    return "\n".join(lines)


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """Return the cells of some configurations."""
    errors = [row["head_error"] for row in rows]
    apart = [[abs(row["engine"][name] - row["mpnet"][name]) for row in rows] for name in ("AP", "agreement_AP")]
    cells = [f"{np.median(errors):.1e} / {max(errors):.1e}", *(f"{np.mean(v):.2f} / {max(v):.2f}" for v in apart)]
    if len(rows) < 3:
        return [*cells, "", ""]
    ranks = [np.argsort(np.argsort([row[side]["agreement_AP"] for row in rows])) for side in ("mpnet", "engine")]
    count, pairs_kept = kept_pairs(rows)
    return [*cells, f"{np.corrcoef(*ranks)[0, 1]:.3f}", f"{pairs_kept} of {count}"]


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("measure", "times", "floor", "table"))
    parser.add_argument("--data", type=Path, default=FOLDER.parent.parent / "shared" / "data")
    parser.add_argument("--network", choices=NETWORKS, default="aix")
    parser.add_argument("--engine", default="openvino")
    parser.add_argument("--out", type=Path, default=Path("runs/deployment"))
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--images", type=int, default=39, help="for the mixed configurations")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--disturbed", type=float, default=1e-6, help="of floor: how much a value of an image changes at most")
    parser.add_argument("--draws", type=int, default=1, help="of floor: how often the mixed configurations are measured")
    options = parser.parse_args()
    if options.what == "table":
        print(table(options.out))
        return
    bench = workbench(options.network, options.data, options.engine, None, options.out)
    few_images_bench = workbench(options.network, options.data, options.engine, options.images, options.out)
    layers = len(bench.network.convolutions)
    drawn_keys = mixed(layers, options.count, options.seed)
    document: dict[str, Any] = {"network": options.network, "engine": options.engine, "seed": options.seed}
    if options.what == "times":
        document["rows"] = times(bench, options.engine, ["f" * layers, "q" * layers, drawn_keys[0]])
    elif options.what == "floor":
        draws = {"mixed" if draw == 0 else f"mixed, draw {draw}": draw for draw in range(options.draws)}
        document["pictures"] = {"fp16": len(bench.inputs), **dict.fromkeys(draws, len(few_images_bench.inputs))}
        document["disturbed"] = options.disturbed
        document["rows"] = {
            "fp16": measure(bench, OWN_KERNELS, [PRECISIONS["fp16"].code * layers], options.disturbed),
            **{
                choice: measure(few_images_bench, OWN_KERNELS, drawn_keys, options.disturbed, draw)
                for choice, draw in draws.items()
            },
        }
    else:
        document["pictures"] = {**dict.fromkeys(UNIFORM, len(bench.inputs)), "mixed": len(few_images_bench.inputs)}
        document["rows"] = {
            **{name: measure(bench, options.engine, [PRECISIONS[name].code * layers]) for name in UNIFORM},
            "mixed": measure(few_images_bench, options.engine, drawn_keys),
        }
    write_text(options.out / f"{options.network}-{options.engine}-{options.what}.json", json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
