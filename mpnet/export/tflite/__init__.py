# SPDX-License-Identifier: MIT
"""TensorFlow Lite: for LiteRT, and through ArmNN's parser for its backends. docs/export-tflite.md says how and why."""

from __future__ import annotations

from typing import Any, Mapping

from mpnet.export import Exported, Option, Target
from mpnet.export.configuration import Configuration
from mpnet.export.tflite.rules import FLAVOURS, support
from mpnet.packages import requirements


def _write(configuration: Configuration, flavour: str, options: Mapping[str, Any]) -> Exported:
    # The schema is imported when something is written.
    from mpnet.export.tflite.integer import IntegerExport
    from mpnet.export.tflite.metadata import metadata_of, with_labels
    from mpnet.export.tflite.write import TfliteExport

    rules = FLAVOURS[flavour]
    export = (
        IntegerExport(configuration, rules)
        if configuration.is_integer_only
        else TfliteExport(configuration, rules, options.get("sums", {}))
    )
    graph = export.graph
    metadata = metadata_of(configuration, flavour, [graph.name(output) for output in export.outputs])
    content = graph.content([export.input], export.outputs, "mpnet", metadata)
    return Exported({".tflite": with_labels(content, configuration.names)}, {"flavour": flavour}, export.layers)


TARGET = Target(
    "TensorFlow Lite",
    ".tflite",
    _write,
    packages=requirements("ai-edge-litert", "flatbuffers"),
    extra="litert",
    flavours=FLAVOURS,
    support=support,
    options=(Option("sums"),),
    integer_only=("integer",),
    precisions={name: rules.precisions for name, rules in FLAVOURS.items()},
)
