# SPDX-License-Identifier: MIT
"""JSON documents as dataclasses: what is written, what is read, and what is refused."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Annotated, Any, Mapping

import pytest

from mpnet.formats.documents.schema import Count, Fields, Many, Maybe, Named, Text, Within
from mpnet.formats.documents.typed import as_json, build, from_json, kind_of
from mpnet.json_values import Json, JsonObject
from mpnet.model.keys import json_key

_Key = Annotated[str, Text("[fhq]+", "a precision string")]


@dataclass(frozen=True)
class _Step:
    name: str
    time_ms: float | None = field(default=None, metadata=json_key("ms"))


@dataclass(frozen=True)
class _Base:
    key: _Key
    measures: Mapping[str, float] = field(metadata=json_key(inline=("AR",), required=("AP",)))
    held_out: Mapping[str, float] = field(default_factory=dict, metadata=json_key(omit_default=True))


@dataclass(frozen=True, kw_only=True)
class _Run(_Base):
    steps: tuple[_Step, ...]
    interval: tuple[float, float] | None = None
    front: tuple[_Key, ...] = ()
    by_name: Mapping[str, _Step] = field(default_factory=dict)
    first: _Step | None = None
    share: Annotated[float, Within(0, 1)] = 0.5
    space: Annotated[int, Count()] = 0
    options: JsonObject = field(default_factory=dict)
    is_open: bool = field(default=False, metadata=json_key("open"))
    further: Json = None
    notes: tuple[str, ...] = field(default=(), metadata=json_key(omit_default=True))


_FULL = _Run(
    "fq",
    {"AP": 1, "AR": 2.5},
    {"AP": 0.5},
    steps=(_Step("conv", 0.25), _Step("pool")),
    interval=(-1.0, 1.0),
    front=("f", "q"),
    by_name={"a": _Step("a", 1.0)},
    first=_Step("first"),
    share=1,
    space=2**120,
    options={"weights": {"bits": [8, None]}},
    is_open=True,
    further=["x", {"y": 1}],
    notes=("a note",),
)
_FULL_TEXT = (
    '{"key": "fq", "AP": 1, "AR": 2.5, "held_out": {"AP": 0.5}, '
    '"steps": [{"name": "conv", "ms": 0.25}, {"name": "pool", "ms": null}], "interval": [-1.0, 1.0], "front": ["f", "q"], '
    '"by_name": {"a": {"name": "a", "ms": 1.0}}, "first": {"name": "first", "ms": null}, "share": 1, '
    f'"space": {2**120}, "options": {{"weights": {{"bits": [8, null]}}}}, "open": true, "further": ["x", {{"y": 1}}], '
    '"notes": ["a note"]}'
)
_MINIMAL_DOCUMENT = {"key": "f", "AP": 3.5, "steps": []}


def test_keys_are_written_in_the_order_of_the_fields() -> None:
    assert json.dumps(as_json(_FULL)) == _FULL_TEXT


def test_what_was_written_is_read_again() -> None:
    assert from_json(_Run, json.loads(_FULL_TEXT), "run") == _FULL
    assert json.dumps(as_json(build(_Run, json.loads(_FULL_TEXT)))) == _FULL_TEXT


def test_keys_that_older_documents_lack_have_their_defaults() -> None:
    assert from_json(_Run, _MINIMAL_DOCUMENT, "run") == _Run("f", {"AP": 3.5}, steps=())


def test_default_values_are_left_out_only_where_that_is_declared() -> None:
    document = as_json(from_json(_Run, _MINIMAL_DOCUMENT, "run"))
    assert "notes" not in document
    assert "held_out" not in document
    assert document["front"] == []
    assert document["first"] is None


def test_keys_of_newer_documents_are_ignored() -> None:
    document = {**_MINIMAL_DOCUMENT, "later": object(), "steps": [{"name": "conv", "later": 1}]}
    assert from_json(_Run, document, "run") == _Run("f", {"AP": 3.5}, steps=(_Step("conv"),))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": "x"}, "run.key must be a precision string, not 'x'"),
        ({"AP": None}, "run.AP must be a number, not None"),
        ({"AR": "x"}, "run.AR must be a number, not 'x'"),
        ({"steps": [{"name": "a"}, {}]}, "run.steps[1].name is missing"),
        ({"steps": [{"name": "a", "ms": True}]}, "run.steps[0].ms must be a number, not True"),
        ({"interval": [1]}, "run.interval must be a list, not [1]"),
        ({"front": ["f", 5]}, "run.front[1] must be a precision string, not 5"),
        ({"by_name": {"a": 1}}, "run.by_name.a must be an object, not 1"),
        ({"share": 2}, "run.share must be a number from 0 to 1, not 2"),
        ({"space": -1}, "run.space must be a whole number from 0 on, not -1"),
        ({"options": []}, "run.options must be an object, not []"),
        ({"open": 1}, "run.open must be true or false, not 1"),
        ({"notes": None}, "run.notes must be a list, not None"),
    ],
)
def test_the_first_place_that_does_not_fit_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="run") as error:
        from_json(_Run, {**_MINIMAL_DOCUMENT, **change}, "run")
    assert str(error.value) == message


@pytest.mark.parametrize("name", ["key", "AP", "steps"])
def test_a_key_without_a_default_must_be_there(name: str) -> None:
    with pytest.raises(ValueError, match="missing") as error:
        from_json(_Run, {key: value for key, value in _MINIMAL_DOCUMENT.items() if key != name}, "run")
    assert str(error.value) == f"run.{name} is missing"
    with pytest.raises(ValueError, match=r"run must be an object, not \[\]"):
        from_json(_Run, [], "run")


def test_a_class_says_what_its_documents_may_hold() -> None:
    step = Fields({"name": str}, {"ms": Maybe(float)})
    kind = kind_of(_Run)
    assert kind.required == {"key": Text("[fhq]+", "a precision string"), "AP": float, "steps": Many(step)}
    assert kind.optional == {
        "AR": float,
        "held_out": Named(float),
        "interval": Maybe(Many(float, 2)),
        "front": Many(Text("[fhq]+", "a precision string")),
        "by_name": Named(step),
        "first": Maybe(step),
        "share": Within(0, 1),
        "space": Count(),
        "options": dict,
        "open": bool,
        "further": object,
        "notes": Many(str),
    }


def test_a_type_that_json_cannot_hold_is_refused() -> None:
    @dataclass(frozen=True)
    class Unsupported:
        value: complex

    Unsupported.__annotations__["value"] = complex
    with pytest.raises(TypeError, match="has no form in JSON"):
        kind_of(Unsupported)
