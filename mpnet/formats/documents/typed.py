# SPDX-License-Identifier: MIT
"""JSON documents <-> frozen dataclasses: what a document holds is declared once, by the dataclass's fields.

    @dataclass(frozen=True)
    class Row:
        key: Annotated[str, Text("[fhq]+", "a precision string")]
        ap: float = field(metadata=json_key("AP"))
        notes: tuple[str, ...] = field(default=(), metadata=json_key(omit_default=True))

    as_json(Row("fq", 71.5)) == {"key": "fq", "AP": 71.5}
    from_json(Row, {"key": "fq", "AP": 71.5}, "row") == Row("fq", 71.5)

A field's type says what its key may hold, and an `Annotated` kind of `schema` narrows it to a range or a pattern:

| type of the field | in JSON |
|---|---|
| str, bool, int, float | such a value; any finite number for float, which keeps the form in which it was written |
| `X | None` | X or null |
| `tuple[X, ...]`, `tuple[X, X]` | a list of X; a list of at least two X |
| `Mapping[str, X]` | an object with any keys, each an X; `JsonObject`: any object |
| a dataclass | an object with the keys of its fields |
| Json | any value |

Keys are written in the order of the fields. A field without a default must be in every document; one with a default may be
missing, as in documents of older versions. Keys that no field declares, which a newer mpnet may have written, are ignored.
Experiment files have their own reader (`yaml_section`), since YAML here holds texts that are still to be parsed.
"""

from __future__ import annotations

from collections import abc
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Callable, Mapping, TypeVar, Union, get_args, get_origin, get_type_hints

from mpnet.formats.documents.schema import Fields, Kind, Many, Maybe, Named, mismatch
from mpnet.json_values import Json, JsonObject
from mpnet.model.keys import JsonKey

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_Document = TypeVar("_Document", bound="DataclassInstance")
_Convert = Callable[[Any], Any]


@dataclass(frozen=True)
class _Member:
    """One field of a dataclass.

    field_name: its name. key: how it stands in JSON; key.name is never ''.
    kind:       what its value may be; of an inline mapping, what each of its values may be.
    convert:    makes the field's value from a JSON value that fits the kind; None: it is the JSON value.
    default:    makes its default; None: there is none.
    """

    field_name: str
    key: JsonKey
    kind: Kind
    convert: _Convert | None
    default: Callable[[], object] | None


def kind_of(declared: type[DataclassInstance]) -> Fields:
    """Return what a document of a dataclass may hold, for `schema.mismatch`."""
    required: dict[str, Kind] = {}
    optional: dict[str, Kind] = {}
    for member in _members(declared):
        if member.key.inline:
            for name in member.key.inline:
                (required if name in member.key.required else optional)[name] = member.kind
        else:
            (required if member.default is None else optional)[member.key.name] = member.kind
    return Fields(required, optional)


def from_json(declared: type[_Document], document: object, location: str) -> _Document:
    """Return a JSON value as the dataclass that declares it.

    location: what the document is called in messages, such as `findings`.
    Raises: ValueError naming the first place that does not fit, such as `findings.front[3].trial must be a text, not 5`.
    """
    message = mismatch(document, kind_of(declared), location)
    if message is not None:
        raise ValueError(message)
    assert isinstance(document, dict)
    return build(declared, document)


def build(declared: type[_Document], document: JsonObject) -> _Document:
    """Return as `from_json` what is known to fit `kind_of(declared)`, since its whole document was checked."""
    values: dict[str, object] = {}
    for member in _members(declared):
        if member.key.inline:
            names = frozenset(member.key.inline)
            items = {name: value for name, value in document.items() if name in names}
            values[member.field_name] = _convert_items(items, member.convert)
        elif member.key.name in document:
            value = document[member.key.name]
            values[member.field_name] = value if member.convert is None else member.convert(value)
    return declared(**values)


def as_json(instance: DataclassInstance) -> dict[str, Json]:
    """Return a dataclass as the JSON object that `from_json` reads, its keys in the order of the fields."""
    document: dict[str, Json] = {}
    for member in _members(type(instance)):
        value = getattr(instance, member.field_name)
        if member.key.inline:
            document |= {name: _json_value(item) for name, item in value.items()}
        elif not (member.key.omit_default and member.default is not None and value == member.default()):
            document[member.key.name] = _json_value(value)
    return document


def _json_value(value: Any) -> Json:
    if is_dataclass(value) and not isinstance(value, type):
        return as_json(value)
    if isinstance(value, Mapping):
        return {name: _json_value(item) for name, item in value.items()}
    return [_json_value(item) for item in value] if isinstance(value, (tuple, list)) else value


@cache
def _members(declared: type[DataclassInstance]) -> tuple[_Member, ...]:
    hints = get_type_hints(declared, include_extras=True)
    members = []
    for field in fields(declared):
        key = field.metadata.get("json", JsonKey())
        hint = hints[field.name]
        if key.inline:
            hint = get_args(hint)[1]
        kind, convert = _reading_of(hint)
        default = None if field.default_factory is MISSING else field.default_factory
        if field.default is not MISSING:
            default = _constant(field.default)
        key = JsonKey(key.name or field.name, key.omit_default, key.inline, key.required)
        members.append(_Member(field.name, key, kind, convert, default))
    return tuple(members)


def _constant(value: object) -> Callable[[], object]:
    return lambda: value


def _reading_of(hint: object) -> tuple[Kind, _Convert | None]:
    """Return what a JSON value of a type may be, and what makes the Python value of it (None: it is that value)."""
    origin, parameters = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return parameters[1], _reading_of(parameters[0])[1]
    if origin in (Union, UnionType) and len(parameters) == 2 and NoneType in parameters:
        kind, convert = _reading_of(parameters[parameters[0] is NoneType])
        return Maybe(kind), _or_none(convert)
    if origin is tuple:
        kind, convert = _reading_of(parameters[0])
        least = 0 if parameters[-1] is Ellipsis else len(parameters)
        return Many(kind, least), lambda value: tuple(value if convert is None else map(convert, value))
    if origin is abc.Mapping:
        kind, convert = _reading_of(parameters[1])
        return dict if parameters[1] is Json else Named(kind), convert and (lambda value: _convert_items(value, convert))
    if is_dataclass(hint) and isinstance(hint, type):
        return kind_of(hint), lambda value: build(hint, value)
    if hint is Json:
        return object, None
    if hint in (str, bool, int, float):
        return hint, None
    raise TypeError(f"{hint} has no form in JSON; see the table in mpnet/formats/documents/typed.py")


def _or_none(convert: _Convert | None) -> _Convert | None:
    return None if convert is None else lambda value: None if value is None else convert(value)


def _convert_items(items: JsonObject, convert: _Convert | None) -> Mapping[str, object]:
    return items if convert is None else {name: convert(value) for name, value in items.items()}
