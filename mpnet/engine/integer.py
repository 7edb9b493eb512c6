# SPDX-License-Identifier: MIT
"""Layers under `quantization.integer_only`: every tensor between the image and the heads is codes of its own range.

Pooling, upsampling and what else only moves values keep their input's codes. Where a layer takes another precision than its
input has, codes are rescaled to those that the same tensor has there. A convolution of int8 gives int16, of its sums, where
int16 reads the result: what is left of eight bits would be all that there is to read.
"""

from __future__ import annotations

from typing import Mapping

from mpnet.engine.operations import (
    Add,
    Concat,
    Conversion,
    Convolve,
    IntegerAdd,
    IntegerConcat,
    IntegerConvolve,
    IntegerLeaky,
    IntegerQuantize,
    IntegerRescale,
    Map,
    Operation,
)
from mpnet.engine.operations.integer import INTEGER_ACTIVATIONS
from mpnet.engine.options import EngineOptions, LayerQuantization, resolve_options, with_some_ranges
from mpnet.engine.rules import RULES
from mpnet.errors import PrecisionError
from mpnet.model.layers import LayerSpec
from mpnet.model.network import NETWORK_INPUT, NetworkSpec
from mpnet.model.precision import FP32, INT8, INT16, Precision
from mpnet.model.quantization import ActivationOptions, QuantizationOptions
from mpnet.quantization.codes import Codes, codes_of, leaky_sums

ACTIVATIONS = (*INTEGER_ACTIVATIONS, "leaky")


def check_precisions(network: NetworkSpec, requested: Mapping[int, Precision]) -> None:
    """Refuse layers of reals beside layers of codes. requested: what layers have of their own, by index.

    A network all of fp32 is what others are compared with. One layer at a time may be of reals beside others, so that analyses
    find what it does; a whole configuration may not. Raises: PrecisionError naming the first.
    """
    if all(precision is FP32 for precision in requested.values()):
        return
    for layer in network.layers:
        place, precision = f"layer {layer.index} ({layer.name})", requested.get(layer.index, FP32)
        if (layer.has_weights or layer.index in requested) and not layer.always_fp32 and not precision.carries_scale:
            raise PrecisionError(
                f"{place}: {precision} is no precision of whole numbers; under quantization.integer_only set it to int8 or "
                "int16, or all layers to fp32"
            )
        if layer.always_fp32 and not is_head(layer):
            raise PrecisionError(
                f"{place}: [{layer.kind}] is always fp32 and has no form in whole numbers; leave quantization.integer_only out"
            )


def find_refusal(network: NetworkSpec) -> str:
    """Return why a network has no form in whole numbers, naming the first layer that has none; '' where all have one."""
    calibrated = QuantizationOptions(ActivationOptions(mode="affine", ranges="calibrated"))
    options = with_some_ranges(resolve_options(network, calibrated), network)
    for layer in network.layers:
        if layer.always_fp32:
            if not is_head(layer):
                return f"layer {layer.index} ({layer.name}): [{layer.kind}] has no form in whole numbers"
            continue
        try:
            operations_of(network, options, layer, INT8, INT8)
        except PrecisionError as error:
            return str(error)
    return ""


def is_head(layer: LayerSpec) -> bool:
    """Return whether the layer hands its input over to decoding, as reals."""
    return all(operation.is_head for operation in plain_operations(layer))


def codes_owner(network: NetworkSpec, tensor: int) -> int:
    """Find the tensor whose codes this one has: layers that only move values keep those of their input."""
    while tensor >= 0:
        operations = plain_operations(network.layers[tensor])
        if any(not operation.moves_values or isinstance(operation, Concat) for operation in operations):
            break
        tensor = network.layers[tensor].inputs[0]
    return tensor


def codes_of_tensor(network: NetworkSpec, options: EngineOptions, tensor: int, precision: Precision, reader: int) -> Codes:
    """Return the codes of the result of layer `tensor` at a precision.

    reader: the layer whose options the image has.

    Raises: PrecisionError for a range that is not known or cannot be scaled.
    """
    owner = codes_owner(network, tensor)
    name = "the image" if owner < 0 else f"layer {owner} ({network.layers[owner].name})"
    if owner not in options.ranges:
        raise PrecisionError(f"{name} has no calibrated range, which quantization.integer_only needs; calibrate first")
    layer_options = options.of(reader if owner == NETWORK_INPUT else owner)
    try:
        return codes_of(layer_options.codes_of(precision), *options.ranges[owner])
    except PrecisionError as error:
        raise PrecisionError(f"{name}: {error}") from None


