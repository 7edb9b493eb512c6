# SPDX-License-Identifier: MIT
"""The files that the demo leaves for its user: model, labelled images and an experiment file, all plain files.

project = write_project("runs/demo", scenes=300)
project.experiment  # runs/demo/demo.yaml, ready for `mpnet run` and `mpnet sweep`
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mpnet.demo.dataset import write_dataset
from mpnet.demo.model import DATA, experiment_text, model_files
from mpnet.errors import StoreError
from mpnet.formats.files.atomic import write_bytes, write_text

# experiments/demo.yaml names everything below this folder; an experiment's paths count from its own folder.
_FOLDER_IN_EXPERIMENT = "../runs/demo/"


@dataclass(frozen=True)
class Project:
    """Paths of a written demo. stored: images in it, which an earlier call may have made more."""

    folder: Path
    experiment: Path
    stored: int


def write_project(
    folder: str | os.PathLike[str],
    scenes: int,
    progress: Callable[[int], None] | None = None,
    workers: int = 1,
    model: Path = DATA,
) -> Project:
    """Write demo.yaml, model/ and val/ below `folder`; files of these names are replaced.

    progress: called with the number of scenes done. model: folder of the packaged files.
    Raises: DataError for a damaged packaged file, StoreError when `folder` cannot be written.
    """
    root = Path(folder)
    files, experiment = model_files(model), experiment_text(model)
    for path in (files.cfg, files.weights, files.names):
        write_bytes(root / "model" / path.name, path.read_bytes())
    try:
        val = write_dataset(root, "val", scenes, progress, workers)
    except OSError as error:
        raise StoreError(
            f"{error.filename or root}: cannot be written ({error.strerror or error}); check the space and the "
            "permissions, or choose another --out"
        ) from None
    write_text(root / "demo.yaml", experiment.replace(_FOLDER_IN_EXPERIMENT, ""))
    return Project(root, root / "demo.yaml", len(list((val / "images").glob("*.png"))))
