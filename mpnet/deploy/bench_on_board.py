# SPDX-License-Identifier: MIT
"""Times of passes and steps that a board takes: `mpnet bench --on`."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any, Sequence

from mpnet.config.experiment import Experiment
from mpnet.deploy.board import Board, BoardFile, describe_state, printed_by
from mpnet.engine.assign import assign_key
from mpnet.engine.fuse import fuse_plan
from mpnet.engine.operations import Convolve
from mpnet.engine.plan import Step
from mpnet.engine.prepare import Prepared
from mpnet.errors import ConfigError, EngineError
from mpnet.export import Configuration, export
from mpnet.formats.cfg.read import read_cfg_bytes
from mpnet.kernels.isa import kernels
from mpnet.messages import shown
from mpnet.model.network import NetworkSpec
from mpnet.speed.bench import DEFAULT_PRECISIONS, Bench, BenchCase, BenchStep, bench_key
from mpnet.speed.steps import StepTime, open_network, step_name


def bench_on_board(
    source: Experiment | Path,
    board: Board,
    *,
    weights: Path | None = None,
    program: Path | None = None,
    precisions: Sequence[str] = DEFAULT_PRECISIONS,
    threads: Sequence[int] = (1,),
    isa: Sequence[str] = ("auto",),
    repeats: int = 15,
) -> Bench:
    """Let a board measure forward passes of one image, whole and step by step, one combination after the other.

    As `bench_network`, but `all` is no ISA level here; peaks, and what the engine adds, are unknown.
    program: mprun for the board, None: as `make` puts it.
    Raises: ConfigError, PrecisionError as `bench_network`; EngineError, one line, for whatever the board does not do.
    """
    names, counts, levels = tuple(dict.fromkeys(precisions)), tuple(dict.fromkeys(threads)), tuple(dict.fromkeys(isa))
    if not names or not counts or not levels:
        raise ConfigError("nothing to measure; name at least one precision, ISA level and number of threads")
    if "all" in levels:
        raise ConfigError("--isa all: means levels of this machine; with --on name those of the board")
    network, values, options = open_network(source, weights, "measure")
    prepared = Prepared.under(options, network, values, kernels())
    content = read_cfg_bytes(source if isinstance(source, Path) else source.model.cfg)
    files, plans = [], []
    for number, name in enumerate(names):
        precision_plan = assign_key(network, bench_key(network, name))
        configuration = Configuration(network, precision_plan, lambda: (options, prepared), content)
        bundle = export("bundle", configuration, "", {"no_profile": True}).files[".mpnet"]
        files.append(BoardFile.of(f"net-{number}.mpnet", bundle))
        plans.append(fuse_plan(configuration.plan).steps)
    combinations = list(itertools.product(levels, counts, range(len(names))))
    jobs = [
        [
            *(files[number].name, "--bench", "--json", "--repeats", str(repeats), "--threads", str(count)),
            *(() if level == "auto" else ("--isa", level)),
        ]
        for level, count, number in combinations
    ]
    answer = board.run(program, files, jobs, [printed_by(job) for job in range(len(jobs))])
    cases = tuple(
        _case(board, network, names[number], plans[number], printed)
        for (_, _, number), printed in zip(combinations, answer.contents, strict=True)
    )
    return Bench(network, {}, cases, describe_state(board.host, answer.state))


def _case(board: Board, network: NetworkSpec, name: str, plan_steps: Sequence[Step], printed: bytes) -> BenchCase:
    """Return what mprun printed as a case. Raises: EngineError, one line, for what it does not print."""
    timed = [step for step in plan_steps if step.operation.bundle != "YOLO"]
    try:
        document: dict[str, Any] = json.loads(printed)
        rows = document["steps"]
        if [row["layer"] for row in rows] != [step.layer for step in timed]:
            raise ValueError("its steps are of another network")
        steps = tuple(_step(network, step, _ms(row, "min_ms"), _ms(row, "ms")) for step, row in zip(timed, rows, strict=True))
        isa, threads = document["isa"], document["threads"]
        if not isinstance(isa, str) or not isa.isidentifier() or type(threads) is not int:
            raise ValueError("it names no ISA level and threads")
        min_ms, median_ms = _ms(document, "min_ms"), _ms(document, "median_ms")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise EngineError(f"{board.host}: what came back are no times ({shown(reason)})") from None
    return BenchCase(isa, threads, name, sum(step.macs for step in steps), min_ms, median_ms, None, None, None, steps)


def _step(network: NetworkSpec, step: Step, min_ms: float, median_ms: float) -> BenchStep:
    operation = step.operation
    macs = operation.layer_of(network).macs if isinstance(operation, Convolve) else 0
    return BenchStep(StepTime(step, step_name(network, step), min_ms, median_ms), macs, None)


def _ms(row: dict[str, Any], name: str) -> float:
    value = row[name]
    if type(value) not in (int, float) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{name} is {value!r}")
    return float(value)
