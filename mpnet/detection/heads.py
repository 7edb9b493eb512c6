# SPDX-License-Identifier: MIT
"""The heads of a network as decoding takes them."""

from __future__ import annotations

from mpnet.detection.decode import YoloHead
from mpnet.detection.decoders import ImportedHead
from mpnet.detection.other_heads import OtherHead
from mpnet.model.layers import DecodedSpec, DetectionSpec, GaussianYoloSpec, RegionSpec, YoloSpec
from mpnet.model.network import NetworkSpec


def yolo_heads(network: NetworkSpec) -> tuple[YoloHead, ...]:
    """What decoding needs of every yolo layer, in order."""
    return tuple(_head(network, yolo) for yolo in network.yolos)


def _head(network: NetworkSpec, layer: YoloSpec) -> YoloHead:
    width, height = network.width, network.height
    if isinstance(layer, RegionSpec):
        by = "tree" if layer.tree else "softmax" if layer.softmax else "nothing" if layer.raw_classes else "logistic"
        other = OtherHead("region", layer.classes, by, layer.tree, layer.map, background=layer.background)
        rows, columns, _ = layer.in_shape
        anchors = tuple((w * width / columns, h * height / rows) for w, h in layer.head_anchors)
        return YoloHead(anchors, layer.scored_classes, width, height, other=other)
    if isinstance(layer, GaussianYoloSpec):
        other = OtherHead("gaussian", layer.classes, point=layer.point)
        return YoloHead(layer.head_anchors, layer.classes, width, height, layer.scale_x_y, other=other)
    if isinstance(layer, DecodedSpec):
        imported = ImportedHead(layer, width, height)
        return YoloHead(imported.anchors, layer.classes, width, height, other=imported)
    if isinstance(layer, DetectionSpec):
        by = "softmax" if layer.softmax else "nothing"
        other = OtherHead("detection", layer.classes, by, side=layer.side, boxes=layer.boxes, root=layer.root)
        # A quarter of the image: decoding multiplies the square of a side by 4.
        return YoloHead(((width / 4, height / 4),) * layer.boxes, layer.classes, width, height, other=other)
    return YoloHead(layer.head_anchors, layer.classes, width, height, layer.scale_x_y, layer.new_coords)
