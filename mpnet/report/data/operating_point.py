# SPDX-License-Identifier: MIT
"""Words and sentences about errors at one score threshold."""

from __future__ import annotations

from typing import Mapping

from mpnet.evaluation.operating_point import OperatingErrors
from mpnet.messages import number_text

MEASURE_LABELS: Mapping[str, str] = {
    "missed": "objects missed",
    "false_alarms": "false alarms",
    "recall": "recall (%)",
    "precision": "correct detections (%)",
}
"""The measures of `operating_point.MEASURES` in tables; precision is the layers' there, so another word says which share."""


def kind_label(kind: str) -> str:
    """Return a kind of error in tables: of missed objects only those of which no wrong detection is to blame."""
    return "missed entirely" if kind == "missed" else kind


def operating_sentences(point: OperatingErrors) -> list[str]:
    """Say how scores shift, and which threshold keeps the baseline's recall."""
    sentences = []
    shift = point.get("confidence")
    if shift is not None:
        low, middle, high = (number_text(change, 3, signed=True) for change in shift["quartiles"])
        sentences.append(
            f"scores of the {shift['in_both']} of {shift['detections']} detections of the baseline that it makes as well: "
            f"{middle} in the median, {low} to {high} for the middle half; {shift['below']} fall below "
            f"{point['score']:.3f}"
        )
    same_recall = point.get("same_recall")
    if same_recall is not None:
        run, baseline = same_recall["run"], same_recall["baseline"]
        sentences.append(
            f"score {same_recall['score']:.3f} has the baseline's recall on {same_recall['chosen_on']} images; on the "
            f"{same_recall['judged_on']} others its recall is {run['recall']:.1f} % (baseline {baseline['recall']:.1f} %), and "
            f"{run['precision']:.1f} % of its detections are correct (baseline {baseline['precision']:.1f} %)"
        )
    elif "run" in point:
        sentences.append("no score has the baseline's recall, or too few objects tell")
    return sentences
