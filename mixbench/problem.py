# SPDX-License-Identifier: MIT
"""One problem: a network, images that choose and others that judge, and the measures of assignments.

They are of every assignment, of those that may be on the exact front, or, of a network too deep to list, of a sample.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mixbench.errors import BenchmarkError, require_mpnet
from mixbench.layer_figures import LayerFigures, read_layer_figures

FOLDER = Path(__file__).resolve().parent
TABLES = FOLDER / "tables"
QUALITY, COST = "agreement_AP", "bit_operations"
"""What the fronts of all problems are drawn over."""
CHOOSING = ("agreement_AP", "AP", "head_sqnr_db")
HELD_OUT_AGREEMENT = "held_out_agreement_AP"
COLUMNS = (*CHOOSING, HELD_OUT_AGREEMENT, "held_out_AP", COST)
"""Of a table, one row per assignment."""
MAX_SQNR_DB = 150.0
"""Decibels that stand for no error at all; as `mpnet.config.measures`."""
MAX_CONFIGURATIONS = 20_000_000
"""Assignments that are listed at once; as `mpnet.sweep.run`."""

Measure = Callable[[Sequence[str]], Sequence[Mapping[str, float]]]
"""Runs assignments: the columns of each key."""


class BudgetSpent(Exception):
    """A pass that the budget does not hold was asked for."""


@dataclass(eq=False)
class Problem:
    """The table of a problem, and what a method has asked of it.

    name:     of the file in mixbench/problems and mixbench/tables.
    layers:   the layers with weights, in a key's order. macs: of each, for one image.
    choices:  codes of each layer, highest precision first; a key has one of them for each layer.
    columns:  (n,) float64 by name, in the order of `keys`. Of a front, all but the costs are NaN where images ruled an
              assignment out before all of them had seen it; of a sample, where nobody has measured it yet.
    metadata: what was measured on what, and for methods that need them the layers' Hessian traces and weight errors; of a
              front, how many were measured and ruled out; of a front and a sample the bit operations of each layer by code.
    digest:   SHA-256 of the table's file.
    budget:   passes that may be spent; math.inf: any number.
    measure:  runs what the columns lack, None: asking for that raises BenchmarkError.
    path:     of the table's file, beside which figures of its layers may lie.
    rows:     of a sample the row of each assignment that has one, which grows with what is asked for; None: all have one.
    asked:    keys in the order of asking, each once. spent: (keys asked before, passes, what for) of other passes.
    sensitivities: of a method that ranks layers, see `rank_layers`.
    """

    name: str
    layers: tuple[str, ...]
    macs: tuple[int, ...]
    choices: tuple[str, ...]
    columns: dict[str, NDArray[np.float64]]
    metadata: Mapping[str, Any]
    digest: str
    budget: float = math.inf
    measure: Measure | None = None
    rows: dict[str, int] | None = None
    path: Path | None = None
    asked: dict[str, None] = field(default_factory=dict)
    spent: list[tuple[int, int, str]] = field(default_factory=list)
    sensitivities: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        sizes = [len(codes) for codes in self.choices]
        self._strides = [math.prod(sizes[number + 1 :]) for number in range(len(sizes))]

    @property
    def size(self) -> int:
        """How many assignments there are."""
        return math.prod(len(codes) for codes in self.choices)

    @property
    def is_front(self) -> bool:
        """Whether only what may be on the exact front has all its figures."""
        return "front" in self.metadata

    @property
    def is_sample(self) -> bool:
        """Whether there are too many assignments to list, so that only some of them have rows."""
        return self.rows is not None

    @property
    def is_complete(self) -> bool:
        """Whether every assignment has figures."""
        return not (self.is_front or self.is_sample)

    @property
    def keys(self) -> list[str]:
        """All assignments that have rows, in the table's order."""
        return list(self.rows) if self.rows is not None else ["".join(codes) for codes in product(*self.choices)]

    @property
    def highest(self) -> str:
        """Every layer at its highest precision: what agreement is with."""
        return "".join(codes[0] for codes in self.choices)

    @property
    def lowest(self) -> str:
        """Every layer at its lowest precision."""
        return "".join(codes[-1] for codes in self.choices)

    def single(self, layer: int, step: int = -1) -> str:
        """Return all layers at the highest precision but one, which has the code number `step` of its own."""
        return self.highest[:layer] + self.choices[layer][step] + self.highest[layer + 1 :]

    def number(self, key: str) -> int:
        """Return the row of a key; in a sample it is added if missing. Raises: BenchmarkError for a key of another space."""
        if not isinstance(key, str) or len(key) != len(self.choices):
            raise BenchmarkError(f"{self.name}: {str(key)[:40]!r} is no assignment of {len(self.choices)} layers")
        if self.rows is not None and key in self.rows:
            return self.rows[key]
        try:
            row = sum(codes.index(code) * stride for code, codes, stride in zip(key, self.choices, self._strides, strict=True))
        except ValueError:
            raise BenchmarkError(
                f"{self.name}: {key!r} has a code that its layers may not have: {', '.join(self.choices)}"
            ) from None
        return row if self.rows is None else self._add_row(key, self.rows)

    def _value(self, name: str, key: str) -> float:
        row = self.number(key)  # which may add a row to all columns
        return float(self.columns[name][row])

    def _add_row(self, key: str, rows: dict[str, int]) -> int:
        """Give an assignment of a sample a row, of which only the cost is known."""
        cost = key_cost(key, self.metadata["layer_costs"])
        for name, column in self.columns.items():
            self.columns[name] = np.append(column, cost if name == COST else np.nan)
        rows[key] = len(rows)
        return rows[key]

    @property
    def passes(self) -> int:
        """What was spent: one for each assignment that was asked for, and what else the method needed."""
        return len(self.asked) + sum(passes for _, passes, _ in self.spent)

    def evaluate(self, key: str) -> dict[str, float]:
        """Measure an assignment on the images that choose. The first time it costs one pass over them.

        Raises: BudgetSpent; BenchmarkError for a key of another space, or as `complete`.
        """
        row = self.number(key)
        if key not in self.asked:
            self._pay(1)
            self.complete([key])
            self.asked[key] = None
        return {name: float(self.columns[name][row]) for name in CHOOSING}

    def complete(self, keys: Sequence[str]) -> None:
        """Run those that have no figures. Raises: BenchmarkError where nothing runs them, or where running fails."""
        missing_keys = [key for key in dict.fromkeys(keys) if math.isnan(self._value(QUALITY, key))]
        if not missing_keys:
            return
        if self.measure is None:
            raise BenchmarkError(
                f"{self.name}: {missing_keys[0]} is not {'in the sample' if self.is_sample else 'on the front'}, so the table "
                "has no figures of it; with --measure "
                "(in Python: mixbench.measure.load_measured) it runs on the problem's images"
            )
        for key, values in zip(missing_keys, self.measure(missing_keys), strict=True):
            for name, column in self.columns.items():
                column[self.number(key)] = values[name]

    def prepare(self, keys: Sequence[str]) -> None:
        """Run together what will be asked for and has no figures, as far as the budget reaches: beginnings are then shared.

        It costs no pass, as `evaluate` pays for each. Nothing happens where nothing runs assignments. Raises: BenchmarkError.
        """
        if self.measure is not None:
            unasked = [key for key in dict.fromkeys(keys) if key not in self.asked]
            remaining = self.budget - self.passes
            self.complete(unasked if remaining >= len(unasked) else unasked[: int(remaining)])

    def quality(self, key: str) -> float:
        """Agreement with the highest precision, 0 to 100, on the images that choose; as `evaluate`."""
        return self.evaluate(key)[QUALITY]

    def head_error(self, key: str) -> float:
        """Squared error of the heads over their squared size, on the images that choose; as `evaluate`."""
        decibels = self.evaluate(key)["head_sqnr_db"]
        return 0.0 if decibels >= MAX_SQNR_DB else float(10 ** (-decibels / 10))

    def layer_figures(self) -> LayerFigures:
        """Return what lies beside the table about single layers; costs nothing, see `spend`. Raises: BenchmarkError."""
        if self.path is None:
            raise BenchmarkError(f"{self.name}: was not read from a file, beside which the figures of its layers would lie")
        return read_layer_figures(self.path, self.metadata, self.choices)

    def cost(self, key: str) -> float:
        """Bit operations of one image; free, as it follows from the key."""
        return self._value(COST, key)

    def costs(self) -> NDArray[np.float64]:
        """(n,) of the assignments, in the order of `keys`."""
        return self.columns[COST]

    def lowered(self) -> NDArray[np.intp]:
        """(size, layers): by how many steps each layer of each assignment is lowered; of no sample."""
        return np.stack(np.unravel_index(np.arange(self.size), [len(codes) for codes in self.choices]), axis=1)

    def spend(self, passes: int, reason: str) -> None:
        """Pay for what is no assignment, such as a Hessian. Raises: BudgetSpent."""
        self._pay(passes)
        self.spent.append((len(self.asked), passes, reason))

    def rank_layers(self, sensitivities: Sequence[float]) -> None:
        """Say how a method ranks the layers, for the figures of ranks; it changes nothing else.

        sensitivities: one per layer, what the method expects to be lost where that layer has its lowest precision, in any
                       unit; 0: nothing.
        Raises: BenchmarkError for another number of them, or for one that is not finite.
        """
        if len(sensitivities) != len(self.layers) or not all(map(math.isfinite, sensitivities)):
            raise BenchmarkError(f"{self.name}: a ranking has one finite sensitivity for each of {len(self.layers)} layers")
        self.sensitivities = tuple(map(float, sensitivities))

    def _pay(self, passes: int) -> None:
        if self.passes + passes > self.budget:
            raise BudgetSpent(f"{self.name}: the budget of {self.budget:,.0f} passes is spent")


