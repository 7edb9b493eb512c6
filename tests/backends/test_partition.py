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
    said = QuantizationOptions(activations=ActivationOptions(ranges=ranges))
    found = {index: (-2.0, 3.0) for index in range(-1, len(network.layers))}
    options = resolve_options(network, said, ranges=found if ranges == "calibrated" else None)
    prepared = Prepared(network, random_weights(network), kernels())
    return Configuration.from_prepared(prepared, assign_key(network, key), options)


def refuse(monkeypatch: pytest.MonkeyPatch, *refused: int) -> None:
    """Let the engine `scalar` not know the layers at some lines of the cfg."""

    def support(layer: LayerSpec, *_: object) -> str:
        return "it does not like it" if layer.line in refused else ""

    known = {**export.targets()}
    known["pair"] = replace(known["pair"], support=support)
    monkeypatch.setattr(export, "targets", lambda: known)


@pytest.mark.usefixtures("scalar_backends")
@pytest.mark.parametrize("ranges", ["dynamic", "calibrated"])
@pytest.mark.parametrize(
    ("text", "key"),
    [(tiny_cfg(), "qfhqqhfqqfqhq"), (tiny_cfg(), "q" * 13), (RESIDUAL, "qhqfq"), (RESIDUAL, "hhhhh"), (RESIDUAL, "qqqqq")],
)
def test_cut_into_runs_a_network_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch, text: str, key: str, ranges: str) -> None:
    whole = configuration(text, key, ranges)
    x = np.random.default_rng(0).random((2, *whole.network.in_shape), np.float32)
    expected = Session(whole.prepared, whole.plan).forward(x)
    lines = [layer.line for layer in whole.network.layers]
    random = np.random.default_rng(1)
    for _ in range(6):
        refuse(monkeypatch, *random.choice(lines, 3))
        deployment = deploy_mixed(("scalar", "mpnet"), whole)
        for found, wanted in zip(deployment.open(1).forward(x), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)
        assert deployment.executed is not None
        assert {index: runs for index, (runs, _) in deployment.executed.items()} == {
            index: whole.precisions[index].name for index in whole.precisions.weighted
        }


@pytest.mark.usefixtures("scalar_backends")
def test_runs_are_as_long_as_can_be_and_fallbacks_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = configuration(RESIDUAL, "qqqqq")
    found = partition(whole.network, whole.precisions, whole.options, ("scalar", "mpnet"))
    assert ([part.layers for part in found.segments], found.reasons) == ([tuple(range(9))], {})
    refuse(monkeypatch, whole.network.layers[2].line)
    found = partition(whole.network, whole.precisions, whole.options, ("scalar", "mpnet"))
    # The shortcut reads two tensors from before a run; what follows it reads one.
    assert [(part.layers, part.input_tensor, part.output_layers) for part in found.segments] == [
        ((0, 1), -1, (0, 1)),
        ((4, 5, 6, 7, 8), 3, (8,)),
    ]
    assert list(found.reasons.values()) == [
        "layer 2 (conv-3, int8) falls back to mpnet: scalar: it does not like it",
        "layer 3 (shortcut-1, fp32) falls back to mpnet: scalar: it reads 2 tensors from before a run, which takes one",
    ]
    assert [found.backend_of(index) for index in range(5)] == ["scalar", "scalar", "mpnet", "mpnet", "scalar"]


@pytest.mark.usefixtures("scalar_backends")
def test_without_mpnet_the_scalar_kernels_are_last(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = configuration(tiny_cfg(), "q" * 13)
    refuse(monkeypatch, whole.network.layers[0].line)
    assert partition(whole.network, whole.precisions, whole.options, ("scalar",)).fallback == "reference"
    deployment = deploy_mixed(("scalar",), whole)
    assert deployment.engine == "scalar+reference"
    x = np.random.default_rng(0).random((1, *whole.network.in_shape), np.float32)
    for found, wanted in zip(deployment.open(1).forward(x), Session(whole.prepared, whole.plan).forward(x), strict=True):
        np.testing.assert_array_equal(found, wanted)
    for names in (("scalar", "scalar"), ("nobody",), ()):
        with pytest.raises(ConfigError):
            partition(whole.network, whole.precisions, whole.options, names)


def test_run_and_show_say_who_runs_what(
    mpnet: Mpnet, experiment: Path, scalar_backends: dict[str, Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = document_of(mpnet("run", experiment, "--json"))
    refuse(monkeypatch, parse_cfg((experiment.parent / "net.cfg").read_bytes()).layers[2].line)
    found = document_of(mpnet("run", experiment, "--set", "backends=[scalar, mpnet]", "--json"))
    assert found["id"] != own["id"]
    assert found["metrics"] == own["metrics"]
    assert found["deployed"]["engine"] == "scalar+mpnet"
    assert found["deployed"]["head_error"] == 0
    assert "layer 2 (conv-2, int8) falls back to mpnet: scalar: it does not like it" in found["notes"]
    shown = mpnet("show", experiment, "--backends", "scalar,mpnet")
    rows = [line for line in shown.stdout.splitlines() if " conv-" in line]
    assert [{"scalar", "mpnet"} & set(row.split()) for row in rows[:3]] == [{"scalar"}, {"mpnet"}, {"scalar"}]
    assert "falls back to mpnet" in shown.stderr
    assert "runs in" not in mpnet("show", experiment).stdout
    failed = mpnet("run", experiment, "--backends", "scalar", "--engine", "scalar")
    assert (failed.returncode, failed.stderr.count("\n")) == (2, 1)
    changed = replace(scalar_backends["scalar"], packages=("no-such-engine",), extra="scalar")
    scalar_backends["scalar"] = changed
    failed = mpnet("run", experiment, "--backends", "scalar,mpnet")
    assert "needs no-such-engine; pip install --upgrade 'mpnet[scalar]'" in failed.stderr
