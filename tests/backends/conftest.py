# SPDX-License-Identifier: MIT
"""A backend that really computes: mpnet's scalar kernels run what was exported."""

from __future__ import annotations

from typing import Any, Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from mpnet import backends, export
from mpnet.backends import Backend, Executed
from mpnet.config.target_file import TargetFile
from mpnet.engine.options import LayerQuantization
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.export import Configuration, Exported, Target
from mpnet.kernels.isa import kernels
from mpnet.model.layers import LayerSpec
from mpnet.model.precision import USUAL_NAMES, Precision
from mpnet.model.quantization import ActivationOptions, QuantizationOptions
from mpnet.model.weights import Weights
from tests.cli.conftest import experiment, mpnet  # noqa: F401

ROUGH = "roughly"
"""A flavour that adds a little to every head."""
INFINITE = "infinitely"
"""A flavour whose last value of every head is infinite."""


_CONFIGURATION_OF: dict[bytes, Configuration] = {}
"""What was exported, by its content: the file stands for it."""


def _write(configuration: Configuration, flavour: str, options: Mapping[str, Any]) -> Exported:
    plan = configuration.precisions
    layers = [(layer.line, layer.inputs, layer.out_shape) for layer in configuration.network.layers]
    content = f"{flavour} {configuration.network.digest} {plan.key} {layers} {configuration.options!r}".encode()
    _CONFIGURATION_OF[content] = configuration
    return Exported({".pair": content}, {}, {index: (plan[index].name, plan[index].name, "") for index in plan.weighted})


def support(layer: LayerSpec, precision: Precision, quantization: LayerQuantization, flavour: str) -> str:
    return "it has no halves" if precision.accumulates == "float16" else ""


class ScalarModel:
    """The exported network on the scalar kernels."""

    version = "1.0"

    def __init__(self, exported: Exported) -> None:
        configuration = _CONFIGURATION_OF[exported.content]
        ours = configuration.prepared
        prepared = Prepared(configuration.network, Weights({}), kernels("scalar"), folded=ours.folded)
        self._plan = configuration.plan
        self._session = Session(prepared, self._plan)
        self._extra = np.float32(0.5 if exported.content.startswith(ROUGH.encode()) else 0)
        self._infinite = exported.content.startswith(INFINITE.encode())

    def forward(self, batch: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        # Step by step: a session reads its image in place where an operation's first input is, and cuts have it elsewhere.
        heads = [head + self._extra for head in self._session.observe(batch, lambda *_: None)]
        for head in heads if self._infinite else ():
            head.flat[-1] = np.inf
        return heads

    def executed(self) -> Executed:
        return {index: (self._plan.precision[index].name, "read from its plan") for index in self._plan.precision.weighted}

    def layer_ms(self) -> Mapping[int, float] | None:
        return None


@pytest.fixture
def scalar_backends(monkeypatch: pytest.MonkeyPatch) -> dict[str, Backend]:
    """Return the engines `scalar`, `rough` and `overflowing`, beside those that mpnet has."""
    all_targets = {
        **export.targets(),
        "pair": Target("mpnet itself", ".pair", _write, support=support, flavours=dict.fromkeys(("exact", ROUGH, INFINITE))),
    }
    mode = QuantizationOptions(ActivationOptions(ranges="dynamic", mode="affine"))
    scalar_rows = {
        **backends.backends(),
        **{
            name: Backend(
                TargetFile("mpnet's scalar kernels", USUAL_NAMES, f"pair/{flavour}", mode, name=name),
                lambda exported, threads: ScalarModel(exported),
            )
            for name, flavour in (("scalar", "exact"), ("rough", ROUGH), ("overflowing", INFINITE))
        },
    }
    monkeypatch.setattr(export, "targets", lambda: all_targets)
    monkeypatch.setattr(backends, "backends", lambda: scalar_rows)
    return scalar_rows
