# SPDX-License-Identifier: MIT
"""Sentences about errors at one score threshold."""

from __future__ import annotations

from typing import Any, Mapping


def lines(point: Mapping[str, Any]) -> list[str]:
    """In sentences: how scores shift, and the threshold that keeps the baseline's recall."""
    sentences = []
    shift = point.get("confidence")
    if shift is not None:
        low, middle, high = shift["quartiles"]
        sentences.append(
            f"scores of the {shift['in_both']} of {shift['detections']} detections of the baseline that it makes as well: "
            f"{middle:+.3f} in the median, {low:+.3f} to {high:+.3f} for the middle half; {shift['below']} fall below "
            f"{point['score']:.3f}"
        )
    same = point.get("same_recall")
    if same is not None:
        sentences.append(
            f"score {same['score']:.3f} has the baseline's recall on {same['chosen_on']} images; on the {same['judged_on']} "
            f"others its recall is {same['run']['recall']:.1f} (baseline {same['baseline']['recall']:.1f}), its precision "
            f"{same['run']['precision']:.1f} ({same['baseline']['precision']:.1f})"
        )
    elif "run" in point:
        sentences.append("no score has the baseline's recall, or too few objects tell")
    return sentences
