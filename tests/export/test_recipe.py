# SPDX-License-Identifier: MIT
"""Recipes: the layers that stay in float, in the words of other quantisers; scripts are Python that needs nothing of mpnet."""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import quote

import pytest

from mpnet.engine.assign import assign_key
from mpnet.engine.options import resolve_options
from mpnet.engine.prepare import Prepared
from mpnet.errors import ConfigError
from mpnet.export import Configuration, export
from mpnet.export.recipe.quantizers import QUANTIZERS
from mpnet.formats.cfg.read import parse_cfg
from mpnet.kernels.isa import kernels
from mpnet.model.quantization import NO_OPTIONS, ActivationOptions, QuantizationOptions
from mpnet.model.weights import random_weights
from tests.networks import DEPTHWISE_CFG, NAMES, small_cfg, tiny_cfg

KEY = "hqqqqfqqqhqqh"
NETWORK = parse_cfg(tiny_cfg(), "net.cfg")
DEPTHWISE = parse_cfg(DEPTHWISE_CFG, "depthwise.cfg")

CONVOLUTION = "[convolutional]\nfilters=8\nsize=3\nstride=1\npad=1\nactivation=leaky\n"
SHORTCUT_CFG = (
    f"[net]\nwidth=32\nheight=32\nchannels=3\n{CONVOLUTION}{CONVOLUTION}[shortcut]\nfrom=-2\nactivation=linear\n"
    "[convolutional]\nfilters=18\nsize=1\nstride=1\nactivation=linear\n"
    "[yolo]\nmask=0,1,2\nanchors=1,2,3,4,5,6\nclasses=1\nnum=3\n"
)


def configuration(key: str, cfg: str = tiny_cfg(), quantization: QuantizationOptions = NO_OPTIONS) -> Configuration:
    network = parse_cfg(cfg, "net.cfg")
    prepared = Prepared(network, random_weights(network), kernels())
    options = resolve_options(network, quantization)
    return Configuration.from_prepared(prepared, assign_key(network, key), options, content=cfg.encode(), names=NAMES)


def nodes(key: str, quantised: bool) -> list[str]:
    """Return names of the convolutions, as an exported file has them."""
    weighted = [layer.index for layer in NETWORK.layers if layer.has_weights]
    return [f"layer_{index:03d}_conv" for index, code in zip(weighted, key, strict=True) if (code == "q") is quantised]


def recipe(flavour: str, key: str = KEY) -> Any:
    return json.loads(export("recipe", configuration(key), flavour).content)


@pytest.fixture(scope="module")
def convolutions() -> list[str]:
    """Return the convolutions of the fp32 file that recipes are about."""
    onnx = pytest.importorskip("onnx")
    graph = onnx.load_from_string(export("onnx", configuration("f" * 13)).content).graph
    return [node.name for node in graph.node if node.op_type == "Conv"]


def test_names_are_those_of_the_exported_file(convolutions: list[str]) -> None:
    assert convolutions == sorted(nodes(KEY, True) + nodes(KEY, False))


def test_nncf_matches_the_layers_that_stay_in_float_in_both_readers(convolutions: list[str]) -> None:
    patterns = recipe("nncf")["ignored_scope"]["patterns"]
    for names in (convolutions, [f"{name}/WithoutBiases" for name in convolutions]):
        matched = [name for name in names if any(re.match(pattern, name) for pattern in patterns)]
        assert [name.partition("/")[0] for name in matched] == nodes(KEY, False)


@pytest.mark.parametrize(("keys", "in_float"), [("", True), ("int8=1\n", False)])
def test_nncf_leaves_additions_in_float_that_were_measured_so(keys: str, in_float: bool) -> None:
    onnx = pytest.importorskip("onnx")
    cfg = SHORTCUT_CFG.replace("from=-2\n", f"from=-2\n{keys}")
    patterns = json.loads(export("recipe", configuration("qqq", cfg), "nncf").content)["ignored_scope"]["patterns"]
    graph = onnx.load_from_string(export("onnx", configuration("fff", cfg)).content).graph
    float_nodes = [node.name for node in graph.node if any(re.match(pattern, node.name) for pattern in patterns)]
    assert float_nodes == [node.name for node in graph.node if node.op_type == "Add" and in_float]


