# SPDX-License-Identifier: MIT
"""Training against the heads of fp32."""

from __future__ import annotations

from typing import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from mpnet.engine.assign import assign
from mpnet.engine.options import resolve_options
from mpnet.engine.plan import build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.formats.cfg.read import parse_cfg
from mpnet.kernels.isa import kernels
from mpnet.model.network import NetworkSpec
from mpnet.model.quantization import ActivationOptions, QuantizationOptions, WeightOptions
from mpnet.model.weights import Weights
from mpnet.progress import Advance, unseen

torch = pytest.importorskip("torch", reason="the stage end-to-end is tested where torch is: pip install 'mpnet[tune]'")

from mpnet.tuning.end_to_end import Schedule, Trained, train  # noqa: E402 (brings torch)
from mpnet.tuning.head_losses import head_loss  # noqa: E402 (brings torch)
from mpnet.tuning.torch_network import TorchNetwork  # noqa: E402 (brings torch)

COARSE = QuantizationOptions(ActivationOptions(mode="power_of_two", rounding="half_to_even"), WeightOptions("per_tensor"))
IMAGES = np.random.default_rng(7).random((24, 64, 64, 3), np.float32)


def trained(network: NetworkSpec, weights: Weights, schedule: Schedule, advance: Advance = unseen) -> Trained:
    options = resolve_options(network, COARSE)
    prepared = Prepared.under(options, network, weights, kernels())
    session = Session(prepared, build_plan(network, assign(network, "fp32"), options))

    def take(positions: Sequence[int]) -> NDArray[np.float32]:
        return IMAGES[list(positions)]

    quantized = TorchNetwork(prepared, assign(network, "int8"), options)
    return train(network, quantized, session.forward, take, range(16), range(16, 24), schedule, advance)


def test_the_loss_falls_and_the_same_seed_gives_the_same_weights(network: NetworkSpec, weights: Weights) -> None:
    schedule = Schedule(minutes=10, steps=24, batch=4)
    first, again, other = (trained(network, weights, s) for s in (schedule, schedule, Schedule(10, 24, 1, batch=4)))
    losses = [loss for _, loss in first.details["watched_loss"]]  # type: ignore[misc, union-attr]
    assert min(losses) < 0.9 * losses[0]
    assert (first.details["steps"], first.is_interrupted) == (24, False)
    for index, convolution in first.folded.items():
        np.testing.assert_array_equal(convolution.weights, again.folded[index].weights)
    assert any((first.folded[index].bias != other.folded[index].bias).any() for index in first.folded)


def test_what_is_kept_of_images_changes_nothing(network: NetworkSpec, weights: Weights) -> None:
    """Of 24 images with their heads, all of them, one or two, or none are kept."""
    kept, few, none = (trained(network, weights, Schedule(10, 8, batch=4, cached_bytes=size)) for size in (1 << 30, 120_000, 0))
    assert kept.details == few.details == none.details
    for index, convolution in kept.folded.items():
        np.testing.assert_array_equal(convolution.weights, few.folded[index].weights)
        np.testing.assert_array_equal(convolution.weights, none.folded[index].weights)


def test_a_run_that_diverges_keeps_what_was_best(network: NetworkSpec, weights: Weights) -> None:
    wild = Schedule(10, 40, batch=4, weight_rate=20.0, bias_rate=500.0, factor_rate=200.0, warm_up=1, alone=0.0)
    found = trained(network, weights, wild)
    options = resolve_options(network, COARSE)
    prepared = Prepared.under(options, network, weights, kernels())
    assert int(found.details["steps"]) < 40  # type: ignore[call-overload]
    for index, convolution in prepared.folded.items():
        np.testing.assert_array_equal(found.folded[index].weights, convolution.weights)
        np.testing.assert_array_equal(found.folded[index].bias, convolution.bias)


def test_ctrl_c_keeps_the_best_so_far(network: NetworkSpec, weights: Weights) -> None:
    done: list[int] = []

    def stop(count: int) -> None:
        done.append(count)
        if sum(done) >= 50:
            raise KeyboardInterrupt

    found = trained(network, weights, Schedule(10, 24, batch=4), stop)
    assert found.is_interrupted
    assert found.details["steps"] == 12
    assert len(found.folded) == len(network.convolutions)


@pytest.mark.parametrize("size", [1, 2])
def test_equal_heads_have_no_loss_and_boxes_of_likely_cells_count_most(size: int, network: NetworkSpec) -> None:
    shapes = [(2, shape[2], shape[0], shape[1]) for shape in network.output_shapes]
    random = torch.Generator().manual_seed(0)
    targets = [torch.randn(shape, generator=random) for shape in shapes]
    assert float(head_loss(network, targets, targets)) == pytest.approx(0, abs=1e-5)
    likely, unlikely = [target.clone() for target in targets], [target.clone() for target in targets]
    for changed, best in ((likely, True), (unlikely, False)):
        anchors = changed[0].reshape(2, 3, -1, *shapes[0][2:])
        objects = anchors[0, 0, 4].flatten()
        cell = int(objects.argmax() if best else objects.argmin())
        anchors[0, 0, 2].view(-1)[cell] += size
    assert float(head_loss(network, likely, targets)) > 2 * float(head_loss(network, unlikely, targets)) > 0


def test_shares_of_classes_count_by_their_divergence() -> None:
    text = "[net]\nwidth=4\nheight=4\nchannels=3\n[connected]\noutput=3\nactivation=linear\n[softmax]\n"
    network = parse_cfg(text, "net.cfg")
    target, given = (torch.tensor(v).reshape(1, 3, 1, 1) for v in ([0.5, 0.25, 0.25], [0.25, 0.5, 0.25]))
    assert float(head_loss(network, [given], [target])) == pytest.approx(0.25 * np.log(2), rel=1e-5)
