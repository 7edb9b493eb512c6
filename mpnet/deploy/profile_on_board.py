# SPDX-License-Identifier: MIT
"""A latency table that is measured on a board and comes back: `mpnet profile --on`."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path

from mpnet.config.experiment import Experiment
from mpnet.deploy.board import Board, BoardFile, describe_state
from mpnet.engine.assign import assign
from mpnet.engine.prepare import Prepared
from mpnet.errors import EngineError, MpnetError
from mpnet.export import Configuration, export
from mpnet.formats.cfg.read import read_cfg_bytes
from mpnet.formats.documents.typed import build
from mpnet.kernels.isa import kernels
from mpnet.speed.latency_table import TABLE, LatencyTable
from mpnet.speed.steps import open_network


def profile_on_board(
    source: Experiment | Path,
    board: Board,
    *,
    weights: Path | None = None,
    program: Path | None = None,
    threads: int | None = None,
    isa: str | None = None,
    repeats: int,
) -> LatencyTable:
    """Measure every step of every configuration of a network on a board.

    source, weights: as `profile_network`. program: mprun for the board, None: as `make` puts it. threads, isa: None: mprun's.
    Raises: EngineError, one line, for whatever the board does not do; as the readers do.
    """
    network, values, options = open_network(source, weights, "choose for")
    prepared = Prepared.under(options, network, values, kernels())
    cfg = source if isinstance(source, Path) else source.model.cfg
    configuration = Configuration(network, assign(network), lambda: (options, prepared), read_cfg_bytes(cfg))
    bundle = export("bundle", configuration, "").files[".mpnet"]
    words = ["net.mpnet", "--profile", "-o", "table.json", "--repeats", str(repeats)]
    words += [] if threads is None else ["--threads", str(threads)]
    words += [] if isa in (None, "auto") else ["--isa", str(isa)]
    answer = board.run(program, [BoardFile.of("net.mpnet", bundle)], [words], ["table.json"])
    table = _read(board, answer.contents[0])
    if table.network != network.digest:
        raise EngineError(f"{board.host}: the table that came back is of another network; try again")
    return replace(table, machine={**table.machine, **describe_state(board.host, answer.state)})


def _read(board: Board, content: bytes) -> LatencyTable:
    """Read the table. Raises: EngineError, one line, for what is none."""
    with tempfile.TemporaryDirectory(prefix="mpnet-board-") as folder:
        path = Path(folder) / "table.json"
        path.write_bytes(content)
        try:
            table = build(LatencyTable, TABLE.read(path))
            json.dumps(table.as_json(), allow_nan=False)
        except (MpnetError, ValueError) as error:
            reason = str(error).replace(f"{path}: ", "")
            raise EngineError(f"{board.host}: what came back is no latency table ({reason[:200]})") from None
    return table
