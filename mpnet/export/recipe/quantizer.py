# SPDX-License-Identifier: MIT
"""A program that a recipe is for: what it is told, what it makes of it, and the files that it takes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from string import Template
from typing import Callable, Mapping, Sequence

from mpnet.engine.options import EngineOptions
from mpnet.export.recipe.choice import Choice, ChosenLayer
from mpnet.model.network import NetworkSpec
from mpnet.model.quantization import BY_ACTIVATIONS
from mpnet.quantization.equalise import depthwise_pairs

Files = Mapping[str, bytes]
ONNX = "the file of `mpnet export NET.cfg --to onnx` in fp32"


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
    target: the target file of the chips that it compiles for, whose precisions layers may have; '': fp32, fp16 and int8.
    tried: the version in which its recipes were tried, '' where they were not.

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
    target: str = ""
    tried: str = ""

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


def recipe_json(choice: Choice, content: Mapping[str, object]) -> bytes:
    """Return a recipe with what it is a choice of."""
    return (
        json.dumps(
            {**content, "origin": {**choice.origin, "chosen_in": f"mpnet's arithmetic: {choice.scheme}"}},
            indent=1,
            ensure_ascii=False,
            allow_nan=False,
        )
        + "\n"
    ).encode()


def nodes_of(layers: Sequence[ChosenLayer]) -> list[str]:
    """Return the names of layers in the file that the recipe is for."""
    return [layer.node for layer in layers]


def recipe_script(name: str, choice: Choice, **values: object) -> bytes:
    """Return the runnable part of a recipe, which needs the quantizer, NumPy and OpenCV, and nothing of mpnet.

    name: of the template; values: what its placeholders stand for besides what every script is told.
    """
    values_of_choice = {
        "key": choice.origin["precision"],
        "width": choice.width,
        "height": choice.height,
        "resize": repr(choice.resize),
        "scheme": choice.scheme,
        "reads": choice.reads,
    }
    folder = resources.files("mpnet.export.recipe") / "templates"
    parts = {part: (folder / f"{part}.py.template").read_text(encoding="utf-8") for part in (name, "inputs", "nodes")}
    script = parts[name]
    for part in ("inputs", "nodes"):
        script = script.replace(f"${part}_part", parts[part].rstrip("\n"))
    return Template(script).substitute({**values_of_choice, **values}).encode()


def python_list(names: Sequence[str]) -> str:
    """Return a list of names as Python source, one a line."""
    return "[\n" + "".join(f"    {name!r},\n" for name in names) + "]"


def python_dict(values: Mapping[str, object]) -> str:
    """Return a mapping as Python source, one item a line."""
    return "{\n" + "".join(f"    {key!r}: {value!r},\n" for key, value in values.items()) + "}"
