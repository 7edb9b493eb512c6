# SPDX-License-Identifier: MIT
"""Fused plans: what is joined, what is not, and the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from mpnet.engine.assign import assign
from mpnet.engine.covering import step_signature
from mpnet.engine.fuse import fuse_plan
from mpnet.engine.memory import plan_arena
from mpnet.engine.options import EngineOptions, resolve_options, without_statistics
from mpnet.engine.plan import Plan, build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.formats.cfg.read import parse_cfg
from mpnet.kernels import isa
from mpnet.kernels.reference import ReferenceKernels
from mpnet.model.network import NetworkSpec
from mpnet.model.precision import PRECISIONS
from mpnet.model.quantization import ActivationOptions, QuantizationOptions
from mpnet.model.weights import random_weights

CALIBRATED = QuantizationOptions(ActivationOptions(ranges="calibrated"))


def conv(filters: int, extra_lines: str = "") -> str:
    return f"[convolutional]\nfilters={filters}\nsize=3\npad=1\nactivation=leaky\n{extra_lines}\n"


@pytest.fixture(scope="module")
def pools() -> NetworkSpec:
    """Return a network of odd sides; incomplete windows that count and that do not; a result with a second reader; windows that
    do not fit."""
    pool = "[maxpool]\nsize=2\nstride=2\n"
    return parse_cfg(
        f"[net]\nwidth=53\nheight=39\nchannels=3\n{conv(18)}{pool}{conv(32)}{pool}padding=0\n{conv(32, 'groups=32')}{pool}"
        f"{conv(20)}{pool}{conv(24)}[maxpool]\nsize=2\nstride=1\n{conv(16)}[maxpool]\nsize=3\nstride=2\n"
        "[route]\nlayers=6\n[convolutional]\nfilters=8\nsize=1\nactivation=linear\n",
        "pools.cfg",
    )


def plan_of(network: NetworkSpec, precision: str, calibrated: bool) -> Plan:
    ranges = {index: (-2.0, 3.0) for index in range(-1, len(network.layers))}
    options = without_statistics(resolve_options(network, CALIBRATED, ranges=ranges)) if calibrated else EngineOptions()
    return build_plan(network, assign(network, precision), options)


def names(plan: Plan) -> list[str]:
    return [line.split(" for ")[0].strip().split(" ", 1)[1] for line in plan.text().splitlines()]


def test_a_convolution_joins_the_quantize_after_it(network: NetworkSpec) -> None:
    assert names(fuse_plan(plan_of(network, "int8", True))) == [
        "Quantize (affine, calibrated)",
        "Convolve (int8)",  # its result also goes to the shortcut, in fp32
        "Quantize (affine, calibrated)",
        "ConvolveQuantize (int8; affine, calibrated)",
        "Convolve (int8)",
        "Add (leaky)",
        "MaxPool (2x2/2)",
        "MaxPool (3x3/1)",
        "Quantize (affine, calibrated)",
        "Convolve (int8)",
        "Yolo",
        "Slice (8:16)",
        "Quantize (affine, calibrated)",
        "ConvolveQuantize (int8; affine, calibrated)",
        "Upsample (x2)",
        "Quantize (affine, calibrated)",
        "IntegerConcat",
        "Convolve (int8)",
        "Yolo",
    ]
    dynamic = plan_of(network, "int8", False)
    assert fuse_plan(dynamic) is dynamic


def test_a_pooling_joins_the_convolution_that_it_alone_reads(pools: NetworkSpec) -> None:
    assert names(fuse_plan(plan_of(pools, "fp32", False))) == [
        "ConvolvePool (fp32; 2x2/2)",
        "ConvolvePool (fp32; 2x2/2)",
        "ConvolvePool (fp32; 2x2/2)",
        "Convolve (fp32)",  # the route reads it as well
        "MaxPool (2x2/2)",
        "Convolve (fp32)",
        "MaxPool (2x2/1)",
        "Convolve (fp32)",
        "MaxPool (3x3/2)",
        "Convolve (fp32)",
    ]


def test_a_dynamic_range_is_that_of_the_pooled_result(pools: NetworkSpec) -> None:
    assert names(fuse_plan(plan_of(pools, "int8", False)))[:4] == [
        "Quantize (affine, dynamic)",
        "ConvolvePool (int8; 2x2/2)",
        "Quantize (affine, dynamic)",
        "ConvolvePool (int8; 2x2/2)",
    ]


def test_a_calibrated_range_and_a_pooling_join_the_same_convolution(pools: NetworkSpec) -> None:
    assert names(fuse_plan(plan_of(pools, "int8", True)))[:3] == [
        "Quantize (affine, calibrated)",
        "ConvolvePool (int8; affine, calibrated; 2x2/2)",
        "ConvolvePool (int8; affine, calibrated; 2x2/2)",
    ]


@pytest.fixture(scope="module")
def mapped() -> NetworkSpec:
    """Return a network of activations that only convolutions and maps have: of a convolution, as layers of their own, with a
    second reader, behind another activation, and one that may overflow."""
    block = "[convolutional]\nfilters={}\nsize={}\npad=1\nactivation={}\n{}\n"
    layers = (
        block.format(16, 3, "hard_swish", "stride=2"),
        block.format(16, 3, "hard_swish", "groups=16"),
        block.format(20, 1, "gelu_erf", ""),
        block.format(24, 3, "tanh", ""),
        "[maxpool]\nsize=2\nstride=2\n",
        block.format(24, 1, "linear", ""),
        "[activation]\nactivation=hard_swish\n",
        block.format(24, 3, "relu", ""),
        "[activation]\nactivation=hard_swish\n",
        block.format(24, 3, "linear", ""),
        "[activation]\nactivation=hard_sigmoid\n",
        "[route]\nlayers=-1,-2\n",
        block.format(16, 1, "ramp", ""),
        block.format(8, 1, "hard_sigmoid", ""),
    )
    return parse_cfg("[net]\nwidth=53\nheight=39\nchannels=3\n" + "".join(layers), "mapped.cfg")


def test_a_convolution_applies_the_activation_that_it_alone_is_read_by(mapped: NetworkSpec) -> None:
    fused = fuse_plan(plan_of(mapped, "fp32", False))
    assert names(fused) == [
        "Convolve (fp32; hard_swish)",
        "Convolve (fp32; hard_swish)",
        "Convolve (fp32; gelu_erf)",
        "ConvolvePool (fp32; tanh; 2x2/2)",
        "Convolve (fp32; hard_swish)",
        "Convolve (fp32)",  # it has relu
        "Map (hard_swish)",
        "Convolve (fp32)",  # the route reads it as well
        "Map (hard_sigmoid)",
        "Concat",
        "Convolve (fp32)",  # a finite value may become infinite, which only convolutions refuse before they activate
        "Map (ramp)",
        "Convolve (fp32; hard_sigmoid)",
    ]
    assert fuse_plan(fused) is fused
    assert len({step_signature(fused, step) for step in fused.steps}) == len(fused.steps)
    assert names(fuse_plan(plan_of(mapped, "int8", True)))[:5] == [
        "Quantize (affine, calibrated)",
        "ConvolveQuantize (int8; hard_swish; affine, calibrated)",
        "ConvolveQuantize (int8; hard_swish; affine, calibrated)",
        "ConvolveQuantize (int8; gelu_erf; affine, calibrated)",
        "ConvolvePool (int8; tanh; affine, calibrated; 2x2/2)",
    ]


@pytest.fixture(scope="module")
def routes() -> NetworkSpec:
    """Return a network of slices that are joined again, in their order and not; parts with other readers and without; an
    upsampled one; a concatenation with two readers; poolings of a part and of each other that are parts as well."""
    convolution = "[convolutional]\nfilters={}\nsize=1\nactivation=leaky\n"
    slice_route = "[route]\nlayers={}\ngroups=2\ngroup_id={}\n"
    layers = (
        conv(16, "stride=2"),  # 0
        slice_route.format(0, 0),
        slice_route.format(0, 1),
        convolution.format(12),  # 3: read by a convolution and a concatenation
        conv(12),
        "[route]\nlayers=1,2,3,4\n",
        convolution.format(20),
        "[route]\nlayers=2,1,6\n",
        convolution.format(16),
        "[maxpool]\nsize=2\nstride=2\n",
        conv(8),  # 10: upsampled, and read once more
        "[upsample]\nstride=2\n",
        "[route]\nlayers=-1,8\n",
        convolution.format(8),
        "[route]\nlayers=7,13\n",
        convolution.format(8),
        "[route]\nlayers=10\n",
        "[maxpool]\nsize=3\nstride=1\n" * 2,
        "[route]\nlayers=-1,-2,-3\n",
        convolution.format(8),
    )
    return parse_cfg("[net]\nwidth=56\nheight=40\nchannels=3\n" + "".join(layers), "routes.cfg")


def test_parts_of_a_concatenation_are_quantised_and_joined_slices_are_not_cut(routes: NetworkSpec) -> None:
    fused = fuse_plan(plan_of(routes, "int8", True))
    assert names(fused) == [
        "Quantize (affine, calibrated)",
        "Convolve (int8)",
        "Slice (0:8)",
        "Slice (8:16)",
        "Quantize (affine, calibrated)",
        "Convolve (int8)",
        "Quantize (affine, calibrated)",
        "ConvolveQuantize (int8; affine, calibrated)",
        "Quantize (affine, calibrated)",
        "Quantize (affine, calibrated)",
        "IntegerConcat",
        "Convolve (int8)",
        "Concat",
        "Quantize (affine, calibrated)",
        "Convolve (int8)",
        "MaxPool (2x2/2)",
        "Quantize (affine, calibrated)",
        "Convolve (int8)",
        "Quantize (affine, calibrated)",
        "Quantize (affine, calibrated)",
        "Upsample (x2)",
        "IntegerConcat",
        "ConvolveQuantize (int8; affine, calibrated)",
        "Quantize (affine, calibrated)",
        "IntegerConcat",
        "Convolve (int8)",
        "Quantize (affine, calibrated)",
        "MaxPool (3x3/1)",
        "MaxPool (3x3/1)",
        "IntegerConcat",
        "Convolve (int8)",
    ]
    assert fuse_plan(fused) is fused
    assert names(fuse_plan(plan_of(routes, "int8", True), for_export=True)).count("Concat") == 5


def test_a_result_that_is_rounded_before_its_activation_stays_so(mapped: NetworkSpec) -> None:
    assert names(fuse_plan(plan_of(mapped, "fp16", False)))[1:5] == [
        "Convolve (fp16)",
        "Map (hard_swish)",
        "Convolve (fp16)",
        "Map (hard_swish)",
    ]


def test_fusing_twice_changes_nothing(pools: NetworkSpec) -> None:
    fused = fuse_plan(plan_of(pools, "int8", True))
    assert fuse_plan(fused) is fused


def test_a_pooled_result_needs_a_quarter_of_the_memory(pools: NetworkSpec) -> None:
    plan = plan_of(pools, "fp32", False)
    unpooled, pooled = plan.slots[1], fuse_plan(plan).slots[2]
    assert (unpooled.shape, pooled.shape) == ((39, 53, 18), (20, 27, 18))
    # The largest moment: the first result and what becomes of it; fused: the second layer.
    assert plan_arena(plan).peak_bytes >= 4 * (unpooled.values + pooled.values)
    assert plan_arena(fuse_plan(plan)).peak_bytes < 4 * unpooled.values


@pytest.mark.parametrize(
    "precision",
    [
        # By the oracle.
        pytest.param(name, marks=pytest.mark.slow if row.is_narrow or row.accumulates == "float16" else ())
        for name, row in PRECISIONS.items()
    ],
)
@pytest.mark.parametrize("calibrated", [False, True])
def test_the_same_bits_fused_or_not_at_every_level(
    pools: NetworkSpec, mapped: NetworkSpec, routes: NetworkSpec, precision: str, calibrated: bool
) -> None:
    for network in (pools, mapped, routes):
        weights = random_weights(network)
        plan = plan_of(network, precision, calibrated)
        batch = np.random.default_rng(7).random((2, *network.in_shape), np.float32)
        expected = Session(Prepared(network, weights, ReferenceKernels()), plan, fuse=False).forward(batch)
        for level in isa.usable_levels():
            prepared = Prepared(network, weights, isa.kernels(level))
            for threads in (1, 3):
                for fuse in (True, False):
                    heads = Session(prepared, plan, threads, fuse).forward(batch)
                    assert [head.tobytes() for head in heads] == [head.tobytes() for head in expected], (level, threads, fuse)
