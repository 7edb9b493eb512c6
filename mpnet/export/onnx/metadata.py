"""What travels with the file in metadata_props: names, anchors, how pictures enter, thresholds, and where it comes from."""

from __future__ import annotations

import json
from typing import Any, Mapping

from mpnet.export import Configuration
from mpnet.spec.layers import YoloSpec


def metadata(
    configuration: Configuration, flavour: str, outputs: Mapping[int, str], with_boxes: bool
) -> dict[str, str]:
    """Text by name, all of it JSON but what is one word. The same configuration gives the same text.

    outputs: name of the tensor that enters each head, by layer index.
    """
    network, document = configuration.network, configuration.document
    protocol = document.get("protocol") or {}
    found: dict[str, Any] = {
        "names": list(configuration.names),
        "heads": [_head(yolo, outputs) for yolo in network.yolos],
        "input": {
            "name": "picture", "layout": "NCHW", "width": network.width, "height": network.height,
            "channels": network.channels, "values": "0 to 1, RGB", "resize": protocol.get("resize", "stretch"),
        },
        "thresholds": {key: protocol[key] for key in ("confidence", "nms", "nms_kind") if key in protocol},
        "precision": configuration.precisions.key,
        "flavour": flavour,
        "boxes": "centre x, centre y, width, height relative to the input" if with_boxes else "",
        "origin": {
            "name": document.get("name", ""), "digests": _plain(document.get("digests")),
            "metrics": _plain(document.get("metrics")), "quantization": protocol.get("quantization", {}),
        },
    }
    return {key: value if isinstance(value, str) else _json(value) for key, value in found.items()}


def _head(yolo: YoloSpec, outputs: Mapping[int, str]) -> dict[str, Any]:
    return {
        "output": outputs[yolo.index], "anchors": [list(anchor) for anchor in yolo.head_anchors],
        "classes": yolo.classes, "scale_x_y": yolo.scale_x_y, "new_coords": yolo.new_coords,
    }


def _plain(mapping: Mapping[str, Any] | None) -> dict[str, Any]:
    return dict(mapping or {})


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)
