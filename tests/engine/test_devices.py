# SPDX-License-Identifier: MIT
"""Devices by name, and networks on one: the same bits, images in and heads out, the rest on the CPU by visible steps."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpnet.config.experiment import RuntimeSection
from mpnet.engine import devices
from mpnet.engine.assign import assign
from mpnet.engine.bind import LayerFailure
from mpnet.engine.devices import list_gpus, open_kernels, open_runtime
from mpnet.engine.operations import Transfer
from mpnet.engine.plan import build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.errors import ConfigError, EngineError, FallbackWarning, KernelError
from mpnet.formats.cfg.read import parse_cfg, read_cfg
from mpnet.formats.weights import read_weights
from mpnet.kernels.gpu import source
from mpnet.kernels.gpu.gpu_kernels import GpuKernels
from mpnet.kernels.gpu.known_cases import check_program
from mpnet.kernels.gpu.memory import GpuDevice, GpuStorage
from mpnet.kernels.gpu.source import DOUBLES, ProgramText
from mpnet.kernels.isa import kernels
from mpnet.model.network import NetworkSpec
from mpnet.model.precision import PRECISIONS
from mpnet.model.weights import Weights, random_weights
from tests.conftest import DemoModel
from tests.engine.family import LAYERS, family_cfg
from tests.kernels.gpus import gpu_driver, gpu_kernels
from tests.sweep.sweep_networks import yolov3_tiny

MIXES = (
    ("fp32",),
    ("fp16",),
    ("int8",),
    ("bf16", "int8"),
    ("fp32", "int8", "fp16"),
    ("int4", "fp16_half", "bf16", "int16w5", "fp32_winograd", "int16"),
)


def same_heads(network: NetworkSpec, weights: Weights, mix: tuple[str, ...], size: int, fuse: bool) -> Session:
    """Compare the heads of a mixture on the device with the CPU's; return the device's session."""
    overrides = {layer.index: PRECISIONS[mix[i % len(mix)]] for i, layer in enumerate(network.convolutions)}
    plan = build_plan(network, assign(network, overrides=overrides))
    batch = np.random.default_rng(3).random((size, *network.in_shape), np.float32)
    sessions = [Session(Prepared(network, weights, table), plan, fuse=fuse) for table in (kernels(), gpu_kernels())]
    expected, actual = ([head.tobytes() for head in session.forward(batch)] for session in sessions)
    assert actual == expected
    return sessions[1]


def transfers(session: Session) -> Counter[str]:
    """Count the transfers of a pass by where they go."""
    return Counter(step.operation.target for step in session.run_plan.steps if isinstance(step.operation, Transfer))


@pytest.mark.parametrize("fuse", [True, False], ids=["fused", "unfused"])
@pytest.mark.parametrize("mix", MIXES, ids=" ".join)
def test_the_demo_network_has_the_same_bits(demo_model: DemoModel, mix: tuple[str, ...], fuse: bool) -> None:
    network = read_cfg(demo_model.cfg)
    session = same_heads(network, read_weights(demo_model.weights, network), mix, 3, fuse)
    assert transfers(session) == {gpu_kernels().name: 1, "cpu": 2}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(LAYERS))
def test_every_kind_of_layer_has_the_same_bits(name: str) -> None:
    network = parse_cfg(family_cfg(name), "t.cfg")
    for mix in (("fp32",), ("fp16",), ("int8", "fp16", "fp32")):
        for fuse in (True, False):
            same_heads(network, random_weights(network, 4), mix, 2, fuse)


@pytest.mark.slow
@pytest.mark.parametrize("mix", [("fp32",), ("int8",), ("fp16", "int8", "fp32")], ids=" ".join)
def test_only_images_go_in_and_heads_come_out(mix: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    network = yolov3_tiny()
    session = same_heads(network, random_weights(network, 1), mix, 2, True)
    assert transfers(session) == {gpu_kernels().name: 1, "cpu": 2}
    copies: dict[str, list[int]] = {"in": [], "out": []}
    upload, download = GpuDevice.upload, GpuDevice.download
    monkeypatch.setattr(
        GpuDevice, "upload", lambda self, array, out=None: (copies["in"].append(array.nbytes), upload(self, array, out))[1]
    )
    monkeypatch.setattr(
        GpuDevice, "download", lambda self, x, out=None: (copies["out"].append(x.nbytes), download(self, x, out))[1]
    )
    batch = np.random.default_rng(4).random((2, *network.in_shape), np.float32)
    heads = session.forward(batch)
    assert copies == {"in": [batch.nbytes], "out": [head.nbytes for head in heads]}  # fmt: skip


def test_what_has_no_kernel_runs_on_the_cpu(demo_model: DemoModel, monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = GpuKernels.refusal
    monkeypatch.setattr(
        GpuKernels,
        "refusal",
        lambda self, function, row: f"{self.name} has no kernel for it"
        if function == "maxpool"
        else refusal(self, function, row),
    )
    network = read_cfg(demo_model.cfg)
    line = r"^MaxPool of maxpool-\d+, .* falls back to \w+: opencl:\d+ has no kernel for it$"
    with pytest.warns(FallbackWarning, match=line):
        session = same_heads(network, read_weights(demo_model.weights, network), ("fp32",), 2, False)
    assert transfers(session)["cpu"] > 2
    assert "Transfer (to cpu)" in session.run_plan.text()


def test_the_layer_that_fails_there_is_named(demo_model: DemoModel) -> None:
    network = read_cfg(demo_model.cfg)
    prepared = Prepared(network, read_weights(demo_model.weights, network), gpu_kernels())
    session = Session(prepared, build_plan(network, assign(network, "fp32")))
    batch = np.zeros((1, *network.in_shape), np.float32)
    batch[0, 1, 2, 0] = np.inf
    with pytest.raises(LayerFailure, match=r"layer 0 \(conv-1\): "):
        session.forward(batch)
    session.forward(np.zeros_like(batch))


def test_a_batch_without_memory_goes_through_in_parts(demo_model: DemoModel, monkeypatch: pytest.MonkeyPatch) -> None:
    network = read_cfg(demo_model.cfg)
    weights, plan = read_weights(demo_model.weights, network), build_plan(network, assign(network))
    batch = np.random.default_rng(6).random((5, *network.in_shape), np.float32)
    expected = Session(Prepared(network, weights, kernels()), plan).forward(batch)
    session = Session(Prepared(network, weights, gpu_kernels()), plan)
    allocate = GpuDevice.allocate
    most = 3 * session.arena.size_bytes

    def allocate_little(device: GpuDevice, shape: tuple[int, ...], dtype: np.dtype[Any]) -> GpuStorage:
        if int(np.prod(shape)) * dtype.itemsize > most:
            raise MemoryError
        return allocate(device, shape, dtype)

    monkeypatch.setattr(GpuDevice, "allocate", allocate_little)
    with pytest.warns(FallbackWarning, match=r"^opencl:\d+: no memory for a batch of 5; 2 go through at once$"):
        heads = session.forward(batch)
    assert [head.tobytes() for head in heads] == [head.tobytes() for head in expected]
    most = 0
    with pytest.warns(FallbackWarning), pytest.raises(EngineError, match=r"a batch of 1 needs .* use a smaller batch"):
        Session(Prepared(network, weights, gpu_kernels()), plan).forward(batch)


def test_auto_is_the_cpu() -> None:
    assert open_kernels() is open_kernels("auto", "auto") is open_kernels(None, "cpu") is kernels()
    assert open_kernels("scalar", "auto") is kernels("scalar")


def test_backends_are_kernels_by_preference() -> None:
    name = gpu_kernels().name
    for names, host in (
        (("gpu", "cpu", "reference"), kernels()),
        (("gpu", "reference"), kernels("scalar")),
        (("gpu",), kernels("scalar")),
    ):
        opened = open_runtime(RuntimeSection(backends=names))
        assert (opened.name, opened.host_kernels) == (name, host)
    assert open_runtime(RuntimeSection(backends=("gpu", "cpu"), device="cpu")) is kernels()
    assert open_runtime(RuntimeSection(backends=("cpu", "gpu"))) is kernels()
    assert open_runtime(RuntimeSection(backends=("reference",))) is kernels("scalar")
    assert open_runtime(RuntimeSection(isa="scalar", backends=("cpu",))) is kernels("scalar")


@pytest.mark.parametrize(
    ("runtime", "words"),
    [
        (RuntimeSection(backends=("gpu", "gpu")), "gpu, gpu; name each once"),
        (RuntimeSection(backends=("cpu",), device="opencl"), "begins with cpu, but runtime.device is opencl; put gpu first"),
        (RuntimeSection(backends=("gpu",), device="gpu"), "unknown; use auto"),
        (RuntimeSection(isa="avx2", backends=("gpu",)), "reference is the table scalar, not runtime.isa avx2"),
    ],
)
def test_backends_that_contradict_each_other_are_refused(runtime: RuntimeSection, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        open_runtime(runtime)


def test_a_gpu_that_is_not_there_leaves_all_to_what_comes_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpnet.packages.find_spec", lambda name: None)
    line = r"^runtime.backends opencl:7: needs pyopencl; pip install .*; all operations fall back to cpu \(\w+\)$"
    with pytest.warns(FallbackWarning, match=line):
        assert open_runtime(RuntimeSection(device="opencl:7", backends=("gpu", "cpu"))) is kernels()


def test_auto_is_the_device_that_a_variable_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPNET_DEVICE", gpu_kernels().name)
    assert open_kernels().name == gpu_kernels().name
    assert open_kernels(device="cpu") is kernels()
    monkeypatch.setenv("MPNET_DEVICE", "moon")
    with pytest.raises(ConfigError, match=r"^MPNET_DEVICE: 'moon' is unknown"):
        open_kernels()


def test_an_operation_whose_bits_differ_falls_back_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    read = source.read_source
    right, wrong = "NARROW(x) convert_float_rte(x)", "NARROW(x) convert_float_rtz(x)"
    assert right in read("doubles.cl")
    monkeypatch.setattr(source, "read_source", lambda name: read(name).replace(right, wrong))
    gpu = GpuKernels(gpu_driver(), kernels(), None, check_doubles, falls_back=True)
    network = parse_cfg(family_cfg("classifier"), "t.cfg")
    weights, plan = random_weights(network, 4), build_plan(network, assign(network, "int8"))
    line = r"^Normalize of softmax-\d+ falls back to \w+: opencl:\d+, .*, is refused: known case .* of its operations in double"
    with pytest.warns(FallbackWarning, match=line) as caught:
        session = Session(Prepared(network, weights, gpu), plan)
    assert len(caught) == 1
    assert transfers(session)["cpu"] >= 1
    batch = np.random.default_rng(5).random((2, *network.in_shape), np.float32)
    expected = Session(Prepared(network, weights, kernels()), plan).forward(batch)
    assert [head.tobytes() for head in session.forward(batch)] == [head.tobytes() for head in expected]
    strict = GpuKernels(gpu_driver(), kernels(), None, check_doubles)
    with pytest.raises(EngineError, match="is refused"):
        Session(Prepared(network, weights, strict), plan).forward(batch)


def check_doubles(opened: GpuKernels, program: ProgramText) -> None:
    """Ask for the bits of one program, the quickest; those of the others are asked for elsewhere."""
    if program == DOUBLES:
        check_program(opened, program)


@pytest.mark.parametrize("name", ["gpu", "cuda:", "opencl:", "opencl:x", "opencl:-1", "opencl:1000", ""])
def test_unknown_devices_are_named(name: str) -> None:
    with pytest.raises(
        ConfigError, match=r"^runtime.device \(or --device\): .* is unknown; use auto, cpu, opencl, opencl:N, cuda or cuda:N$"
    ):
        open_kernels("auto", name)


def test_without_the_package_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpnet.packages.find_spec", lambda name: None)
    monkeypatch.setattr(devices, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"opencl:7: needs pyopencl; pip install --upgrade 'mpnet\[gpu\]'"):
        open_kernels("auto", "opencl:7")
    assert list_gpus() == []


def test_a_device_that_is_not_there_is_named() -> None:
    name = gpu_kernels().name
    with pytest.raises(KernelError, match=rf"there is no device opencl:99; there are .*{name} \("):
        open_kernels("auto", "opencl:99")
    assert name in {gpu.name for gpu in list_gpus()}


def test_kernels_of_a_device_are_opened_once_and_by_their_name() -> None:
    name = gpu_kernels().name
    assert open_kernels("auto", name) is open_kernels("auto", name) is open_kernels(name) is open_kernels("auto", "opencl")
    assert open_kernels("auto", name).host_kernels is kernels()
    assert open_kernels("scalar", name).host_kernels is kernels("scalar")


def test_nothing_of_it_is_imported_unless_asked_for(repository: Path) -> None:
    program = "import sys, mpnet.cli.main, mpnet.api; print([m for m in sys.modules if 'opencl' in m or 'kernels.gpu' in m])"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=repository)
    assert run.stdout.strip() == "[]"
