"""Strict reading of JSON files that others wrote: size limit, no NaN, one line for whatever is wrong."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, NoReturn

from mpnet.errors import DataError, FormatError
from mpnet.formats.messages import named, shown

MAX_JSON_BYTES = 1024 * 1024 * 1024


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def read_json(path: Path | str) -> Any:
    """The value in a JSON file.

    Raises: DataError when it cannot be read or is above 1 GiB; FormatError with line and column when it is no JSON.
    """
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size > MAX_JSON_BYTES:
                raise DataError(f"{named(path)}: larger than {MAX_JSON_BYTES} bytes; split it")
            data = file.read(MAX_JSON_BYTES + 1)
    except (OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise DataError(f"{named(path)}: cannot be read ({reason}); check the path") from None
    if len(data) > MAX_JSON_BYTES:
        raise DataError(f"{named(path)}: larger than {MAX_JSON_BYTES} bytes; split it")
    return parse_json(data, path)


def parse_json(data: bytes, name: Path | str) -> Any:
    """The value in the bytes of a JSON document called `name`. Raises: FormatError when it is none."""
    try:
        return json.loads(data.decode("utf-8-sig"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise FormatError(f"{named(name)}: byte {error.start} is not UTF-8 text; is this a JSON file?") from None
    except json.JSONDecodeError as error:
        raise FormatError(f"{named(name)}:{error.lineno}: not valid JSON ({error.msg}, column {error.colno}); "
                          "export the file again") from None
    except RecursionError:
        raise FormatError(f"{named(name)}: nested too deeply for a JSON file of this kind; export it again") from None
    except ValueError as error:  # NaN, Infinity, integers of thousands of digits
        reason = str(error).split(";")[0]
        raise FormatError(f"{named(name)}: not valid JSON ({reason}); export the file again") from None


def number(record: dict[str, Any], key: str, place: str) -> float:
    """A finite number. Raises: FormatError naming place and key."""
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise FormatError(f"{place}: '{key}' must be a number, not {shown(value)}")
    try:
        result = float(value)
    except OverflowError:
        result = math.inf
    if not math.isfinite(result):
        raise FormatError(f"{place}: '{key}' is not finite ({shown(value)})")
    return result


def integer(record: dict[str, Any], key: str, place: str) -> int:
    """An integer within 64 bits. Raises: FormatError naming place and key."""
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise FormatError(f"{place}: '{key}' must be an integer, not {shown(value)}")
    return value


def box(record: dict[str, Any], key: str, place: str) -> list[float]:
    """[x, y, width, height], finite, sizes not negative. Raises: FormatError naming place and key."""
    value = record.get(key)
    if not isinstance(value, list) or len(value) != 4:
        raise FormatError(f"{place}: '{key}' must be [x, y, width, height], not {shown(value)}")
    result = [number({key: part}, key, place) for part in value]
    if result[2] < 0 or result[3] < 0:
        raise FormatError(f"{place}: '{key}' has a negative width or height: {shown(value)}")
    if max(map(abs, result)) > 1e7:
        raise FormatError(f"{place}: '{key}' is beyond any picture: {shown(value)}")
    return result


def records(document: Any, key: str, name: Path | str) -> list[dict[str, Any]]:
    """The list of objects under `key`. Raises: FormatError naming the file and the record."""
    if not isinstance(document, dict) or not isinstance(document.get(key), list):
        raise FormatError(f"{named(name)}: must be a JSON object with a list '{key}'")
    values: list[Any] = document[key]
    for position, value in enumerate(values):
        if not isinstance(value, dict):
            raise FormatError(f"{named(name)}: {key}[{position}] must be an object, not {shown(value)}")
    return values
