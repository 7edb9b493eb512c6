# SPDX-License-Identifier: MIT
"""Plans that together hold every step that any configuration can have, by what a step's time depends on."""

from __future__ import annotations

import random
from typing import Iterator, Sequence

from mpnet.engine.assign import assign_key
from mpnet.engine.fuse import fuse, fuse_plan
from mpnet.engine.layout import lay_out
from mpnet.engine.lowering import Lowerings
from mpnet.engine.operations import Convolve
from mpnet.engine.options import EngineOptions
from mpnet.engine.plan import Plan, Step, build_plan
from mpnet.model.network import NetworkSpec
from mpnet.model.precision import BY_CODE, PRECISIONS, Precision

_TRIED_KEYS = 4000  # random keys looked at to find every step; a network of a hundred layers needs some hundreds


def step_signature(plan: Plan, step: Step) -> str:
    """Return what a step's time depends on: a layer at a precision, or one tensor that is moved or converted."""
    return _signature(step, plan.slots[step.inputs[0]].layer)


def _signature(step: Step, source: int) -> str:
    """Return the signature of a step. source: the layer whose values it reads first."""
    operation, name = step.operation, step.operation.name
    if isinstance(operation, Convolve):
        mapped = "" if operation.map is None else f" {operation.map.activation}"
        return f"{step.layer} {name} {operation.precision} {step.output_precision}{mapped}"
    if operation.is_conversion:
        return f"{source} {name} {step.input_precision} {step.output_precision}"
    # Two slices of one layer differ by what they read.
    return f"{step.layer} {name} {source} {step.input_precision}"


def covering_plans(network: NetworkSpec, options: EngineOptions, precisions: Sequence[str], seed: int = 0) -> list[Plan]:
    """Return fused plans that together have every step that was seen in any of thousands of random configurations.

    The uniform ones come first; a plan is only taken when it has a step that no earlier one has.
    """
    keys = list(_keys(len(network.convolutions), precisions, seed))
    uniform = assign_key(network, keys[0])
    # Layers without weights follow their inputs, but for those that the cfg gives keys. Assigning every key takes longer.
    lowerings = Lowerings(network, options, {index: uniform[index] for index in uniform.keyed})
    requested: list[Precision | None] = [None] * len(network.layers)
    covered: set[str] = set()
    plans = []
    for key in keys:
        for layer, code in zip(network.convolutions, key, strict=True):
            requested[layer.index] = BY_CODE[code]
        layout = lay_out(lowerings, requested)
        fuse(layout, network)
        uncovered = {_signature(step, layout.layers[step.inputs[0]]) for step in layout.steps} - covered
        if uncovered:
            covered |= uncovered
            plans.append(fuse_plan(build_plan(network, assign_key(network, key), options)))
    return plans


def random_plans(
    network: NetworkSpec, options: EngineOptions, precisions: Sequence[str], count: int, seed: int = 0
) -> list[Plan]:
    """Return fused plans of random configurations: what the sums of times are checked with."""
    rng = random.Random(seed + 1)
    codes = [PRECISIONS[name].code for name in precisions]
    keys = ["".join(rng.choice(codes) for _ in network.convolutions) for _ in range(count)]
    return [fuse_plan(build_plan(network, assign_key(network, key), options)) for key in keys]


def _keys(layers: int, precisions: Sequence[str], seed: int) -> Iterator[str]:
    codes = [PRECISIONS[name].code for name in precisions]
    yield from (code * layers for code in codes)
    rng = random.Random(seed)
    # All of a small space, else a sample; the same for every machine.
    count = min(_TRIED_KEYS, len(codes) ** layers)
    for _ in range(count):
        yield "".join(rng.choice(codes) for _ in range(layers))
