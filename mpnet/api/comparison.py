"""Compare finished runs, with their pictures and detections where these are still there."""

from __future__ import annotations

from pathlib import Path
from typing import Sequence

from mpnet.api.evidence import read_evidence, reason
from mpnet.errors import MpnetError
from mpnet.evaluation.compare import DRAWS
from mpnet.evaluation.dataset import picture
from mpnet.experiments.result import read_result
from mpnet.report.comparison import Comparison, change_json, compare_results
from mpnet.report.paired import named
from mpnet.report.pictures import Gallery, write_changes


def compare_runs(
    runs: Sequence[str | Path], *, draws: int = DRAWS, seed: int = 0, pictures: Path | None = None
) -> Comparison:
    """Every run against the first.

    runs:     folders or result.json files.
    pictures: a folder for one JPEG per lost or gained object and run.
    Raises: StoreError for what is no result, ConfigError for runs on different data, DataError for pictures that are
    asked for and not there.
    """
    results = [read_result(run) for run in runs]
    try:
        evidence = read_evidence(results)
    except MpnetError as error:
        if pictures is not None:
            raise
        return compare_results(results, missing=reason(error))
    compared = compare_results(results, evidence.dataset, evidence.detections, draws=draws, seed=seed)
    if pictures is not None:
        for run, pair, found in zip(compared.document["runs"][1:], compared.pairs, evidence.detections[1:]):
            gallery = Gallery(evidence.dataset, evidence.detections[0], found, picture)
            drawn = gallery.changes(pair.changes, len(pair.changes))
            folder = pictures if len(results) == 2 else pictures / run["id"]
            names = write_changes(named(drawn, {}), folder)
            run["changes"] = [{**change_json(change), "file": str(folder / name)} for change, name in zip(drawn, names)]
    return compared
