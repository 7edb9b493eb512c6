"""Latencies of results: taken in turn, and again when a stored one cannot be believed or is another machine's."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Mapping, Sequence

from mpnet.engine.assign import assign_key
from mpnet.engine.plan import Plan
from mpnet.engine.run import Session
from mpnet.errors import StoreError
from mpnet.speed.steps import measure_latencies, stale
from mpnet.trial.result import Result, republish
from mpnet.trial.workbench import Workbench


def latencies(bench: Workbench, plans: Sequence[Plan]) -> list[dict[str, Any]]:
    """The `latency` of each plan, passes over the first picture taken in turn."""
    picture = bench.inputs.take([0]).x
    return measure_latencies([Session(bench.prepared, plan, bench.threads) for plan in plans], picture)


def measured_again(bench: Workbench, results: Sequence[Result]) -> list[Result]:
    """Results with the latency of this machine, when one is in doubt or another machine's; all are taken in turn."""
    if not any(stale(result.document.get("latency"), bench.kernels.name, bench.threads) for result in results):
        return list(results)
    plans = [bench.plan(assign_key(bench.network, str(result.document["precision"]["key"]))) for result in results]
    return renewed(results, latencies(bench, plans))


def renewed(results: Sequence[Result], times: Sequence[Mapping[str, Any]]) -> list[Result]:
    """Results with another latency; what can be written is stored, what cannot be is shown all the same."""
    found = []
    for result, latency in zip(results, times, strict=True):
        document = {**result.document, "latency": latency}
        with_it = Result(result.folder, document)
        with suppress(StoreError):
            with_it = republish(result, document)
        found.append(with_it)
    return found
