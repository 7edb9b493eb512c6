# SPDX-License-Identifier: MIT
"""What the tables and documents of a store may hold, by type and range: all that is read from a store is checked here."""

from __future__ import annotations

import math
from dataclasses import fields
from functools import cache
from typing import Any, Mapping

from mpnet.config.identity import TrialIdentity
from mpnet.config.measures import measure
from mpnet.errors import FormatError
from mpnet.formats.documents.json_text import parse_json
from mpnet.formats.documents.schema import Count, Fields, Kind, Many, Maybe, Named, Within, mismatch
from mpnet.messages import shown
from mpnet.model.task import TASKS
from mpnet.trial.result_schema import CALIBRATION, DECIBELS, KEY, LATENCY, LAYER

_AMOUNT = Within(0, 1e300)
_VALUES = Named(float)
_ENTRY = Fields(
    {"precision": KEY, "trial": str, "options": str, "metrics": _VALUES, "costs": _VALUES}, {"held_out": _VALUES, "words": str}
)
_QUALITIES = tuple(name for task in TASKS.values() for name in (task.quality, task.agreement))
_LOSS = Fields(
    {"pictures": int},
    {name: Fields({"difference": float, "low": float, "high": float}, {"images": int}) for name in _QUALITIES},
)
_SET = Fields({"images": int, "labelled": int, "quality": Maybe(Many(float, 3)), "losses": Named(Many(float, 8))})
_SHARE = Fields({"percent": float}, {"precision": KEY, "options": str, "layer": int})
_STABILITY = Fields(
    {}, {"draws": int, "judged": int, "front": Many(_SHARE), "picks": Named(float), "layers": Named(Many(_SHARE))}
)
_TESTED = Fields(
    {
        "precision": KEY,
        "options": str,
        "state": str,
        "more_images": Maybe(int),
        "losses": Named(Fields({"loss": float, "least": float, "most": float, "images": int})),
    }
)
_SAFETY = Fields(
    {
        "margin": Named(float),
        "asked": bool,
        "error": float,
        "held_out": bool,
        "images": int,
        "safe": Maybe(KEY),
        "why": str,
        "tested": Many(_TESTED),
    },
    {"twice": Fields({"images": int, "safe": Maybe(KEY), "half_widths": Named(Fields({"now": float, "twice": float}))})},
)
_PICK = Fields({**_ENTRY.required, "losses": Named(_LOSS), "saves": _VALUES}, _ENTRY.optional)
_NEAREST = Fields({**_ENTRY.required, "beyond": _VALUES}, _ENTRY.optional)
_VERIFIED = Fields(
    {
        "engine": str,
        "version": str,
        "rule": str,
        "notes": Many(str),
        "rows": Many(
            Fields(
                {"precision": KEY, "options": str, "context": int, "version": str, "survived": bool, "why": str},
                {
                    "files": str,
                    "falls_back": Many(str),
                    "head_error": float,
                    **{prefix + name: Maybe(float) for prefix in ("", "deployed_") for name in (*_QUALITIES, "latency_ms")},
                },
            )
        ),
    }
)
_CONDITIONS = Fields(
    {
        "conditions": Many(str),
        "images": int,
        "of_front": int,
        "rows": Many(Fields({"precision": KEY, "trial": str, "options": str, "costs": _VALUES, "under": Named(_VALUES)})),
        "front": Named(Many(KEY)),
        "picks": Named(Named(KEY)),
    },
    {"failed": Many(Fields(dict.fromkeys(("condition", "options", "reason"), str) | {"precision": KEY}))},
)
_TIMES = Named(LATENCY)
_FAILED = Many(Fields({"layer": int, "reason": str, "configurations": int}))
_GAP = Fields(
    {
        name: float
        for name in ("hypervolume_ratio", "quality_lost_max", "quality_lost_mean", "uncovered", "found", "exact_points")
    }
)
_IDENTITY = Fields(
    {
        "options": dict,
        "protocol": dict,
        "arithmetic": str,
        **dict.fromkeys(("cfg", "weights", "data"), str),
        "calibration": Maybe(str),
    },
    {"engine": Maybe(dict), "lessons": Maybe(str)},
)
assert {*_IDENTITY.required, *_IDENTITY.optional, "plan"} == {field.name for field in fields(TrialIdentity)}

