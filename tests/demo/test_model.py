# SPDX-License-Identifier: MIT
"""The packaged network: whole, of the promised size and shape, and refused when damaged."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from mpnet.demo.model import DATA, model_files
from mpnet.demo.scenes import CLASSES, SIZE
from mpnet.errors import DataError

# yolov3-tiny in order; convolutions carry kernel size, maxpools their stride.
TOPOLOGY = [
    "conv3", "max2", "conv3", "max2", "conv3", "max2", "conv3", "max2", "conv3", "max2", "conv3", "max1",
    "conv3", "conv1", "conv3", "conv1", "yolo", "route", "conv1", "upsample", "route", "conv3", "conv1", "yolo",
]  # fmt: skip


def _sections(path: Path) -> list[tuple[str, dict[str, str]]]:
    sections: list[tuple[str, dict[str, str]]] = []
    for line in path.read_text().splitlines():
        if line.startswith("["):
            sections.append((line.strip("[]"), {}))
        elif "=" in line:
            key, value = line.split("=", 1)
            sections[-1][1][key.strip()] = value.strip()
    return sections


def _abbreviate(kind: str, keys: dict[str, str]) -> str:
    if kind == "convolutional":
        return "conv" + keys["size"]
    return "max" + keys["stride"] if kind == "maxpool" else kind


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA, tmp_path / "data"))


def test_packaged_files_are_whole() -> None:
    files = model_files()
    assert files.names.read_text().split() == list(CLASSES)


def test_topology_is_yolov3_tiny() -> None:
    net, *layers = _sections(model_files().cfg)
    assert (net[0], net[1]["width"], net[1]["height"]) == ("net", str(SIZE), str(SIZE))
    assert [_abbreviate(*layer) for layer in layers] == TOPOLOGY
    assert [keys["layers"] for kind, keys in layers if kind == "route"] == ["-4", "-1, 8"]
    assert [keys["mask"] for kind, keys in layers if kind == "yolo"] == ["3,4,5", "0,1,2"]


def test_weights_have_the_size_that_the_cfg_asks_for() -> None:
    files = model_files()
    filters = [int(k["filters"]) for kind, k in _sections(files.cfg) if kind == "convolutional"]
    sizes = [int(k["size"]) for kind, k in _sections(files.cfg) if kind == "convolutional"]
    depths = [3, *filters[:9], filters[7], filters[10] + filters[4], filters[11]]
    values = sum(d * f * s * s for d, f, s in zip(depths, filters, sizes, strict=True))
    values += sum(f if k in (9, 12) else 4 * f for k, f in enumerate(filters))
    size_bytes = files.weights.stat().st_size
    assert size_bytes == 20 + 4 * values
    assert size_bytes <= 2_500_000


def test_weights_are_finite_and_of_version_0_2_5() -> None:
    raw = model_files().weights.read_bytes()
    assert np.frombuffer(raw, "<i4", 3).tolist() == [0, 2, 5]
    assert bool(np.isfinite(np.frombuffer(raw, "<f4", offset=20)).all())


@pytest.mark.parametrize("name", ["demo.cfg", "demo.weights", "demo.names"])
def test_damaged_file_is_named_in_one_line(copied: Path, name: str) -> None:
    path = copied / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(DataError, match=rf"^{re.escape(str(path))}: damaged, SHA-256 is [^\n]*$"):
        model_files(copied)


@pytest.mark.parametrize("name", ["demo.cfg", "demo.weights", "demo.names", "SHA256SUMS"])
def test_missing_file_is_named(copied: Path, name: str) -> None:
    (copied / name).unlink()
    with pytest.raises(DataError, match=rf"^{re.escape(str(copied / name))}: cannot be read"):
        model_files(copied)


def test_damaged_list_of_digests_is_named_with_its_line(copied: Path) -> None:
    path = copied / "SHA256SUMS"
    path.write_text(path.read_text().replace("  demo.names", " demo.names"))
    with pytest.raises(DataError, match=rf"^{re.escape(str(path))}:2: not a line of SHA-256"):
        model_files(copied)
