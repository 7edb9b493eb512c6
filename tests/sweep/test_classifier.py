# SPDX-License-Identifier: MIT
"""Sweeps of networks without heads: what is shared gives the bits of direct runs, whatever the last layer's precision."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mpnet.data.classifications import best_classes
from mpnet.data.dataset import Category, Dataset, ImageRecord
from mpnet.engine.assign import assign_key
from mpnet.engine.options import resolve_options
from mpnet.engine.plan import build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.kernels.isa import kernels
from mpnet.model.network import NetworkSpec
from mpnet.model.weights import random_weights
from mpnet.sweep.evaluate.context import SweepContext
from mpnet.sweep.evaluate.evaluator import Evaluator
from mpnet.sweep.evaluate.work_chunks import WorkChunk
from mpnet.trial.classification import CLASSIFICATION_KIT, ClassificationDecoder
from mpnet.trial.setup import CalibratedOptions
from tests.sweep.sweep_networks import conv, parse, pool

KEYS = ("fff", "ffq", "fqf", "qff", "qqq", "hhh", "hqh", "qqh")
TAIL = {"softmax": "[avgpool]\n[softmax]\n", "scores": "[avgpool]\n", "cost": "[avgpool]\n[softmax]\n[cost]\n"}


def context(network: NetworkSpec, images: int = 6) -> SweepContext:
    random = np.random.default_rng(3)
    data = Dataset.labelled(
        [ImageRecord(i + 1, f"{i}.png", 40, 30, f"{i:064x}") for i in range(images)],
        [Category(c + 1, f"class {c}") for c in range(7)],
        random.integers(0, 7, images).tolist(),
    )
    return SweepContext(
        network=network,
        options=(CalibratedOptions(random_weights(network, 3), resolve_options(network)),),
        unweighted={},
        decoder=ClassificationDecoder(),
        dataset=data,
        images=random.random((images, *network.in_shape), np.float32),
        geometry=np.tile(np.array([0, 0, 1, 1], np.float32), (images, 1)),
        select=np.arange(images),
        report=np.zeros(0, np.intp),
        requested_measures=(),
        isa="auto",
        threads=1,
        group=2,
    )


@pytest.mark.parametrize("tail", TAIL)
def test_a_trial_is_what_a_direct_run_gives(tail: str) -> None:
    network = parse(16, conv(6), pool(), conv(8), conv(7, 1, 1, "linear"), TAIL[tail])
    sweep_context = context(network)
    sweep_context = replace(sweep_context, baseline=Evaluator(sweep_context).baseline("fff"))
    evaluator = Evaluator(sweep_context)
    trials = {trial.key: trial.values for trial in evaluator.evaluate(WorkChunk(0, KEYS)).trials}
    best = {}
    for key in KEYS:
        session = Session(
            Prepared(network, sweep_context.options[0].weights, kernels()), build_plan(network, assign_key(network, key))
        )
        [scores] = session.forward(sweep_context.images)
        flat = scores.reshape(len(scores), -1)
        order = np.argsort(-flat, axis=1, kind="stable")
        predictions = evaluator.predictions(0, key)
        assert np.array_equal(predictions.category, order[:, :5])
        assert np.array_equal(predictions.score, np.take_along_axis(flat, order[:, :5], axis=1))
        best[key] = order
        labels = sweep_context.dataset.labels[:, None]
        assert trials[key]["top1"] == 100 * np.mean((order[:, :1] == labels).any(axis=1))
        assert trials[key]["top5"] == 100 * np.mean((order[:, :5] == labels).any(axis=1))
        assert trials[key]["agreement_top1"] == 100 * np.mean(order[:, 0] == best["fff"][:, 0])
    assert trials["fff"]["head_sqnr_db"] == 150
    assert trials["qqq"]["head_sqnr_db"] < 80


def test_bounds_are_of_the_images_in_their_order() -> None:
    categories = [Category(c + 1, f"class {c}") for c in range(3)]
    records = [ImageRecord(i + 1, f"{i}.png", 40, 30, f"{i:064x}") for i in range(4)]
    data = Dataset.labelled(records, categories, [0, 1, 2, 0])
    scores = np.eye(3, dtype=np.float32)[[0, 1, 0, 1]]  # right, right, wrong, wrong
    predictions = best_classes(scores)
    order = CLASSIFICATION_KIT.image_order(data, None, ("top1",), predictions)
    assert order.tolist() == [2, 3, 0, 1]
    bounds = CLASSIFICATION_KIT.upper_bounds(data, None, ("top1",), order)
    evidence = bounds.evidence(predictions.of_images(order[:3]), 0, 3)
    assert bounds.most([evidence])["top1"].tolist() == [50.0]
