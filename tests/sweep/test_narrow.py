# SPDX-License-Identifier: MIT
"""Random configurations with weights below eight bits: a direct run and a sweep give the same bits, and so does every level."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from mpnet.engine.assign import assign_key
from mpnet.engine.options import resolve_options
from mpnet.engine.plan import build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.engine.tensor import Tensor, host_tensor
from mpnet.formats.files.cache import FileCache
from mpnet.kernels.isa import kernels, usable_levels
from mpnet.kernels.reference import ReferenceKernels
from mpnet.model.network import NetworkSpec
from mpnet.model.precision import PRECISIONS
from mpnet.model.quantization import NarrowOptions, QuantizationOptions
from mpnet.model.weights import random_weights
from mpnet.sweep.evaluate.trie import build_graph, run_graph, run_stem
from mpnet.sweep.problem.space import build_space
from mpnet.trial.image_statistics import CalibrationImages, ImageStatistics
from tests.sweep.sweep_networks import conv, parse, tiny_yolo, yolo

CONFIGURATIONS = 20
# Narrow ones twice as often as the others.
CHOICES = [name for name, row in PRECISIONS.items() for _ in range(2 if row.is_narrow else 1)]


def wide() -> NetworkSpec:
    """Return channels for several groups and for Winograd, a strided, a grouped and a depthwise convolution, one head."""
    return parse(
        12,
        conv(40),
        conv(48, 3, 2),
        "[convolutional]\nfilters=48\nsize=3\npad=1\nstride=1\ngroups=48\nactivation=relu\n",
        "[convolutional]\nfilters=24\nsize=3\npad=1\nstride=1\ngroups=2\nactivation=leaky\n",
        conv(66),
        conv(24, 1, 1, "linear"),
        yolo("0,1,2"),
    )


@pytest.mark.parametrize("granularity", ["per_channel", "per_group"])
@pytest.mark.parametrize(
    "network", [pytest.param(tiny_yolo(), id="tiny_yolo"), pytest.param(wide(), id="wide", marks=pytest.mark.slow)]
)
def test_runs_sweeps_and_levels_agree_in_every_bit(network: NetworkSpec, granularity: str, tmp_path: Path) -> None:
    options = resolve_options(network, QuantizationOptions(narrow=NarrowOptions(granularity)))
    draw = random.Random(f"{network.digest}{granularity}")
    space = build_space(network, tuple(PRECISIONS))
    keys = [space.key_of([PRECISIONS[draw.choice(CHOICES)].code for _ in space.variables]) for _ in range(CONFIGURATIONS)]
    images = np.random.default_rng(4).random((2, *network.in_shape), np.float32)
    weights = random_weights(network, 3)
    calibrator = Prepared(network, weights, kernels())
    statistics = ImageStatistics(
        lambda: CalibrationImages("two", (), lambda: iter([images])), calibrator, None, 1, FileCache(tmp_path, 1 << 24)
    )
    expected: dict[str, list[bytes]] = {}
    for level in (*map(kernels, usable_levels()), ReferenceKernels()):
        prepared = Prepared(network, weights, level, statistics=statistics)
        graph = build_graph(network, keys if level.name != "numpy" else keys[:2], options)
        heads: dict[tuple[int, str], bytes] = {}

        def keep(head: int, name: str, tensor: Tensor, head_bytes: dict[tuple[int, str], bytes] = heads) -> None:
            head_bytes[head, name] = tensor.host().tobytes()

        run_graph(graph, run_stem(graph, host_tensor(images), prepared), prepared, keep, image=host_tensor(images))
        for key in graph.keys:
            swept = [heads[head, name] for head, name in enumerate(graph.head_names(key))]
            session = Session(prepared, build_plan(network, assign_key(network, key), options), threads=2)
            assert [tensor.tobytes() for tensor in session.forward(images)] == swept, (level.name, key)
            assert expected.setdefault(key, swept) == swept, (level.name, key)
    assert len(expected) == len(set(keys))
