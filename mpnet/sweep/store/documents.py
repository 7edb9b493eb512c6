"""The documents that a store keeps beside its trials: what they may hold, checked where they are read."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any, Mapping

from mpnet.config.identity import TrialIdentity
from mpnet.errors import FormatError
from mpnet.formats.documents.json_text import parse_json
from mpnet.formats.documents.schema import Count, Fields, Kind, Many, Maybe, Named, Within, mismatch
from mpnet.model.task import TASKS
from mpnet.trial.result_schema import CALIBRATION, DECIBELS, KEY

_VALUES = Named(float)
_ENTRY = Fields({"precision": KEY, "trial": str, "options": str, "metrics": _VALUES, "costs": _VALUES}, {"held_out": _VALUES})
_QUALITIES = tuple(name for task in TASKS.values() for name in (task.quality, task.agreement))
_LOSS = Fields(
    {"pictures": int}, {task.quality: Fields({"difference": float, "low": float, "high": float}) for task in TASKS.values()}
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
            "layers": Many(dict),
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
                "limits": _VALUES,
                "intervals_by": str,
                "known": int,
                "state": str,
                "verified": _VERIFIED,
            },
        )
    ),
    "verified": Maybe(_VERIFIED),
    "losses": Named(Named(Many(float, 4))),
    "context": Fields({}, {"identity": _IDENTITY, "options": str, "measures": dict}),
}
"""By the name of the note, before a slash; `context` is one of the table of contexts."""


def read_document(name: str, text: str | None) -> Any:
    """The document in a text; what is not there is {}, and None for findings. Raises: ValueError saying what is wrong."""
    kind = DOCUMENTS[name.partition("/")[0]]
    if text is None:
        if isinstance(kind, Fields) and kind.required:
            raise ValueError(f"{name} is missing")
        return None if isinstance(kind, Maybe) else {}
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
        # Most are in order, and there may be millions. Equal tensors have an infinite ratio.
        if type(value) is float and (abs(value) <= 10_000 or value == math.inf):
            continue
        wrong = wrong or mismatch(value, DECIBELS if name.endswith("sqnr_db") else float, f"trial {key}: {name}")
    if wrong is not None:
        raise ValueError(wrong)
