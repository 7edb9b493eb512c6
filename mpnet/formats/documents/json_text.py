# SPDX-License-Identifier: MIT
"""JSON: strict reading of files that others wrote (size limit, no NaN, one line for whatever is wrong); values to write."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterator, Mapping, NoReturn

from mpnet.errors import DataError, FormatError, MpnetError
from mpnet.formats.documents.schema import Kind, mismatch
from mpnet.formats.files.bounded import decode_text, read_bounded
from mpnet.json_values import Json, JsonObject
from mpnet.messages import bytes_text, named, shown

MAX_JSON_BYTES = 1024 * 1024 * 1024
MAX_LABELS_MEMORY = 4 << 30
"""Of labels and detections, which may be large; other documents have a quarter."""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def read_json(path: Path | str) -> Json:
    """Read the value in a JSON file.

    Raises: DataError when it cannot be read or is too large; FormatError with line and column when it is no JSON.
    """
    data = read_bounded(path, MAX_JSON_BYTES, "JSON file of labels or detections", DataError)
    return parse_json(data, path, memory_bytes=MAX_LABELS_MEMORY)


@dataclass(frozen=True)
class DocumentFormat:
    """A kind of JSON document that mpnet writes, and reads again when it is whole.

    what:     for messages, such as `latency table`; remedy: what to do about one that is none.
    sections: that every document has; optional: that it may have; their kinds as in `schema`.
    error:    raised for one that cannot be read.
    """

    name: str
    version: int
    what: str
    remedy: str
    limit_bytes: int
    sections: Mapping[str, Kind]
    error: type[MpnetError] = FormatError
    optional: Mapping[str, Kind] = field(default_factory=dict)

    @property
    def head(self) -> dict[str, Json]:
        """Return how such a document begins."""
        return {"format": self.name, "version": self.version}

    def read(self, path: Path | str) -> JsonObject:
        """Read the document in a file and check its sections. Raises: `error`."""
        data = read_bounded(path, self.limit_bytes, self.what, self.error)
        try:
            document = parse_json(data, path, f"it is no {self.what}; {self.remedy}")
        except FormatError as error:
            raise self.error(str(error)) from None
        if not isinstance(document, dict) or document.get("format") != self.name:
            raise self.error(f"{named(path)}: is no {self.what}; {self.remedy}")
        if document.get("version") != self.version:
            raise self.error(
                f"{named(path)}: has format version {shown(document.get('version'))}, this mpnet reads "
                f"{self.version}; {self.remedy}"
            )
        for section, kind in {**self.optional, **self.sections}.items():
            if section not in document and section in self.sections:
                raise self.damaged(path, f"section {section!r} is missing")
            wrong = mismatch(document[section], kind, section) if section in document else None
            if wrong is not None:
                raise self.damaged(path, wrong)
        return document

    def damaged(self, path: Path | str, what: str) -> MpnetError:
        """Return the error for a document whose content is wrong."""
        return self.error(f"{named(path)}: a damaged {self.what}: {what}; {self.remedy}")


def parse_json(
    data: bytes, name: Path | str, remedy: str = "export the file again", memory_bytes: int = MAX_LABELS_MEMORY // 4
) -> Json:
    """Parse the value in the bytes of a JSON document called `name`.

    memory_bytes: that its values may take. Raises: FormatError when it is none, or takes more.
    """
    # What Python needs, about: a list or object, and a number or text with its place in one.
    need = 3 * len(data) + 56 * data.count(b"[") + 176 * data.count(b"{") + 40 * (data.count(b",") + data.count(b":"))
    if need > memory_bytes:
        raise FormatError(
            f"{named(name)}: its values would take about {bytes_text(need)} of memory, more than "
            f"{bytes_text(memory_bytes)}; split the file"
        )
    try:
        document: Json = json.loads(decode_text(data), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise FormatError(f"{named(name)}: byte {error.start} is not UTF-8 text; is this a JSON file?") from None
    except json.JSONDecodeError as error:
        raise FormatError(
            f"{named(name)}:{error.lineno}: not valid JSON ({error.msg}, column {error.colno}); {remedy}"
        ) from None
    except RecursionError:
        raise FormatError(f"{named(name)}: nested too deeply for a JSON file of this kind; {remedy}") from None
    except ValueError as error:  # NaN, Infinity, integers of thousands of digits
        reason = str(error).split(";")[0]
        raise FormatError(f"{named(name)}: not valid JSON ({reason}); {remedy}") from None
    return document


def number(record: JsonObject, key: str, location: str) -> float:
    """Return a finite number. Raises: FormatError naming place and key."""
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise FormatError(f"{location}: '{key}' must be a number, not {shown(value)}")
    try:
        result = float(value)
    except OverflowError:
        result = math.inf
    if not math.isfinite(result):
        raise FormatError(f"{location}: '{key}' is not finite ({shown(value)})")
    return result


def integer(record: JsonObject, key: str, location: str) -> int:
    """Return an integer within 64 bits. Raises: FormatError naming place and key."""
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise FormatError(f"{location}: '{key}' must be an integer, not {shown(value)}")
    return value


def box(record: JsonObject, key: str, location: str) -> list[float]:
    """Return [x, y, width, height], finite, sizes not negative. Raises: FormatError naming place and key."""
    value = record.get(key)
    if not isinstance(value, list) or len(value) != 4:
        raise FormatError(f"{location}: '{key}' must be [x, y, width, height], not {shown(value)}")
    result = [number({key: part}, key, location) for part in value]
    if result[2] < 0 or result[3] < 0:
        raise FormatError(f"{location}: '{key}' has a negative width or height: {shown(value)}")
    if max(map(abs, result)) > 1e7:
        raise FormatError(f"{location}: '{key}' is beyond any image: {shown(value)}")
    return result


def records(document: Json, key: str, name: Path | str) -> Iterator[tuple[str, JsonObject]]:
    """Yield the objects in the list under `key`, each with its place for messages; no two have the same id.

    Raises: FormatError naming the file and the record.
    """
    if not isinstance(document, dict) or not isinstance(document.get(key), list):
        raise FormatError(f"{named(name)}: must be a JSON object with a list '{key}'")
    seen: set[int] = set()
    for position, record in enumerate(document[key]):
        location = f"{named(name)}: {key}[{position}]"
        if not isinstance(record, dict):
            raise FormatError(f"{location} must be an object, not {shown(record)}")
        if "id" in record:
            identity = integer(record, "id", location)
            if identity in seen:
                raise FormatError(f"{location}: id {identity} was used before; ids must differ")
            seen.add(identity)
        yield location, record


def finite(value: Any) -> Json:
    """Return `value` as JSON can hold it: None for NaN and infinities, Python's numbers for NumPy's, lists for tuples."""
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
