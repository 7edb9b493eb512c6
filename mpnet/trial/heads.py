"""What a network detects: its heads as decoding takes them, the names of its classes."""

from __future__ import annotations

from pathlib import Path

from mpnet.detection.decode import YoloHead
from mpnet.errors import ConfigError
from mpnet.spec.network import NetworkSpec


def yolo_heads(network: NetworkSpec) -> tuple[YoloHead, ...]:
    """What decoding needs of every yolo layer, in order."""
    return tuple(
        YoloHead(yolo.head_anchors, yolo.classes, network.width, network.height, yolo.scale_x_y, yolo.new_coords)
        for yolo in network.yolos
    )


def class_names(spec: NetworkSpec, path: str | Path | None) -> tuple[str, ...]:
    """One name per class of the network. Raises: ConfigError when the file holds another number of names."""
    classes = spec.yolos[-1].classes if spec.yolos else 0
    if path is None:
        return tuple(f"class-{index}" for index in range(classes))
    from mpnet.formats.labels_yolo import read_names

    names = read_names(path)
    if spec.yolos and len(names) != classes:
        raise ConfigError(f"{path}: holds {len(names)} names, but {spec.source} has {classes} classes; use its names")
    return names
