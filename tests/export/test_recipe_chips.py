# SPDX-License-Identifier: MIT
"""Recipes for compilers of chips: the layers in more than 8 bits, in the words of each; scripts find them in the file."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mpnet.engine.assign import assign_key
from mpnet.engine.options import resolve_options
from mpnet.engine.prepare import Prepared
from mpnet.errors import ConfigError
from mpnet.export import Configuration, export
from mpnet.export.recipe.quantizers import QUANTIZERS
from mpnet.formats.cfg.read import parse_cfg
from mpnet.formats.documents.target_file import bundled_target
from mpnet.importing import import_model
from mpnet.kernels.isa import kernels
from mpnet.model.network import NetworkSpec
from mpnet.model.precision import BY_CODE, FP16
from mpnet.model.weights import random_weights
from mpnet.trial.defaults import default_quantization
from tests.export.test_recipe import small_cfg_of_nodes
from tests.importing.graphs import yolov8n
from tests.networks import NAMES, small_cfg

CHIPS = {name: row for name, row in QUANTIZERS.items() if row.target}
SMALL = parse_cfg(small_cfg(), "net.cfg")
NODES = [f"layer_{layer.index:03d}_conv" for layer in SMALL.convolutions]
HOSTILE = ["--a:b,c'\"\n$(d) .*(", '"""', "\\", "$key ${inputs}", "'+__import__('os').system('x')+'", "a, b", "@Conv_1:out0"]


def configuration(key: str, cfg: str, target: str) -> Configuration:
    network = parse_cfg(cfg, "net.cfg")
    prepared = Prepared(network, random_weights(network), kernels())
    options = resolve_options(network, default_quantization(network, bundled_target(target)))
    return Configuration.from_prepared(prepared, assign_key(network, key), options, content=cfg.encode(), names=NAMES)


def raised_key(flavour: str) -> str:
    """Return the second and the last of four layers raised to the highest precision that there is."""
    return {"fp16": "qhqh", "int16": "qiqi"}[bundled_target(QUANTIZERS[flavour].target).precisions[0]]


def files(flavour: str, cfg: str = small_cfg()) -> dict[str, bytes]:
    return dict(export("recipe", configuration(raised_key(flavour), cfg, QUANTIZERS[flavour].target), flavour).files)


