# SPDX-License-Identifier: MIT
"""The findings of `mpnet doctor`, for a terminal."""

from __future__ import annotations

from rich.console import Console

from mpnet.diagnose.doctor import CHECKS, Diagnosis
from mpnet.messages import counted, number_text


def print_diagnosis(diagnosis: Diagnosis, console: Console) -> None:
    """Print each finding with place, numbers and remedy; then what every check looked at."""
    console.print(f"{counted(len(diagnosis.findings), 'finding')} on {counted(diagnosis.images, 'image')}", style="bold")
    for finding in diagnosis.findings:
        numbers = ", ".join(f"{name} {number_text(value)}" for name, value in finding.evidence.items())
        console.print(f"\n{finding.kind}: {finding.place}", style="bold", soft_wrap=True)
        console.print(f"  {finding.text}", soft_wrap=True)
        console.print(f"  numbers: {numbers}", soft_wrap=True)
        console.print(f"  remedy:  {finding.remedy}", soft_wrap=True)
    console.print("")
    looks_for = {check.name: check.looks_for for check in CHECKS}
    for outcome in diagnosis.checks:
        state = counted(outcome.findings, "finding") if outcome.findings else "nothing found"
        console.print(f"{outcome.kind}: {state}; looked for {looks_for[outcome.kind]}: {outcome.remark}", soft_wrap=True)
