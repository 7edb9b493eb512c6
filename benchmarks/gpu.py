# SPDX-License-Identifier: MIT
"""What a GPU gives beside the CPU: the same bits of cases, networks and sweeps, and how long each takes.

    python -m benchmarks.gpu opencl:0                                     # everything; minutes on a GPU
    python -m benchmarks.gpu opencl:0 bits networks start                 # some of it
    python -m benchmarks.gpu opencl:0 sweep --experiment aix.yaml         # a sweep of an experiment of yours

    bits      every convolution case of the kernels' tests, and the known cases of all programs
    networks  one network per kind of layer, three imported ones (where onnx is installed), the demo network and YOLOv3-tiny
    start     from a device's name to the heads of a process's first image, with empty caches and with kept programs
    speed     images a second of YOLOv3-tiny, beside the CPU's tables
    sweep     an exhaustive sweep on the CPU, on the GPU, and by one worker of each on one store, which must hold the same

Run it from a checkout, whose tests it takes along. It ends with 1 where a bit differs. The first line names the device and its
driver, which belong to every figure.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Iterator, Sequence

import numpy as np

from mpnet.demo.project import write_project
from mpnet.engine.assign import assign
from mpnet.engine.devices import open_kernels
from mpnet.engine.options import resolve_options
from mpnet.engine.plan import build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.formats.cfg.read import parse_cfg, read_cfg
from mpnet.formats.weights import parse_weights, read_weights
from mpnet.kernels.gpu.gpu_kernels import GpuKernels
from mpnet.kernels.gpu.known_cases import check_program
from mpnet.kernels.gpu.source import DOUBLES, OPERATIONS, convolution_programs
from mpnet.kernels.implementation import Kernels
from mpnet.kernels.isa import kernels
from mpnet.model.network import NetworkSpec
from mpnet.model.precision import PRECISIONS
from mpnet.model.weights import Weights, random_weights
from mpnet.speed.clock import in_turn
from mpnet.sweep.store import TrialStore
from tests.engine.family import LAYERS, family_cfg
from tests.kernels.cases import conv_cases
from tests.kernels.test_conv import have_same_bits, run
from tests.networks import write_experiment
from tests.sweep.sweep_networks import yolov3_tiny

MIXES = (("fp32",), ("fp16",), ("int8",), ("int8", "fp16", "fp32"))
SWEEP = "sweep: {strategy: exhaustive, precisions: [fp32, int8], objectives: [agreement_AP, bit_operations], holdout: 0"
TIED = "[['0..8'], ['21..22']]"
"""Of the tiny network: eight variables, 256 configurations."""
START = """
from benchmarks.gpu import session_of
from mpnet.engine.devices import open_kernels
from mpnet.model.weights import random_weights
from tests.sweep.sweep_networks import yolov3_tiny
import numpy, sys, time
network = yolov3_tiny()
weights, image, begin = random_weights(network, 1), numpy.zeros((1, *network.in_shape), numpy.float32), time.perf_counter()
session_of(network, weights, ("int8", "fp32"), open_kernels(device=sys.argv[1])).forward(image)
print(time.perf_counter() - begin)
"""


def session_of(network: NetworkSpec, weights: Weights, mix: Sequence[str], table: Kernels, fuse: bool = True) -> Session:
    """Return a session whose convolutions take the precisions of a mixture in turn, with all threads."""
    overrides = {layer.index: PRECISIONS[mix[i % len(mix)]] for i, layer in enumerate(network.convolutions)}
    plan = build_plan(network, assign(network, overrides=overrides), resolve_options(network))
    return Session(Prepared(network, weights, table), plan, os.cpu_count() or 1, fuse)


def compare_cases(gpu: GpuKernels) -> int:
    """Compare all cases of kernels. Returns how many differ."""
    differing = count = 0
    for case in conv_cases():
        (expected, ranges), (actual, gpu_ranges) = run(kernels(), case), run(gpu, case)
        count += 1
        if not (have_same_bits(expected, actual) and have_same_bits(ranges, gpu_ranges)):
            differing += 1
            print(f"  differs: {case}")
    print(f"bits: {count - differing} of {count} convolution cases", flush=True)
    for program in (OPERATIONS, DOUBLES, *convolution_programs()):
        if program is not DOUBLES or gpu.refusal("normalize", PRECISIONS["fp32"]) == "":
            check_program(gpu, program)
            print(f"bits: {program.name}: as known", flush=True)
    return differing


def networks() -> Iterator[tuple[str, NetworkSpec, Weights, Sequence[Sequence[str]]]]:
    """Yield networks by name, with weights and mixtures of precisions."""
    for name in LAYERS:
        network = parse_cfg(family_cfg(name), "family.cfg")
        yield name, network, random_weights(network, 4), MIXES
    with tempfile.TemporaryDirectory() as folder:
        if find_spec("onnx") is None:
            print("networks: no imported ones: pip install onnx")
        else:
            import onnx

            from mpnet.importing import Choices, import_model
            from tests.importing.test_model_on_gpu import MODELS

            for name, build in MODELS.items():
                onnx.save(build(), Path(folder) / "model.onnx")
                imported = import_model(Path(folder) / "model.onnx", Choices())
                weights = parse_weights(imported.weights, imported.network, name)
                yield f"imported {name}", imported.network, weights, MIXES
        model = write_project(Path(folder) / "demo", 1).folder / "model"
        network = read_cfg(model / "demo.cfg")
        yield "demo", network, read_weights(model / "demo.weights", network), MIXES
    network = yolov3_tiny()
    yield "YOLOv3-tiny", network, random_weights(network, 1), (("fp32",), ("int8",), ("fp16", "int8", "fp32"))


def compare_networks(gpu: GpuKernels) -> int:
    """Compare the heads of all networks, fused and not. Returns how many passes differ."""
    differing = 0
    for name, network, weights, mixes in networks():
        batch = np.random.default_rng(3).random((2, *network.in_shape), np.float32)
        equal = count = 0
        for mix in mixes:
            expected = [head.tobytes() for head in session_of(network, weights, mix, kernels()).forward(batch)]
            for fuse in (True, False):
                count += 1
                heads = session_of(network, weights, mix, gpu, fuse).forward(batch)
                equal += [head.tobytes() for head in heads] == expected
        differing += count - equal
        print(f"networks: {name}: {equal} of {count} passes", flush=True)
    return differing


def measure_start(device: str) -> None:
    """Print the seconds of a first image with empty caches, and with what the process before has kept."""
    with tempfile.TemporaryDirectory() as folder:
        caches = {name: str(Path(folder) / name) for name in ("MPNET_CACHE", "POCL_CACHE_DIR", "CUDA_CACHE_PATH")}
        for path in caches.values():
            Path(path).mkdir()
        seconds = []
        for _ in range(3):
            words = [sys.executable, "-c", START, device]
            seconds.append(
                float(subprocess.run(words, env={**os.environ, **caches}, check=True, stdout=subprocess.PIPE).stdout)
            )
    warm = min(seconds[1:])
    print(f"start: {seconds[0]:.1f} s with empty caches, {warm:.1f} s with kept programs ({warm / seconds[0]:.3f})", flush=True)


def measure_speed(gpu: GpuKernels, batches: Sequence[int]) -> None:
    """Print images a second of YOLOv3-tiny, for each size of batch, beside the best and the scalar table with all cores."""
    network = yolov3_tiny()
    weights = random_weights(network, 1)
    for mix in (("fp32",), ("int8",)):
        for images in batches:
            batch = np.random.default_rng(5).random((images, *network.in_shape), np.float32)
            tables: list[Kernels] = [gpu, kernels(), *([kernels("scalar")] if images == 1 else [])]
            passes = [partial(session_of(network, weights, mix, table).forward, batch) for table in tables]
            times = in_turn(*passes, repeats=5)
            rates = [f"{table.name} {1e3 * images / taken.min_ms:.2f}" for table, taken in zip(tables, times, strict=True)]
            print(f"speed: {'+'.join(mix)}, batch {images}, images a second: {', '.join(rates)}", flush=True)


def stored_trials(path: Path) -> dict[tuple[str, str], dict[str, float]]:
    """Return all that a store says of its trials, by context and key."""
    with TrialStore.read(path) as store:
        return {
            (json.dumps(document, sort_keys=True), trial.key): dict(trial.values)
            for context, document in store.contexts().items()
            for trial in store.trials(context)
        }


def sweep_command(experiment: Path, store: Path, device: str) -> list[str]:
    """Return the command line of a sweep by one worker."""
    words = ["sweep", str(experiment), "--store", str(store), "--device", device, "--workers", "1", "--yes", "-q"]
    return [sys.executable, "-m", "mpnet", *words]


def compare_sweeps(device: str, experiment: Path | None) -> int:
    """Sweep on the CPU, on the device, and on both at once. Returns 1 where what is stored differs."""
    with tempfile.TemporaryDirectory() as folder:
        stores = {name: Path(folder) / f"{name}.sqlite" for name in ("cpu", "gpu", "both")}
        if experiment is None:
            experiment = write_experiment(Path(folder))
            with experiment.open("a", encoding="utf-8") as file:
                file.write(f"{SWEEP}, space: {{tied: {TIED}}}}}\n")
        seconds = {}
        for name, devices in (("cpu", ["cpu"]), ("gpu", [device]), ("both", ["cpu", device])):
            begin = time.perf_counter()
            workers = [
                subprocess.Popen(sweep_command(experiment, stores[name], each), stdout=subprocess.DEVNULL) for each in devices
            ]
            if any([worker.wait() for worker in workers]):
                raise SystemExit(f"sweep: {name} failed")
            seconds[name] = time.perf_counter() - begin
        trials = {name: stored_trials(path) for name, path in stores.items()}
    differing = sum(trials[name] != trials["cpu"] for name in ("gpu", "both"))
    times = ", ".join(f"{name} {value:.1f} s" for name, value in seconds.items())
    outcome = "the same in all three stores" if not differing else "NOT the same in all three stores"
    print(f"sweep: {len(trials['cpu'])} configurations, {outcome}; {times}", flush=True)
    return differing


def main() -> None:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ("bits", "networks", "start", "speed", "sweep")
    parser.add_argument("device", help="as mpnet info lists it, such as opencl:0")
    parser.add_argument("parts", nargs="*", choices=[*parts, []], help="of these; all by default")
    parser.add_argument("--experiment", type=Path, help="with an exhaustive sweep, in place of 256 of a tiny network")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32], help="images of a pass, for speed")
    arguments = parser.parse_args()
    gpu = open_kernels(device=arguments.device)
    if not isinstance(gpu, GpuKernels):
        raise SystemExit(f"{arguments.device} is no GPU")
    print(f"{gpu.name}: {gpu.driver.description.title}; CPU: {kernels().name}, {os.cpu_count()} cores", flush=True)
    differing = 0
    for part in arguments.parts or parts:
        begin = time.perf_counter()
        if part == "bits":
            differing += compare_cases(gpu)
        elif part == "networks":
            differing += compare_networks(gpu)
        elif part == "start":
            measure_start(gpu.name)
        elif part == "speed":
            measure_speed(gpu, arguments.batches)
        else:
            differing += compare_sweeps(gpu.name, arguments.experiment)
        print(f"{part}: took {time.perf_counter() - begin:.0f} s", flush=True)
    raise SystemExit(1 if differing else 0)


if __name__ == "__main__":
    main()
