# SPDX-License-Identifier: MIT
"""Damaged and malicious files end in one line."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Callable

import numpy as np
import onnx
import pytest
from onnx import helper

from mpnet.cli.main import guarded
from mpnet.errors import EngineError, FormatError, InternalError
from mpnet.importing import Choices, import_model
from tests.importing.conftest import heads_of
from tests.importing.graphs import Builder, yolov8n

TRY = """
import re, resource, signal, sys
from pathlib import Path
import mpnet.importing as room
import onnx
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
for path in sorted(Path(sys.argv[1]).iterdir()):
    if path.suffix == ".data":
        continue
    signal.setitimer(signal.ITIMER_PROF, 10)  # of CPU time; the signal ends the process
    try:
        room.import_model(path)
        print("imported")
    except Exception as error:
        lines = str(error).splitlines()
        print(type(error).__name__, len(lines), str(path) in str(error), *sys.argv[2:] and [path.stem, lines[0]])
# Not ru_maxrss, which begins at what the process that started this one had.
most_kb = int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])
assert most_kb < 1 << 20, "more than 1 GB"
"""


def mutated(content: bytes, seed: int) -> bytes:
    random = np.random.default_rng(seed)
    data = bytearray(content)
    kind = seed % 4
    if kind == 0:
        del data[int(random.integers(len(data))) :]
    elif kind == 1:
        for position in random.integers(0, len(data), 8):
            data[position] = int(random.integers(256))
    elif kind == 2:
        # Structure, not weights, is what bites: the first bytes of nodes lie everywhere in a small file.
        position = int(random.integers(len(data)))
        data[position : position + 4] = b"\xff\xff\xff\x7f"
    else:
        a, b = sorted(random.integers(0, len(data), 2).tolist())
        data[a:b] = data[a:b][::-1]
    return bytes(data)


def import_all(folder: Path, *arguments: str) -> list[str]:
    """Return what imports of all files in a folder ended in, one line each: within 10 s of CPU time each, and 1 GB together."""
    process = subprocess.run([sys.executable, "-c", TRY, str(folder), *arguments], capture_output=True, text=True, timeout=300)
    assert process.returncode == 0, process.stderr[-500:] or process.stdout[-500:]
    return process.stdout.splitlines()


def refused_in_one_line(content: bytes, suffix: str, folder: Path) -> None:
    """Import 200 mutations of a file under a memory limit: each is imported, or refused in one line that names it."""
    folder.mkdir()
    for seed in range(200):
        (folder / f"m{seed:03d}{suffix}").write_bytes(mutated(content, seed))
    lines = import_all(folder)
    assert len(lines) == 200
    assert set(lines) <= {"imported", "FormatError 1 True"}
    assert lines.count("FormatError 1 True") > 50


@pytest.mark.slow
def test_mutated_files_end_in_one_line_under_a_memory_limit(tmp_path: Path) -> None:
    refused_in_one_line(yolov8n(32, classes=2, w=2).SerializeToString(), ".onnx", tmp_path / "mutated")


def delimited(field: int, content: bytes) -> bytes:
    """Return a field of a protobuf message, of less than 256 MB."""
    size = len(content)
    return bytes([field << 3 | 2, *(size >> shift & 127 | 128 for shift in (0, 7, 14)), size >> 21]) + content


@pytest.mark.slow
@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (b"\x0a\x00" * 30_000, "has more than 20000 nodes"),  # empty NodeProtos
        (delimited(1, b"\x2a\x00" * 530_000), "has more than 524288 fields"),  # empty AttributeProtos of one node
        (delimited(5, delimited(7, b"\0" * ((1 << 26) + 8))), "numbers that take too much memory"),  # zeros of one constant
    ],
    ids=["nodes", "attributes", "numbers"],
)
def test_what_parsing_would_make_is_counted_before(graph: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "many.onnx"
    path.write_bytes(delimited(7, graph))
    peak_memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(FormatError, match=message):
        import_model(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak_memory < 300_000


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.onnx"
    with open(path, "wb") as file:
        file.truncate(2 << 30)
    with pytest.raises(FormatError, match=r"is larger than 1.07 GB; this is no ONNX model"):
        import_model(path)


def test_circles_and_tensors_from_nowhere_are_named(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    for inputs, message in (
        (("images", "c"), r"node 'a' \(Add\): is part of a circle"),
        (("images", "gone"), r"node 'a' \(Add\): reads the tensor 'gone', which nothing makes"),
    ):
        b = Builder(8)
        b.nodes = [helper.make_node("Add", inputs, ["b"], name="a"), helper.make_node("Relu", ["b"], ["c"], name="r")]
        onnx.save(b.model(["c"]), path)
        with pytest.raises(FormatError, match=message):
            import_model(path)


@pytest.mark.parametrize(
    ("operator", "inputs", "message"),
    [
        ("Add", ("images", ""), "its input 1 is missing"),
        ("Add", ("images",), "its input 1 is missing"),
        ("Mul", ("images", "images", "images"), "has 3 inputs, not 2;"),
        ("Concat", ("images", "", "images"), "its input 1 is missing"),
        ("Relu", ("",), "its input 0 is missing"),
        ("Clip", ("images", "", "", "images"), "has 4 inputs, not at most 3;"),
    ],
)
def test_inputs_that_are_left_out_are_named(operator: str, inputs: tuple[str, ...], message: str, tmp_path: Path) -> None:
    b = Builder(8)
    b.nodes = [helper.make_node(operator, inputs, ["b"], name="a")]
    onnx.save(b.model(["b"]), tmp_path / "m.onnx")
    with pytest.raises(FormatError, match=rf"node 'a' \({operator}\): {message}"):
        import_model(tmp_path / "m.onnx")


@pytest.mark.parametrize("location", ["/etc/passwd", "../secret", "link"])
def test_weights_outside_of_the_folder_are_not_opened(location: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(b"\0" * 4096)
    (folder / "link").symlink_to(tmp_path / "secret")
    b = Builder(8)
    model = b.model([b.conv("images", 4)])
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", location
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(FormatError, match="outside of the model's folder"):
        import_model(path)


def test_weights_in_a_file_beside_the_model_are_read(tmp_path: Path) -> None:
    b = Builder(8)
    model = b.model([b.conv("images", 4, 3)])
    plain = tmp_path / "plain.onnx"
    onnx.save(model, plain)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    assert import_model(tmp_path / "m.onnx").weights == import_model(plain).weights


def _open(path: Path, *axes: int) -> Path:
    """Build a model of 8x8 pixels, or of any height (axis 2) or width (axis 3)."""
    b = Builder(8)
    model = b.model([b.conv("images", 4)])
    for axis in axes:
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = "side"
    onnx.save(model, path)
    return path


def test_open_sizes_are_said_with_size(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    with pytest.raises(FormatError, match=r"the input 'images' has no fixed size .* say it with --size WIDTHxHEIGHT"):
        import_model(_open(path, 2))
    for axes, size in (((2,), (8, 16)), ((3,), (16, 8)), ((2, 3), (16, 24)), ((), (8, 8))):
        imported = import_model(_open(path, *axes), Choices(size=size))
        assert (imported.network.width, imported.network.height) == size


@pytest.mark.parametrize(("axes", "fixed"), [((2,), r"8x\(open\)"), ((3,), r"\(open\)x8"), ((), "8x8")])
def test_a_size_that_the_file_does_not_have_is_refused(axes: tuple[int, ...], fixed: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=f"--size 16x24: the file fixes {fixed}; leave out --size"):
        import_model(_open(tmp_path / "m.onnx", *axes), Choices(size=(16, 24)))


def _filled(b: Builder, *shape: int) -> str:
    """Return a constant of that shape that takes some bytes in the file."""
    return str(b.node("ConstantOfShape", [b.constant(shape, np.int64)]))


def _sums(b: Builder, count: int) -> str:
    x = b.node("Relu", ["images"])
    for _ in range(count):
        x = b.node("Add", [x, x])
    return x


BOMBS: dict[str, tuple[Callable[[Builder], str], str]] = {
    "product": (lambda b: b.node("MatMul", [_filled(b, 1 << 17, 1), _filled(b, 1, 1 << 17)]), "is larger than mpnet computes"),
    "time of products": (lambda b: b.node("MatMul", [_filled(b, 4096, 4096)] * 2), "takes more arithmetic than mpnet does"),
    "gather": (
        lambda b: b.node("Gather", [_filled(b, 1, 1 << 20), b.node("Cast", [_filled(b, 1 << 20)], to=7)]),
        "is larger than mpnet computes",
    ),
    "convolution": (
        lambda b: b.node("Conv", [_filled(b, 1, 1, 2048, 2048), _filled(b, 4096, 1, 1, 1)]),
        "is larger than mpnet computes",
    ),
    "sums of products": (
        lambda b: [b.node("ReduceProd", [x]) for x in [_filled(b, 1 << 24)] * 60][-1],
        "takes more arithmetic than mpnet does",
    ),
    "tensors that stay": (
        lambda b: [b.node("Expand", [b.constant(1.0), b.constant([1 << 22], np.int64)]) for _ in range(60)][-1],
        "makes the constants larger than mpnet holds",
    ),
    "long chain": (lambda b: _sums(b, 6_000), "more than 1000 layers"),
    "one node of many": (lambda b: b.node("Sum", ["images"] * 300_000), "has more than 1024 inputs or results"),
    "attributes": (lambda b: b.node("Relu", ["images"], **{f"a{i}": i for i in range(400_000)}), "has more than 524288 fields"),
    "external constants": (lambda b: [_external(b, 1 << 24) for _ in range(40)][-1], "take more than 805 MB together"),
}


def _external(b: Builder, values: int) -> str:
    tensor = onnx.TensorProto(name=f"external_{len(b.constants)}", dims=[values], data_type=1, data_location=1)
    tensor.external_data.add(key="location", value="sparse.data")
    b.constants.append(tensor)
    return b.node("Add", ["images", tensor.name])


@pytest.mark.slow
def test_small_files_that_ask_for_much_are_refused_soon(tmp_path: Path) -> None:
    with open(tmp_path / "sparse.data", "wb") as sparse:
        sparse.truncate(1 << 27)
    for name, (build, _) in BOMBS.items():
        b = Builder(8)
        (tmp_path / f"{name}.onnx").write_bytes(b.model([build(b)]).SerializeToString())
    for line in import_all(tmp_path, "show"):
        name = next(name for name in BOMBS if f" True {name} " in line)
        assert line.startswith("FormatError 1 True"), line
        assert BOMBS[name][1] in line, line


def _attribute(operator: str, name: str, value: object) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        node = next(node for node in model.graph.node if node.op_type == operator)
        other_attributes = [attribute for attribute in node.attribute if attribute.name != name]
        del node.attribute[:]
        node.attribute.extend([*other_attributes, helper.make_attribute(name, value)])

    return change


def _metadata(**texts: str) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        for key, value in texts.items():
            model.metadata_props.add(key=key.replace("_", "."), value=value)

    return change


def _operands(operator: str, inputs: list[str]) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        node = next(node for node in model.graph.node if node.op_type == operator)
        del node.input[:]
        node.input.extend(inputs)

    return change


def _not_a_number(model: onnx.ModelProto) -> None:
    values = onnx.numpy_helper.to_array(model.graph.initializer[0]).copy()
    values.flat[0] = np.nan
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(values, model.graph.initializer[0].name))


@pytest.mark.parametrize(("factor", "precision", "layer"), [(1e30, "fp32", "1 (conv-2/yolo-1)"), (1e7, "fp16", "0 (conv-1)")])
def test_values_that_overflow_in_an_imported_network_name_the_layer(
    factor: float, precision: str, layer: str, tmp_path: Path
) -> None:
    b = Builder(8)
    model = b.model([b.conv(b.conv("images", 4, 3), 4, 3)])
    for tensor in model.graph.initializer:
        values = onnx.numpy_helper.to_array(tensor)
        if values.ndim == 4:
            tensor.CopyFrom(onnx.numpy_helper.from_array(values * np.float32(factor), tensor.name))
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(EngineError, match=re.escape(f": layer {layer}: Convolve: a value is NaN or infinite")):
        heads_of(import_model(path), np.ones((1, 8, 8, 3), np.float32), precision)


DAMAGED: dict[str, tuple[Callable[[onnx.ModelProto], None], str]] = {
    "no groups": (_attribute("Conv", "group", 0), "in 0 groups do not fit 3 channels"),
    "fewer than no groups": (_attribute("Conv", "group", -3), "in -3 groups do not fit 3 channels"),
    "half a pad": (_attribute("Conv", "pads", [0.5] * 4), r"pads holds '?0.5'?, which is no whole number"),
    "no list of pads": (_attribute("Conv", "pads", b"\0"), "pads is no list of 4 whole numbers"),
    "strides of zero": (_attribute("Conv", "strides", [0, 0]), "strides and dilations must be at least 1"),
    "one dilation": (_attribute("Conv", "dilations", [1]), "dilations is no list of 2 whole numbers"),
    "weights that are no numbers": (_not_a_number, "its weights are not finite numbers"),
    "a batch norm without mean": (_operands("BatchNormalization", ["t0_0", "const_1"]), "its input 2 is missing"),
    "a clamp by words": (_attribute("LeakyRelu", "alpha", "a"), "alpha is no number"),
    "pixels of text": (_metadata(mpnet_pixels='{"mean": ["a"], "std": [1]}'), "no mean and deviation of pixels"),
    "pixels of two kinds": (_metadata(mpnet_pixels='{"mean": [1, 2], "std": [1, 2, 3]}'), "no mean and deviation of pixels"),
    "pixels of nothing": (_metadata(mpnet_pixels='{"mean": 1}'), "no mean and deviation of pixels"),
    "another line of YAML": (_metadata(input='{"resize": "stretch\\nmodel: /etc"}'), "its metadata resize by 'stretch"),
}


@pytest.mark.parametrize("name", list(DAMAGED))
def test_what_makes_no_sense_is_refused_by_name(name: str, tmp_path: Path) -> None:
    b = Builder(8)
    model = b.model([b.act(b.conv("images", 4, 3, bn=True), "leaky")])
    change, message = DAMAGED[name]
    change(model)
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(FormatError, match=message) as refusal:
        import_model(path)
    assert len(str(refusal.value).splitlines()) == 1


def test_class_names_under_keys_of_two_types_are_sorted(tmp_path: Path) -> None:
    b = Builder(8)
    model = b.model([b.conv("images", 4, 3)], {"names": "{'a': 'first', None: 'x', 10: 'y', (1, 2): 'z'}"})
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    assert len(import_model(path).names) == 1


@pytest.mark.parametrize("input_index", [1, 2, 3, 4])
def test_a_slice_of_lists_that_differ_in_length_is_refused(input_index: int, tmp_path: Path) -> None:
    b = Builder(8)
    x = b.conv("images", 4)
    lists = [[0], [2], [1], [1]]
    lists[input_index - 1] = lists[input_index - 1] * 2
    onnx.save(b.model([b.node("Slice", [x, *(b.constant(numbers, np.int64) for numbers in lists)])]), tmp_path / "m.onnx")
    with pytest.raises(FormatError, match="starts, ends, axes and steps are not as many"):
        import_model(tmp_path / "m.onnx")


def test_a_convolution_knows_no_ceil_mode(tmp_path: Path) -> None:
    b = Builder(8)
    model = b.model([b.conv("images", 4, 3, 2, pads=[0] * 4)])
    _attribute("Conv", "ceil_mode", 1)(model)
    onnx.save(model, tmp_path / "m.onnx")
    assert import_model(tmp_path / "m.onnx").network.layers[0].out_shape == (3, 3, 4)


def test_a_fault_of_ours_is_not_called_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.onnx"
    b = Builder(8)
    onnx.save(b.model([b.conv("images", 4, 3)]), path)

    def broken(*arguments: object) -> None:
        assert not arguments, "a thing that cannot be"

    monkeypatch.setattr("mpnet.importing.model.put_pixels", broken)
    with pytest.raises(InternalError, match=r"this is a fault of mpnet, please report it .* AssertionError in model\.py"):
        import_model(path)
    assert guarded(lambda: import_model(path)) == 3
