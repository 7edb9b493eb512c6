# SPDX-License-Identifier: MIT
"""Sentences that say which layers lose an object."""

from __future__ import annotations

from mpnet.diagnose.explanation_document import ObjectRow
from mpnet.diagnose.objects import DOUBLED, KEPT, MOVED
from mpnet.evaluation.agreement import BASELINE_SCORE

MAX_LAYERS_NAMED = 3
"""Layers that a sentence names at most."""
MIN_SHARE = 10.0
"""Share, percent, below which a layer is not named where another one is."""
MIN_CHANGE = 0.05
"""Change of a score of which little can be said: many layers can push it across the threshold."""


def heading(row: ObjectRow) -> str:
    """Say what became of an object."""
    edge = ", at the edge" if row.at_edge else ""
    detection = "a second detection of " if row.kind == DOUBLED else ""
    second_score = f", beside it {row.beside_score:.2f}" if row.kind == MOVED else ""
    return (
        f"{row.object}  {row.class_name}, {row.size}{edge}: {row.kind}, {detection}score "
        f"{row.baseline_score:.2f} -> {row.score:.2f}{second_score}"
    )


def sentence(row: ObjectRow) -> str:
    """Say which layers lose the object, and what brings it back."""
    if row.kind == KEPT:
        return "is found by both"
    remedy = row.remedy
    shares = [share for share in row.shares if share.percent >= MIN_SHARE][:MAX_LAYERS_NAMED] or row.shares[:1]
    causes = _joined([f"{share.name} ({share.percent:.0f} %)" for share in shares])
    cause = f"{row.kind} by {causes}"
    if abs(row.baseline_score - row.score) < MIN_CHANGE:
        cause = f"its score changes by {abs(row.baseline_score - row.score):.2f} only, across {BASELINE_SCORE}; {cause}"
    if remedy is None:
        return f"{cause}; raising layers with weights does not bring it back"
    pairs = zip(remedy.names, remedy.precisions, strict=True)
    layers_raised = _joined([f"{name} to {precision}" for name, precision in pairs])
    verb = "brings" if len(remedy.names) == 1 else "together brings"
    return (
        f"{cause}; raising {layers_raised} {verb} it back (score {remedy.score:.2f}) for "
        f"{remedy.bit_operations_percent:.1f} % of the baseline's bit operations"
    )


def _joined(texts: list[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}" if texts else ""
