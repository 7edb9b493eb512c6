# SPDX-License-Identifier: MIT
"""Recipes: which layers stay in floating point, in the words of another program's quantizer. No weights.

They speak of an imported network by the names of its ONNX file's nodes, of others by those of the file that
`mpnet export NET.cfg --to onnx` (LiteRT: `--to tflite`) writes in fp32. docs/toolchains.md shows each at work.
"""

from __future__ import annotations

from typing import Mapping

from mpnet.engine.options import LayerQuantization
from mpnet.export import Configuration, Exported, Target
from mpnet.export.onnx.support import support as onnx_support
from mpnet.export.recipe.choice import choice_of
from mpnet.export.recipe.quantizers import QUANTIZERS
from mpnet.messages import counted, shown
from mpnet.model.layers import LayerSpec
from mpnet.model.precision import FP32, Precision


def _support(layer: LayerSpec, precision: Precision, quantization: LayerQuantization, flavour: str) -> str:
    if precision.is_narrow:
        return f"{QUANTIZERS[flavour].program} quantises weights to 8 bits in a mix of layers"
    return onnx_support(layer, FP32, quantization, flavour)


def _write(configuration: Configuration, flavour: str, options: Mapping[str, object]) -> Exported:
    quantizer, network = QUANTIZERS[flavour], configuration.network
    names = [name for index in configuration.precisions.weighted for name in network.layers[index].source[:1]]
    refused_names = [name for name in names if not quantizer.takes_name(name)]
    is_of_source = quantizer.source and len(names) == len(configuration.precisions.weighted) and not refused_names
    choice = choice_of(configuration, is_of_source)
    layers = {}
    for layer in choice.layers:
        reason = quantizer.reason_for_float(layer) if layer.is_quantized else quantizer.float_text
        layers[layer.index] = (layer.precision, "float" if reason or not layer.is_quantized else "int8", reason)
    details = {
        "reads": "the ONNX file that the network was imported from" if is_of_source else quantizer.reads,
        "quantised": sum(form == "int8" for _, form, _ in layers.values()),
        "float": sum(form == "float" for _, form, _ in layers.values()),
    }
    notes = quantizer.notes(choice, network, configuration.options)
    if refused_names:
        others = f" and {counted(len(refused_names) - 1, 'other')}" if len(refused_names) > 1 else ""
        reason = f"{quantizer.program}'s arguments cannot hold the node name {shown(refused_names[0])}{others}"
        notes = (f"{reason}; the recipe is for {quantizer.reads}", *notes)
    return Exported(quantizer.write(choice), details, layers, notes)


TARGET = Target(
    "the choice of layers for another program's quantizer, in its own words",
    ".recipe.json",
    _write,
    lacks="weights of fewer than eight bits",
    flavours=QUANTIZERS,
    support=_support,
    precisions={name: ("bf16",) for name in QUANTIZERS},
    reads_weights=False,
)
