# SPDX-License-Identifier: MIT
"""The experiment file that is written beside an imported network."""

from __future__ import annotations

import json

from mpnet.importing.model import Imported
from mpnet.messages import one_line
from mpnet.model.task import CLASSIFICATION


def experiment_text(name: str, imported: Imported) -> str:
    """Write YAML to evaluate it with, images to be filled in."""
    classifier = imported.network.task is CLASSIFICATION
    data = "{format: imagefolder, images: images/}" if classifier else "{format: yolo, images: images/, labels: labels/}"
    files = ", ".join(
        f"{key}: {json.dumps(name + suffix)}" for key, suffix in (("cfg", ".cfg"), ("weights", ".weights"), ("names", ".names"))
    )
    resize = imported.pixels.resize + (", nms: 1.0" if imported.nms_free else "")
    shown = one_line(name)
    notes = "".join(f"# {one_line(line, 10_000)}\n" for line in imported.notes if line)
    return (
        f"# Written by `mpnet import`; name your images, then `mpnet run {shown}.yaml` or `mpnet sweep {shown}.yaml`.\n{notes}"
        f"name: {json.dumps(name)}\nmodel: {{{files}}}\ndata: {data}\ndetection: {{resize: {resize}}}\n"
        "sweep:\n  strategy: additive\n  precisions: [fp32, int8]\noutput: runs/\n"
    )
