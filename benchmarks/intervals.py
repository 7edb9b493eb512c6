# SPDX-License-Identifier: MIT
"""How often 95 % intervals hold the truth: images drawn from a pool whose own value is the truth.

Usage: intervals.py BASELINE OTHER... [--images 50 115] [--data-sets 300] [--draws 500] [--seed 0], or without runs
intervals.py --synthetic CLASSES. BASELINE and OTHER are folders of finished runs on one data set, which is the pool; a
synthetic one has 2,000 images (`synthetic_detector.py`). Every data set takes its images from the pool with
replacement; the intervals are those of `mpnet compare`. Prints Markdown: the share of intervals that hold the truth for
each run's own value, each difference from the baseline and each agreement with it, how many lie wholly above and below it,
and how wide they are; `loss` and `loss, one list`: the one-sided 95 % upper end of what agreement loses, from which `safe` is
shown, over the classes and with all objects in one list. Then the lowest and the highest share of each measure. Of 300 data
sets a share of 95 % is known to 2.5 % (two standard deviations).
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from synthetic_detector import make_synthetic_data

from mpnet.data.dataset import Dataset
from mpnet.data.detections import Detections
from mpnet.errors import MpnetError
from mpnet.evaluation.agreement import Agreement
from mpnet.evaluation.compare import DRAWS, bootstrap, compare, draw_images
from mpnet.evaluation.intervals import agreement_interval, value_interval
from mpnet.evaluation.match import Truths
from mpnet.evaluation.metrics import CocoEvaluator
from mpnet.evaluation.noninferiority import agreement_loss
from mpnet.trial.reopen import open_dataset
from mpnet.trial.result import read_result
from mpnet.trial.task import kit_of

METRICS = ("AP", "AP50", "AP75", "AR100")
LOSSES = ("loss", "loss, one list")


@dataclass
class Tally:
    """Intervals of one number: how many hold the truth, lie above or below it, and their summed width."""

    truth: float
    covering: int = 0
    above: int = 0
    below: int = 0
    width: float = 0.0
    values: list[float] = field(default_factory=list)

    def add(self, value: float, low: float, high: float) -> None:
        """Count one interval."""
        self.above += low > self.truth
        self.below += high < self.truth
        self.covering += low <= self.truth <= high
        self.width += high - low
        self.values.append(value)

    @property
    def share(self) -> float:
        """Of the intervals that hold the truth, percent."""
        return 100 * self.covering / len(self.values)

    def row(self, *names: str) -> str:
        """Return a line of the table."""
        count = len(self.values)
        return (
            f"| {' | '.join(names)} | {self.truth:.2f} | {self.share:.1f} | {self.above} | {self.below} | "
            f"{self.width / count:.2f} | {np.mean(self.values) - self.truth:+.2f} | {np.std(self.values):.2f} |"
        )


def gather_rows(offsets: NDArray[np.int64], positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Of rows that come by image, those of the images at `positions` (some repeatedly), and their new images."""
    blocks = [np.arange(offsets[p], offsets[p + 1]) for p in positions]
    counts = [len(block) for block in blocks]
    return np.concatenate(blocks), np.repeat(np.arange(len(positions)), counts).astype(np.int32)


def truths_of(dataset: Dataset, positions: NDArray[np.int64]) -> Truths:
    """Return the labels of some of the pool's images, each as often as it comes."""
    offsets = np.searchsorted(dataset.image_index, np.arange(len(dataset.images) + 1))
    rows, images = gather_rows(offsets, positions)
    return Truths.of(
        dataset.sizes[positions],
        len(dataset.categories),
        images,
        dataset.category[rows],
        dataset.box[rows],
        dataset.area[rows],
        dataset.crowd[rows],
    )


def detections_of(detections: Detections, positions: NDArray[np.int64]) -> Detections:
    """Return the detections in some of the pool's images."""
    rows, images = gather_rows(detections.offsets, positions)
    return Detections(len(positions), images, detections.category[rows], detections.score[rows], detections.box[rows])


@dataclass
class Simulation:
    """By metric: the value of every run; of all but the first the difference from the first, and agreement with it."""

    values: list[dict[str, Tally]]
    differences: list[dict[str, Tally]]
    agreements: list[dict[str, Tally]]


