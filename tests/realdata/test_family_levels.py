# SPDX-License-Identifier: MIT
"""All networks of the Darknet family in fp16 and int8, on small images: every ISA level gives the bits of the oracle."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from mpnet.engine.assign import assign
from mpnet.engine.options import resolve_options
from mpnet.engine.plan import build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.errors import EngineError
from mpnet.formats.cfg.read import parse_cfg
from mpnet.kernels.isa import kernels, usable_levels
from mpnet.kernels.reference import ReferenceKernels
from mpnet.model.weights import random_weights
from tests.realdata.darknet_family import family_names

SIDES = (64, 96, 128, 256)


def shrunk(path: Path) -> str:
    """Return the cfg with the smallest square image that its layers can take."""
    text = path.read_bytes().decode("utf-8", "replace")
    for side in SIDES:
        small_text = re.sub(r"(?m)^(width|height)\s*=.*$", rf"\1={side}", text)
        try:
            parse_cfg(small_text.encode(), str(path))
        except Exception:
            continue
        return small_text
    return text


def levels_of(path: Path, oracle: bool = True) -> dict[str, str]:
    """Return by precision: '' where all levels equal the oracle (else the best level), or those that do not."""
    network = parse_cfg(shrunk(path).encode(), str(path))
    weights = random_weights(network, 4)
    image = np.random.Generator(np.random.PCG64(3)).random((1, *network.in_shape), np.float32)
    tables = [*([ReferenceKernels()] if oracle else []), *map(kernels, usable_levels())]
    prepared = [Prepared(network, weights, table) for table in tables]
    unequal_levels = {}
    for precision in ("fp16", "int8"):
        plan = build_plan(network, assign(network, precision), resolve_options(network))
        outputs = []
        for level_weights in prepared:
            try:
                outputs.append([tensor.tobytes() for tensor in Session(level_weights, plan).forward(image)])
            except EngineError as error:
                outputs.append([str(error).encode()])
        unequal = [str(table) for table, output in zip(tables, outputs, strict=True) if output != outputs[0]]
        unequal_levels[precision] = ", ".join(unequal)
    return unequal_levels


@pytest.mark.slow
def test_every_level_has_the_bits_of_the_oracle(shared_data: Path) -> None:
    """The cfgs that were written to cover every key; for the others `levels_of` takes minutes each, without the oracle
    seconds."""
    folder = shared_data / "darknet-family"
    paths = sorted({folder / f"{row['name']}.cfg" for row in family_names(folder) if row["name"].startswith("synth")})
    assert len(paths) > 10
    assert {path.name: levels_of(path) for path in paths} == {path.name: {"fp16": "", "int8": ""} for path in paths}
