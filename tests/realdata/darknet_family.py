# SPDX-License-Identifier: MIT
"""The reference outputs of the two Darknet programs, and what mpnet makes of the same cfg, weights and image."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.assign import assign
from mpnet.engine.plan import Plan, build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.formats.cfg.read import read_cfg
from mpnet.formats.weights import read_weights
from mpnet.kernels.isa import kernels
from mpnet.model.layers import CostSpec, RegionSpec, SoftmaxSpec, YoloSpec
from mpnet.model.network import NetworkSpec

HEAD, LAYER = 1e-4, 5e-4
DIALECTS = {"AlexeyAB": "alexeyab", "pjreddie": "darknet"}


def family_names(folder: Path) -> list[dict[str, Any]]:
    """Return what index.json says of every reference file."""
    rows: list[dict[str, Any]] = json.loads((folder / "index.json").read_text())["golden"]
    return rows


def tool(path: Path) -> ModuleType:
    """Return the program that writes the weights and the image of a reference file."""
    spec = importlib.util.spec_from_file_location("golden_darknet", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass
class Case:
    """One reference file with everything that is needed to run its network."""

    network: NetworkSpec
    prepared: Prepared
    image: NDArray[np.float32]
    golden: Any

    @property
    def plan(self) -> Plan:
        """Plan every layer in fp32."""
        return build_plan(self.network, assign(self.network, "fp32"))


def open_case(folder: Path, row: dict[str, Any], maker: ModuleType, scratch: Path, level: str | None = None) -> Case:
    """Read cfg, make weights and image."""
    cfg = folder / f"{row['name']}.cfg"
    network = read_cfg(cfg, DIALECTS[row["program"]])
    path = scratch / f"{row['name']}.weights"
    maker.write_weights(str(cfg), str(path))
    weights = read_weights(path, network)
    path.unlink()
    chw = maker.input_array(network.width, network.height, network.channels)
    image = np.ascontiguousarray(chw.transpose(1, 2, 0)[None])
    return Case(network, Prepared(network, weights, kernels(level)), image, np.load(folder / f"{row['name']}.npz"))


def deviations(case: Case) -> tuple[float, dict[int, float]]:
    """Return (largest deviation of a head from its maximum, by layer the largest of its samples and its sum).

    Layers: in units of the mean absolute value; [softmax] and [region] of the peak.
    """
    network, golden = case.network, case.golden
    plan = case.plan
    results: dict[int, NDArray[np.float32]] = {}
    slots = {0: case.image}

    def keep(number: int, step: Any, inputs: Any, result: Any) -> None:
        slots[step.output] = result.host()

    Session(case.prepared, plan, 1).observe(case.image, keep)
    heads = 0.0
    for layer in network.layers:
        output = slots[plan.layer_slots[layer.index]][0].transpose(2, 0, 1)
        # A detection head hands on what enters it.
        name = f"in{layer.index}" if isinstance(layer, YoloSpec) else f"out{layer.index}"
        if name in golden:
            expected = golden[name].ravel()
            heads = max(heads, float(np.abs(output.ravel() - expected).max() / np.abs(expected).max()))
        results[layer.index] = output
    return heads, {i: _deviation(case, i, value) for i, value in results.items()}


def _deviation(case: Case, index: int, value: NDArray[np.float32]) -> float:
    layer, golden = case.network.layers[index], case.golden
    if isinstance(layer, YoloSpec):
        return 0.0  # its input is compared as a head
    flat = value.ravel()
    pos, val = golden["pos"][index], golden["val"][index]
    if isinstance(layer, CostSpec):
        return float(np.abs(flat).max())
    scale = float(golden["mean_abs"][index])
    if isinstance(layer, SoftmaxSpec | RegionSpec):
        scale = float(np.abs(flat).max())
    if len(pos) == 0:
        return 0.0
    worst = float(np.abs(flat[pos] - val).max()) / scale
    return max(worst, abs(float(flat.astype(np.float64).sum() - golden["sum"][index])) / flat.size / scale)
