# SPDX-License-Identifier: MIT
"""The metadata of a file: TensorFlow Lite's model metadata with the labels, and a block of mpnet's own.

Source: TensorFlow Lite Support's metadata_schema.fbs; the file of labels is a ZIP archive behind the model.
"""

from __future__ import annotations

import io
import zipfile
from typing import Any, Callable, Sequence

import flatbuffers

from mpnet.export.configuration import Configuration
from mpnet.export.description import description, description_json
from mpnet.model.network import NetworkSpec

LABELS = "labels.txt"
_LABELS_OF_VALUES = 3  # AssociatedFileType.TENSOR_VALUE_LABELS
_RGB, _IMAGE, _NORMALISATION = 1, 2, 1
"""ColorSpaceType.RGB; ContentProperties.ImageProperties; ProcessUnitOptions.NormalizationOptions."""


def metadata_of(configuration: Configuration, flavour: str, outputs: Sequence[str]) -> dict[str, bytes]:
    """Return the blocks of metadata by name: TensorFlow Lite's, and a JSON of mpnet's. outputs: names of tensors."""
    described = description_json(description(configuration, flavour, "NHWC", outputs))
    return {"TFLITE_METADATA": _model_metadata(configuration, outputs), "mpnet": described}


def with_labels(model: bytes, names: Sequence[str]) -> bytes:
    """Return the model with its class names behind it, one a line; equal bytes for equal names."""
    if not names:
        return model
    file = io.BytesIO(model)
    with zipfile.ZipFile(file, "a", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo(LABELS), "\n".join(names) + "\n")
    return file.getvalue()


class _Tables:
    """Tables of the metadata schema, by the numbers of their fields."""

    def __init__(self) -> None:
        self.builder = flatbuffers.Builder(1024)

    def table(self, fields: dict[int, tuple[str, Any]]) -> int:
        """Write a table of the schema. fields: number -> (text | table | tables | floats | byte | uint, value)."""
        builder = self.builder
        values = {number: (kind, self._ready(kind, value)) for number, (kind, value) in fields.items()}
        builder.StartObject(max(values) + 1)
        for number, (kind, value) in values.items():
            if kind == "byte":
                builder.PrependInt8Slot(number, value, 0)
            elif kind == "uint":
                builder.PrependUint32Slot(number, value, 0)
            else:
                builder.PrependUOffsetTRelativeSlot(number, value, 0)
        return int(builder.EndObject())

    def _ready(self, kind: str, value: Any) -> Any:
        builder = self.builder
        if kind == "text":
            return builder.CreateString(value)
        if kind in ("tables", "floats"):
            builder.StartVector(4, len(value), 4)
            prepend: Callable[[Any], None] = builder.PrependUOffsetTRelative if kind == "tables" else builder.PrependFloat32
            for item in reversed(value):
                prepend(item)
            return builder.EndVector()
        return value


def _model_metadata(configuration: Configuration, names: Sequence[str]) -> bytes:
    network, tables = configuration.network, _Tables()
    image = tables.table(
        {
            0: ("text", "picture"),
            1: ("text", "RGB, values from 0 to 1"),
            3: ("table", _image(tables, network)),
            4: ("tables", [_from_bytes(tables)]),
        }
    )
    outputs = []
    for output in names:
        labels = {}
        if configuration.names:
            labels = {
                6: ("tables", [tables.table({0: ("text", LABELS), 1: ("text", "class names"), 2: ("byte", _LABELS_OF_VALUES)})])
            }
        outputs.append(tables.table({0: ("text", output), **labels}))
    graph = tables.table({0: ("text", "main"), 2: ("tables", [image]), 3: ("tables", outputs)})
    name = str(configuration.document.get("name") or "mpnet")
    root = tables.table({0: ("text", name), 3: ("tables", [graph]), 7: ("text", "1.0.0")})
    tables.builder.Finish(root, file_identifier=b"M001")
    return bytes(tables.builder.Output())


def _image(tables: _Tables, network: NetworkSpec) -> int:
    size = tables.table({0: ("uint", network.width), 1: ("uint", network.height)})
    properties = tables.table({0: ("byte", _RGB if network.channels == 3 else 0), 1: ("table", size)})
    return tables.table({0: ("byte", _IMAGE), 1: ("table", properties)})


def _from_bytes(tables: _Tables) -> int:
    """Describe that bytes of an image become (byte - 0) / 255."""
    options = tables.table({0: ("floats", [0.0]), 1: ("floats", [255.0])})
    return tables.table({0: ("byte", _NORMALISATION), 1: ("table", options)})
