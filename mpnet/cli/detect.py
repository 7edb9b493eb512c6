# SPDX-License-Identifier: MIT
"""`mpnet detect`: find objects in images, folders, videos and what a camera sees, and draw them."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mpnet.api.experiment_network import network_of
from mpnet.api.network import Network, load_network
from mpnet.cli.image_files import Source, find_sources
from mpnet.cli.options import OUTPUT_FOLDER, PATH, declare, dialect_option, experiment_of, layer_option, selected_precisions
from mpnet.cli.output import fail, note, print_json, progress
from mpnet.cli.side_by_side import Predict, SideBySide, View
from mpnet.config.protocol import NMS_KINDS, ORIENTATIONS, RESIZES
from mpnet.detection.images import read_image
from mpnet.errors import ConfigError, DataError, StoreError
from mpnet.formats.images.orientation import describe_count, find_orientation, is_turned
from mpnet.formats.images.read import read_bytes
from mpnet.messages import one_line
from mpnet.model.plan_key import parse_key, split_key
from mpnet.model.precision import BY_CODE, PRECISIONS, Precision
from mpnet.model.task import CLASSIFICATION, DETECTION, Task

if TYPE_CHECKING:
    from mpnet.config.experiment import DataSection, DetectionSection, Experiment

NMS = 0.45


@declare(
    "mpnet detect --cfg net.cfg --weights net.weights --names net.names street.jpg --out found/",
    "mpnet detect --cfg net.cfg --weights net.weights --default int8 --layer 'heads=fp16' images/ drive.mp4 --json",
    "mpnet detect runs/demo:recommended street.jpg --beside fp32 --out found/",
    "mpnet detect experiments/demo.yaml --camera 0 --out seen/",
    runtime=True,
)
@click.argument("images", nargs=-1, metavar="[EXPERIMENT|RUN|STORE[:KEY]] IMAGE...")
@click.option("--cfg", type=PATH, help="Darknet cfg, in place of an experiment, run or sweep.")
@click.option("--weights", type=PATH, help="Darknet weights.  [default: beside the cfg]")
@click.option("--names", type=PATH, help="Class names, one a line.")
@click.option("--camera", metavar="NUMBER", help="Look through a camera, until Ctrl-C; also a device or a stream's address.")
@click.option("--frames", "most", type=click.IntRange(1, 10**9), help="Stop after so many frames of a camera or video.")
@click.option("--out", type=OUTPUT_FOLDER, help="Folder for copies with boxes, or the best class, drawn.")
@click.option("--force", is_flag=True, help="Replace files that are there.")
@click.option("--beside", metavar="PRECISION", help="Put another precision beside it: a name such as fp32, or a key.")
@click.option(
    "--conf",
    "--confidence",
    "confidence",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.25,
    show_default=True,
    help="Least score of a box.",
)
@click.option(
    "--nms",
    type=click.FloatRange(0, 1),
    help=f"Overlap beyond which the weaker of two boxes of a class goes.  [default: the experiment's, else {NMS}]",
)
@click.option("--nms-kind", type=click.Choice(NMS_KINDS), help="Measure of overlap.  [default: as experiment or cfg say]")
@click.option(
    "--resize",
    type=click.Choice(RESIZES),
    help="How an image is fitted to the network.  [default: the experiment's, else the cfg's; stretch, of classifiers crop]",
)
@click.option(
    "--orientation",
    type=click.Choice(ORIENTATIONS),
    help="Images as they are stored, or as EXIF turns them.  [default: the experiment's, else stored]",
)
@click.option("--default", type=click.Choice(list(PRECISIONS)), help="Precision of layers for which the cfg says none.")
@layer_option
@dialect_option
def command(
    images: tuple[str, ...],
    cfg: Path | None,
    weights: Path | None,
    names: Path | None,
    camera: str | None,
    most: int | None,
    out: Path | None,
    force: bool,
    beside: str | None,
    confidence: float,
    nms: float | None,
    nms_kind: str | None,
    resize: str | None,
    orientation: str | None,
    default: str | None,
    layers: tuple[str, ...],
    dialect: str,
    threads: int | None,
    isa: str | None,
    device: str | None,
    quiet: bool,
    as_json: bool,
) -> int:
    """Find objects in images, all images of folders, videos, or what a camera sees; with a classifier, the best five
    classes of each.

    The network is that of --cfg, or of what stands before the images: an EXPERIMENT.yaml, a RUN, a sweep's configuration
    (STORE:recommended) or a .cfg, at its precisions; without images those of the experiment are looked at. With --out, copies
    with boxes drawn are written there; boxes are in pixels: x, y of the upper left corner, width, height. A file that is
    damaged is named, the others are looked at, and the exit code is 2.
    """
    experiment = None
    if cfg is None:
        experiment, images = _experiment(images, weights, names, threads, isa, device)
        network = _of_experiment(experiment, default, layers, dialect)
    else:
        network = load_network(
            cfg,
            weights or cfg.with_suffix(".weights"),
            names,
            default=default,
            layers=selected_precisions(layers),
            dialect=dialect,
            threads=threads,
            isa=isa,
            device=device,
        )
    sources = _sources(images, camera, experiment)
    for warning in network.spec.warnings:
        note(warning)
    if experiment is None and any(precision.is_narrow for precision in network.plan.precision.of_weights):
        note("weights of fewer than eight bits are rounded to nearest here: experiments have calibration images")
    task = network.spec.task or DETECTION
    protocol = _protocol(network, task, experiment.detection if experiment else None, confidence, nms, nms_kind, resize)
    compared = SideBySide(
        task.key, tuple((_caption(side), _predictor(side, task, protocol)) for side in _sides(network, beside))
    )
    files: list[dict[str, Any]] = []
    failed: list[dict[str, str]] = []
    data = experiment.data if experiment else None
    turner = _Turner(is_turned(orientation or (data.orientation if data else None), data.format if data else ""))
    targets = [_target(source, out, force) for source in sources]
    if camera is not None:
        from mpnet.cli.videos import detect_from_camera

        film = None if out is None else _new(out / "camera.mp4", force)
        seen = detect_from_camera(camera, film, compared, _tell(quiet or as_json), most)
        files.append(seen)
        if not as_json:
            _print(seen)
    with progress(quiet or len(sources) <= 1)("files", len(sources)) as advance:
        for source, target in zip(sources, targets, strict=True):
            try:
                record = (
                    _video(source, target, compared, quiet, most)
                    if source.is_video
                    else _image(source, target, compared, turner)
                )
            except DataError as error:
                if len(sources) == 1:
                    raise
                failed.append({"path": str(source.path), "reason": str(error)})
                fail(str(error))
            else:
                files.append(record)
                if not as_json:
                    _print(record)
            advance(1)
    if turner.count:
        images_seen = sum(file["kind"] == "picture" for file in files)
        note(describe_count(turner.count, images_seen, turner.turns, "--orientation "))
    if as_json:
        print_json(
            {
                "cfg": network.spec.source,
                "precision": network.precision,
                "protocol": protocol,
                "files": files,
                **({"failed": failed} if failed else {}),
            }
        )
    if failed:
        fail(f"{len(failed)} of {len(sources)} files could not be looked at; they are named above")
    return 2 if failed else 0


def _experiment(
    images: tuple[str, ...], weights: Path | None, names: Path | None, threads: int | None, isa: str | None, device: str | None
) -> tuple[Experiment, tuple[str, ...]]:
    """Return the experiment that stands before the images, and these."""
    from mpnet.formats.images.read import SUFFIXES

    if not images or Path(images[0]).suffix.lower() in SUFFIXES:
        raise ConfigError(
            "no network is named; give --cfg and --weights, or an EXPERIMENT.yaml, a run or STORE:KEY before the images"
        )
    from mpnet.resolve.source import Files

    try:
        return experiment_of(images[0], (), threads, isa, device, Files(weights=weights, names=names)), images[1:]
    except StoreError as error:
        raise ConfigError(f"{error}; or name a network before images, with --cfg and --weights") from None


def _of_experiment(experiment: Experiment, default: str | None, layers: tuple[str, ...], dialect: str) -> Network:
    from dataclasses import replace

    section = experiment.precision
    over = tuple((str(selector), str(precision)) for selector, precision in selected_precisions(layers).items())
    precision = replace(section, default=default or section.default, layers=(*section.layers, *over))
    model = experiment.model if dialect == "auto" else replace(experiment.model, dialect=dialect)
    return network_of(replace(experiment, precision=precision, model=model))


def _sources(images: tuple[str, ...], camera: str | None, experiment: Experiment | None) -> list[Source]:
    if images or camera is not None:
        return find_sources([Path(image) for image in images])
    if experiment is None or experiment.data is None:
        raise ConfigError("nothing to look at; name images, folders or videos, or --camera 0")
    return find_sources(_own_images(experiment.data))[: experiment.data.limit]


def _own_images(data: DataSection) -> list[Path]:
    """Return files and folders with the images of an experiment's data."""
    from mpnet.config.experiment import LISTED
    from mpnet.formats.labels.listed import describe_listed

    if data.format in LISTED and data.labels is not None:
        return list(describe_listed(data.labels, data.images).images)
    if data.images is None:
        raise ConfigError("the experiment names no images; name some, folders or videos")
    if data.format == "imagefolder":  # a folder for each class
        return sorted(path for path in data.images.iterdir() if path.is_dir())
    return [data.images]


