# SPDX-License-Identifier: MIT
"""What follows from a network, its labels and its target where nobody says: how to quantise, what to search, by which measures.

`mpnet init` and `mpnet import` write these, the demo has what `init` writes, and `mpnet analyze` measures them beside what it
is given. Measured in docs/results/quantization.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Iterator

from mpnet.backends.partition import ENGINE, SCALAR
from mpnet.config.experiment import Experiment
from mpnet.config.target_file import KINDS, TargetFile
from mpnet.engine.integer import find_refusal
from mpnet.engine.options import layer_quantization
from mpnet.errors import ConfigError
from mpnet.export import target as export_target
from mpnet.formats.documents.target_file import target_file
from mpnet.model.network import NETWORK_INPUT, NetworkSpec
from mpnet.model.precision import FP16, INT8, PRECISIONS, USUAL_NAMES
from mpnet.model.quantization import BY_ACTIVATIONS, NO_OPTIONS, ActivationOptions, QuantizationOptions, WeightOptions
from mpnet.model.selectors import layer_groups
from mpnet.model.task import Task
from mpnet.quantization.equalise import depthwise_pairs

OWN_ENGINES = (ENGINE, SCALAR)


def default_quantization(network: NetworkSpec, target: TargetFile | None = None) -> QuantizationOptions:
    """Return how a network is quantised in int8.

    Weights have a scale per channel and activations ranges of each image, or those that the target has. Networks with depthwise
    layers have their channels equalised where that is exact, and biases corrected. What the target says stands over all that,
    but for whole numbers alone where the network has no form in them.

    target: None: mpnet's own.
    """
    options = QuantizationOptions(
        ActivationOptions(ranges="dynamic") if target is None else ActivationOptions(),
        WeightOptions("per_channel"),
        bias_correction=True if has_depthwise_layers(network) else None,
        equalisation=BY_ACTIVATIONS if depthwise_pairs(network) else None,
    )
    if target is None:
        return options
    options = options.overlaid(target.quantization)
    return replace(options, integer_only=None) if options.integer_only and find_refusal(network) else options


def default_precisions(network: NetworkSpec, target: TargetFile | None = None) -> tuple[str, ...]:
    """Return the precisions that a sweep may choose, highest first: those that the target runs in every layer.

    Depthwise layers lose most in int8 and save least, so networks with them are searched from fp16 on, where there is that.
    """
    names = supported_precisions(network, target)
    is_from_fp16 = has_depthwise_layers(network) and {FP16.name, INT8.name} <= {*names}
    return names[names.index(FP16.name) :] if is_from_fp16 else names


def target_of(experiment: Experiment, name: str = "") -> TargetFile | None:
    """Return what will run the choice: what is named, else what the sweep names, else the experiment's first backend.

    name: of a target file, or its path. Result: None for mpnet's own.
    Raises: ConfigError, as `target_file`.
    """
    space = None if experiment.sweep is None else experiment.sweep.space.target
    return named_target(next((text for text in (name, space, *experiment.backends) if text), ""))


def named_target(name: str) -> TargetFile | None:
    """Return the target file of a name or path; None for mpnet's own arithmetic, as for ''. Raises: as `target_file`."""
    if name in ("", *OWN_ENGINES):
        return None
    target = target_file(name)
    return None if target.is_own else target


def runnable_precisions(network: NetworkSpec, target: TargetFile | None) -> dict[int, tuple[str, ...]]:
    """Return by convolution the precisions that the target runs it in, highest first; None: mpnet's own, the usual ones.

    Raises: ConfigError where a layer has none.
    """
    if target is None:
        return {layer.index: USUAL_NAMES for layer in network.convolutions}
    refusals = refused_layers(network, target)
    names = dict.fromkeys((layer.index for layer in network.convolutions), target.precisions)
    for index, limit in _limits(network, target):
        names[index] = limit
    runnable = {
        layer.index: tuple(name for name in names[layer.index] if layer.name not in refusals.get(name, ()))
        for layer in network.convolutions
    }
    for index, of_layer in runnable.items():
        if not of_layer:
            raise ConfigError(
                f"target {target.name} runs layer {index} ({network.layers[index].name}) in none of {', '.join(names[index])}; "
                "name another precision for it in the target file's `layers`"
            )
    return runnable


