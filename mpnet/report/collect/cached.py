# SPDX-License-Identifier: MIT
"""Results that a report had to compute, kept in the cache, so that the same report runs no network a second time.

The key is the digest of everything that decides the outcome: what store or runs hold, with the digests of network, weights,
images and labels, which were read and compared just before; what was asked for; and this very program. Whatever differs has
another key, so that nothing stale is found.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence, TypeVar

import numpy as np

import mpnet
from mpnet.evaluation.compare import Interval
from mpnet.formats.files.cache import open_cache
from mpnet.json_values import Json
from mpnet.kernels.core import LIBRARY_PATH
from mpnet.kernels.environment import cpu_name
from mpnet.report.data import conditions, differences, report_data
from mpnet.resolve.configurations import Configurations
from mpnet.sweep.result import FrontShare, LayerShare, Stability

T = TypeVar("T")

_KINDS = {
    kind.__name__: kind
    for kind in (
        *(
            kind
            for module in (report_data, differences, conditions)
            for kind in vars(module).values()
            if is_dataclass(kind) and isinstance(kind, type)
        ),
        Configurations,
        FrontShare,
        Interval,
        LayerShare,
        Stability,
    )
}


def load_or_compute(deciding: Sequence[object], compute: Callable[[], T], worth: Callable[[T], bool] = lambda _: True) -> T:
    """Return what `compute` gives, from the cache where it was computed before.

    deciding: all that the outcome depends on. worth: whether an outcome may be kept in the cache.
    Values are what documents hold, arrays, bytes, and dataclasses of reports. Raises: what `compute` raises, ConfigError for a
    limit of the cache that is no size.
    """
    cache = open_cache()
    if cache is None:
        return compute()
    text, content = _packed([_program(), *deciding])
    key = hashlib.sha256(len(text).to_bytes(8, "little") + text + content).hexdigest()
    blocks = cache.load(key)
    if blocks is not None and len(blocks) == 2:
        value: T = _decoded(json.loads(blocks[0].tobytes()), blocks[1].tobytes())
        return value
    value = compute()
    if worth(value):
        cache.store(key, [np.frombuffer(block, np.uint8) for block in _packed(value)])
    return value


@functools.cache
def _program() -> list[object]:
    """Return the release, the processor, and size and time of this program's files, for whoever changes them."""
    folder = Path(mpnet.__file__).parent
    files = sorted(path for ending in ("py", "js", "css") for path in folder.rglob(f"*.{ending}"))
    stats = [os.stat(path) for path in [*files, Path(LIBRARY_PATH)]]
    return [mpnet.__version__, cpu_name(), [[state.st_size, state.st_mtime_ns] for state in stats]]


def _packed(value: object) -> tuple[bytes, bytes]:
    """Return a value as JSON, and the bytes of all arrays in it."""
    content = bytearray(b"\0")  # a block of a cache is not empty
    return json.dumps(_encoded(value, content)).encode(), bytes(content)


def _encoded(value: object, content: bytearray) -> Json:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        number: Json = value.item()
        return number
    start = len(content)
    if isinstance(value, bytes):
        content += value
        return {"bytes": [start, len(value)]}
    if isinstance(value, np.ndarray):
        content += value.tobytes()
        return {"array": [value.dtype.str, list(value.shape), start, value.nbytes]}
    if isinstance(value, list):
        return [_encoded(item, content) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [_encoded(item, content) for item in value]}
    if isinstance(value, Mapping):
        return {"pairs": [[_encoded(key, content), _encoded(item, content)] for key, item in value.items()]}
    if not is_dataclass(value) or _KINDS.get(type(value).__name__) is not type(value):
        raise TypeError(f"{type(value).__name__} cannot be kept")
    encoded_fields = {field.name: _encoded(getattr(value, field.name), content) for field in fields(value)}
    return {"kind": type(value).__name__, "fields": encoded_fields}


def _decoded(value: Any, content: bytes) -> Any:
    if isinstance(value, list):
        return [_decoded(item, content) for item in value]
    if not isinstance(value, dict):
        return value
    if "bytes" in value:
        start, size = value["bytes"]
        return content[start : start + size]
    if "array" in value:
        dtype, shape, start, size = value["array"]
        return np.frombuffer(content[start : start + size], np.dtype(dtype)).reshape(shape).copy()
    if "tuple" in value:
        return tuple(_decoded(item, content) for item in value["tuple"])
    if "pairs" in value:
        return {_decoded(key, content): _decoded(item, content) for key, item in value["pairs"]}
    return _KINDS[value["kind"]](**{name: _decoded(item, content) for name, item in value["fields"].items()})
