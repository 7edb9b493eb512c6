# SPDX-License-Identifier: MIT
"""Hessian traces of the layers' weights, and the errors of these when they are quantised: what HAWQ ranks layers by.

The loss is the squared error of the heads' tensors over their squared size, against those of the highest precision: the mean
over heads. At the network's own weights it is 0 and least, so that v H v is 2 L(w + e v) / e^2, as good as a product of
Hessian and vector (Hutchinson's estimate, v of +1 and -1).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.api.network import Network
from mpnet.engine.prepare import Prepared
from mpnet.model.precision import BY_CODE
from mpnet.quantization.equalise import FoldedConvolution
from mpnet.quantization.weights import dequantize_weights, quantize_weights
from mpnet.sweep.setup import SweepSetup

SAMPLES, IMAGES, STEP = 4, 16, 0.01
"""Vectors for each layer; images of those that choose; perturbation in units of the layer's root mean square."""


def statistics(setup: SweepSetup, groups: Sequence[Sequence[int]], choices: Sequence[str]) -> dict[str, Any]:
    """Of each variable, layers that share a precision: `trace`, and `weight_error` by code; `passes` spent.

    Both are in units of the weights' mean square, which their product is not.

    groups: layer indices of each. choices: its codes, highest precision first.
    """
    bench = setup.bench
    selected_images = sampled_images(setup)
    x = np.concatenate([batch.x for batch in bench.inputs.batches(4, selected_images)])
    folded = dict(bench.prepared.folded)
    plan = bench.assign({index: BY_CODE[codes[0]] for group, codes in zip(groups, choices, strict=True) for index in group})

    def heads(folded_layers: dict[int, Any]) -> list[NDArray[np.float32]]:
        prepared = Prepared(
            bench.network, bench.weights, bench.kernels, batch_norm=bench.options.batch_norm, folded=folded_layers
        )
        return Network(bench.network, (), prepared, bench.options, plan, bench.threads).forward(x)

    truth = heads(folded)
    generator, traces, errors = np.random.default_rng(0), [], []
    for group, codes in zip(groups, choices, strict=True):
        samples = [2 * _loss(truth, heads({**folded, **_perturb(folded, group, generator)})) / STEP**2 for _ in range(SAMPLES)]
        traces.append(float(np.mean(samples)))
        errors.append({code: float(np.mean([_error(setup, folded[index].weights, code) for index in group])) for code in codes})
    passes = math.ceil(len(groups) * SAMPLES * len(selected_images) / len(setup.select)) + 1
    return {"trace": traces, "weight_error": errors, "passes": passes, "samples": SAMPLES, "images": len(selected_images)}


def sampled_images(setup: SweepSetup) -> list[int]:
    """Return the positions of IMAGES of those that choose, or all where there are fewer, evenly spread."""
    return [int(position) for position in setup.select][:: max(1, len(setup.select) // IMAGES)][:IMAGES]


def _perturb(
    folded: Mapping[int, FoldedConvolution], group: Sequence[int], generator: np.random.Generator
) -> dict[int, FoldedConvolution]:
    """Return the layers of a group, each with its weights moved by a step up or down."""
    folded_layers = {}
    for index in group:
        weights = folded[index].weights
        signs = generator.choice(np.array([-1, 1], np.float32), weights.shape)
        folded_layers[index] = replace(folded[index], weights=weights + np.float32(STEP * _size(weights)) * signs)
    return folded_layers


def _size(weights: NDArray[np.float32]) -> float:
    """Root mean square."""
    return float(np.sqrt(np.mean(np.square(weights, dtype=np.float64)))) or 1.0


def _loss(truth: Sequence[NDArray[np.float32]], tensors: Sequence[NDArray[np.float32]]) -> float:
    """Mean over heads of noise over signal."""
    pairs = [(a.astype(np.float64), b.astype(np.float64)) for a, b in zip(truth, tensors, strict=True)]
    return float(np.mean([np.sum((a - b) ** 2) / np.sum(a**2) for a, b in pairs]))


def _error(setup: SweepSetup, weights: NDArray[np.float32], code: str) -> float:
    """Mean squared error of a layer's weights as a precision stores them, in units of their mean square."""
    precision = BY_CODE[code]
    if precision.name == "fp32":
        return 0.0
    if precision.name == "fp16":
        rounded_weights = weights.astype(np.float16).astype(np.float32)
    else:
        scheme, _ = setup.bench.options.default.rounded_to(precision)
        rounded_weights = dequantize_weights(*quantize_weights(weights, scheme))
    return float(np.mean(np.square(weights - rounded_weights, dtype=np.float64))) / _size(weights) ** 2
