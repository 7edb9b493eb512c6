# SPDX-License-Identifier: MIT
"""ncnn: layers as text, weights as bytes, and a JSON that says how to use them. docs/export-ncnn.md says how and why."""

from __future__ import annotations

from typing import Mapping

from mpnet.export import Exported, Target
from mpnet.export.configuration import Configuration
from mpnet.export.description import description, description_json
from mpnet.export.ncnn.rules import support
from mpnet.export.ncnn.write import NcnnExport


def _write(configuration: Configuration, flavour: str, options: Mapping[str, object]) -> Exported:
    export = NcnnExport(configuration)
    files, outputs = export.files, export.outputs
    described = description(configuration, flavour, "CHW", list(outputs))
    return Exported(
        {".param": files.param(outputs), ".bin": files.bin(), ".json": description_json(described)}, {}, export.layers
    )


TARGET = Target("ncnn", ".param", _write, support=support)