def _protocol(
    network: Network,
    task: Task,
    section: DetectionSection | None,
    confidence: float,
    nms: float | None,
    nms_kind: str | None,
    resize: str | None,
) -> dict[str, Any]:
    """Return how images become boxes: by the command line, then the experiment, then the cfg."""
    protocol: dict[str, Any] = {
        "input": list(network.spec.in_shape),
        "resize": resize or (section.resize if section else None) or network.spec.resize,
        "dialect": network.spec.dialect,
        "batch_norm": network.options.batch_norm,
    }
    if task is CLASSIFICATION:
        return {**protocol, "task": task.name}
    kind = (
        nms_kind or (section.nms_kind if section else None) or (network.spec.yolos[-1].nms_kind if network.spec.yolos else None)
    )
    overlap = nms if nms is not None else section.nms if section else NMS
    return {**protocol, "confidence": confidence, "nms": overlap, "nms_kind": kind}


def _sides(network: Network, beside: str | None) -> list[Network]:
    """Return the network, and the same at the precision that goes beside it. Raises: ConfigError, PrecisionError."""
    if beside is None:
        return [network]
    if beside in PRECISIONS:
        return [network, network.with_precision(None, {"all": beside})]
    if not set(split_key(beside)[0]) <= BY_CODE.keys():
        raise ConfigError(
            f"--beside {beside[:60]!r}: is no precision ({', '.join(PRECISIONS)}) and no key such as {network.precision[:60]}"
        )
    precisions = dict[str | int, str | Precision]()
    precisions.update((index, precision) for index, precision in parse_key(network.spec, beside).items())
    return [network, network.with_precision(None, precisions)]


