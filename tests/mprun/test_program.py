# SPDX-License-Identifier: MIT
"""What mprun says: of the CPU, of times, of files that are damaged, and of what it does not read."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
from pathlib import Path

import pytest

from mpnet.detection.jpeg import Flaw
from mpnet.engine.assign import assign_key
from mpnet.engine.plan import build_plan
from mpnet.formats.cfg.read import read_cfg
from mpnet.kernels.isa import active_level, usable_levels
from mpnet.speed.latency_table import predicted_ms, read_table
from tests.mprun.conftest import Program, mpnet


@pytest.fixture(scope="module")
def bundle(mixed_cfg: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a bundle with programs to time, and packed for one level of each architecture."""
    path = tmp_path_factory.mktemp("bundle") / "net.mpnet"
    mpnet("export", mixed_cfg, "--to", "bundle", "-o", path, "--packed", f"neon_dotprod,{active_level()}")
    return path


def test_the_table_is_one_that_sweeps_take(mprun: Program, bundle: Path, mixed_cfg: Path, tmp_path: Path) -> None:
    words = (bundle, "--profile", "-o", tmp_path / "board.json", "--repeats", 1, "--threads", 1)
    completed = subprocess.run([str(word) for word in (mprun.path, *words)], capture_output=True, text=True, timeout=300)
    table = read_table(tmp_path / "board.json")
    # As `mpnet profile`: whether sweeps will take it is the exit status, and the reason one line.
    assert completed.returncode == (0 if table.good else 1)
    assert completed.stderr.count("\n") == completed.returncode
    assert json.loads((tmp_path / "board.json").read_text())["error_percent"] == pytest.approx(table.as_json()["error_percent"])
    assert table.machine["scale"] > 0
    network = read_cfg(mixed_cfg)
    table.check(network, ("fp32", "fp16", "int8"), error=math.inf)  # a busy machine is not what is asked here
    assert table.machine["isa"] == active_level()
    assert len(table.checks) == 8
    for key in ("f" * 13, "q" * 13, "hqf" * 4 + "h"):
        assert predicted_ms(build_plan(network, assign_key(network, key)), table.step_ms) > 0


def test_info_names_levels_and_what_the_file_holds(mprun: Program, bundle: Path) -> None:
    info = json.loads(mprun(bundle, "--info", "--json").stdout)
    assert info["isa"] == active_level()
    assert info["usable"] == list(usable_levels())
    assert info["packed"] == ["neon_dotprod", active_level()]
    assert info["mapped"] > 0
    assert info["packed_here"] == 0
    assert info["origin"]["precision"] == info["precision"]
    assert json.loads(mprun(bundle, "--info", "--json", "--isa", "scalar").stdout)["mapped"] == 0
    assert "fp16" in mprun("--info").stdout


def test_a_level_is_chosen_as_in_mpnet(mprun: Program, bundle: Path) -> None:
    assert json.loads(mprun("--info", "--json", MPNET_ISA="scalar").stdout)["isa"] == "scalar"
    assert "unknown ISA level 'sse9'" in mprun(bundle, "--info", "--isa", "sse9", check=2).stderr


def test_bench_times_every_step(mprun: Program, bundle: Path) -> None:
    times = json.loads(mprun(bundle, "--bench", "--json", "--repeats", 2).stdout)
    assert times["images"] == 2
    assert {step["step"].split()[0] for step in times["steps"]} >= {"Convolve", "Quantize"}


def test_damage_is_one_line_wherever_it_is(mprun: Program, bundle: Path, images: Path, tmp_path: Path) -> None:
    content = bundle.read_bytes()
    image = images / "scene-0.jpg"
    offset = int.from_bytes(content[32 + 11 * 24 :][:8], "little") + 10  # in the first weights: section 11 is data
    files = {
        "empty": (b"", "is empty or not a file"),
        "other": (b"PK\3\4" * 100, "is no bundle"),
        "newer": (content[:8] + b"\xff" + content[9:], "build a newer mprun"),
        "cut": (content[:-64], "copy it again"),
        "header": (content[:40] + b"\x55" + content[41:], "is damaged (CRC)"),
        "weights": (content[:offset] + bytes([content[offset] ^ 1]) + content[offset + 1 :], "is damaged (CRC)"),
    }
    for name, (damaged, message) in files.items():
        (tmp_path / name).write_bytes(damaged)
        # A level that weights are packed for does not look at the others.
        words = (tmp_path / name, image, "--isa", "scalar") if name == "weights" else (tmp_path / name, image)
        completed = mprun(*words, check=2)
        assert message in completed.stderr
        assert completed.stderr.startswith(f"mprun: {tmp_path / name}: ")
        assert completed.stderr.count("\n") == 1
        assert completed.stdout == ""


def test_other_images_are_named_with_what_to_do(mprun: Program, bundle: Path, images: Path, tmp_path: Path) -> None:
    jpeg = (images / "scene-0.jpg").read_bytes()
    files = {
        "a.png": (b"\x89PNG\r\n\x1a\n" + bytes(50), "is neither JPEG nor PPM; convert it"),
        "b.jpg": (jpeg[:200], "save it again"),
        "c.ppm": (b"P6 4 4 65535 " + bytes(96), "is no PPM of 8 bits; convert it"),
        "d.ppm": (b"P6 40 40 255 " + bytes(96), "is cut"),
        "e.ppm": (b"P6 999999 4 255 ", "outside the limits"),
    }
    for name, (content, message) in files.items():
        (tmp_path / name).write_bytes(content)
        completed = mprun(bundle, images / "scene-1.jpg", tmp_path / name, "--json", check=2)
        assert message in completed.stderr
        assert completed.stdout == ""
    assert "no such file" in mprun(bundle, tmp_path / "gone.jpg", check=2).stderr


