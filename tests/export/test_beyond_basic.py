"""What only mpnet runs is refused by the layer's name, by targets that write common operations only."""

from __future__ import annotations

import pytest

from mpnet.engine.options import LayerQuantization
from mpnet.export import targets
from mpnet.formats.cfg import parse_cfg
from mpnet.spec.precision import FP32
from tests.engine.family import LAYERS, family_cfg

# ONNX has a form for most of them.
WRITERS = ("tflite", "ncnn")


@pytest.mark.parametrize("name", list(LAYERS))
def test_layers_without_a_form_are_refused(name: str) -> None:
    known = targets()
    network = parse_cfg(family_cfg(name), "t.cfg")
    for target in (known[writer] for writer in WRITERS):
        for flavour in target.flavours or ("",):
            reasons = [target.support(layer, FP32, LayerQuantization(), flavour) for layer in network.layers]
            # Shared weights and batch normalisation alone are ordinary convolutions.
            assert any(reasons) or name in ("share_index", "batchnorm", "region", "gaussian"), (target.what, flavour)
