# SPDX-License-Identifier: MIT
"""Do two disjoint halves of the images name the same layers? All int8, with a layer of the body, the heads, or both raised.

    python benchmarks/halves.py forward EXPERIMENT.yaml POOL/ [--raise fp16] [--seconds 300]
    python benchmarks/halves.py table POOL/... [--splits 5] [--unlabelled] [--pair KEY KEY]

`forward` keeps in POOL/ what every configuration finds, a file for each 32 images; the same command goes on where it was.
Configurations share what they have in common, as in a sweep. `table` runs no network: it splits the images at random, those
with labels and those without apart, and says of each half which layers the fronts of agreement and bit operations raise when
its images are drawn again, what raising one layer gains, and how far the halves order all layers alike (Kendall's tau).
Intervals are of 95 %, paired over all images, as `mpnet compare` computes them.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.api import open_workbench, read_experiment
from mpnet.data.detections import Detections
from mpnet.detection.preprocess import geometry_array
from mpnet.engine.assign import assign_key
from mpnet.engine.cost import plan_cost
from mpnet.evaluation.agreement import Agreement
from mpnet.evaluation.compare import draw_images
from mpnet.evaluation.intervals import Resampled, agreement_interval, difference_interval
from mpnet.model.precision import PRECISIONS
from mpnet.model.selectors import select_layers
from mpnet.sweep.evaluate.context import SweepContext
from mpnet.sweep.evaluate.shared_passes import SharedPasses
from mpnet.sweep.problem.front import non_dominated
from mpnet.trial.setup import CalibratedOptions
from mpnet.trial.workbench import Workbench

IMAGES_AT_ONCE, DRAWS = 32, 100
MOST_LAYERS, MOST_CONFIGURATIONS = 16, 24
Floats = NDArray[np.float64]


def raised_keys(bench: Workbench, heads: Sequence[int], code: str) -> list[str]:
    """fp32, all raised, all int8; one layer of the body raised or none, with the heads raised and without; each head alone."""
    layers = bench.network.convolutions
    body = [[position] for position in range(len(layers)) if position not in heads]
    sets = [[], [*heads], *([head] for head in heads), *body, *([*layers, *heads] for layers in body)]
    mixed = ["".join(code if position in raised else "q" for position in range(len(layers))) for raised in sets]
    return list(dict.fromkeys(["f" * len(layers), code * len(layers), *mixed]))


def find_all(bench: Workbench, keys: Sequence[str]) -> list[Detections]:
    """Find objects with each configuration in all images of the bench."""
    batches = list(bench.inputs.batches(4))
    context = SweepContext(
        network=bench.network,
        options=(CalibratedOptions(bench.weights, bench.options),),
        unweighted={},
        decoder=bench.decoder,
        dataset=bench.dataset,
        images=np.concatenate([batch.x for batch in batches]),
        geometry=geometry_array([position for batch in batches for position in batch.geometry]),
        select=np.arange(len(bench.dataset.images)),
        report=np.zeros(0, np.intp),
        requested_measures=(),
        isa="auto",
        threads=1,
        group=8,
    )
    passes = SharedPasses(context)
    graph = passes.graph(0, keys)
    outputs = passes.forward(graph, 0, context.select).decoded
    names_of_keys = [graph.head_names(key) for key in keys]
    return [bench.decoder.predictions([outputs[i][name] for i, name in enumerate(names)]) for names in names_of_keys]


def forward(experiment: Path, pool: Path, raised: str, seconds: float) -> None:
    """Run what is left for about so many seconds."""
    begin = time.monotonic()
    bench = open_workbench(read_experiment(experiment))
    layers = [layer.index for layer in bench.network.convolutions]
    heads = [layers.index(index) for index in select_layers(bench.network, "heads")]
    keys = raised_keys(bench, heads, PRECISIONS[raised].code)
    pool.mkdir(parents=True, exist_ok=True)
    document = {
        "costs": {key: plan_cost(bench.plan(assign_key(bench.network, key)))["bit_operations"] for key in keys},
        "layers": [layer.name for layer in bench.network.convolutions],
        "heads": heads,
        "labelled": bench.dataset.labelled_count,
        "sizes": bench.dataset.sizes.tolist(),
        "categories": len(bench.dataset.categories),
    }
    (pool / "pool.json").write_text(json.dumps(document, indent=1), encoding="utf-8")
    images = len(bench.dataset.images)
    for start in range(0, images, IMAGES_AT_ONCE):
        path = pool / f"{start:05d}.npz"
        if path.is_file() or time.monotonic() - begin > seconds:
            continue
        positions = range(start, min(start + IMAGES_AT_ONCE, images))
        predictions = find_all(bench.of_images(positions), keys)
        columns = {
            name: np.concatenate([getattr(detections, name) for detections in predictions])
            for name in ("category", "score", "box")
        }
        index = np.concatenate([detections.image_index for detections in predictions]) + start
        np.savez_compressed(path, image_index=index, count=[len(detections) for detections in predictions], **columns)
        print(f"{pool.name}: images up to {positions[-1] + 1} of {images}, {time.monotonic() - begin:.0f} s", flush=True)


@dataclass(frozen=True, eq=False)
class Pool:
    """What every configuration finds, by key; the first is fp32.

    heads: positions of their layers; labelled: the first so many
    images have labels; costs: bit operations by key.
    """

    layers: tuple[str, ...]
    heads: frozenset[int]
    labelled: int
    sizes: NDArray[np.float32]
    categories: int
    costs: Mapping[str, float]
    predictions: Mapping[str, Detections]

    @staticmethod
    def read(folder: Path) -> Pool:
        """Read what `forward` kept so far: the images of all files before the first that is missing."""
        document = json.loads((folder / "pool.json").read_text(encoding="utf-8"))
        columns: dict[str, dict[str, list[NDArray[np.generic]]]] = {key: {} for key in document["costs"]}
        images = 0
        while (path := folder / f"{images:05d}.npz").is_file():
            images = min(images + IMAGES_AT_ONCE, len(document["sizes"]))
            with np.load(path) as arrays:
                ends = np.cumsum(arrays["count"])[:-1]
                for name in ("image_index", "category", "score", "box"):
                    for of_key, values in zip(columns.values(), np.split(arrays[name], ends), strict=True):
                        of_key.setdefault(name, []).append(values)
        predictions = {
            key: Detections(images, **{name: np.concatenate(pieces) for name, pieces in of_key.items()})
            for key, of_key in columns.items()
        }
        sizes = np.array(document["sizes"], np.float32)[:images]
        layers, heads = tuple(document["layers"]), frozenset(document["heads"])
        return Pool(layers, heads, document["labelled"], sizes, document["categories"], document["costs"], predictions)

    def draw_halves(self, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Positions of two disjoint halves, drawn among images with labels and without apart."""
        order = np.random.RandomState(seed).permutation(len(self.sizes))
        order = np.concatenate([order[order < self.labelled], order[order >= self.labelled]])
        return np.sort(order[::2]), np.sort(order[1::2])


