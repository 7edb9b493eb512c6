# SPDX-License-Identifier: MIT
"""Graphs as other programs write them, with random weights: what `mpnet import` is tried on.

Weights are normal, of the size that a trained detector's have. He's size (2 per input) would be the edge at which the rounding
of every layer arrives at the heads undiminished, in any engine: docs/import.md, "How close the results are".
"""

from __future__ import annotations

from typing import Any, Callable, Sequence

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

RELU, LINEAR, BIAS = 1.5, 1.0, 0.64
"""Variance of a layer's weights times its inputs, before a ReLU and else; deviation of biases. The trained YOLOv3-tiny of the
AIX data has 1.50 and 0.64 after folding, as medians over its layers."""


class Builder:
    """Nodes of one graph. Tensors are names; `channels` keeps how many each has. draw: which random weights, 0: the tests'."""

    draw = 0

    def __init__(self, side: int, seed: int = 0, channels: int = 3) -> None:
        self.random = np.random.default_rng(seed + 100 * self.draw)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.channels = {"images": channels}
        self.side = side

    def constant(self, values: NDArray[Any] | Sequence[float], dtype: Any = np.float32) -> str:
        name = f"const_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def node(self, operator: str, inputs: Sequence[str], channels: int = 0, outputs: int = 1, **attributes: Any) -> Any:
        names = [f"t{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(operator, list(inputs), names, name=f"/{operator}_{len(self.nodes)}", **attributes))
        for name in names:
            self.channels[name] = channels or self.channels.get(inputs[0], 0)
        return names[0] if outputs == 1 else names

    def conv(
        self,
        x: str,
        filters: int,
        size: int = 1,
        stride: int = 1,
        groups: int = 1,
        act: str = "",
        bn: bool = False,
        pads: Sequence[int] | None = None,
        bias: bool = True,
        largest: float = 1.0,
    ) -> str:
        """Add a convolution. largest: of the values that are read."""
        inputs = self.channels[x] // groups
        deviation = ((RELU if act else LINEAR) / (inputs * size * size)) ** 0.5 / largest
        weights = self.constant(self.random.normal(0, deviation, (filters, inputs, size, size)))
        operands = [x, weights] + ([self.constant(self.random.normal(0, BIAS, filters))] if bias and not bn else [])
        x = self.node(
            "Conv",
            operands,
            filters,
            kernel_shape=[size, size],
            strides=[stride, stride],
            group=groups,
            pads=list(pads) if pads is not None else [size // 2] * 4,
        )
        if bn:
            r = self.random
            x = self.node(
                "BatchNormalization",
                [
                    x,
                    self.constant(r.uniform(0.75, 1.25, filters)),
                    self.constant(r.normal(0, BIAS, filters)),
                    self.constant(r.normal(0, 0.1, filters)),
                    self.constant(r.uniform(0.75, 1.25, filters)),
                ],
                filters,
                epsilon=1e-3,
            )
        return self.act(x, act)

    def act(self, x: str, act: str) -> str:
        if act == "silu":
            return self.node("Mul", [x, self.node("Sigmoid", [x])])
        if act == "relu6":
            return self.node("Clip", [x, self.constant(0.0), self.constant(6.0)])
        if act == "leaky":
            return self.node("LeakyRelu", [x], alpha=0.1)
        return self.node(act, [x]) if act else x

    def concat(self, tensors: Sequence[str], axis: int = 1) -> str:
        return self.node("Concat", tensors, sum(self.channels[x] for x in tensors), axis=axis)

    def pool(self, x: str, size: int, stride: int, pad: int) -> str:
        return self.node("MaxPool", [x], kernel_shape=[size, size], strides=[stride, stride], pads=[pad] * 4)

    def upsample(self, x: str) -> str:
        return self.node(
            "Resize",
            [x, "", self.constant([1, 1, 2, 2])],
            mode="nearest",
            nearest_mode="floor",
            coordinate_transformation_mode="asymmetric",
        )

    def reshape(self, x: str, shape: Sequence[int]) -> str:
        return self.node("Reshape", [x, self.constant(shape, np.int64)])

    def model(self, outputs: Sequence[str], metadata: dict[str, str] | None = None) -> onnx.ModelProto:
        values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in outputs]
        shape = [1, self.channels["images"], self.side, self.side]
        graph = helper.make_graph(
            self.nodes, "net", [helper.make_tensor_value_info("images", onnx.TensorProto.FLOAT, shape)], values, self.constants
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        helper.set_model_props(model, metadata or {})
        return model


def _bottleneck(b: Builder, x: str, act: str, add: bool) -> str:
    channels = b.channels[x]
    y = b.conv(b.conv(x, channels, 3, act=act), channels, 3, act=act)
    return b.node("Add", [x, y]) if add else y


def _c2f(b: Builder, x: str, filters: int, count: int, act: str, add: bool) -> str:
    branches = b.node("Split", [b.conv(x, filters, act=act), b.constant([filters // 2] * 2, np.int64)], filters // 2, 2, axis=1)
    for _ in range(count):
        branches.append(_bottleneck(b, branches[-1], act, add))
    return b.conv(b.concat(branches), filters, act=act)


def _sppf(b: Builder, x: str, filters: int, act: str) -> str:
    pooled = [b.conv(x, b.channels[x] // 2, act=act)]
    for _ in range(3):
        pooled.append(b.pool(pooled[-1], 5, 1, 2))
    return b.conv(b.concat(pooled), filters, act=act)


def yolov8n(side: int = 64, act: str = "silu", classes: int = 80, tail: bool = True, w: int = 16) -> onnx.ModelProto:
    """Build Ultralytics' YOLOv8n as its exporter writes it, batch norm folded; w: width of the first layer."""
    b = Builder(side)
    x = b.conv("images", w, 3, 2, act=act)
    x = _c2f(b, b.conv(x, 2 * w, 3, 2, act=act), 2 * w, 1, act, True)
    p3 = _c2f(b, b.conv(x, 4 * w, 3, 2, act=act), 4 * w, 2, act, True)
    p4 = _c2f(b, b.conv(p3, 8 * w, 3, 2, act=act), 8 * w, 2, act, True)
    x = _c2f(b, b.conv(p4, 16 * w, 3, 2, act=act), 16 * w, 1, act, True)
    p5 = _sppf(b, x, 16 * w, act)
    p4 = _c2f(b, b.concat([b.upsample(p5), p4]), 8 * w, 1, act, False)
    n3 = _c2f(b, b.concat([b.upsample(p4), p3]), 4 * w, 1, act, False)
    n4 = _c2f(b, b.concat([b.conv(n3, 4 * w, 3, 2, act=act), p4]), 8 * w, 1, act, False)
    n5 = _c2f(b, b.concat([b.conv(n4, 8 * w, 3, 2, act=act), p5]), 16 * w, 1, act, False)
    levels = []
    for x in (n3, n4, n5):
        box, kinds = max(16, w, 64), max(4 * w, min(classes, 100))
        boxes = b.conv(b.conv(b.conv(x, box, 3, act=act), box, 3, act=act), 64)
        scores = b.conv(b.conv(b.conv(x, kinds, 3, act=act), kinds, 3, act=act), classes)
        levels.append(b.concat([boxes, scores]))
    metadata = {"names": str({i: f"thing {i}" for i in range(classes)}), "stride": "32"}
    if not tail:
        return b.model(levels, metadata)
    return b.model([_tail_v8(b, levels, classes)], metadata)


def _grid(side: int, stride: int) -> NDArray[np.float32]:
    cells = side // stride
    return np.stack(np.meshgrid(np.arange(cells), np.arange(cells)), 0).astype(np.float32)


def _tail_v8(b: Builder, levels: Sequence[str], classes: int) -> str:
    strides = (8, 16, 32)
    predictions = b.node("Concat", [b.reshape(x, [1, 64 + classes, -1]) for x in levels], axis=2)
    boxes, scores = b.node("Split", [predictions, b.constant([64, classes], np.int64)], 1, 2, axis=1)
    cells = sum((b.side // s) ** 2 for s in strides)
    bins = b.node("Transpose", [b.reshape(boxes, [1, 4, 16, cells])], perm=[0, 2, 1, 3])
    arange = b.constant(np.arange(16).reshape(1, 16, 1, 1))
    distance = b.reshape(b.node("Conv", [b.node("Softmax", [bins], axis=1), arange]), [1, 4, cells])
    left_top, right_bottom = b.node("Split", [distance, b.constant([2, 2], np.int64)], 1, 2, axis=1)
    points = b.constant(np.concatenate([_grid(b.side, s).reshape(2, -1) + 0.5 for s in strides], 1)[None])
    low, high = b.node("Sub", [points, left_top]), b.node("Add", [points, right_bottom])
    centre = b.node("Div", [b.node("Add", [low, high]), b.constant(2.0)])
    xywh = b.node("Concat", [centre, b.node("Sub", [high, low])], axis=1)
    scale = b.constant(np.concatenate([np.full((b.side // s) ** 2, s) for s in strides])[None, None])
    return b.node("Concat", [b.node("Mul", [xywh, scale]), b.node("Sigmoid", [scores])], axis=1)


def _c3(b: Builder, x: str, filters: int, count: int, add: bool = True) -> str:
    hidden, act = filters // 2, "silu"
    y = b.conv(x, hidden, act=act)
    for _ in range(count):
        z = b.conv(b.conv(y, hidden, act=act), hidden, 3, act=act)
        y = b.node("Add", [y, z]) if add else z
    return b.conv(b.concat([y, b.conv(x, hidden, act=act)]), filters, act=act)


def _tail_v5(b: Builder, levels: Sequence[str], anchors: NDArray[np.float32], classes: int) -> str:
    predictions = []
    for x, stride, level_anchors in zip(levels, (8, 16, 32)[-len(levels) :], anchors, strict=True):
        cells = b.side // stride
        shaped = b.reshape(x, [1, len(level_anchors), 5 + classes, cells, cells])
        y = b.node("Sigmoid", [b.node("Transpose", [shaped], perm=[0, 1, 3, 4, 2])])
        xy, wh, scores = b.node("Split", [y, b.constant([2, 2, classes + 1], np.int64)], 1, 3, axis=4)
        grid = b.constant(_grid(b.side, stride).transpose(1, 2, 0)[None, None] - 0.5)
        xy = b.node("Mul", [b.node("Add", [b.node("Mul", [xy, b.constant(2.0)]), grid]), b.constant(float(stride))])
        wh = b.node("Pow", [b.node("Mul", [wh, b.constant(2.0)]), b.constant(2.0)])
        wh = b.node("Mul", [wh, b.constant(level_anchors.reshape(1, -1, 1, 1, 2))])
        predictions.append(b.reshape(b.node("Concat", [xy, wh, scores], axis=4), [1, -1, 5 + classes]))
    return b.node("Concat", predictions, axis=1) if len(predictions) > 1 else predictions[0]


ANCHORS = np.array(
    [[[10, 13], [16, 30], [33, 23]], [[30, 61], [62, 45], [59, 119]], [[116, 90], [156, 198], [373, 326]]], np.float32
)


def yolov5n(side: int = 64, classes: int = 80, w: int = 16) -> onnx.ModelProto:
    """Build Ultralytics' YOLOv5n, release 6."""
    b, act = Builder(side, 1), "silu"
    x = b.conv("images", w, 6, 2, act=act, pads=[2] * 4)
    x = _c3(b, b.conv(x, 2 * w, 3, 2, act=act), 2 * w, 1)
    p3 = _c3(b, b.conv(x, 4 * w, 3, 2, act=act), 4 * w, 2)
    p4 = _c3(b, b.conv(p3, 8 * w, 3, 2, act=act), 8 * w, 3)
    x = _sppf(b, _c3(b, b.conv(p4, 16 * w, 3, 2, act=act), 16 * w, 1), 16 * w, act)
    h5 = b.conv(x, 8 * w, act=act)
    h4 = b.conv(_c3(b, b.concat([b.upsample(h5), p4]), 8 * w, 1, False), 4 * w, act=act)
    n3 = _c3(b, b.concat([b.upsample(h4), p3]), 4 * w, 1, False)
    n4 = _c3(b, b.concat([b.conv(n3, 4 * w, 3, 2, act=act), h4]), 8 * w, 1, False)
    n5 = _c3(b, b.concat([b.conv(n4, 8 * w, 3, 2, act=act), h5]), 16 * w, 1, False)
    return b.model([_tail_v5(b, [b.conv(x, 3 * (5 + classes)) for x in (n3, n4, n5)], ANCHORS, classes)])


def yolov3_tiny(side: int = 64, classes: int = 80, w: int = 16) -> onnx.ModelProto:
    """Build YOLOv3-tiny in Ultralytics' form: batch norm of its own, LeakyReLU 0.1, two heads."""
    b = Builder(side, 2)
    x, p4 = "images", ""
    for filters in (w, 2 * w, 4 * w, 8 * w, 16 * w):
        p4 = x = b.conv(x, filters, 3, act="leaky", bn=True)
        x = b.pool(x, 2, 2, 0)
    x = b.conv(x, 32 * w, 3, act="leaky", bn=True)
    padded = b.node("Pad", [x, b.constant([0, 0, 0, 0, 0, 0, 1, 1], np.int64)])
    x = b.node("MaxPool", [padded], kernel_shape=[2, 2], strides=[1, 1])
    x = b.conv(b.conv(x, 64 * w, 3, act="leaky", bn=True), 16 * w, act="leaky", bn=True)
    coarse_head = b.conv(b.conv(x, 32 * w, 3, act="leaky", bn=True), 3 * (5 + classes))
    upsampled = b.upsample(b.conv(x, 8 * w, act="leaky", bn=True))
    fine_head = b.conv(b.conv(b.concat([upsampled, p4]), 16 * w, 3, act="leaky", bn=True), 3 * (5 + classes))
    return b.model([_tail_v5(b, [fine_head, coarse_head], ANCHORS[:2], classes)])


def yolox_nano(side: int = 64, classes: int = 80, decode: bool = True) -> onnx.ModelProto:
    """Build Megvii's YOLOX-nano: focus, depthwise convolutions, decoupled heads."""
    b, act = Builder(side, 3), "silu"

    def dw(x: str, filters: int, size: int = 3, stride: int = 1) -> str:
        return b.conv(b.conv(x, b.channels[x], size, stride, b.channels[x], act), filters, act=act)

    def csp(x: str, filters: int, count: int, add: bool = True) -> str:
        y = b.conv(x, filters // 2, act=act)
        for _ in range(count):
            z = dw(b.conv(y, filters // 2, act=act), filters // 2)
            y = b.node("Add", [z, y]) if add else z
        return b.conv(b.concat([y, b.conv(x, filters // 2, act=act)]), filters, act=act)

    slices = []
    for x0, y0 in ((0, 0), (0, 1), (1, 0), (1, 1)):
        rows = b.node("Slice", ["images", *(b.constant([v], np.int64) for v in (y0, 1 << 40, 2, 2))], 3)
        slices.append(b.node("Slice", [rows, *(b.constant([v], np.int64) for v in (x0, 1 << 40, 3, 2))], 3))
    x = b.conv(b.concat(slices), 16, 3, act=act, largest=255)
    x = csp(dw(x, 32, stride=2), 32, 1)
    p3 = csp(dw(x, 64, stride=2), 64, 3)
    p4 = csp(dw(p3, 128, stride=2), 128, 3)
    x = b.conv(dw(p4, 256, stride=2), 128, act=act)
    x = b.conv(b.concat([x, *(b.pool(x, size, 1, size // 2) for size in (5, 9, 13))]), 256, act=act)
    x = csp(x, 256, 1, False)
    h5 = b.conv(x, 128, act=act)
    h4 = b.conv(csp(b.concat([b.upsample(h5), p4]), 128, 1, False), 64, act=act)
    n3 = csp(b.concat([b.upsample(h4), p3]), 64, 1, False)
    n4 = csp(b.concat([dw(n3, 64, stride=2), h4]), 128, 1, False)
    n5 = csp(b.concat([dw(n4, 128, stride=2), h5]), 256, 1, False)
    levels, grids = [], []
    for x, stride in ((n3, 8), (n4, 16), (n5, 32)):
        stem = b.conv(x, 64, act=act)
        kinds, boxes = (dw(dw(stem, 64), 64) for _ in range(2))
        branches = [b.conv(boxes, 4), b.node("Sigmoid", [b.conv(boxes, 1)]), b.node("Sigmoid", [b.conv(kinds, classes)])]
        levels.append(b.reshape(b.concat(branches), [1, 5 + classes, -1]))
        grids.append((_grid(side, stride).reshape(2, -1).T, stride))
    predictions = b.node("Transpose", [b.node("Concat", levels, axis=2)], perm=[0, 2, 1])
    if not decode:
        return b.model([predictions])
    grid = b.constant(np.concatenate([g for g, _ in grids])[None])
    scale = b.constant(np.concatenate([np.full((len(g), 1), s) for g, s in grids])[None])
    xy, wh, scores = b.node("Split", [predictions, b.constant([2, 2, 1 + classes], np.int64)], 1, 3, axis=2)
    xy = b.node("Mul", [b.node("Add", [xy, grid]), scale])
    return b.model([b.node("Concat", [xy, b.node("Mul", [b.node("Exp", [wh]), scale]), scores], axis=2)])


def _inverted(b: Builder, x: str, filters: int, stride: int, expand: int, act: str = "relu6", size: int = 3) -> str:
    y = b.conv(x, b.channels[x] * expand, act=act, bn=True) if expand > 1 else x
    y = b.conv(y, b.channels[y], size, stride, b.channels[y], act, True)
    y = b.conv(y, filters, bn=True)
    return b.node("Add", [x, y]) if stride == 1 and b.channels[x] == filters else y


def mobilenet_v2_ssdlite(side: int = 192, classes: int = 21) -> onnx.ModelProto:
    """Build MobileNetV2 with SSDLite heads on four grids; boxes decoded to corners."""
    b = Builder(side, 4)
    x = b.conv("images", 32, 3, 2, act="relu6", bn=True)
    x, features = _inverted(b, x, 16, 1, 1), []
    for expand, filters, count, stride in (
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for number in range(count):
            if filters == 160 and number == 0:
                features.append(b.conv(x, b.channels[x] * 6, act="relu6", bn=True))
            x = _inverted(b, x, filters, stride if number == 0 else 1, expand)
    features.append(b.conv(x, 1280, act="relu6", bn=True))
    for filters in (512, 256):
        x = b.conv(features[-1], filters // 2, act="relu6", bn=True)
        x = b.conv(x, filters // 2, 3, 2, filters // 2, "relu6", True)
        features.append(b.conv(x, filters, act="relu6", bn=True))
    boxes, scores, priors = [], [], []
    cells = (12, 6, 3, 2)
    for x, grid, scale in zip(features, cells, (0.2, 0.45, 0.7, 0.95), strict=True):
        sizes = np.array([[scale, scale], [scale * 1.4, scale * 0.7], [scale * 0.7, scale * 1.4]])
        for kind, values in ((boxes, 4), (scores, classes)):
            y = b.conv(b.conv(x, b.channels[x], 3, 1, b.channels[x], "relu6", True), 3 * values)
            kind.append(b.reshape(b.node("Transpose", [y], perm=[0, 2, 3, 1]), [1, -1, values]))
        middle = (np.stack(np.meshgrid(np.arange(grid), np.arange(grid)), -1).reshape(-1, 1, 2) + 0.5) / grid
        priors.append(np.concatenate([np.repeat(middle, 3, 1), np.broadcast_to(sizes, (grid * grid, 3, 2))], -1).reshape(-1, 4))
    prior_boxes = np.concatenate(priors)[None]
    raw, logits = b.node("Concat", boxes, axis=1), b.node("Concat", scores, axis=1)
    xy, wh = b.node("Split", [raw, b.constant([2, 2], np.int64)], 1, 2, axis=2)
    centre, size = b.constant(prior_boxes[..., :2]), b.constant(prior_boxes[..., 2:])
    xy = b.node("Add", [b.node("Mul", [b.node("Mul", [xy, b.constant(0.1)]), size]), centre])
    wh = b.node("Mul", [b.node("Exp", [b.node("Mul", [wh, b.constant(0.2)])]), size])
    half_size = b.node("Div", [wh, b.constant(2.0)])
    corners = b.node("Concat", [b.node("Sub", [xy, half_size]), b.node("Add", [xy, half_size])], axis=2)
    return b.model([b.node("Softmax", [logits], axis=2), corners])


def mobilenet_v3_small(side: int = 64, classes: int = 10) -> onnx.ModelProto:
    """Build torchvision's MobileNetV3-small: hard swish, squeeze and excitation with a hard sigmoid."""
    b = Builder(side, 5)
    x = b.conv("images", 16, 3, 2, act="HardSwish", bn=True)
    for size, wide, filters, squeeze, act, stride in (
        (3, 16, 16, True, "Relu", 2),
        (3, 72, 24, False, "Relu", 2),
        (3, 88, 24, False, "Relu", 1),
        (5, 96, 40, True, "HardSwish", 2),
        (5, 240, 40, True, "HardSwish", 1),
        (5, 120, 48, True, "HardSwish", 1),
        (5, 288, 96, True, "HardSwish", 2),
        (5, 576, 96, True, "HardSwish", 1),
    ):
        y = b.conv(x, wide, act=act, bn=True) if wide != b.channels[x] else x
        y = b.conv(y, wide, size, stride, wide, act, True)
        if squeeze:
            gate = b.conv(b.node("GlobalAveragePool", [y]), wide // 4, act="Relu")
            gate = b.node("HardSigmoid", [b.conv(gate, wide)], alpha=1 / 6, beta=0.5)
            y = b.node("Mul", [gate, y], wide)
        y = b.conv(y, filters, bn=True)
        x = b.node("Add", [y, x]) if stride == 1 and b.channels[x] == filters else y
    x = b.node("GlobalAveragePool", [b.conv(x, 576, act="HardSwish", bn=True)])
    x = b.node("Flatten", [x], axis=1)
    return b.model([_dense(b, b.node("HardSwish", [_dense(b, x, 64)]), classes)])


def _dense(b: Builder, x: str, outputs: int) -> str:
    inputs = b.channels[x]
    weights = b.constant(b.random.normal(0, (2 / inputs) ** 0.5, (outputs, inputs)))
    return b.node("Gemm", [x, weights, b.constant(b.random.normal(0, 0.1, outputs))], outputs, transB=1)


def efficientnet_lite0(side: int = 64, classes: int = 10) -> onnx.ModelProto:
    """Build EfficientNet-Lite0 with TensorFlow's padding, which is one more behind than before at stride 2."""
    b = Builder(side, 6)

    def conv_same(x: str, filters: int, size: int, stride: int, groups: int, act: str) -> str:
        pads = [size // 2] * 4 if stride == 1 else [(size - 2) // 2] * 2 + [(size - 1) // 2] * 2
        return b.conv(x, filters, size, stride, groups, act, True, pads)

    x = conv_same("images", 32, 3, 2, 1, "relu6")
    for expand, filters, count, stride, size in (
        (1, 16, 1, 1, 3),
        (6, 24, 2, 2, 3),
        (6, 40, 2, 2, 5),
        (6, 80, 3, 2, 3),
        (6, 112, 3, 1, 5),
        (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    ):
        for number in range(count):
            block_stride = stride if number == 0 else 1
            wide = b.channels[x] * expand
            y = b.conv(x, wide, act="relu6", bn=True) if expand > 1 else x
            y = b.conv(conv_same(y, wide, size, block_stride, wide, "relu6"), filters, bn=True)
            x = b.node("Add", [y, x]) if block_stride == 1 and b.channels[x] == filters else y
    x = b.node("ReduceMean", [b.conv(x, 1280, act="relu6", bn=True)], axes=[2, 3], keepdims=0)
    return b.model([b.node("Softmax", [_dense(b, x, classes)], axis=1)])


def resnet18(side: int = 64, classes: int = 10) -> onnx.ModelProto:
    """Build torchvision's ResNet-18."""
    b = Builder(side, 7)
    x = b.pool(b.conv("images", 64, 7, 2, act="Relu", bn=True), 3, 2, 1)
    for filters in (64, 128, 256, 512):
        for number in range(2):
            stride = 2 if filters > 64 and number == 0 else 1
            y = b.conv(b.conv(x, filters, 3, stride, act="Relu", bn=True), filters, 3, bn=True)
            shortcut = b.conv(x, filters, 1, stride, bn=True) if stride == 2 else x
            x = b.node("Relu", [b.node("Add", [y, shortcut])])
    return b.model([_dense(b, b.node("Flatten", [b.node("GlobalAveragePool", [x])], axis=1), classes)])


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "yolov8n": yolov8n,
    "yolov8n-relu": lambda: yolov8n(act="Relu"),
    "yolov5n": yolov5n,
    "yolox-nano": yolox_nano,
    "yolox-nano-raw": lambda: yolox_nano(decode=False),
    "yolov3-tiny": yolov3_tiny,
    "mobilenetv2-ssdlite": mobilenet_v2_ssdlite,
    "mobilenetv3-small": mobilenet_v3_small,
    "efficientnet-lite0": efficientnet_lite0,
    "resnet-18": resnet18,
}
# Whose tests are slow.
LARGE_MODELS = ("yolov3-tiny", "resnet-18")
