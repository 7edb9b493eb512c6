# SPDX-License-Identifier: MIT
"""`mpnet download`: official weights into the cache."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from mpnet.cli.fetch import RemoteFile, fetch
from mpnet.cli.options import OUTPUT_FOLDER, Word, declare
from mpnet.cli.output import console, print_json, progress
from mpnet.formats.files.cache import cache_folder

# Sizes and digests are those of the files that their authors published.
MODELS: dict[str, tuple[RemoteFile, ...]] = {
    "yolov3-tiny": (
        RemoteFile(
            "yolov3-tiny.weights",
            35_434_956,
            "dccea06f59b781ec1234ddf8d1e94b9519a97f4245748a7d4db75d5b7080a42c",
            (
                "https://pjreddie.com/media/files/yolov3-tiny.weights",
                "https://data.pjreddie.com/files/yolov3-tiny.weights",
                "https://github.com/8enmann/YOLOv3/raw/f26cec7c395d75f9047a677648324bad0496c19f/yolov3-tiny.weights",
                "https://github.com/smarthomefans/darknet-test/raw/master/yolov3-tiny.weights",
            ),
        ),
    )
}


@declare(
    "mpnet download yolov3-tiny", "mpnet download yolov3-tiny --to weights/ --url https://mirror.example/yolov3-tiny.weights"
)
@click.argument("model", type=Word(list(MODELS)))
@click.option("--to", "folder", type=OUTPUT_FOLDER, help="Folder to write to.  [default: the cache]")
@click.option("--url", "urls", multiple=True, help="Source to try before the known ones; may be repeated.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0.1, 3600),
    default=30.0,
    show_default=True,
    help="Seconds without data after which a source is given up.",
)
def command(model: str, folder: Path | None, urls: tuple[str, ...], timeout_s: float, quiet: bool, as_json: bool) -> None:
    """Fetch official weights into the cache: resumed where it broke off, checked by SHA-256.

    The cache is $MPNET_CACHE, else $XDG_CACHE_HOME/mpnet, else ~/.cache/mpnet.
    """
    files: list[dict[str, str | int]] = []
    for remote in MODELS[model]:
        remote = replace(remote, urls=(*urls, *remote.urls))
        with progress(quiet)(remote.name, remote.size_bytes) as advance:
            path = fetch(remote, folder or cache_folder(), advance, timeout_s)
        files.append({"name": remote.name, "path": str(path), "bytes": remote.size_bytes, "sha256": remote.sha256})
    if as_json:
        print_json({"model": model, "files": files})
    else:
        for file in files:
            console().print(file["path"])
