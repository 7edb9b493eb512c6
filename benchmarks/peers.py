# SPDX-License-Identifier: MIT
"""The same network with the same weights in mpnet and in other engines, interleaved in one run; prints ratios.

Usage: python benchmarks/peers.py [--cfg cfg/yolov3-tiny.cfg] [--weights FILE] [--threads 1] [--rounds 12]
                                  [--engines mpnet,onnxruntime] [--peers PYTHON] [--json FILE]

`pip install -e ".[bench]"` installs every engine. Any network that mpnet can export will do, also one that `mpnet import`
wrote. int8 is calibrated: ncnn's, LiteRT's and openvino:int8 are files of mpnet, onnxruntime:int8 and openvino:nncf what
those engines' own quantisers make of the fp32 file.

Every engine runs in a process of its own; round after round each is woken in turn for a few passes while the others
wait, so that drift of the machine meets all alike. --peers names a Python that holds the engines (default: this one).
Results are compared with mpnet's fp32 heads (relative root mean square error). At the end stands where mpnet's time goes,
by kind of step.

What was asked for (--engines, default all) and could not run is listed with the reason, and makes the exit status 1: the
ratios are then not those to the best peer. Exit status 2: an engine that does not exist.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))

CASES = (
    "mpnet:fp32",
    "mpnet:fp32_winograd",
    "mpnet:fp16",
    "mpnet:int8",
    "mpnet:int8-dynamic",
    "mpnet:mixed",
    "onnxruntime:fp32",
    "onnxruntime:int8",
    "openvino:fp32",
    "openvino:int8",
    "openvino:nncf",
    "ncnn:fp32",
    "ncnn:fp32-direct",
    "ncnn:int8",
    "litert:fp32",
    "litert:int8",
    "litert:dynamic",
    "opencv:fp32",
)
INT8 = ("onnxruntime:int8", "openvino:int8", "openvino:nncf", "ncnn:int8", "litert:int8")
DIRECT = ("onnxruntime:fp32", "openvino:fp32", "ncnn:fp32-direct", "litert:fp32", "opencv:fp32")
# Goal: (what, ours, theirs, at most this ratio). theirs: the fastest of these that ran. Ratios of the first three are for small
# networks on AVX2, of the others for YOLOv3-tiny at 416 on a CPU with VNNI, one thread; docs/results/kernels.md has more CPUs.
GOALS = (
    ("fp32, against the best of all", "mpnet:fp32", (*DIRECT, "ncnn:fp32"), 0.95),
    ("int8, calibrated", "mpnet:int8", INT8, 0.75),
    ("int8, against our fp32", "mpnet:int8", ("mpnet:fp32",), 0.55),
    ("fp32, against the best direct convolution", "mpnet:fp32", DIRECT, 0.92),
    ("fp32_winograd, against the best of all", "mpnet:fp32_winograd", (*DIRECT, "ncnn:fp32"), 0.62),
    ("int8, dynamic", "mpnet:int8-dynamic", ("litert:dynamic",), 0.70),
    ("fp16, against our fp32", "mpnet:fp16", ("mpnet:fp32",), 1.02),
    ("mixed, against our int8", "mpnet:mixed", ("mpnet:int8",), 1.10),
)


def prepare(cfg: Path, weights: Path | None, folder: Path) -> dict[str, str]:
    """Models, an image, calibration images and the expected heads, in folder. Returns why files were not written."""
    from peer_engines import mpnet
    from peer_models import open_network, write_models

    shutil.copy(cfg, folder / "net.cfg")
    if weights is not None:
        shutil.copy(weights, folder / "net.weights")
    random = np.random.default_rng(1)
    shape = open_network(folder).network.in_shape
    np.save(folder / "image.npy", random.random((1, *shape), np.float32))
    np.save(folder / "calibration.npy", random.random((8, *shape), np.float32))
    forward, _ = mpnet("fp32", folder, 1)
    np.savez(folder / "heads.npz", *[np.array(h) for h in forward(np.load(folder / "image.npy"))])
    return write_models(folder)


def file_of(case: str) -> str:
    """Return the file that an engine reads, by its name in the folder; '': mpnet's own reads the cfg."""
    engine, variant = case.split(":")
    suffix = {"mpnet": "", "ncnn": ".param", "litert": ".tflite"}.get(engine, ".onnx")
    has_int8_file = variant == "int8" and engine != "onnxruntime"
    return f"net{'-int8' if has_int8_file else '-dynamic' if variant == 'dynamic' else ''}{suffix}" if suffix else ""


