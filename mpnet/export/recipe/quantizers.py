# SPDX-License-Identifier: MIT
"""Other programs' quantisers: how each is told which layers stay in floating point, one row each."""

from __future__ import annotations

import json
import re

from mpnet.export.naming import layer_name
from mpnet.export.recipe.chips import CHIP_COMPILERS
from mpnet.export.recipe.choice import Choice, ChosenLayer
from mpnet.export.recipe.quantizer import ONNX, Files, Quantizer, nodes_of, python_list, recipe_json, recipe_script
from mpnet.model.convolutions import ConnectedSpec, ConvolutionSpec, DeconvolutionalSpec
from mpnet.model.layer import NETWORK_INPUT
from mpnet.model.precision import PRECISIONS

_TFLITE = "the file of `mpnet export NET.cfg --to tflite` in fp32"
_RECIPE, _SCRIPT = ".recipe.json", ".py"


def _nncf(choice: Choice) -> Files:
    # OpenVINO's reader calls a convolution with a bias NAME/WithoutBiases, ONNX's file NAME.
    patterns = [f"^{re.escape(name)}(/WithoutBiases)?$" for name in (*nodes_of(choice.float_layers), *choice.decoding)]
    # A reader may fold some nodes of a step away, and a pattern has to fit at least one.
    for step in choice.steps:
        names = [re.escape(name) for name in step.nodes] or [layer_name(step.index, ".*")]
        patterns.append(f"^({'|'.join(names)})$")
    preset = "PERFORMANCE" if choice.symmetric else "MIXED"
    recipe = {
        "ignored_scope": {"patterns": patterns, "validate": True},
        "preset": preset.lower(),
        "advanced_parameters": {"overflow_fix": "disable", "activations_range_estimator_params": "MINMAX"},
    }
    script = recipe_script("nncf", choice, patterns=python_list(patterns), preset=preset)
    return {_RECIPE: recipe_json(choice, recipe), _SCRIPT: script}


def _onnxruntime(choice: Choice) -> Files:
    names, extra_options = nodes_of(choice.quantized_layers), {}
    if choice.method.method == "moving_average":
        extra_options = {"CalibMovingAverage": True, "CalibMovingAverageConstant": round(1 - choice.method.momentum, 7)}
    recipe = {
        "nodes_to_quantize": names,
        "nodes_to_exclude": nodes_of(choice.float_layers),
        "per_channel": choice.per_channel,
        "activation_type": "QInt8" if choice.symmetric else "QUInt8",
        "weight_type": "QInt8",
        "extra_options": {
            "ActivationSymmetric": choice.symmetric,
            "WeightSymmetric": True,
            "OpTypesToExcludeOutputQuantization": ["Conv", "ConvTranspose", "Gemm", "MatMul"],
            **extra_options,
        },
    }
    script = recipe_script(
        "onnxruntime",
        choice,
        nodes=python_list(names),
        per_channel=choice.per_channel,
        activation_type=recipe["activation_type"],
        symmetric=choice.symmetric,
        more=extra_options,
    )
    return {_RECIPE: recipe_json(choice, recipe), _SCRIPT: script}


def _litert(choice: Choice) -> Files:
    weights = {
        "num_bits": 8,
        "symmetric": True,
        "granularity": "CHANNELWISE" if choice.per_channel else "TENSORWISE",
        "dtype": "INT",
    }
    activations = {"num_bits": 8, "symmetric": choice.symmetric, "granularity": "TENSORWISE", "dtype": "INT"}
    config = {
        "weight_tensor_config": weights,
        "compute_precision": "INTEGER",
        "explicit_dequantize": False,
        "skip_checks": False,
    }
    if choice.calibrated:
        config["activation_tensor_config"] = activations
    # The later of two rules that fit counts. A scope is the names of what an operation gives, each with a semicolon.
    rules = [{"regex": ".*", "operation": "*", "algorithm_key": "min_max_uniform_quantize", "op_config": config}]
    rules += [
        {"regex": f"(^|;){name}(/|;|$)", "operation": "*", "algorithm_key": "no_quantize", "op_config": {}}
        for name in nodes_of(choice.float_layers)
    ]
    # The quantiser takes a list and nothing beside it.
    return {_RECIPE: (json.dumps(rules, indent=1) + "\n").encode()}


# trtexec separates layers by `,` and names from precisions by `:`, and takes `*` for any text; polygraphy takes what begins
# with `-` for an option, and such an option may name a script to run. What a shell might read is out too.
_ARGUMENT = re.compile(r"(?!-)[\w/.+=@%-]+")


