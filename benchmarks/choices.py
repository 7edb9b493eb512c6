# SPDX-License-Identifier: MIT
"""Does a choice hold on images that did not choose it? Choices from parts of a pool of images, judged by the rest.

    python benchmarks/choices.py forward EXPERIMENT.yaml --pool POOL/ [--seconds 150]
    python benchmarks/choices.py splits POOL/ [--images 79 290] [--splits 100] [--margin 3]
    python benchmarks/choices.py table POOL/ ...

`forward` runs a nested chain of fp32, fp16 and int8, as a deep sweep finds it by noise on a few images, once on all images and
keeps what each configuration finds. It goes on where it was.
`splits` draws images without replacement that choose, as a sweep with its holdout does, and measures agreement of what
was chosen on the images that are left. No network runs for that.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.cli.options import experiment_of
from mpnet.config.experiment import SweepSection
from mpnet.config.measures import MAX_SQNR_DB
from mpnet.data.dataset import Dataset
from mpnet.data.detections import Detections
from mpnet.engine.assign import assign_key
from mpnet.engine.cost import plan_cost
from mpnet.evaluation.agreement import Agreement
from mpnet.sweep.choose.margins import Margins
from mpnet.sweep.choose.safe import describe_safety, run_tests, sequence
from mpnet.sweep.evaluate.scoring import split_positions
from mpnet.sweep.problem.front import evenly
from mpnet.sweep.problem.problem import Problem, objectives_of
from mpnet.sweep.problem.space import Assignment, build_space
from mpnet.sweep.search.screening import SCREENING_IMAGES
from mpnet.sweep.search.strategies.deep import NOISY, RATIO
from mpnet.sweep.store import Trial
from mpnet.trial.detection import DETECTION_KIT
from mpnet.trial.experiment import open_workbench
from mpnet.trial.inference import run_plans
from mpnet.trial.inputs import spread
from mpnet.trial.lowering_order import Depths, LoweringSearch, MeasuredLowering
from mpnet.trial.workbench import Workbench

AT_ONCE, ALONE_AT_ONCE = 4, 12
FIELDS = ("image_index", "category", "score", "box")


def configurations(bench: Workbench, limit: int) -> list[str]:
    """fp32, and the chain of fp32, fp16 and int8 that a deep sweep tests, at most so many of it, found on a few images."""
    some = bench.of_images(spread(len(bench.dataset.images), SCREENING_IMAGES))
    codes, layers = "fhq", len(bench.network.convolutions)
    top = some.plan(assign_key(bench.network, "f" * layers))

    def key_of(depths: Depths) -> str:
        return "".join(codes[depth] for depth in depths)

    search = LoweringSearch((len(codes) - 1,) * layers)
    walk, measures = search.search_chain(), None
    try:
        while True:
            requested = list(walk.send(measures))  # type: ignore[arg-type]
            measures = {}
            for start in range(0, len(requested), ALONE_AT_ONCE):
                batch = requested[start : start + ALONE_AT_ONCE]
                plans = [some.plan(assign_key(bench.network, key_of(depths))) for depths in batch]
                for depths, plan, outcome in zip(batch, plans, run_plans(some, [top, *plans])[1:], strict=True):
                    measures[depths] = MeasuredLowering(noise_of(outcome.head_sqnr_db), plan_cost(plan)["bit_operations"])
    except StopIteration as stop:
        chain = list(dict.fromkeys(stop.value))
    noisy = [depths for depths in chain if search.noise_of(depths) > NOISY]
    dense = [depths for pair in pairwise(noisy) for depths in (pair[0], *search.interpolate(*pair, RATIO))]
    return list(
        dict.fromkeys(["f" * layers, *map(key_of, [*evenly(chain[: -len(noisy)], 4), *evenly([*dense, chain[-1]], limit)])])
    )


def noise_of(decibels: Sequence[float]) -> float:
    """Noise over signal, the mean of the heads."""
    return float(np.mean([10 ** (-db / 10) for db in decibels]))


def forward(experiment: Path, pool: Path, seconds: float, limit: int) -> bool:
    """Run what is left for so many seconds; whether all is done."""
    begin = time.monotonic()
    bench = open_workbench(experiment_of(str(experiment), (), None, None))
    pool.mkdir(parents=True, exist_ok=True)
    table = pool / "pool.json"
    if not table.is_file():
        keys = configurations(bench, limit)
        costs = {key: plan_cost(bench.plan(assign_key(bench.network, key)))["bit_operations"] for key in keys}
        document = {"experiment": str(experiment.absolute()), "costs": costs, "images": len(bench.dataset.images)}
        table.write_text(json.dumps(document, indent=1))
    keys = [key for key in json.loads(table.read_text())["costs"] if not (pool / f"{key}.npz").is_file()]
    while keys and time.monotonic() - begin < seconds:
        batch, keys = keys[:AT_ONCE], keys[AT_ONCE:]
        plans = [bench.plan(assign_key(bench.network, key)) for key in ("f" * len(batch[0]), *batch)]
        for key, outcome in zip(batch, run_plans(bench, plans)[1:], strict=True):
            predictions: Detections = outcome.predictions
            arrays = {name: getattr(predictions, name) for name in FIELDS}
            decibels = min(MAX_SQNR_DB, -10 * np.log10(max(noise_of(outcome.head_sqnr_db), 1e-15)))
            np.savez(pool / f"{key}.npz", decibels=decibels, **arrays)
        print(f"{pool.name}: {len(keys)} left, {time.monotonic() - begin:.0f} s", flush=True)
    return not keys


@dataclass(frozen=True, eq=False)
class Pool:
    """What every configuration finds in all images, by key; the first is fp32. decibels: of signal over noise at the heads."""

    dataset: Dataset
    problem: Problem
    costs: Mapping[str, float]
    predictions: Mapping[str, Detections]
    decibels: Mapping[str, float]

    @staticmethod
    def read(folder: Path) -> Pool:
        """Read what `forward` kept."""
        document = json.loads((folder / "pool.json").read_text())
        experiment = experiment_of(document["experiment"], (), None, None)
        bench = open_workbench(experiment)
        predictions, decibels = {}, {}
        for key in document["costs"]:
            with np.load(folder / f"{key}.npz") as arrays:
                predictions[key] = Detections(document["images"], **{name: arrays[name] for name in FIELDS})
                decibels[key] = float(arrays["decibels"])
        space = build_space(bench.network, ("fp32", "fp16", "int8"))
        objectives = objectives_of(("agreement_AP", "bit_operations"))
        problem = Problem(space, tuple(layer.macs for layer in bench.network.convolutions), objectives)
        return Pool(bench.dataset, problem, document["costs"], predictions, decibels)

    def agreement(self, positions: NDArray[np.intp], keys: Collection[str]) -> dict[str, float]:
        """Agreement with fp32 on these images, percent."""
        baseline = next(iter(self.predictions.values())).of_images(positions)
        agreement = Agreement(baseline, self.dataset.sizes[positions], len(self.dataset.categories))
        return {key: agreement.measure(self.predictions[key].of_images(positions))["AP"] for key in keys}


@dataclass(frozen=True)
class Choice:
    """A safe choice from one draw of images.

    safe: its key, None: nothing was shown. agreement, change: of it on the images that did not choose; int8: agreement of
    all int8 there. more: about how many images would tell, None: some pick, or no number.
    """

    safe: str | None
    agreement: float
    share: float
    int8: float
    more: int | None


def choose(pool: Pool, positions: NDArray[np.intp], test_positions: NDArray[np.intp], margins: Margins, seed: int) -> Choice:
    """As a sweep with its holdout chooses from the images at `positions`, judged by the rest."""
    section = SweepSection("grid")
    ids = [pool.dataset.images[p].sha256 for p in positions]
    unlabelled = int(np.count_nonzero(positions >= pool.dataset.labelled_count))
    select, test = (positions[half] for half in split_positions(ids, section.held_out(len(ids), unlabelled), seed))
    agreements = pool.agreement(select, pool.predictions)
    trials = {
        Assignment(key): Trial(
            key, {"agreement_AP": value, "bit_operations": pool.costs[key], "head_sqnr_db": pool.decibels[key]}
        )
        for key, value in agreements.items()
    }
    top = next(iter(pool.predictions))
    loss = DETECTION_KIT.loss(pool.dataset.subset(test.tolist()), pool.predictions[top].of_images(test))
    safe, more_images = None, None
    for configuration in sequence(pool.problem, trials, "agreement_AP", margins):
        losses = loss(pool.predictions[configuration.key].of_images(test)).losses
        safety = run_tests(
            [configuration],
            lambda keys, losses=losses: dict.fromkeys(keys, losses),
            margins,
            images=len(test),
            all_images=len(positions),
            held_out=True,
            choices=len(trials),
        )
        if safety.safe is None:
            more_images = describe_safety(safety, [""]).tested[0].more_images if safe is None else None
            break
        safe = configuration.key
    keys = [key for key in (safe, "q" * len(top)) if key is not None]
    judged = pool.agreement(test_positions, keys)
    share = 100 * pool.costs[safe or top] / pool.costs[top]
    return Choice(safe, judged.get(safe or "", 100.0), share, judged["q" * len(top)], more_images)


def splits(folder: Path, images: int, numbers: range, margin: float) -> None:
    """Add the choices of so many images, by the number of the split, to what is there."""
    pool, target = Pool.read(folder), folder / f"choices-{images}.json"
    rows = json.loads(target.read_text()) if target.is_file() else {}
    for number in numbers:
        if str(number) in rows:
            continue
        order = np.random.RandomState(number).permutation(len(pool.dataset.images))
        positions, test_positions = np.sort(order[:images]), np.sort(order[images:])
        margins = Margins({"agreement_AP": margin, "AP": 1.0})
        rows[str(number)] = vars(choose(pool, positions, test_positions, margins, number))
        target.write_text(json.dumps(rows))


def table(folders: Sequence[Path], margin: float) -> None:
    """Print what was found, a row for each pool and number of images."""
    print("| pool | images that choose | splits | shown safe | kept the margin | least | bit operations | int8 keeps it |")
    print("|---" * 8 + "|")
    for folder in folders:
        for file in sorted(folder.glob("choices-*.json"), key=lambda file: int(file.stem.split("-")[1])):
            rows = [Choice(**row) for row in json.loads(file.read_text()).values()]
            shown_safe = [row for row in rows if row.safe is not None]
            within_margin = sum(row.agreement >= 100 - margin for row in shown_safe)
            lowest = min((row.agreement for row in shown_safe), default=float("nan"))
            share = float(np.median([row.share for row in shown_safe])) if shown_safe else float("nan")
            int8 = sum(row.int8 >= 100 - margin for row in rows)
            print(
                f"| {folder.name} | {file.stem.split('-')[1]} | {len(rows)} | {len(shown_safe)} | {within_margin} | "
                f"{lowest:.1f} | {share:.0f} % | {int8} |"
            )


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    forward_parser = commands.add_parser("forward")
    forward_parser.add_argument("experiment", type=Path)
    forward_parser.add_argument("--pool", type=Path, required=True)
    forward_parser.add_argument("--seconds", type=float, default=1e9)
    forward_parser.add_argument("--most", type=int, default=40)
    split = commands.add_parser("splits")
    split.add_argument("pool", type=Path)
    split.add_argument("--images", type=int, nargs="+", default=[79])
    split.add_argument("--first", type=int, default=0)
    split.add_argument("--splits", type=int, default=100)
    split.add_argument("--margin", type=float, default=3.0)
    tables = commands.add_parser("table")
    tables.add_argument("pools", type=Path, nargs="+")
    tables.add_argument("--margin", type=float, default=3.0)
    arguments = parser.parse_args()
    if arguments.command == "forward":
        return 0 if forward(arguments.experiment, arguments.pool, arguments.seconds, arguments.most) else 1
    if arguments.command == "table":
        table(arguments.pools, arguments.margin)
        return 0
    for images in arguments.images:
        splits(arguments.pool, images, range(arguments.first, arguments.first + arguments.splits), arguments.margin)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
