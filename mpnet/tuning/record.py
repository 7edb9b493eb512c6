# SPDX-License-Identifier: MIT
"""The record of a tuning, a JSON document beside the weights: what they were made of, and what was gained where."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from mpnet.errors import ConfigError
from mpnet.formats.documents.json_text import DocumentFormat
from mpnet.formats.documents.schema import Text
from mpnet.formats.documents.typed import build, kind_of
from mpnet.json_values import JsonObject
from mpnet.model.keys import json_key

_DIGEST = Text(r"[0-9a-f]{64}", "a SHA-256 in hexadecimal digits")


@dataclass(frozen=True)
class StageResult:
    """A stage of tuning, judged on images that took no part in it.

    kept:      whether its weights were taken on.
    gain, low, high: of agreement with the parent's fp32 over what it began with, percent points, and the 95 % interval.
    agreement: percent, after it. seconds: of wall time, judging not counted.
    details:   figures of its own. note: why nothing came of it, '' where something did.
    """

    stage: str
    kept: bool
    gain: float
    low: float
    high: float
    agreement: float
    seconds: float
    details: JsonObject = field(default_factory=dict)
    note: str = field(default="", metadata=json_key(omit_default=True))


@dataclass(frozen=True, kw_only=True)
class TuningRecord:
    """What weights were made of, and what that gained.

    created:    ISO 8601, UTC. command: the command line.
    cfg, parent, weights: SHA-256 of the network file, of the weights that were tuned, and of the tuned ones.
    precision:  precision string of the configuration that they were tuned for.
    options:    how they were tuned. images: SHA-256 of every image that took part: none of them may judge these weights.
    tuned_on, apart: how many of these tuned, and how many judged the stages.
    agreement_before, agreement_after: of the configuration with the parent's fp32 on the images apart, percent.
    gain, low, high: their difference, percent points, and its paired 95 % interval.
    own_fp32:   agreement of the tuned weights' own fp32 with the parent's, percent.
    """

    created: str
    command: str = ""
    mpnet: str
    cfg: Annotated[str, _DIGEST]
    parent: Annotated[str, _DIGEST]
    weights: Annotated[str, _DIGEST]
    precision: str
    measure: str
    options: JsonObject
    tuned_on: int
    apart: int
    agreement_before: float
    agreement_after: float
    gain: float
    low: float
    high: float
    own_fp32: float
    stages: tuple[StageResult, ...]
    images: tuple[Annotated[str, _DIGEST], ...]


TUNING_RECORD = DocumentFormat(
    "mpnet-tuning",
    1,
    "record of mpnet tune",
    "tune again, or remove the key model.tuning",
    64 << 20,
    kind_of(TuningRecord).required,
    ConfigError,
    kind_of(TuningRecord).optional,
)


def read_tuning(path: Path | str) -> TuningRecord:
    """Read the record of a tuning. Raises: ConfigError where it is none."""
    return build(TuningRecord, TUNING_RECORD.read(path))
