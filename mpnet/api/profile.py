"""Latency tables of a network on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, Sequence

from mpnet.engine.options import resolve_options
from mpnet.engine.prepare import Prepared
from mpnet.errors import ConfigError
from mpnet.experiments.environment import cpu_count
from mpnet.experiments.latency_table import LatencyTable
from mpnet.experiments.profile import REPEATS, measure_table
from mpnet.formats.cfg import read_cfg
from mpnet.formats.weights import read_weights
from mpnet.kernels.isa import kernels
from mpnet.spec.precision import precision
from mpnet.spec.weights import random_weights


def profile_network(
    cfg: str | Path, *, weights: str | Path | None = None, precisions: Sequence[str] = ("fp32", "fp16", "int8"),
    threads: int | None = None, isa: str | None = None, repeats: int = REPEATS,
    on_start: Callable[[int], None] = lambda total: None, advance: Callable[[int], None] = lambda count: None,
) -> LatencyTable:
    """Measure every step of every configuration of a network, batch 1, dynamic ranges.

    weights: None: random ones, which take the same time. threads: None: all cores. isa: None: the best.
    Raises: ConfigError for no precision, PrecisionError for an unknown one, and as the readers do.
    """
    if not precisions:
        raise ConfigError("--precisions: name at least one, such as fp32,int8")
    for name in precisions:
        precision(name)
    network = read_cfg(cfg)
    if not network.convolutions:
        raise ConfigError(f"{network.source}: has no layer with weights, so there is nothing to choose for")
    values = random_weights(network) if weights is None else read_weights(weights, network)
    options = resolve_options(network)
    prepared = Prepared(network, values, kernels(None if isa in (None, "auto") else isa), batch_norm=options.batch_norm)
    return measure_table(
        prepared, options, tuple(dict.fromkeys(precisions)), threads=threads or cpu_count(), repeats=repeats,
        on_start=on_start, advance=advance,
    )
