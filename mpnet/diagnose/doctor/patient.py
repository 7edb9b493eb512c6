# SPDX-License-Identifier: MIT
"""What `mpnet doctor` examines: a network on images, opened even where its labels do not fit."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Iterator

import numpy as np
from numpy.typing import NDArray

from mpnet.config.experiment import (
    CalibrationSection,
    DataSection,
    DetectionSection,
    Experiment,
    ModelSection,
    PrecisionSection,
    QuantizationSection,
    RuntimeSection,
)
from mpnet.engine.observe import fp32_plan, observe_tensors
from mpnet.engine.plan import Plan
from mpnet.errors import ConfigError, DataError, FormatError
from mpnet.formats.cfg.read import read_cfg
from mpnet.formats.files.atomic import write_files
from mpnet.importing import Choices, Imported, import_model
from mpnet.importing.file_metadata import Pixels
from mpnet.model.network import NETWORK_INPUT, NetworkSpec
from mpnet.model.precision import FP32, INT8
from mpnet.packages import program
from mpnet.progress import Advance, Progress, silent
from mpnet.trial.defaults import declares_quantization, default_quantization, named_target
from mpnet.trial.experiment import open_workbench, with_network
from mpnet.trial.inputs import spread
from mpnet.trial.template import InitFiles, describe_data, find_labels
from mpnet.trial.workbench import Workbench

BATCH = 2
"""Images of one pass: all tensors of a batch are looked at."""


@dataclass(frozen=True)
class DoctorFiles:
    """Files beside the network that a command names; None: as the source says, or as custom has it.

    images, labels, annotations: as `InitFiles` takes them. calibration: a folder of images that ranges are to be found on.
    """

    weights: Path | None = None
    names: Path | None = None
    images: Path | None = None
    labels: Path | None = None
    annotations: Path | None = None
    calibration: Path | None = None


@dataclass(frozen=True)
class TensorRange:
    """The values of one tensor over all images that were run, float32 (channels,) each: the least and the largest."""

    least: NDArray[np.float32]
    largest: NDArray[np.float32]

    @property
    def magnitude(self) -> NDArray[np.float64]:
        """Return the largest distance from 0 of each channel."""
        magnitude: NDArray[np.float64] = np.maximum(np.abs(self.least), np.abs(self.largest)).astype(np.float64)
        return magnitude


@dataclass(frozen=True, eq=False)
class Patient:
    """A network on images.

    source:      as the command named it. experiment: what measures it, whose labels may not fit.
    bench:       the network on the images that are run; without labels where these do not fit.
    pixels:      how images enter the weights' own file; the bench's network takes what mpnet gives.
    imported:    the file of another program, None for a cfg.
    label_error: why the labels were left out, '' where they fit or there are none.
    engines:     programs that are to run the choice.
    """

    source: str
    experiment: Experiment
    network: NetworkSpec
    bench: Workbench
    pixels: Pixels
    imported: Imported | None = None
    label_error: str = ""
    engines: tuple[str, ...] = ()
    all_images: Workbench = field(kw_only=True)
    progress: Progress = silent

    @property
    def is_labelled(self) -> bool:
        """Return whether all images that are run have labels, and these hold an object."""
        dataset = self.bench.dataset
        return dataset.unlabelled == 0 and len(dataset.box) > 0

    @cached_property
    def plan(self) -> Plan:
        """Return the configuration that is asked about: the experiment's own, else int8 everywhere."""
        precisions = self.bench.assign()
        lowered = any(precisions[index] is not FP32 for index in self.bench.weighted_layers)
        return self.bench.plan(precisions if lowered else self.bench.uniform(INT8.name))

    @cached_property
    def fp32(self) -> Plan:
        """Return the steps of the network with every layer in fp32."""
        return self.bench.plan(fp32_plan(self.network))

    @cached_property
    def ranges(self) -> dict[int, TensorRange]:
        """Return the ranges of all tensors in fp32, by the layer that makes them; NETWORK_INPUT is the image."""
        least: dict[int, NDArray[np.float32]] = {}
        largest: dict[int, NDArray[np.float32]] = {}

        def observe(tensor: int, values: NDArray[np.float32]) -> None:
            low, high = values.min(axis=(0, 1, 2)), values.max(axis=(0, 1, 2))
            least[tensor] = np.minimum(least.get(tensor, low), low)
            largest[tensor] = np.maximum(largest.get(tensor, high), high)

        with self.progress("tensors", len(self.bench.inputs)) as advance:
            observe_tensors(self.bench.prepared, self._batches(advance), [observe], self.bench.threads)
        return {tensor: TensorRange(low, largest[tensor]) for tensor, low in least.items()}

    def _batches(self, advance: Advance) -> Iterator[NDArray[np.float32]]:
        for batch in self.bench.inputs.batches(BATCH):
            yield batch.x
            advance(len(batch.x))

    def name_layer(self, index: int) -> str:
        """Return a layer as people find it: its number and name."""
        return "the image" if index == NETWORK_INPUT else f"layer {index} ({self.network.layers[index].name})"

    def write_import(self, options: str) -> str:
        """Return the commands that make the network anew with other options of `mpnet import`."""
        if self.imported is not None:
            return f"{program()} import {shlex.quote(self.source)} {options} -o fixed/"
        model = self.experiment.model
        weights = "" if model.weights == model.cfg.with_suffix(".weights") else f" --weights {shlex.quote(str(model.weights))}"
        return (
            f"{program()} export {shlex.quote(str(model.cfg))}{weights} --to onnx -o net.onnx && "
            f"{program()} import net.onnx {options} -o fixed/"
        )


