# SPDX-License-Identifier: MIT
"""What a result.json holds; checked where it is read, so that nothing behind has to."""

from __future__ import annotations

from mpnet.config.identity import ID_DIGITS
from mpnet.config.measures import AGREEMENT, counted, names_of
from mpnet.config.measures import DEPLOYED as DEPLOYED_
from mpnet.errors import StoreError
from mpnet.formats.documents.json_text import DocumentFormat
from mpnet.formats.documents.schema import Fields, Many, Maybe, Named, Text, Within

KEY = Text(r"\w{0,4096}(\+[0-9]{1,6}:\w(,[0-9]{1,6}:\w)*)?", "a precision string, such as fqqh")
DECIBELS = Within(-10_000, 10_000)
LAYER = Fields(
    {"index": int},
    {
        "type": str,
        "name": str,
        "selectors": Many(str),
        "precision": str,
        "conversions": Many(str),
        "shape": Many(int),
        "macs": int,
        "parameters": int,
        "weight_bytes": float,
        "activation_bytes": float,
    },
)
AGREED = Fields(
    {"baseline": str, "head_sqnr_db": Many(Maybe(DECIBELS))},
    {name.removeprefix(AGREEMENT): Maybe(float) for name in names_of("agreement")},
)
LATENCY = Fields(
    {"isa": str, "threads": int, "median_ms": float},
    {
        "min_ms": float,
        "images": int,
        "cpu": str,
        "low_ms": float,
        "high_ms": float,
        "doubt": str,
        "steps": Many(Fields({}, {"step": str, "layer": Maybe(int), "ms": Maybe(float)})),
    },
)
PROTOCOL = Fields(
    {"dataset": str, "images": int, "batch_norm": str},
    {
        "boxes": int,
        "unlabelled": int,
        "condition": str,
        "resize": str,
        "confidence": float,
        "nms": float,
        "nms_kind": Maybe(str),
        "task": str,
        "classes": int,
        "max_detections": Maybe(int),
        "quantization": Maybe(dict),
        "metric": str,
        "input": Many(int),
    },
)
CLASS = Fields({"id": int, "name": str, "truths": int}, dict.fromkeys((*names_of("accuracy"), "darknet_AP50"), float))
COST = Fields(
    {"macs": float, **{row.name: float for row in counted() if not row.optional}},
    {row.name: float for row in counted() if row.optional},
)
PLACEMENT = Fields({"index": int, "name": str, "asked": str, "written": str, "executed": str, "why": str}, {"ms": Maybe(float)})
DEPLOYED = Fields(
    {"engine": str, "version": str, "reference": str, "layers": Many(PLACEMENT)},
    dict.fromkeys(
        (
            *(name.removeprefix(DEPLOYED_) for name in names_of("deployed")),
            *("head_error", "mpnet_latency_ms", "fp32_latency_ms", "int8_latency_ms"),
        ),
        Maybe(float),
    ),
)
CALIBRATION = Fields({"count": int, "seed": int}, {"images": str})
RESULT = DocumentFormat(
    "mpnet-result",
    1,
    "result of mpnet",
    "run the experiment again, with --force if need be",
    64 << 20,
    {
        "name": str,
        "id": Text(rf"[0-9a-f]{{{ID_DIGITS}}}", "the first digits of a digest"),
        "digests": Named(Maybe(str)),
        "protocol": PROTOCOL,
        "precision": Fields({"key": KEY}, {"layers": Many(LAYER)}),
        "metrics": Named(float),
        "per_class": Many(CLASS),
        "cost": COST,
        "versions": Named(Maybe(str)),
    },
    StoreError,
    {
        "created": str,
        "command": str,
        "agreement": Maybe(AGREED),
        "latency": Maybe(LATENCY),
        "sources": Maybe(Named(str)),
        "notes": Many(str),
        "selection": Maybe(Named(float)),
        "held_out": Maybe(Named(float)),
        "calibration": Maybe(CALIBRATION),
        "deployed": DEPLOYED,
    },
)
"""docs/architecture.md describes the sections."""
