# SPDX-License-Identifier: MIT
"""What a recipe gives in the program that it is for: AP and agreement of a quantised file beside mpnet's own run.

Usage: recipes.py EXPERIMENT.yaml QUANTISED [--plain] [--set KEY=VALUE...]

EXPERIMENT.yaml is the configuration that the recipe was exported from; QUANTISED is what the recipe's script or the program
made: .onnx, or .tflite. Beside AIMET's OUT.onnx, which holds floating point, OUT.encodings say what is quantised;
OUT.qdq.onnx has both. Images, decoding and metrics are the experiment's on both sides; agreement is with mpnet's fp32. Layers
whose weights and inputs are in codes are read from the file, by the names that the recipe said. --plain runs LiteRT's own
kernels in place of XNNPACK's, which give each pixel that a 1x1 convolution reads a dynamic range of its own.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy as np
import onnx
from numpy.typing import NDArray

from mpnet.api import open_workbench, read_experiment
from mpnet.export.naming import layer_name, layer_of
from mpnet.model.network import NetworkSpec
from mpnet.trial.inference import Runner, own_runner, run_all

Forward = Callable[[NDArray[np.float32]], list[NDArray[np.float32]]]
WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")
TFLITE_WEIGHTED = ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED")


def layers_by_node(network: NetworkSpec) -> dict[str, list[int]]:
    """Return the layers with weights that a node of the file stands for, in the names of recipes."""
    weighted = [layer for layer in network.layers if layer.has_weights]
    of_source = all(layer.source for layer in weighted)
    nodes: dict[str, list[int]] = {}
    for layer in weighted:
        nodes.setdefault(layer.source[0] if of_source else layer_name(layer.index, "conv"), []).append(layer.index)
    return nodes


def find_quantized_layers(path: Path, network: NetworkSpec) -> list[int]:
    """Return the indices of layers whose weights are in codes. Raises: ValueError where a node is none of the network's."""
    nodes = layers_by_node(network)
    layers: set[int] = set()
    for name in (_tflite_nodes if path.suffix == ".tflite" else _onnx_nodes)(path):
        if name not in nodes:
            raise ValueError(f"{path}: the node {name!r} has weights in codes and is no layer of the network")
        layers.update(nodes[name])
    return sorted(layers)


def _onnx_nodes(path: Path) -> Iterator[str]:
    """Names of nodes whose inputs and weights are dequantised, or have codes in the file's .encodings."""
    graph = onnx.load(path).graph
    makers = {output: node for node in graph.node for output in node.output}
    constants = {tensor.name for tensor in graph.initializer}
    constants |= {output for node in graph.node if node.op_type == "Constant" for output in node.output}
    encodings = path.with_suffix(".encodings")
    coded = set(_encoded(json.loads(encodings.read_text()))) if encodings.exists() else set()
    for node in graph.node:
        if node.op_type in WEIGHTED and _in_codes(makers, coded, node.input[0]):
            name, dequantised = node.input[1], False
            while name in makers and makers[name].op_type in (*_CODING, "Transpose", "Reshape", "Identity"):
                dequantised |= makers[name].op_type == "DequantizeLinear"
                name = makers[name].input[0]
            if name in constants and (dequantised or name in coded):
                yield node.name


def _in_codes(makers: dict[str, onnx.NodeProto], coded: set[str], name: str) -> bool:
    """Whether the values of a tensor are dequantised ones, maybe moved."""
    maker = makers.get(name)
    if name in coded or maker is None:
        return name in coded
    if maker.op_type == "DequantizeLinear":
        return True
    sources = maker.input if maker.op_type == "Concat" else maker.input[:1]
    return maker.op_type in _MOVING and all(_in_codes(makers, coded, source) for source in sources)


_CODING = ("DequantizeLinear", "QuantizeLinear", "Cast")
_MOVING = ("Concat", "MaxPool", "Resize", "Identity", "Pad", "Reshape", "Transpose", "Flatten", "Slice", "Split")


def _encoded(document: dict[str, Any]) -> Iterator[str]:
    """Names of tensors in AIMET's file, in lists of records or tables."""
    for section in ("param_encodings", "activation_encodings", "encodings"):
        yield from (entry if isinstance(entry, str) else entry["name"] for entry in document.get(section, ()))


