# SPDX-License-Identifier: MIT
"""What a network takes as an image, and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpnet.api import Boxes, Network, load_network
from mpnet.detection.images import read_image
from mpnet.errors import DataError
from tests.networks import write_images, write_network


@pytest.fixture
def network(tmp_path: Path) -> Network:
    write_network(tmp_path)
    write_images(tmp_path, 2)
    return load_network(tmp_path / "net.cfg", tmp_path / "net.weights")


@pytest.fixture
def files(network: Network, tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "images").iterdir())


@dataclass
class Pil:
    """As much of an image of PIL as is looked at."""

    pixels: Any

    def convert(self, mode: str) -> Any:
        assert mode == "RGB"
        return self.pixels


def test_files_arrays_and_other_images_give_the_same(network: Network, files: list[Path]) -> None:
    pixels = read_image(files[0])
    boxes = network.detect(files[0], confidence=0.01)
    assert boxes
    assert boxes == sorted(boxes, key=lambda box: -box.score)
    for image in (str(files[0]), pixels, Pil(pixels)):
        assert network.detect(image, confidence=0.01) == boxes


def test_several_images_give_a_list_each(network: Network, files: list[Path]) -> None:
    several = network.detect([files[0], read_image(files[1])], confidence=0.01)
    assert several == [network.detect(file, confidence=0.01) for file in files]
    assert network.detect([]) == []


@pytest.mark.parametrize("image", [None, 3, [None], b"bytes", {"a": 1}])
def test_what_is_no_image_is_said(network: Network, image: Any) -> None:
    with pytest.raises(DataError, match="is no image; give a path"):
        network.detect(image)


def test_arrays_of_another_shape_are_refused(network: Network) -> None:
    for shape, dtype in (((4, 4), np.uint8), ((4, 4, 4), np.uint8), ((4, 4, 3), np.float32), ((0, 4, 3), np.uint8)):
        with pytest.raises(DataError):
            network.detect(np.zeros(shape, dtype))  # type: ignore[arg-type]


def test_a_network_says_what_it_is(network: Network) -> None:
    text = repr(network)
    assert "net.cfg" in text
    assert network.precision in text
    assert f"{network.spec.width}x{network.spec.height}x3" in text


def test_boxes_are_a_table_in_notebooks(network: Network, files: list[Path]) -> None:
    boxes = network.detect(files[0], confidence=0.01)
    page = boxes._repr_html_()
    assert page.count("<tr>") == 1 + len(boxes)
    assert boxes[0].name in page
    pandas = pytest.importorskip("pandas")
    frame = boxes.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert frame["score"].tolist() == [box.score for box in boxes]
    assert list(Boxes().to_pandas().columns) == list(frame.columns)
