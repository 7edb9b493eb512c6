# SPDX-License-Identifier: MIT
"""Other programs' quantisers: how each is told which layers stay in floating point, one row each."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from importlib import resources
from string import Template
from typing import Callable, Mapping, Sequence

from mpnet.engine.options import EngineOptions
from mpnet.export.naming import layer_name
from mpnet.export.recipe.choice import Choice, ChosenLayer
from mpnet.model.convolutions import ConnectedSpec, ConvolutionSpec, DeconvolutionalSpec
from mpnet.model.layer import NETWORK_INPUT
from mpnet.model.network import NetworkSpec
from mpnet.model.precision import PRECISIONS
from mpnet.model.quantization import BY_ACTIVATIONS
from mpnet.quantization.equalise import depthwise_pairs

Files = Mapping[str, bytes]


@dataclass(frozen=True)
class Quantizer:
    """One program. program: its name. reads: what it is applied to. float_text: what becomes of layers that stay in float.

    source: whether it may be applied to the file that a network was imported from.
    per_channel: whether each channel that a depthwise convolution reads has a range of its own.
    methods: mpnet's ways to find ranges that it is asked for, () where it fixes none; the first in place of others. What it
    calls percentile or entropy finds other ranges than mpnet's.
    corrects: whether it corrects biases, whatever was measured.
    reason_for_float: why it leaves a layer in float that it is asked to quantise, '' where it does not.
    takes_name: whether a node of that name can be named to it; mpnet's own names always can.

    write: a choice as files, the recipe first.
    """

    program: str
    reads: str
    write: Callable[[Choice], Files]
    source: bool = True
    float_text: str = "stays in float; whether that is fp32 or fp16 is the runtime's choice"
    per_channel: bool = False
    methods: tuple[str, ...] = ("min_max",)
    corrects: bool = False
    reason_for_float: Callable[[ChosenLayer], str] = lambda layer: ""
    takes_name: Callable[[str], bool] = lambda name: True

    def channels_note(self, network: NetworkSpec, options: EngineOptions) -> str:
        """Say where it makes something else of depthwise layers than what was measured; '' where it does not."""
        if not (options.by_activations and self.per_channel) and (options.by_activations or options.equalise):
            return (
                f"was measured with equalised channels, which {self.program} does not make: "
                "`--set quantization.equalisation=false` measures what it will make"
            )
        if self.per_channel and not options.by_activations and depthwise_pairs(network):
            return (
                f"{self.program} gives each channel that a depthwise layer reads a range of its own: "
                f"`--set quantization.equalisation={BY_ACTIVATIONS}` measures what it will make"
            )
        return ""

    def notes(self, choice: Choice, network: NetworkSpec, options: EngineOptions) -> tuple[str, ...]:
        """Return what of a measured configuration it is not told, or makes in another way, one line each."""
        notes = []
        if choice.quantized_layers and self.methods:
            if not choice.calibrated:
                fixed = "choose with quantization.activations: calibrated"
                notes.append(f"measured with ranges of each image; {self.program} fixes them beforehand: {fixed}")
            elif choice.method.method not in self.methods:
                notes.append(f"ranges were found by {choice.method}; {self.program} is asked for {self.methods[0]}")
        float_layers = [layer.spec.name for layer in choice.quantized_layers if self.reason_for_float(layer)]
        if float_layers:
            notes.append(
                f"{self.program} leaves {', '.join(float_layers)} in float itself; mpnet at fp32 there is what it gives"
            )
        if choice.corrected and not self.corrects:
            notes.append(f"measured with bias correction, which {self.program} is not asked for")
        if choice.quantized_layers and self.corrects and not choice.corrected:
            remedy = "`--set quantization.bias_correction=true` measures what it will make"
            notes.append(f"{self.program} corrects biases, which was not measured: {remedy}")
        if choice.quantized_layers:
            notes.append(self.channels_note(network, options))
        return tuple(filter(None, notes))


_ONNX = "the file of `mpnet export NET.cfg --to onnx` in fp32"
_TFLITE = "the file of `mpnet export NET.cfg --to tflite` in fp32"
_RECIPE, _SCRIPT = ".recipe.json", ".py"


def _json(choice: Choice, content: Mapping[str, object]) -> bytes:
    return (json.dumps({**content, "origin": choice.origin}, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _names(layers: Sequence[ChosenLayer]) -> list[str]:
    return [layer.node for layer in layers]


def _script(name: str, choice: Choice, **values: object) -> bytes:
    """Return the runnable part of a recipe, which needs the quantizer, NumPy and OpenCV, and nothing of mpnet.

    name: of the template; values: what its placeholders stand for besides what every script is told.
    """
    values_of_choice = {
        "key": choice.origin["precision"],
        "width": choice.width,
        "height": choice.height,
        "resize": repr(choice.resize),
    }
    folder = resources.files("mpnet.export.recipe") / "templates"
    script, inputs = ((folder / f"{part}.py.template").read_text(encoding="utf-8") for part in (name, "inputs"))
    return Template(script.replace("$inputs", inputs.rstrip("\n"))).substitute({**values_of_choice, **values}).encode()


def _nncf(choice: Choice) -> Files:
    # OpenVINO's reader calls a convolution with a bias NAME/WithoutBiases, ONNX's file NAME.
    patterns = [f"^{re.escape(name)}(/WithoutBiases)?$" for name in (*_names(choice.float_layers), *choice.decoding)]
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
    script = _script("nncf", choice, patterns=_list(patterns), preset=preset)
    return {_RECIPE: _json(choice, recipe), _SCRIPT: script}


def _onnxruntime(choice: Choice) -> Files:
    names, extra_options = _names(choice.quantized_layers), {}
    if choice.method.method == "moving_average":
        extra_options = {"CalibMovingAverage": True, "CalibMovingAverageConstant": round(1 - choice.method.momentum, 7)}
    recipe = {
        "nodes_to_quantize": names,
        "nodes_to_exclude": _names(choice.float_layers),
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
    script = _script(
        "onnxruntime",
        choice,
        nodes=_list(names),
        per_channel=choice.per_channel,
        activation_type=recipe["activation_type"],
        symmetric=choice.symmetric,
        more=extra_options,
    )
    return {_RECIPE: _json(choice, recipe), _SCRIPT: script}


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
        for name in _names(choice.float_layers)
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
    return {_RECIPE: _json(choice, recipe)}


_FLOATS = {name: "fp16" for name, row in PRECISIONS.items() if row.base == "fp16"}
_POLYGRAPHY = {"int8": "int8", "fp16": "float16", "fp32": "float32"}


def _modelopt(choice: Choice) -> Files:
    names = [f"^{re.escape(name)}$" for name in (*_names(choice.float_layers), *choice.decoding)]
    arguments = ["python", "-m", "modelopt.onnx.quantization", "--onnx_path=MODEL.onnx", "--quantize_mode=int8"]
    # What is not in 8 bits becomes fp16 by itself there.
    floats = "fp16" if choice.float_layers and all(layer.precision in _FLOATS for layer in choice.float_layers) else "fp32"
    arguments += ["--calibration_method=max", f"--high_precision_dtype={floats}", "--op_types_to_quantize", "Conv"]
    arguments += ["--nodes_to_exclude", *names] if names else []
    recipe = {
        "nodes_to_exclude": names,
        "op_types_to_quantize": ["Conv"],
        "left_in_float_by_modelopt": _names([layer for layer in choice.quantized_layers if _left_by_modelopt(layer)]),
        "command": arguments,
    }
    return {_RECIPE: _json(choice, recipe)}


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
    names = _names(choice.quantized_layers)
    recipe = {"quantized": names, "float": _names(choice.float_layers), "param_type": "int8", "activation_type": "int8"}
    return {_RECIPE: _json(choice, recipe), _SCRIPT: _script("aimet", choice, nodes=_list(names))}


def _list(names: Sequence[str]) -> str:
    """Return a list of names as Python source, one a line."""
    return "[\n" + "".join(f"    {name!r},\n" for name in names) + "]"


QUANTIZERS: dict[str, Quantizer] = {
    "nncf": Quantizer("NNCF", _ONNX, _nncf, per_channel=True, corrects=True),
    "onnxruntime": Quantizer("ONNX Runtime", _ONNX, _onnxruntime, methods=("min_max", "moving_average")),
    "litert": Quantizer("LiteRT's quantiser", _TFLITE, _litert, source=False, methods=()),
    "tensorrt": Quantizer("TensorRT", _ONNX, _tensorrt, float_text="", methods=(), takes_name=_is_argument),
    "modelopt": Quantizer("ModelOpt", _ONNX, _modelopt, reason_for_float=_left_by_modelopt),
    "aimet": Quantizer("AIMET", _ONNX, _aimet),
}
