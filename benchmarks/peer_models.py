# SPDX-License-Identifier: MIT
"""Writes one Darknet network, batch norm folded, in the formats of other engines."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, Mapping

import numpy as np

from mpnet.model.layers import ConvolutionSpec, MaxpoolSpec, RouteSpec, UpsampleSpec, YoloSpec
from mpnet.model.network import NetworkSpec

LEAKY = 0.1


def supported(network: NetworkSpec) -> None:
    """Raises SystemExit for layers that the writers here do not know."""
    for layer in network.layers:
        plain = isinstance(layer, ConvolutionSpec | MaxpoolSpec | UpsampleSpec | YoloSpec)
        whole_route = isinstance(layer, RouteSpec) and layer.groups == 1
        if not plain and not whole_route:
            raise SystemExit(f"peers: layer {layer.index} ({layer.kind}) cannot be exported; use a YOLOv3-tiny network")
        if isinstance(layer, ConvolutionSpec) and layer.activation not in ("linear", "leaky"):
            raise SystemExit(f"peers: activation {layer.activation} of layer {layer.index} cannot be exported")


def name_of(index: int) -> str:
    """The tensor that a layer gives."""
    return "picture" if index < 0 else f"t{index}"


def heads(network: NetworkSpec) -> list[int]:
    """Layers whose results enter yolo layers."""
    return [layer.inputs[0] for layer in network.layers if isinstance(layer, YoloSpec)]


def pool_pads(layer: MaxpoolSpec) -> tuple[int, int]:
    """Rows before and behind that a pool sees outside its input."""
    return layer.padding // 2, layer.padding - layer.padding // 2


def write_onnx(network: NetworkSpec, folded: Mapping[int, Any], path: Path) -> None:
    """NCHW, float32, batch 1."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    nodes, values = [], []
    for layer in network.layers:
        inputs, out = [name_of(i) for i in layer.inputs], name_of(layer.index)
        if isinstance(layer, ConvolutionSpec):
            weights = folded[layer.index]
            values += [numpy_helper.from_array(weights.weights, out + "w"), numpy_helper.from_array(weights.bias, out + "b")]
            sums = out + "s" if layer.activation == "leaky" else out
            nodes.append(
                helper.make_node(
                    "Conv",
                    [*inputs, out + "w", out + "b"],
                    [sums],
                    kernel_shape=[layer.size] * 2,
                    strides=[layer.stride] * 2,
                    pads=[layer.padding] * 4,
                    group=layer.groups,
                    dilations=[layer.dilation] * 2,
                )
            )
            if layer.activation == "leaky":
                nodes.append(helper.make_node("LeakyRelu", [sums], [out], alpha=LEAKY))
        elif isinstance(layer, MaxpoolSpec):
            before, behind = pool_pads(layer)
            nodes.append(
                helper.make_node(
                    "MaxPool",
                    inputs,
                    [out],
                    kernel_shape=[layer.size] * 2,
                    strides=[layer.stride] * 2,
                    pads=[before, before, behind, behind],
                )
            )
        elif isinstance(layer, UpsampleSpec):
            values.append(numpy_helper.from_array(np.array([1, 1, layer.factor, layer.factor], np.float32), out + "f"))
            nodes.append(
                helper.make_node(
                    "Resize",
                    [*inputs, "", out + "f"],
                    [out],
                    mode="nearest",
                    coordinate_transformation_mode="asymmetric",
                    nearest_mode="floor",
                )
            )
        elif isinstance(layer, RouteSpec):
            kind, more = ("Identity", {}) if len(inputs) == 1 else ("Concat", {"axis": 1})
            nodes.append(helper.make_node(kind, inputs, [out], **more))
    image = helper.make_tensor_value_info("picture", TensorProto.FLOAT, [1, network.channels, network.height, network.width])
    outputs = []
    for index in heads(network):
        h, w, c = network.layers[index].out_shape
        outputs.append(helper.make_tensor_value_info(name_of(index), TensorProto.FLOAT, [1, c, h, w]))
    graph = helper.make_graph(nodes, "net", [image], outputs, values)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(path))


def write_ncnn(network: NetworkSpec, folded: Mapping[int, Any], param: Path, weights: Path) -> None:
    """Text graph and weights; blobs with several readers go through Split, as ncnn wants."""
    lines, blobs = ["Input image 0 1 image"], 1
    readers: dict[str, int] = {}
    for layer in network.layers:
        if not isinstance(layer, YoloSpec):
            for index in layer.inputs:
                readers[name_of(index)] = readers.get(name_of(index), 0) + 1
    for index in heads(network):
        readers[name_of(index)] = readers.get(name_of(index), 0) + 1
    taken: dict[str, int] = {}

    def take(index: int) -> str:
        blob = name_of(index)
        taken[blob] = taken.get(blob, 0) + 1
        return f"{blob}_{taken[blob]}" if readers[blob] > 1 else blob

    with open(weights, "wb") as file:
        for layer in network.layers:
            if isinstance(layer, YoloSpec):
                continue
            sources, out = [take(i) for i in layer.inputs], name_of(layer.index)
            kind, options = "Noop", ""
            if isinstance(layer, ConvolutionSpec):
                value = folded[layer.index]
                leaky = f" 9=2 -23310=1,{LEAKY}" if layer.activation == "leaky" else ""
                kind = "Convolution"
                options = (
                    f"0={layer.filters} 1={layer.size} 2={layer.dilation} 3={layer.stride} 4={layer.padding} 5=1 "
                    f"6={value.weights.size}{leaky}"
                )
                file.write(struct.pack("<I", 0) + value.weights.tobytes() + value.bias.tobytes())
            elif isinstance(layer, MaxpoolSpec):
                # The rows behind are given only where a window reaches them; ncnn's "valid" mode rounds sizes down.
                before, behind = pool_pads(layer)
                kind = "Pooling"
                options = f"0=0 1={layer.size} 2={layer.stride} 3={before} 13={before} 14={behind} 15={behind} 5=1"
            elif isinstance(layer, UpsampleSpec):
                kind, options = "Interp", f"0=1 1={layer.factor} 2={layer.factor}"
            elif len(sources) > 1:
                kind, options = "Concat", "0=0"
            lines.append(f"{kind} l{layer.index} {len(sources)} 1 {' '.join(sources)} {out} {options}".rstrip())
            blobs += 1
            if readers.get(out, 0) > 1:
                copies = [f"{out}_{i + 1}" for i in range(readers[out])]
                lines.append(f"Split s{layer.index} 1 {len(copies)} {out} {' '.join(copies)}")
                blobs += len(copies)
    param.write_text(f"7767517\n{len(lines)} {blobs}\n" + "\n".join(lines) + "\n", encoding="ascii")


def write_layers(network: NetworkSpec, folded: Mapping[int, Any], folder: Path) -> None:
    """`layers.json` and `arrays.npz`, from which peer_tflite.py builds models in an environment without mpnet."""
    import json

    described: list[dict[str, Any]] = []
    for layer in network.layers:
        row: dict[str, Any] = {"kind": layer.kind, "inputs": list(layer.inputs)}
        for key in ("size", "stride", "padding", "activation", "factor"):
            if hasattr(layer, key):
                row[key] = getattr(layer, key)
        described.append(row)
    net = {"in": [network.height, network.width, network.channels], "layers": described, "heads": heads(network)}
    (folder / "layers.json").write_text(json.dumps(net), encoding="utf-8")
    arrays = {f"w{i}": f.weights for i, f in folded.items()} | {f"b{i}": f.bias for i, f in folded.items()}
    np.savez(folder / "arrays.npz", **arrays)
