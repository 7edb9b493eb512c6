# SPDX-License-Identifier: MIT
"""Declared documents: what fits, and the first place that does not."""

from __future__ import annotations

from typing import Any

import pytest

from mpnet.formats.documents.schema import Count, Fields, Many, Maybe, Named, Text, Within, mismatch

KIND = Fields(
    {"name": str, "rows": Many(Fields({"index": int}, {"ms": Maybe(float)}))},
    {
        "key": Text("[a-z]+", "a word"),
        "costs": Named(float),
        "share": Within(0, 1),
        "open": dict,
        "flag": bool,
        "first": Many(str, 1),
    },
)
VALID_DOCUMENT: dict[str, Any] = {
    "name": "a",
    "rows": [{"index": 1, "ms": None}, {"index": -2, "ms": 0.5, "more": "x"}],
    "key": "ab",
    "costs": {"a": 1},
    "share": 1,
    "open": {"x": [None]},
    "flag": True,
    "first": ["x"],
    "further": object(),
}


def test_what_fits_is_not_mentioned() -> None:
    assert mismatch(VALID_DOCUMENT, KIND, "it") is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 5}, "it.name must be a text, not 5"),
        ({"rows": {}}, "it.rows must be a list, not {}"),
        ({"rows": [{"index": 1}, {}]}, "it.rows[1].index is missing"),
        ({"rows": [{"index": True}]}, "it.rows[0].index must be a whole number, not True"),
        ({"rows": [{"index": 1 << 63}]}, "it.rows[0].index must be a whole number, not 9223372036854775808"),
        ({"rows": [{"index": 1, "ms": float("inf")}]}, "it.rows[0].ms must be a number, not inf"),
        ({"rows": [{"index": 1, "ms": 10**400}]}, f"it.rows[0].ms must be a number, not 1{'0' * 56}..."),
        ({"rows": [[1]]}, "it.rows[0] must be an object, not [1]"),
        ({"key": "A\n"}, "it.key must be a word, not 'A\\n'"),
        ({"costs": {"a\n": "x"}}, "it.costs.a\\n must be a number, not 'x'"),
        ({"costs": [1]}, "it.costs must be an object, not [1]"),
        ({"share": 2}, "it.share must be a number from 0 to 1, not 2"),
        ({"open": None}, "it.open must be an object, not None"),
        ({"flag": 1}, "it.flag must be true or false, not 1"),
        ({"first": []}, "it.first must be a list, not []"),
    ],
)
def test_the_first_place_that_does_not_fit_is_named(change: dict[str, Any], message: str) -> None:
    assert mismatch({**VALID_DOCUMENT, **change}, KIND, "it") == message


def test_counts_have_no_end() -> None:
    """A network of 120 layers has 2^120 assignments at two precisions."""
    assert mismatch(2**120, Count(), "space") is None
    for value in (-1, True, 1.0, "1"):
        assert mismatch(value, Count(), "space") is not None
    assert mismatch(2**120, int, "index") is not None
