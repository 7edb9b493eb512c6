# SPDX-License-Identifier: MIT
"""Speed of a network on this machine: whole passes, single steps, the engine's own share, a configuration's first result."""

from __future__ import annotations

import random
import statistics
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.config.experiment import Experiment
from mpnet.config.limits import MAX_THREADS
from mpnet.engine.assign import assign, assign_key
from mpnet.engine.devices import open_kernels
from mpnet.engine.operations import Convolve
from mpnet.engine.options import EngineOptions
from mpnet.engine.plan import Plan, build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.errors import ConfigError
from mpnet.formats.cfg.read import read_cfg
from mpnet.json_values import Json
from mpnet.kernels.environment import versions
from mpnet.kernels.isa import active_level, usable_levels
from mpnet.kernels.native import NativeKernels
from mpnet.model.layers import ConvolutionSpec
from mpnet.model.network import NetworkSpec
from mpnet.model.plan_key import parse_key, split_key
from mpnet.model.precision import BY_CODE, FP16_HALF_WINOGRAD, FP32_WINOGRAD, PRECISIONS, Precision, precision
from mpnet.progress import Advance, Progress, silent, unseen
from mpnet.speed.clock import Work, in_turn, once, together
from mpnet.speed.peak import Peak, measure_peak
from mpnet.speed.steps import StepTime, open_network, random_image, step_calls, steps_of

MIXED = "mixed"
"""Beside the precisions: int8, but those that feed the heads fp16, as `init` and the demo begin with."""
BELIEVED = 1.005
"""Share of the peak up to which it is believed: what rounds to 100 %."""
WINOGRAD_SHARE, HALF_SHARE = 4.0, 2.0
"""Largest shares of Winograd's convolutions, which do a quarter of the products, and of sums in halves, of twice the lanes."""
_NEW_CONFIGURATIONS, _PLAIN_PASSES = 5, 3


@dataclass(frozen=True)
class BenchStep:
    """One step of a pass.

    macs: of a convolution, else 0. share: of the machine's peak, 0 to 1; None without products.
    largest_share: that its kernel can have: above 1 where it may do fewer products than are counted, or has more lanes.
    """

    time: StepTime
    macs: int
    share: float | None
    largest_share: float = 1.0

    @property
    def is_impossible(self) -> bool:
        """Return whether it is faster than the machine: the peak, or its own time, was measured wrongly."""
        return self.share is not None and self.share > BELIEVED * self.largest_share

    def as_json(self) -> dict[str, Any]:
        """Return the value as the document of `mpnet bench --json` has it."""
        timed, operation = self.time, self.time.step.operation
        precision = operation.precision if isinstance(operation, Convolve) else timed.step.output_precision
        return {
            "step": timed.name,
            "layer": timed.step.layer,
            "precision": str(precision),
            "macs": self.macs,
            "min_ms": timed.min_ms,
            "median_ms": timed.median_ms,
            "gops": gops(self.macs, timed.min_ms),
            "peak_share": self.share,
        }


