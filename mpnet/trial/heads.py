"""What a network finds: its heads as decoding takes them, the names of its classes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mpnet.detection.decode import YoloHead
from mpnet.detection.decoders import ImportedHead
from mpnet.detection.other_heads import OtherHead
from mpnet.errors import ConfigError
from mpnet.spec.layers import DecodedSpec, DetectionSpec, GaussianYoloSpec, RegionSpec, YoloSpec
from mpnet.spec.network import NetworkSpec

if TYPE_CHECKING:
    from mpnet.spec.experiment import DataSection


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
        # A quarter of the picture: decoding multiplies the square of a side by 4.
        return YoloHead(((width / 4, height / 4),) * layer.boxes, layer.classes, width, height, other=other)
    return YoloHead(layer.head_anchors, layer.classes, width, height, layer.scale_x_y, layer.new_coords)


def class_names(spec: NetworkSpec, path: str | Path | None, data: DataSection | None = None) -> tuple[str, ...]:
    """One name per class of the network: of the file, else as the data set's own file has them, else made up.

    Raises: ConfigError when there is another number of names.
    """
    classes = spec.classes
    if path is None and data is not None:
        from mpnet.evaluation.dataset import names_in

        given = names_in(data)
        if given is not None and classes and len(given) != classes:
            raise ConfigError(f"{data.labels}: holds {len(given)} names, but {spec.source} has {classes} classes; name its own "
                              "with model.names")
        if given is not None:
            return given
    if path is None:
        return tuple(f"class-{index}" for index in range(classes))
    from mpnet.formats.labels_yolo import read_names

    names = read_names(path)
    if classes and len(names) != classes:
        raise ConfigError(f"{path}: holds {len(names)} names, but {spec.source} has {classes} classes; use its names")
    return names
