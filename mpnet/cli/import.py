# SPDX-License-Identifier: MIT
"""`mpnet import`: a model of another program as a cfg whose layers take precisions."""

from __future__ import annotations

from pathlib import Path

import click

from mpnet.cli.options import OUTPUT_FOLDER, PATH, declare
from mpnet.cli.output import console, note, print_json
from mpnet.config.protocol import RESIZES
from mpnet.errors import ConfigError
from mpnet.formats.files.atomic import write_files
from mpnet.importing import Choices, Imported, import_model
from mpnet.importing.file_metadata import PixelOptions
from mpnet.json_values import Json
from mpnet.messages import count_text
from mpnet.model.heads import DECODERS
from mpnet.report.text.terminal import print_table
from mpnet.trial.import_template import import_template


@declare(
    "mpnet import yolov8n.onnx -o yolov8n/",
    "mpnet import ssd.onnx -o ssd/ --heads boxes_0+scores_0,boxes_1+scores_1 --decoder ssd --anchors '60,60/120,120'",
    quiet=False,
)
@click.argument("model", metavar="MODEL", type=PATH)
@click.option("-o", "--out", required=True, type=OUTPUT_FOLDER, help="The folder for the files.")
@click.option("--name", default="", help="Of the files.  [default: the model's]")
@click.option(
    "--heads",
    default="",
    metavar="TENSORS",
    help="The tensors that enter box decoding, with commas; those of one grid joined by +.  [default: found]",
)
@click.option(
    "--decoder", default="", type=click.Choice(("", *DECODERS)), help="How boxes come from them, where the file does not tell."
)
@click.option(
    "--anchors", default="", metavar="W,H,.../...", help="Of yolov5, ssd and darknet: in pixels, heads separated by /."
)
@click.option("--key", "keys", multiple=True, metavar="KEY=VALUE", help="Another key of [yolo], such as coords=16.")
@click.option("--size", default="", metavar="WxH", help="The input's size, where the file leaves it open.")
@click.option(
    "--mean",
    default="",
    metavar="C,C,C",
    help="Pixels enter as (value - mean) / std, values from 0 to 255: one number, or three in the order of the network's "
    "channels, blue first with --bgr.  [default: as the file says, else 0]",
)
@click.option("--std", default="", metavar="C,C,C", help="[default: as the file says, else 255]")
@click.option("--bgr", is_flag=True, help="The network takes blue first; --mean and --std say blue first then as well.")
@click.option(
    "--rounding",
    default="file",
    show_default=True,
    type=click.Choice(("file", "int8")),
    help="Of quantised files: wherever they round to 8 bits, as deployed, or only where int8 layers read, which is more exact.",
)
@click.option(
    "--branches",
    default="merged",
    show_default=True,
    type=click.Choice(("merged", "apart")),
    help="Parallel convolutions (RepVGG, MobileOne): added into one, as they are deployed, or left, which is slower and may be "
    "closer in int8.",
)
@click.option("--resize", default="", type=click.Choice(("", *RESIZES)), help="How images fit in.")
def command(
    model: Path,
    out: Path,
    name: str,
    heads: str,
    decoder: str,
    anchors: str,
    keys: tuple[str, ...],
    size: str,
    mean: str,
    std: str,
    bgr: bool,
    rounding: str,
    branches: str,
    resize: str,
    as_json: bool,
) -> None:
    """Write a model of another program (ONNX, TensorFlow Lite) as NAME.cfg, NAME.weights, NAME.names and NAME.yaml, and say
    what each of its nodes became.

    Static shapes, one image, convolutional networks up to the tensors that enter box decoding; docs/import.md lists what
    is possible. What is not is refused by the node's name.
    """
    stem = name or model.stem
    if "/" in stem or not stem:
        raise ConfigError(f"--name {stem}: is a file's name, without folders")
    pixels = None
    if mean or std or bgr or resize:
        means, deviations = (_numbers(option, text) if text else None for option, text in (("--mean", mean), ("--std", std)))
        pixels = PixelOptions(means, deviations, bgr, resize or "")
        if 0 in (deviations or ()) or {len(numbers) for numbers in (means, deviations) if numbers is not None} - {1, 3}:
            raise ConfigError("--mean and --std take one number or three, of which no --std is 0")
    choices = Choices(
        tuple(tuple(head.split("+")) for head in heads.split(",")) if heads else (),
        decoder,
        tuple(_pair(key) for key in keys),
        tuple(anchors.split("/")) if anchors else (),
        _size(size),
        pixels,
        rounding == "file",
        branches == "merged",
    )
    imported = import_model(model, choices)
    files = {
        out / f"{stem}.cfg": imported.cfg.encode(),
        out / f"{stem}.weights": imported.weights,
        out / f"{stem}.names": "".join(f"{line}\n" for line in imported.names).encode(),
        out / f"{stem}.yaml": import_template(stem, imported).encode(),
    }
    write_files(files)
    if as_json:
        print_json(_document(imported, files))
        return
    rows = [(node.node, node.operator, node.became) for node in imported.nodes]
    print_table(console(), ("node", "operator", "became"), rows, left=(0, 1, 2), fold=(0, 2))
    network = imported.network
    console().print(
        f"{len(network.layers)} layers, {network.parameters:,} parameters, {count_text(network.macs)} MACs: "
        + ", ".join(str(path) for path in files),
        markup=False,
    )
    for line in [*imported.notes, *network.warnings]:
        note(line)


def _document(imported: Imported, files: dict[Path, bytes]) -> dict[str, Json]:
    return {
        "files": {str(path): len(content) for path, content in files.items()},
        "nodes": [{"node": node.node, "operator": node.operator, "became": node.became} for node in imported.nodes],
        "layers": len(imported.network.layers),
        "heads": [list(head) for head in imported.heads],
        "notes": list(imported.notes),
        "classes": len(imported.names),
        "digest": imported.network.digest,
    }


def _numbers(option: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"{option} {text}: not numbers with commas") from None


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.isidentifier() or not value or not value.isprintable():
        raise ConfigError(f"--key {text}: write KEY=VALUE")
    return key, value


def _size(text: str) -> tuple[int, int] | None:
    if not text:
        return None
    width, _, height = text.partition("x")
    if not (width.isdecimal() and height.isdecimal() and 0 < int(width) <= 16384 and 0 < int(height) <= 16384):
        raise ConfigError(f"--size {text}: write WIDTHxHEIGHT, such as 640x640")
    return int(width), int(height)