@dataclass(frozen=True)
class BenchCase:
    """One precision at one ISA level and thread count, batch 1. Milliseconds.

    overhead_ms:     what the engine adds to its kernels: the median of passes less their steps, measured in turn.
    first_result:    from a precision per layer that was never run, its weights packed before, to its result, over a plain
                     pass of it; the median of several. Both are None of a board.
    """

    isa: str
    threads: int
    precision: str
    macs: int
    min_ms: float
    median_ms: float
    overhead_ms: float | None
    first_result: float | None
    share: float | None
    steps: tuple[BenchStep, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the value as the document of `mpnet bench --json` has it."""
        return {
            "isa": self.isa,
            "threads": self.threads,
            "precision": self.precision,
            "macs": self.macs,
            "min_ms": self.min_ms,
            "median_ms": self.median_ms,
            "gops": gops(self.macs, self.min_ms),
            "peak_share": self.share,
            "conversions_ms": self.conversions_ms,
            "overhead_ms": self.overhead_ms,
            "first_result_ratio": self.first_result,
            "steps": [step.as_json() for step in self.steps],
        }

    @property
    def is_impossible(self) -> bool:
        """Return whether the pass or one of its steps is faster than the machine."""
        largest_share = max((step.largest_share for step in self.steps), default=1.0)
        is_too_fast = self.share is not None and self.share > BELIEVED * largest_share
        return is_too_fast or any(step.is_impossible for step in self.steps)

    @property
    def conversions_ms(self) -> float:
        """Sum the times of the steps that only change the precision of a tensor."""
        return sum(s.time.median_ms for s in self.steps if s.time.step.operation.is_conversion)


def gops(macs: int, ms: float) -> float:
    """Return thousands of millions of operations a second; a multiply-add counts as two."""
    return 2e-6 * macs / ms if ms > 0 else 0.0


def bench_key(network: NetworkSpec, name: str) -> str:
    """Return the plan key of a precision's name, of `mixed`, or of itself. Raises: PrecisionError for an unknown one."""
    if name == MIXED:
        return assign(network, "int8", {"heads": "fp16"}).key
    if name not in PRECISIONS and set(split_key(name)[0]) <= BY_CODE.keys():
        return assign(network, overrides=parse_key(network, name)).key
    return precision(name).code * len(network.convolutions)


def key_of(experiment: Experiment) -> str:
    """Return the plan key of an experiment's own precisions. Raises: as `read_cfg` and `assign`."""
    section = experiment.precision
    return assign(read_cfg(experiment.model.cfg, experiment.model.dialect), section.default, dict(section.layers)).key


def bench_level(
    prepared: Prepared,
    options: EngineOptions,
    peak: Peak | None,
    names: Sequence[str],
    threads: int,
    repeats: int,
    advance: Advance = unseen,
    seed: int = 0,
) -> tuple[BenchCase, ...]:
    """Measure all precisions at one ISA level (that of `prepared`) and thread count, pass by pass in turn.

    peak: of one thread, None where none is known. Raises: as `Session.forward`.
    """
    network = prepared.network
    image = random_image(network, seed)
    keys = [bench_key(network, name) for name in names]
    sessions = [_session(prepared, options, key, threads) for key in keys]
    passes = [partial(session.forward, image, copy=False) for session in sessions]
    # Settled, since another precision's weights were in the cache.
    pass_times = in_turn(*passes, repeats=repeats, warm_up=2, settled=True, advance=advance)
    # Steps of all precisions in turn as well: what disturbs the machine for a moment must not meet those of one alone. Each
    # behind a pass of its own, so that its weights are in the cache as far as they fit.
    calls = [step_calls(session, len(image)) for session in sessions]
    works: list[list[Work]] = [
        [one_pass, *(work for _, work in session_calls)] for one_pass, session_calls in zip(passes, calls, strict=True)
    ]
    pieces = iter(in_turn(*chain.from_iterable(works), repeats=repeats, warm_up=0))
    cases = []
    for name, key, session, session_calls, times in zip(names, keys, sessions, calls, pass_times, strict=True):
        whole_pass, step_times = next(pieces), list(islice(pieces, len(session_calls)))
        steps = tuple(_step(prepared, step, peak, threads) for step in steps_of(session, session_calls, step_times))
        macs = sum(step.macs for step in steps)
        # What the peak would need for the same products, each at its own precision.
        ideal_ms = sum(step.share * step.time.min_ms for step in steps if step.share is not None)
        overhead_ms = statistics.median(
            whole_ms - ms for whole_ms, ms in zip(whole_pass.ms, together(step_times).ms, strict=True)
        )
        cases.append(
            BenchCase(
                prepared.kernels.name,
                threads,
                name,
                macs,
                times.min_ms,
                times.median_ms,
                max(0.0, overhead_ms),
                _first_result(prepared, options, key, image, threads, seed),
                None if peak is None else ideal_ms / times.min_ms,
                steps,
            )
        )
        advance(1)
    return tuple(cases)


def _session(prepared: Prepared, options: EngineOptions, key: str, threads: int) -> Session:
    return Session(prepared, build_plan(prepared.network, assign_key(prepared.network, key), options), threads)


def _first_result(
    prepared: Prepared, options: EngineOptions, key: str, image: NDArray[np.float32], threads: int, seed: int
) -> float:
    """Count the plain passes until the first result of configurations near `key`, one layer changed; weights are packed."""
    network, rng = prepared.network, random.Random(seed)
    ratios = []
    for _ in range(_NEW_CONFIGURATIONS):
        layer = rng.randrange(len(key))
        code = rng.choice([PRECISIONS[name].code for name in ("fp32", "int8") if PRECISIONS[name].code != key[layer]])
        neighbour = key[:layer] + code + key[layer + 1 :]
        _pack(prepared, build_plan(network, assign_key(network, code * len(key)), options))
        session = partial(_session, prepared, options, neighbour, threads)
        first_ms = once(lambda: session().forward(image))  # noqa: B023 (called at once)
        [plain] = in_turn(partial(session().forward, image), repeats=_PLAIN_PASSES)
        ratios.append(first_ms / plain.median_ms)
    return statistics.median(ratios)


def _pack(prepared: Prepared, plan: Plan) -> None:
    for step in plan.steps:
        if isinstance(step.operation, Convolve):
            prepared.convolution(step.operation)


def _step(prepared: Prepared, timed: StepTime, peak: Peak | None, threads: int) -> BenchStep:
    operation = timed.step.operation
    if not isinstance(operation, Convolve):
        return BenchStep(timed, 0, None)
    layer = operation.layer_of(prepared.network)
    if peak is None:
        return BenchStep(timed, layer.macs, None)
    share = gops(layer.macs, timed.min_ms) / (2 * peak.of(operation.precision) * threads)
    return BenchStep(timed, layer.macs, share, _largest_share(operation.precision, layer))


def _largest_share(precision: Precision, layer: ConvolutionSpec) -> float:
    """Return the share of the peak that a convolution can have: 3x3 int8 is Winograd's where that gives the same integers."""
    has_winograd = precision in (FP32_WINOGRAD, FP16_HALF_WINOGRAD) or precision.multiplies_bytes
    is_winograd = has_winograd and (layer.size, layer.stride, layer.groups) == (3, 1, 1)
    return (WINOGRAD_SHARE if is_winograd else 1.0) * (HALF_SHARE if precision.accumulates == "float16" else 1.0)


DEFAULT_PRECISIONS = ("fp32", "fp32_winograd", "fp16", "int8", "mixed")


@dataclass(frozen=True)
class Bench:
    """The measurements of a network: the peaks of one thread by ISA level, and a case per precision.

    machine: what a board that measured says of itself, see `mpnet.deploy.board`; {} for this machine.
    """

    network: NetworkSpec
    peaks: dict[str, Peak]
    cases: tuple[BenchCase, ...]
    machine: Mapping[str, Json] = field(default_factory=dict)

    @property
    def doubt(self) -> str:
        """Return why the times should not be believed, '' where nothing speaks against them."""
        return str(self.machine.get("doubt", ""))

    def as_json(self) -> dict[str, Any]:
        """Return the document of `mpnet bench --json`."""
        return {
            "format": "mpnet-bench",
            "version": 1,
            "network": {
                "source": self.network.source,
                "digest": self.network.digest,
                "macs": self.network.macs,
                "input": list(self.network.in_shape),
            },
            "batch": 1,
            "peaks": {name: {"fp32_gops": 2 * peak.fp32, "int8_gops": 2 * peak.int8} for name, peak in self.peaks.items()},
            "cases": [case.as_json() for case in self.cases],
            **({"machine": dict(self.machine)} if self.machine else {}),
            "versions": versions(),
        }


def bench_network(
    source: Experiment | str | Path,
    *,
    weights: str | Path | None = None,
    precisions: Sequence[str] = DEFAULT_PRECISIONS,
    threads: Sequence[int] = (1,),
    isa: Sequence[str] = ("auto",),
    device: str | None = None,
    repeats: int = 15,
    progress: Progress = silent,
) -> Bench:
    """Measure forward passes of one image, step by step and whole.

    source:  a cfg, or an experiment that names one and says how it is quantised.
    weights: None: random ones, which take the same time. precisions: names of precisions, `mixed` (int8, but
    those that feed the heads fp16), and keys such as `qqqqqqqqqhqqh`. isa: names of levels; `auto`: the active one,
    `all`: each that this CPU can run. device: in place of the CPU, as `runtime.device` names one; it has no peak.
    Raises: ConfigError for nothing to measure or threads below 1, KernelError for an unknown or unusable level,
    PrecisionError for an unknown precision, and as the readers do.
    """
    names, counts = tuple(dict.fromkeys(precisions)), tuple(dict.fromkeys(threads))
    if not names or not counts or not isa:
        raise ConfigError("nothing to measure; name at least one precision, ISA level and number of threads")
    for count in counts:
        if not 1 <= count <= MAX_THREADS:
            raise ConfigError(f"--threads {count}: must be from 1 to {MAX_THREADS}")
    level_names = [level for name in isa for level in (usable_levels() if name == "all" else [name])]
    levels = list(
        dict.fromkeys(
            open_kernels(active_level() if name == "auto" else name, device, "--device") for name in dict.fromkeys(level_names)
        )
    )
    network, values, options = open_network(source, weights, "measure")
    for name in names:
        bench_key(network, name)
    peaks: dict[str, Peak] = {}
    cases: list[BenchCase] = []
    with progress("passes", len(levels) * len(counts) * len(names) * (repeats + 1)) as advance:
        for level in levels:
            if isinstance(level, NativeKernels):
                peaks[level.name] = measure_peak(level)
            prepared = Prepared.under(options, network, values, level)
            for count in counts:
                cases += bench_level(prepared, options, peaks.get(level.name), names, count, repeats, advance)
    return Bench(network, peaks, tuple(cases))
