# SPDX-License-Identifier: MIT
"""Does a choice hold on images that did not choose it? Choices from parts of a pool of images, judged by the rest.

    python benchmarks/choices.py forward EXPERIMENT.yaml --pool POOL/ [--seconds 150]
    python benchmarks/choices.py splits POOL/ [--images 79 290] [--splits 100] [--holdout 0.6]
    python benchmarks/choices.py table POOL/ ...

`forward` takes the configurations that the experiment's strategy finds by noise on a few images, runs each once on all images
and keeps what it finds. It goes on where it was.
`splits` draws images without replacement that choose, gives their trials to the code that ends a sweep, holdout and tests
included, and measures agreement of what it recommends on the images that are left. No network runs for that.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.cli.options import experiment_of
from mpnet.config.measures import MAX_SQNR_DB
from mpnet.data.dataset import Dataset
from mpnet.data.detections import Detections
from mpnet.engine.assign import assign_key
from mpnet.engine.cost import plan_cost
from mpnet.sweep.choose.findings import Candidates, SweepFacts, choose_result
from mpnet.sweep.choose.picks import Judgement, SetLoss
from mpnet.sweep.evaluate.scoring import Scorer, split_positions
from mpnet.sweep.problem.problem import Batch
from mpnet.sweep.problem.space import Assignment
from mpnet.sweep.result import SweepResult
from mpnet.sweep.run import SweepPlan, prepare
from mpnet.sweep.search.failed import FailedTrials
from mpnet.sweep.search.screening import SCREENING_IMAGES
from mpnet.sweep.search.state import SweepState
from mpnet.sweep.search.strategies import strategy
from mpnet.sweep.store import Trial, TrialStore
from mpnet.trial.inference import run_plans
from mpnet.trial.inputs import spread
from mpnet.trial.workbench import Workbench

AT_ONCE = 12
"""Configurations that run together, so that images are decoded and the baseline runs once for all of them."""
FIELDS = ("image_index", "category", "score", "box")
AGREEMENT, COST = "agreement_AP", "bit_operations"


def prepare_sweep(experiment: Path) -> SweepPlan:
    """Prepare the experiment's sweep as `mpnet sweep` does."""
    return prepare(experiment_of(str(experiment), (), None, None))


def find_configurations(plan: SweepPlan) -> list[str]:
    """Return all that the strategy measures until it asks what measuring has shown, the baseline first."""
    bench = plan.setup.bench
    few_images = bench.of_images(spread(len(bench.dataset.images), SCREENING_IMAGES))
    walk = strategy(plan.setup.section.strategy).walk(plan.problem)
    keys: dict[str, None] = {}
    batch: Batch | None = next(walk, None)
    while batch is not None and batch.configurations:
        requested = [configuration.key for configuration in batch.configurations]
        screened: dict[Assignment, Trial] = {}
        if batch.screen:
            for start in range(0, len(requested), AT_ONCE):
                for key, (decibels, cost, _) in run(few_images, plan, requested[start : start + AT_ONCE]).items():
                    screened[Assignment(key)] = Trial(key, {"head_sqnr_db": decibels, COST: cost})
        else:
            keys.update(dict.fromkeys(requested))
        try:
            batch = walk.send(screened)
        except StopIteration:
            batch = None
    return list(keys)


def run(bench: Workbench, plan: SweepPlan, keys: Sequence[str]) -> dict[str, tuple[float, float, Detections]]:
    """Run configurations on all images: decibels at the heads against the baseline of agreement, cost, and what they find."""
    plans = [bench.plan(assign_key(bench.network, key)) for key in (plan.setup.baseline or plan.problem.baseline, *keys)]
    outcomes = run_plans(bench, plans)[1:]
    return {
        key: (decibels_of(outcome.head_sqnr_db), float(plan_cost(outcome.plan)[COST]), outcome.predictions)
        for key, outcome in zip(keys, outcomes, strict=True)
    }


