"""The Python API, which the command line uses as well; docs/api.md shows it at work.

    network = load_network("net.cfg", "net.weights", "net.names")
    mixed = network.with_precision("int8", {"heads": "fp16"})
    boxes = mixed.detect("picture.jpg")
    result = run_experiment("experiment.yaml").result
"""

from __future__ import annotations

from mpnet.api.experiment import RunReport, open_workbench, run_experiment
from mpnet.api.network import Box, Network, load_network
from mpnet.errors import MpnetError
from mpnet.evaluation.dataset import load_dataset
from mpnet.experiments.measure import measure_detections
from mpnet.experiments.result import Result, read_result
from mpnet.formats.experiment_yaml import parse_experiment, read_experiment

__all__ = [
    "Box", "MpnetError", "Network", "Result", "RunReport", "load_dataset", "load_network", "measure_detections",
    "open_workbench", "parse_experiment", "read_experiment", "read_result", "run_experiment",
]
