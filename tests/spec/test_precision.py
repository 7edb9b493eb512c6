"""What the rows of the registry promise one another."""

from __future__ import annotations

import copy
import pickle

import pytest

from mpnet.errors import PrecisionError
from mpnet.spec.precision import BASE_NAMES, BY_CODE, FP32, PRECISIONS, STORED_TYPES, Precision, precision


@pytest.mark.parametrize("row", PRECISIONS.values(), ids=str)
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
    assert len({stored.dtype for stored in STORED_TYPES.values()}) == len(STORED_TYPES)
    assert set(BASE_NAMES) == {row.base for row in PRECISIONS.values()}


def test_rows_travel_between_processes_as_themselves() -> None:
    for row in PRECISIONS.values():
        assert pickle.loads(pickle.dumps(row)) is row
        assert copy.deepcopy(row) is row


def test_an_unknown_precision_is_named() -> None:
    with pytest.raises(PrecisionError, match="unknown precision 'int4'; known are fp32"):
        precision("int4")
