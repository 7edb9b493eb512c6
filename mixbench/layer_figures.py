# SPDX-License-Identifier: MIT
"""Figures of single layers that lie beside a table, as JSON: KL divergences at the heads, and the sizes of each operator.

{"format": "mixbench-layers", "version": 1, "passes": N, "contexts": SHA-256 of the table's contexts,
 "layers": [{"divergences": {code: KL}, "operators": [[macs, parameters, inputs, outputs], ...]}, ...]}  # by variable of a key
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping, Sequence

from mixbench.errors import BenchmarkError
from mixbench.files import write_text

FORMAT, VERSION = "mixbench-layers", 1


@dataclass(frozen=True)
class Operator:
    """One layer with weights, for one image. inputs, outputs: numbers that it reads and writes; parameters: its weights."""

    macs: int
    parameters: int
    inputs: int
    outputs: int


@dataclass(frozen=True)
class LayerFigures:
    """Figures by variable of a problem's keys.

    divergences: by each code but the highest, the KL divergence at the heads where this variable alone has it
                 (mixbench.divergence). operators: its layers. passes: what measuring the divergences takes.
    """

    divergences: tuple[Mapping[str, float], ...]
    operators: tuple[tuple[Operator, ...], ...]
    passes: int


def figures_path(table: Path) -> Path:
    """Return where the figures of a table's layers lie."""
    return table.with_suffix(".layers.json")


def write_layer_figures(figures: LayerFigures, table: Path, metadata: Mapping[str, Any]) -> None:
    """Write them beside the table. Raises: BenchmarkError."""
    rows = [
        f"  {json.dumps({'divergences': by_code, 'operators': [list(vars(operator).values()) for operator in operators]})}"
        for by_code, operators in zip(figures.divergences, figures.operators, strict=True)
    ]
    head = {"format": FORMAT, "version": VERSION, "passes": figures.passes, "contexts": _digest(metadata)}
    text = json.dumps(head)[:-1] + ', "layers": [\n' + ",\n".join(rows) + "\n]}\n"
    write_text(figures_path(table), text)


def read_layer_figures(table: Path, metadata: Mapping[str, Any], choices: Sequence[str]) -> LayerFigures:
    """Read those beside a table. choices: codes of each variable.

    Raises: BenchmarkError where there are none, or those of other images, options or layers.
    """
    path = figures_path(table)
    remedy = f"python -m mixbench.table layers {table.stem} writes it"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if (document["format"], document["version"]) != (FORMAT, VERSION):
            raise ValueError("another format")
        divergences = tuple({str(code): float(x) for code, x in row["divergences"].items()} for row in document["layers"])
        passes = int(document["passes"])
        operators = tuple(tuple(Operator(*map(int, sizes)) for sizes in row["operators"]) for row in document["layers"])
    except FileNotFoundError:
        raise BenchmarkError(f"{path}: is missing; {remedy}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BenchmarkError(f"{path}: cannot be read ({error}); {remedy}") from None
    is_of_table = document.get("contexts") == _digest(metadata)
    if not is_of_table or [set(row) for row in divergences] != [set(codes[1:]) for codes in choices]:
        raise BenchmarkError(f"{path}: is of other images, options or layers than the table; {remedy}")
    if passes < 0 or not all(math.isfinite(divergence) for row in divergences for divergence in row.values()):
        raise BenchmarkError(f"{path}: has a divergence that is not finite, or passes below 0; {remedy}")
    return LayerFigures(divergences, operators, passes)


def _digest(metadata: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(metadata["contexts"], sort_keys=True).encode()).hexdigest()
