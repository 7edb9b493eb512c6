# SPDX-License-Identifier: MIT
"""All networks of the Darknet family against the tensors that the two programs computed, in their dialects."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.realdata.darknet_family import HEAD, LAYER, deviations, family_names, open_case, tool

# Those whose weights take no time to make; the others are for the whole run.
QUICK_BYTES = 1 << 20


def is_small(row: dict) -> bool:
    return bool(row["weights_bytes"] < QUICK_BYTES)


def check(shared_data: Path, tmp_path: Path, is_small_wanted: bool) -> None:
    folder = shared_data / "darknet-family"
    maker = tool(shared_data.parent / "tools" / "golden_darknet.py")
    deviating = []
    rows = [row for row in family_names(folder) if is_small(row) is is_small_wanted]
    assert len(rows) > 10
    for row in rows:
        heads, layers = deviations(open_case(folder, row, maker, tmp_path))
        deviating += [f"{row['name']}: heads {heads:.1e}"] if heads > HEAD else []
        deviating += [f"{row['name']}: layer {index} {value:.1e}" for index, value in layers.items() if not value <= LAYER]
    assert deviating == []


def test_networks_written_to_cover_every_layer(shared_data: Path, tmp_path: Path) -> None:
    check(shared_data, tmp_path, True)


@pytest.mark.slow
def test_published_networks(shared_data: Path, tmp_path: Path) -> None:
    check(shared_data, tmp_path, False)
