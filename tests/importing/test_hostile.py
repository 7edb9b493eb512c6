# SPDX-License-Identifier: MIT
"""Damaged and malicious files end in one line."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from mpnet.errors import FormatError
from mpnet.importing import import_model
from tests.importing.graphs import Builder, yolov8n

TRY = """
import resource, sys
from pathlib import Path
import mpnet.importing as room
import onnx
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
for path in sorted(Path(sys.argv[1]).iterdir()):
    try:
        room.import_model(path)
        print("imported")
    except Exception as error:
        lines = str(error).splitlines()
        print(type(error).__name__, len(lines), str(path) in str(error))
"""


def mutated(content: bytes, seed: int) -> bytes:
    random = np.random.default_rng(seed)
    data = bytearray(content)
    kind = seed % 4
    if kind == 0:
        del data[int(random.integers(len(data))) :]
    elif kind == 1:
        for at in random.integers(0, len(data), 8):
            data[at] = int(random.integers(256))
    elif kind == 2:
        # Structure, not weights, is what bites: the first bytes of nodes lie everywhere in a small file.
        at = int(random.integers(len(data)))
        data[at : at + 4] = b"\xff\xff\xff\x7f"
    else:
        a, b = sorted(random.integers(0, len(data), 2).tolist())
        data[a:b] = data[a:b][::-1]
    return bytes(data)


def refused_in_one_line(content: bytes, suffix: str, folder: Path) -> None:
    """200 mutations of a file under a memory limit: each is imported, or refused in one line that names it."""
    folder.mkdir()
    for seed in range(200):
        (folder / f"m{seed:03d}{suffix}").write_bytes(mutated(content, seed))
    found = subprocess.run([sys.executable, "-c", TRY, str(folder)], capture_output=True, text=True, timeout=300)
    lines = found.stdout.splitlines()
    assert found.returncode == 0, found.stderr[-500:]
    assert len(lines) == 200
    assert set(lines) <= {"imported", "FormatError 1 True"}
    assert lines.count("FormatError 1 True") > 50


@pytest.mark.slow
def test_mutated_files_end_in_one_line_under_a_memory_limit(tmp_path: Path) -> None:
    refused_in_one_line(yolov8n(32, classes=2, w=2).SerializeToString(), ".onnx", tmp_path / "mutated")


def test_too_many_nodes_are_counted_before_they_are_parsed(tmp_path: Path) -> None:
    # GraphProto of empty NodeProtos: two bytes each.
    graph = b"\x0a\x00" * 30_000
    path = tmp_path / "many.onnx"
    path.write_bytes(b"\x3a" + bytes([len(graph) & 127 | 128, len(graph) >> 7 & 127 | 128, len(graph) >> 14]) + graph)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(FormatError, match="has more than 20000 nodes"):
        import_model(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


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


@pytest.mark.parametrize("place", ["/etc/passwd", "../secret", "link"])
def test_weights_outside_of_the_folder_are_not_opened(place: str, tmp_path: Path) -> None:
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
    entry.key, entry.value = "location", place
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


def test_several_inputs_and_open_sizes_are_refused(tmp_path: Path) -> None:
    b = Builder(8)
    model = b.model([b.conv("images", 4)])
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "height"
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    with pytest.raises(FormatError, match=r"the input 'images' has no fixed size .* say it with --size WIDTHxHEIGHT"):
        import_model(path)
