# SPDX-License-Identifier: MIT
"""Targets of `mpnet export`: declared once, and each says what it needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Mapping, NoReturn

import pytest

import mpnet.export
from mpnet.engine.assign import assign_key
from mpnet.errors import ConfigError, StoreError
from mpnet.export import Configuration, Exported, Option, Target, describe, export, target_for, targets
from mpnet.formats.cfg.read import parse_cfg
from tests.networks import tiny_cfg


def _without_files() -> NoReturn:
    raise StoreError("net.weights: is gone")


def configuration(content: bytes, key: str) -> Configuration:
    """Return a configuration whose weights are not at hand."""
    network = parse_cfg(content, "net.cfg")
    return Configuration(network, assign_key(network, key), _without_files, content)


CONFIGURATION = configuration(tiny_cfg().encode(), "q" * 13)


def test_every_target_is_described() -> None:
    all_targets = targets()
    assert "cfg" in all_targets
    for name, target in all_targets.items():
        assert f"{name}: {target.what} ({target.suffix})" in describe(all_targets)


def test_every_suffix_says_what_to_write() -> None:
    """One of two parts as well."""
    assert {name: target_for("", Path(f"a/net.v2{row.suffix}")) for name, row in targets().items()} == {
        name: name for name in targets()
    }
    assert target_for("", Path("net.yml")) == "yaml"
    with pytest.raises(ConfigError, match=r"net\.json: its suffix says nothing of what to write"):
        target_for("", Path("net.json"))


def test_a_cfg_has_the_precisions_that_were_chosen_and_needs_no_weights() -> None:
    exported = export("cfg", CONFIGURATION)
    network = parse_cfg(exported.content)
    assert [layer.declared.precision.name for layer in network.convolutions if layer.declared and layer.declared.precision] == (
        ["int8"] * 13
    )
    assert exported.details == {"changed": True}
    assert export("cfg", configuration(exported.content, "q" * 13)).details == {"changed": False}


MEASURED = {
    "activations": {"mode": "affine", "ranges": "dynamic"},
    "weights": {"granularity": "per_tensor", "method": "min_max", "rounding": "half_away"},
    "bias_correction": False,
    "equalisation": False,
}
"""Quantisation options as a result's protocol has them."""
IS_UNSTATED = "the cfg has the precisions alone, not how int8 was quantised when they were measured: "


@pytest.mark.parametrize(
    ("net_keys", "measured", "notes"),
    [
        (
            "",
            MEASURED,
            "add quantize_weights=per_tensor to its [net]; an experiment file says quantization.weights.rounding: half_away, "
            "which no cfg can",
        ),
        ("quantize_weights=per_tensor\n", {**MEASURED, "weights": {"granularity": "per_tensor", "method": "min_max"}}, ""),
        (
            "",
            {**MEASURED, "weights": {"granularity": "per_channel", "method": "min_max"}, "bias_correction": True},
            "add bias_correction=1 to its [net]",
        ),
        (
            "",
            {"layers": {"0": MEASURED}, **MEASURED, "weights": {"granularity": "per_channel", "method": "min_max"}},
            "set quantize_weights=per_tensor in layers 0; an experiment file says quantization.weights.rounding: half_away in "
            "layers 0, which no cfg can",
        ),
    ],
)
def test_a_cfg_names_the_options_that_it_does_not_state(net_keys: str, measured: dict[str, Any], notes: str) -> None:
    content = tiny_cfg().replace("[net]\n", f"[net]\n{net_keys}", 1).encode()
    document = {"protocol": {"quantization": measured}}
    exported = export("cfg", replace(configuration(content, "q" * 13), document=document))
    assert exported.notes == ((IS_UNSTATED + notes,) if notes else ())
    # Nothing of it matters where no layer is in int8.
    assert export("cfg", replace(configuration(content, "h" * 13), document=document)).notes == ()


@pytest.mark.parametrize(
    ("packages", "message"),
    [
        (("mpnet", "no-such-module"), "needs no-such-module"),
        (("numpy>=9999.1",), r"needs numpy 9999.1 or newer \(this is .*\)"),
    ],
)
def test_missing_and_old_packages_are_named(monkeypatch: pytest.MonkeyPatch, packages: tuple[str, ...], message: str) -> None:
    needy = replace(targets()["cfg"], packages=packages, extra="needy")
    monkeypatch.setattr(mpnet.export, "targets", lambda: {"cfg": needy})
    with pytest.raises(ConfigError, match=rf"^--to cfg: {message}; pip install --upgrade 'mpnet\[needy\]'$"):
        export("cfg", CONFIGURATION)


def _target(**fields: Any) -> Target:
    def write(configuration: Configuration, flavour: str, options: Mapping[str, Any]) -> Exported:
        return Exported({".bin": flavour.encode()}, dict(options))

    return Target("bytes", ".bin", write, reads_weights=False, **fields)


def test_flavours_and_options_are_those_of_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    all_targets = {"bytes": _target(flavours={"plain": 1, "other": 2}, options=(Option("with_boxes"),))}
    monkeypatch.setattr(mpnet.export, "targets", lambda: all_targets)
    assert export("bytes", CONFIGURATION).content == b"plain"
    exported = export("bytes", CONFIGURATION, "other", {"with_boxes": True})
    assert (exported.content, exported.details) == (b"other", {"with_boxes": True})
    for arguments, message in ((("third",), "known are plain, other"), (("", {"with_labels": True}), "--with-labels")):
        with pytest.raises(ConfigError, match=message):
            export("bytes", CONFIGURATION, *arguments)


def test_what_a_target_cannot_express_is_refused_by_layer_with_what_it_can(
    monkeypatch: pytest.MonkeyPatch, prepared_tiny: Configuration
) -> None:
    def support(layer: Any, precision: Any, quantization: Any, flavour: str) -> str:
        return "only large layers are quantised" if precision.name == "int8" and layer.index < 3 else ""

    monkeypatch.setattr(mpnet.export, "targets", lambda: {"bytes": _target(support=support)})
    with pytest.raises(ConfigError) as excinfo:
        export("bytes", prepared_tiny)
    assert str(excinfo.value) == (
        "--to bytes: layer 0 (conv-1) as int8: only large layers are quantised (nor can 1 more layer be exported); the nearest "
        f"configuration that can be exported is hh{'q' * 11}"
    )
    assert export("bytes", replace(prepared_tiny, precisions=assign_key(prepared_tiny.network, "hh" + "q" * 11)))
