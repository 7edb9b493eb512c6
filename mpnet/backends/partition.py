# SPDX-License-Identifier: MIT
"""Partitions of a network: backends by preference, maximal runs of layers that one supports, the rest to mpnet's kernels.

A run is a stretch of consecutive layers that read one tensor from before it; that tensor, and all results of the run that
others read, are reals. mpnet's scalar kernels are the last in every list of backends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

from mpnet.backends import Backend, backend
from mpnet.engine.assign import PrecisionPlan
from mpnet.engine.lowering import result_storage
from mpnet.engine.options import EngineOptions
from mpnet.errors import ConfigError
from mpnet.export import Target, target
from mpnet.model.layers import YoloSpec
from mpnet.model.network import NETWORK_INPUT, NetworkSpec

ENGINE, SCALAR = "mpnet", "reference"
"""mpnet's kernels for this CPU, and its scalar ones: the same bits, at other speeds."""


@dataclass(frozen=True)
class Segment:
    """Consecutive layers that one backend runs.

    given: the tensor that they read: a layer's index, or NETWORK_INPUT. gives: layers whose results others read, in order.
    """

    backend: str
    layers: tuple[int, ...]
    input_tensor: int
    output_layers: tuple[int, ...]


@dataclass(frozen=True)
class Partition:
    """The backend of each layer: segments, in order, and a fallback.

    fallback: which of mpnet's kernels run the rest. reasons: one line for each layer that a preferred
    backend does not run, by layer index.
    """

    fallback: str
    segments: tuple[Segment, ...]
    reasons: dict[int, str]

    def backend_of(self, index: int) -> str:
        """Return the name of the backend that runs a layer."""
        return next((segment.backend for segment in self.segments if index in segment.layers), self.fallback)


def check_backends(names: Sequence[str]) -> None:
    """Check names of backends. Raises: ConfigError for a list that holds an unknown name, or one twice."""
    for name in names:
        if name not in (ENGINE, SCALAR):
            backend(name)
    if len(set(names)) != len(names) or not names:
        raise ConfigError(f"backends: {', '.join(names) or 'nothing'}; name each backend once, the preferred one first")


def partition(network: NetworkSpec, precisions: PrecisionPlan, options: EngineOptions, names: Sequence[str]) -> Partition:
    """Assign layers to backends by preference; those behind `mpnet` have nothing left to run.

    Raises: ConfigError for unknown names.
    """
    check_backends(names)
    fallback = next((name for name in names if name in (ENGINE, SCALAR)), SCALAR)
    preferred = [name for name in names[: names.index(fallback) if fallback in names else len(names)]]
    candidates = {name: (candidate := backend(name), target(candidate.target)) for name in preferred}
    reasons: dict[int, str] = {}
    backend_names = [_choice(network, precisions, options, index, candidates, reasons) for index in range(len(network.layers))]
    segments: list[Segment] = []
    for name, layers in _runs(network, precisions, backend_names, reasons):
        if any(network.layers[index].has_weights for index in layers):
            inner = set(layers)
            [input_tensor] = {tensor for index in layers for tensor in network.layers[index].inputs} - inner
            segments.append(Segment(name, layers, input_tensor, _layers_read_outside(network, layers)))
        else:
            for index in layers:
                reasons.setdefault(index, "a run without convolutions is not worth the way there and back")
    messages = {}
    for index, reason in sorted(reasons.items()):
        layer = network.layers[index]
        runner = next((segment.backend for segment in segments if index in segment.layers), fallback)
        messages[index] = f"layer {index} ({layer.name}, {precisions[index]}) falls back to {runner}: {reason}"
    return Partition(fallback, tuple(segments), messages)


def _choice(
    network: NetworkSpec,
    precisions: PrecisionPlan,
    options: EngineOptions,
    index: int,
    candidates: dict[str, tuple[Backend, Target]],
    reasons: dict[int, str],
) -> str:
    """Return the first backend that supports a layer, '' for none. Heads hand tensors over; whoever makes those does."""
    layer = network.layers[index]
    if isinstance(layer, YoloSpec):
        return ""
    refused: list[str] = []
    for name, (candidate, form) in candidates.items():
        refusal = form.refuses(layer, precisions[index], options.of(index), candidate.flavour)
        if not refusal and result_storage(layer, precisions[index]).carries_scale:
            refusal = "its result is int8 codes, which do not leave mpnet"
        if not refusal and layer in network.valued:
            refusal = "it has values of its own without being a convolution, which do not leave mpnet"
        if not refusal:
            if refused:
                reasons[index] = "; ".join(refused)
            return name
        refused.append(f"{name}: {refusal}")
    if refused:
        reasons[index] = "; ".join(refused)
    return ""


def _runs(
    network: NetworkSpec, precisions: PrecisionPlan, backend_names: Sequence[str], reasons: dict[int, str]
) -> list[tuple[str, tuple[int, ...]]]:
    """Group consecutive layers of one backend, as many as read no more than one tensor from earlier layers.

    Heads between do not end a group.
    """
    runs: list[tuple[str, list[int]]] = []
    reads: set[int] = set()
    for layer in network.layers:
        name = backend_names[layer.index]
        if isinstance(layer, YoloSpec):
            continue
        if runs and runs[-1][0] == name:
            outside = reads | (set(layer.inputs) - set(runs[-1][1]))
            if not name or len(outside) == 1:
                runs[-1][1].append(layer.index)
                reads = outside
                continue
        reads = set(layer.inputs)
        if name and len(reads) > 1:
            reasons[layer.index] = f"{name}: it reads {len(reads)} tensors from before a run, which takes one"
            name = ""
        elif name and _codes(network, precisions, layer.inputs[0]):
            reasons[layer.index] = f"{name}: it reads int8 codes, which do not leave mpnet"
            name = ""
        runs.append((name, [layer.index]))
    return [(name, tuple(layers)) for name, layers in runs if name]


def _codes(network: NetworkSpec, precisions: PrecisionPlan, tensor: int) -> bool:
    return tensor != NETWORK_INPUT and result_storage(network.layers[tensor], precisions[tensor]).carries_scale


def _layers_read_outside(network: NetworkSpec, layers: Sequence[int]) -> tuple[int, ...]:
    inner = set(layers)
    last = {network.outputs[0]} if not network.yolos else set()
    return tuple(index for index in layers if index in last or any(reader not in inner for reader in network.consumers[index]))
