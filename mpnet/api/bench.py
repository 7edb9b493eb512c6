"""Speed of a network on this machine, over kernel tables, threads and precisions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Sequence

from mpnet.engine.options import resolve_options
from mpnet.engine.prepare import Prepared
from mpnet.errors import ConfigError
from mpnet.experiments.bench import BenchCase, bench_key, bench_level
from mpnet.experiments.environment import versions
from mpnet.formats.cfg import read_cfg
from mpnet.formats.weights import read_weights
from mpnet.kernels.isa import active_level, kernels, usable_levels
from mpnet.kernels.peak import Peak, measure_peak
from mpnet.spec.network import NetworkSpec
from mpnet.spec.weights import random_weights

DEFAULT_PRECISIONS = ("fp32", "fp32_winograd", "fp16", "int8", "mixed")
MAX_THREADS = 1024


@dataclass(frozen=True)
class Bench:
    """What was measured. peaks: of one thread, by ISA level."""

    network: NetworkSpec
    peaks: dict[str, Peak]
    cases: tuple[BenchCase, ...]

    def as_json(self) -> dict[str, Any]:
        """The document of `mpnet bench --json`."""
        return {
            "format": "mpnet-bench", "version": 1,
            "network": {"source": self.network.source, "digest": self.network.digest, "macs": self.network.macs,
                        "input": list(self.network.in_shape)},
            "batch": 1,
            "peaks": {name: {"fp32_gops": 2 * peak.fp32, "int8_gops": 2 * peak.int8} for name, peak in self.peaks.items()},
            "cases": [case.as_json() for case in self.cases],
            "versions": versions(),
        }


def bench_network(
    cfg: str | Path, *, weights: str | Path | None = None, precisions: Sequence[str] = DEFAULT_PRECISIONS,
    threads: Sequence[int] = (1,), isa: Sequence[str] = ("auto",), repeats: int = 15,
    on_start: Callable[[int], None] = lambda total: None, advance: Callable[[int], None] = lambda count: None,
) -> Bench:
    """Measure forward passes of one picture, step by step and whole.

    weights: None: random ones, which take the same time. precisions: names of precisions, and `mixed` (int8, the first
    layer and those that feed the heads fp16). isa: names of levels; `auto`: the active one, `all`: each that this CPU can run.
    Raises: ConfigError for nothing to measure or threads below 1, KernelError for an unknown or unusable level,
    PrecisionError for an unknown precision, and as the readers do.
    """
    names, counts = tuple(dict.fromkeys(precisions)), tuple(dict.fromkeys(threads))
    if not names or not counts or not isa:
        raise ConfigError("nothing to measure; name at least one precision, ISA level and number of threads")
    for count in counts:
        if not 1 <= count <= MAX_THREADS:
            raise ConfigError(f"--threads {count}: must be from 1 to {MAX_THREADS}")
    chosen = [level for name in isa for level in (usable_levels() if name == "all" else [name])]
    levels = [kernels(active_level() if name == "auto" else name) for name in dict.fromkeys(chosen)]
    network = read_cfg(cfg)
    if not network.convolutions:
        raise ConfigError(f"{network.source}: has no layer with weights, so there is nothing to measure")
    for name in names:
        bench_key(network, name)
    values = random_weights(network) if weights is None else read_weights(weights, network)
    options = resolve_options(network)
    on_start(len(levels) * len(counts) * len(names) * (repeats + 1))
    peaks: dict[str, Peak] = {}
    cases: list[BenchCase] = []
    for level in levels:
        peaks[level.name] = measure_peak(level)
        prepared = Prepared(network, values, level, batch_norm=options.batch_norm)
        for count in counts:
            cases += bench_level(prepared, options, peaks[level.name], names, count, repeats, advance)
    return Bench(network, peaks, tuple(cases))
