# SPDX-License-Identifier: MIT
"""Random graphs with branches and attention are imported and give what ONNX Runtime gives."""

from __future__ import annotations

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from tests.fuzz.import_graphs import build_graph, hunt


@pytest.mark.slow
def test_heads_are_onnx_runtimes() -> None:
    assert hunt(60, 5_000) == 0


def test_a_graph_hangs_on_its_seed_alone() -> None:
    model, forms = build_graph(3)
    assert build_graph(3)[0].SerializeToString() == model.SerializeToString()
    assert build_graph(4)[1] != forms