def decibels_of(heads: Sequence[float]) -> float:
    """Return signal over noise of all heads together, of which each counts by its own ratio, at most MAX_SQNR_DB."""
    noise = float(np.mean([10 ** (-decibels / 10) for decibels in heads]))
    return min(MAX_SQNR_DB, -10 * float(np.log10(max(noise, 1e-15))))


def forward(experiment: Path, pool: Path, seconds: float) -> bool:
    """Run what is left for so many seconds; whether all is done."""
    begin = time.monotonic()
    plan = prepare_sweep(experiment)
    bench = plan.setup.bench
    pool.mkdir(parents=True, exist_ok=True)
    table = pool / "pool.json"
    if not table.is_file():
        keys = list(dict.fromkeys([bench.uniform("fp32").key, *find_configurations(plan)]))
        table.write_text(json.dumps({"experiment": str(experiment.absolute()), "keys": keys}, indent=1))
        print(f"{pool.name}: {len(keys)} configurations, {time.monotonic() - begin:.0f} s", flush=True)
    keys = [key for key in json.loads(table.read_text())["keys"] if not (pool / f"{key}.npz").is_file()]
    while keys and time.monotonic() - begin < seconds:
        batch, keys = keys[:AT_ONCE], keys[AT_ONCE:]
        for key, (decibels, cost, predictions) in run(bench, plan, batch).items():
            arrays = {name: getattr(predictions, name) for name in FIELDS}
            np.savez(pool / f"{key}.npz", decibels=decibels, cost=cost, **arrays)
        print(f"{pool.name}: {len(keys)} left, {time.monotonic() - begin:.0f} s", flush=True)
    return not keys


@dataclass(frozen=True, eq=False)
class Pool:
    """What every configuration finds in all images, by key; the first is fp32.

    plan: the sweep of all images. costs: bit operations. decibels: of signal over noise at the heads, on all images.
    """

    plan: SweepPlan
    predictions: Mapping[str, Detections]
    costs: Mapping[str, float]
    decibels: Mapping[str, float]

    @staticmethod
    def read(folder: Path) -> Pool:
        """Read what `forward` kept."""
        document = json.loads((folder / "pool.json").read_text())
        plan = prepare_sweep(Path(document["experiment"]))
        images = len(plan.setup.bench.dataset.images)
        predictions, costs, decibels = {}, {}, {}
        for key in document["keys"]:
            with np.load(folder / f"{key}.npz") as arrays:
                predictions[key] = Detections(images, **{name: arrays[name] for name in FIELDS})
                costs[key], decibels[key] = float(arrays["cost"]), float(arrays["decibels"])
        return Pool(plan, predictions, costs, decibels)

    @property
    def dataset(self) -> Dataset:
        """Return all images."""
        return self.plan.setup.bench.dataset

    @property
    def fp32(self) -> str:
        """Return the key that agreement is measured against."""
        return next(iter(self.predictions))

    def scorer(self, positions: NDArray[np.intp], select: NDArray[np.intp], report: NDArray[np.intp]) -> Scorer:
        """Return the scorer of a sweep on the images at `positions`, of which some select and some only report."""
        baseline = self.predictions[self.fp32].of_images(positions)
        kit = self.plan.setup.bench.kit
        return Scorer(self.dataset.subset(positions.tolist()), kit, baseline=baseline, select=select, report=report)

    def agreement(self, positions: NDArray[np.intp], key: str) -> float:
        """Return agreement with fp32 on these images, percent."""
        everything = np.arange(len(positions))
        scorer = self.scorer(positions, everything, everything[:0])
        return scorer.measure(self.predictions[key].of_images(positions))[AGREEMENT]


