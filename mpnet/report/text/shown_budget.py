# SPDX-License-Identifier: MIT
"""Whether a run is shown to keep a budget of loss, for a terminal."""

from __future__ import annotations

from rich.console import Console

from mpnet.messages import counted
from mpnet.resolve.shown_budget import ShownBudget


def print_shown_budget(budget: ShownBudget, console: Console) -> None:
    """Print the verdict, and each measure's loss with its limit."""
    verdict = "is shown to keep" if budget.is_shown else "is not shown to keep"
    console.print(f"On {counted(budget.images, 'image')} it {verdict} {budget.budget}.", soft_wrap=True)
    for loss in budget.losses:
        console.print(f"  {loss.text}", soft_wrap=True)
