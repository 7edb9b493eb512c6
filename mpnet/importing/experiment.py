# SPDX-License-Identifier: MIT
"""The experiment file that is written beside an imported network."""

from __future__ import annotations

from mpnet.formats.documents.experiment_writer import format_flow, quote
from mpnet.importing.model import Imported
from mpnet.messages import one_line
from mpnet.model.task import CLASSIFICATION


def experiment_text(name: str, imported: Imported) -> str:
    """Write YAML to evaluate it with, images to be filled in."""
    classifier = imported.network.task is CLASSIFICATION
    labels = None if classifier else "labels/"
    data = {"format": "imagefolder" if classifier else "yolo", "images": "images/", "labels": labels}
    files = {key: quote(f"{name}.{key}") for key in ("cfg", "weights", "names")}
    detection = {"resize": imported.pixels.resize, "nms": 1.0 if imported.nms_free else None}
    shown = one_line(name)
    notes = "".join(f"# {one_line(line, 10_000)}\n" for line in imported.notes if line)
    return (
        f"# Written by `mpnet import`; name your images, then `mpnet run {shown}.yaml` or `mpnet sweep {shown}.yaml`.\n{notes}"
        f"name: {quote(name)}\nmodel: {format_flow(files)}\ndata: {format_flow(data)}\ndetection: {format_flow(detection)}\n"
        "sweep:\n  strategy: additive\n  precisions: [fp32, int8]\noutput: runs/\n"
    )
