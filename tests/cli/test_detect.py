# SPDX-License-Identifier: MIT
"""`mpnet detect`: images, folders, videos; what is drawn and what is refused."""

from __future__ import annotations

import json
import re
import struct
import subprocess
from pathlib import Path

import cv2
import numpy as np
import pytest

from mpnet.report.collect.draw import DrawnBox, class_colour, draw_labels
from tests.cli.conftest import Mpnet, document_of
from tests.formats.test_images_orientation import STORE, exif, with_exif

MODEL = ("--cfg", "net.cfg", "--weights", "net.weights", "--names", "net.names", "--threads", "1")


@pytest.fixture
def folder(experiment: Path) -> Path:
    """Return a folder with the tiny network, images and a short video."""
    frames = [cv2.imread(str(path)) for path in sorted((experiment.parent / "images").iterdir())]
    writer = cv2.VideoWriter(str(experiment.parent / "drive.avi"), cv2.VideoWriter.fourcc(*"MJPG"), 10, (96, 64))
    for frame in frames:
        writer.write(cv2.resize(frame, (96, 64)))
    writer.release()
    return experiment.parent


def test_a_video_that_ends_early_is_said(mpnet: Mpnet, folder: Path) -> None:
    """The header counts the frames of the whole file, of which half were copied."""
    content = (folder / "drive.avi").read_bytes()
    (folder / "half.avi").write_bytes(content[: len(content) // 2])
    whole = mpnet("detect", *MODEL, "drive.avi", cwd=folder)
    half = mpnet("detect", *MODEL, "half.avi", cwd=folder)
    assert (whole.returncode, half.returncode) == (0, 0)
    assert "the file is incomplete" not in whole.stderr
    assert re.search(
        r"half\.avi: holds \d frames that can be decoded, not the 5 that its header promises; the file is incomplete",
        half.stderr,
    )
    assert "incomplete" not in mpnet("detect", *MODEL, "drive.avi", "--frames", "2", cwd=folder).stderr


def turn_by_90_degrees(content: bytes) -> bytes:
    """Return an MP4 whose header asks players to turn it, as phones write it: the matrix of its track."""
    start = content.index(b"tkhd") + 4
    matrix = start + 4 + (32 if content[start] else 20) + 16
    assert struct.unpack(">9i", content[matrix : matrix + 36])[0] == 1 << 16
    turned = struct.pack(">9i", 0, 1 << 16, 0, -(1 << 16), 0, 0, 0, 0, 1 << 30)
    return content[:matrix] + turned + content[matrix + 36 :]


def test_a_video_that_its_header_turns_is_seen_and_drawn_upright(mpnet: Mpnet, folder: Path) -> None:
    writer = cv2.VideoWriter(str(folder / "lying.mp4"), cv2.VideoWriter.fourcc(*"mp4v"), 10, (96, 64))
    for path in sorted((folder / "images").iterdir()):
        writer.write(cv2.resize(cv2.imread(str(path)), (96, 64)))
    writer.release()
    (folder / "phone.mp4").write_bytes(turn_by_90_degrees((folder / "lying.mp4").read_bytes()))
    for name, size in (("lying.mp4", (96, 64)), ("phone.mp4", (64, 96))):
        [file] = document_of(mpnet("detect", *MODEL, name, "--out", "found", "--json", cwd=folder))["files"]
        assert (file["width"], file["height"], file["decoded_frames"]) == (*size, 5)
        drawn = cv2.VideoCapture(str(folder / "found" / name)).read()[1]
        assert (drawn.shape[1], drawn.shape[0]) == size


def test_every_image_of_a_folder(mpnet: Mpnet, folder: Path) -> None:
    document = document_of(mpnet("detect", *MODEL, "images", "--confidence", "0.1", "--json", cwd=folder))
    assert [Path(file["path"]).name for file in document["files"]] == [f"scene-{n}.png" for n in range(5)]
    for file in document["files"]:
        image = cv2.imread(str(folder / file["path"]))
        assert (file["height"], file["width"]) == image.shape[:2]
        scores = [box["score"] for box in file["detections"]]
        assert scores == sorted(scores, reverse=True)
        assert scores
        for box in file["detections"]:
            x, y, width, height = box["box"]
            assert 0 <= x <= x + width <= file["width"] + 1e-3
            assert 0 <= y <= y + height <= file["height"] + 1e-3
            assert box["name"] == ("circle", "square", "bar")[box["category"]]
            assert box["score"] > 0.1


def test_copies_get_boxes_and_originals_stay(mpnet: Mpnet, folder: Path) -> None:
    content = (folder / "images" / "scene-0.png").read_bytes()
    document = document_of(
        mpnet("detect", *MODEL, "images/scene-0.png", "--confidence", "0.1", "--out", "found", "--json", cwd=folder)
    )
    assert document["files"][0]["out"] == "found/scene-0.png"
    drawing, original = (cv2.imread(str(folder / name / "scene-0.png")) for name in ("found", "images"))
    assert drawing.shape == original.shape
    assert (drawing != original).any()
    assert (folder / "images" / "scene-0.png").read_bytes() == content
    assert [path.name for path in (folder / "found").iterdir()] == ["scene-0.png"]


def test_copies_of_an_earlier_call_stay_unless_forced(mpnet: Mpnet, folder: Path) -> None:
    call = ("detect", *MODEL, "images", "--confidence", "0.1", "--out", "found")
    assert mpnet(*call, cwd=folder).returncode == 0
    (folder / "found/scene-1.png").write_bytes(b"mine")
    refused = mpnet(*call, cwd=folder)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == "error: found/scene-0.png: exists already; choose another --out, or replace it with --force\n"
    assert (folder / "found/scene-1.png").read_bytes() == b"mine"
    assert mpnet(*call, "--force", cwd=folder).returncode == 0
    assert (folder / "found/scene-1.png").read_bytes() != b"mine"


def test_equal_names_do_not_overwrite_each_other(mpnet: Mpnet, folder: Path) -> None:
    (folder / "more").mkdir()
    (folder / "more" / "scene-0.png").write_bytes((folder / "images" / "scene-1.png").read_bytes())
    mpnet("detect", *MODEL, "images/scene-0.png", "more", "--out", "found", cwd=folder)
    assert sorted(path.name for path in (folder / "found").iterdir()) == ["scene-0-2.png", "scene-0.png"]


def test_a_video_frame_by_frame(mpnet: Mpnet, folder: Path) -> None:
    document = document_of(mpnet("detect", *MODEL, "drive.avi", "--confidence", "0.1", "--out", "found", "--json", cwd=folder))
    [file] = document["files"]
    assert (file["kind"], file["width"], file["height"], len(file["frames"])) == ("video", 96, 64, 5)
    assert [frame["time_ms"] for frame in file["frames"]] == [0, 100, 200, 300, 400]
    reader = cv2.VideoCapture(str(folder / file["out"]))
    assert int(reader.get(cv2.CAP_PROP_FRAME_COUNT)) == 5
    assert [path.name for path in (folder / "found").iterdir()] == ["drive.mp4"]


def test_precision_changes_what_is_computed(mpnet: Mpnet, folder: Path) -> None:
    arguments = ("detect", *MODEL, "images", "--confidence", "0.1", "--json")
    documents = [
        document_of(mpnet(*arguments, *options, cwd=folder))
        for options in ((), ("--default", "int8"), ("--default", "int8", "--layer", "all=fp32"))
    ]
    assert [document["precision"] for document in documents] == ["f" * 13, "q" * 13, "f" * 13]
    assert documents[0]["files"] == documents[2]["files"]
    assert documents[0]["files"] != documents[1]["files"]


def test_text_lists_boxes(mpnet: Mpnet, folder: Path) -> None:
    result = mpnet("detect", *MODEL, "images/scene-0.png", "--confidence", "0.1", cwd=folder)
    heading, *box_lines = result.stdout.splitlines()
    assert heading == f"images/scene-0.png: {len(box_lines)} objects"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.png"], "missing.png: no such file or folder"),
        (["net.cfg"], "net.cfg: is neither an image nor a video"),
        (["labels"], "labels: holds no images or videos"),
        (["images", "--out", "images"], "images/scene-0.png: would replace the image that is looked at"),
        (["images", "--out", "net.cfg"], "net.cfg"),
        (["images", "--confidence", "1"], "Invalid value for '--conf' / '--confidence'"),
        (["images", "--isa", "nosuch"], "unknown ISA level 'nosuch'"),
    ],
)
def test_bad_input_is_one_line(mpnet: Mpnet, folder: Path, arguments: list[str], message: str) -> None:
    assert_refused(mpnet("detect", *MODEL, *arguments, "--json", cwd=folder), message)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "message"), [("broken.png", "broken.png: "), ("broken.mp4", "broken.mp4: is not a video that OpenCV can read")]
)
def test_broken_files_are_one_line(mpnet_program: Mpnet, folder: Path, name: str, message: str) -> None:
    """In a process of its own: decoders would print remarks of their own, which `mpnet` turns off at its start."""
    (folder / name).write_bytes(b"\x00broken" * 50)
    assert_refused(mpnet_program("detect", *MODEL, name, "--json", cwd=folder), message)


