"""How a worker is made from a context, wherever it runs."""

from __future__ import annotations

from dataclasses import dataclass

from mpnet.sweep.context import SweepContext
from mpnet.sweep.evaluator import Evaluator


@dataclass(frozen=True, eq=False)
class EvaluatorRecipe:
    """Sent to every worker once."""

    context: SweepContext

    def make(self) -> Evaluator:
        """An evaluator in this process."""
        return Evaluator(self.context)