def _caption(network: Network) -> str:
    """Return a key, or the one precision that all layers have."""
    same = {network.plan.precision[index].name for index in network.plan.precision.weighted}
    return same.pop() if len(same) == 1 else network.precision


def _predictor(network: Network, task: Task, protocol: dict[str, Any]) -> Predict:
    if task is CLASSIFICATION:
        return partial(network.classify, resize=protocol["resize"])
    return partial(network.detect, **{name: protocol[name] for name in ("confidence", "nms", "nms_kind", "resize")})


def _target(source: Source, out: Path | None, force: bool) -> Path | None:
    if out is None:
        return None
    target = out / source.out_name
    if os.path.realpath(target) == os.path.realpath(source.path):
        raise ConfigError(f"{target}: would replace the image that is looked at; choose another --out")
    return _new(target, force)


def _new(target: Path, force: bool) -> Path:
    if target.exists() and not force:
        raise ConfigError(f"{target}: exists already; choose another --out, or replace it with --force")
    return target


@dataclass
class _Turner:
    """The images that EXIF turns. turns: whether they are turned. count: how many there were."""

    turns: bool
    count: int = 0

    def orientation_of(self, path: Path) -> int:
        """Count an image that EXIF turns; return the orientation by which it is to be turned, 1: as stored."""
        orientation = find_orientation(read_bytes(path))
        self.count += orientation != 1
        return orientation if self.turns else 1


def _image(source: Source, target: Path | None, compared: SideBySide, turner: _Turner) -> dict[str, Any]:
    image = read_image(
        source.path,
        remark=lambda flawed: note(f"{flawed.path}: {flawed.flaw.value[0]}"),
        orientation=turner.orientation_of(source.path),
    )
    views = compared.views(image)
    if target is not None:
        from mpnet.cli.drawing import write_drawn  # brings OpenCV, which reading a JPEG does without

        write_drawn(target, image, views)
    return {
        "path": str(source.path),
        "kind": "picture",
        "width": image.shape[1],
        "height": image.shape[0],
        **compared.plain(views),
        "out": None if target is None else str(target),
    }


def _video(source: Source, target: Path | None, compared: SideBySide, quiet: bool, most: int | None) -> dict[str, Any]:
    from mpnet.cli.videos import detect_in_video

    return detect_in_video(source.path, target, compared, quiet, most)


def _say(line: str) -> None:
    """Print a line; names of classes and files may hold what moves a terminal's cursor or turns its text around."""
    click.echo(one_line(line))


def _tell(quiet: bool) -> Any:
    def tell(seconds: float, rate: float, views: list[View]) -> None:
        if not quiet:
            names = Counter(one.name for one in views[0].predictions)
            seen = ", ".join(f"{name} {count}" for name, count in names.most_common()) or "nothing"
            _say(f"{seconds:7.1f} s  {rate:5.1f} frames per second  {seen}")

    return tell


def _print(file: dict[str, Any]) -> None:
    target = f" -> {file['out']}" if file["out"] else ""
    if file["kind"] != "picture":
        rate = file["looked_at_per_second"]
        _say(f"{file['path']}: {len(file['frames'])} frames, {_headline(file['frames'])}{target}")
        if rate:
            _say(
                f"  {rate:.1f} frames per second with reading and drawing, {file['network_per_second']:.1f} of network "
                "and boxes alone"
            )
        return
    other = file.get("beside")
    beside = f" ({other['precision']}: {_headline([other])})" if other else ""
    _say(f"{file['path']}: {_headline([file])}{beside}{target}")
    for box in file.get("detections", ()):
        x, y, width, height = box["box"]
        _say(f"  {box['score']:.3f}  {box['name']:<20} {x:7.1f} {y:7.1f} {width:7.1f} {height:7.1f}")
    for label in file.get("classes", ()):
        _say(f"  {label['score']:.3f}  {label['name']}")


def _headline(frames: list[dict[str, Any]]) -> str:
    """Summarise what was found in one image, or in the frames of a video."""
    if "detections" in frames[0]:
        return f"{sum(len(frame['detections']) for frame in frames)} objects"
    best = Counter(frame["classes"][0]["name"] for frame in frames)
    return str(best.most_common(1)[0][0])
