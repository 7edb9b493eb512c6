# SPDX-License-Identifier: MIT
"""A sweep's result as an object and as the document that stores keep."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mpnet.formats.documents.typed import as_json, from_json
from mpnet.sweep.result import (
    ConditionRows,
    FrontRow,
    Holdout,
    MeasureLoss,
    NearestRow,
    Pick,
    Safety,
    SetLosses,
    Stability,
    SweepResult,
    VerifiedRow,
)
from mpnet.sweep.store.documents import read_document
from mpnet.sweep.store.records import Record

_ROW: dict[str, Any] = {"precision": "fq", "trial": "t", "options": "", "metrics": {"AP": 50.0}, "costs": {"weight_bytes": 8.0}}
_OLDEST: dict[str, Any] = {
    "trials": 1,
    "space": 4,
    "front": [_ROW],
    "objectives": ["AP", "weight_bytes"],
    "baseline": None,
    "best": _ROW,
    "holdout": {"selecting": 5, "held_out": 0},
}


def test_a_result_of_an_old_store_has_what_it_lacks_by_default() -> None:
    row = FrontRow(precision="fq", trial="t", options="", metrics={"AP": 50.0}, costs={"weight_bytes": 8.0})
    assert from_json(SweepResult, _OLDEST, "findings") == SweepResult(
        trials=1, space=4, front=(row,), objectives=("AP", "weight_bytes"), baseline=None, best=row, holdout=Holdout(5, 0)
    )


@pytest.mark.parametrize("name", sorted(_OLDEST))
def test_what_every_store_has_is_required(name: str) -> None:
    text = json.dumps({key: value for key, value in _OLDEST.items() if key != name})
    with pytest.raises(ValueError, match=f"^findings.{name} is missing$"):
        read_document("findings", text)


def test_a_stored_result_is_read_as_an_object() -> None:
    record = Record(1, (1,), {}, _OLDEST, is_last=True)
    assert record.result == from_json(SweepResult, _OLDEST, "findings")
    assert Record(1, (1,), {}, None, is_last=True).result is None


def test_keys_are_in_the_order_that_commands_print() -> None:
    figures: dict[str, Any] = {
        "precision": "fq",
        "trial": "t",
        "options": "",
        "metrics": {},
        "held_out": {"AP": 1.0},
        "costs": {},
    }
    keys = ["precision", "trial", "baseline", "tried", "options", "metrics", "held_out", "costs"]
    assert list(as_json(FrontRow(**figures, words="all fp32"))) == [*keys, "words"]
    assert list(as_json(NearestRow(**figures, beyond={}))) == [*keys, "beyond"]
    loss = SetLosses(images=5, losses={"AP": MeasureLoss(difference=-1.0, low=-2.0, high=0.0)})
    assert as_json(Pick(**figures, losses={"all": loss}, saves={}))["losses"] == {
        "all": {"pictures": 5, "AP": {"difference": -1.0, "low": -2.0, "high": 0.0}}
    }
    assert as_json(Stability()) == {}


def test_a_row_that_an_engine_did_not_run_has_no_figures() -> None:
    row = VerifiedRow(precision="fq", options="", trial="t", context=1, version="", survived=False, why="no such layer")
    assert list(as_json(row)) == ["precision", "options", "trial", "context", "version", "survived", "why"]
    failed_row = VerifiedRow(
        precision="fq",
        options="",
        trial="t",
        context=1,
        version="2",
        measures={"AP": 50.0, "agreement_AP": None},
        head_error=0.5,
        falls_back=(),
        files="d",
        survived=True,
        why="",
    )
    document = as_json(failed_row)
    assert list(document)[5:] == ["AP", "agreement_AP", "head_error", "falls_back", "files", "survived", "why"]
    assert from_json(VerifiedRow, document, "row") == failed_row


def test_damage_is_named_by_its_place() -> None:
    safety = as_json(Safety(margin={}, is_asked=False, error=0.05, is_held_out=True, images=5, safe=None, why="", tested=()))
    conditions = as_json(ConditionRows(conditions=(), images=5, of_front=1, rows=(), front={}, picks={}))
    conditions["front"] = {"clean": ["?!"]}
    for change, message in (
        ({"safety": {**safety, "asked": 1}}, "findings.safety.asked must be true or false, not 1"),
        ({"conditions": conditions}, "findings.conditions.front.clean[0] must be a precision string"),
        ({"picks": {"safe": {**_ROW, "losses": {}}}}, "findings.picks.safe.saves is missing"),
        ({"gap": {"found": 1}}, "findings.gap.hypervolume_ratio is missing"),
        ({"objectives": []}, "findings.objectives must be a list"),
    ):
        with pytest.raises(ValueError, match="findings") as error:
            read_document("findings", json.dumps({**_OLDEST, **change}))
        assert str(error.value).startswith(message)
