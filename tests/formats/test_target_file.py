# SPDX-License-Identifier: MIT
"""Target files: those of the package are whole, and a user's own are read or refused in one line."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from mpnet.backends import backends
from mpnet.config.target_file import TargetFile
from mpnet.errors import ConfigError
from mpnet.export import columns, targets
from mpnet.export.recipe.quantizers import QUANTIZERS
from mpnet.formats.documents.target_file import bundled_target, parse_target, target_file, target_names

CHIPS = ("acuity", "esp-ppq", "hailo", "qnn", "rknn", "tidl", "tidl-power-of-two")


@pytest.mark.parametrize("name", target_names())
def test_each_is_written_by_an_export_target_in_a_flavour(name: str) -> None:
    target = bundled_target(name)
    assert target.name == name
    assert target.export in columns(targets()) or target.export in targets()
    assert len(target.precisions) > 1


def test_every_engine_and_every_chip_has_one() -> None:
    assert set(target_names()) == {*backends(), "armnn", "mprun", *CHIPS}
    assert {row.target for row in QUANTIZERS.values()} == {"", *CHIPS} - {"tidl-power-of-two"}


@pytest.mark.parametrize("name", CHIPS)
def test_those_of_chips_say_where_it_is_read_and_when(name: str) -> None:
    target = bundled_target(name)
    assert date.fromisoformat(target.read) >= date(2026, 11, 28)
    assert target.sources
    assert all(source.startswith("https://") and len(source.split()) == 1 for source in target.sources)


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("what: mine\nprecisions: [fp16, int8]\nlayers: {depthwise: fp16}\non_cpu: [mish]\n")
    target = target_file(str(path))
    assert target == TargetFile("mine", ("fp16", "int8"), layers=(("depthwise", ("fp16",)),), on_cpu=("mish",), name=str(path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.yaml: is empty"),
        ("[]", "x.yaml:1: the file is a list; it must hold `key: value` pairs"),
        ("what: a\n", "x.yaml:1: key 'precisions' is missing"),
        ("what: a\nprecisions: []\n", "x.yaml:2: precisions is an empty list; name at least one"),
        ("what: a\nprecisions: [int8, int8]\n", "x.yaml:2: precisions names 'int8' twice; keep one"),
        ("what: a\nprecisions: int8\nprecision: x\n", "x.yaml:3: unknown key 'precision'; did you mean 'precisions'?"),
        (
            "what: a\nprecisions: int8\nlayers:\n  depthwize: int8\n",
            "x.yaml:4: layers names 'depthwize'; did you mean 'depthwise'?",
        ),
        ("what: a\nprecisions: int8\nlayers:\n  3: int8\n", "x.yaml:4: layers names '3'; known are"),
        ("what: a\nprecisions: int8\non_cpu: mush\n", "x.yaml:3: on_cpu is 'mush'; did you mean 'mish'?"),
        ("what: a\nprecisions: int8\nread: yesterday\n", "x.yaml:3: read is 'yesterday'; it must be a day such as 2026-11-28"),
        ("what: a\nprecisions: int8\nquantization: {weights: per_row}\n", "x.yaml:3: quantization.weights is 'per_row'"),
        ("what: a\nprecisions: int8\nname: me\n", "x.yaml:3: unknown key 'name'"),
    ],
)
def test_what_a_file_may_not_say_is_one_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_target(text, "x.yaml", "x.yaml")
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(
        ConfigError, match=r"target 'rknnn' is unknown; did you mean 'rknn'\?; a file of your own ends in \.yaml"
    ):
        bundled_target("rknnn")