def problem_names() -> list[str]:
    """List the problems that have a table."""
    return sorted(path.stem for path in TABLES.glob("*.npz"))


def load_problem(name: str, budget: float = math.inf) -> Problem:
    """Load a problem by name, of which nothing was asked yet. Raises: BenchmarkError for an unknown name or a damaged table."""
    path = TABLES / f"{name}.npz"
    if name not in problem_names():
        raise BenchmarkError(f"{name}: no problem of this name has a table; there are {', '.join(problem_names())}")
    return read_table(path, budget)


def loader_of(is_measured: bool) -> Callable[[str, float], Problem]:
    """Return what loads a problem; is_measured: what its table lacks runs on its images.

    Raises: BenchmarkError where that is asked for and mpnet, which runs it, is not there.
    """
    if not is_measured:
        return load_problem
    require_mpnet("--measure")
    from mixbench.measure import load_measured  # needs mpnet

    return load_measured


def read_table(path: Path, budget: float = math.inf) -> Problem:
    """Read a problem from its table's file. Raises: BenchmarkError."""
    content = path.read_bytes()
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            metadata = json.loads(str(file["metadata"]))
            layers, macs = tuple(metadata["layers"]), tuple(map(int, metadata["macs"]))
            choices = tuple(map(str, metadata["choices"]))
            columns = {name: np.asarray(file[name], dtype=np.float64) for name in COLUMNS if name in file or name != COST}
            rows = None
            if "front" in metadata:
                columns = spread_columns(columns, file["rows"], choices, metadata["layer_costs"])
            elif "keys" in file:
                sampled_keys = [key.decode("ascii") for key in file["keys"].tolist()]
                rows = {key: row for row, key in enumerate(sampled_keys)}
                columns[COST] = np.array([key_cost(key, metadata["layer_costs"]) for key in sampled_keys], np.float64)
    except (ValueError, IndexError, KeyError, TypeError, OSError, EOFError, zipfile.BadZipFile, NotImplementedError) as error:
        raise BenchmarkError(f"{path}: is no table of mixbench, or a damaged one ({error}); make it anew") from None
    digest = hashlib.sha256(content).hexdigest()
    problem = Problem(path.stem, layers, macs, choices, columns, metadata, digest, budget, rows=rows, path=path)
    row_count = problem.size if rows is None else len(rows)
    if not len(layers) == len(macs) == len(choices) or any(len(column) != row_count for column in columns.values()):
        raise BenchmarkError(f"{path}: has not one row for each of {row_count:,} assignments; make it anew")
    return problem


