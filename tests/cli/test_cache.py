# SPDX-License-Identifier: MIT
"""Prepared weights are kept between commands; the user sees where and says how much."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mpnet.formats.files import digest
from tests.cli.conftest import Mpnet, document_of
from tests.conftest import DemoModel


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MPNET_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MPNET_CACHE_LIMIT", raising=False)
    return tmp_path / "cache" / "prepared"


def detect(mpnet: Mpnet, model: DemoModel, weights: Path, *options: str) -> object:
    image = sorted(model.images.iterdir())[0]
    return document_of(
        mpnet("detect", "--cfg", model.cfg, "--weights", weights, "--default", "int8", image, "--json", *options)
    )


def test_commands_share_what_was_prepared(mpnet: Mpnet, demo_model: DemoModel, folder: Path) -> None:
    document = detect(mpnet, demo_model, demo_model.weights)
    names = {path.name for path in folder.iterdir()}
    assert names
    assert detect(mpnet, demo_model, demo_model.weights) == document
    assert {path.name for path in folder.iterdir()} == names
    prepared = document_of(mpnet("info", "--json"))["prepared"]
    assert prepared == {
        "folder": str(folder),
        "entries": len(names),
        "limit_bytes": 2 * 10**9,
        "size_bytes": sum(path.stat().st_size for path in folder.iterdir()),
    }
    assert f"prepared weights  {folder}: " in mpnet("info").stdout


@pytest.mark.usefixtures("folder")
def test_new_weights_in_the_same_place_are_noticed(
    mpnet: Mpnet, demo_model: DemoModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digest, "SETTLED_SECONDS", -1.0)
    weights = tmp_path / "net.weights"
    content = demo_model.weights.read_bytes()
    weights.write_bytes(content)
    document = detect(mpnet, demo_model, weights)
    assert detect(mpnet, demo_model, weights) == document
    times = weights.stat()
    weights.write_bytes(content[:20] + 8 * b"\0\0\xa0\x40" + content[52:])  # biases of 5
    os.utime(weights, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert detect(mpnet, demo_model, weights) == detect(mpnet, demo_model, weights, "--no-cache") != document


def test_no_cache(mpnet: Mpnet, demo_model: DemoModel, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    detect(mpnet, demo_model, demo_model.weights, "--no-cache")
    assert not folder.exists()
    assert "MPNET_CACHE_LIMIT" not in os.environ
    monkeypatch.setenv("MPNET_CACHE_LIMIT", "0")
    detect(mpnet, demo_model, demo_model.weights)
    assert not folder.exists()
    assert document_of(mpnet("info", "--json"))["prepared"]["folder"] is None
    assert "none are kept (MPNET_CACHE_LIMIT=0)" in mpnet("info").stdout


def test_a_limit_that_is_none_is_one_line(mpnet: Mpnet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPNET_CACHE_LIMIT", "lots")
    refused = mpnet("info")
    assert (refused.returncode, refused.stderr) == (
        2,
        "error: MPNET_CACHE_LIMIT: 'lots' is no size such as 500M or 2G; 0 turns the cache off\n",
    )