def test_nncf_is_told_ranges_and_bits_as_measured() -> None:
    assert recipe("nncf")["advanced_parameters"] == {"overflow_fix": "disable", "activations_range_estimator_params": "MINMAX"}
    script = export("recipe", configuration(KEY), "nncf").files[".py"].decode()
    assert "overflow_fix=nncf.OverflowFix.DISABLE" in script
    assert "activations_range_estimator_params=RangeEstimatorParametersSet.MINMAX" in script


def calibrated(method: str, **keywords: Any) -> Configuration:
    activations = ActivationOptions(mode="affine", ranges="calibrated", method=method, **keywords)
    return configuration(KEY, quantization=QuantizationOptions(activations))


@pytest.mark.parametrize(
    ("flavour", "equalisation", "note"),
    [
        ("nncf", False, "NNCF gives each channel that a depthwise layer reads a range of its own"),
        ("nncf", "activations", ""),
        ("nncf", True, "was measured with equalised channels, which NNCF does not make"),
        ("aimet", False, ""),
        ("aimet", "activations", "was measured with equalised channels, which AIMET does not make"),
    ],
)
def test_what_a_quantiser_makes_of_depthwise_layers_is_said(flavour: str, equalisation: bool | str, note: str) -> None:
    options = resolve_options(DEPTHWISE, QuantizationOptions(equalisation=equalisation))
    channels_note = QUANTIZERS[flavour].channels_note(DEPTHWISE, options)
    assert channels_note.startswith(note)
    assert bool(channels_note) == bool(note)
    assert QUANTIZERS[flavour].channels_note(NETWORK, resolve_options(NETWORK)) == ""


def test_onnx_runtime_averages_ranges_where_they_were_averaged() -> None:
    exported = export("recipe", calibrated("moving_average"), "onnxruntime")
    assert exported.notes == ()
    assert json.loads(exported.content)["extra_options"]["CalibMovingAverageConstant"] == 0.1
    assert b"**{'CalibMovingAverage': True, 'CalibMovingAverageConstant': 0.1}," in exported.files[".py"]


@pytest.mark.parametrize("flavour", ["nncf", "onnxruntime", "modelopt", "aimet"])
def test_what_the_program_is_not_told_is_said(flavour: str) -> None:
    usual = export("recipe", calibrated("min_max"), flavour).notes
    corrected = QuantizationOptions(ActivationOptions(ranges="calibrated"), bias_correction=True)
    for changed_configuration, start in (
        (calibrated("mse"), "ranges were found by mse; "),
        (configuration(KEY), "measured with ranges of each image; "),
        (configuration(KEY, quantization=corrected), "measured with bias correction, "),
    ):
        notes = export("recipe", changed_configuration, flavour).notes
        if flavour == "nncf" and "correction" in start:
            remedy = "`--set quantization.bias_correction=true` measures what it will make"
            assert usual == (f"NNCF corrects biases, which was not measured: {remedy}",)
            assert notes == ()
        else:
            [note] = set(notes) - set(usual)
            assert note.startswith(start)


# Of a convolution: filters, channels a group, size, groups, whether it reads the image; whether ModelOpt 0.47 quantises it.
# As its own `find_nodes_from_convs_to_exclude` answered for each.
MODELOPT_CASES = [
    (16, 16, 1, 1, False, True),
    (8, 3, 3, 1, True, True),
    (4, 3, 3, 1, True, False),
    (16, 3, 1, 1, True, True),
    (8, 8, 1, 1, False, False),
    (8, 8, 3, 1, False, False),
    (24, 4, 1, 1, False, True),
    (18, 4, 1, 1, False, False),
    (12, 24, 1, 1, False, True),
    (12, 18, 1, 1, False, False),
    (8, 1, 3, 8, False, True),
    (8, 1, 1, 8, False, False),
    (12, 1, 3, 12, False, False),
    (64, 2, 3, 32, False, True),
    (64, 2, 1, 32, False, False),
]