@pytest.mark.slow
@pytest.mark.parametrize("as_json", [False, True])
def test_the_others_are_looked_at_when_some_are_broken(mpnet_program: Mpnet, folder: Path, as_json: bool) -> None:
    broken = ("a.jpg", "scene-2.png", "z.mp4")
    for name in broken:
        (folder / "images" / name).write_bytes(b"\x00broken" * 50)
    result = mpnet_program("detect", *MODEL, "images", "--out", "found", "-q", *["--json"] * as_json, cwd=folder)
    assert result.returncode == 2
    *file_lines, last_line = result.stderr.splitlines()
    assert [line.split(": ")[:2] for line in file_lines] == [["error", f"images/{name}"] for name in broken]
    assert last_line == "error: 3 of 7 files could not be looked at; they are named above"
    assert sorted(path.name for path in (folder / "found").iterdir()) == [f"scene-{n}.png" for n in (0, 1, 3, 4)]
    if as_json:
        document = json.loads(result.stdout)
        assert [file["path"] for file in document["files"]] == [f"images/scene-{n}.png" for n in (0, 1, 3, 4)]
        assert [f"error: {file['reason']}" for file in document["failed"]] == file_lines
    else:
        assert [line for line in result.stdout.splitlines() if line.startswith("images/")] != []


