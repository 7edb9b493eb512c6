# SPDX-License-Identifier: MIT
"""The ONNX file of a configuration, checked."""

from __future__ import annotations

import json
from typing import Any, Sequence

import mpnet
from mpnet.engine.operations import Convolve
from mpnet.export import Configuration, Exported
from mpnet.export.description import description
from mpnet.export.naming import layer_name
from mpnet.export.onnx.boxes import refuse_kind, write_boxes
from mpnet.export.onnx.graph import INT64
from mpnet.export.onnx.rules import FLAVOURS
from mpnet.export.onnx.write import OnnxExport


def write(configuration: Configuration, flavour: str, with_boxes: bool = False) -> Exported:
    """Return the file in the form of a flavour, the same bytes for the same configuration.

    with_boxes: the graph gives `boxes`, `scores` and `classes` besides the tensors that enter the heads.
    Raises: ConfigError for boxes that ONNX cannot suppress as the configuration asks.
    """
    network = configuration.network
    export = OnnxExport(configuration.plan, configuration.prepared, FLAVOURS[flavour])
    graph = export.graph
    outputs = {}
    for index, slot, head in zip(network.outputs, export.plan.outputs, export.heads, strict=True):
        # Engines call a node after the output that it writes, so the name tells the layer that computes it first.
        outputs[index] = f"{layer_name(max(export.plan.slots[slot].layer, 0), 'head')}_{index:03d}"
        height, width, channels = export.plan.slots[slot].shape
        graph.output(outputs[index], head, (1, channels, height, width))
    if with_boxes:
        protocol = configuration.document.get("protocol") or {}
        kind = protocol.get("nms_kind") or (network.yolos[-1].nms_kind if network.yolos else "default")
        refuse_kind(kind)
        boxes, scores, classes = write_boxes(
            graph, network, export.heads, protocol.get("confidence", 0.25), protocol.get("nms", 0.45)
        )
        graph.output("boxes", boxes, ("detections", 4))
        graph.output("scores", scores, ("detections",))
        graph.output("classes", classes, ("detections",), INT64)
    precisions = zip(network.layers, configuration.plan.precision.precisions, strict=True)
    graph.describe({layer.index: f"layer {layer.index}, {layer.name}: {precision}" for layer, precision in precisions})
    model = graph.model("mpnet", mpnet.__version__, _metadata(configuration, flavour, list(outputs.values()), with_boxes))
    content = model.SerializeToString(deterministic=True)
    details = {"flavour": flavour, "bytes": len(content), **_count_nodes(model)}
    return Exported({".onnx": content}, details, _list_layers(export), _list_opencv_notes(model) if with_boxes else ())


def _list_opencv_notes(model: Any) -> tuple[str, ...]:
    """List why OpenCV 5.0's own DNN, whose readers take their boxes from the file, does not run it."""
    makers = {output: node.op_type for node in model.graph.node for output in node.output}
    instead = "run the file in ONNX Runtime or OpenVINO"
    if "DynamicQuantizeLinear" in makers.values():
        return (
            f"OpenCV 5.0's DNN has no DynamicQuantizeLinear: calibrate (quantization.activations=calibrated), or {instead}",
        )
    reals = {name for node in model.graph.node if node.op_type != "QuantizeLinear" for name in node.input}
    pools = [node for node in model.graph.node if node.op_type == "MaxPool"]
    # It takes a pooling for one of codes where only one side of it has them.
    if any((makers.get(pool.input[0]) == "DequantizeLinear") == (pool.output[0] in reals) for pool in pools):
        return (
            f"OpenCV 5.0's DNN stops at an assertion of its int8 pooling: {instead}, or export without --with-boxes and read "
            "that with engine=cv2.dnn.ENGINE_CLASSIC",
        )
    return ()


def _metadata(configuration: Configuration, flavour: str, outputs: Sequence[str], with_boxes: bool) -> dict[str, str]:
    """Return the file's metadata_props: text by name, JSON unless it is one word; the same for the same configuration.

    outputs: names of the tensors that leave the file, in the order of the heads.
    """
    described = {
        **description(configuration, flavour, "NCHW", outputs),
        "boxes": "centre x, centre y, width, height relative to the input" if with_boxes else "",
    }
    return {
        key: value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)
        for key, value in described.items()
    }


def _count_nodes(model: Any) -> dict[str, Any]:
    return {"nodes": len(model.graph.node)}


def _list_layers(export: OnnxExport) -> dict[int, tuple[str, str, str]]:
    """Return the precision asked for, the one written, and a remark, by layer index."""
    layers = {}
    for step in export.plan.steps:
        operation = step.operation
        if isinstance(operation, Convolve):
            requested = operation.precision
            written_precision = requested if requested.is_narrow else requested.tensor
            remark = "" if requested is written_precision else f"{requested}'s order of operations is mpnet's own"
            layers[step.layer] = (requested.name, written_precision.name, remark)
    return layers
