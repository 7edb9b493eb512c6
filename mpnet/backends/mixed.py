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
        """Copy a result of the last pass to `out`."""
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
        """Return the backend's name."""
        return self.backend

    def output_precision(self, takes: Precision) -> Precision | None:
        """Return the stored precision for reals; codes are not handed over."""
        return None if takes.carries_scale else self.stored

    def result_shape(self, network: NetworkSpec, inputs: Sequence[Shape]) -> Shape:
        """Return the shape (h, w, c) of the result for one image."""
        return self.shape

    def bind(self, context: Context, inputs: Sequence[Tensor], out: Tensor) -> list[Call]:
        """Return the calls that fill `out`; the first result of a segment runs it."""
        calls = [Call(self.run.forward, (inputs[0].host(),), 0)] if self.first else []
        return [*calls, Call(self.run.copy_result, (self.position, out.host()))]


class MixedModel:
    """A configuration whose layers several backends run; see mpnet.backends.Model."""

    def __init__(
        self,
        configuration: Configuration,
        layer_partition: Partition,
        segments: Sequence[tuple[Segment, Deployment]],
        threads: int,
    ) -> None:
        self.version = version_of(segments)
        runs = [(segment, _Run(deployment.open(threads)), deployment.engine) for segment, deployment in segments]
        plan = configuration.plan
        for segment, run, name in runs:
            plan = _replaced(plan, segment, run, name)
        self._session = Session(_with_fallback(configuration.prepared, layer_partition), plan, threads)

    def forward(self, batch: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        """Implement `Model.forward`."""
        return self._session.forward(batch)

    def executed(self) -> Executed | None:
        """Return None: `deploy_mixed` has it from the segments."""
        return None

    def layer_ms(self) -> Mapping[int, float] | None:
        """Return None: the layers of a segment are one step."""
        return None


def deploy_mixed(names: Sequence[str], configuration: Configuration) -> Deployment:
    """Deploy a configuration in several backends, by preference.

    Raises: ConfigError for an unknown backend, and for packages that are missing or too old; EngineError when a backend
    refuses its part.
    """
    layer_partition = partition(configuration.network, configuration.precisions, configuration.options, names)
    segments = [(segment, deploy(segment.backend, cut(configuration, segment))) for segment in layer_partition.segments]
    executed: dict[int, tuple[str, str]] = {}
    layers: dict[int, tuple[str, str, str]] = {}
    for segment, deployment in segments:
        numbered = dict(enumerate(segment.layers))
        layers.update({numbered[n]: placement for n, placement in deployment.exported.layers.items() if n in numbered})
        executed.update(
            {
                numbered[n]: (runs, f"in {segment.backend}: {device}" if device else f"in {segment.backend}")
                for n, (runs, device) in (deployment.executed or {}).items()
                if n in numbered
            }
        )
    for index in configuration.precisions.weighted:
        if layer_partition.backend_of(index) == layer_partition.fallback:
            executed[index] = (configuration.precisions[index].name, f"in {layer_partition.fallback}")
    notes = [note for _, deployment in segments for note in deployment.notes]
    digest = hashlib.sha256(
        json.dumps([(segment.backend, segment.layers, d.digest) for segment, d in segments]).encode()
    ).hexdigest()
    return Deployment(
        "+".join(dict.fromkeys([*(segment.backend for segment in layer_partition.segments), layer_partition.fallback])),
        version_of(segments),
        digest,
        Exported({}, {}, layers),
        partial(MixedModel, configuration, layer_partition, segments),
        executed,
        tuple(dict.fromkeys([*notes, *layer_partition.reasons.values()])),
    )


def version_of(segments: Sequence[tuple[Segment, Deployment]]) -> str:
    """Return the versions of all that run, mpnet's last."""
    return "+".join(dict.fromkeys([*(deployment.version for _, deployment in segments), __version__]))


def _with_fallback(prepared: Prepared, layer_partition: Partition) -> Prepared:
    if layer_partition.fallback != SCALAR or prepared.kernels.name == "scalar":
        return prepared
    return prepared.on(kernels("scalar"))


def _replaced(plan: Plan, segment: Segment, run: _Run, name: str) -> Plan:
    """Replace a segment's steps in the plan by one for each of its results."""
    layout = layout_of(plan)
    segment_layers = set(segment.layers)
    input_slot = 0 if segment.input_tensor == NETWORK_INPUT else layout.results[segment.input_tensor]
    steps = [step for step in layout.steps if step.layer not in segment_layers or step.operation.is_head]
    removed = [step for step in layout.steps if step.layer in segment_layers and not step.operation.is_head]
    first = next(number for number, step in enumerate(layout.steps) if step.layer in segment_layers)
    insertion = sum(step in steps for step in layout.steps[:first])
    segment_steps: list[Step] = []
    written_slots = {input_slot}  # layers that pass a tensor on share its slot
    for position, slot in enumerate(layout.results[index] for index in segment.output_layers):
        if slot not in written_slots:
            operation = Elsewhere(run, name, position, not segment_steps, layout.shapes[slot], layout.precisions[slot])
            segment_steps.append(
                Step(operation, segment.layers[-1], (input_slot,), slot, layout.precisions[input_slot], layout.precisions[slot])
            )
            written_slots.add(slot)
    # A conversion that a later layer shares with one of the part's stays, behind what it converts.
    slots_read = {slot for step in steps for slot in step.inputs} | set(layout.outputs)
    shared = [
        step
        for step in removed
        if step.operation.is_conversion and step.output in slots_read and step.output not in written_slots
    ]
    layout.steps = [*steps[:insertion], *segment_steps, *shared, *steps[insertion:]]
    return plan_of(plan.network, plan.precision, plan.options, layout)
