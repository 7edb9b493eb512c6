# SPDX-License-Identifier: MIT
"""Sentences about errors at one score threshold."""

from __future__ import annotations

from typing import Any, Mapping


def operating_sentences(point: Mapping[str, Any]) -> list[str]:
    """Say how scores shift, and which threshold keeps the baseline's recall."""
    sentences = []
    shift = point.get("confidence")
    if shift is not None:
        low, middle, high = shift["quartiles"]
        sentences.append(
            f"scores of the {shift['in_both']} of {shift['detections']} detections of the baseline that it makes as well: "
            f"{middle:+.3f} in the median, {low:+.3f} to {high:+.3f} for the middle half; {shift['below']} fall below "
            f"{point['score']:.3f}"
        )
    same_recall = point.get("same_recall")
    if same_recall is not None:
        run, baseline = same_recall["run"], same_recall["baseline"]
        sentences.append(
            f"score {same_recall['score']:.3f} has the baseline's recall on {same_recall['chosen_on']} images; on the "
            f"{same_recall['judged_on']} others its recall is {run['recall']:.1f} (baseline {baseline['recall']:.1f}), its "
            f"precision {run['precision']:.1f} ({baseline['precision']:.1f})"
        )
    elif "run" in point:
        sentences.append("no score has the baseline's recall, or too few objects tell")
    return sentences
