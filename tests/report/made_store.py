# SPDX-License-Identifier: MIT
"""A sweep's store, filled through its own interface with made-up trials."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mpnet.config.measures import trial_columns
from mpnet.sweep.store import Subject, Trial, TrialStore
from tests.report.synthetic import configurations

SUBJECT = Subject("1" * 64, "2" * 64, "3" * 64, "4" * 64)
CONTEXT: dict[str, Any] = {
    "identity": {
        "cfg": "1" * 64,
        "weights": "2" * 64,
        "data": "3" * 64,
        "calibration": None,
        "options": {},
        "protocol": {},
        "arithmetic": "1",
    },
    "options": "",
    "measures": {},
}


def entry(key: str) -> dict[str, Any]:
    """Return a configuration as findings hold it."""
    return {"precision": key, "trial": "t" * 64, "options": "", "metrics": {}, "costs": {}}


def make_store(
    path: Path,
    count: int | None = None,
    state: str = "finished",
    findings: dict[str, Any] | None = None,
    sweep: dict[str, Any] | None = None,
    held_out: bool = False,
) -> Path:
    """Store the first `count` trials of `configurations()`; notes as `mpnet sweep` leaves them."""
    table = configurations()
    names = [name for name in table.columns if name in trial_columns()]
    trials = []
    for row, key in enumerate(table.keys[:count]):
        values = {name: float(table.columns[name][row]) for name in names}
        if held_out:
            values["held_out_AP"] = values["AP"] - 0.5
        trials.append(Trial(key, values))
    with TrialStore.open(path, SUBJECT) as store:
        context = store.context(CONTEXT)
        store.add(context, trials)
        store.set_note(
            "sweep",
            json.dumps(
                {
                    "name": "made",
                    "strategy": "exhaustive",
                    "objectives": ["agreement_AP", "bit_operations"],
                    "holdout": 0.5 if held_out else 0.0,
                    "selecting": 57,
                    "images": 115,
                    "contexts": [context],
                    "suffix": "",
                    "baseline": table.keys[0],
                    "protocol": {"images": 115, "dataset": "yolo"},
                    "sources": {},
                    **(sweep or {}),
                }
            ),
        )
        store.set_note("status", json.dumps({"state": state, "owner": "elsewhere:1:x", "total": len(table.keys)}))
        if findings is not None:
            store.set_note(
                "findings",
                json.dumps(
                    {
                        "trials": len(trials),
                        "space": len(table.keys),
                        "front": [],
                        "objectives": ["AP"],
                        "baseline": None,
                        "holdout": {"selecting": 57, "held_out": 58 if held_out else 0},
                        **findings,
                    }
                ),
            )
    return path
