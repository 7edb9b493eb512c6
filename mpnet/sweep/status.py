"""How far a sweep is, from its store alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mpnet.sweep.store import TrialStore
from mpnet.sweep.store_schema import owner_is_dead


def sweep_status(path: Path) -> dict[str, Any]:
    """What `mpnet sweep --status` prints; reads only, also while the sweep runs.

    state: finished, stopped (by its budget), running, or interrupted. findings: of the last sweep that ended, or None.
    Raises: StoreError for a file that is no store.
    """
    with TrialStore.read(path) as store:
        status = json.loads(store.note("status") or "{}")
        sweep = json.loads(store.note("sweep") or "{}")
        findings = json.loads(store.note("findings") or "null")
        state = status.get("state", "interrupted")
        claims = store.claims()
        if state == "running" and owner_is_dead(str(status.get("owner", ""))):
            state = "interrupted"
        if claims:
            state = "running"
        work = store.work()
        return {
            "store": str(path), "state": state, "name": sweep.get("name"), "strategy": sweep.get("strategy"),
            "trials": sum(store.count(context) for context in sweep.get("contexts", [])),
            "total": status.get("total"), "seconds": work.seconds, "workers": sorted(set(claims.values())),
            "claims": list(claims), "findings": findings,
        }