@dataclass(frozen=True)
class Choice:
    """What a sweep on one draw of images recommends.

    recommended: its key, None: nothing. shown: whether tests show that it keeps the budget. share: of fp32's bit operations,
    percent. agreement, lowest: of it and of the lowest precision, on the images that did not choose. selecting, testing: how
    many images. more: about how many images would tell, None: tests do already, or no number would. tested: configurations,
    from accurate to cheap, with share, state, and (least, loss, most) of the pooled agreement. found: share and agreement of
    what is named beside a recommendation that is shown but dear, None: nothing is.
    """

    recommended: str | None
    shown: bool
    share: float
    agreement: float
    lowest: float
    selecting: int
    testing: int
    more: int | None
    tested: Sequence[tuple[float, str, tuple[float, float, float]]] = ()
    found: tuple[float, float] | None = None


def choose(
    pool: Pool, positions: NDArray[np.intp], other_positions: NDArray[np.intp], holdout: float | None, seed: int
) -> Choice:
    """As a sweep with its holdout chooses from the images at `positions`, judged by the rest."""
    result, (selecting, testing) = find_result(pool, positions, holdout, seed)
    recommended, safety, top = result.recommended, result.safety, pool.costs[pool.fp32]
    lowest = pool.plan.problem.space.lowest()
    best_found = result.best_found
    tested = []
    for test in () if safety is None else safety.tested:
        losses = [test.losses[name] for name in (AGREEMENT + "_pooled", AGREEMENT) if name in test.losses]
        bounds = (losses[0].least, losses[0].loss, losses[0].most) if losses else (0.0, 0.0, 100.0)
        tested.append((100 * pool.costs[test.precision] / top, test.state, bounds))
    return Choice(
        None if recommended is None else recommended.precision,
        recommended is not None and recommended.is_shown and not recommended.is_baseline,
        100.0 if recommended is None else 100 * pool.costs[recommended.precision] / top,
        100.0 if recommended is None else pool.agreement(other_positions, recommended.precision),
        pool.agreement(other_positions, lowest),
        selecting,
        testing,
        None if recommended is None else recommended.more_images,
        tested,
        None
        if best_found is None
        else (100 * pool.costs[best_found.precision] / top, pool.agreement(other_positions, best_found.precision)),
    )


def find_result(
    pool: Pool, positions: NDArray[np.intp], holdout: float | None, seed: int
) -> tuple[SweepResult, tuple[int, int]]:
    """Return the result of a sweep on the images at `positions`, and how many of them select and test.

    holdout: the share that tests, None: as the experiment has it. seed: of the division.
    """
    plan, setup = pool.plan, pool.plan.setup
    section = setup.section if holdout is None else replace(setup.section, holdout=holdout)
    ids = [pool.dataset.images[position].sha256 for position in positions]
    unlabelled = int(np.count_nonzero(positions >= pool.dataset.labelled_count))
    select, report = split_positions(ids, section.held_out(len(ids), unlabelled), seed)
    scorer = pool.scorer(positions, select, report)
    trials = {
        Assignment(key): Trial(
            key, {**scorer.measure(found.of_images(positions)), COST: pool.costs[key], "head_sqnr_db": pool.decibels[key]}
        )
        for key, found in pool.predictions.items()
        if key in plan.problem.space
    }
    testing = positions[report] if len(report) else positions
    loss = setup.bench.kit.loss(
        pool.dataset.subset(testing.tolist()), pool.predictions[plan.problem.baseline].of_images(testing)
    )
    judgements: dict[Assignment, Judgement] = {}

    def judge(configurations: Sequence[Assignment]) -> dict[Assignment, Judgement]:
        for configuration in configurations:
            if configuration not in judgements:
                compared = loss(pool.predictions[configuration.key].of_images(testing))
                measured = SetLoss(len(testing), 0, compared.quality, compared.losses)
                judgements[configuration] = Judgement({"held_out" if len(report) else "all": measured})
        return {configuration: judgements[configuration] for configuration in configurations}

    facts = SweepFacts(
        name=plan.experiment.name,
        strategy=section.strategy,
        images=len(positions),
        selecting=len(select),
        macs_per_pass=plan.network.macs,
        passes_in_theory=0.0,
        task=setup.bench.kit.task,
        margins=plan.margins,
    )
    state = SweepState(FailedTrials(plan.network))
    with tempfile.TemporaryDirectory() as folder, TrialStore.open(Path(folder) / "split.sqlite", setup.subject) as store:
        contexts = (store.context(setup.documents[0]),)
        result = choose_result(Candidates(plan.problem, store, contexts, trials, trials), state, facts, judge)
    return result, (len(select), len(report))


