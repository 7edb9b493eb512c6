# SPDX-License-Identifier: MIT
"""A made-up data set and a context to sweep a small network on it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mpnet.data.dataset import Category, Dataset, ImageRecord
from mpnet.detection.decode import yolo_heads
from mpnet.detection.nms import NmsOptions
from mpnet.engine.options import resolve_options
from mpnet.model.network import NetworkSpec
from mpnet.model.quantization import QuantizationOptions, WeightOptions
from mpnet.model.weights import random_weights
from mpnet.sweep.evaluate.context import SweepContext
from mpnet.sweep.evaluate.evaluator import Evaluator
from mpnet.trial.detection import DetectionDecoder
from mpnet.trial.setup import CalibratedOptions

PER_TENSOR = QuantizationOptions(weights=WeightOptions(granularity="per_tensor"))


def dataset(images: int, seed: int = 1) -> Dataset:
    random = np.random.default_rng(seed)
    counts = random.integers(0, 6, images)
    index = np.repeat(np.arange(images), counts)
    box = np.column_stack([random.uniform(0, 60, (counts.sum(), 2)), random.uniform(10, 60, (counts.sum(), 2))])
    return Dataset(
        tuple(ImageRecord(i + 1, f"{i}.png", 100, 80, f"{i:064x}") for i in range(images)),
        tuple(Category(c + 1, f"class {c}") for c in range(3)),
        index,
        random.integers(0, 3, counts.sum()),
        box,
        box[:, 2] * box[:, 3],
        np.zeros(counts.sum(), bool),
    )


def context(network: NetworkSpec, images: int = 5, group: int = 2, **changes: object) -> SweepContext:
    """Make a context of random weights and images; two option sets: weights per channel and per tensor."""
    random = np.random.default_rng(2)
    data = dataset(images)
    options = [resolve_options(network), resolve_options(network, PER_TENSOR)]
    return replace(
        SweepContext(
            network=network,
            options=tuple(CalibratedOptions(random_weights(network, 3), o) for o in options),
            unweighted={},
            decoder=DetectionDecoder(yolo_heads(network), NmsOptions(), 0.45, None, data.sizes),
            dataset=data,
            images=random.random((images, *network.in_shape), np.float32),
            geometry=np.tile(np.array([0, 0, 1, 1], np.float32), (images, 1)),
            select=np.arange(images),
            report=np.zeros(0, np.intp),
            requested_measures=("darknet_mAP50",),
            isa="auto",
            threads=1,
            group=group,
        ),
        **changes,
    )


def with_baseline(sweep_context: SweepContext) -> SweepContext:
    """Return the context with its all-fp32 run as baseline."""
    return replace(sweep_context, baseline=Evaluator(sweep_context).baseline("f" * len(sweep_context.network.convolutions)))
