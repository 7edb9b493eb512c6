"""Targets of `mpnet export`: declared once, and each says what it needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import mpnet.export
from mpnet.errors import ConfigError
from mpnet.export import Chosen, describe, export, targets
from mpnet.formats.cfg import parse_cfg
from tests.networks import tiny_cfg

CHOSEN = Chosen("q" * 13, Path("net.cfg"), tiny_cfg().encode(), {})


def test_every_target_is_described() -> None:
    known = targets()
    assert "cfg" in known
    for name, target in known.items():
        assert f"{name}: {target.what} ({target.suffix})" in describe(known)


def test_a_cfg_has_the_precisions_that_were_chosen() -> None:
    exported = export("cfg", CHOSEN)
    network = parse_cfg(exported.content)
    assert [layer.declared.precision.name for layer in network.convolutions if layer.declared and layer.declared.precision] == (
        ["int8"] * 13)
    assert exported.details == {"changed": True}
    assert export("cfg", replace(CHOSEN, content=exported.content)).details == {"changed": False}


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    needy = replace(targets()["cfg"], packages=("mpnet", "no_such_module"), extra="needy")
    monkeypatch.setattr(mpnet.export, "targets", lambda: {"cfg": needy})
    with pytest.raises(ConfigError, match=r"^--to cfg: needs no_such_module; pip install 'mpnet\[needy\]'$"):
        export("cfg", CHOSEN)
