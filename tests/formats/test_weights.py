# SPDX-License-Identifier: MIT
"""Reading and writing weights files."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from mpnet.errors import FormatError
from mpnet.formats.cfg.read import parse_cfg
from mpnet.formats.weights import parse_weights, read_weights, weights_content
from mpnet.model.weights import random_weights
from tests.engine.family import family_cfg

NETWORK = parse_cfg(
    "[net]\nwidth=8\nheight=8\nchannels=4\n"
    "[convolutional]\nbatch_normalize=1\nfilters=6\nsize=3\ngroups=2\n"
    "[maxpool]\nsize=2\nstride=2\n"
    "[convolutional]\nfilters=3\nsize=1\n",
    "t.cfg",
)
COUNT = 6 * 4 + 6 * 2 * 9 + 3 + 3 * 6


def numbered(header: bytes) -> bytes:
    return header + np.arange(COUNT, dtype="<f4").tobytes()


@pytest.mark.parametrize("header", [struct.pack("<3iQ", 0, 2, 5, 7), struct.pack("<3ii", 0, 1, 0, 7)])
def test_both_headers_and_the_order_of_values(header: bytes) -> None:
    weights = parse_weights(numbered(header), NETWORK)
    assert (weights.seen, sorted(weights.layers)) == (7, [0, 2])
    first, last = weights.layers[0], weights.layers[2]
    assert first.scales is not None
    assert first.means is not None
    assert first.variances is not None
    starts = [first.biases[0], first.scales[0], first.means[0], first.variances[0], first.weights[0, 0, 0, 0]]
    assert starts == [0, 6, 12, 18, 24]
    assert first.weights.shape == (6, 2, 3, 3)
    assert first.weights[1, 0, 2, 1] == 24 + 18 + 7
    assert (last.biases.tolist(), last.weights.shape, last.scales) == ([132, 133, 134], (3, 6, 1, 1), None)


def test_writing_and_reading_give_the_same(tmp_path: Path) -> None:
    weights = random_weights(NETWORK, seed=3)
    path = tmp_path / "t.weights"
    path.write_bytes(weights_content(weights, NETWORK))
    weights_read_back = read_weights(path, NETWORK)
    assert weights_content(weights_read_back, NETWORK) == path.read_bytes()
    for index, layer in weights.layers.items():
        assert np.array_equal(layer.weights, weights_read_back.layers[index].weights)
    assert [p.name for p in tmp_path.iterdir()] == ["t.weights"]


HEADER = struct.pack("<3iQ", 0, 2, 5, 7)
SIZE = len(HEADER) + 4 * COUNT
SIZE_REMEDY = f", but t.cfg needs {SIZE} ({COUNT} values); use the weights that belong to this cfg, or download them again"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "0 bytes are too few for the header of a weights file; is it complete?"),
        (numbered(HEADER)[:-4], f"too short: {SIZE - 4} bytes{SIZE_REMEDY}"),
        (numbered(HEADER) + b"\0" * 8, f"too long: {SIZE + 8} bytes{SIZE_REMEDY}"),
        (numbered(struct.pack("<3iQ", 0, 2000, 5, 7)), "version (0, 2000, 5) in the header; this is no Darknet weights file"),
    ],
)
def test_wrong_sizes_are_stated(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "t.weights"
    path.write_bytes(content)
    with pytest.raises(FormatError) as excinfo:
        read_weights(path, NETWORK)
    assert str(excinfo.value) == f"{path}: {message}"


@pytest.mark.parametrize(
    "header",
    [struct.pack("<3iQ", 0, 1, 0, 7), struct.pack("<3iQ", 0, 0, 0, 7), struct.pack("<3iI", 0, 2, 5, 7)],
    ids=["of version 0.1, count of 8 bytes", "of version 0.0, count of 8 bytes", "of version 0.2, count of 4 bytes"],
)
def test_the_count_of_images_is_as_long_as_the_files_size_says(header: bytes, tmp_path: Path) -> None:
    """Other trainers, and programs built for 32 bits, write it as long as their own integers are."""
    values = np.arange(1, COUNT + 1, dtype="<f4").tobytes()
    path = tmp_path / "t.weights"
    path.write_bytes(header + values)
    weights = read_weights(path, NETWORK)
    assert (weights.seen, weights.layers[0].biases[0]) == (7, 1)
    assert weights_content(weights, NETWORK).endswith(values)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(FormatError, match="too short"):
        read_weights(path, NETWORK)


def test_zeros_where_a_download_stopped_are_no_weights() -> None:
    network = parse_cfg(
        "[net]\nwidth=8\nheight=8\nchannels=3\n[convolutional]\nfilters=128\nsize=3\npad=1\nactivation=leaky\n", "t.cfg"
    )
    content = weights_content(random_weights(network, 1), network)
    assert parse_weights(content, network).layers.keys() == {0}
    for kept in (len(HEADER), len(content) // 2):
        with pytest.raises(FormatError, match=r"its last [\d,]+ of 3,584 values are all 0, as where a download stopped early"):
            parse_weights(content[:kept] + bytes(len(content) - kept), network)


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t.weights"
    with open(path, "wb") as file:
        file.truncate(1 << 40)  # sparse: takes no disk
    with pytest.raises(FormatError, match=f"too long: {1 << 40} bytes"):
        read_weights(path, NETWORK)


@pytest.mark.parametrize(
    ("position", "value", "message"),
    [
        (1, np.nan, "biases of layer 0 (conv-1) hold nan at value 1;"),
        (30, np.inf, "weights of layer 0 (conv-1) hold inf at value 30;"),
        (19, -1.0, "a variance of layer 0 (conv-1) is negative (-1);"),
        (COUNT - 1, -np.inf, f"weights of layer 2 (conv-2) hold -inf at value {COUNT - 1};"),
    ],
)
def test_values_that_no_training_gives(position: int, value: float, message: str) -> None:
    values = np.arange(COUNT, dtype="<f4")
    values[position] = value
    with pytest.raises(FormatError) as excinfo:
        parse_weights(HEADER + values.tobytes(), NETWORK, "t.weights")
    assert str(excinfo.value) == f"t.weights: {message} the file is damaged or belongs to another cfg"


CONNECTED = parse_cfg(
    "[net]\nwidth=2\nheight=3\nchannels=2\n[connected]\noutput=4\nbatch_normalize=1\nactivation=linear\n", "t.cfg"
)


@pytest.mark.parametrize("header", [struct.pack("<3iQ", 0, 2, 5, 0), struct.pack("<3ii", 1001, 0, 0, 0)])
def test_matrices_come_before_batch_norm_and_in_darknets_order(header: bytes) -> None:
    """Inputs are (c, h, w) in the file and (h, w, c) here; versions above 1000 store the matrix the other way round."""
    values = np.arange(4 + 48 + 12, dtype="<f4")
    layer_weights = parse_weights(header + values.tobytes(), CONNECTED).layers[0]
    matrix = values[4:52].reshape(4, 12) if len(header) == 20 else values[4:52].reshape(12, 4).T
    assert layer_weights.biases.tolist() == [0, 1, 2, 3]
    assert layer_weights.variances is not None
    assert layer_weights.variances.tolist() == [60, 61, 62, 63]
    for y in range(3):
        for x in range(2):
            for c in range(2):
                assert layer_weights.weights[:, (y * 2 + x) * 2 + c, 0, 0].tolist() == matrix[:, (c * 3 + y) * 2 + x].tolist()


def test_what_other_layers_have_in_the_file() -> None:
    conv = "[convolutional]\nfilters=2\nsize=1\nactivation=linear\n"
    network = parse_cfg(
        "[net]\nwidth=2\nheight=2\nchannels=2\n" + conv + "[convolutional]\nfilters=2\nsize=1\nshare_index=0\n"
        "[shortcut]\nfrom=0\nweights_type=per_channel\nweights_normalization=relu\n[batchnorm]\n"
        + conv
        + "dontload=1\n"
        + conv
        + "batch_normalize=1\ndontloadscales=1\n[implicit]\nfilters=3\natoms=2\n",
        "t.cfg",
    )
    assert network.parameters == 6 + 0 + 4 + 8 + 0 + 6 + 6
    weights = parse_weights(HEADER + np.arange(30, dtype="<f4").tobytes(), network)
    assert weights.layers[1] is weights.layers[0]
    assert weights.values[2].tolist() == [[6, 7], [8, 9]]
    assert weights.layers[3].biases.tolist() == [10, 11]
    assert weights.layers[3].weights.ravel().tolist() == [1, 1]
    assert not weights.layers[4].weights.any()
    assert weights.layers[5].weights.ravel().tolist() == [20, 21, 22, 23]
    assert weights.layers[5].scales is not None
    assert weights.layers[5].scales.tolist() == [1, 1]
    assert weights.values[6].tolist() == [[24, 25], [26, 27], [28, 29]]


def test_real_weights(shared_data: Path) -> None:
    from mpnet.formats.cfg.read import read_cfg

    base = shared_data / "aix2022" / "yolov3-tiny-aix2022"
    weights = read_weights(base.with_suffix(".weights"), read_cfg(base.with_suffix(".cfg")))
    assert (weights.version, weights.seen, len(weights.layers)) == ((0, 2, 5), 3212800, 11)


def test_all_kinds_of_layers_are_written_as_they_are_read(tmp_path: Path) -> None:
    for name in ("connected", "batchnorm", "deconvolutional", "share_index", "shortcuts", "sam"):
        network = parse_cfg(family_cfg(name), "t.cfg")
        content = weights_content(random_weights(network, 2), network)
        assert weights_content(parse_weights(content, network, "t"), network) == content
