# SPDX-License-Identifier: MIT
"""The description that travels with an exported file, whatever its format: how images enter, how results are read, origin."""

from __future__ import annotations

import json
from typing import Any, Sequence

from mpnet.export.configuration import Configuration
from mpnet.model.heads import DecodedSpec
from mpnet.model.network import YoloSpec


def description(configuration: Configuration, flavour: str, layout: str, outputs: Sequence[str]) -> dict[str, Any]:
    """Return plain values; equal configurations give equal ones.

    layout: the order of the input's axes. outputs: names of the tensors that leave the file, in the order of the heads.
    """
    network, document = configuration.network, configuration.document
    protocol = document.get("protocol") or {}
    heads = network.yolos or (None,)
    return {
        "names": list(configuration.names),
        "heads": [_head(head, output) for head, output in zip(heads, outputs, strict=True)],
        "input": {
            "name": "picture",
            "layout": layout,
            "width": network.width,
            "height": network.height,
            "channels": network.channels,
            "values": "0 to 1, RGB",
            "resize": protocol.get("resize", network.resize),
        },
        "thresholds": {key: protocol[key] for key in ("confidence", "nms", "nms_kind") if key in protocol},
        "precision": configuration.precisions.key,
        "flavour": flavour,
        **configuration.operating_point,
        "origin": {
            "name": document.get("name", ""),
            "digests": dict(document.get("digests") or {}),
            "metrics": dict(document.get("metrics") or {}),
            "quantization": protocol.get("quantization", {}),
        },
    }


def description_json(described: dict[str, Any]) -> bytes:
    """Return the description as JSON in UTF-8, the same bytes for the same values."""
    return (json.dumps(described, sort_keys=True, ensure_ascii=False, allow_nan=False, indent=1) + "\n").encode()


def _head(head: YoloSpec | None, output: str) -> dict[str, Any]:
    if head is None:
        return {"output": output}
    return {
        "output": output,
        "kind": head.kind,
        "anchors": [list(anchor) for anchor in head.head_anchors],
        "classes": head.classes,
        "scale_x_y": head.scale_x_y,
        "new_coords": head.new_coords,
        **(head.decoding if isinstance(head, DecodedSpec) else {}),
    }