def open_patient(
    source: str,
    experiment: Experiment | None,
    files: DoctorFiles,
    folder: Path,
    images: int,
    engine: str = "",
    runtime: RuntimeSection | None = None,
    progress: Progress = silent,
) -> Patient:
    """Open what SOURCE names.

    experiment: what SOURCE stands for where it is no file of a network: files may only name a calibration folder then.
    folder:     an empty one, for files that are made on the way. images: how many are run, evenly spread.
    engine:     a target file's name or path; '': those of the experiment. runtime: of a network's own file.
    Raises: ConfigError, DataError, FormatError; each message is one line with place and remedy.
    """
    imported = None
    if experiment is None:
        path = Path(source)
        if path.suffix != ".cfg":
            imported = import_model(path, Choices())
            path, files = _write_imported(imported, path, files, folder)
        experiment = replace(_experiment_of_files(path, files, imported, engine), runtime=runtime or RuntimeSection())
    elif files.images is not None:
        raise ConfigError(f"{source}: names its images itself; leave {files.images} out, or change the key `data`")
    if files.calibration is not None:
        data = experiment.data or DataSection()
        experiment = replace(experiment, data=replace(data, calibration=CalibrationSection(files.calibration)))
    experiment = replace(experiment, output=folder / "runs")
    experiment, network = with_network(experiment)
    label_error = ""
    try:
        whole = open_workbench(experiment, network)
    except (ConfigError, DataError, FormatError) as error:
        unlabelled = _without_labels(experiment)
        if unlabelled is None:
            raise
        try:
            whole, label_error = open_workbench(unlabelled, network), str(error)
        except DataError:
            raise error from None
    if not len(whole.inputs):
        raise DataError(f"{source}: there is no image to examine it on; name some")
    bench = whole.of_images(spread(len(whole.inputs), images))
    own = experiment.backends if experiment.backends != ("mpnet",) else ()
    pixels = Pixels(resize=experiment.detection.fitted) if imported is None else imported.pixels
    return Patient(
        source,
        experiment,
        network,
        bench,
        pixels,
        imported,
        label_error,
        (engine,) if engine else own,
        progress,
        all_images=whole,
    )


def _write_imported(imported: Imported, path: Path, files: DoctorFiles, folder: Path) -> tuple[Path, DoctorFiles]:
    cfg, weights, names = (folder / f"{path.stem}.{suffix}" for suffix in ("cfg", "weights", "names"))
    text = "".join(f"{line}\n" for line in imported.names)
    write_files({cfg: imported.cfg.encode(), weights: imported.weights, names: text.encode()})
    return cfg, replace(files, weights=weights, names=files.names or names)


def _experiment_of_files(cfg: Path, files: DoctorFiles, imported: Imported | None, engine: str) -> Experiment:
    """Return the experiment that `mpnet init` or `mpnet import` would begin with, int8 everywhere."""
    if files.images is None:
        raise ConfigError(f"{cfg.name}: name images to examine it on, as in `{program()} doctor {cfg.name} images/`")
    network = read_cfg(cfg)
    weights = files.weights or cfg.with_suffix(".weights")
    images = files.images
    parts = InitFiles(cfg, weights, images, files.names, files.labels, files.annotations)
    if images.is_dir() and files.labels is None and files.annotations is None and network.yolos and find_labels(images) is None:
        parts = replace(parts, images=None, unlabelled=images)
    data = DataSection(**describe_data(parts, network))  # type: ignore[arg-type]
    quantization = QuantizationSection()
    if not declares_quantization(network):
        quantization = QuantizationSection(default_quantization(network, named_target(engine)))
    return Experiment(
        cfg.stem,
        ModelSection(cfg, weights, files.names),
        data,
        DetectionSection(resize=None if imported is None else imported.pixels.resize),
        PrecisionSection(INT8.name),
        quantization,
        source=str(cfg),
    )


def _without_labels(experiment: Experiment) -> Experiment | None:
    """Return the experiment with the images of its data section alone; None where they cannot be had without labels."""
    data = experiment.data
    if data is None or data.images is None or not data.images.is_dir():
        return None
    bare = DataSection(unlabelled=data.images, calibration=data.calibration, orientation=data.orientation)
    return replace(experiment, data=bare, model=replace(experiment.model, names=None))
