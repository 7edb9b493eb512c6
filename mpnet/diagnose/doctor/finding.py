# SPDX-License-Identifier: MIT
"""Findings of `mpnet doctor`: what is wrong, where, the numbers that show it, and what mends it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable, Mapping

if TYPE_CHECKING:
    from mpnet.diagnose.doctor.patient import Patient


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong.

    kind:     the name of the check that found it. place: the file, the layer or the key.
    text:     what is wrong, in one sentence. evidence: the numbers that show it, by what they are.
    remedy:   a command, or a key of the experiment file with its value.
    """

    kind: str
    place: str
    text: str
    evidence: Mapping[str, float]
    remedy: str


@dataclass(frozen=True)
class CheckOutcome:
    """What one check did. findings: how many it made. remark: what it looked at, or why it could not tell."""

    kind: str
    findings: int
    remark: str


@dataclass(frozen=True)
class Diagnosis:
    """The document that `mpnet doctor --json` prints.

    source: the network as it was named. images: how many were run. labelled: whether their labels could be used.
    """

    source: str
    images: int
    labelled: bool
    findings: tuple[Finding, ...]
    checks: tuple[CheckOutcome, ...]


@dataclass(frozen=True)
class Check:
    """One kind of finding.

    name:    of the kind, as --json has it. looks_for: what is wrong when it finds something, a noun phrase.
    find:    the findings and a remark, see `CheckOutcome`.
    """

    name: str
    looks_for: str
    find: Callable[[Patient], tuple[list[Finding], str]]
