# SPDX-License-Identifier: MIT
"""Values as experiment files hold them."""

from __future__ import annotations

import pytest
import yaml

from mpnet.formats.documents.experiment_writer import format_flow, quote, quote_path


def test_mappings_and_lists_stand_on_one_line_without_what_is_none() -> None:
    value = {"default": "int8", "layers": {"heads": "fp16", quote("0, 3..5"): "fp32"}, "names": None, "sizes": [1, 2.5]}
    text = format_flow(value)
    assert text == '{default: int8, layers: {heads: fp16, "0, 3..5": fp32}, sizes: [1, 2.5]}'
    assert yaml.safe_load(text) == {"default": "int8", "layers": {"heads": "fp16", "0, 3..5": "fp32"}, "sizes": [1, 2.5]}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("../data/net-v4.cfg", "../data/net-v4.cfg"),
        ("a b.cfg", '"a b.cfg"'),
        ("größe.cfg", '"größe.cfg"'),
        ("null", '"null"'),
        ('say "so".cfg', '"say \\"so\\".cfg"'),
        ("-net.cfg", '"-net.cfg"'),
    ],
)
def test_paths_are_quoted_where_yaml_would_read_something_else(path: str, text: str) -> None:
    assert quote_path(path) == text
    assert yaml.safe_load(f"{{cfg: {text}}}") == {"cfg": path}
