# SPDX-License-Identifier: MIT
"""What only mpnet runs is refused by the layer's name, by targets that write common operations only."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mpnet.engine.assign import assign
from mpnet.engine.options import LayerQuantization, resolve_options
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.export import Configuration, export, targets
from mpnet.formats.cfg.read import parse_cfg
from mpnet.kernels.isa import kernels
from mpnet.model.precision import FP32
from mpnet.model.weights import random_weights
from tests.engine.family import LAYERS, family_cfg

# ONNX has a form for most of them, LiteRT for some.
WRITERS = ("tflite", "ncnn")
ORDINARY = ("share_index", "batchnorm", "region", "gaussian")
LITERT = ("classifier", "squeeze", "contrastive", "shuffle")
NCNN = ("shuffle",)


@pytest.mark.parametrize("name", list(LAYERS))
def test_layers_without_a_form_are_refused(name: str) -> None:
    all_targets = targets()
    network = parse_cfg(family_cfg(name), "t.cfg")
    for target in (all_targets[writer] for writer in WRITERS):
        for flavour in target.flavours or ("",):
            reasons = [target.support(layer, FP32, LayerQuantization(), flavour) for layer in network.layers]
            # Shared weights and batch normalisation alone are ordinary convolutions.
            additional = {"litert": LITERT, "integer": LITERT, "": NCNN}.get(flavour, ())
            assert any(reasons) or name in (*ORDINARY, *additional), (target.what, flavour)


@pytest.mark.parametrize("name", LITERT)
def test_litert_gives_what_mpnet_gives(name: str, tmp_path: Path) -> None:
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    network = parse_cfg(family_cfg(name), "t.cfg")
    prepared = Prepared(network, random_weights(network, 5), kernels())
    configuration = Configuration.from_prepared(prepared, assign(network, "fp32"), resolve_options(network))
    path = tmp_path / "net.tflite"
    path.write_bytes(export("tflite", configuration, "litert").content)
    x = np.random.default_rng(6).random((1, *network.in_shape), np.float32)
    engine = interpreter.Interpreter(model_path=str(path), num_threads=1)
    engine.allocate_tensors()
    engine.set_tensor(engine.get_input_details()[0]["index"], x)
    engine.invoke()
    for head, output in zip(Session(prepared, configuration.plan).forward(x), engine.get_output_details(), strict=True):
        np.testing.assert_allclose(head, engine.get_tensor(output["index"]).reshape(head.shape), rtol=1e-5, atol=1e-6)