@pytest.mark.parametrize(("filters", "channels", "size", "groups", "reads_image", "quantised"), MODELOPT_CASES)
def test_modelopt_says_what_it_leaves_in_float_itself(
    filters: int, channels: int, size: int, groups: int, reads_image: bool, quantised: bool
) -> None:
    image = channels * groups if reads_image else 32
    leading_layer = "" if reads_image else f"[convolutional]\nfilters={channels * groups}\nsize=1\n"
    net = f"[net]\nwidth=8\nheight=8\nchannels={image}\n{leading_layer}"
    cfg = f"{net}[convolutional]\nfilters={filters}\nsize={size}\ngroups={groups}\n"
    key = "q" if reads_image else "fq"
    exported = export("recipe", configuration(key, cfg), "modelopt")
    _, precision, reason = exported.layers[len(key) - 1]
    assert (precision, bool(reason)) == (("int8", False) if quantised else ("float", True))
    assert any("in float itself" in note for note in exported.notes) != quantised
    node = f"layer_{len(key) - 1:03d}_conv"
    assert json.loads(exported.content)["left_in_float_by_modelopt"] == ([] if quantised else [node])


def test_onnx_runtime_and_aimet_get_both_lists() -> None:
    document = recipe("onnxruntime")
    assert (document["nodes_to_quantize"], document["nodes_to_exclude"]) == (nodes(KEY, True), nodes(KEY, False))
    # mpnet measured results as reals, which ONNX Runtime would put into 8 bits besides.
    assert "Conv" in document["extra_options"]["OpTypesToExcludeOutputQuantization"]
    assert "OpTypesToExcludeOutputQuantization" in export("recipe", configuration(KEY), "onnxruntime").files[".py"].decode()
    document = recipe("aimet")
    assert (document["quantized"], document["float"]) == (nodes(KEY, True), nodes(KEY, False))


def test_litert_rules_leave_out_whole_scopes() -> None:
    default_rule, *rules = recipe("litert")
    assert default_rule["regex"] == ".*"
    assert "activation_tensor_config" not in default_rule["op_config"]  # dynamic ranges
    scopes = [f"{name}/sums;" for name in nodes(KEY, True) + nodes(KEY, False)]
    matched_scopes = [scope for scope in scopes if any(re.search(rule["regex"], scope) for rule in rules)]
    assert matched_scopes == [f"{name}/sums;" for name in nodes(KEY, False)]
    assert {rule["algorithm_key"] for rule in rules} == {"no_quantize"}


def test_modelopt_and_tensorrt_name_every_layer() -> None:
    assert recipe("modelopt")["nodes_to_exclude"] == [f"^{name}$" for name in nodes(KEY, False)]
    precisions = recipe("tensorrt")["layer_precisions"]
    assert [name for name, precision in precisions.items() if precision == "int8"] == nodes(KEY, True)
    assert [precision for precision in precisions.values() if precision != "int8"] == ["fp16", "fp32", "fp16", "fp16"]


def small_cfg_of_nodes(name: str) -> str:
    """Return a network of four convolutions as an import writes it; name: of the second one's node."""
    sources = iter(["/first", name, "/third", "/fourth"])
    return re.sub(r"\[convolutional\]\n", lambda found: f"{found[0]}source={quote(next(sources), safe='')}\n", small_cfg())


@pytest.mark.parametrize(
    "name",
    ["--data-loader-script=evil.py", "-x", "a:fp32,b", "a,b", "/c0:int8", "two words", "/mod*", "a;touch x", "$(x)", "a\nb"],
)
def test_tensorrt_is_told_names_of_an_exported_file_where_an_imported_one_has_arguments_of_its_programs(name: str) -> None:
    exported = export("recipe", configuration("qfqf", small_cfg_of_nodes(name)), "tensorrt")
    document = json.loads(exported.content)
    precisions = dict(zip(exported.layers, ("int8", "fp32", "int8", "fp32"), strict=True))
    names = {f"layer_{index:03d}_conv": precision for index, precision in precisions.items()}
    assert document["layer_precisions"] == names
    spec = document["trtexec"][-1].removeprefix("--layerPrecisions=")
    assert dict(pair.split(":") for pair in spec.split(",")) == names
    assert document["polygraphy"][5:] == [f"{name}:{precision.replace('fp', 'float')}" for name, precision in names.items()]
    assert exported.details["reads"] == "the file of `mpnet export NET.cfg --to onnx` in fp32"
    assert exported.notes[0].startswith(
        f"TensorRT's arguments cannot hold the node name {name!r}; the recipe is for the file of"
    )


