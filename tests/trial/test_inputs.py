# SPDX-License-Identifier: MIT
"""Images as network inputs: in order, decoded once, and refused together."""

from __future__ import annotations

from typing import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from mpnet.data.dataset import ImageRecord
from mpnet.detection.images import image
from mpnet.errors import ConfigError, DataError
from mpnet.formats.cfg.read import parse_cfg
from mpnet.trial.inputs import Inputs, in_order, spread
from mpnet.trial.workbench import Workbench
from tests.networks import tiny_cfg


class _CountingLoader:
    """Decodes images and counts how often."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, record: ImageRecord) -> NDArray[np.uint8]:
        self.count += 1
        return image(record)


def inputs_of(bench: Workbench, loader: _CountingLoader, keep_bytes: int) -> Inputs:
    return Inputs(bench.dataset.images, bench.network, "stretch", loader, keep_bytes=keep_bytes)


def test_batches_hold_all_images_in_order(bench: Workbench) -> None:
    batches = list(bench.inputs.batches(2))
    assert [(batch.start, len(batch.x), len(batch.geometry)) for batch in batches] == [(0, 2, 2), (2, 2, 2), (4, 1, 1)]
    together = np.concatenate([batch.x for batch in batches])
    assert together.dtype == np.float32
    assert together.shape == (5, *bench.network.in_shape)
    for position, x in enumerate(together):
        assert np.array_equal(x, bench.inputs.take([position]).x[0])


def test_batches_of_some_positions_count_within_them(bench: Workbench) -> None:
    batches = list(bench.inputs.batches(2, [4, 1, 3]))
    assert [batch.start for batch in batches] == [0, 2]
    assert np.array_equal(batches[1].x[0], bench.inputs.take([3]).x[0])
    assert np.array_equal(bench.inputs.of([4, 1]).take([0]).x, bench.inputs.take([4]).x)


@pytest.mark.parametrize(("keep_bytes", "count"), [(1 << 20, 5), (0, 10)])
def test_each_image_is_decoded_once_where_memory_keeps_it(bench: Workbench, keep_bytes: int, count: int) -> None:
    loader = _CountingLoader()
    inputs = inputs_of(bench, loader, keep_bytes)
    for _ in range(2):
        list(inputs.batches(2))
    assert loader.count == count


@pytest.mark.parametrize("keep_bytes", [1 << 20, 0])
def test_all_broken_images_are_named_at_once(bench: Workbench, keep_bytes: int) -> None:
    def load(record: ImageRecord) -> NDArray[np.uint8]:
        if record.path.endswith(("1.png", "3.png")):
            raise DataError(f"{record.path}: is broken")
        return image(record)

    inputs = Inputs(bench.dataset.images, bench.network, "stretch", load, keep_bytes=keep_bytes)
    with pytest.raises(DataError, match=r"(?s)scene-1\.png.*scene-3\.png"):
        inputs.check()


def test_networks_that_take_no_rgb_are_refused() -> None:
    network = parse_cfg(tiny_cfg().replace("channels=3", "channels=1"), "gray.cfg")
    with pytest.raises(ConfigError, match=r"gray\.cfg: channels=1, but images are RGB"):
        Inputs((), network, "stretch", image)


@pytest.mark.parametrize(
    ("available", "requested", "positions"), [(10, 5, [0, 2, 4, 6, 8]), (3, 5, [0, 1, 2]), (7, 2, [0, 3]), (4, 4, [0, 1, 2, 3])]
)
def test_positions_are_spread_evenly(available: int, requested: int, positions: Sequence[int]) -> None:
    assert spread(available, requested) == positions


def test_the_first_error_of_a_pool_ends_it() -> None:
    def work(item: int) -> int:
        if item == 3:
            raise DataError("three")
        return item * item

    answers = in_order(work, range(1000), 2)
    assert [next(answers) for _ in range(3)] == [0, 1, 4]
    with pytest.raises(DataError, match="three"):
        next(answers)
