# SPDX-License-Identifier: MIT
"""Several backends in one forward pass: the plan's steps, with the runs of layers that others compute in their place."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet import __version__
from mpnet.backends import Executed, Model
from mpnet.backends.cut import cut
from mpnet.backends.deployment import Deployment, deploy
from mpnet.backends.partition import SCALAR, Partition, Segment, partition
from mpnet.engine.operations import Operation
from mpnet.engine.plan import Plan, Step, layout_of, plan_of
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.export import Configuration, Exported
from mpnet.kernels.call import Call
from mpnet.kernels.isa import kernels
from mpnet.model.network import NETWORK_INPUT, NetworkSpec, Shape
from mpnet.model.precision import FP32, Precision

if TYPE_CHECKING:
    from mpnet.engine.operations import Context
    from mpnet.engine.tensor import Tensor


@dataclass(eq=False)
class _Run:
    """A part in its backend. results: what the last pass gave."""

    model: Model
    results: list[NDArray[np.float32]] = field(default_factory=list)

    def forward(self, x: NDArray[Any]) -> None:
        """Compute all results of the part from its input x (n, h, w, c)."""
        self.results = self.model.forward(np.ascontiguousarray(x, dtype=np.float32))

    def copy_result(self, position: int, out: NDArray[Any]) -> None:
        """A result of the last pass."""
        np.copyto(out, self.results[position], casting="same_kind")


@dataclass(frozen=True)
class Elsewhere(Operation):
    """One result of a run of layers that another backend computes. position: among its results. first: whether it runs it."""

    run: _Run = field(compare=False, repr=False)
    backend: str = ""
    position: int = 0
    first: bool = False
    shape: Shape = (0, 0, 0)
    stored: Precision = FP32

    @property
    def detail(self) -> str:
        return self.backend

    def output_precision(self, takes: Precision) -> Precision | None:
        return None if takes.carries_scale else self.stored

    def result_shape(self, network: NetworkSpec, inputs: Sequence[Shape]) -> Shape:
        return self.shape

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        calls = [Call(self.run.forward, (inputs[0].host(),), 0)] if self.first else []
        return [*calls, Call(self.run.copy_result, (self.position, out.host()))]


class MixedModel:
    """A configuration whose layers several backends run; see mpnet.backends.Model."""

    def __init__(
        self,
        configuration: Configuration,
        layer_partition: Partition,
        parts: Sequence[tuple[Segment, Deployment]],
        threads: int,
    ) -> None:
        self.version = version_of(parts)
        runs = [(part, _Run(deployment.open(threads)), deployment.engine) for part, deployment in parts]
        plan = configuration.plan
        for part, run, name in runs:
            plan = _replaced(plan, part, run, name)
        self._session = Session(_with_fallback(configuration.prepared, layer_partition), plan, threads)

    def forward(self, batch: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        """Implements `Model.forward`."""
        return self._session.forward(batch)

    def executed(self) -> Executed | None:
        """Nothing is known here; `deploy_mixed` knows it from the parts."""
        return None

    def layer_ms(self) -> Mapping[int, float] | None:
        """Nothing is known: the layers of a part are one step."""
        return None


def deploy_mixed(names: Sequence[str], configuration: Configuration) -> Deployment:
    """A configuration in several backends, by preference.

    Raises: ConfigError for an unknown backend, and for packages that are missing or too old; EngineError when a backend
    refuses its part.
    """
    layer_partition = partition(configuration.network, configuration.precisions, configuration.options, names)
    parts = [(part, deploy(part.backend, cut(configuration, part))) for part in layer_partition.segments]
    executed: dict[int, tuple[str, str]] = {}
    layers: dict[int, tuple[str, str, str]] = {}
    for part, deployment in parts:
        numbered = dict(enumerate(part.layers))
        layers.update({numbered[n]: placement for n, placement in deployment.exported.layers.items() if n in numbered})
        executed.update(
            {
                numbered[n]: (runs, f"in {part.backend}: {where}" if where else f"in {part.backend}")
                for n, (runs, where) in (deployment.executed or {}).items()
                if n in numbered
            }
        )
    for index in configuration.precisions.weighted:
        if layer_partition.backend_of(index) == layer_partition.fallback:
            executed[index] = (configuration.precisions[index].name, f"in {layer_partition.fallback}")
    notes = [note for _, deployment in parts for note in deployment.notes]
    digest = hashlib.sha256(json.dumps([(part.backend, part.layers, d.digest) for part, d in parts]).encode()).hexdigest()
    return Deployment(
        "+".join(dict.fromkeys([*(part.backend for part in layer_partition.segments), layer_partition.fallback])),
        version_of(parts),
        digest,
        Exported({}, {}, layers),
        partial(MixedModel, configuration, layer_partition, parts),
        executed,
        tuple(dict.fromkeys([*notes, *layer_partition.reasons.values()])),
    )


def version_of(parts: Sequence[tuple[Segment, Deployment]]) -> str:
    """The versions of all that run, mpnet's last."""
    return "+".join(dict.fromkeys([*(deployment.version for _, deployment in parts), __version__]))


def _with_fallback(prepared: Prepared, layer_partition: Partition) -> Prepared:
    if layer_partition.fallback != SCALAR or prepared.kernels.name == "scalar":
        return prepared
    return prepared.on(kernels("scalar"))


def _replaced(plan: Plan, part: Segment, run: _Run, name: str) -> Plan:
    """The plan with the part's steps taken out, and one for each of its results in their place."""
    layout = layout_of(plan)
    inside = set(part.layers)
    given = 0 if part.input_tensor == NETWORK_INPUT else layout.results[part.input_tensor]
    steps = [step for step in layout.steps if step.layer not in inside or step.operation.is_head]
    gone = [step for step in layout.steps if step.layer in inside and not step.operation.is_head]
    first = next(number for number, step in enumerate(layout.steps) if step.layer in inside)
    at = sum(step in steps for step in layout.steps[:first])
    mine: list[Step] = []
    there = {given}  # layers that pass a tensor on share its slot
    for position, slot in enumerate(layout.results[index] for index in part.output_layers):
        if slot not in there:
            operation = Elsewhere(run, name, position, not mine, layout.shapes[slot], layout.precisions[slot])
            mine.append(Step(operation, part.layers[-1], (given,), slot, layout.precisions[given], layout.precisions[slot]))
            there.add(slot)
    # A conversion that a later layer shares with one of the part's stays, behind what it converts.
    wanted = {slot for step in steps for slot in step.inputs} | set(layout.outputs)
    shared = [step for step in gone if step.operation.is_conversion and step.output in wanted and step.output not in there]
    layout.steps = [*steps[:at], *mine, *shared, *steps[at:]]
    return plan_of(plan.network, plan.precision, plan.options, layout)
