# SPDX-License-Identifier: MIT
"""Darknet's resize, letterbox and the geometry that boxes need."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from mpnet.detection.preprocess import geometry_array, plan_geometry, preprocess, resize
from mpnet.errors import ConfigError, DataError
from mpnet.formats.images.read import decode, read_bytes

F = np.float32


def plain_resize(image: np.ndarray, width: int, height: int) -> np.ndarray:
    """Resize pixel by pixel in float32, horizontal pass first, the last row without its second term."""
    source = (image / 255.0).astype(F)
    in_h, in_w, _ = source.shape
    widened = np.empty((in_h, width, 3), F)
    for c in range(width):
        x = F(c) * (F(in_w - 1) / F(width - 1)) if width > 1 else F(0)
        i = int(x)
        d = F(x - F(i))
        last = c == width - 1 or in_w == 1
        widened[:, c] = source[:, in_w - 1] if last else (F(1) - d) * source[:, i] + d * source[:, i + 1]
    result = np.empty((height, width, 3), F)
    for r in range(height):
        y = F(r) * (F(in_h - 1) / F(height - 1)) if height > 1 else F(0)
        i = int(y)
        d = F(y - F(i))
        result[r] = (F(1) - d) * widened[i]
        if r < height - 1 and in_h > 1:
            result[r] += d * widened[i + 1]
    return result


@pytest.mark.parametrize(
    ("in_h", "in_w", "out_h", "out_w"),
    [(7, 11, 16, 16), (40, 30, 16, 24), (16, 16, 16, 16), (1, 1, 8, 8), (1, 9, 8, 8), (9, 1, 8, 8), (2, 3, 5, 1), (3, 2, 1, 5)],
)
def test_resize_equals_the_plain_version(in_h: int, in_w: int, out_h: int, out_w: int) -> None:
    image = np.random.RandomState(in_h * 100 + in_w).randint(0, 256, (in_h, in_w, 3), dtype=np.uint8)
    np.testing.assert_array_equal(resize(image, out_w, out_h), plain_resize(image, out_w, out_h))


@pytest.mark.parametrize("height", [333, 423, 449])
def test_the_last_row_is_black_for_some_heights_as_in_darknet(height: int) -> None:
    image = np.full((height, 4, 3), 255, dtype=np.uint8)
    assert resize(image, 4, 320)[-1].max() < 1e-3
    assert resize(image, 4, 320, last_row="blend")[-1].min() > 0.999
    np.testing.assert_array_equal(resize(image, 4, 320)[:-1], resize(image, 4, 320, last_row="blend")[:-1])


@pytest.mark.parametrize("height", [1080, 426])
def test_the_last_row_is_whole_for_other_heights(height: int) -> None:
    image = np.full((height, 4, 3), 255, dtype=np.uint8)
    np.testing.assert_array_equal(resize(image, 4, 320), resize(image, 4, 320, last_row="blend"))


def test_stretch_fills_the_input() -> None:
    image = np.random.RandomState(0).randint(0, 256, (20, 40, 3), dtype=np.uint8)
    network_input, geometry = preprocess(image, 32, 16)
    assert network_input.shape == (1, 16, 32, 3)
    assert network_input.dtype == np.float32
    np.testing.assert_array_equal(network_input[0], resize(image, 32, 16))
    assert geometry.relative == (0.0, 0.0, 1.0, 1.0)


def test_letterbox_keeps_the_aspect_and_fills_with_half() -> None:
    image = np.full((20, 40, 3), 255, dtype=np.uint8)
    network_input, geometry = preprocess(image, 32, 32, "letterbox")
    assert (geometry.content_width, geometry.content_height) == (32, 16)
    assert geometry.relative == (0.0, 0.25, 1.0, 0.5)
    rows = network_input[0, :, 0, 0]
    np.testing.assert_array_equal(rows, [0.5] * 8 + [1.0] * 16 + [0.5] * 8)


def test_letterbox_of_tall_and_extreme_images() -> None:
    assert plan_geometry(50, 100, 32, 32, "letterbox").relative == (0.25, 0.0, 0.5, 1.0)
    thin = plan_geometry(10_000, 1, 32, 32, "letterbox")
    assert (thin.content_width, thin.content_height) == (32, 1)
    assert geometry_array([thin, thin]).shape == (2, 4)


def test_wrong_arguments() -> None:
    with pytest.raises(ConfigError, match="resize"):
        preprocess(np.zeros((4, 4, 3), np.uint8), 8, 8, "tile")
    with pytest.raises(DataError, match="uint8"):
        preprocess(np.zeros((4, 4, 3), np.float32), 8, 8)
    with pytest.raises(DataError, match="uint8"):
        preprocess(np.zeros((4, 4), np.uint8), 8, 8)
    with pytest.raises(DataError, match="0 x 4"):
        preprocess(np.zeros((4, 0, 3), np.uint8), 8, 8)
    with pytest.raises(ConfigError, match="network input"):
        preprocess(np.zeros((4, 4, 3), np.uint8), 100_000, 8)
    with pytest.raises(ConfigError, match="last_row"):
        preprocess(np.zeros((4, 4, 3), np.uint8), 8, 8, last_row="none")


@pytest.mark.parametrize(
    ("golden", "image"),
    [
        ("golden_yolov3-tiny-aix2022", "aix2022/images/CAPP_testset_close_10000.jpg"),
        ("golden_yolo-fastest-1.1", "coco/images/000000000139.jpg"),
    ],
)
def test_input_of_the_reference_programs(shared_data, golden: str, image: str) -> None:
    """They decode JPEG with stb_image, we with libjpeg: at most 3 / 255 apart, 0.05 / 255 on average."""
    expected = np.load(shared_data / "golden" / f"{golden}.npz")["input"].transpose(1, 2, 0)
    actual, _ = preprocess(decode(read_bytes(shared_data / image), image), 320, 320)
    difference = np.abs(actual[0] - expected) * 255
    assert difference.max() < 3
    assert difference.mean() < 0.05


def darknet_crop(image: np.ndarray, net_width: int, net_height: int) -> np.ndarray:
    """Do what AlexeyAB's resize_min and crop_image do, step by step: the whole image resized, then cut, the border repeated."""
    height, width = image.shape[:2]
    wide, high = (net_width, height * net_width // width) if width < height else (width * net_width // height, net_width)
    resized = preprocess(image, wide, high)[0][0]
    left, top = int((wide - net_width) / 2), int((high - net_height) / 2)
    rows = np.clip(np.arange(top, top + net_height), 0, high - 1)
    columns = np.clip(np.arange(left, left + net_width), 0, wide - 1)
    return resized[rows][:, columns]


@pytest.mark.parametrize(("width", "height"), [(40, 30), (30, 41), (24, 24), (7, 90), (200, 3), (1, 1), (25, 24)])
@pytest.mark.parametrize("net", [(24, 24), (16, 10), (10, 16)])
def test_crop_is_the_middle_of_the_resized_image(width: int, height: int, net: tuple[int, int]) -> None:
    image = np.random.default_rng(width).integers(0, 256, (height, width, 3)).astype(np.uint8)
    x, geometry = preprocess(image, *net, "crop")
    assert np.array_equal(x[0], darknet_crop(image, *net))
    assert min(geometry.content_width, geometry.content_height) == net[0]


def test_a_long_image_costs_no_more_than_its_middle() -> None:
    """Resized whole it would take 50 GB."""
    image = np.zeros((1, 65000, 3), np.uint8)
    assert preprocess(image, 256, 256, "crop")[0].shape == (1, 256, 256, 3)


def opencv_letterbox(image: np.ndarray, width: int, height: int) -> tuple[np.ndarray, int, int]:
    """Return what Ultralytics' programs make of an image: uint8 (height, width, 3), and the left and upper margin."""
    in_h, in_w = image.shape[:2]
    ratio = min(height / in_h, width / in_w)
    content = max(1, round(in_w * ratio)), max(1, round(in_h * ratio))
    if content != (in_w, in_h):
        image = cv2.resize(image, content, interpolation=cv2.INTER_LINEAR)
    left, top = (width - content[0]) / 2, (height - content[1]) / 2
    canvas = np.full((height, width, 3), 114, np.uint8)
    x, y = round(left - 0.1), round(top - 0.1)
    canvas[y : y + content[1], x : x + content[0]] = image
    return canvas, x, y


@pytest.mark.parametrize(
    ("in_h", "in_w", "out_h", "out_w"),
    [
        *[
            (48, 64, 32, 32),
            (64, 64, 32, 32),
            (37, 91, 64, 48),
            (91, 37, 48, 64),
            (32, 32, 32, 32),
            (5, 7, 64, 64),
            (1, 1, 9, 8),
        ],
        *[(1, 300, 32, 32), (300, 1, 32, 32), (333, 500, 320, 320), (128, 128, 64, 64), (427, 640, 320, 416)],
    ],
)
def test_letterbox_opencv_has_the_bytes_of_opencv(in_h: int, in_w: int, out_h: int, out_w: int) -> None:
    image = np.random.RandomState(in_h + in_w).randint(0, 256, (in_h, in_w, 3), dtype=np.uint8)
    expected, left, top = opencv_letterbox(image, out_w, out_h)
    network_input, geometry = preprocess(image, out_w, out_h, "letterbox_opencv")
    np.testing.assert_array_equal(network_input[0], (expected / 255.0).astype(F))
    gain = min(out_h / in_h, out_w / in_w)
    relative = (left / out_w, top / out_h, in_w * gain / out_w, in_h * gain / out_h)
    np.testing.assert_array_equal(np.array(geometry.relative, F), np.array(relative, F))
