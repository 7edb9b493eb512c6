# SPDX-License-Identifier: MIT
"""`mpnet import`: files that every other command takes, and one line for what cannot be."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Mpnet
from tests.networks import write_images

onnx = pytest.importorskip("onnx")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    from tests.importing.graphs import yolov8n

    path = tmp_path / "model.onnx"
    onnx.save(yolov8n(64, classes=3, w=4), path)
    return path


@pytest.mark.slow
def test_an_imported_network_is_shown_edited_run_and_exported(model: Path, tmp_path: Path, mpnet: Mpnet) -> None:
    import_process = mpnet("import", model, "-o", "net", "--json")
    assert import_process.returncode == 0, import_process.stderr
    document = json.loads(import_process.stdout)
    assert document["layers"] == 118
    assert {Path(name).name for name in document["files"]} == {"model.cfg", "model.weights", "model.names", "model.yaml"}
    became = {row["node"]: row["became"] for row in document["nodes"]}
    assert became["/Conv_0"] == "layer 0 [convolutional]"
    assert set(became.values()) >= {"replaced by yolov8"}
    shutil.rmtree(tmp_path / "images", ignore_errors=True)
    write_images(tmp_path / "net", 3)
    cfg = tmp_path / "net/model.cfg"
    cfg.write_text(cfg.read_text(encoding="utf-8").replace("filters=4\n", "filters=4\nint8=1\n", 1), encoding="utf-8")
    show_process = mpnet("show", cfg, "--json")
    assert json.loads(show_process.stdout)["precision_key"].startswith("qff")
    run_process = mpnet("run", "net/model.yaml", "--json", "--set", "runtime.threads=1")
    assert run_process.returncode == 0, run_process.stderr
    assert mpnet("export", cfg, "--to", "onnx", "-o", "again.onnx").returncode == 0


@pytest.mark.slow
def test_a_sweep_over_an_imported_network_ends_in_a_front(tmp_path: Path, mpnet: Mpnet) -> None:
    from tests.importing.graphs import yolov3_tiny

    onnx.save(yolov3_tiny(64, classes=3, w=4), tmp_path / "tiny.onnx")
    assert mpnet("import", "tiny.onnx", "-o", "net").returncode == 0
    shutil.rmtree(tmp_path / "images", ignore_errors=True)
    write_images(tmp_path / "net", 3)
    # Of three images some must be left that choose.
    experiment, quick = "net/tiny.yaml", ("--set", "runtime.threads=1", "--set", "sweep.holdout=0")
    # Random weights find nothing, but agree with themselves more or less.
    objectives = "sweep.objectives=[agreement_AP, bit_operations]"
    swept = mpnet("sweep", experiment, *quick, "--set", objectives, "--json")
    assert swept.returncode == 0, swept.stderr
    front = json.loads(swept.stdout)["front"]
    keys = {point["precision"] for point in front}
    assert len(keys) > 1
    assert any("q" in key for key in keys)
    picked = mpnet("compare", "net/runs/tiny:baseline", "net/runs/tiny:smallest")
    assert picked.returncode == 0, picked.stderr
    assert mpnet("report", "net/runs/tiny/latest.sqlite", "-o", "tiny.html").returncode == 0
    analysed = mpnet("analyze", experiment, *quick, "--set", "precision.default=int8")
    assert analysed.returncode == 0, analysed.stderr
    # And out again, as it was decided, and in once more.
    assert mpnet("export", "net/runs/tiny:smallest", "--to", "onnx", "-o", "mixed.onnx").returncode == 0
    assert mpnet("import", "mixed.onnx", "-o", "again").returncode == 0
    network_document = json.loads(mpnet("show", "again/mixed.cfg", "--json").stdout)
    assert network_document["precision_key"].count("q") == max(key.count("q") for key in keys)


def test_the_table_names_every_node(model: Path, mpnet: Mpnet) -> None:
    process = mpnet("import", model, "-o", "net")
    assert process.returncode == 0
    assert "[convolutional]" in process.stdout
    assert "boxes: decoded as yolov8 does" in process.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("model.bin",), "files of other programs end in .onnx or .tflite"),
        (("missing.onnx",), "cannot be read"),
        (("model.onnx", "--heads", "nowhere"), "has no such tensor of a layer"),
        (("model.onnx", "--heads", "t0_0", "--decoder", "yolov5"), "needs anchors"),
        (("model.onnx", "--std", "0"), "of which no --std is 0"),
        (("model.onnx", "--size", "wide"), "write WIDTHxHEIGHT"),
        (("model.onnx", "--name", "a/b"), "without folders"),
    ],
)
def test_what_cannot_be_is_one_line(arguments: tuple[str, ...], message: str, model: Path, mpnet: Mpnet) -> None:
    (model.parent / "model.bin").write_bytes(b"")
    process = mpnet("import", *arguments, "-o", "net")
    assert process.returncode == 2
    assert len(process.stderr.splitlines()) == 1
    assert message in process.stderr
    assert not (model.parent / "net").exists()


def test_layers_keep_the_names_of_their_nodes_and_recipes_speak_them(mpnet: Mpnet, tmp_path: Path) -> None:
    from tests.importing.graphs import yolov8n

    model, names = yolov8n(64, classes=3, w=4), {}
    for number, node in enumerate(model.graph.node):
        node.name = f"/model/{node.op_type} {number};#,%"
        names[node.name] = node.op_type
    onnx.save(model, tmp_path / "net.onnx")
    mpnet("import", tmp_path / "net.onnx", "-o", tmp_path / "net")
    layers = json.loads(mpnet("show", tmp_path / "net" / "net.cfg", "--source", "--json").stdout)["layers"]
    assert {name for layer in layers for name in layer["source"]} < set(names)
    # All but the decoder's.
    *convolutions, decoder = (name for name, operator in names.items() if operator == "Conv")
    assert [layer["source"][0] for layer in layers if layer["type"] == "convolutional"] == convolutions
    mpnet(
        "export", tmp_path / "net" / "net.cfg", "--to", "recipe", "--flavour", "onnxruntime", "-o", tmp_path / "r.recipe.json"
    )
    recipe = json.loads((tmp_path / "r.recipe.json").read_text())
    assert recipe["nodes_to_exclude"] == convolutions
    # What quantises all that it is not told to leave hears of additions and of the decoder's convolution too.
    additions = [layer["source"][0] for layer in layers if layer["type"] == "shortcut"]
    assert {names[name] for name in additions} == {"Add"}
    node_names = {*convolutions, *additions, decoder}
    mpnet("export", tmp_path / "net" / "net.cfg", "--to", "recipe", "--flavour", "nncf", "-o", tmp_path / "n.recipe.json")
    patterns = json.loads((tmp_path / "n.recipe.json").read_text())["ignored_scope"]["patterns"]
    assert [name for name in names if any(re.match(pattern, name) for pattern in patterns)] == [
        name for name in names if name in node_names
    ]
