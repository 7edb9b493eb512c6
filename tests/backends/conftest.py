"""A backend that really computes: the exported file is a cfg with its weights, and mpnet's scalar kernels run it."""

from __future__ import annotations

from typing import Any, Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from mpnet import backends, export
from mpnet.backends import Backend, Executed
from mpnet.engine.assign import assign
from mpnet.engine.options import LayerQuantization, resolve_options
from mpnet.engine.plan import build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.run import Session
from mpnet.export import Configuration, Exported, Target
from mpnet.formats.cfg import parse_cfg
from mpnet.formats.cfg_edit import cfg_for_key
from mpnet.kernels.isa import kernels
from mpnet.quantization.equalise import FoldedConvolution
from mpnet.spec.layers import LayerSpec
from mpnet.spec.precision import Precision
from mpnet.spec.weights import Weights, random_weights
from tests.cli.conftest import experiment, mpnet  # noqa: F401

ROUGH = "roughly"
"""A flavour that adds a little to every head."""


def _write(configuration: Configuration, flavour: str, options: Mapping[str, Any]) -> Exported:
    cfg = cfg_for_key(configuration.content, configuration.precisions.key)
    flat = np.concatenate([np.concatenate([folded.weights.ravel(), folded.bias])
                           for _, folded in sorted(configuration.prepared.folded.items())])
    plan = configuration.precisions
    layers = {index: (plan[index].name, plan[index].name, "") for index in plan.weighted}
    return Exported({".cfg": cfg, ".bin": flat.astype("<f4").tobytes(), ".flavour": flavour.encode()}, {}, layers)


def support(layer: LayerSpec, precision: Precision, quantization: LayerQuantization, flavour: str) -> str:
    return "it knows no dropout" if layer.kind == "dropout" else "it has no halves" if precision.name == "fp16_half" else ""


class ScalarModel:
    """The exported network on the scalar kernels."""

    version = "1.0"

    def __init__(self, exported: Exported) -> None:
        network = parse_cfg(exported.content, "exported.cfg")
        values = np.frombuffer(exported.files[".bin"], "<f4")
        folded, at = {}, 0
        for layer in network.convolutions:
            ends = at + layer.weight_count, at + layer.weight_count + layer.filters
            folded[layer.index] = FoldedConvolution(values[at:ends[0]].reshape(layer.weight_shape), values[ends[0]:ends[1]])
            at = ends[1]
        weights: Weights = random_weights(network)
        plan = build_plan(network, assign(network), resolve_options(network))
        self._session = Session(Prepared(network, weights, kernels("scalar"), folded=folded), plan)
        self._extra = np.float32(0.5 if exported.files[".flavour"] == ROUGH.encode() else 0)
        self._plan = plan

    def forward(self, batch: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        return [head + self._extra for head in self._session.forward(batch)]

    def executed(self) -> Executed:
        return {index: (self._plan.precision[index].name, "read from its plan") for index in self._plan.precision.weighted}

    def layer_ms(self) -> Mapping[int, float] | None:
        return None


@pytest.fixture
def scalar_backends(monkeypatch: pytest.MonkeyPatch) -> dict[str, Backend]:
    """The engines `scalar` and `rough`, beside those that mpnet has."""
    known = {**export.targets(), "pair": Target("a cfg and its weights", ".cfg", _write, support=support,
                                                      flavours={"exact": None, ROUGH: None})}
    mode = {"activations": {"ranges": "dynamic", "mode": "affine"}}
    found = {**backends.backends(), **{
        name: Backend("mpnet's scalar kernels", "pair", flavour, lambda exported, threads: ScalarModel(exported), mode)
        for name, flavour in (("scalar", "exact"), ("rough", ROUGH))}}
    monkeypatch.setattr(export, "targets", lambda: known)
    monkeypatch.setattr(backends, "backends", lambda: found)
    return found
