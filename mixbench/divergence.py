# SPDX-License-Identifier: MIT
"""What methods ask of single layers beside a table: KL divergences at the heads, and the sizes of each operator.

A layer's divergence is that of the heads' tensors when it alone has a lower precision from those when everything has the
highest: each head of an image, flattened, is taken for logits of a distribution (softmax); the mean over images and heads is
stored. It runs on the images that Hessian traces are of, some of those that choose.

`python -m mixbench.table layers NAME` writes both beside a table, whose bytes, and so the submissions to it, stay.
"""

from __future__ import annotations

import math
from typing import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mixbench.hessian import sampled_images
from mixbench.layer_figures import LayerFigures, Operator
from mixbench.methods import single_keys
from mixbench.problem import Problem
from mpnet.engine.assign import assign_key
from mpnet.sweep.problem.problem import Problem as SweepProblem
from mpnet.sweep.setup import SweepSetup
from mpnet.trial.inference import own_runner

BATCH = 4
"""Images that run at once."""


def measure_layers(setup: SweepSetup, sweep: SweepProblem, problem: Problem) -> LayerFigures:
    """Measure the layers of a problem. Raises: MpnetError."""
    groups = [[sweep.space.layers[position] for position in variable.positions] for variable in sweep.space.variables]
    images, runs = sampled_images(setup), 1 + sum(len(codes) - 1 for codes in problem.choices)
    passes = math.ceil(runs * len(images) / len(setup.select))
    divergences = tuple(_measure_divergences(setup, sweep, problem, images))
    return LayerFigures(divergences, _operators(setup, groups), passes)


def _measure_divergences(
    setup: SweepSetup, sweep: SweepProblem, problem: Problem, images: Sequence[int]
) -> Iterator[dict[str, float]]:
    """Yield of each layer of a problem the KL divergence by each of its codes but the highest."""
    bench = setup.bench.of_images(images)

    def heads_of(key: str) -> Iterator[list[NDArray[np.float32]]]:
        plan = bench.plan(assign_key(bench.network, sweep.space.key_of(key)))
        forward = own_runner(bench.prepared, plan).open()
        for batch in bench.inputs.batches(BATCH):
            yield [head.copy() for head in forward(batch.x)]

    truths = list(heads_of(problem.highest))

    def divergence(key: str) -> float:
        batches = [head_divergences(truth, heads) for truth, heads in zip(truths, heads_of(key), strict=True)]
        return float(np.mean(np.concatenate(batches)))

    for keys in single_keys(problem):
        yield {code: divergence(key) for code, key in keys.items()}


def _operators(setup: SweepSetup, groups: Sequence[Sequence[int]]) -> tuple[tuple[Operator, ...], ...]:
    layers = setup.bench.network.layers
    return tuple(
        tuple(
            Operator(layer.macs, layer.parameters, math.prod(layer.in_shape), layer.activations)
            for layer in (layers[index] for index in group)
        )
        for group in groups
    )


def head_divergences(truth: Sequence[NDArray[np.float32]], heads: Sequence[NDArray[np.float32]]) -> NDArray[np.float64]:
    """Return (images,) of the mean over heads of the divergence of softmaxes."""
    rows = []
    for expected, tensor in zip(truth, heads, strict=True):
        log_p, log_q = _log_softmax(expected), _log_softmax(tensor)
        rows.append(np.sum(np.exp(log_p) * (log_p - log_q), axis=1))
    means: NDArray[np.float64] = np.mean(rows, axis=0)
    return means


def _log_softmax(tensor: NDArray[np.float32]) -> NDArray[np.float64]:
    logits = tensor.reshape(len(tensor), -1).astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    log_p: NDArray[np.float64] = logits - np.log(np.sum(np.exp(logits), axis=1, keepdims=True))
    return log_p
