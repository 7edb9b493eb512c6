# SPDX-License-Identifier: MIT
"""The files that the demo leaves: usable, the same whoever writes them, refused when the package is damaged."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mpnet.demo.model import DATA
from mpnet.demo.project import write_project
from mpnet.errors import DataError, StoreError
from mpnet.formats.documents.experiment import parse_experiment, read_experiment
from mpnet.trial.template import InitFiles, experiment_template


def _content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_experiment_names_only_files_of_the_folder(tmp_path: Path) -> None:
    project = write_project(tmp_path / "demo", 2)
    experiment = read_experiment(project.experiment)
    assert experiment.data is not None
    files = [experiment.model.cfg, experiment.model.weights, experiment.model.names]
    folders = [experiment.data.images, experiment.data.labels]
    assert all(path is not None and path.is_file() for path in files)
    assert all(path is not None and path.is_dir() for path in folders)
    assert all(path is not None and path.is_relative_to(tmp_path / "demo") for path in [*files, *folders])
    assert experiment.output.is_relative_to(tmp_path / "demo")


def test_packaged_experiment_is_the_one_to_copy(repository: Path) -> None:
    assert (DATA / "demo.yaml").read_bytes() == (repository / "experiments" / "demo.yaml").read_bytes()


def test_experiment_to_copy_reads_what_the_demo_writes_by_default(repository: Path, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "demo"
    project = write_project(folder, 1)
    copy = tmp_path / "experiments" / "demo.yaml"
    copy.parent.mkdir()
    shutil.copy(repository / "experiments" / "demo.yaml", copy)
    original, copied = read_experiment(project.experiment), read_experiment(copy)
    assert original.data is not None
    assert copied.data is not None
    pairs = [
        (original.model.cfg, copied.model.cfg),
        (original.data.images, copied.data.images),
        (original.output, copied.output),
    ]
    assert all(a.resolve() == b.resolve() for a, b in pairs)
    assert (original.precision, original.quantization, original.sweep) == (copied.precision, copied.quantization, copied.sweep)


def test_experiment_has_the_defaults_that_init_writes(tmp_path: Path) -> None:
    project = write_project(tmp_path / "demo", 2)
    model, images = tmp_path / "demo" / "model", tmp_path / "demo" / "val" / "images"
    files = InitFiles(model / "demo.cfg", model / "demo.weights", images, model / "demo.names")
    text, _, _ = experiment_template(files, tmp_path / "mine.yaml", "mine")
    demo, template = read_experiment(project.experiment), parse_experiment(text, base=tmp_path)
    assert demo.precision == template.precision
    assert demo.quantization.options == template.quantization.options
    assert demo.detection == template.detection
    assert demo.sweep is not None
    assert template.sweep is not None
    for name in ("strategy", "precisions", "objectives"):
        assert getattr(demo.sweep, name) == getattr(template.sweep, name)


@pytest.mark.slow
def test_processes_write_the_same_bytes(tmp_path: Path) -> None:
    counts: list[int] = []
    write_project(tmp_path / "one", 9)
    write_project(tmp_path / "two", 9, counts.append, workers=2)
    assert _content(tmp_path / "one") == _content(tmp_path / "two")
    assert counts == list(range(1, 10))


def test_writing_again_replaces_and_keeps_what_is_more(tmp_path: Path) -> None:
    project = write_project(tmp_path, 3)
    image_path = project.folder / "val" / "images" / "00000.png"
    expected = _content(tmp_path)
    image_path.write_bytes(b"half an image")
    second_project = write_project(tmp_path, 1)
    assert (project.stored, second_project.stored) == (3, 3)
    assert _content(tmp_path) == expected


@pytest.mark.parametrize("name", ["demo.yaml", "demo.weights"])
def test_damaged_package_writes_nothing(tmp_path: Path, name: str) -> None:
    model = Path(shutil.copytree(DATA, tmp_path / "data"))
    (model / name).write_bytes(b"x" + (model / name).read_bytes())
    with pytest.raises(DataError, match=f"{name}: damaged, SHA-256 is .* reinstall mpnet"):
        write_project(tmp_path / "out", 1, model=model)
    assert not (tmp_path / "out").exists()


def test_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="file"):
        write_project(tmp_path / "file" / "out", 1)