def _is_argument(name: str) -> bool:
    """Return whether a name stands for itself among the arguments of TensorRT's programs."""
    return _ARGUMENT.fullmatch(name) is not None


def _tensorrt(choice: Choice) -> Files:
    precision = {layer.node: "int8" if layer.is_quantized else _FLOATS.get(layer.precision, "fp32") for layer in choice.layers}
    spec = ",".join(f"{name}:{precision_name}" for name, precision_name in precision.items())
    recipe = {
        "layer_precisions": precision,
        "trtexec": ["--int8", "--fp16", "--precisionConstraints=obey", f"--layerPrecisions={spec}"],
        "polygraphy": ["--int8", "--fp16", "--precision-constraints", "obey", "--layer-precisions"]
        + [f"{name}:{_POLYGRAPHY[precision_name]}" for name, precision_name in precision.items()],
    }
    return {_RECIPE: recipe_json(choice, recipe)}


_FLOATS = {name: "fp16" for name, row in PRECISIONS.items() if row.base == "fp16"}
_POLYGRAPHY = {"int8": "int8", "fp16": "float16", "fp32": "float32"}


def _modelopt(choice: Choice) -> Files:
    names = [f"^{re.escape(name)}$" for name in (*nodes_of(choice.float_layers), *choice.decoding)]
    arguments = ["python", "-m", "modelopt.onnx.quantization", "--onnx_path=MODEL.onnx", "--quantize_mode=int8"]
    # What is not in 8 bits becomes fp16 by itself there.
    floats = "fp16" if choice.float_layers and all(layer.precision in _FLOATS for layer in choice.float_layers) else "fp32"
    arguments += ["--calibration_method=max", f"--high_precision_dtype={floats}", "--op_types_to_quantize", "Conv"]
    arguments += ["--nodes_to_exclude", *names] if names else []
    recipe = {
        "nodes_to_exclude": names,
        "op_types_to_quantize": ["Conv"],
        "left_in_float_by_modelopt": nodes_of([layer for layer in choice.quantized_layers if _left_by_modelopt(layer)]),
        "command": arguments,
    }
    return {_RECIPE: recipe_json(choice, recipe)}


_NARROW = 16


def _left_by_modelopt(layer: ChosenLayer) -> str:
    """List what ModelOpt 0.47 leaves: it quantises convolutions for which TensorRT has int8 kernels that gain something."""
    spec = layer.spec
    if not isinstance(spec, ConvolutionSpec) or isinstance(spec, (ConnectedSpec, DeconvolutionalSpec)):
        return "ModelOpt is asked for convolutions alone"
    channels = spec.weight_shape[1]
    if spec.filters >= _NARROW and channels >= _NARROW:
        return ""
    if spec.groups > 1:
        is_quantized = spec.filters % 8 == 0 and spec.size >= 3
    else:
        wide = NETWORK_INPUT in spec.inputs or spec.filters >= _NARROW or channels >= _NARROW
        is_quantized = wide and (spec.filters % 8 == 0 or channels % 8 == 0)
    return "" if is_quantized else "ModelOpt leaves such narrow convolutions in float itself"


def _aimet(choice: Choice) -> Files:
    names = nodes_of(choice.quantized_layers)
    recipe = {"quantized": names, "float": nodes_of(choice.float_layers), "param_type": "int8", "activation_type": "int8"}
    return {_RECIPE: recipe_json(choice, recipe), _SCRIPT: recipe_script("aimet", choice, nodes=python_list(names))}


QUANTIZERS: dict[str, Quantizer] = {
    "nncf": Quantizer("NNCF", ONNX, _nncf, per_channel=True, corrects=True, tried="NNCF 3.4.0"),
    "onnxruntime": Quantizer(
        "ONNX Runtime", ONNX, _onnxruntime, methods=("min_max", "moving_average"), tried="ONNX Runtime 1.32.0"
    ),
    "litert": Quantizer(
        "LiteRT's quantiser", _TFLITE, _litert, source=False, methods=(), tried="ai-edge-quantizer 0.10.0, dynamic ranges"
    ),
    "tensorrt": Quantizer("TensorRT", ONNX, _tensorrt, float_text="", methods=(), takes_name=_is_argument),
    "modelopt": Quantizer("ModelOpt", ONNX, _modelopt, reason_for_float=_left_by_modelopt, tried="nvidia-modelopt 0.47.0"),
    "aimet": Quantizer("AIMET", ONNX, _aimet, tried="aimet-onnx 2.42.0"),
    **CHIP_COMPILERS,
}
