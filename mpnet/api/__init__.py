# SPDX-License-Identifier: MIT
"""The Python API, which the command line uses as well; docs/api.md shows it at work.

network = load_network("net.cfg", "net.weights", "net.names")
mixed = network.with_precision("int8", {"heads": "fp16"})
boxes = mixed.detect("image.jpg")
result = run_experiment("experiment.yaml").result
picks = sweep("experiment.yaml").picks
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpnet.lazy import lazy_names

if TYPE_CHECKING:
    from mpnet.api.network import Box, Boxes, Label, Network, load_network
    from mpnet.api.notebook import Page, SweepResult, compare, export, report, sweep
    from mpnet.deploy import ExportReport
    from mpnet.errors import MpnetError
    from mpnet.formats.documents.experiment import parse_experiment, read_experiment
    from mpnet.formats.labels.dataset import load_dataset
    from mpnet.report.data.comparison import Comparison
    from mpnet.resolve.trials import trials
    from mpnet.tables import Table
    from mpnet.trial.experiment import RunReport, open_workbench, run_experiment
    from mpnet.trial.measure import measure_detections
    from mpnet.trial.result import Result, read_result

__all__ = [
    "Box",
    "Boxes",
    "Comparison",
    "ExportReport",
    "Label",
    "MpnetError",
    "Network",
    "Page",
    "Result",
    "RunReport",
    "SweepResult",
    "Table",
    "compare",
    "export",
    "load_dataset",
    "load_network",
    "measure_detections",
    "open_workbench",
    "parse_experiment",
    "read_experiment",
    "read_result",
    "report",
    "run_experiment",
    "sweep",
    "trials",
]

# A program that detects need not wait until everything that evaluates is imported.
__getattr__ = lazy_names(
    __name__,
    {
        "mpnet.deploy": ("ExportReport",),
        "mpnet.errors": ("MpnetError",),
        "mpnet.formats.labels.dataset": ("load_dataset",),
        "mpnet.formats.documents.experiment": ("parse_experiment", "read_experiment"),
        "mpnet.trial.experiment": ("RunReport", "open_workbench", "run_experiment"),
        "mpnet.trial.measure": ("measure_detections",),
        "mpnet.report.data.comparison": ("Comparison",),
        "mpnet.api.notebook": ("Page", "SweepResult", "compare", "export", "report", "sweep"),
        "mpnet.resolve.trials": ("trials",),
        "mpnet.tables": ("Table",),
        "mpnet.api.network": ("Box", "Boxes", "Label", "Network", "load_network"),
        "mpnet.trial.result": ("Result", "read_result"),
    },
)


def __dir__() -> list[str]:
    return __all__
