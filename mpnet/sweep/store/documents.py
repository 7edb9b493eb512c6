# SPDX-License-Identifier: MIT
"""Schemas of a store's tables and documents, by type and range: all that is read from a store is checked here."""

from __future__ import annotations

import math
from functools import cache
from typing import Mapping

from mpnet.config.measures import measure
from mpnet.errors import FormatError
from mpnet.formats.documents.json_text import parse_json
from mpnet.formats.documents.schema import Fields, Kind, Many, Maybe, Named, Within, mismatch
from mpnet.formats.documents.typed import kind_of
from mpnet.json_values import JsonObject
from mpnet.messages import shown
from mpnet.speed.latency import Latency
from mpnet.sweep.result import SweepResult, VerifiedRows
from mpnet.sweep.store.notes import ContextDocument, JudgementNote, StatusNote, SweepNote
from mpnet.trial.run_result import DECIBELS, KEY

_AMOUNT = Within(0, 1e300)
_VALUES = Named(float)
_TIMES = Named(kind_of(Latency))

DOCUMENTS: Mapping[str, Kind] = {
    "order": Fields({}, {"images": Many(int)}),
    "ruled_out_after": Named(Named(int)),
    "subject": Fields(dict.fromkeys(("network", "weights", "data", "protocol"), str)),
    "sweep": kind_of(SweepNote),
    "status": kind_of(StatusNote),
    "findings": Maybe(kind_of(SweepResult)),
    "times": _TIMES,
    "verified": Maybe(kind_of(VerifiedRows)),
    "losses": Named(Named(Many(float, 4))),
    "conditions": Named(_VALUES),
    "conditions_failed": Named(str),
    "screened": Named(Named(float)),
    **dict.fromkeys(("tested", "shown"), Named(kind_of(JudgementNote))),
    "context": kind_of(ContextDocument),
}
"""By the name of the note, before a slash; `context` is one of the table of contexts."""


def read_document(name: str, text: str | None) -> JsonObject | None:
    """Read the document in a text; what is not there is {}, and None for findings. Raises: ValueError saying what is wrong."""
    kind = DOCUMENTS[name.partition("/")[0]]
    if text is None:
        if isinstance(kind, Fields) and kind.required:
            raise ValueError(f"{name} is missing")
        return None if isinstance(kind, Maybe) else {}
    check_text(name, text)
    try:
        document = parse_json(text.encode("utf-8", "replace"), name)
    except FormatError:
        raise ValueError(f"{name} is not valid JSON") from None
    problem = mismatch(document, kind, name)
    if problem is not None:
        raise ValueError(problem)
    assert document is None or isinstance(document, dict)
    return document


def check_trial(key: str, values: Mapping[str, float]) -> None:
    """Check a trial. Raises: ValueError for a key or a value, by its column, that no trial has."""
    problem = mismatch(key, KEY, "key")
    for name, value in values.items():
        low, high, kind = _range(name)
        # Most are in order, and there may be millions.
        if type(value) is float and (low <= value <= high or (value == math.inf and kind is DECIBELS)):
            continue
        problem = problem or mismatch(value, kind, f"trial {key}: {name}")
    if problem is not None:
        raise ValueError(problem)


@cache
def _range(name: str) -> tuple[float, float, Within]:
    """Return the least and greatest value of a trial's column, and both as a kind.

    A value of -1 percent says that there was nothing to measure.

    Of decibels infinity is one as well: equal tensors have an infinite ratio.
    """
    quantity = measure(name)
    percent = quantity.unit == "%" and not quantity.cost
    kind = Within(-1, 100 + 1e-6) if percent else DECIBELS if quantity.unit == "dB" else _AMOUNT
    return kind.low, kind.high, kind


def check_claim(name: object, owner: object, heartbeat: object) -> None:
    """Check a claim. Raises: ValueError for what no claim holds. heartbeat: a time.time()."""
    place = f"claim {shown(name)}"
    problem = mismatch(name, str, "the name of a claim") or mismatch(owner, str, f"{place}: owner")
    problem = problem or mismatch(heartbeat, float, f"{place}: heartbeat")
    if problem is not None:
        raise ValueError(problem)


def check_work(macs: object, seconds: object) -> None:
    """Check counted work. Raises: ValueError for work that nobody can have done."""
    problem = mismatch(macs, _AMOUNT, "work: macs") or mismatch(seconds, _AMOUNT, "work: seconds")
    if problem is not None:
        raise ValueError(problem)


def check_text(name: str, value: object) -> None:
    """Check a note. Raises: ValueError for a note that is no text."""
    problem = mismatch(value, str, name)
    if problem is not None:
        raise ValueError(problem)