@pytest.mark.parametrize(
    ("extra", "has_end", "sentences"),
    [
        (b"", False, ["a JPEG without its end marker; its pixels are all there"]),
        (
            b"between",
            True,
            ["a JPEG with bytes that belong to none of its parts, which are skipped; check that the image is whole"],
        ),
    ],
)
def test_flawed_jpegs_are_read_as_mpnet_reads_them(
    mprun: Program, bundle: Path, images: Path, tmp_path: Path, extra: bytes, has_end: bool, sentences: list[str]
) -> None:
    """The boxes of the whole file, a note for each image in mpnet's own words, wherever the first image is read."""
    jpeg = (images / "scene-0.jpg").read_bytes()
    flawed = tmp_path / "scene-0.jpg"
    flawed.write_bytes(jpeg[:-2] + extra + (jpeg[-2:] if has_end else b""))
    expected = json.loads(mprun(bundle, images / "scene-0.jpg", "--json").stdout)["files"][0]["detections"]
    assert expected
    for threads in (1, 2):
        completed = mprun(bundle, "--threads", threads, "--json", flawed, flawed)
        assert [file["detections"] for file in json.loads(completed.stdout)["files"]] == [expected] * 2
        assert completed.stderr.splitlines() == [f"mprun: note: {flawed}: {sentence}" for sentence in sentences] * 2
    assert {sentence for flaw in Flaw for sentence in flaw.value} >= set(sentences)
    mprun(bundle, "--evaluate", tmp_path, "-o", tmp_path / "out.json")
    assert len(json.loads((tmp_path / "out.json").read_text())) >= len(expected)


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--bench",),
        ("{bundle}",),
        ("{bundle}", "--profile"),
        ("{bundle}", "--bench", "--info"),
        ("{bundle}", "--threads", "x"),
        ("{bundle}", "--bench", "--threads", "1.5"),
        ("{bundle}", "--bench", "--threads=0"),
        ("{bundle}", "--bench", "--repeats", "2e1"),
        ("{bundle}", "--confidence", "1"),
        ("{bundle}", "--nonsense"),
        ("{bundle}", "--evaluate"),
    ],
)
def test_a_wrong_call_is_one_line(mprun: Program, bundle: Path, words: tuple[str, ...]) -> None:
    completed = mprun(*(word.format(bundle=bundle) for word in words), check=2)
    assert completed.stderr.count("\n") == 1
    assert any(
        words in completed.stderr for words in ("--help", "-o FILE", "one at a time", "is no number", "is no whole number")
    )


def test_options_stand_before_or_behind_images_with_or_without_equals(mprun: Program, bundle: Path, images: Path) -> None:
    image = images / "scene-0.jpg"
    expected = mprun(bundle, image, "--threads", 1, "--json").stdout
    assert mprun("--threads=1", "--json", bundle, image).stdout == expected
    assert mprun("--json", "--threads", 1, "--", bundle, image).stdout == expected


def test_control_characters_of_names_are_not_printed(mprun: Program, bundle: Path, images: Path, tmp_path: Path) -> None:
    image = tmp_path / "a\x1b]0;title\x07b\u009b2Jc.jpg"
    image.write_bytes((images / "scene-0.jpg").read_bytes())
    assert mprun(bundle, image).stdout.startswith(f"{tmp_path}/a?]0;title?b?2Jc.jpg: ")
    image.write_bytes(b"no image")
    assert mprun(bundle, image, check=2).stderr.startswith(f"mprun: {tmp_path}/a?]0;title?b?2Jc.jpg: ")


def test_a_named_pipe_that_nobody_writes_is_refused_and_a_pipe_is_read(
    mprun: Program, bundle: Path, images: Path, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "a.jpg")
    assert "is empty" in mprun(bundle, tmp_path, check=2).stderr
    assert "is empty" in mprun(tmp_path / "a.jpg", "--info", check=2).stderr
    image = (images / "scene-0.jpg").read_bytes()
    piped = subprocess.run([mprun.path, bundle, "/dev/stdin"], input=image, capture_output=True, check=True, timeout=120)
    assert piped.stdout.decode().splitlines()[1:] == mprun(bundle, images / "scene-0.jpg").stdout.splitlines()[1:]


def test_a_signal_leaves_no_part_of_a_file(mprun: Program, bundle: Path, images: Path, tmp_path: Path) -> None:
    images_list = tmp_path / "list.txt"
    images_list.write_text(f"{images / 'scene-0.jpg'}\n" * 100_000, encoding="utf-8")
    process = subprocess.Popen([mprun.path, bundle, "--evaluate", images_list, "-o", tmp_path / "boxes.json"])
    while not list(tmp_path.glob("*.part")):
        assert process.poll() is None
    process.terminate()
    assert process.wait(timeout=120) == -signal.SIGTERM
    assert list(tmp_path.iterdir()) == [images_list]


def test_an_unknown_level_cannot_be_packed_for(mixed_cfg: Path, tmp_path: Path) -> None:
    error = mpnet("export", mixed_cfg, "--to", "bundle", "-o", tmp_path / "x.mpnet", "--packed", "mmx", "--no-profile", code=2)
    assert "unknown ISA level" in error
    assert not (tmp_path / "x.mpnet").exists()
