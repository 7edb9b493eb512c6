# SPDX-License-Identifier: MIT
"""Random data sets and detections with everything that makes matching hard."""

from __future__ import annotations

import numpy as np

from mpnet.data.dataset import Category, Dataset, ImageRecord
from mpnet.data.detections import Detections


def random_dataset(seed: int, images: int = 12, categories: int = 4, per_image: int = 9) -> Dataset:
    """Make boxes of all sizes, crowds, areas that differ from width * height, an empty image, a category without truths."""
    random = np.random.RandomState(seed)
    rows = []
    for index in range(images - 1):  # the last image has none
        for _ in range(random.randint(0, per_image)):
            size = 10.0 ** random.uniform(0.7, 2.4, 2)
            box = [random.uniform(0, 400), random.uniform(0, 300), *size]
            area = size.prod() * random.uniform(0.5, 1.1)
            rows.append((index, random.randint(0, categories - 1), box, area, bool(random.rand() < 0.1)))
    records = [ImageRecord(3 + 7 * i, f"{i}.jpg", 640, 480, "") for i in range(images)]
    return Dataset.of(records, [Category(5 * c + 1, f"class {c}") for c in range(categories)], rows)


def random_detections(dataset: Dataset, seed: int, noise: float = 0.15, extra: int = 30) -> Detections:
    """Make noisy copies of the truths, several per truth, and inventions; coarse scores tie often."""
    random = np.random.RandomState(seed)
    count = len(dataset.categories)
    index, category, box = [], [], []
    for image, kind, truth in zip(dataset.image_index, dataset.category, dataset.box, strict=True):
        for _ in range(random.randint(0, 4)):
            detected = truth.copy()
            detected[:2] += random.normal(0, noise, 2) * truth[2:]
            detected[2:] *= np.exp(random.normal(0, noise, 2))
            index.append(image)
            category.append(kind if random.rand() < 0.9 else random.randint(0, count))
            box.append(detected if random.rand() < 0.9 else truth)
    for _ in range(extra):
        index.append(random.randint(0, len(dataset.images)))
        category.append(random.randint(0, count))
        box.append([*random.uniform(-50, 600, 2), *random.uniform(1, 200, 2)])
    score = random.randint(1, 12, len(index)) / 12
    return Detections.of(len(dataset.images), index, category, score, np.array(box).reshape(-1, 4))
