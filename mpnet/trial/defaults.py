# SPDX-License-Identifier: MIT
"""What follows from a network, its labels and its target where nobody says: how to quantise, what to search, by which measures.

`mpnet init` and `mpnet import` write these, the demo has what `init` writes, and `mpnet analyze` measures them beside what it
is given. Measured in docs/results/quantization.md.
"""

from __future__ import annotations

from mpnet.backends import reader
from mpnet.backends.partition import ENGINE, SCALAR
from mpnet.config.experiment import Experiment
from mpnet.engine.options import layer_quantization
from mpnet.export import target as export_target
from mpnet.model.network import NetworkSpec
from mpnet.model.precision import FP16, INT8, PRECISIONS, USUAL_NAMES
from mpnet.model.quantization import BY_ACTIVATIONS, NO_OPTIONS, ActivationOptions, QuantizationOptions, WeightOptions
from mpnet.model.task import Task
from mpnet.quantization.equalise import depthwise_pairs

OWN_ENGINES = (ENGINE, SCALAR)


def default_quantization(network: NetworkSpec, engine: str = "") -> QuantizationOptions:
    """Return how a network is quantised in int8.

    Weights have a scale per channel and activations ranges of each image, or those that the engine has. Networks with depthwise
    layers have their channels equalised where that is exact, and biases corrected.

    engine: of `mpnet run --engine`, or of READERS; '': mpnet's own.
    """
    activations = ActivationOptions(**(reader(engine).mode["activations"] if engine else {"ranges": "dynamic"}))
    return QuantizationOptions(
        activations,
        WeightOptions("per_channel"),
        bias_correction=True if has_depthwise_layers(network) else None,
        equalisation=BY_ACTIVATIONS if depthwise_pairs(network) else None,
    )


def default_precisions(network: NetworkSpec, engine: str = "") -> tuple[str, ...]:
    """Return the precisions that a sweep may choose, highest first: the usual ones that the engine runs in every layer.

    Depthwise layers lose most in int8 and save least, so networks with them are searched from fp16 on, where there is that.
    """
    names = supported_precisions(network, engine)
    is_from_fp16 = has_depthwise_layers(network) and {FP16.name, INT8.name} <= {*names}
    return (FP16.name, INT8.name) if is_from_fp16 else names


def target_of(experiment: Experiment, engine: str = "") -> str:
    """Return the program that will run the choice: the one that is named, else the experiment's first backend, '' for mpnet's.

    engine: of `mpnet run --engine`, or of READERS; `mprun` and '' name none.
    """
    named = [name for name in (engine, *experiment.backends) if name]
    return "" if not named or named[0] in (*OWN_ENGINES, "mprun") else named[0]


def runnable_precisions(network: NetworkSpec, engine: str) -> dict[int, tuple[str, ...]]:
    """Return by convolution the usual precisions that the engine runs it in; '': mpnet's own, which runs all."""
    if not engine:
        return {layer.index: USUAL_NAMES for layer in network.convolutions}
    runs, refusals = reader(engine).runs, refused_layers(network, engine)
    return {
        layer.index: tuple(name for name in USUAL_NAMES if name in runs and layer.name not in refusals[name])
        for layer in network.convolutions
    }


def supported_precisions(network: NetworkSpec, engine: str = "") -> tuple[str, ...]:
    """Return the usual precisions that the engine runs in every convolution; all of them where it runs none in all."""
    of_layers = runnable_precisions(network, engine).values()
    names = tuple(name for name in USUAL_NAMES if all(name in of_layer for of_layer in of_layers))
    return names or USUAL_NAMES


def refused_layers(network: NetworkSpec, engine: str) -> dict[str, list[str]]:
    """Return by usual precision the names of convolutions that the engine's exported form cannot express in it."""
    runner = reader(engine)
    exported = export_target(runner.target)
    options = layer_quantization(QuantizationOptions(ActivationOptions(**runner.mode["activations"])))
    return {
        name: [
            layer.name for layer in network.convolutions if exported.refuses(layer, PRECISIONS[name], options, runner.flavour)
        ]
        for name in USUAL_NAMES
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
