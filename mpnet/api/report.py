"""Collects everything that a report shows: stored results first, then what can still be found out about them.

The page itself never runs a network. What the store lacks is computed here when the files are still there and have the
digests that were measured; otherwise the page says what is missing and why.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Callable, Sequence

from mpnet.api.cfg_template import cfg_template, read_cfg_bytes
from mpnet.api.evidence import read_evidence, reason
from mpnet.errors import MpnetError, StoreError
from mpnet.evaluation.compare import DRAWS
from mpnet.evaluation.dataset import picture
from mpnet.experiments.result import Result, finished, read_result
from mpnet.report.enrich import with_missing, with_pairs
from mpnet.report.model import CfgTemplate, Missing, ReportData
from mpnet.report.paired import Pairing
from mpnet.report.pictures import Gallery
from mpnet.report.source import from_results

Said = Callable[[str], None]


def collect(
    sources: Sequence[Path], *, draws: int = DRAWS, seed: int = 0, compute: bool = True, said: Said = lambda text: None,
) -> ReportData:
    """Everything about runs: the first is the baseline, the last the chosen configuration.

    A single run brings the baseline that it was measured with, when that is stored beside it.
    compute: whether networks may run to find out what is not stored. said: told what happens, in a few words.
    Raises: StoreError for what is neither run nor store, ConfigError for runs on different data.
    """
    results = _with_baseline([read_result(source) for source in sources])
    data = from_results(results)
    said("reading pictures and detections")
    data = _with_evidence(data, results, draws, seed)
    return _with_cfg(data, results[-1])


def _with_baseline(results: list[Result]) -> list[Result]:
    """A single run after its baseline, when that is there."""
    agreement = results[0].document.get("agreement")
    if len(results) > 1 or not isinstance(agreement, dict):
        return results
    try:
        baseline = finished(results[0].folder.parent / str(agreement.get("baseline", "")))
    except StoreError:
        baseline = None
    return [baseline, *results] if baseline is not None and baseline.id != results[0].id else results


def _with_evidence(data: ReportData, results: list[Result], draws: int, seed: int) -> ReportData:
    if len(results) == 1:
        return with_missing(data, Missing(
            "Differences, lost and gained objects", "there is one run and no baseline beside it",
            "Name two runs, the baseline first."))
    try:
        evidence = read_evidence(results)
        pairing = Pairing(evidence.dataset, evidence.detections[0], draws, seed)
        pairs = {row: pairing.pair(found) for row, found in enumerate(evidence.detections) if row}
        gallery = Gallery(evidence.dataset, evidence.detections[0], evidence.detections[-1], picture)
        return with_pairs(data, pairs, draws, gallery)
    except MpnetError as error:
        return with_missing(data, Missing(
            "Intervals, classes, lost and gained objects, pictures", reason(error),
            "Put the files back, or measure again."))


def _with_cfg(data: ReportData, result: Result) -> ReportData:
    from dataclasses import replace

    sources = result.document.get("sources") or {}
    try:
        template = measured_cfg(str(sources.get("cfg", "")), str(result.document["digests"].get("cfg", "")),
                                data.configurations.keys)
        return replace(data, cfg=template)
    except MpnetError as error:
        return with_missing(data, Missing("Saving a .cfg", reason(error),
                                          "`mpnet export --cfg FILE` writes it from a copy of the network file."))


def measured_cfg(path: str, digest: str, keys: Sequence[str]) -> CfgTemplate:
    """The network file that was measured, in pieces. Raises: MpnetError when it has gone or changed."""
    if not path:
        raise StoreError("the result does not name its network file")
    content = read_cfg_bytes(Path(path))
    if hashlib.sha256(content).hexdigest() != digest:
        raise StoreError(f"{path}: has changed since this was measured")
    return cfg_template(content, keys, Path(path).name)
