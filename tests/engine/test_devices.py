# SPDX-License-Identifier: MIT
"""Devices by name, and networks on one: the same bits, images in and heads out, the rest on the CPU by visible steps."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from mpnet.engine import devices
from mpnet.engine.assign import assign
from mpnet.engine.bind import LayerFailure
from mpnet.engine.devices import list_gpus, open_kernels
from mpnet.engine.operations import Transfer
from mpnet.engine.plan import build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.errors import ConfigError, KernelError
from mpnet.formats.cfg.read import parse_cfg, read_cfg
from mpnet.formats.weights import read_weights
from mpnet.kernels.gpu.gpu_kernels import GpuKernels
from mpnet.kernels.gpu.memory import GpuDevice
from mpnet.kernels.isa import kernels
from mpnet.model.network import NetworkSpec
from mpnet.model.precision import PRECISIONS
from mpnet.model.weights import Weights, random_weights
from tests.conftest import DemoModel
from tests.engine.family import LAYERS, family_cfg
from tests.kernels.gpus import gpu_kernels
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
    supports = GpuKernels.supports
    monkeypatch.setattr(
        GpuKernels, "supports", lambda self, function, row: function != "maxpool" and supports(self, function, row)
    )
    network = read_cfg(demo_model.cfg)
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


def test_auto_is_the_cpu() -> None:
    assert open_kernels() is open_kernels("auto", "auto") is open_kernels(None, "cpu") is kernels()
    assert open_kernels("scalar", "auto") is kernels("scalar")


@pytest.mark.parametrize("name", ["gpu", "cuda", "opencl:", "opencl:x", "opencl:-1", "opencl:1000", ""])
def test_unknown_devices_are_named(name: str) -> None:
    with pytest.raises(
        ConfigError, match=r"^runtime.device \(or --device\): .* is unknown; use auto, cpu, opencl or opencl:N$"
    ):
        open_kernels("auto", name)


def test_without_the_package_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpnet.packages.find_spec", lambda name: None)
    monkeypatch.setattr(devices, "find_spec", lambda name: None)
    devices._open_gpu.cache_clear()
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
    assert open_kernels("auto", name) is open_kernels("auto", name) is open_kernels(name)
    assert open_kernels("auto", name).host_kernels is kernels()
    assert open_kernels("scalar", name).host_kernels is kernels("scalar")


def test_nothing_of_it_is_imported_unless_asked_for(repository: Path) -> None:
    program = "import sys, mpnet.cli.main, mpnet.api; print([m for m in sys.modules if 'opencl' in m or 'kernels.gpu' in m])"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=repository)
    assert run.stdout.strip() == "[]"
