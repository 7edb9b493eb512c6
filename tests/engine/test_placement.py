# SPDX-License-Identifier: MIT
"""Kernels of another device: tensors stay there, transfers are steps of the plan, the bits are those of the CPU."""

from __future__ import annotations

import gc
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mpnet.engine.assign import assign
from mpnet.engine.bind import LayerFailure
from mpnet.engine.execute import execute
from mpnet.engine.fuse import fuse_plan
from mpnet.engine.observe import observe_tensors
from mpnet.engine.operations import Dequantize, Quantize, Transfer
from mpnet.engine.options import resolve_options, without_statistics
from mpnet.engine.placement import place_plan
from mpnet.engine.plan import Plan, build_plan, verify_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.engine.tensor import host_tensor
from mpnet.errors import EngineError, KernelError
from mpnet.formats.cfg.read import parse_cfg
from mpnet.kernels.isa import kernels
from mpnet.model.network import NetworkSpec
from mpnet.model.precision import FP32
from mpnet.model.quantization import NO_OPTIONS, ActivationOptions, QuantizationOptions
from mpnet.model.weights import Weights, random_weights
from mpnet.quantization.scheme import ActivationScheme
from tests.engine.family import LAYERS, family_cfg
from tests.engine.remote import RemoteKernels
from tests.kernels.cases import conv_cases
from tests.kernels.test_conv import run

Batch = NDArray[np.float32]
PLANS: dict[str, tuple[str, dict[str | int, str]]] = {
    "fp32": ("fp32", {}),
    "fp16": ("fp16", {}),
    "int8": ("int8", {}),
    "mixed": ("int8", {0: "fp16", "*/yolo-1": "fp32", "conv-5": "fp16"}),
    "codes": ("int8", {"maxpool-*": "int8", "route-*": "int8", "upsample-1": "int8", "shortcut-1": "int8"}),
}
CALIBRATED = QuantizationOptions(ActivationOptions(ranges="calibrated"))


def bits(tensors: list[Batch]) -> list[bytes]:
    return [tensor.tobytes() for tensor in tensors]


def plan_of(network: NetworkSpec, prepared: Prepared, name: str, options: QuantizationOptions, batch: Batch) -> Plan:
    ranges: dict[int, tuple[float, float]] = {}
    observe_tensors(prepared, [batch], [lambda i, x: ranges.__setitem__(i, (float(x.min()), float(x.max())))])
    return build_plan(
        network, assign(network, *PLANS[name]), without_statistics(resolve_options(network, options, ranges=ranges))
    )


def transfers(plan: Plan) -> Counter[str]:
    return Counter(step.operation.target for step in plan.steps if isinstance(step.operation, Transfer))


@pytest.mark.parametrize("fuse", [True, False], ids=["fused", "unfused"])
@pytest.mark.parametrize("options", [NO_OPTIONS, CALIBRATED], ids=["dynamic", "calibrated"])
@pytest.mark.parametrize("name", list(PLANS))
def test_only_the_image_goes_in_and_heads_come_out(
    network: NetworkSpec,
    weights: Weights,
    prepared: Prepared,
    batch: Batch,
    name: str,
    options: QuantizationOptions,
    fuse: bool,
) -> None:
    plan = plan_of(network, prepared, name, options, batch)
    remote = RemoteKernels(kernels())
    session = Session(Prepared(network, weights, remote), plan, fuse=fuse)
    expected = Session(prepared, plan, fuse=fuse).forward(batch)
    assert bits(session.forward(batch)) == bits(expected)
    for direction in remote.device.transferred_bytes.values():
        direction.clear()
    reversed_batch = np.ascontiguousarray(batch[::-1])
    heads = session.forward(reversed_batch)
    assert bits(heads) == bits([head[::-1] for head in expected])
    assert remote.device.transferred_bytes == {"in": [batch.nbytes], "out": [head.nbytes for head in heads]}
    assert transfers(session.run_plan) == {"remote": 1, "cpu": 2}
    assert {slot.device for slot in session.run_plan.slots[1:] if slot.first <= slot.last} == {"remote", "cpu"}