def simulate(dataset: Dataset, runs: list[Detections], images: int, data_sets: int, draws: int, seed: int) -> Simulation:
    """Intervals from so many images, for so many data sets."""
    all_images = np.arange(len(dataset.images))
    evaluator = CocoEvaluator(dataset)
    pool = [evaluator.evaluate(run, sizes=False).summary for run in runs]
    agreed = Agreement(runs[0], dataset.sizes, len(dataset.categories))
    tallies = Simulation(
        [{name: Tally(summary[name]) for name in METRICS} for summary in pool],
        [{name: Tally(summary[name] - pool[0][name]) for name in METRICS} for summary in pool[1:]],
        [agreement_tallies(agreed, run) for run in runs[1:]],
    )
    random = np.random.RandomState(seed)
    for number in range(data_sets):
        positions = random.randint(0, len(all_images), images)
        of_these = CocoEvaluator(truths_of(dataset, positions))
        drawn_runs = [detections_of(run, positions) for run in runs]
        results = [of_these.evaluate(detections, sizes=False) for detections in drawn_runs]
        weight = draw_images(images, draws, number)
        resampled_results = [bootstrap(result, weight) for result in results]
        for value, result, resampled in zip(tallies.values, results, resampled_results, strict=True):
            for name, tally in value.items():
                tally.add(result.summary[name], *value_interval(result.summary[name], resampled.summary[name]))
        for difference, result, resampled in zip(tallies.differences, results[1:], resampled_results[1:], strict=True):
            intervals = compare(results[0], resampled_results[0], result, resampled, per_class=False).metrics
            for name, tally in difference.items():
                tally.add(intervals[name].difference, intervals[name].low, intervals[name].high)
        agreement = Agreement(drawn_runs[0], dataset.sizes[positions], len(dataset.categories))
        for value, detections in zip(tallies.agreements, drawn_runs[1:], strict=True):
            resampled_pair = agreement.resampled(detections, weight)
            agreement_value, resampled = resampled_pair[0]
            value["AP"].add(
                agreement_value, *agreement_interval(agreement_value, resampled, resampled_results[0].summary["AP"])
            )
            for name, of_list in zip(LOSSES, resampled_pair, strict=True):
                loss = agreement_loss(*of_list, resampled_results[0].summary["AP"])
                if loss is not None:
                    value[name].add(loss.loss, 0.0, loss.bounds()[1])
    return tallies


def agreement_tallies(agreed: Agreement, run: Detections) -> dict[str, Tally]:
    """Of agreement, and of what it loses."""
    averaged, pooled = (value for value, _ in agreed.resampled(run, draw_images(run.image_count, 100)))
    return {"AP": Tally(averaged)} | {name: Tally(100 - value) for name, value in zip(LOSSES, (averaged, pooled), strict=True)}


def extremes(tallies: list[dict[str, Tally]]) -> str:
    """Lowest and highest share of each measure over the runs, cells of a table."""
    cells = []
    for name in (name for name in tallies[0] if name not in LOSSES):
        shares = [f"{tally[name].share:.0f}" for tally in sorted(tallies, key=lambda tally: tally[name].share)]
        cells.append(shares[0] if shares[0] == shares[-1] else f"{shares[0]} to {shares[-1]}")
    return " | ".join(cells + [""] * (len(METRICS) - len(cells)))


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN")
    parser.add_argument("--synthetic", type=int, metavar="CLASSES")
    parser.add_argument("--images", type=int, nargs="+", default=[50, 115])
    parser.add_argument("--data-sets", type=int, default=300)
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if bool(arguments.runs) == bool(arguments.synthetic):
        parser.error("finished runs, or --synthetic CLASSES")
    try:
        print_shares(arguments)
    except MpnetError as error:
        parser.exit(2, f"{error}\n")
    return 0


def print_shares(arguments: argparse.Namespace) -> None:
    """Both tables. Raises: MpnetError."""
    dataset, runs = pool(arguments.runs) if arguments.runs else make_synthetic_data(arguments.synthetic, 2000, arguments.seed)
    names, predictions = [name for name, _ in runs], [by_measure for _, by_measure in runs]
    labels = names + [f"{name} - {names[0]}" for name in names[1:]] + [f"{name}, agreement" for name in names[1:]]
    print("| images | of | measure | truth | holds it, % | above | below | width | bias | deviation |\n" + "|---" * 10 + "|")
    summary = []
    for images in arguments.images:
        tallies = simulate(dataset, predictions, images, arguments.data_sets, arguments.draws, arguments.seed)
        for label, by_measure in zip(labels, tallies.values + tallies.differences + tallies.agreements, strict=True):
            for name, tally in by_measure.items():
                print(tally.row(str(images), label, name), flush=True)
        for kind, some in (("value", tallies.values), ("difference", tallies.differences), ("agreement", tallies.agreements)):
            if some:
                summary.append(f"| {images} | {kind} | {extremes(some)} |")
            if kind == "agreement" and some:
                for name in LOSSES:
                    shares = [tally[name].share for tally in some]
                    summary.append(f"| {images} | {name} | {min(shares):.0f} to {max(shares):.0f} | | | |")
    print(f"\n| images | of | {' | '.join(METRICS)} |\n" + "|---" * 6 + "|\n" + "\n".join(summary))


def pool(folders: list[Path]) -> tuple[Dataset, list[tuple[str, Detections]]]:
    """Read the data set of finished runs, and the name and the detections of each. Raises: MpnetError."""
    results = [read_result(path) for path in folders]
    dataset = open_dataset(results[0].run.provenance)
    return dataset, [(result.name, kit_of(result.task).read(result.predictions_path, dataset)) for result in results]


if __name__ == "__main__":
    raise SystemExit(main())
