# SPDX-License-Identifier: MIT
"""Heads computed where a box can come from: what is found has the bits of heads computed everywhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mpnet.detection.decode import Candidates, yolo_heads
from mpnet.detection.nms import NmsOptions
from mpnet.engine.execute import run_lowering
from mpnet.engine.operations import Convolve, PreparedConvolution
from mpnet.engine.options import resolve_options
from mpnet.engine.prepare import Prepared
from mpnet.engine.tensor import Tensor, host_tensor
from mpnet.errors import EngineError, NonFiniteError
from mpnet.kernels.device import Storage
from mpnet.kernels.implementation import Kernels
from mpnet.kernels.isa import kernels, usable_levels
from mpnet.kernels.reference import ReferenceKernels
from mpnet.model.network import NetworkSpec
from mpnet.model.quantization import NarrowOptions, QuantizationOptions
from mpnet.model.weights import random_weights
from mpnet.sweep.evaluate import likely_heads
from mpnet.sweep.evaluate.evaluator import Evaluator
from mpnet.sweep.evaluate.likely_heads import BLOCK, HeadCells, LikelyHeads
from mpnet.sweep.evaluate.trie import build_graph, run_graph, run_stem
from mpnet.sweep.evaluate.work_chunks import WorkChunk
from mpnet.sweep.problem.front import Rivals
from mpnet.trial.detection import DetectionDecoder
from tests.sweep.sweep_data import context, with_baseline
from tests.sweep.sweep_networks import conv, parse, tiny_yolo, yolo

IMAGES = 5
HeadCandidates = dict[tuple[int, str], Candidates]


def wide() -> NetworkSpec:
    """Return one head of channels for two groups, on a grid that is no whole number of blocks."""
    return parse(14, conv(6), conv(70, 3, 2), conv(24, 1, 1, "linear"), yolo("0,1,2"))


def decode_heads(
    network: NetworkSpec,
    keys: list[str],
    confidence: float,
    granularity: str = "per_group",
    table: Kernels | None = None,
    likely: bool = True,
    images: np.ndarray | None = None,
) -> tuple[HeadCandidates, dict[tuple[int, str], Tensor]]:
    narrow = NarrowOptions(granularity, rounding="nearest", bias_correction=False)
    options = resolve_options(network, QuantizationOptions(narrow=narrow))
    decoder = DetectionDecoder(yolo_heads(network), NmsOptions(), confidence, None, np.zeros((IMAGES, 2), np.float32))
    heads, prepared = LikelyHeads(network, decoder), Prepared(network, random_weights(network, 3), table or kernels())
    geometry, graph = np.tile(np.array([0, 0, 1, 1], np.float32), (IMAGES, 1)), build_graph(network, keys, options)
    image = host_tensor(np.random.default_rng(4).random((IMAGES, *network.in_shape), np.float32) if images is None else images)
    boxes: HeadCandidates = {}
    tensors = {}

    def keep(head: int, name: str, tensor: Tensor) -> None:
        boxes[head, name] = heads.decode(head, tensor, geometry)
        tensors[head, name] = tensor

    run_graph(
        graph, run_stem(graph, image, prepared), prepared, keep, image=image, compute=heads.run if likely else run_lowering
    )
    return boxes, tensors


def assert_same(candidates_of: HeadCandidates, expected_candidates: HeadCandidates) -> None:
    assert candidates_of.keys() == expected_candidates.keys()
    for name, candidates in candidates_of.items():
        for field in ("offsets", "category", "score", "box"):
            ours, theirs = getattr(candidates, field), getattr(expected_candidates[name], field)
            assert ours.tobytes() == theirs.tobytes(), (name, field)


def bound(tensor: Tensor, share: float) -> float:
    """Return the confidence that this share of the images has no box above."""
    objectness = tensor.host().reshape(IMAGES, -1, 8)[:, :, 4].max(axis=1)
    return float(np.quantile(1 / (1 + np.exp(-objectness)), share))


@pytest.mark.parametrize("granularity", ["per_channel", "per_group"])
@pytest.mark.parametrize("confidence", [0.0, 0.52, *(pytest.param(c, marks=pytest.mark.slow) for c in (0.005, 0.45, 0.9999))])
@pytest.mark.parametrize(("network", "codes"), [(tiny_yolo(), 6), (wide(), 3)], ids=["tiny_yolo", "wide"])
def test_what_is_found_is_the_same(network: NetworkSpec, codes: int, confidence: float, granularity: str) -> None:
    keys = [key for code in "fq654ilhbw" for key in (code * codes, "q" * (codes - 1) + code)]
    complete, tensors = decode_heads(network, keys, confidence, granularity, likely=False)
    likely, cells = decode_heads(network, keys, confidence, granularity)
    assert_same(likely, complete)
    assert not any(isinstance(tensor, HeadCells) for tensor in tensors.values())
    assert {name[-1] for (_, name), tensor in cells.items() if isinstance(tensor, HeadCells)} == set("fq654ilw")
    if confidence == 0:
        head = cells[0, min(name for output, name in cells if output == 0 and name[-1] == "q")]
        assert isinstance(head, HeadCells)
        assert head.cells is not None
        assert np.diff(head.cells.starts).tolist() == [-(-head.cells.grid[0] * head.cells.grid[1] // BLOCK) * BLOCK] * IMAGES


@pytest.mark.slow
@pytest.mark.parametrize("level", [*usable_levels(), "numpy"])
@pytest.mark.parametrize("share", [0.3, 0.7, 1.0])
def test_images_without_a_box_on_every_level(level: str, share: float) -> None:
    network, keys = wide(), ["qq" + code for code in "fq654il"]
    table = ReferenceKernels() if level == "numpy" else kernels(level)
    complete, tensors = decode_heads(network, keys, 0.0, table=table, likely=False)
    confidence = bound(tensors[0, "qqq"], share)
    complete, _ = decode_heads(network, keys, confidence, table=table, likely=False)
    likely, cells = decode_heads(network, keys, confidence, table=table)
    assert_same(likely, complete)
    assert isinstance(cells[0, "qqq"], HeadCells)
    if share < 1:
        assert 0 in np.diff(likely[0, "qqq"].offsets)


def test_a_batch_without_any_likely_cell() -> None:
    some, cells = decode_heads(wide(), ["qqq", "qq4", "fff"], 0.9999)
    assert [len(boxes) for boxes in some.values()] == [0, 0, 0]
    assert all(tensor.host().shape == (0, 1, BLOCK, 24) for tensor in cells.values())


@pytest.mark.parametrize(
    "end",
    [
        [conv(24, 1, 1, "logistic"), yolo("0,1,2") + "new_coords=1\n"],
        [conv(24, 3, 1, "linear"), yolo("0,1,2")],
        [conv(24, 1, 1, "leaky"), yolo("0,1,2")],
        [conv(24, 1, 1, "linear"), yolo("0,1,2"), "[route]\nlayers=-2\n", conv(24, 1, 1, "linear"), yolo("3,4,5")],
    ],
    ids=["new_coords", "size", "activation", "read_twice"],
)
def test_other_heads_are_computed_whole(end: list[str]) -> None:
    network = parse(16, conv(6), *end)
    codes = len(network.convolutions)
    keys = ["q" * codes, "f" * codes]
    some, cells = decode_heads(network, keys, 0.4)
    assert_same(some, decode_heads(network, keys, 0.4, likely=False)[0])
    assert not any(isinstance(tensor, HeadCells) for (head, _), tensor in cells.items() if head == 0)


def test_values_that_are_not_finite_name_the_layer() -> None:
    network = wide()
    images = np.full((IMAGES, *network.in_shape), np.float32(3e38))
    with pytest.raises(EngineError, match=r"test\.cfg: layer"):
        decode_heads(network, ["fff", "ffq"], 0.4, images=images)


def test_a_width_that_is_not_finite_spoils_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def convolve(operation: Convolve, ready: PreparedConvolution, *arguments: object) -> Storage:
        if ready.packed.shape.out_channels == 2 * 3:
            raise NonFiniteError
        return convolution(operation, ready, *arguments)

    convolution, keys = likely_heads._convolve, ["qqq", "qq5"]
    monkeypatch.setattr(likely_heads, "_convolve", convolve)
    assert_same(decode_heads(wide(), keys, 0.45)[0], decode_heads(wide(), keys, 0.45, likely=False)[0])


@pytest.mark.parametrize("few_left", [True, False])
def test_what_rivals_leave_has_its_figures(few_left: bool) -> None:
    """Whether looks were quick or not."""
    sweep_context = with_baseline(context(tiny_yolo(), images=12))
    keys = ("ffffff", "hhhhhh", "qhfqfq", "qqqqqq", "qqqqqf")
    evaluator = Evaluator(sweep_context)
    trials = evaluator.evaluate(WorkChunk(0, keys)).trials
    rivals = Rivals(("agreement_AP", "weight_bytes"), ((-99.5, 1.0),))
    evaluator._few_survived = few_left
    result = evaluator.evaluate(WorkChunk(0, keys, rivals))
    assert result.trials == tuple(trial for trial in trials if trial.key not in result.ruled_out)
    assert result.ruled_out
    assert result.trials
    assert not evaluator._few_survived
    assert replace(evaluator.evaluate(WorkChunk(0, keys, rivals)), macs=0.0) == replace(result, macs=0.0)