def test_a_folder_that_cannot_be_written_is_found_first(mpnet: Mpnet, folder: Path) -> None:
    (folder / "images" / "a.jpg").write_bytes(b"broken")
    refused = mpnet("detect", *MODEL, "images", "--out", "net.cfg/found", cwd=folder)
    assert_refused(refused, "net.cfg/found: cannot be written")


def assert_refused(result: subprocess.CompletedProcess[str], message: str) -> None:
    assert (result.returncode, result.stdout) == (2, "")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_labels_stay_inside_small_images() -> None:
    image = np.zeros((24, 40, 3), dtype=np.uint8)
    labels = [DrawnBox((-30.0, -40.0, 1e9, 1e9), 3, "a name longer than the image 99%"), DrawnBox((5, 5, 9, 9), 4, "é")]
    drawing = draw_labels(image, labels)
    assert drawing.shape == image.shape
    assert drawing.any()
    assert not image.any()


def test_neighbouring_classes_have_distant_colours() -> None:
    colours = np.array([class_colour(index) for index in range(80)], dtype=int)
    assert np.abs(np.diff(colours, axis=0)).max(axis=1).min() > 60


def test_json_is_one_document(mpnet: Mpnet, folder: Path) -> None:
    result = mpnet("detect", *MODEL, "images", "drive.avi", "--json", cwd=folder)
    assert set(json.loads(result.stdout)) == {"cfg", "precision", "protocol", "files"}


def test_images_that_exif_turns_are_counted_and_turned(mpnet: Mpnet, folder: Path) -> None:
    path = folder / "images" / "scene-0.png"
    upright = document_of(mpnet("detect", *MODEL, "images", "--json", cwd=folder))
    pixels = cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB)
    path.write_bytes(with_exif(".png", STORE[6](pixels), exif(6)))
    stored = mpnet("detect", *MODEL, "images", "--json", cwd=folder)
    assert "1 of 5 images would be turned by EXIF" in stored.stderr
    assert "--orientation exif" in stored.stderr
    height, width = pixels.shape[:2]
    assert [document_of(stored)["files"][0][side] for side in ("width", "height")] == [height, width]
    turned = mpnet("detect", *MODEL, "images", "--json", "--orientation", "exif", cwd=folder)
    assert "1 of 5 images are turned upright by EXIF" in turned.stderr
    assert document_of(turned) == upright


def test_class_names_do_not_move_the_terminal(mpnet: Mpnet, experiment: Path) -> None:
    """Of COCO files: names there may hold anything."""
    folder = experiment.parent
    names = ["a\x1b[31mb", "c\u202ed", "e\u200bf"]
    document = {
        "images": [{"id": 1, "file_name": "scene-0.png", "width": 96, "height": 64}],
        "annotations": [],
        "categories": [{"id": number, "name": name} for number, name in enumerate(names, 1)],
    }
    (folder / "c.json").write_text(json.dumps(document), encoding="utf-8")
    text = experiment.read_text(encoding="utf-8").replace(", names: net.names", "")
    coco = "data: {format: coco, images: images/, annotations: c.json}"
    experiment.write_text(re.sub(r"data: .*", coco, text), encoding="utf-8")
    process = mpnet("detect", experiment, "images/scene-0.png", "--conf", "0.05")
    assert process.returncode == 0, process.stderr
    assert r"e\u200bf" in process.stdout
    assert process.stdout.replace("\n", "").isprintable()
