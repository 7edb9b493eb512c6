# SPDX-License-Identifier: MIT
"""Backends by preference: who runs what, and that cutting a network into runs changes nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mpnet import export
from mpnet.backends import Backend
from mpnet.backends.mixed import deploy_mixed
from mpnet.backends.partition import partition
from mpnet.engine.assign import assign_key
from mpnet.engine.options import resolve_options
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.errors import ConfigError
from mpnet.export import Configuration
from mpnet.formats.cfg.read import parse_cfg
from mpnet.kernels.isa import kernels
from mpnet.model.layers import LayerSpec
from mpnet.model.quantization import ActivationOptions, QuantizationOptions
from mpnet.model.weights import random_weights
from tests.cli.conftest import Mpnet, document_of
from tests.networks import tiny_cfg

CONV = "[convolutional]\nbatch_normalize=1\nfilters={}\nsize={}\nstride=1\npad=1\nactivation=leaky\n\n"
RESIDUAL = (
    "[net]\nwidth=32\nheight=32\nchannels=3\n\n"
    + CONV.format(8, 3)
    + CONV.format(8, 3)
    + CONV.format(8, 1)
    + "[shortcut]\nfrom=-3\nactivation=leaky\n\n[dropout]\nprobability=.1\n\n"
    + CONV.format(8, 3)
    + "[route]\nlayers=-1,-2\ngroups=2\ngroup_id=1\n\n[upsample]\nstride=2\n\n"
    + CONV.format(4, 1)
)


def configuration(text: str, key: str, ranges: str = "dynamic") -> Configuration:
    network = parse_cfg(text, "net.cfg")
    quantization = QuantizationOptions(activations=ActivationOptions(ranges=ranges))
    range_of = {index: (-2.0, 3.0) for index in range(-1, len(network.layers))}
    options = resolve_options(network, quantization, ranges=range_of if ranges == "calibrated" else None)
    prepared = Prepared(network, random_weights(network), kernels())
    return Configuration.from_prepared(prepared, assign_key(network, key), options)


def refuse(monkeypatch: pytest.MonkeyPatch, *refused: int) -> None:
    """Let the engine `scalar` not know the layers at some lines of the cfg."""

    def support(layer: LayerSpec, *_: object) -> str:
        return "it does not like it" if layer.line in refused else ""

    all_targets = {**export.targets()}
    all_targets["pair"] = replace(all_targets["pair"], support=support)
    monkeypatch.setattr(export, "targets", lambda: all_targets)


@pytest.mark.usefixtures("scalar_backends")
@pytest.mark.parametrize("ranges", ["dynamic", "calibrated"])
@pytest.mark.parametrize(
    ("text", "key"),
    [(tiny_cfg(), "qfhqqhfqqfqhq"), (tiny_cfg(), "q" * 13), (RESIDUAL, "qhqfq"), (RESIDUAL, "hhhhh"), (RESIDUAL, "qqqqq")],
)
def test_cut_into_runs_a_network_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch, text: str, key: str, ranges: str) -> None:
    undivided = configuration(text, key, ranges)
    x = np.random.default_rng(0).random((2, *undivided.network.in_shape), np.float32)
    expected = Session(undivided.prepared, undivided.plan).forward(x)
    lines = [layer.line for layer in undivided.network.layers]
    random = np.random.default_rng(1)
    for _ in range(6):
        refuse(monkeypatch, *random.choice(lines, 3))
        deployment = deploy_mixed(("scalar", "mpnet"), undivided)
        for head, expected_head in zip(deployment.open(1).forward(x), expected, strict=True):
            np.testing.assert_array_equal(head, expected_head)
        assert deployment.executed is not None
        assert {index: runs for index, (runs, _) in deployment.executed.items()} == {
            index: undivided.precisions[index].name for index in undivided.precisions.weighted
        }


@pytest.mark.usefixtures("scalar_backends")
def test_runs_are_as_long_as_can_be_and_fallbacks_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    undivided = configuration(RESIDUAL, "qqqqq")
    divided = partition(undivided.network, undivided.precisions, undivided.options, ("scalar", "mpnet"))
    assert ([segment.layers for segment in divided.segments], divided.reasons) == ([tuple(range(9))], {})
    refuse(monkeypatch, undivided.network.layers[2].line)
    divided = partition(undivided.network, undivided.precisions, undivided.options, ("scalar", "mpnet"))
    # The shortcut reads two tensors from before a run; what follows it reads one.
    assert [(segment.layers, segment.input_tensor, segment.output_layers) for segment in divided.segments] == [
        ((0, 1), -1, (0, 1)),
        ((4, 5, 6, 7, 8), 3, (8,)),
    ]
    assert list(divided.reasons.values()) == [
        "layer 2 (conv-3, int8) falls back to mpnet: scalar: it does not like it",
        "layer 3 (shortcut-1, fp32) falls back to mpnet: scalar: it reads 2 tensors from before a run, which takes one",
    ]
    assert [divided.backend_of(index) for index in range(5)] == ["scalar", "scalar", "mpnet", "mpnet", "scalar"]


@pytest.mark.usefixtures("scalar_backends")
def test_without_mpnet_the_scalar_kernels_are_last(monkeypatch: pytest.MonkeyPatch) -> None:
    undivided = configuration(tiny_cfg(), "q" * 13)
    refuse(monkeypatch, undivided.network.layers[0].line)
    assert partition(undivided.network, undivided.precisions, undivided.options, ("scalar",)).fallback == "reference"
    deployment = deploy_mixed(("scalar",), undivided)
    assert deployment.engine == "scalar+reference"
    x = np.random.default_rng(0).random((1, *undivided.network.in_shape), np.float32)
    for head, expected in zip(
        deployment.open(1).forward(x), Session(undivided.prepared, undivided.plan).forward(x), strict=True
    ):
        np.testing.assert_array_equal(head, expected)
    for names in (("scalar", "scalar"), ("nobody",), ()):
        with pytest.raises(ConfigError):
            partition(undivided.network, undivided.precisions, undivided.options, names)


def test_run_and_show_say_who_runs_what(
    mpnet: Mpnet, experiment: Path, scalar_backends: dict[str, Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = document_of(mpnet("run", experiment, "--json"))
    refuse(monkeypatch, parse_cfg((experiment.parent / "net.cfg").read_bytes()).layers[2].line)
    document = document_of(mpnet("run", experiment, "--set", "backends=[scalar, mpnet]", "--json"))
    assert document["id"] != plain["id"]
    assert document["metrics"] == plain["metrics"]
    assert document["deployed"]["engine"] == "scalar+mpnet"
    assert document["deployed"]["head_error"] == 0
    assert "layer 2 (conv-2, int8) falls back to mpnet: scalar: it does not like it" in document["notes"]
    process = mpnet("show", experiment, "--backends", "scalar,mpnet")
    rows = [line for line in process.stdout.splitlines() if " conv-" in line]
    assert [{"scalar", "mpnet"} & set(row.split()) for row in rows[:3]] == [{"scalar"}, {"mpnet"}, {"scalar"}]
    assert "falls back to mpnet" in process.stderr
    assert "runs in" not in mpnet("show", experiment).stdout
    refused = mpnet("run", experiment, "--backends", "scalar", "--engine", "scalar")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    missing_backend = replace(scalar_backends["scalar"], packages=("no-such-engine",), extra="scalar")
    scalar_backends["scalar"] = missing_backend
    refused = mpnet("run", experiment, "--backends", "scalar,mpnet")
    assert "needs no-such-engine; pip install --upgrade 'mpnet[scalar]'" in refused.stderr
