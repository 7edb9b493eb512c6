# SPDX-License-Identifier: MIT
"""The experiment file that is written beside an imported network."""

from __future__ import annotations

import shlex

from mpnet.formats.documents.experiment_writer import format_flow, quantization_keys, quote
from mpnet.importing import Imported
from mpnet.messages import one_line
from mpnet.model.task import CLASSIFICATION
from mpnet.trial.defaults import declares_quantization, default_objectives, default_precisions, default_quantization
from mpnet.trial.task import task_of


def import_template(name: str, imported: Imported) -> str:
    """Write YAML to evaluate an imported network with, images to be filled in.

    Networks whose output has no task that mpnet knows get no section `sweep`.
    """
    network = imported.network
    classifier = network.task is CLASSIFICATION
    labels = None if classifier else "labels/"
    data = {"format": "imagefolder" if classifier else "yolo", "images": "images/", "labels": labels}
    files = {key: quote(f"{name}.{key}") for key in ("cfg", "weights", "names")}
    detection = {"resize": imported.pixels.resize, "nms": imported.nms}
    file_name = shlex.quote(one_line(f"{name}.yaml"))
    notes = "".join(f"# {one_line(line, 10_000)}\n" for line in imported.notes if line)
    quantization = sweep = ""
    # What a quantised model's file says stays.
    if not declares_quantization(network):
        quantization = f"quantization: {format_flow(quantization_keys(default_quantization(network)))}\n"
    if network.task is not None:
        sweep = (
            f"sweep:\n  strategy: auto\n  precisions: {format_flow(default_precisions(network))}\n"
            f"  objectives: {format_flow(default_objectives(task_of(network), labelled=True))}\n"
        )
    return (
        f"# Written by `mpnet import`; name your images, then `mpnet run {file_name}` or `mpnet sweep {file_name}`.\n"
        f"# Without labels: data: {{unlabelled: images/}}.\n{notes}name: {quote(name)}\nmodel: {format_flow(files)}\n"
        f"data: {format_flow(data)}\ndetection: {format_flow(detection)}\n{quantization}{sweep}output: runs/\n"
    )