def _limits(network: NetworkSpec, target: TargetFile) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield (index, precisions) of layers with weights that have fewer than others, later ones win."""
    groups = layer_groups(network)
    for word, names in target.layers:
        named = [layer.index for layer in network.convolutions if layer.kind == word] if word in KINDS else groups.get(word, ())
        yield from ((index, names) for index in named)
    yield from ((layer.index, target.cpu_precisions) for layer in network.convolutions if layer.kind in target.on_cpu)


def layers_on_cpu(network: NetworkSpec, target: TargetFile) -> dict[int, str]:
    """Return by layer index what of it the target leaves to the CPU: its kind or its activation."""
    words = {layer.index: (layer.kind, getattr(layer, "activation", "")) for layer in network.layers}
    return {index: word for index, pair in words.items() for word in pair[::-1] if word in target.on_cpu}


def tied_layers(network: NetworkSpec, target: TargetFile) -> list[tuple[int, ...]]:
    """Return the groups of convolutions that have one precision there, ascending; layers that are free are in none.

    They are those of one node of the file that the network came from, and those that read one tensor where a precision is
    a tensor's, also through layers that pass it on.
    """
    groups: dict[object, list[int]] = {}
    # Engines run what mpnet exports layer by layer; another program's quantiser takes or leaves a node of its own file.
    for layer in network.convolutions if target.export_target == "recipe" else ():
        for node in layer.source[:1]:
            groups.setdefault(node, []).append(layer.index)
    if target.one_precision:
        tensors = {index: index for index in range(NETWORK_INPUT, len(network.layers))}
        for passing in network.layers:
            if passing.kind in target.one_precision:
                met = {tensors[index] for index in (*passing.inputs, passing.index)}
                tensors = {index: min(met) if tensor in met else tensor for index, tensor in tensors.items()}
        for layer in network.convolutions:
            groups.setdefault(tensors[layer.inputs[0]], []).append(layer.index)
    merged: list[set[int]] = []
    for group in groups.values():
        touching = [other for other in merged if other & {*group}]
        merged = [other for other in merged if other not in touching] + [{*group}.union(*touching)]
    return sorted(tuple(sorted(group)) for group in merged if len(group) > 1)


def supported_precisions(network: NetworkSpec, target: TargetFile | None = None) -> tuple[str, ...]:
    """Return the precisions that the target runs in every convolution that has a choice; all of its own where there is none."""
    of_layers = [names for names in runnable_precisions(network, target).values() if len(names) > 1]
    available = USUAL_NAMES if target is None else target.precisions
    names = tuple(name for name in available if all(name in of_layer for of_layer in of_layers))
    return names or available


def refused_layers(network: NetworkSpec, target: TargetFile) -> dict[str, list[str]]:
    """Return by precision the names of convolutions that the target's exported form cannot express in it.

    Raises: ConfigError for a target file that names no export target.
    """
    if not target.export:
        return {}
    try:
        exported = export_target(target.export_target)
        flavour = exported.flavour(target.flavour)
    except ConfigError as error:
        raise ConfigError(f"{target.name}: export is {target.export}: {error}") from None
    options = layer_quantization(target.quantization)
    return {
        name: [layer.name for layer in network.convolutions if exported.refuses(layer, PRECISIONS[name], options, flavour)]
        for name in target.precisions
    }


def default_objectives(task: Task, labelled: bool) -> tuple[str, ...]:
    """Return the objectives of a sweep: agreement with the baseline and cost; accuracy as well where there are labels."""
    return (task.agreement, *([task.quality] if labelled else []), "bit_operations")


def has_depthwise_layers(network: NetworkSpec) -> bool:
    """Return whether some convolution's filters read one channel each."""
    return any(layer.groups == layer.in_shape[2] > 1 for layer in network.convolutions)


def declares_quantization(network: NetworkSpec) -> bool:
    """Return whether the cfg itself says how something is quantised, as those of quantised models do."""
    declared = (network.declared, *(layer.declared for layer in network.layers))
    return any(keys is not None and keys.quantization != NO_OPTIONS for keys in declared)