DOCUMENTS: Mapping[str, Kind] = {
    "order": Fields({}, {"images": Many(int)}),
    "ruled_out_after": Named(Named(int)),
    "subject": Fields(dict.fromkeys(("network", "weights", "data", "protocol"), str)),
    "sweep": Fields(
        {},
        {
            "name": str,
            "strategy": str,
            "command": str,
            "created": str,
            "versions": Named(Maybe(str)),
            "digests": Named(Maybe(str)),
            "layers": Many(LAYER),
            "notes": Many(str),
            "objectives": Many(str),
            "holdout": Within(0, 1),
            "contexts": Many(int),
            "suffix": str,
            "baseline": Maybe(KEY),
            "selecting": int,
            "images": int,
            "protocol": dict,
            "constraints": Maybe(dict),
            "sources": Maybe(Named(str)),
            "calibration": Maybe(CALIBRATION),
            "latency": Maybe(dict),
        },
    ),
    "status": Fields({}, {"state": str, "owner": str, "strategy": str, "total": Maybe(int), "time": float}),
    "findings": Maybe(
        Fields(
            {
                "trials": int,
                "space": Count(),
                "front": Many(_ENTRY),
                "objectives": Many(str, 1),
                "baseline": Maybe(_ENTRY),
                "best": Maybe(_ENTRY),
                "holdout": Fields({"selecting": int, "held_out": int}),
            },
            {
                "gap": Maybe(_GAP),
                "picks": Named(_PICK),
                "nearest": Maybe(_NEAREST),
                "safety": _SAFETY,
                "stability": _STABILITY,
                "limits": _VALUES,
                "intervals_by": str,
                "known": int,
                "ruled_out_after": Named(int),
                "failed": _FAILED,
                "state": str,
                "verified": _VERIFIED,
                "conditions": _CONDITIONS,
                "times": _TIMES,
            },
        )
    ),
    "times": _TIMES,
    "verified": Maybe(_VERIFIED),
    "losses": Named(Named(Many(float, 4))),
    "conditions": Named(_VALUES),
    "conditions_failed": Named(str),
    "tested": Named(Fields({"sets": Named(_SET), "drawn": Many(float)})),
    "context": Fields({}, {"identity": _IDENTITY, "options": str, "measures": dict}),
}
"""By the name of the note, before a slash; `context` is one of the table of contexts."""


def read_document(name: str, text: Any) -> Any:
    """The document in a text; what is not there is {}, and None for findings. Raises: ValueError saying what is wrong."""
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
    wrong = mismatch(document, kind, name)
    if wrong is not None:
        raise ValueError(wrong)
    return document


def check_trial(key: Any, values: Mapping[str, Any]) -> None:
    """Raises: ValueError for a key or a value, by its column, that no trial has."""
    wrong = mismatch(key, KEY, "key")
    for name, value in values.items():
        low, high, kind = _range(name)
        # Most are in order, and there may be millions.
        if type(value) is float and (low <= value <= high or (value == math.inf and kind is DECIBELS)):
            continue
        wrong = wrong or mismatch(value, kind, f"trial {key}: {name}")
    if wrong is not None:
        raise ValueError(wrong)


@cache
def _range(name: str) -> tuple[float, float, Within]:
    """The least and greatest value of a trial's column, and both as a kind; -1 percent says that there was nothing to measure.
    Of decibels infinity is one as well: equal tensors have an infinite ratio."""
    quantity = measure(name)
    percent = quantity.unit == "%" and not quantity.cost
    kind = Within(-1, 100 + 1e-6) if percent else DECIBELS if quantity.unit == "dB" else _AMOUNT
    return kind.low, kind.high, kind


def check_claim(name: Any, owner: Any, heartbeat: Any) -> None:
    """Raises: ValueError for what no claim holds. heartbeat: a time.time()."""
    where = f"claim {shown(name)}"
    wrong = mismatch(name, str, "the name of a claim") or mismatch(owner, str, f"{where}: owner")
    wrong = wrong or mismatch(heartbeat, float, f"{where}: heartbeat")
    if wrong is not None:
        raise ValueError(wrong)


def check_work(macs: Any, seconds: Any) -> None:
    """Raises: ValueError for work that nobody can have done."""
    wrong = mismatch(macs, _AMOUNT, "work: macs") or mismatch(seconds, _AMOUNT, "work: seconds")
    if wrong is not None:
        raise ValueError(wrong)


def check_text(name: str, value: Any) -> None:
    """Raises: ValueError for a note that is no text."""
    wrong = mismatch(value, str, name)
    if wrong is not None:
        raise ValueError(wrong)
