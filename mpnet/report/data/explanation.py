# SPDX-License-Identifier: MIT
"""Sentences that say which layers lose an object."""

from __future__ import annotations

from mpnet.diagnose.explanation_document import ObjectRow
from mpnet.diagnose.objects import DOUBLED, KEPT, MOVED
from mpnet.evaluation.agreement import BASELINE_SCORE
from mpnet.messages import percent_text, separating_digits

MAX_LAYERS_NAMED = 3
"""Layers that a sentence names at most."""
MIN_SHARE = 10.0
"""Share, percent, below which a layer is not named where another one is."""
MIN_CHANGE = 0.05
"""Change of a score of which little can be said: many layers can push it across the threshold."""


def heading(row: ObjectRow) -> str:
    """Say what became of an object."""
    digits = _score_digits(row)
    edge = ", at the edge" if row.at_edge else ""
    detection = "a second detection of " if row.kind == DOUBLED else ""
    second_score = f", beside it {row.beside_score:.{digits}f}" if row.kind == MOVED else ""
    return (
        f"{row.object}  {row.class_name}, {row.size}{edge}: {row.kind}, {detection}score "
        f"{row.baseline_score:.{digits}f} -> {row.score:.{digits}f}{second_score}"
    )


def sentence(row: ObjectRow) -> str:
    """Say which layers lose the object, and what brings it back."""
    if row.kind == KEPT:
        return "is found by both"
    remedy, digits = row.remedy, _score_digits(row)
    shares = [share for share in row.shares if share.percent >= MIN_SHARE][:MAX_LAYERS_NAMED] or row.shares[:1]
    causes = _joined([f"{share.name} ({percent_text(share.percent, 0)})" for share in shares])
    cause = f"{row.kind} by {causes}"
    if abs(row.baseline_score - row.score) < MIN_CHANGE:
        change = abs(row.baseline_score - row.score)
        cause = f"its score changes by {change:.{digits}f} only, across {BASELINE_SCORE}; {cause}"
    if remedy is None:
        return f"{cause}; raising layers with weights does not bring it back"
    pairs = zip(remedy.names, remedy.precisions, strict=True)
    layers_raised = _joined([f"{name} to {precision}" for name, precision in pairs])
    verb = "brings" if len(remedy.names) == 1 else "together brings"
    return (
        f"{cause}; raising {layers_raised} {verb} it back (score {remedy.score:.{digits}f}) for "
        f"{percent_text(remedy.bit_operations_percent)} of the baseline's bit operations"
    )


def _score_digits(row: ObjectRow) -> int:
    """Return how many decimals tell the scores of an object from the threshold that they cross."""
    scores = [row.baseline_score, row.score, *([row.beside_score] if row.kind == MOVED else [])]
    return separating_digits([*scores, *([row.remedy.score] if row.remedy is not None else [])], BASELINE_SCORE)


def _joined(texts: list[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}" if texts else ""
