# SPDX-License-Identifier: MIT
"""Scenes rendered once into flat files, batches drawn from them in a seeded order, anchors fitted to the boxes."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from mpnet.demo.scenes import MAX_OBJECTS, SIZE, scene


def _render(task: tuple[str, int]) -> tuple[int, NDArray[np.uint8], NDArray[np.int16]]:
    split, index = task
    image, boxes = scene(split, index)
    rows = np.full((MAX_OBJECTS, 5), -1, dtype=np.int16)
    for k, box in enumerate(boxes):
        rows[k] = (box.label, box.x0, box.y0, box.x1, box.y1)
    return index, image, rows


def cached(folder: Path, split: str, count: int, jobs: int) -> tuple[NDArray[np.uint8], NDArray[np.int16]]:
    """Return images (count, SIZE, SIZE, 3) and labels (count, MAX_OBJECTS, 5), rendered on first use.

    A label row is (class, x0, y0, x1, y1) in pixels; unused rows are -1.
    """
    folder.mkdir(parents=True, exist_ok=True)
    images_path, labels_path = folder / f"{split}-{count}.npy", folder / f"{split}-{count}-labels.npy"
    if not labels_path.exists():
        shape = (count, SIZE, SIZE, 3)
        partial = images_path.with_suffix(".partial")
        images = np.lib.format.open_memmap(partial, mode="w+", dtype=np.uint8, shape=shape)
        labels = np.empty((count, MAX_OBJECTS, 5), dtype=np.int16)
        with multiprocessing.Pool(jobs) as pool:
            tasks = [(split, index) for index in range(count)]
            for rendered, (index, image, rows) in enumerate(pool.imap_unordered(_render, tasks, 16), 1):
                images[index], labels[index] = image, rows
                if rendered % 2000 == 0:
                    print(f"rendered {rendered} of {count} {split} scenes", flush=True)
        images.flush()
        os.replace(partial, images_path)
        np.save(labels_path, labels)
    return np.load(images_path, mmap_mode="r"), np.load(labels_path)


def fit_anchors(labels: NDArray[np.int16], count: int = 6, seed: int = 0) -> list[tuple[float, float]]:
    """Return anchors in pixels, smallest first: k-means over widths and heights with 1 - IoU as distance."""
    rows = labels.reshape(-1, 5)
    rows = rows[rows[:, 0] >= 0].astype(np.float64)
    sizes = rows[:, 3:5] - rows[:, 1:3]
    order = np.argsort(sizes.prod(axis=1), kind="stable")
    centres = sizes[order[(np.arange(count) * 2 + 1) * len(order) // (2 * count)]]
    for _ in range(100):
        inter = np.minimum(sizes[:, None, 0], centres[None, :, 0]) * np.minimum(sizes[:, None, 1], centres[None, :, 1])
        union = sizes.prod(axis=1)[:, None] + centres.prod(axis=1)[None, :] - inter
        nearest = (inter / union).argmax(axis=1)
        medians = np.stack([np.median(sizes[nearest == k], axis=0) for k in range(count)])
        if np.array_equal(medians, centres):
            break
        centres = medians
    centres = centres[np.argsort(centres.prod(axis=1), kind="stable")]
    return [(float(w), float(h)) for w, h in centres]


def to_batch(images: NDArray[np.uint8]) -> torch.Tensor:
    """Return images (n, h, w, 3) as float NCHW in [0, 1], channels last in memory."""
    return torch.from_numpy(np.array(images)).permute(0, 3, 1, 2).float().div_(255.0)


def resized(images: torch.Tensor, side: int) -> torch.Tensor:
    """Return the images with another side, for the cheap first part of the training."""
    if images.shape[-1] == side:
        return images
    return F.interpolate(images, size=(side, side), mode="bilinear", align_corners=False)


def augmented(
    images: NDArray[np.uint8], labels: NDArray[np.int16], draw: np.random.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a batch, randomly mirrored, with colour channels exchanged and another brightness.

    Every class is mirrored by the generator too and colours are arbitrary, so labels stay true.
    """
    count = len(images)
    mirrored = np.empty_like(images)
    boxes = labels.astype(np.float32)
    for k in range(count):
        image = images[k][:, :, draw.permutation(3)]
        if draw.random() < 0.5:
            image = image[:, ::-1]
            is_object = labels[k, :, 0] >= 0
            boxes[k, is_object, 1], boxes[k, is_object, 3] = SIZE - labels[k, is_object, 3], SIZE - labels[k, is_object, 1]
        mirrored[k] = image
    gain = torch.from_numpy(draw.uniform(0.85, 1.15, (count, 1, 1, 1)).astype(np.float32))
    return (to_batch(mirrored) * gain).clamp_(0, 1), torch.from_numpy(boxes)
