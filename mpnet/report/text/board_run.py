# SPDX-License-Identifier: MIT
"""What a board found in a run's images, for the terminal."""

from __future__ import annotations

from rich.console import Console

from mpnet.config.measures import names_of
from mpnet.deploy.run_on_board import BoardRun
from mpnet.model.task import DETECTION
from mpnet.report.data.words import clean
from mpnet.report.text.latency_table import print_board_state


def print_board_run(run: BoardRun, console: Console) -> None:
    """Print whether a board found what the run found here, and the figures of what it found."""
    found = f"{run.detections} detections in {run.images} images"
    same = "byte for byte what was found here" if run.is_same else f"not what was found here: {run.difference}"
    console.print(clean(f"{run.machine['host']}: {found}, {same}"), soft_wrap=True)
    print_board_state(run.machine, console)
    names = names_of("accuracy", "agreement", stored="trials", task=DETECTION)
    values = [
        f"{name.replace('_', ' ')} {value:.2f}"
        for name in names
        if (value := run.measures.get(name)) is not None and value >= 0
    ]
    if values:
        console.print(f"computed from these: {', '.join(values)}", soft_wrap=True)