@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.parametrize("unsupported", ["maxpool", "conv", "value_range", "add", ("conv", "fp16"), "copy_channels"])
def test_what_a_device_does_not_support_runs_on_the_cpu(
    network: NetworkSpec, weights: Weights, prepared: Prepared, batch: Batch, unsupported: Any, images: int
) -> None:
    plan = build_plan(network, assign(network, *PLANS["mixed"]))
    session = Session(Prepared(network, weights, RemoteKernels(kernels(), (unsupported,))), plan)
    images_of_batch = batch[:images]
    assert bits(session.forward(images_of_batch)) == bits(Session(prepared, plan).forward(images_of_batch))
    assert bits(session.observe(images_of_batch, lambda *_: None)) == bits(session.forward(images_of_batch))


def test_an_unsupported_operation_stands_between_two_transfers(network: NetworkSpec) -> None:
    plan = build_plan(network, assign(network))
    placed = place_plan(plan, RemoteKernels(kernels(), ("add",)))
    lines = placed.text().splitlines()
    [addition_index] = [number for number, line in enumerate(lines) if "Add" in line]
    assert [line.split(maxsplit=1)[1].split(" for ")[0] for line in lines[addition_index - 2 : addition_index + 2]] == [
        "Transfer (to cpu)",
        "Transfer (to cpu)",
        "Add (leaky)",
        "Transfer (to remote)",
    ]
    assert transfers(placed) - transfers(place_plan(plan, RemoteKernels(kernels()))) == {"cpu": 2, "remote": 1}


def test_on_the_cpu_nothing_is_transferred(network: NetworkSpec, prepared: Prepared) -> None:
    plan = build_plan(network, assign(network, "int8"))
    assert place_plan(plan, kernels()) is plan
    assert Session(prepared, plan).plan is plan
    assert not transfers(Session(prepared, plan).run_plan)


@pytest.mark.parametrize("name", list(LAYERS))
def test_every_kind_of_layer_has_the_same_bits(name: str) -> None:
    network = parse_cfg(family_cfg(name), "t.cfg")
    batch = np.random.Generator(np.random.PCG64(3)).random((2, 10, 14, 3), np.float32)
    weights = random_weights(network, 4)
    remote, host = Prepared(network, weights, RemoteKernels(kernels())), Prepared(network, weights, kernels())
    for precision in ("fp32", "fp16", "int8"):
        plan = build_plan(network, assign(network, precision))
        assert bits(Session(remote, plan).forward(batch)) == bits(Session(host, plan).forward(batch))


@pytest.mark.parametrize("mode", ["MIN_FIRST", "SCALED"])
def test_modes_of_tensorflow_run_on_the_cpu(
    network: NetworkSpec, weights: Weights, prepared: Prepared, batch: Batch, mode: str
) -> None:
    plan = plan_of(network, prepared, "codes", QuantizationOptions(ActivationOptions(mode=mode)), batch)
    remote = RemoteKernels(kernels())
    session = Session(Prepared(network, weights, remote), plan)
    assert bits(session.forward(batch)) == bits(Session(prepared, plan).forward(batch))
    assert remote.call_counts["conv"] == len(network.convolutions)


def test_the_layer_that_fails_there_is_named(network: NetworkSpec, weights: Weights, batch: Batch) -> None:
    session = Session(Prepared(network, weights, RemoteKernels(kernels())), build_plan(network, assign(network, "int8")))
    broken = np.array(batch)
    broken[1, 2, 3] = np.nan
    with pytest.raises(LayerFailure, match=r"layer 0 \(conv-1\): "):
        session.forward(broken)
    session.forward(batch)  # the next pass is whole again


