# SPDX-License-Identifier: MIT
"""Compilers of chips: how each is told which layers get more than 8 bits, one row each; `mpnet targets` lists what they have.

They leave results in codes as well, so a layer in 16 bits reads 16 bits only where what gives it its values has them too. Their
scripts find that in the file that they are given.
"""

from __future__ import annotations

from mpnet.export.recipe.choice import Choice
from mpnet.export.recipe.quantizer import ONNX, Files, Quantizer, python_dict, recipe_json, recipe_script

_RECIPE, _SCRIPT = ".recipe.json", ".py"
_FLOAT16 = "float16"


def _raised(choice: Choice, word: str) -> dict[str, str]:
    """Return the nodes that get more than 8 bits, each with the program's word for that."""
    return {layer.node: word for layer in choice.raised_layers}


def _floats(choice: Choice) -> dict[str, str]:
    """Return the nodes of boxes' decoding that have weights; they were measured in reals."""
    return dict.fromkeys(choice.decoding, _FLOAT16)


def _rknn(choice: Choice) -> Files:
    types = _raised(choice, _FLOAT16) | _floats(choice)
    method = "channel" if choice.per_channel else "layer"
    recipe = {"custom_quantize_layers": types, "quantized_dtype": "w8a8", "quantized_method": method}
    return {
        _RECIPE: recipe_json(choice, recipe),
        _SCRIPT: recipe_script("rknn", choice, raised=python_dict(types), method=repr(method)),
    }


def _hailo(choice: Choice) -> Files:
    modes = _raised(choice, "a16_w16")
    recipe = {"precision_mode": modes}
    return {_RECIPE: recipe_json(choice, recipe), _SCRIPT: recipe_script("hailo", choice, raised=python_dict(modes))}


def _acuity(choice: Choice) -> Files:
    types = _raised(choice, "dynamic_fixed_point-i16")
    quantizer = ("perchannel_symmetric_affine", "int8") if choice.per_channel else ("asymmetric_affine", "uint8")
    arguments = [f"--quantizer={quantizer[0]}", f"--qtype={quantizer[1]}"]
    recipe = {"customized_quantize_layers": types, "pegasus quantize": arguments}
    script = recipe_script("acuity", choice, raised=python_dict(types), arguments=" ".join(arguments))
    return {_RECIPE: recipe_json(choice, recipe), _SCRIPT: script}


def _tidl(choice: Choice) -> Files:
    names = _raised(choice, "16")
    # 0: symmetric; 1: its scales are powers of two; 4: asymmetric, which is always per channel.
    scale_type = 1 if choice.mode == "power_of_two" else 0 if choice.symmetric else 4
    options = {
        "tensor_bits": 8,
        "accuracy_level": 1 if choice.corrected else 0,
        "advanced_options:quantization_scale_type": scale_type,
        "advanced_options:channel_wise_quantization": int(choice.per_channel),
    }
    recipe = {"raised": list(names), "options": options}
    script = recipe_script("tidl", choice, raised=python_dict(names), options=python_dict(options))
    return {_RECIPE: recipe_json(choice, recipe), _SCRIPT: script}


def _esp_ppq(choice: Choice) -> Files:
    types = _raised(choice, "w8a16")
    recipe = {"dispatching_table": types, "quant_type": "w8a8"}
    return {_RECIPE: recipe_json(choice, recipe), _SCRIPT: recipe_script("esp_ppq", choice, raised=python_dict(types))}


def _qnn(choice: Choice) -> Files:
    names = _raised(choice, "16")
    recipe = {"activations_of_16_bits": list(names), "param_type": "int8", "activation_type": "int8"}
    script = recipe_script("qnn", choice, raised=python_dict(names), per_channel=choice.per_channel, symmetric=choice.symmetric)
    return {_RECIPE: recipe_json(choice, recipe), _SCRIPT: script}


CHIP_COMPILERS: dict[str, Quantizer] = {
    "rknn": Quantizer(
        "RKNN-Toolkit2", ONNX, _rknn, float_text="in float16", target="rknn", tried="RKNN-Toolkit2 2.5.0 and its simulator"
    ),
    "hailo": Quantizer("Hailo's Dataflow Compiler", ONNX, _hailo, target="hailo"),
    "acuity": Quantizer("Acuity", ONNX, _acuity, target="acuity"),
    "tidl": Quantizer("TIDL", ONNX, _tidl, target="tidl"),
    "esp-ppq": Quantizer("ESP-PPQ", ONNX, _esp_ppq, target="esp-ppq", tried="ESP-PPQ 1.3.12"),
    "qnn": Quantizer("QNN", ONNX, _qnn, target="qnn", tried="aimet-onnx 2.42.0, which makes the encodings; not in QNN"),
}
