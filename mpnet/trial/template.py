# SPDX-License-Identifier: MIT
"""The experiment file that `mpnet init` writes: short, commented, its data read once to see that all of it fits."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping

from mpnet.config.experiment import HOLDOUT, MANY_IMAGES, DataSection
from mpnet.config.target_file import TargetFile
from mpnet.data.dataset import Dataset
from mpnet.errors import ConfigError
from mpnet.formats.cfg.read import read_cfg
from mpnet.formats.documents.experiment import parse_experiment
from mpnet.formats.documents.experiment_writer import format_flow, quantization_keys, quote_path
from mpnet.formats.documents.target_file import is_path
from mpnet.formats.files.paths import compose
from mpnet.formats.images.frames import VIDEO_SUFFIXES
from mpnet.formats.images.read import SUFFIXES, is_image_name, unread_kinds
from mpnet.formats.labels.class_names import class_names
from mpnet.formats.labels.dataset import dataset_of
from mpnet.formats.weights import open_weights
from mpnet.messages import one_line
from mpnet.model.network import NetworkSpec
from mpnet.model.precision import FP16, FP32
from mpnet.model.selectors import layer_groups
from mpnet.model.task import CLASSIFICATION
from mpnet.trial.defaults import default_objectives, default_precisions, default_quantization, layers_on_cpu, refused_layers
from mpnet.trial.task import task_of

_PAGE = "# All keys: docs/experiments.md. Try it:\n"


@dataclass(frozen=True)
class InitFiles:
    """Files of a network and its images. images: labelled ones, a folder, a .data, a list of images or a data.yaml.

    labels: a folder (None: `labels` in place of `images`) or a list; annotations: an instances JSON in COCO format.
    unlabelled: a folder, a list or a video, beside the labelled images or in place of them.
    """

    cfg: Path
    weights: Path
    images: Path | None
    names: Path | None = None
    labels: Path | None = None
    annotations: Path | None = None
    unlabelled: Path | None = None


def experiment_template(
    files: InitFiles, target: Path, name: str, runner: TargetFile | None = None
) -> tuple[str, Dataset, NetworkSpec]:
    """Return the text of an experiment file at `target`, whose paths count from its folder; and what it names.

    runner: what will run the choice: the file then quantises as it does, and searches only what it can run. None: mpnet's own.
    Raises: ConfigError, DataError, FormatError for whatever does not fit together; each message is one line.
    """
    network = read_cfg(files.cfg)
    open_weights(files.weights, network, None)
    data = describe_data(files, network)
    base = target.absolute().parent

    def relative(path: Path | str) -> str:
        return quote_path(os.path.relpath(Path(path).absolute(), base))

    paths = {key: value if key == "format" else relative(value) for key, value in data.items()}
    names = relative(files.names) if files.names else None
    model = {"cfg": relative(files.cfg), "weights": relative(files.weights), "names": names}
    head = f"name: {name}\nmodel: {format_flow(model)}\ndata: {format_flow(paths)}\n"
    section = DataSection(**data)  # type: ignore[arg-type]
    classes = class_names(network, files.names, section) if files.names or section.format != "coco" else None
    dataset = dataset_of(section, classes)
    space = ""
    if runner is not None:
        space = relative(runner.name) if is_path(runner.name) else runner.name
    text = _text(head, network, dataset, target, runner, space)
    parse_experiment(text, source=str(target), base=base)
    return text, dataset, network


def describe_data(files: InitFiles, network: NetworkSpec) -> Mapping[str, str | Path]:
    """Return the keys of the data section for images and labels as they lie. Raises: ConfigError for images without labels."""
    unlabelled = {} if files.unlabelled is None else {"unlabelled": files.unlabelled}
    return {**_labelled(files, files.images, network), **unlabelled} if files.images is not None else unlabelled


def _labelled(files: InitFiles, images: Path, network: NetworkSpec) -> dict[str, str | Path]:
    if files.annotations is not None:
        return {"format": "coco", "images": images, "annotations": files.annotations}
    if images.suffix in (".yaml", ".yml"):
        return {"format": "ultralytics", "labels": images}
    if task_of(network) is CLASSIFICATION:
        if files.labels is not None:
            return {"format": "list", "images": images, "labels": files.labels}
        return {"format": "imagefolder", "images": images}
    if images.suffix in (".data", ".txt"):
        return {"format": "darknet", "labels": images}
    if images.suffix.lower() in VIDEO_SUFFIXES and images.is_file():
        raise ConfigError(
            f"{images}: is a video, which has no labels; --images takes labelled images, and --unlabelled {images} measures "
            "agreement on its frames"
        )
    if not images.is_dir():
        raise ConfigError(f"{images}: no such folder; name one of images, a .data, a list of images or a data.yaml")
    labels = files.labels or find_labels(images)
    if labels is None and not any(is_image_name(file.name) for file in images.iterdir()):
        unread = unread_kinds(images)
        others = f"but {unread}; convert them, for example to PNG" if unread else "nor do folders in it count; check --images"
        raise ConfigError(f"{images}: holds no image that mpnet reads ({' '.join(SUFFIXES)}), {others}")
    if labels is None:
        raise ConfigError(
            f"{images}: its labels are neither in a folder `labels` in place of `images` nor beside the "
            f"images; name them with --labels, or a JSON with --annotations; images without labels: --unlabelled {images}"
        )
    return {"format": "yolo", "images": images, "labels": labels}


def find_labels(images: Path) -> Path | None:
    """Find the labels of a folder of images by custom.

    They are in `labels` in place of the last `images`, in a folder beside it, or in the folder itself.

    """
    names = list(images.absolute().parts)
    folders = [images.absolute().parent / "labels", images]
    if "images" in names:
        index = len(names) - 1 - names[::-1].index("images")
        folders.insert(0, Path(*names[:index], "labels", *names[index + 1 :]))
    stems = {compose(file.stem) for file in images.iterdir() if is_image_name(file.name) and file.is_file()}
    return next(
        (
            folder
            for folder in folders
            if folder.is_dir() and any(file.suffix == ".txt" and compose(file.stem) in stems for file in folder.iterdir())
        ),
        None,
    )


def _quantization(network: NetworkSpec, runner: TargetFile | None) -> tuple[str, str]:
    """Return the lines of the mode, and that of the precisions a sweep may choose."""
    note = ""
    if runner is not None:
        name = one_line(runner.name)
        note = f"# As {name} quantises. "
        for precision, layers in refused_layers(network, runner).items():
            if 0 < len(layers) < len(network.convolutions):
                note += f"It cannot run {precision} in {', '.join(layers)}. "
        if {FP16.name, FP32.name} & {*runner.precisions} == {FP32.name}:
            note += f"It runs {FP16.name} as {FP32.name}, so that is not searched. "
        on_cpu = layers_on_cpu(network, runner)
        if on_cpu:
            note += (
                f"The CPU runs {', '.join(f'{network.layers[index].name} ({word})' for index, word in on_cpu.items())} there. "
            )
        note = note.rstrip() + "\n"
    options = default_quantization(network, runner)
    if runner is not None and runner.quantization.integer_only and not options.integer_only:
        note += "# Results lie in codes there too, but this network has no form in whole numbers: they are in reals here.\n"
    if options.equalisation:
        note += "# Channels that depthwise layers read are equalised: it costs nothing and changes no fp32 result.\n"
    if options.bias_correction:
        note += "# bias_correction takes out the mean error of rounded weights, which is large in depthwise layers.\n"
    return (
        f"{note}quantization: {format_flow(quantization_keys(options))}",
        f"precisions: {format_flow(default_precisions(network, runner))}",
    )


def _text(head: str, network: NetworkSpec, dataset: Dataset, target: Path, runner: TargetFile | None, space: str) -> str:
    task, images = task_of(network), dataset.labelled_count
    name, model, data, *_ = head.splitlines()
    groups = ", ".join(f"{group} ({len(layers)})" for group, layers in layer_groups(network).items() if group != "conv")
    start = "precision: {default: int8}"
    if "heads" in layer_groups(network):  # Measured: docs/results/quantization.md.
        available = default_precisions(network, runner)
        raised = FP16.name if runner is None or FP16.name in available else available[0]
        start = (
            "# Where to begin: what heads round is what is found, and they are small. A sweep says which layers matter here.\n"
            f"precision: {{default: int8, layers: {{heads: {raised}}}}}"
        )
    few = len(dataset.images) < MANY_IMAGES
    holdout = "# A share of the images, such as 0.4, that only reports and does not choose."
    if few:
        holdout = f"# Fewer than {MANY_IMAGES} images: {100 * HOLDOUT:.0f} % of them only report and do not choose."
    has_truths = images > 0 and (task is CLASSIFICATION or len(dataset.box) > 0)  # label files may all be empty
    drop = f"{task.agreement}_drop" if not has_truths else "ap_drop" if task.quality == "AP" else f"{task.quality}_drop"
    limit = "# unlabelled: agreement needs no labels; AP needs `images` with labels."
    count = images or len(dataset.images)
    quick = f"# limit: {min(100, count)} uses the first {min(100, count)} of the {count} images, for a quick try."
    limit = quick if images else f"{limit}\n{quick}"
    fit = (
        "# resize: crop takes the middle; stretch and letterbox are the others.\ndetection: {resize: crop}\n"
        if task is CLASSIFICATION
        else "# From images to boxes. resize: letterbox for networks that were trained that way.\n"
        f"detection: {format_flow({'resize': network.resize, 'confidence': 0.005, 'nms': 0.45})}\n"
    )
    mode, precisions = _quantization(network, runner)
    if space:
        precisions += f"\n  # The layers' limits and ties there: mpnet targets {space}.\n  space: {{target: {space}}}"
    file_name = shlex.quote(one_line(target.name))
    return f"""{_PAGE}#
#   mpnet run {file_name}       this file's own precisions beside fp32
#   mpnet sweep {file_name}     which layers may be lowered, and what to take
{name}
{model}
{limit}
{data}
{fit}# The groups of layers of this network: {groups}.
# `mpnet show {file_name}` lists what selects each layer.
{start}
# Ranges of activations: dynamic measures them per image; calibrated finds them once, on some of the images above.
{mode}
sweep:
  # auto tries every combination where that is cheap, else a chain of them; exhaustive tries all, exactly.
  strategy: auto
  {precisions}
  objectives: {format_flow(default_objectives(task, has_truths))}
  {holdout}
  # holdout: {HOLDOUT if few else 0}
  # What a choice must keep, such as {drop}: 1 (points) or weight_bytes: 4000000.
  # constraints: {{{drop}: 1}}
output: runs/
"""