@pytest.mark.parametrize("name", ["/model.0/conv/Conv", "Conv_0", "resnet/unit-1/conv+bias", "node_größe"])
def test_tensorrt_is_told_names_of_an_imported_file(name: str) -> None:
    exported = export("recipe", configuration("qfqf", small_cfg_of_nodes(name)), "tensorrt")
    assert list(json.loads(exported.content)["layer_precisions"]) == ["/first", name, "/third", "/fourth"]
    assert not any("arguments" in note for note in exported.notes)


@pytest.mark.parametrize("flavour", ["nncf", "onnxruntime", "modelopt", "aimet"])
def test_other_quantizers_are_told_any_name_as_a_literal(flavour: str) -> None:
    name = "--a:b,c'\"\n$(d) .*("
    exported = export("recipe", configuration("qfqf", small_cfg_of_nodes(name)), flavour)
    document = json.loads(exported.content)
    if flavour in ("nncf", "modelopt"):
        patterns = document["ignored_scope"]["patterns"] if flavour == "nncf" else document["nodes_to_exclude"]
        assert [pattern for pattern in patterns if re.match(pattern, name)] == patterns[:1]
        assert all(pattern.startswith("^") for pattern in patterns)  # no option of a program
    else:
        assert name in document["nodes_to_exclude" if flavour == "onnxruntime" else "float"]
    if ".py" in exported.files:
        ast.parse(exported.files[".py"].decode())


@pytest.mark.parametrize("flavour", [name for name in QUANTIZERS if name in ("nncf", "onnxruntime", "aimet")])
@pytest.mark.parametrize("key", [KEY, "q" * 13, "f" * 13])
def test_scripts_are_python_with_the_names(flavour: str, key: str) -> None:
    script = export("recipe", configuration(key), flavour).files[".py"].decode()
    module = ast.parse(script)
    listed = next(
        ast.literal_eval(node.value)
        for node in module.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in ("FLOATS", "NODES")
    )
    assert len(listed) == len(nodes(key, quantised=flavour != "nncf"))
    imported = {alias.name for node in ast.walk(module) if isinstance(node, ast.Import) for alias in node.names}
    assert not any(name.startswith("mpnet") for name in imported)


def test_every_layer_says_what_becomes_of_it() -> None:
    layers = export("recipe", configuration(KEY), "nncf").layers
    assert [precision for _, precision, _ in layers.values()] == ["int8" if code == "q" else "float" for code in KEY]


def test_fewer_than_eight_bits_are_refused_by_layer_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"--flavour nncf: layer 2 .* as int4: .*; the nearest configuration that can"):
        export("recipe", configuration("q4" + "q" * 11), "nncf")


class Quantiser:
    """As AIMET's: on until it is told otherwise."""

    enabled = True


def test_aimets_quantisers_of_several_names_serve_all_that_read_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx = pytest.importorskip("onnx")
    content = export("onnx", configuration("f" * 4, small_cfg())).content
    (tmp_path / "net.onnx").write_bytes(content)
    nodes = onnx.load_from_string(content).graph.node
    [upsample] = [node for node in nodes if node.op_type == "Resize"]
    shared = upsample.input[0]
    # All that is quantised reads the upsample's source; its result's name comes later and is nobody's.
    readers = [node.name for node in nodes if node.op_type == "Conv" and shared in node.input]
    quantizers = {name: Quantiser() for node in nodes for name in (*node.input, *node.output)}
    quantizers[upsample.output[0]] = quantizers[shared]

    class Simulation:
        qc_quantize_op_dict = quantizers

        def __init__(self, *model: Any, **keywords: Any) -> None: ...

        def compute_encodings(self, forward: Any) -> None: ...

        def export(self, folder: str, name: str) -> None: ...

        def to_onnx_qdq(self) -> Any:
            return onnx.load_from_string(content)

    for name in ("aimet_onnx", "aimet_onnx.quantsim"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["aimet_onnx.quantsim"].QuantizationSimModel = Simulation  # type: ignore[attr-defined]
    script: dict[str, Any] = {"__name__": "script"}
    exec(export("recipe", configuration("q" * 4, small_cfg()), "aimet").files[".py"], script)
    script["NODES"] = readers
    (tmp_path / "images").mkdir()
    script["main"](str(tmp_path / "net.onnx"), str(tmp_path / "images"), str(tmp_path / "out"))
    assert readers
    assert {name for name, quantizer in quantizers.items() if quantizer.enabled} >= {shared, upsample.output[0]}
    assert not quantizers[nodes[0].output[0]].enabled
