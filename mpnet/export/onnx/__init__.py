# SPDX-License-Identifier: MIT
"""ONNX: the plan with its conversions, precisions, ranges and weight codes, as one engine or the other wants it written.

`onnx` itself is imported when something is written.
"""

from __future__ import annotations

from typing import Mapping

from mpnet.export import Configuration, Exported, Option, Target
from mpnet.export.onnx.rules import FLAVOURS
from mpnet.export.onnx.support import support
from mpnet.packages import requirements


def _write(configuration: Configuration, flavour: str, options: Mapping[str, object]) -> Exported:
    from mpnet.export.onnx.model import write

    return write(configuration, flavour, with_boxes=bool(options.get("with_boxes")))


TARGET = Target(
    "ONNX, quantised with QuantizeLinear and DequantizeLinear",
    ".onnx",
    _write,
    packages=requirements("onnx"),
    extra="onnx",
    flavours=FLAVOURS,
    support=support,
    options=(Option("with_boxes", "Decode boxes and suppress overlaps in the file itself."),),
    precisions={name: rules.precisions for name, rules in FLAVOURS.items()},
)
