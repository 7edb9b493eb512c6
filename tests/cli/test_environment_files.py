# SPDX-License-Identifier: MIT
"""Files that are not what is asked for, unknown words, places that cannot be written: each is named with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpnet.errors import DataError, FormatError, StoreError
from mpnet.formats.cfg.read import read_cfg
from mpnet.formats.files.atomic import check_writable
from mpnet.formats.files.foreign import foreign_content
from mpnet.formats.images.read import probe
from mpnet.formats.weights import read_weights
from mpnet.importing import import_model
from tests.cli.conftest import Mpnet

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3618796\n"
PAGE = b"\n<!DOCTYPE html><html><head><title>Quota exceeded</title>" + b"x" * 40_000


@pytest.mark.parametrize(
    ("content", "reason"), [(POINTER, "is a Git LFS pointer"), (PAGE, "is a web page in place of the file")]
)
def test_pointers_and_web_pages_are_named_whatever_file_they_stand_for(
    content: bytes, reason: str, experiment: Path, tmp_path: Path, mpnet: Mpnet
) -> None:
    for file in ("net.cfg", "net.weights"):
        kept = (tmp_path / file).read_bytes()
        (tmp_path / file).write_bytes(content)
        process = mpnet("run", experiment)
        assert (process.returncode, process.stderr.count("\n")) == (2, 1)
        assert process.stderr.startswith(f"error: {tmp_path / file}: {reason}")
        (tmp_path / file).write_bytes(kept)
    (tmp_path / "a.jpg").write_bytes(content)
    with pytest.raises(DataError, match=f"a.jpg: {reason}"):
        probe(tmp_path / "a.jpg", 1)
    (tmp_path / "a.onnx").write_bytes(content)
    with pytest.raises(FormatError, match=f"a.onnx: {reason}"):
        import_model(tmp_path / "a.onnx")


def test_checkpoints_of_other_programs_are_named_by_what_they_begin_with(experiment: Path) -> None:
    network = read_cfg(experiment.parent / "net.cfg")
    for beginning, reason in ((b"PK\x03\x04", "a ZIP archive, as PyTorch"), (b"\x89HDF\r\n", "an HDF5 file, as Keras")):
        weights = experiment.parent / "best.weights"
        for size in (100, 1 << 20):
            weights.write_bytes(beginning + bytes(size))
            with pytest.raises(FormatError, match=f"best.weights: is {reason}"):
                read_weights(weights, network)
    assert foreign_content(b"[net]\nwidth=32\n") == foreign_content(bytes(20)) == ""


@pytest.mark.parametrize(
    ("file", "remedy"),
    [
        ("net.onnx", "`mpnet import net.onnx -o net/` makes a cfg"),
        ("my net.tflite", "`mpnet import 'my net.tflite' -o 'my net/'` makes a cfg"),
        ("net.pt", "export it to ONNX there, then"),
    ],
)
def test_models_of_other_programs_lead_to_import(
    file: str, remedy: str, experiment: Path, tmp_path: Path, mpnet: Mpnet
) -> None:
    (tmp_path / file).write_bytes(bytes(range(256)) * 20)
    commands: list[tuple[object, ...]] = [
        *((command, file) for command in ("run", "sweep", "analyze", "bench", "show", "report")),
        ("compare", file, file),
        ("export", file, "--to", "onnx", "-o", "new.onnx"),
        ("init", "--cfg", file, "--images", "images"),
        ("init", file),
        ("init", file, "--images", "images"),
        ("detect", "--cfg", "net.cfg", "--weights", file, "images"),
    ]
    for arguments in commands:
        process = mpnet(*arguments)
        assert (process.returncode, process.stderr.count("\n")) == (2, 1), arguments
        assert f"{file}: is a model of another program; {remedy}" in process.stderr, arguments
    with pytest.raises(FormatError, match=r"best.pt: is a model of another program; export it to ONNX"):
        import_model(Path("best.pt"))


def test_paths_of_windows_are_named_with_their_slashes(experiment: Path, tmp_path: Path, mpnet: Mpnet) -> None:
    (tmp_path / "list.txt").write_text("images\\a.png\n")
    model = ("--cfg", "net.cfg", "--names", "net.names")
    for arguments in (("detect", "--cfg", "net.cfg", "images\\a.png"), ("init", *model, "--images", "list.txt")):
        process = mpnet(*arguments)
        assert process.stderr.startswith("error: images\\a.png: ")
        assert process.stderr.endswith("; folders are separated by slashes here: images/a.png\n")


def test_unknown_words_are_named_with_the_nearest(experiment: Path, mpnet: Mpnet) -> None:
    cases = (
        (("run", experiment, "--engine", "onnxrutime"), "engine 'onnxrutime' is unknown; did you mean 'onnxruntime'?"),
        (("export", experiment, "--to", "onxn"), "Invalid value for '--to': 'onxn' is unknown; did you mean 'onnx'?"),
        (("download", "yolo3-tiny"), "'yolo3-tiny' is unknown; did you mean 'yolov3-tiny'?"),
    )
    for arguments, message in cases:
        assert message in mpnet(*arguments).stderr


def test_folders_without_images_and_videos_are_named(experiment: Path, tmp_path: Path, mpnet: Mpnet) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "clip.mp4").write_bytes(b"x")
    init = ("init", "--cfg", "net.cfg", "--names", "net.names", "--images")
    assert "empty: holds no image that mpnet reads (.jpg" in mpnet(*init, "empty").stderr
    assert "clip.mp4: is a video, which has no labels; --images takes" in mpnet(*init, "clip.mp4").stderr
    process = mpnet("run", experiment, "--set", "data.images=clip.mp4")
    assert process.stderr.endswith("a video goes in data.unlabelled\n")


def test_places_that_cannot_be_written_are_found_before_any_work(tmp_path: Path, mpnet: Mpnet) -> None:
    """None of the sources exists, and yet the place is what is named."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    commands = (
        ("profile", "none.cfg", "-o"),
        ("report", "none", "-o"),
        ("export", "none", "--to", "onnx", "-o"),
        ("analyze", "none.yaml", "--csv"),
        ("init", "--cfg", "none.cfg", "--images", "none", "-o"),
        ("show", "none.cfg", "--graph", "-o"),
    )
    for arguments in (
        *commands,
        ("import", "none.onnx", "-o"),
        ("compare", "a", "b", "--images"),
        ("explain", "a", "--images"),
    ):
        process = mpnet(*arguments, "file/new")
        assert (process.returncode, process.stderr.count("\n")) == (2, 1), arguments
        assert process.stderr.startswith("error: file/new: cannot be written: "), arguments
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_a_place_is_checked_without_a_trace(tmp_path: Path) -> None:
    check_writable(tmp_path / "new" / "deep" / "table.json", is_folder=False)
    check_writable(tmp_path / "new")
    check_writable("/dev/null", is_folder=False)
    with pytest.raises(StoreError, match="cannot be written: it is a folder"):
        check_writable(tmp_path, is_folder=False)
    assert list(tmp_path.iterdir()) == []
