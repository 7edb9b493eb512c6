# SPDX-License-Identifier: MIT
"""Precisions written into a cfg change nothing but the keys that decide them."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from mpnet.errors import FormatError
from mpnet.formats.cfg.edit import cfg_for_key, edit_precisions
from mpnet.formats.cfg.read import parse_cfg
from mpnet.model.plan_key import parse_key
from mpnet.model.precision import FP16, FP32, INT8, USUAL_NAMES, Precision

TEXT = b"""[net]
width=8
height=8
# caf\xe9, in Latin-1

[convolutional]
filters = 4     ; comment
fp32 = 1  # why
  int8 = 0
quantize = 0

# between
[convolutional]
filters=2

[maxpool]
size=2
"""


def keys(precision: str) -> list[str]:
    """Return what a section without precision keys gets."""
    return [f"{name}={int(name == precision)}" for name in USUAL_NAMES]


def changed_lines(content: bytes, new_content: bytes) -> list[str]:
    diff = difflib.ndiff(content.decode("latin-1").split("\n"), new_content.decode("latin-1").split("\n"))
    return [line for line in diff if line[0] in "+-"]


def test_only_the_keys_that_differ_change() -> None:
    edited = edit_precisions(TEXT, [INT8, None, None])
    assert changed_lines(TEXT, edited) == [
        "- fp32 = 1  # why",
        "+ fp32 = 0  # why",
        "-   int8 = 0",
        "+   int8 = 1",
        "- quantize = 0",
        "+ quantize = 1",
    ]


def test_missing_keys_follow_the_last_key_of_the_section() -> None:
    edited = edit_precisions(TEXT, [None, FP16, None])
    assert changed_lines(TEXT, edited) == [f"+ {line}" for line in keys("fp16")]
    assert edited.decode("latin-1").splitlines()[13 : 15 + len(USUAL_NAMES)] == ["filters=2", *keys("fp16"), ""]


def test_a_key_that_is_not_there_yet_is_added_to_the_others() -> None:
    edited = edit_precisions(TEXT, [FP16, None, None])
    assert changed_lines(TEXT, edited) == [
        "- fp32 = 1  # why",
        "+ fp32 = 0  # why",
        "- quantize = 0",
        "+ quantize = 1",
        "+ fp16=1",
    ]


def test_what_already_holds_is_left_alone() -> None:
    assert edit_precisions(TEXT, [FP32, FP32, None]) == TEXT
    windows = TEXT.replace(b"\n", b"\r\n")
    assert edit_precisions(windows, [FP32, FP32, None]) == windows


def test_line_ends_and_a_missing_last_one_are_kept() -> None:
    text = b"[net]\r\nwidth=8\r\nheight=8\r\n[convolutional]\r\nfilters=2"
    assert edit_precisions(text, [INT8]) == text + "\r\n".join(["", *keys("int8"), ""]).encode()


def test_promises_that_may_break_are_taken_back() -> None:
    text = b"[net]\nwidth=8\nheight=8\n[convolutional]\n[maxpool]\n[convolutional]\nfp32=1\nquantize=0\n"
    edited = edit_precisions(text, [FP16, None, None])
    assert changed_lines(text, edited) == [f"+ {line}" for line in keys("fp16")] + ["- quantize=0", "+ quantize=1"]


def test_a_whole_plan_survives_the_file(repository: Path) -> None:
    content = (repository / "cfg" / "yolov3-tiny-mixed.cfg").read_bytes()
    network = parse_cfg(content)
    precisions = parse_key(network, "hqqfqhqqqqqqf+1:q")
    network_read_back = parse_cfg(cfg_for_key(content, "hqqfqhqqqqqqf+1:q"))
    read_precisions: dict[int, Precision] = {
        layer.index: layer.declared.precision
        for layer in network_read_back.layers
        if layer.declared is not None and layer.declared.precision is not None
    }
    assert read_precisions == precisions


def test_keys_with_blanks_inside_are_found() -> None:
    text = b"[net]\nwidth=8\nheight=8\n[convolutional]\nfp 32 = 1\nint\t8=0\n"
    assert edit_precisions(text, [INT8]) == text.replace(b"fp 32 = 1", b"fp 32 = 0").replace(b"int\t8=0", b"int\t8=1")


def test_the_number_of_layers_must_fit() -> None:
    with pytest.raises(FormatError, match=r"^t\.cfg: has 3 layers, but precisions for 1 were given$"):
        edit_precisions(TEXT, [INT8], "t.cfg")
