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
from mpnet.formats.documents.target_file import bundled_target
from mpnet.messages import counted, shown
from mpnet.model.layers import LayerSpec
from mpnet.model.precision import BF16, FP32, INT8, INT16, USUAL_NAMES, Precision

SOURCE = "the ONNX file that the network was imported from"
NOT_TRIED = "not tried"


def _support(layer: LayerSpec, precision: Precision, quantization: LayerQuantization, flavour: str) -> str:
    quantizer = QUANTIZERS[flavour]
    if precision.is_narrow:
        return f"{quantizer.program} quantises weights to 8 bits in a mix of layers"
    names = bundled_target(quantizer.target).precisions if quantizer.target else (*USUAL_NAMES, BF16.name)
    if layer.has_weights and precision.base not in names:
        return f"{quantizer.program} has {', '.join(names)} in a recipe"
    return onnx_support(layer, FP32, quantization, flavour)


def _write(configuration: Configuration, flavour: str, options: Mapping[str, object]) -> Exported:
    quantizer, network = QUANTIZERS[flavour], configuration.network
    names = [name for index in configuration.precisions.weighted for name in network.layers[index].source[:1]]
    refused_names = [name for name in names if not quantizer.takes_name(name)]
    is_of_source = (
        quantizer.source
        and len(names) == len(configuration.precisions.weighted)
        and not refused_names
        and not configuration.is_tuned
    )
    tried = {"tried": quantizer.tried or NOT_TRIED}
    choice = choice_of(configuration, is_of_source, SOURCE if is_of_source else quantizer.reads, tried)
    layers = {}
    for layer in choice.layers:
        reason = quantizer.reason_for_float(layer) if layer.is_quantized else quantizer.float_text
        form = "float" if reason or not layer.is_quantized else layer.precision
        layers[layer.index] = (layer.precision, form, reason)
    forms = [form for _, form, _ in layers.values()]
    details = {
        "reads": SOURCE if is_of_source else quantizer.reads,
        "quantised": forms.count(INT8.name),
        "float": forms.count("float"),
        **({"int16": forms.count(INT16.name)} if INT16.name in forms else {}),
        "tried": quantizer.tried or NOT_TRIED,
    }
    notes = quantizer.notes(choice, network, configuration.options)
    if refused_names:
        others = f" and {counted(len(refused_names) - 1, 'other')}" if len(refused_names) > 1 else ""
        reason = f"{quantizer.program}'s arguments cannot hold the node name {shown(refused_names[0])}{others}"
        notes = (f"{reason}; the recipe is for {quantizer.reads}", *notes)
    if configuration.is_tuned:
        notes = (
            *notes,
            f"the weights were tuned for mpnet's codes: quantise {quantizer.reads}, written with them; "
            f"{quantizer.program} finds steps and ranges itself, which was not measured",
        )
    if quantizer.target and is_of_source and network.yolos:
        heads = [network.layers[index].source[0] for yolo in network.yolos for index in network.sources(yolo.inputs[0])]
        notes = (
            *notes,
            f"the file decodes boxes itself, which was measured in reals and {quantizer.program} would quantise: let it end at "
            f"{', '.join(map(shown, heads))}",
        )
    if not quantizer.tried:
        notes = (*notes, f"not tried in {quantizer.program}; the choice was made in mpnet's arithmetic: {choice.scheme}")
    return Exported(quantizer.write(choice), details, layers, notes)


TARGET = Target(
    "the choice of layers for another program's quantizer, in its own words",
    ".recipe.json",
    _write,
    lacks="weights of fewer than eight bits",
    flavours=QUANTIZERS,
    support=_support,
    precisions=None,
    reads_weights=False,
)