def script_of(flavour: str, monkeypatch: pytest.MonkeyPatch, cfg: str = small_cfg()) -> dict[str, Any]:
    """Return the names of a recipe's script; the chip maker's packages, which are not here, are empty."""
    for name, members in (
        ("rknn", ()),
        ("rknn.api", ("RKNN",)),
        ("ruamel", ()),
        ("ruamel.yaml", ("YAML",)),
        ("hailo_sdk_client", ("ClientRunner",)),
        ("torch", ()),
        ("esp_ppq", ("QuantizationSettingFactory",)),
        ("esp_ppq.api", ("espdl_quantize_onnx", "get_target_platform")),
        ("aimet_onnx", ()),
        ("aimet_onnx.quantsim", ("QuantizationSimModel",)),
    ):
        module = ModuleType(name)
        for member in members:
            setattr(module, member, None)
        monkeypatch.setitem(sys.modules, name, module)
    namespace: dict[str, Any] = {"__name__": "script"}
    exec(files(flavour, cfg)[".py"], namespace)
    return namespace


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the file in fp32 that recipes are for."""
    pytest.importorskip("onnx")
    path = tmp_path_factory.mktemp("chips") / "net.onnx"
    path.write_bytes(export("onnx", configuration("ffff", small_cfg(), "ncnn")).content)
    return path


@pytest.mark.parametrize("flavour", CHIPS)
def test_each_says_how_it_was_chosen_and_whether_it_was_tried(flavour: str) -> None:
    exported = export("recipe", configuration(raised_key(flavour), small_cfg(), CHIPS[flavour].target), flavour)
    origin = json.loads(exported.content)["origin"]
    assert origin["tried"] == (CHIPS[flavour].tried or "not tried")
    assert origin["chosen_in"].startswith("mpnet's arithmetic: ")
    assert ("codes" in origin["chosen_in"]) == (flavour != "rknn")
    assert any("not tried" in note for note in exported.notes) == (not CHIPS[flavour].tried)


@pytest.mark.parametrize("flavour", CHIPS)
@pytest.mark.parametrize("name", HOSTILE)
def test_any_name_is_a_literal_there(flavour: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = small_cfg_of_nodes(name)
    assert list(script_of(flavour, monkeypatch, cfg)["RAISED"]) == [name, "/fourth"]
    document = json.loads(files(flavour, cfg)[".recipe.json"])
    named = next(value for key, value in document.items() if key != "origin")
    assert list(named) == [name, "/fourth"]


@pytest.mark.parametrize("flavour", CHIPS)
def test_scripts_need_nothing_of_mpnet_and_refuse_another_file(
    flavour: str, monkeypatch: pytest.MonkeyPatch, model: Path
) -> None:
    module = ast.parse(files(flavour)[".py"].decode())
    imported = {alias.name for node in ast.walk(module) if isinstance(node, ast.Import) for alias in node.names}
    assert not any(name.startswith("mpnet") for name in imported)
    script = script_of(flavour, monkeypatch)
    assert list(script["RAISED"]) == [NODES[1], NODES[3]]
    script["RAISED"]["no such node"] = "16"
    with pytest.raises(SystemExit, match="has no node 'no such node'; the recipe is for the file of `mpnet export"):
        script["read_nodes"](str(model))


@pytest.mark.parametrize("flavour", CHIPS)
def test_what_gives_a_layer_its_values_ends_at_weights(flavour: str, monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    script = script_of(flavour, monkeypatch)
    by_name, makers = script["read_nodes"](str(model))
    assert script["givers"](NODES[0], by_name, makers) == []
    assert [name for name in script["givers"](NODES[1], by_name, makers) if name in NODES] == [NODES[0]]
    # A concatenation of the second layer's pooled result, made larger again, and of that result.
    givers = script["givers"](NODES[3], by_name, makers)
    assert [name for name in givers if name in NODES] == [NODES[1]]
    assert {by_name[name].op_type for name in givers} == {"Concat", "Resize", "MaxPool", "LeakyRelu", "Conv"}


def test_tidl_is_told_tensors(model: Path, tmp_path: Path) -> None:
    (tmp_path / "recipe.py").write_bytes(files("tidl")[".py"])
    subprocess.run([sys.executable, "recipe.py", str(model), "options.json"], cwd=tmp_path, check=True, timeout=120)
    options = json.loads((tmp_path / "options.json").read_text())
    names = options["advanced_options:output_feature_16bit_names_list"].split(", ")
    # What the second and the fourth layer read, back to the layers that give it; and the fourth's result, an output.
    assert {name for name in names if name in NODES} == {NODES[0], NODES[1], NODES[3]}
    assert (options["tensor_bits"], options["advanced_options:quantization_scale_type"]) == (8, 4)


def test_tidl_refuses_names_that_its_lists_would_cut(monkeypatch: pytest.MonkeyPatch, model: Path, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    graph = onnx.load(model)
    first = graph.graph.node[0]
    for node in graph.graph.node:
        for index, name in enumerate(node.input):
            if name == first.output[0]:
                node.input[index] = "a, b"
    first.output[0] = "a, b"
    onnx.save(graph, tmp_path / "renamed.onnx")
    with pytest.raises(SystemExit, match="TIDL's lists cannot hold the tensor name 'a, b'; rename it in the file"):
        script_of("tidl", monkeypatch)["find_tensors"](str(tmp_path / "renamed.onnx"))


def test_the_scheme_decides_tidls_scale_type() -> None:
    for target, scale_type in (("tidl", 4), ("tidl-power-of-two", 1), ("ncnn", 0)):
        recipe = export("recipe", configuration("qiqi", small_cfg(), target), "tidl")
        assert json.loads(recipe.content)["options"]["advanced_options:quantization_scale_type"] == scale_type


def test_acuitys_file_gets_its_own_names(model: Path, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    (tmp_path / "recipe.py").write_bytes(files("acuity")[".py"])
    nodes = onnx.load(model).graph.node
    layers = {f"{node.op_type}_{node.name}_{number}": {"op": node.op_type} for number, node in enumerate(nodes)}
    (tmp_path / "net.json").write_text(json.dumps({"Layers": layers}))
    (tmp_path / "net.quantize").write_text(
        "version: 2\ncustomized_quantize_layers:\n  Conv_old_1: dynamic_fixed_point-i16\n"
        "quantize_parameters:\n  x: {qtype: u8}\n"
    )
    arguments = [sys.executable, "recipe.py", str(model), "net.json", "net.quantize"]
    subprocess.run(arguments, cwd=tmp_path, check=True, timeout=120)
    first, chosen, *rest = (tmp_path / "net.quantize").read_text().splitlines()
    assert (first, rest) == ("version: 2", ["quantize_parameters:", "  x: {qtype: u8}"])
    types = json.loads(chosen.removeprefix("customized_quantize_layers: "))
    assert set(types.values()) == {"dynamic_fixed_point-i16"}
    assert set(types) <= set(layers)
    assert {name for name in NODES if any(f"Conv_{name}_" in layer for layer in types)} == {NODES[0], NODES[1], NODES[3]}


def test_hailos_script_names_layers_of_the_parsed_network(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    script = script_of("hailo", monkeypatch)
    parsed = {"layers": {f"network/conv{n}": {"original_names": [name]} for n, name in enumerate(NODES, 1)}}
    assert script["model_script"](parsed, str(model)) == (
        "quantization_param(network/conv2, precision_mode=a16_w16)\nquantization_param(network/conv4, precision_mode=a16_w16)\n"
    )
    parsed["layers"]["evil)\nx"] = parsed["layers"].pop("network/conv2")
    with pytest.raises(SystemExit, match="cannot stand in a model script"):
        script["model_script"](parsed, str(model))
    with pytest.raises(SystemExit, match=f"no layer of the node '{NODES[1]}'"):
        script["model_script"]({"layers": {}}, str(model))


def test_rknns_file_gets_tensors_that_it_knows(monkeypatch: pytest.MonkeyPatch, model: Path, tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    script = script_of("rknn", monkeypatch)
    by_name, _ = script["read_nodes"](str(model))
    results = {node.output[0] for node in by_name.values()} - {by_name[NODES[0]].output[0]}
    cfg = tmp_path / "net.quantization.cfg"
    known = {name: {"dtype": "int8"} for name in sorted(results)}
    cfg.write_text(yaml.safe_dump({"custom_quantize_layers": {}, "quantize_parameters": known}))

    class Yaml:
        def __init__(self, typ: str) -> None: ...

        def load(self, text: str) -> Any:
            return yaml.safe_load(text)

    script["YAML"] = Yaml
    script["choose"](str(cfg), str(model))
    document = yaml.safe_load(cfg.read_text())
    assert document["quantize_parameters"] == known
    chosen = document["custom_quantize_layers"]
    assert set(chosen.values()) == {"float16"}
    assert set(chosen) <= results  # the first convolution, which the optimiser has merged, by what follows it
    assert {NODES[1], NODES[3]} <= set(chosen)


@pytest.mark.parametrize(("flavour", "key"), [("hailo", "qhqq"), ("rknn", "qiqq"), ("qnn", "fqqq"), ("esp-ppq", "qbqq")])
def test_precisions_that_the_chip_does_not_have_are_refused_with_the_nearest(flavour: str, key: str) -> None:
    with pytest.raises(ConfigError, match=r"has .* in a recipe; the nearest configuration that can be exported") as error:
        export("recipe", configuration(key, small_cfg(), "openvino"), flavour)
    assert "\n" not in str(error.value)


DETECTORS = ("aix2022/yolov3-tiny-aix2022.cfg", "yolo-fastest/yolo-fastest-1.1.cfg", "imported")


@pytest.fixture(scope="module", params=DETECTORS)
def detector(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any]:
    """Return the cfg of a detector, and the ONNX file that its recipes are for: two real ones, and one as it was imported."""
    onnx = pytest.importorskip("onnx")
    if request.param == "imported":
        model = yolov8n(64)
        for number, node in enumerate(model.graph.node):
            node.name = f"/model.{number}/{node.op_type}"
        path = tmp_path_factory.mktemp("imported") / "net.onnx"
        onnx.save(model, path)
        return import_model(path).cfg, model
    cfg = (request.getfixturevalue("shared_data") / request.param).read_text()
    network = parse_cfg(cfg, "net.cfg")
    exported = export("onnx", configuration("f" * len(network.convolutions), cfg, "ncnn"))
    return cfg, onnx.load_from_string(exported.content)


@pytest.mark.slow
@pytest.mark.parametrize("flavour", QUANTIZERS)
def test_twelve_recipes_for_three_detectors(flavour: str, detector: tuple[str, Any]) -> None:
    cfg, model = detector
    network = parse_cfg(cfg, "net.cfg")
    target = QUANTIZERS[flavour].target
    raised = BY_CODE[raised_key(flavour)[1]] if target else FP16
    heads = {index for yolo in network.yolos for index in network.sources(yolo.inputs[0])}
    key = "".join(raised.code if layer.index in heads else "q" for layer in network.convolutions)
    exported = export("recipe", configuration(key, cfg, target or "onnxruntime"), flavour)
    if flavour == "litert":  # names the file that mpnet writes for it
        return
    nodes = {node.name for node in model.graph.node}
    chosen = {
        layer.source[0] if layer.source else f"layer_{layer.index:03d}_conv"
        for layer in network.convolutions
        if layer.index in heads
    }
    assert chosen <= nodes
    document = json.loads(exported.content)
    if target:
        named = next(value for name, value in document.items() if name != "origin")
        assert {name for name in named if name not in decoding_nodes(network)} == chosen
        assert set(named) <= nodes
    assert len(document) > 1
    if ".py" in exported.files:
        ast.parse(exported.files[".py"].decode())


def decoding_nodes(network: NetworkSpec) -> set[str]:
    return {node for yolo in network.yolos for node in yolo.source}
