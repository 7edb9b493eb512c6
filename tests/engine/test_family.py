# SPDX-License-Identifier: MIT
"""Every kind of layer in every precision: C on every ISA level and the oracle give the same bits, fused or not."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from mpnet.engine.assign import assign
from mpnet.engine.observe import observe_tensors
from mpnet.engine.options import resolve_options, without_statistics
from mpnet.engine.plan import build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.formats.cfg.read import parse_cfg
from mpnet.kernels.isa import kernels, usable_levels
from mpnet.kernels.reference import ReferenceKernels
from mpnet.model.precision import PRECISIONS
from mpnet.model.quantization import NO_OPTIONS, ActivationOptions, QuantizationOptions
from mpnet.model.weights import random_weights
from tests.engine.family import LAYERS, family_cfg

BATCH: NDArray[np.float32] = np.random.Generator(np.random.PCG64(3)).random((2, 10, 14, 3), np.float32)
CALIBRATED = QuantizationOptions(ActivationOptions(ranges="calibrated"))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in ("activations", "shortcuts") else ()) for name in LAYERS]
)
def test_all_levels_and_the_oracle_give_the_same_bits(name: str) -> None:
    network = parse_cfg(family_cfg(name), "t.cfg")
    weights = random_weights(network, 4)
    prepared = [Prepared(network, weights, kernels(level)) for level in usable_levels()]
    oracle = Prepared(network, weights, ReferenceKernels())
    ranges: dict[int, tuple[float, float]] = {}
    observe_tensors(prepared[0], [BATCH], [lambda i, x: ranges.__setitem__(i, (float(x.min()), float(x.max())))])
    free = [layer.index for layer in network.layers if not layer.has_weights and not layer.always_fp32]
    for precision in PRECISIONS:
        for are_layers_keyed in (False, True):
            # Layers without weights in a precision of their own as well: conversions before and after them.
            layers = {index: PRECISIONS[precision].base for index in free} if are_layers_keyed else {}
            options = without_statistics(
                resolve_options(network, CALIBRATED if are_layers_keyed else NO_OPTIONS, ranges=ranges)
            )
            plan = build_plan(network, assign(network, precision, layers), options)
            expected = Session(oracle, plan).forward(BATCH)
            for level in prepared:
                for fuse in (True, False):
                    heads = Session(level, plan, 2, fuse=fuse).forward(BATCH)
                    assert [x.tobytes() for x in heads] == [x.tobytes() for x in expected], (
                        precision,
                        are_layers_keyed,
                        level.kernels,
                    )


@pytest.mark.parametrize("name", list(LAYERS))
def test_a_batch_gives_what_its_images_give(name: str) -> None:
    network = parse_cfg(family_cfg(name), "t.cfg")
    prepared = Prepared(network, random_weights(network, 4), kernels())
    session = Session(prepared, build_plan(network, assign(network, "int8")))
    batch_heads = session.forward(BATCH)
    for image in range(len(BATCH)):
        alone = session.forward(BATCH[image : image + 1])
        assert [x.tobytes() for x in alone] == [x[image : image + 1].tobytes() for x in batch_heads]