@dataclass(frozen=True, eq=False)
class View:
    """What some images say of each layer.

    named: the share of the configurations on the fronts of all draws that raise it,
    percent; alone, beside_heads: points of agreement that raising it gains over all int8, over int8 with the heads raised;
    agreement: of every configuration, percent and on resampled images; raised: the key with some layers raised.
    """

    front_shares: Floats
    alone: Floats
    beside_heads: Floats
    agreement: Mapping[str, tuple[float, Resampled]]
    raised: Callable[..., str]

    def gain(self, key: str, reference_key: str) -> str:
        """Points of agreement by which one configuration is above another, with their paired interval."""
        (value, resampled), (reference_value, reference_resampled) = self.agreement[key], self.agreement[reference_key]
        low, high = difference_interval(value - reference_value, reference_resampled, resampled)
        return f"{value - reference_value:+.2f} ({low:+.2f} to {high:+.2f})"


def view_of(pool: Pool, positions: NDArray[np.intp]) -> View:
    """Measure all configurations on the images at these positions, and on the same images drawn again."""
    count = len(pool.layers)
    [code] = {code for key in pool.predictions for code in key if len({*key}) == 2} - {"q"}

    def key_of(*raised: int) -> str:
        return "".join(code if position in raised else "q" for position in range(count))

    baseline, *keys = pool.predictions
    agreement = Agreement(pool.predictions[baseline].of_images(positions), pool.sizes[positions], pool.categories)
    weight = draw_images(len(positions), DRAWS)
    agreements = {key: agreement.resampled(pool.predictions[key].of_images(positions), weight)[0] for key in keys}
    values = {key: value for key, (value, _) in agreements.items()}
    drawn_agreements = np.array([resampled.drawn for _, resampled in agreements.values()])
    costs = np.array([pool.costs[key] for key in keys])
    raised = np.array([[code != "q" for code in key] for key in keys])
    front_shares = np.zeros(count)
    for of_draw in drawn_agreements.T:
        front = [index for index in non_dominated(np.stack([costs, -of_draw], axis=1)) if 0 < raised[index].sum() < count]
        front_shares += 100 / DRAWS * raised[front].mean(axis=0) if front else 0
    alone = np.array([values[key_of(layer)] for layer in range(count)]) - values[key_of()]
    gains_beside_heads = np.array([values[key_of(layer, *pool.heads)] for layer in range(count)]) - values[key_of(*pool.heads)]
    return View(front_shares, alone, gains_beside_heads, agreements, key_of)


