# SPDX-License-Identifier: MIT
"""A network as a drawing: every layer, every connection, time and error where they are known."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from mpnet.engine.assign import assign
from mpnet.engine.cost import layer_costs
from mpnet.engine.plan import build_plan
from mpnet.formats.cfg.read import read_cfg
from mpnet.report.html.graph import draw_graph
from tests.cli.conftest import Mpnet, document_of, experiment, mpnet  # noqa: F401

SVG = "{http://www.w3.org/2000/svg}"


def test_all_layers_and_connections_are_drawn(repository: Path) -> None:
    network = read_cfg(repository / "cfg/yolov3-tiny.cfg")
    rows = layer_costs(build_plan(network, assign(network, "int8", {"heads": "fp16"})))
    root = ElementTree.fromstring(draw_graph(network, rows, {0: 1.5}, {0: 40.0, 2: 20.0}))
    texts = [text.text or "" for text in root.iter(f"{SVG}text")]
    for row in rows:
        assert any(text.startswith(f"{row.index}  {row.name}  ") for text in texts)
    assert {"1.50 ms", "40.00 dB", "20.00 dB", "fp32 -> int8"} <= set(texts)
    connections = sum(source >= 0 for layer in network.layers for source in layer.inputs)
    assert len(list(root.iter(f"{SVG}path"))) == connections


@pytest.mark.slow
def test_time_and_error_are_measured_on_request(mpnet: Mpnet, experiment: Path, tmp_path: Path) -> None:
    process = mpnet("show", experiment, "--graph", "--measure", "-o", "net.html")
    assert process.returncode == 0, process.stderr
    page = (tmp_path / "net.html").read_text()
    assert page.count(" ms</text>") >= 2
    assert page.count(" dB</text>") >= 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--graph",), "name the file to draw"),
        (("--graph", "-o", "net.png"), "name the file to draw"),
        (("-o", "net.svg"), "belong to --graph"),
        (("--graph", "--measure", "-o", "net.svg"), "names no images"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(mpnet: Mpnet, repository: Path, options: tuple[str, ...], message: str) -> None:
    process = mpnet("show", repository / "cfg/yolov3-tiny.cfg", *options)
    assert (process.returncode, process.stderr.count("\n")) == (2, 1)
    assert message in process.stderr


@pytest.mark.slow
def test_model_explorer_has_a_graph_and_data_for_its_nodes(mpnet: Mpnet, experiment: Path, tmp_path: Path) -> None:
    process = mpnet("show", experiment, "--graph", "--measure", "-o", "net.json")
    assert process.returncode == 0, process.stderr
    document = json.loads((tmp_path / "net.json").read_text())
    [graph] = document["graphs"]
    rows = document_of(mpnet("show", experiment, "--json"))["layers"]
    nodes = {node["id"]: {pair["key"]: pair["value"] for pair in node["attrs"]} for node in graph["nodes"]}
    assert [nodes[str(row["index"])]["precision"] for row in rows] == [row["precision"] for row in rows]
    assert {edge["sourceNodeId"] for node in graph["nodes"] for edge in node["incomingEdges"]} <= set(nodes)
    assert sum(not node["incomingEdges"] for node in graph["nodes"]) == 1
    for name in ("precision", "time", "error"):
        data = json.loads((tmp_path / f"net-{name}.json").read_text())
        assert set(data) == {graph["id"]}
        assert set(data[graph["id"]]["results"]) <= set(nodes)
        assert data[graph["id"]]["results"]
