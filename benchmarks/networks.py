# SPDX-License-Identifier: MIT
"""The table of docs/networks.md: what each network is, and how long a pass takes in fp32 and int8.

Usage: networks.py CFG... [--threads N] [--repeats N]. Weights are random: they do not change the time. Prints Markdown.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from mpnet.engine.assign import assign
from mpnet.engine.plan import Plan, build_plan
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.errors import MpnetError
from mpnet.formats.cfg.read import read_cfg
from mpnet.kernels.isa import kernels
from mpnet.messages import count_text
from mpnet.model.network import NetworkSpec
from mpnet.model.weights import random_weights
from mpnet.speed.clock import once
from mpnet.speed.steps import random_image

HEADINGS = ("cfg", "dialect", "input", "layers", "parameters", "MACs", "fp32 ms", "int8 ms", "of its int8 plan, in fp32")


def row(path: Path, threads: int, repeats: int) -> tuple[str, ...]:
    """One line. Raises: MpnetError for a cfg that is refused."""
    network = read_cfg(path)
    prepared = Prepared(network, random_weights(network), kernels())
    plans = [build_plan(network, assign(network, precision)) for precision in ("fp32", "int8")]
    image = random_image(network)
    times = []
    for plan in plans:
        session = Session(prepared, plan, threads)
        session.forward(image, copy=False)
        times.append(min(once(lambda session=session: session.forward(image, copy=False)) for _ in range(repeats)))
    height, width, channels = network.in_shape
    return (
        path.stem,
        network.dialect,
        f"{width}x{height}x{channels}",
        str(len(network.layers)),
        count_text(network.parameters),
        count_text(network.macs),
        *(f"{ms:.1f}" for ms in times),
        in_fp32(network, plans[1]),
    )


def in_fp32(network: NetworkSpec, plan: Plan) -> str:
    """Kinds of layers that an int8 plan computes in fp32, with their numbers."""
    computing = {
        step.layer
        for step in plan.steps
        if not (step.operation.is_conversion or step.operation.is_head or step.input_precision.carries_scale)
    }
    kinds = Counter(network.layers[index].kind for index in computing if not network.layers[index].has_weights)
    return ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cfgs", nargs="+", type=Path, metavar="CFG")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(f"| {' | '.join(HEADINGS)} |\n|{'---|' * len(HEADINGS)}")
    for path in options.cfgs:
        try:
            print(f"| {' | '.join(row(path, options.threads, options.repeats))} |", flush=True)
        except MpnetError as error:
            print(f"| {path.stem} | refused: {str(error).partition(': ')[2]} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
