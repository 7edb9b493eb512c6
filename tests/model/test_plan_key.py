# SPDX-License-Identifier: MIT
"""The canonical text of a plan."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpnet.errors import PrecisionError
from mpnet.formats.cfg.read import parse_cfg
from mpnet.model.plan_key import SHORT, format_key, parse_key, short_key
from mpnet.model.precision import BY_CODE, FP16, FP32, INT8, PRECISIONS

NETWORK = parse_cfg(
    "[net]\nwidth=8\nheight=8\n[convolutional]\nfilters=6\n[maxpool]\n[convolutional]\nfilters=6\n"
    "[yolo]\nclasses=1\nanchors=1,1\nnum=1\n",
    "t.cfg",
)


def test_key_names_weights_first_and_the_rest_by_index() -> None:
    assert format_key([FP32, INT8], {1: FP16}) == "fq+1:h"
    assert parse_key(NETWORK, "fq+1:h") == {0: FP32, 2: INT8, 1: FP16}


@given(st.text(sorted(BY_CODE), min_size=2, max_size=2), st.sampled_from(["", *BY_CODE]))
def test_keys_survive(codes: str, pool: str) -> None:
    key = codes + (f"+1:{pool}" if pool else "")
    precisions = parse_key(NETWORK, key)
    assert format_key([precisions[0], precisions[2]], {1: precisions[1]} if pool else {}) == key


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("fqf", "precision key 'fqf' names 3 layers with weights, not the 2 of t.cfg"),
        ("fx", f"precision key 'fx': unknown code 'x'; known are {', '.join(f'{p.code} ({p})' for p in PRECISIONS.values())}"),
        ("ff+", "precision key 'ff+': '' names no layer without weights"),
        ("ff+0:q", "precision key 'ff+0:q': '0:q' names no layer without weights"),
        ("ff+9:q", "precision key 'ff+9:q': '9:q' names no layer without weights"),
        ("ff+3:q", "precision key 'ff+3:q': layer 3 is a [yolo], which is always fp32"),
    ],
)
def test_keys_that_do_not_fit(key: str, message: str) -> None:
    with pytest.raises(PrecisionError) as excinfo:
        parse_key(NETWORK, key)
    assert str(excinfo.value) == message


@given(st.text(max_size=30))
def test_arbitrary_keys_are_read_or_refused(key: str) -> None:
    with contextlib.suppress(PrecisionError):
        assert {0, 2} <= set(parse_key(NETWORK, key))


@pytest.mark.parametrize(
    ("key", "short"),
    [
        ("fqqqqqqqhqh+3:q", "fqqqqqqqhqh+3:q"),
        ("h" + 70 * "q" + 4 * "h", "h q*70 h*4"),
        ("f" + 98 * "q" + "ff+3:q", "f q*98 f*2+3:q"),
        (37 * "qh" + "q", "q*38 h*37 #eac2ce"),
        (60 * "q" + "+3:q,7:q,9:h", "q*60 +3 more #0dfccf"),
    ],
)
def test_long_keys_are_shortened(key: str, short: str) -> None:
    assert short_key(key) == short


@given(st.sets(st.text("fhq", min_size=60, max_size=80), min_size=2, max_size=5))
def test_short_keys_are_short_and_stay_apart(keys: set[str]) -> None:
    short_keys = [short_key(key) for key in sorted(keys)]
    assert max(map(len, short_keys)) <= SHORT
    assert len(set(short_keys)) == len(keys)