class Worker:
    """An engine's process."""

    def __init__(self, case: str, folder: Path, threads: int, python: str) -> None:
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": str(threads),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "PYTHONPATH": str(FOLDER.parent),
        }
        # A file, not a pipe: nobody reads along, and a full pipe would stop the engine.
        self.errors = open(folder / f"{case.replace(':', '-')}.err", "w+", encoding="utf-8")  # noqa: SIM115
        interpreter = sys.executable if case.startswith("mpnet") else python
        self.process = subprocess.Popen(
            [interpreter, str(FOLDER / "peer_engines.py"), case, str(folder), str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=environment,
        )
        self.times: list[float] = []
        self.ready = self._answer()

    def _answer(self) -> Any:
        """Return the next line that is JSON; engines print other things as well."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(("{", "[")):
                return json.loads(line)
        self.errors.seek(0)
        errors = self.errors.read().strip().splitlines()
        return {"missing": errors[-1] if errors else "ended without a word"}

    def ask(self, request: str) -> Any:
        """Send a request to the process and return its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{request}\n")
        self.process.stdin.flush()
        return self._answer()

    def run(self, passes: int) -> None:
        """Run some passes and keep their times."""
        self.times += self.ask(str(passes))

    def close(self) -> None:
        """End the process."""
        self.process.communicate()
        self.errors.close()


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cfg", type=Path, default=FOLDER.parent / "cfg" / "yolov3-tiny.cfg")
    parser.add_argument("--weights", type=Path, default=None, help="of the network; default: random ones")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--passes", type=int, default=3, help="per engine and round")
    parser.add_argument("--engines", default="", help="engine or engine:variant, comma separated; default all")
    parser.add_argument("--peers", default=sys.executable)
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--folder", type=Path, default=None, help="keep the models here, and use those that are there")
    options = parser.parse_args()
    requested = [w for w in options.engines.split(",") if w]
    names = {*CASES, *(case.split(":")[0] for case in CASES)}
    for name in requested:
        if name not in names:
            parser.error(f"--engines: unknown '{name}'; known are {', '.join(sorted(names))}")
    cases = [c for c in CASES if not requested or c in requested or c.split(":")[0] in requested]
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        stored_cfg = folder / "net.cfg"
        if stored_cfg.exists() and stored_cfg.read_bytes() != options.cfg.read_bytes():
            parser.error(f"--folder {folder}: its models are those of another network; choose another folder for {options.cfg}")
        refusals: dict[str, str] = {}
        if not (folder / "heads.npz").exists():
            refusals = prepare(options.cfg, options.weights, folder)
        workers: dict[str, Worker] = {}
        left_out: dict[str, str] = {}
        for case in cases:
            refusal = refusals.get(file_of(case), "")
            if refusal:
                left_out[case] = f"no {file_of(case)}: {refusal}"
                continue
            worker = Worker(case, folder, options.threads, options.peers)
            if "missing" in worker.ready:
                left_out[case] = worker.ready["missing"]
                worker.close()
            else:
                workers[case] = worker
        for worker in workers.values():
            worker.run(2)
            worker.times.clear()
        for _ in range(options.rounds):
            for worker in workers.values():
                worker.run(options.passes)
        steps = {case: worker.ask("steps") for case, worker in workers.items()}
        for worker in workers.values():
            worker.close()
    report(workers, {case: kinds for case, kinds in steps.items() if kinds}, left_out, options)
    return 1 if left_out else 0


def report(
    workers: dict[str, Worker], steps: dict[str, dict[str, float]], left_out: dict[str, str], options: argparse.Namespace
) -> None:
    """Print the table, the ratios of medians and of minima, times by kind of step, what was left out, and --json."""
    print(f"\n{options.cfg.name}, {options.threads} thread(s), {options.rounds} rounds of {options.passes} passes")
    print(f"{'engine':22} {'min ms':>8} {'median':>8} {'error':>9}  version")
    rows = {}
    for case, worker in sorted(workers.items(), key=lambda item: min(item[1].times)):
        minimum, median = min(worker.times), statistics.median(worker.times)
        rows[case] = {"min_ms": minimum, "median_ms": median, **worker.ready}
        print(f"{case:22} {minimum:8.2f} {median:8.2f} {worker.ready['error']:9.2g}  {worker.ready['version']}")
    print(f"\n{'goal':42} {'peer':18} {'min':>6} {'median':>7} {'at most':>8}")
    goals = []
    for goal, ours, theirs, limit in GOALS:
        present = [case for case in theirs if case in rows]
        if ours not in rows or not present:
            continue
        best = min(present, key=lambda case: float(rows[case]["min_ms"]))
        ratios = [rows[ours][key] / rows[best][key] for key in ("min_ms", "median_ms")]
        goals.append({"goal": goal, "peer": best, "ratio_min": ratios[0], "ratio_median": ratios[1], "at_most": limit})
        print(f"{goal:42} {best:18} {ratios[0]:6.3f} {ratios[1]:7.3f} {limit:8.2f}")
    kinds = sorted(
        {kind for times in steps.values() for kind in times}, key=lambda kind: -max(s.get(kind, 0) for s in steps.values())
    )
    if kinds:
        print(f"\n{'step, ms':36} {' '.join(f'{case[6:]:>13}' for case in steps)}")
        for kind in kinds:
            print(f"{kind:36} {' '.join(f'{times.get(kind, 0):13.3f}' for times in steps.values())}")
    if options.json:
        document = {"engines": rows, "goals": goals, "steps": steps, "left_out": left_out, "threads": options.threads}
        options.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    if left_out:
        print(
            f"\nLEFT OUT, {len(left_out)} of {len(left_out) + len(rows)} asked for; the best peer may be missing:",
            file=sys.stderr,
        )
        for case, reason in left_out.items():
            print(f"  {case:22} {reason}", file=sys.stderr)
        print('  pip install -e ".[bench]" installs all engines; --engines names those to compare with', file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
