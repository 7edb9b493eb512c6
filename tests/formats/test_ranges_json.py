# SPDX-License-Identifier: MIT
"""Files of calibrated ranges."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpnet.errors import DataError, FormatError
from mpnet.formats.documents.ranges import ranges_json, read_ranges, write_ranges
from mpnet.model.ranges import CalibratedRanges, TensorRange

IMAGE = TensorRange(-1, "picture", 0.0, 1.0, 0.0, 1.0, "min_max")
CONV = TensorRange(4, 'conv "4"', -0.10000000149011612, 3.4000000953674316, -0.25, 9.5, "percentile 99.99")
RANGES = CalibratedRanges((IMAGE, CONV), 32, {"network": "a" * 64, "weights": "b" * 64})


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    write_ranges(tmp_path / "ranges.json", RANGES)
    assert read_ranges(tmp_path / "ranges.json") == RANGES


def test_text_has_one_line_per_tensor() -> None:
    lines = ranges_json(RANGES).splitlines()
    assert lines[7] == (
        '    {"tensor": 4, "name": "conv \\"4\\"", "min": -0.100000001, "max": 3.4000001, "seen_min": -0.25, '
        '"seen_max": 9.5, "method": "percentile 99.99"}'
    )


@pytest.mark.parametrize(
    ("original", "replacement", "message"),
    [
        ('"max": 3.4000001', '"max": -3', r"tensors\[1\]: range of tensor 4 \(conv \"4\"\): min -0.1.* > max -3.0"),
        ('"max": 3.4000001', '"max": 1e39', r"tensors\[1\]: .*is not finite"),
        ('"max": 3.4000001', '"max": NaN', "not valid JSON"),
        ('"max": 3.4000001', '"max": "wide"', r"tensors\[1\]: 'max' must be a number"),
        ('"tensor": 4', '"tensor": -1', "tensor -1 has two ranges"),
        ('"method": "percentile 99.99"', '"method": "kl"', "unknown method 'kl'"),
        ('"method": "percentile 99.99"', '"method": 3', "'name' and 'method' must be texts"),
        ('"images": 32', '"images": 0', "calibrated on 0 images"),
        ('"format": "mpnet-ranges"', '"format": "x"', "is no ranges file; calibrate again"),
        ('"digests": {', '"digests": {"data": 3, ', "'digests' must be an object of texts"),
    ],
)
def test_broken_files_are_named(tmp_path: Path, original: str, replacement: str, message: str) -> None:
    text = ranges_json(RANGES)
    assert original in text
    path = tmp_path / "ranges.json"
    path.write_text(text.replace(original, replacement))
    with pytest.raises(FormatError, match=message) as excinfo:
        read_ranges(path)
    assert "\n" not in str(excinfo.value)
    assert str(path) in str(excinfo.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"none.json: cannot be read"):
        read_ranges(tmp_path / "none.json")


def test_ranges_of_another_network_are_refused() -> None:
    RANGES.check_made_for({"network": "a" * 64})
    with pytest.raises(DataError, match=r"made for other weights \(bbbbbbbbbbbb, not cccccccccccc\); calibrate again"):
        RANGES.check_made_for({"network": "a" * 64, "weights": "c" * 64})
