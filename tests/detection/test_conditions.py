# SPDX-License-Identifier: MIT
"""Images under other conditions: the same bits everywhere, stronger with severity, like what they are named after."""

from __future__ import annotations

import hashlib

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from mpnet.detection.conditions import CONDITIONS, SEVERITIES, Condition, condition
from mpnet.errors import ConfigError

DIGESTS = {
    "noise": "f6eb915117e62a98",
    "blur": "84bc4d8059992db3",
    "dark": "4999064dc4a36172",
    "bright": "4eb60c4bb88cecdf",
    "jpeg": "e825f773f38776a7",
    "fog": "9b09744f13c2b617",
    "night": "2276a32fde98505a",
}
"""Of all severities of `scene()`: what a condition makes of an image is part of a result's identity by its name alone, so it
must never change, on no CPU."""


def scene(height: int = 75, width: int = 98) -> NDArray[np.uint8]:
    """Draw slopes, edges and coloured areas, the same in every version of NumPy."""
    y, x = np.mgrid[:height, :width]
    image = np.stack([(x * 255) // width, (y * 255) // height, ((x // 8 + y // 8) % 2) * 180 + 30], axis=2)
    image[20:50, 30:60] = (200, 40, 90)
    return image.astype(np.uint8)


@pytest.mark.parametrize("name", CONDITIONS)
def test_the_same_bits_everywhere(name: str) -> None:
    digest = hashlib.sha256()
    for severity in range(1, SEVERITIES + 1):
        digest.update(Condition(name, severity).apply(scene(), "00ff").tobytes())
    assert digest.hexdigest()[:16] == DIGESTS[name]


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_higher_severity_changes_more(name: str) -> None:
    image = scene()
    mean_changes = [np.abs(Condition(name, s).apply(image, "1").astype(int) - image).mean() for s in range(1, SEVERITIES + 1)]
    assert mean_changes[0] > 0
    assert mean_changes == sorted(mean_changes)


@pytest.mark.parametrize("name", ["noise", "fog", "night"])
def test_what_is_drawn_follows_the_image(name: str) -> None:
    first, second = (Condition(name, 3).apply(scene(), digest) for digest in ("a", "b"))
    assert (first != second).any()
    assert (first == Condition(name, 3).apply(scene(), "a")).all()


def test_noise_is_as_strong_as_said() -> None:
    grey = np.full((200, 300, 3), 128, np.uint8)
    error = Condition("noise", 1).apply(grey, "1").astype(float) - 128
    assert abs(error.mean()) < 0.6
    assert abs(error.std() - 20) < 0.3


@pytest.mark.parametrize("severity", range(1, SEVERITIES + 1))
def test_jpeg_loses_what_jpeg_loses(severity: int) -> None:
    grey = scene(121, 166).astype(int).sum(axis=2) // 3  # how colours are smoothed is a decoder's own matter
    image = np.repeat(grey[:, :, None].astype(np.uint8), 3, axis=2)
    quality = (25, 18, 15, 10, 7)[severity - 1]
    _, data = cv2.imencode(".jpg", image[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])
    expected = cv2.imdecode(data, cv2.IMREAD_COLOR)[:, :, ::-1].astype(int)
    actual = Condition("jpeg", severity).apply(image, "").astype(int)
    # A coefficient just between two steps may go to either.
    assert np.abs(actual - expected).mean() < 0.15 * np.abs(expected - image).mean()


@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (7, 9), (8, 8)])
def test_small_images_stay_images(shape: tuple[int, int]) -> None:
    image = np.full((*shape, 3), 77, np.uint8)
    for name in CONDITIONS:
        assert Condition(name, 5).apply(image, "1").shape == image.shape


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rain", "'rain' is no condition; known are noise, blur"),
        ("fog:6", "a severity is 1 to 5"),
        ("fog:", "a severity is 1 to 5"),
        ("", "is no condition"),
    ],
)
def test_what_is_no_condition_is_said(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=r"^here: ") as error:
        condition(text, "here")
    assert message in str(error.value)


def test_a_severity_may_be_left_out() -> None:
    assert str(condition("fog", "here")) == "fog:3"