def test_a_range_that_cannot_be_scaled_is_refused_there() -> None:
    network = parse_cfg("[net]\nwidth=4\nheight=4\nchannels=2\n[convolutional]\nfilters=2\nsize=1\n", "t.cfg")
    plan = build_plan(
        network, assign(network, "int8"), resolve_options(network, QuantizationOptions(ActivationOptions(mode="symmetric")))
    )
    weights, zeros = random_weights(network, 1), np.full((1, 4, 4, 2), 1e-45, np.float32)
    outcomes = []
    for table in (kernels(), RemoteKernels(kernels())):
        try:
            outcomes.append(bits(Session(Prepared(network, weights, table), plan).forward(zeros)))
        except EngineError as error:
            outcomes.append([str(error).encode()])
    assert outcomes[0] == outcomes[1]


def test_tensors_of_single_steps_stay_there(network: NetworkSpec, weights: Weights, batch: Batch) -> None:
    remote = RemoteKernels(kernels(), ("dequantize",))
    prepared = Prepared(network, weights, remote)
    codes = execute(Quantize(ActivationScheme()), [host_tensor(batch)], prepared)
    assert codes.storage.device is remote.device
    reals = execute(Dequantize(FP32), [codes], prepared)
    assert reals.storage.device.name == "cpu"
    host = Prepared(network, weights, kernels())
    expected = execute(Quantize(ActivationScheme()), [host_tensor(batch)], host)
    assert codes.host().tobytes() == expected.host().tobytes()
    assert reals.host().tobytes() == execute(Dequantize(FP32), [expected], host).host().tobytes()
    assert codes.params is not None
    assert codes.params.tobytes() == expected.code_map.params.host().tobytes()
    with pytest.raises(AssertionError, match="read as a NumPy array"):
        np.asarray(codes.storage)
    with pytest.raises(KernelError, match="went to kernels of the cpu; transfer it first"):
        kernels().dequantize(codes.storage, np.empty(batch.shape, np.float32), codes.code_map.scales)


def test_memory_of_plans_that_are_gone_serves_the_next(network: NetworkSpec, weights: Weights, batch: Batch) -> None:
    prepared = Prepared(network, weights, RemoteKernels(kernels()))
    plan = build_plan(network, assign(network, "int8"))
    expected = bits(Session(prepared, plan).forward(batch))
    gc.collect()  # the calls of this device hold each other
    assert len(prepared.arenas._spare) == 1
    assert bits(Session(prepared, plan).forward(batch)) == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"device": "elsewhere"}, r"reads slot 1 on remote but runs on elsewhere|transfers slot"),
        ({"device": "cpu"}, r"transfers slot 0 on cpu to slot \d+ on cpu"),
    ],
)
def test_a_plan_whose_devices_do_not_fit_is_refused(network: NetworkSpec, change: dict[str, str], message: str) -> None:
    placed = place_plan(build_plan(network, assign(network)), RemoteKernels(kernels()))
    slots = list(placed.slots)
    slots[placed.steps[0].output] = replace(slots[placed.steps[0].output], **change)
    with pytest.raises(EngineError, match=message):
        verify_plan(replace(placed, slots=tuple(slots)))


def test_heads_on_a_device_are_refused(network: NetworkSpec) -> None:
    placed = place_plan(fuse_plan(build_plan(network, assign(network))), RemoteKernels(kernels()))
    output = placed.steps[[step.output for step in placed.steps].index(placed.outputs[0])]
    with pytest.raises(EngineError, match=r"output slot \d+ lies on remote; transfer it"):
        verify_plan(replace(placed, outputs=(output.inputs[0],)))


def test_kernels_of_a_device_take_arrays_at_once() -> None:
    for case in conv_cases()[::40]:
        expected, ranges = run(kernels(), case)
        remote, remote_ranges = run(RemoteKernels(kernels()), case)
        assert (remote.tobytes(), remote_ranges.tobytes()) == (expected.tobytes(), ranges.tobytes())
