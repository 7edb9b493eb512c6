# SPDX-License-Identifier: MIT
"""Every layer of real networks, fed with the reference programs' own input, against the tensors that they computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mpnet.detection.decode import decode_head, yolo_heads
from mpnet.detection.nms import NmsOptions, suppress
from mpnet.detection.preprocess import plan_geometry
from mpnet.engine.assign import assign
from mpnet.engine.plan import build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.formats.cfg.read import read_cfg
from mpnet.formats.weights import read_weights
from mpnet.kernels.isa import kernels, usable_levels
from mpnet.model.network import NetworkSpec, YoloSpec

RELATIVE = 1e-4
CASES = {"yolov3-tiny-aix2022": ("aix2022", "darknet", 0.005), "yolo-fastest-1.1": ("yolo-fastest", "alexeyab", 0.001)}


@pytest.fixture(scope="module", params=list(CASES))
def case(request: pytest.FixtureRequest, shared_data: Path) -> tuple[str, NetworkSpec, Any, Any]:
    """Return (name, network, weights, golden arrays)."""
    name = request.param
    folder = shared_data / CASES[name][0]
    network = read_cfg(folder / f"{name}.cfg")
    golden = np.load(shared_data / "golden" / f"golden_{name}.npz")
    return name, network, read_weights(folder / f"{name}.weights", network), golden


def layer_results(case: tuple[str, NetworkSpec, Any, Any], level: str) -> dict[int, NDArray[np.float32]]:
    """Return each layer's fp32 result in Darknet's order, (c, h, w)."""
    name, network, weights, golden = case
    plan = build_plan(network, assign(network, "fp32"))
    session = Session(Prepared(network, weights, kernels(level), batch_norm=CASES[name][1]), plan, 2)
    slots = {0: golden["input"].transpose(1, 2, 0)[None]}
    session.observe(
        np.ascontiguousarray(slots[0]),
        lambda number, step, inputs, result: slots.__setitem__(step.output, result.host().copy()),
    )
    results = {layer.index: slots[plan.layer_slots[layer.index]][0].transpose(2, 0, 1) for layer in network.layers}
    return {index: activated(network, index, value) for index, value in results.items()}


def activated(network: NetworkSpec, index: int, value: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a yolo layer's result as Darknet keeps it: logistic of all but width and height."""
    layer = network.layers[index]
    if not isinstance(layer, YoloSpec):
        return value
    by_anchor = value.reshape(len(layer.mask), 5 + layer.classes, *value.shape[1:])
    logistic = 1 / (1 + np.exp(-by_anchor.astype(np.float64)))
    keep = np.zeros_like(by_anchor, dtype=bool)
    keep[:, 2:4] = True
    return np.where(keep, by_anchor, logistic).reshape(value.shape).astype(np.float32)


@pytest.mark.parametrize("level", usable_levels())
def test_every_layer(case: tuple[str, NetworkSpec, Any, Any], level: str) -> None:
    _, network, _, golden = case
    results = layer_results(case, level)
    deviating = []
    for layer in network.layers:
        name = f"L{layer.index:03d}"
        output = results[layer.index]
        assert list(output.shape) == golden["layer_shapes"][layer.index].tolist()
        pairs = [(output.ravel()[golden[f"{name}_sample_idx"]], golden[f"{name}_samples"])]
        if name in golden:
            pairs.append((output, golden[name]))
        worst = max(float((np.abs(a - b) / np.maximum(1, np.abs(b))).max()) for a, b in pairs)
        if worst > RELATIVE:
            deviating.append(f"layer {layer.index} ({layer.name}): {worst:.2e}")
    assert deviating == []


def test_detections(case: tuple[str, NetworkSpec, Any, Any]) -> None:
    """Class, score and corners of every detection in the image, as the reference program prints them."""
    name, network, weights, golden = case
    plan = build_plan(network, assign(network, "fp32"))
    session = Session(Prepared(network, weights, kernels(), batch_norm=CASES[name][1]), plan, 2)
    width, height = (int(v) for v in golden["image_wh"])
    geometry = plan_geometry(width, height, network.width, network.height, "stretch")
    x = np.ascontiguousarray(golden["input"].transpose(1, 2, 0)[None])
    head_candidates = [
        decode_head(tensor, head, [geometry], CASES[name][2])
        for head, tensor in zip(yolo_heads(network), session.forward(x), strict=True)
    ]
    options = NmsOptions(network.yolos[-1].nms_kind, 0.45, network.yolos[-1].beta_nms)
    detections = suppress(head_candidates, np.array([[width, height]], dtype=np.float32), options)
    expected = golden["detections"]
    assert len(detections) == len(expected)
    rows = np.column_stack(
        [detections.category, detections.score, detections.box[:, :2], detections.box[:, :2] + detections.box[:, 2:]]
    )
    order = np.lexsort((rows[:, 2], -rows[:, 1], rows[:, 0]))
    expected = expected[np.lexsort((expected[:, 2], -expected[:, 1], expected[:, 0]))]
    np.testing.assert_array_equal(rows[order, 0], expected[:, 0])
    np.testing.assert_allclose(rows[order, 1], expected[:, 1], rtol=0, atol=1e-4)
    np.testing.assert_allclose(rows[order, 2:], expected[:, 2:], rtol=0, atol=0.05)
