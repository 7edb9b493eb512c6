# SPDX-License-Identifier: MIT
"""`mpnet doctor`: what is wrong with a network, its images and its labels, before anything is searched."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from mpnet.cli.options import FOLDER, PATH, declare, experiment_of, set_option
from mpnet.cli.output import print_result, progress
from mpnet.config.experiment import RuntimeSection
from mpnet.diagnose.doctor import DoctorFiles, examine, open_patient
from mpnet.errors import ConfigError
from mpnet.importing.model import FILE_READERS
from mpnet.report.text.doctor import print_diagnosis

FOUND = 1
"""Exit status where a check found something."""
IMAGES = 32


@declare(
    "mpnet doctor net.cfg val/images",
    "mpnet doctor model.onnx val/images --target openvino --json",
    "mpnet doctor experiments/demo.yaml",
    runtime=True,
)
@click.argument("source", metavar="CFG|ONNX|TFLITE|EXPERIMENT|RUN|STORE[:KEY]")
@click.argument("images", type=PATH, required=False)
@set_option
@click.option("--weights", type=PATH, help="Weights of a cfg.  [default: beside it]")
@click.option("--names", type=PATH, help="Class names, one a line.  [default: as the file or the data set says]")
@click.option("--labels", type=PATH, help="Folder of label files.  [default: as `mpnet init` finds them]")
@click.option("--annotations", type=PATH, help="Labels as an instances JSON (COCO).")
@click.option("--calibration", type=FOLDER, help="Folder of calibration images, which should not be those that judge.")
@click.option(
    "--target",
    "engine",
    metavar="NAME|FILE",
    help="What will run the choice, as of `mpnet init`: where it falls back is looked at.  [default: the key backends]",
)
@click.option(
    "--count",
    type=click.IntRange(1, 100_000),
    default=IMAGES,
    show_default=True,
    help="Images to run, evenly spread over those at hand.",
)
def command(
    source: str,
    images: Path | None,
    overrides: tuple[str, ...],
    weights: Path | None,
    names: Path | None,
    labels: Path | None,
    annotations: Path | None,
    calibration: Path | None,
    engine: str | None,
    count: int,
    threads: int | None,
    isa: str | None,
    device: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Examine a network on IMAGES, with labels or without: its preprocessing, what int8 would break, labels, images.

    IMAGES is a folder, a list, a .data or a data.yaml, as `mpnet init --images` takes it; an experiment, a run or a sweep
    names its own. Every finding has its place, the numbers that show it, and a remedy. What cannot be shown with these
    images is no finding; the last lines say what each check looked at. Nothing is written. Exit status 1: something was found.
    """
    files = DoctorFiles(weights, names, images, labels, annotations, calibration)
    is_network = Path(source).suffix.lower() in (".cfg", *FILE_READERS)
    if is_network and overrides:
        raise ConfigError("--set changes an experiment file; of a network's file nothing can be set")
    experiment = None if is_network else experiment_of(source, overrides, threads, isa, device)
    with tempfile.TemporaryDirectory(prefix="mpnet-doctor-") as folder:
        runtime = RuntimeSection(threads=threads, isa=isa or "auto", device=device or "auto")
        patient = open_patient(source, experiment, files, Path(folder), count, engine or "", runtime, progress(quiet))
        diagnosis = examine(patient)
    print_result(diagnosis, as_json, lambda _, out: print_diagnosis(diagnosis, out))
    if diagnosis.findings:
        raise SystemExit(FOUND)