def storage_for_readers(
    network: NetworkSpec, requested: Mapping[int, Precision], keyed: Mapping[int, Precision], index: int
) -> Precision:
    """Return the precision that a layer of weights gives.

    It is int16 instead of int8 where a layer that reads it, past those that follow it, is of int16.
    """
    own_precision = requested[index].tensor
    pending = [index] if own_precision is INT8 else []
    while pending:
        for reader in network.consumers[pending.pop()]:
            precision = requested.get(reader) or keyed.get(reader)
            if precision is not None and precision.tensor is INT16:
                return INT16
            if precision is None and not network.layers[reader].always_fp32:
                pending.append(reader)
    return own_precision


def plain_operations(layer: LayerSpec) -> tuple[Operation, ...]:
    """Return the operations of the layer on reals."""
    return RULES[type(layer)].operations(layer, FP32, LayerQuantization())


def operations_of(
    network: NetworkSpec, options: EngineOptions, layer: LayerSpec, precision: Precision, output_precision: Precision
) -> tuple[Operation, ...]:
    """Return the operations of the layer on codes of a precision, which give int8 or int16.

    Raises: PrecisionError naming a layer that has no form in whole numbers.
    """
    plain, index, layer_options = plain_operations(layer), layer.index, options.of(layer.index)

    def codes(tensor: int, stored: Precision = precision.tensor) -> Codes:
        return codes_of_tensor(network, options, tensor, stored, index)

    if all(operation.moves_values for operation in plain):
        return tuple(IntegerConcat() if isinstance(operation, Concat) else operation for operation in plain)
    main = plain[0]
    activation = getattr(layer, "activation", "linear")
    if len(plain) > 1 or not isinstance(main, Convolve | Add | Map) or activation not in ACTIVATIONS:
        name = next((operation.name for operation in plain if not isinstance(operation, Convolve | Add)), main.name)
        unknown = f"activation {activation}" if activation not in ACTIVATIONS else f"[{layer.kind}], {name},"
        raise PrecisionError(
            f"layer {index} ({layer.name}): {unknown} has no form in whole numbers; leave quantization.integer_only out, or "
            f"use convolutions and sums with {', '.join(ACTIVATIONS[:-1])} or {ACTIVATIONS[-1]}, pooling, upsampling and routes"
        )
    result = codes(index, output_precision)
    if isinstance(main, Map):
        if activation != "leaky" or (main.scale, main.shift) != (1.0, 0.0):
            raise PrecisionError(f"layer {index} ({layer.name}): [{layer.kind}] has a form in whole numbers for leaky alone")
        return (IntegerLeaky(codes(layer.inputs[0]), result, output_precision),)
    leaky = activation == "leaky"
    sums = leaky_sums(result, options.ranges[index]) if leaky else result
    bound = "linear" if leaky else activation
    follows = (IntegerLeaky(sums, result, output_precision),) if leaky else ()
    if isinstance(main, Add):
        terms = codes(layer.inputs[0]), codes(layer.inputs[1])
        return (IntegerAdd(terms, sums, bound), *follows)
    scheme, corrected = layer_options.rounded_to(precision)
    x = codes(layer.inputs[0])
    convolve = IntegerConvolve(index, precision, scheme, corrected, None, None, x, sums, bound, target=output_precision)
    return (convolve, *follows)


def conversion_of(
    network: NetworkSpec, options: EngineOptions, layer: LayerSpec, tensor: int, source: Precision, target: Precision
) -> Conversion | None:
    """Return what converts layer `tensor`'s result from `source` into the codes that a layer takes; None for nothing.

    Raises: PrecisionError for ranges that are missing.
    """
    result = codes_of_tensor(network, options, tensor, target, layer.index)
    if not source.carries_scale:
        return IntegerQuantize(result, target)
    codes = codes_of_tensor(network, options, tensor, source, layer.index)
    if any(isinstance(operation, Concat) for operation in plain_operations(layer)):
        result = codes_of_tensor(network, options, layer.index, target, layer.index)
    return None if (codes, source) == (result, target) else IntegerRescale(codes, result, target)
