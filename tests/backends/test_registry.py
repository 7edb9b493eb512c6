# SPDX-License-Identifier: MIT
"""Backends are found by name, import nothing before they are asked to, and pyproject.toml brings what they need."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from mpnet.backends import backend, backends, runner_of
from mpnet.backends.placement import LayerPlacement, warnings_of
from mpnet.errors import ConfigError
from mpnet.export import targets
from mpnet.model.keys import keys_of
from mpnet.model.quantization import QuantizationOptions
from mpnet.packages import OLDEST_VERSIONS, requirements


def test_every_backend_runs_what_a_target_writes() -> None:
    all_targets = targets()
    for name, row in backends().items():
        assert row.flavour in (all_targets[row.target].flavours or ("",))
        assert runner_of(row.target, row.flavour) is not None, name
        assert set(row.mode) <= set(keys_of(QuantizationOptions))
    with pytest.raises(ConfigError, match="engine 'qqq' is unknown; known are"):
        backend("qqq")


def test_extras_bring_what_targets_and_backends_need(repository: Path) -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11 reads TOML")
    extras = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for row in (*targets().values(), *backends().values()):
        assert set(row.packages) <= set(extras[row.extra] if row.extra else ())  # type: ignore[attr-defined]
    for name, row in backends().items():  # an engine's extra brings what its file is written with
        assert set(targets()[row.target].packages) <= set(extras[row.extra]), name


def test_extras_ask_for_the_oldest_versions_that_mpnet_takes(repository: Path) -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11 reads TOML")
    extras = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    # `bench` and `tf` take any version, `train` the one that the demo network was trained with.
    required = {requirement for name, rows in extras.items() if name not in ("bench", "tf", "train") for requirement in rows}
    for name, requirement in zip(OLDEST_VERSIONS, requirements(*OLDEST_VERSIONS), strict=True):
        assert {required_package for required_package in required if re.split("[<>=]", required_package)[0] == name} == {
            requirement
        }


def test_asking_what_there_is_imports_no_engine() -> None:
    code = (
        "import sys; from mpnet.backends import backends; from mpnet.export import targets; backends(); targets(); "
        "print([name for name in ('onnx', 'onnxruntime', 'openvino', 'ncnn', 'ai_edge_litert', 'flatbuffers') "
        "if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_layers_that_fall_back_alike_are_one_line() -> None:
    layers = [LayerPlacement(n, f"conv-{n}", "int8", "int8", "fp32", "no such kernel") for n in range(1, 7)]
    layers += [LayerPlacement(9, "conv-9", "fp16", "fp16", "fp32"), LayerPlacement(10, "conv-10", "fp32", "fp32", "fp32")]
    assert warnings_of(layers, "ncnn") == [
        "6 layers (conv-1, conv-2, conv-3, conv-4 and others) are wanted in int8 but run in fp32 in ncnn: no such kernel",
        "layer 9 (conv-9) is wanted in fp16 but runs in fp32 in ncnn",
    ]
    assert warnings_of([LayerPlacement(n, f"conv-{n}", "fp16", "fp32") for n in (1, 2)]) == [
        "2 layers (conv-1, conv-2) are wanted in fp16 but are written in fp32"
    ]
