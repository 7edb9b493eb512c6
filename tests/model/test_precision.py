# SPDX-License-Identifier: MIT
"""What the rows of the registry promise one another."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest

from mpnet.errors import PrecisionError
from mpnet.formats.cfg.edit import edit_precisions
from mpnet.formats.cfg.read import parse_cfg
from mpnet.model.plan_key import format_key, parse_key
from mpnet.model.precision import BASE_NAMES, BY_CODE, FP32, PRECISIONS, STORED_TYPES, Precision, precision

EVERY = pytest.mark.parametrize("row", PRECISIONS.values(), ids=str)
CFG = b"[net]\nwidth=8\nheight=8\n[convolutional]\nfilters=2\n"


@EVERY
def test_rows_fit_together(row: Precision) -> None:
    assert row.stored is STORED_TYPES[row.stored.name]
    assert row.tensor.base == row.tensor.name
    assert row.tensor.stored is row.stored
    assert row.widened is (FP32 if row.carries_scale else row.tensor)
    assert row.rank == row.tensor.rank
    assert row.weight_bits <= 8 * row.stored.item_bytes
    assert BY_CODE[row.code] is row


def test_names_codes_and_dtypes_are_unique() -> None:
    assert len(BY_CODE) == len(PRECISIONS)
    assert len({stored_type.dtype for stored_type in STORED_TYPES.values()}) == len(STORED_TYPES)
    assert set(BASE_NAMES) == {row.base for row in PRECISIONS.values()}


def test_rows_travel_between_processes_as_themselves() -> None:
    for row in PRECISIONS.values():
        assert pickle.loads(pickle.dumps(row)) is row
        assert copy.deepcopy(row) is row


def test_an_unknown_precision_is_named() -> None:
    with pytest.raises(PrecisionError, match="unknown precision 'int9'; known are fp32"):
        precision("int9")


@EVERY
def test_a_key_of_it_is_read_as_it_was_written(row: Precision) -> None:
    network = parse_cfg(CFG + b"[maxpool]\n[convolutional]\n", "t.cfg")
    assert parse_key(network, format_key([row, row], {1: row})) == {0: row, 1: row, 2: row}


@EVERY
def test_a_cfg_declares_it_in_place_of_any_other(row: Precision) -> None:
    for other_precision in PRECISIONS.values():
        declared = parse_cfg(edit_precisions(edit_precisions(CFG, [other_precision]), [row]), "t.cfg").layers[0].declared
        assert (declared.precision if declared else FP32) is row


@EVERY
def test_the_arithmetic_names_it(row: Precision, repository: Path) -> None:
    assert row.name in (repository / "docs" / "arithmetic.md").read_text(encoding="utf-8")
