# SPDX-License-Identifier: MIT
"""Sessions: the same bits bound or step by step, fused or not, alone or in a batch, native or oracle."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mpnet.engine.assign import PrecisionPlan, assign, assign_key
from mpnet.engine.bind import LayerFailure
from mpnet.engine.execute import run_layer
from mpnet.engine.observe import observe_tensors
from mpnet.engine.operations import Quantize
from mpnet.engine.options import resolve_options, without_statistics
from mpnet.engine.plan import Plan, build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.engine.tensor import Tensor, host_tensor
from mpnet.errors import DataError, EngineError
from mpnet.formats.cfg.read import parse_cfg
from mpnet.kernels.isa import kernels
from mpnet.kernels.reference import ReferenceKernels
from mpnet.model.network import NetworkSpec
from mpnet.model.precision import BASE_NAMES, BY_CODE, PRECISIONS
from mpnet.model.quantization import NO_OPTIONS, ActivationOptions, QuantizationOptions, WeightOptions
from mpnet.model.weights import ConvolutionWeights, Weights, random_weights

Batch = NDArray[np.float32]
PLANS: dict[str, tuple[str, dict[str | int, str]]] = {
    **{name: (name, {}) for name in PRECISIONS},
    "mixed": ("int8", {0: "fp16", "*/yolo-1": "fp32", "conv-5": "fp16"}),
    "int8 between": ("int8", {"maxpool-*": "int8", "route-*": "int8", "upsample-1": "int8", "shortcut-1": "int8"}),
    "int8 beside int16": (
        "int8",
        {0: "int16", "conv-4": "int16", "maxpool-*": "int8", "route-*": "int16", "upsample-1": "int8"},
    ),
    "variants": ("fp16_half", {0: "fp32_winograd", "conv-5": "fp32_winograd"}),
}
OPTIONS: dict[str, QuantizationOptions] = {
    "dynamic": NO_OPTIONS,
    "calibrated": QuantizationOptions(ActivationOptions(ranges="calibrated")),
    "symmetric": QuantizationOptions(ActivationOptions(mode="symmetric", ranges="calibrated", rounding="half_away")),
    "power_of_two": QuantizationOptions(
        ActivationOptions(mode="power_of_two", ranges="calibrated"), WeightOptions(granularity="per_tensor")
    ),
    "MIN_FIRST": QuantizationOptions(ActivationOptions(mode="MIN_FIRST")),
    "MIN_COMBINED": QuantizationOptions(ActivationOptions(mode="MIN_COMBINED", ranges="calibrated")),
    "SCALED": QuantizationOptions(ActivationOptions(mode="SCALED", narrow_range=True)),
}


@pytest.fixture(scope="module")
def ranges(prepared: Prepared, batch: Batch) -> dict[int, tuple[float, float]]:
    """Return what an fp32 pass of the batch measures, of every tensor."""
    range_of: dict[int, tuple[float, float]] = {}

    def observe(tensor: int, data: NDArray[np.float32]) -> None:
        range_of[tensor] = (float(data.min()), float(data.max()))

    assert observe_tensors(prepared, [batch], [observe]) == 3
    return range_of


def make_plan(network: NetworkSpec, precisions: str, options: str, ranges: dict[int, tuple[float, float]]) -> Plan:
    default, layers = PLANS[precisions]
    return build_plan(
        network, assign(network, default, layers), without_statistics(resolve_options(network, OPTIONS[options], ranges=ranges))
    )


def equal(a: list[Batch], b: list[Batch]) -> bool:
    return len(a) == len(b) and all(x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True))


CASES = [
    *((precisions, "dynamic") for precisions in PLANS),
    *(
        (precisions, options)
        for precisions in ("int8", "mixed", "int8 between", "int16", "int8 beside int16")
        for options in list(OPTIONS)[1:]
    ),
]


@pytest.mark.parametrize(("precisions", "options"), CASES)
def test_all_ways_of_running_give_the_same_bits(
    prepared: Prepared, batch: Batch, ranges: dict[int, tuple[float, float]], precisions: str, options: str
) -> None:
    plan = make_plan(prepared.network, precisions, options, ranges)
    session = Session(prepared, plan)
    expected = session.observe(batch, lambda *_: None)
    assert equal(session.forward(batch), expected)
    assert equal(Session(prepared, plan, fuse=False).forward(batch), expected)
    assert equal(Session(prepared, plan, threads=3).forward(batch), expected)
    for image in range(3):
        assert equal(session.forward(batch[image : image + 1]), [head[image : image + 1] for head in expected])


@pytest.mark.parametrize(("precisions", "options"), CASES)
def test_the_oracle_agrees(
    weights: Weights, prepared: Prepared, batch: Batch, ranges: dict[int, tuple[float, float]], precisions: str, options: str
) -> None:
    plan = make_plan(prepared.network, precisions, options, ranges)
    oracle = Prepared(prepared.network, weights, ReferenceKernels())
    assert equal(Session(oracle, plan).forward(batch[:1]), Session(prepared, plan).forward(batch[:1]))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.text(list(BY_CODE), min_size=6, max_size=6),
    st.dictionaries(st.sampled_from([3, 5, 6, 9, 11, 12]), st.sampled_from([PRECISIONS[n].code for n in BASE_NAMES])),
    st.sampled_from(sorted(OPTIONS)),
)
def test_any_assignment_runs_alike_fused_and_step_by_step(
    prepared: Prepared,
    batch: Batch,
    ranges: dict[int, tuple[float, float]],
    codes: str,
    keyed_layers: dict[int, str],
    options: str,
) -> None:
    network = prepared.network
    key = codes + ("+" + ",".join(f"{index}:{keyed_layers[index]}" for index in sorted(keyed_layers)) if keyed_layers else "")
    precisions = assign_key(network, key)
    assert precisions.key == key
    quantization = without_statistics(resolve_options(network, OPTIONS[options], ranges=ranges))
    session = Session(prepared, build_plan(network, precisions, quantization))
    assert equal(session.forward(batch), session.observe(batch, lambda *_: None))


def test_fused_calibrated_plans_need_less_memory(prepared: Prepared, ranges: dict[int, tuple[float, float]]) -> None:
    plan = make_plan(prepared.network, "int8", "calibrated", ranges)
    fused, plain = Session(prepared, plan), Session(prepared, plan, fuse=False)
    assert len(fused.run_plan.steps) < len(plain.run_plan.steps)
    assert fused.arena.peak_bytes <= plain.arena.peak_bytes


def test_single_layers_give_what_the_session_gives(prepared: Prepared, batch: Batch) -> None:
    network = prepared.network
    precisions = assign(network, "int8", {0: "fp16", "heads": "fp16"})
    image = host_tensor(batch)
    results: list[Tensor] = []
    for layer in network.layers:
        inputs = [image if index < 0 else results[index] for index in layer.inputs]
        results.append(run_layer(layer.index, precisions[layer.index], inputs, prepared))
    expected = Session(prepared, build_plan(network, precisions)).forward(batch)
    assert equal([results[yolo.index].host() for yolo in network.yolos], expected)
    # Conversions stay with the tensor that they are of.
    assert [op.name for op in results[0].converted] == ["Quantize", "Cast"]  # type: ignore[attr-defined]


def test_views_are_overwritten_and_copies_are_not(prepared: Prepared, batch: Batch) -> None:
    session = Session(prepared, build_plan(prepared.network, assign(prepared.network)))
    copied, view = session.forward(batch)[0], session.forward(batch, copy=False)[0]
    assert copied.tobytes() == view.tobytes()
    session.forward(batch[::-1].copy())
    assert copied[::-1].tobytes() == view.tobytes()
    assert np.shares_memory(view, session.forward(batch, copy=False)[0])


def test_batches_that_do_not_fit(prepared: Prepared, batch: Batch) -> None:
    session = Session(prepared, build_plan(prepared.network, assign(prepared.network)))
    for unfitting, message in (
        (batch[0], r"batches of shape \(n, 12, 20, 3\), not \(12, 20, 3\)"),
        (batch[:0], r"not \(0, 12, 20, 3\)"),
        (batch[:, :, ::2], r"not \(3, 12, 10, 3\)"),
        (batch.astype(np.float64), "float32 values from 0 to 1, not float64"),
        (np.broadcast_to(batch[:1], (5000, 12, 20, 3)), "a batch of 5000 images; use at most 4096"),
    ):
        with pytest.raises(DataError, match=message):
            session.forward(unfitting)
    flipped = batch[:, ::-1]
    assert equal(session.forward(flipped), session.forward(np.ascontiguousarray(flipped)))


@pytest.mark.parametrize("threads", [0, -1])
def test_thread_counts_below_one(prepared: Prepared, threads: int) -> None:
    with pytest.raises(EngineError, match=f"threads is {threads}; use 1 or more"):
        Session(prepared, build_plan(prepared.network, assign(prepared.network)), threads)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_tensor_that_is_not_finite_names_its_layer(prepared: Prepared, batch: Batch, precision: str, value: float) -> None:
    broken = batch.copy()
    broken[1, 5, 7, 2] = value
    session = Session(prepared, build_plan(prepared.network, assign(prepared.network, precision)))
    for run in (session.forward, lambda x: session.observe(x, lambda *_: None)):
        with pytest.raises(EngineError, match=r"^t\.cfg: layer 0 \(conv-1\): .*NaN or infin"):
            run(broken)
    assert all(np.isfinite(head).all() for head in session.forward(batch))


def test_a_layer_that_overflows_half_is_named() -> None:
    network = parse_cfg("[net]\nwidth=4\nheight=4\nchannels=1\n" + "[convolutional]\nactivation=linear\n" * 3, "t.cfg")
    unit_weight = np.ones((1, 1, 1, 1), np.float32)
    biases = np.zeros(1, np.float32)
    scaled = {0: unit_weight * 100, 1: unit_weight * 1000, 2: unit_weight}
    weights = Weights({index: ConvolutionWeights(biases, value) for index, value in scaled.items()})
    prepared = Prepared(network, weights, kernels())
    image = np.ones((1, 4, 4, 1), np.float32)
    with pytest.raises(LayerFailure, match=r"^t\.cfg: layer 1 \(conv-2\): .*NaN or infin") as excinfo:
        Session(prepared, build_plan(network, assign(network, "fp16"))).forward(image)
    received = pickle.loads(pickle.dumps(excinfo.value))  # as workers send it
    assert (str(received), received.layer, received.reason) == (
        str(excinfo.value),
        1,
        str(excinfo.value).removeprefix("t.cfg: "),
    )
    assert Session(prepared, build_plan(network, assign(network))).forward(image)[0].max() == 100_000


@pytest.mark.parametrize(
    ("cfg", "precision", "layer_place"),
    [
        ("[maxpool]\nsize=2\nstride=2\n", None, "layer 0 (maxpool-1)"),
        ("[convolutional]\nactivation=linear\n[shortcut]\nfrom=0\n", "fp16", "layer 1 (shortcut-1)"),
    ],
)
def test_results_that_pass_no_convolution_are_checked(cfg: str, precision: str | None, layer_place: str) -> None:
    network = parse_cfg("[net]\nwidth=4\nheight=4\nchannels=1\n" + cfg, "t.cfg")
    unit_kernel = np.ones((1, 1, 1, 1), np.float32)
    layer_weights = ConvolutionWeights(np.zeros(1, np.float32), unit_kernel)
    weights = Weights({layer.index: layer_weights for layer in network.convolutions})
    session = Session(Prepared(network, weights, kernels()), build_plan(network, assign(network, precision)))
    image = np.ones((1, 4, 4, 1), np.float32)
    assert np.isfinite(session.forward(image)[0]).all()
    # 40000 is finite in half, twice that is not.
    image[0, 1, 2, 0] = 40000 if precision == "fp16" else np.inf
    for run in (session.forward, lambda x: session.observe(x, lambda *_: None)):
        with pytest.raises(EngineError) as excinfo:
            run(image)
        assert str(excinfo.value).startswith(f"t.cfg: {layer_place}: ")


def test_weights_of_another_network_are_refused(prepared: Prepared) -> None:
    other_network = parse_cfg("[net]\nwidth=4\nheight=4\n[convolutional]\n")
    with pytest.raises(EngineError, match="prepared for another network"):
        Session(prepared, build_plan(other_network, assign(other_network)))


def test_int8_sums_that_could_overflow_are_refused() -> None:
    network = parse_cfg("[net]\nwidth=60\nheight=60\nchannels=20\n[convolutional]\nsize=60\n", "t.cfg")
    prepared = Prepared(network, random_weights(network), kernels())
    plan = build_plan(network, assign(network, "int8"))
    with pytest.raises(EngineError, match=r"^layer 0 \(conv-1\) cannot run as int8: .*int32"):
        Session(prepared, plan).forward(np.zeros((1, 60, 60, 20), np.float32))


def test_which_ranges_a_plan_needs(network: NetworkSpec) -> None:
    ranges = {tensor: (-1.0, 2.0 + tensor) for tensor in range(-1, len(network.layers))}
    options = resolve_options(network, OPTIONS["calibrated"], ranges=ranges)
    precisions = assign(network, "int8", {"heads": "fp16", "shortcut-1": "int8"})

    def list_range_uses(precisions: PrecisionPlan) -> list[tuple[object, int]]:
        steps = build_plan(network, precisions, options).steps
        return [(step.operation.range, step.layer) for step in steps if isinstance(step.operation, Quantize)]

    # Through the dropout, layer 4, the maxpools get layer 3's int8 tensor: one range serves them all.
    assert list_range_uses(precisions) == [(ranges[-1], 0), (ranges[0], 1), (ranges[1], 2), (ranges[3], 3)]
    assert list_range_uses(assign(network)) == []