def splits(folder: Path, images: int, numbers: range, holdout: float | None) -> None:
    """Add the choices of so many images, by the number of the split, to what is there."""
    pool = Pool.read(folder)
    target = folder / f"choices-{images}-{'default' if holdout is None else f'{holdout:g}'}.json"
    rows = json.loads(target.read_text()) if target.is_file() else {}
    for number in numbers:
        if str(number) in rows:
            continue
        order = np.random.RandomState(number).permutation(len(pool.dataset.images))
        positions, other_positions = np.sort(order[:images]), np.sort(order[images:])
        rows[str(number)] = vars(choose(pool, positions, other_positions, holdout, number))
        target.write_text(json.dumps(rows))


def table(folders: Sequence[Path], margin: float) -> None:
    """Print what was found, a row for each pool, number of images and share that tests."""
    titles = ("pool", "images that choose", "of which test", "splits", "shown", "kept", "least", "bit operations")
    titles += ("recommended, not shown", "kept", "least", "found beside a shown one", "kept", "least")
    titles += ("bit operations of all", "lowest precision keeps it")
    print(f"| {' | '.join(titles)} |\n{'|---' * len(titles)}|")
    for folder in folders:
        for file in sorted(folder.glob("choices-*.json"), key=lambda file: (int(file.stem.split("-")[1]), file.stem)):
            rows = [Choice(**row) for row in json.loads(file.read_text()).values()]
            cells = [folder.name, file.stem.split("-")[1], f"{rows[0].testing}", f"{len(rows)}"]
            for some in ([row for row in rows if row.shown], [row for row in rows if row.recommended and not row.shown]):
                kept = sum(row.agreement >= 100 - margin for row in some)
                cells += [f"{len(some)}", f"{kept}", f"{min(row.agreement for row in some):.1f}" if some else ""]
                if len(cells) < 8:
                    cells.append(f"{np.median([row.share for row in some]):.1f} %" if some else "")
            found = [row.found[1] for row in rows if row.found is not None]
            cells += [f"{len(found)}", f"{sum(agreement >= 100 - margin for agreement in found)}"]
            cells.append(f"{min(found):.1f}" if found else "")
            cells.append(f"{np.median([row.share for row in rows]):.1f} %")
            cells.append(f"{sum(row.lowest >= 100 - margin for row in rows)}")
            print(f"| {' | '.join(cells)} |")


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    forward_parser = commands.add_parser("forward")
    forward_parser.add_argument("experiment", type=Path)
    forward_parser.add_argument("--pool", type=Path, required=True)
    forward_parser.add_argument("--seconds", type=float, default=1e9)
    split = commands.add_parser("splits")
    split.add_argument("pool", type=Path)
    split.add_argument("--images", type=int, nargs="+", default=[79])
    split.add_argument("--first", type=int, default=0)
    split.add_argument("--splits", type=int, default=100)
    split.add_argument("--holdout", type=float, help="share of the images that tests; as the experiment has it")
    tables = commands.add_parser("table")
    tables.add_argument("pools", type=Path, nargs="+")
    tables.add_argument("--margin", type=float, default=3.0)
    arguments = parser.parse_args()
    if arguments.command == "forward":
        return 0 if forward(arguments.experiment, arguments.pool, arguments.seconds) else 1
    if arguments.command == "table":
        table(arguments.pools, arguments.margin)
        return 0
    for images in arguments.images:
        splits(arguments.pool, images, range(arguments.first, arguments.first + arguments.splits), arguments.holdout)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
