# SPDX-License-Identifier: MIT
"""Texts of boxes: where they stand, and how the work to place them grows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpnet.report.collect import draw
from mpnet.report.collect.draw import DrawnBox, draw_labels


def crowd(count: int) -> list[DrawnBox]:
    """Draw boxes at random in an image of 640 x 480."""
    random = np.random.default_rng(4)
    corners = random.uniform((0, 20), (600, 440), (count, 2))
    return [DrawnBox((x, y, 30.0, 30.0), n % 9, f"class {n % 9} {n % 100}%") for n, (x, y) in enumerate(corners.tolist())]


@pytest.mark.slow
def test_placing_many_texts_takes_work_in_proportion_to_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    covered = draw._covered

    def counting(corners: Any, size: Any, text_boxes: Any) -> Any:
        compared.append(len(corners) * len(text_boxes))
        return covered(corners, size, text_boxes)

    monkeypatch.setattr(draw, "_covered", counting)
    per_text = []
    for count in (150, 1200):
        compared.clear()
        draw_labels(np.zeros((480, 640, 3), np.uint8), crowd(count))
        per_text.append(sum(compared) / count)
    # Every text is compared with all others once, at its first place; what a crowded one costs beside that has a limit.
    assert per_text[1] - 1200 / 2 <= (6 + 9 * draw._NEAREST_EDGES) * draw._NEAREST_CHECKED
    assert per_text[1] <= 3 * per_text[0]


def test_a_few_texts_in_one_corner_stand_in_places_of_their_own() -> None:
    labels = [DrawnBox((100.0 + n, 100.0 + n, 40.0, 40.0), n, f"n{n}") for n in range(20)]
    areas: list[tuple[int, int, int, int]] = []
    image = draw_labels(np.zeros((480, 640, 3), np.uint8), labels)
    for label in labels:
        ys, xs = np.nonzero((image == draw.class_colour(label.category)).all(axis=2))
        areas.append((xs.min(), ys.min(), xs.max(), ys.max()))
    assert len(set(areas)) == len(labels)


def test_a_dashed_frame_hides_no_text() -> None:
    """The frame of the truth runs through where the text of a box stands."""
    ground, label = np.full((240, 320, 3), 7, np.uint8), DrawnBox((60.0, 60.0, 120.0, 100.0), 0, "person 0.93")
    text = (draw_labels(ground, [label]) != draw_labels(ground, [DrawnBox(label.box, 0, "")])).any(axis=2)
    plain, framed = draw_labels(ground, [label]), draw_labels(ground, [label], (62.0, 52.0, 178.0, 158.0))
    assert text.any()
    assert (plain != framed).any()
    assert np.array_equal(plain[text], framed[text])


def test_letters_of_small_images_are_as_large_as_asked() -> None:
    blank = np.zeros((200, 400, 3), np.uint8)
    small_height, large_height = (
        draw_labels(blank, [DrawnBox((100.0, 100.0, 50.0, 50.0), 0, "key 0.96")], min_scale=scale)[:98].any(axis=(1, 2)).sum()
        for scale in (0.35, 0.7)
    )
    assert large_height >= 1.5 * small_height > 0
