# SPDX-License-Identifier: MIT
"""A run whose images a board looks at as well: `mpnet run --on`. Bits are the same everywhere, and here that is checked."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Mapping

from mpnet.deploy.board import MOST_BYTES, Board, BoardFile, describe_state
from mpnet.deploy.board_images import LIST, board_images
from mpnet.errors import ConfigError, EngineError, MpnetError
from mpnet.export import export
from mpnet.json_values import Json
from mpnet.messages import shown
from mpnet.model.task import DETECTION
from mpnet.trial.experiment import RunReport
from mpnet.trial.identity import configuration_of
from mpnet.trial.kit import Predictions, detections_of

FINDINGS = "detections.json"
IMAGE_BYTES = 1 << 20
"""No image has so many bytes of findings."""


@dataclass(frozen=True)
class BoardRun:
    """What a board found in a run's images.

    machine:    what the board says of itself. images: how many it looked at. detections: how many it found.
    measures:   accuracy and agreement of what it found, in percent, by name; -1 where there is nothing to measure. Without
                darknet_mAP50, which counts what boxes have beyond the images, and files of detections have not.
    difference: the first difference to what the run found here, '' where both files are the same bytes.
    """

    machine: Mapping[str, Json]
    images: int
    detections: int
    measures: Mapping[str, float]
    difference: str

    @property
    def is_same(self) -> bool:
        """Return whether the board found, byte for byte, what the run found here."""
        return not self.difference

    def as_json(self) -> dict[str, Json]:
        """Return the member `board` of the document of `mpnet run --json`."""
        return {
            **self.machine,
            "images": self.images,
            "detections": self.detections,
            "measures": dict(self.measures),
            "same_bits": self.is_same,
            "difference": self.difference,
        }


def run_on_board(report: RunReport, board: Board, program: Path | None = None) -> BoardRun:
    """Let a board look at a run's images with the run's configuration; compute the figures from what it found.

    program: mprun for the board, None: as `make` puts it.
    Raises: ConfigError for a classifier, EngineError, one line, for whatever the board does not do.
    """
    bench = report.bench
    if report.result.task != DETECTION:
        raise ConfigError("--on: mprun evaluates detectors alone; run a classifier here")
    bundle = export("bundle", configuration_of(bench, bench.assign()), "", {"no_profile": True}).files[".mpnet"]
    files = [BoardFile.of("net.mpnet", bundle), *board_images(bench.inputs)]
    most_bytes = MOST_BYTES + IMAGE_BYTES * len(bench.inputs)
    answer = board.run(program, files, [["net.mpnet", "--evaluate", LIST, "-o", FINDINGS]], [FINDINGS], most_bytes)
    [content] = answer.contents
    found = _read(board, report, content)
    compared = report.baseline
    baseline = None if compared is None else bench.kit.read(compared.predictions_path, bench.dataset)
    return BoardRun(
        describe_state(board.host, answer.state),
        len(bench.inputs),
        len(detections_of(found)),
        bench.kit.meter(bench.dataset, baseline).values(found, ()),
        first_difference(content, report.result.predictions_path.read_bytes()),
    )


def first_difference(there: bytes, here: bytes) -> str:
    """Return the first line in which two files of detections differ, '' for the same bytes."""
    if there == here:
        return ""
    for number, (board_line, line) in enumerate(zip_longest(there.splitlines(), here.splitlines()), start=1):
        if board_line != line:
            return f"line {number} is {_text(board_line)} there and {_text(line)} here"
    return "one file ends in the middle of a line"


def _text(line: bytes | None) -> str:
    return "missing" if line is None else "".join(c for c in line.decode("utf-8", "replace") if c.isprintable())[:200]


def _read(board: Board, report: RunReport, content: bytes) -> Predictions:
    """Read what came back. Raises: EngineError, one line, for what is no file of detections of these images."""
    with tempfile.TemporaryDirectory(prefix="mpnet-board-") as folder:
        path = Path(folder) / FINDINGS
        path.write_bytes(content)
        try:
            found: Predictions = report.bench.kit.read(path, report.bench.dataset)
        except MpnetError as error:
            reason = str(error).replace(f"{path}: ", "")
            raise EngineError(f"{board.host}: what came back are no detections ({shown(reason[:200])})") from None
    return found