def kendall(values: Floats, other_values: Floats) -> float:
    """Kendall's tau-b of two orders: 1 where all pairs are ordered alike, -1 where all are reversed; ties count half."""
    pairs = np.triu_indices(len(values), 1)
    signs, other_signs = (np.sign(numbers[:, None] - numbers[None, :])[pairs] for numbers in (values, other_values))
    return float((signs * other_signs).sum() / np.sqrt((signs != 0).sum() * (other_signs != 0).sum()))


def table(folder: Path, splits: int, unlabelled: bool, pair: Sequence[str]) -> None:
    """All images or those without labels, then each split, a row a half. pair: two keys, whose difference is printed alone."""
    pool = Pool.read(folder)
    everything = view_of(pool, np.arange(pool.labelled if unlabelled else 0, len(pool.sizes)))
    if pair:
        for key in pair:
            print(f"`{key}` {everything.agreement[key][0]:.2f}")
        print(f"the first above the second: {everything.gain(*pair)}")
        return
    print(f"\n{folder.name}: {len(pool.sizes)} images, {min(pool.labelled, len(pool.sizes))} with labels")
    int8, heads = everything.raised(), everything.raised(*pool.heads)
    print("| layer | named by fronts, % | gains alone | gains beside the heads |\n|---|---|---|---|")
    for layer in np.argsort(-everything.front_shares, kind="stable")[:MOST_LAYERS]:
        gain_beside_heads = "" if layer in pool.heads else everything.gain(everything.raised(layer, *pool.heads), heads)
        alone = everything.gain(everything.raised(layer), int8)
        print(f"| {pool.layers[layer]} | {everything.front_shares[layer]:.1f} | {alone} | {gain_beside_heads} |")
    print(f"| heads | | {everything.gain(heads, int8)} | |\n\n| configuration | agreement |\n|---|---|")
    best = sorted(everything.agreement, key=lambda key: -everything.agreement[key][0])[:MOST_CONFIGURATIONS]
    for key in dict.fromkeys([*best, int8]):
        value, resampled = everything.agreement[key]
        low, high = agreement_interval(value, resampled, None)
        print(f"| `{key}` | {value:.2f} ({low:.2f} to {high:.2f}) |")
    headings = (
        "split",
        "named most often",
        "tau: named",
        "gains alone",
        "gains beside the heads",
        "agreement of all configurations",
    )
    print(f"\n| {' | '.join(headings)} |\n|{'---|' * len(headings)}")
    body = [layer for layer in range(len(pool.layers)) if layer not in pool.heads]
    for seed in range(splits):
        half, other_half = (view_of(pool, positions) for positions in pool.draw_halves(seed))
        leaders = [f"{pool.layers[np.argmax(v.front_shares)]} {v.front_shares.max():.1f}" for v in (half, other_half)]
        taus = [
            kendall(half.front_shares, other_half.front_shares),
            kendall(half.alone, other_half.alone),
            kendall(half.beside_heads[body], other_half.beside_heads[body]),
            kendall(*(np.array([value for value, _ in v.agreement.values()]) for v in (half, other_half))),
        ]
        print(f"| {seed} | {', '.join(leaders)} | {' | '.join(f'{tau:.2f}' for tau in taus)} |", flush=True)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    forward_parser = commands.add_parser("forward")
    forward_parser.add_argument("experiment", type=Path)
    forward_parser.add_argument("pool", type=Path)
    forward_parser.add_argument("--raise", dest="raised", default="fp16")
    forward_parser.add_argument("--seconds", type=float, default=1e9)
    tables = commands.add_parser("table")
    tables.add_argument("pools", type=Path, nargs="+")
    tables.add_argument("--splits", type=int, default=1)
    tables.add_argument("--unlabelled", action="store_true", help="the images without labels alone")
    tables.add_argument("--pair", nargs=2, default=(), metavar="KEY", help="the paired difference of two configurations")
    arguments = parser.parse_args()
    if arguments.command == "forward":
        forward(arguments.experiment, arguments.pool, arguments.raised, arguments.seconds)
        return
    for folder in arguments.pools:
        table(folder, arguments.splits, arguments.unlabelled, arguments.pair)


if __name__ == "__main__":
    main()