def _tflite_nodes(path: Path) -> Iterator[str]:
    """`layer_012_conv` of operators whose weights are int8."""
    from ai_edge_litert import schema_py_generated as schema

    model = schema.Model.GetRootAs(path.read_bytes(), 0)
    graph = model.Subgraphs(0)
    kinds = {number: name for name, number in vars(schema.BuiltinOperator).items() if name in TFLITE_WEIGHTED}
    for position in range(graph.OperatorsLength()):
        operator = graph.Operators(position)
        kind = kinds.get(model.OperatorCodes(operator.OpcodeIndex()).BuiltinCode())
        if kind is None or graph.Tensors(operator.Inputs(1)).Type() != schema.TensorType.INT8:
            continue
        name = graph.Tensors(operator.Outputs(0)).Name().decode()
        index = layer_of(name)
        yield name if index is None else layer_name(index, "conv")


def head_tensors(graph: onnx.GraphProto, network: NetworkSpec) -> list[list[str]]:
    """Tensors of each output of a network in the order of channels, (1, channels, height, width) in the file.

    Raises: ValueError where the file does not have one.
    """
    output_of = {node.name: node.output[0] for node in graph.node}
    read_names = {name for node in graph.node for name in node.input}

    def tensors(index: int) -> list[str]:
        layer = network.layers[index]
        names = [output_of[name] for name in layer.source if name in output_of]
        if names:
            inner_names = {name for node in graph.node if node.name in layer.source for name in node.input}
            return [next((name for name in names if name not in inner_names and name in read_names), names[-1])]
        if layer.kind != "route":
            raise ValueError(f"no node of the file gives layer {layer.name}")
        return [name for source in layer.inputs for name in tensors(source)]

    if not any(layer.source for layer in network.layers):
        return [[output.name] for output in graph.output]
    return [tensors(layer.inputs[0]) for layer in network.layers if layer.kind == "yolo"]


def onnx_forward(path: Path, network: NetworkSpec) -> Forward:
    """One image at a time: (n, h, w, c) in and out."""
    import onnxruntime

    model = onnx.load(path)
    heads = head_tensors(model.graph, network)
    names = list(dict.fromkeys(name for head in heads for name in head))
    output_names = {output.name for output in model.graph.output}
    model.graph.output.extend(
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in names if name not in output_names
    )
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    input_name = session.get_inputs()[0].name

    def forward(batch: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        images = np.ascontiguousarray(batch.transpose(0, 3, 1, 2))
        passes = [dict(zip(names, session.run(names, {input_name: x[None]}), strict=True)) for x in images]
        head_values = [
            np.concatenate([np.concatenate([outputs[name] for name in head], 1) for outputs in passes]) for head in heads
        ]
        return [np.ascontiguousarray(head.transpose(0, 2, 3, 1)) for head in head_values]

    return forward


def tflite_forward(path: Path, network: NetworkSpec, plain: bool = False) -> Forward:
    """One image at a time: (n, h, w, c) in and out."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES if plain else OpResolverType.AUTO
    interpreter = Interpreter(str(path), experimental_op_resolver_type=resolver)
    interpreter.allocate_tensors()
    input_index, outputs = (
        interpreter.get_input_details()[0]["index"],
        [details["index"] for details in interpreter.get_output_details()],
    )

    def once(x: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        interpreter.set_tensor(input_index, x[None])
        interpreter.invoke()
        return [interpreter.get_tensor(index) for index in outputs]

    def forward(batch: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        return [np.concatenate(heads) for heads in zip(*(once(x) for x in batch), strict=True)]

    return forward


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    options = parser.parse_args()
    bench = open_workbench(read_experiment(options.experiment, options.overrides))
    plan = bench.assign()
    network = bench.prepared.network
    made_by = partial(tflite_forward, plain=options.plain) if options.model.suffix == ".tflite" else onnx_forward
    plans = [bench.plan(bench.uniform("fp32")), bench.plan(plan)]
    runners = [*(own_runner(bench.prepared, plan) for plan in plans), Runner(plans[1], lambda: made_by(options.model, network))]
    fp32, own_outcome, engine = run_all(bench, runners)
    meter = bench.kit.meter(bench.dataset, fp32.predictions)
    names = ("AP", "agreement_AP")
    requested = [index for index in plan.weighted if plan[index].carries_scale]
    quantized = find_quantized_layers(options.model, network)
    print(
        json.dumps(
            {
                "precision": plan.key,
                "mpnet": meter.values(own_outcome.predictions, names),
                "engine": meter.values(engine.predictions, names),
                "layers_as_asked": quantized == requested,
                "differ": sorted(set(quantized) ^ set(requested)),
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