def key_cost(key: str, layer_costs: Sequence[Mapping[str, int]]) -> float:
    """Return the bit operations of an assignment, a sum over its layers."""
    return float(sum(costs[code] for code, costs in zip(key, layer_costs, strict=True)))


def spread_columns(
    columns: Mapping[str, NDArray[np.float64]],
    rows: NDArray[np.int32],
    choices: Sequence[str],
    layer_costs: Sequence[Mapping[str, int]],
) -> dict[str, NDArray[np.float64]]:
    """Return the columns of some rows, rising, as columns of all, and the costs of all, which are sums over layers."""
    if math.prod(map(len, choices)) > MAX_CONFIGURATIONS:
        raise ValueError("too many assignments")
    costs = np.zeros(1)
    for codes, of_layer in zip(choices, layer_costs, strict=True):
        costs = np.add.outer(costs, [float(of_layer[code]) for code in codes]).ravel()
    all_columns = {COST: costs}
    for name, values in columns.items():
        all_columns[name] = np.full(len(costs), np.nan)
        all_columns[name][rows] = values
    return all_columns


def points(problem: Problem, keys: Sequence[str], quality: str = QUALITY) -> NDArray[np.float64]:
    """(n, 2) of quality and cost of assignments, for scorers: costs nothing."""
    rows = [problem.number(key) for key in keys]
    return np.column_stack([problem.columns[quality][rows], problem.columns[COST][rows]])
