# SPDX-License-Identifier: MIT
"""Tables of export targets: what can be written, and which operations each target can express at which precision."""

from __future__ import annotations

from typing import Mapping, Sequence

from rich.console import Console

from mpnet.config.target_file import TargetFile
from mpnet.export import Target, columns
from mpnet.export.table import Row
from mpnet.formats.documents.experiment_writer import format_flow, quantization_keys
from mpnet.model.precision import USUAL_NAMES
from mpnet.report.text.terminal import print_table


def print_targets(targets: Mapping[str, Target], rows: Sequence[Row], console: Console) -> None:
    """Print a line for each target and flavour: how many rows of the table it can express at the usual precisions."""
    reasons = {precision: [row.reasons for row in rows if row.precision == precision] for precision in USUAL_NAMES}

    def cells(column: str) -> list[str]:
        return [f"{sum(not of_row[column] for of_row in of_rows)} of {len(of_rows)}" for of_rows in reasons.values()]

    lines = [(column, target.suffix, *cells(column)) for column, (target, _) in columns(targets).items()]
    title = "What can be written, and how many operations at each precision"
    print_table(console, ("target", "suffix", *reasons), lines, title, left=(0, 1))


def print_target_files(files: Sequence[TargetFile], console: Console) -> None:
    """Print a line for each target file: what it is of, and which precisions layers may have there."""
    lines = [(file.name, file.what, ", ".join(file.precisions), file.export) for file in files]
    title = "What mpnet init --target takes: programs, and families of chips by their compilers"
    print_table(console, ("target file", "of", "precisions", "written by"), lines, title, left=range(4))


def print_target_file(file: TargetFile, console: Console) -> None:
    """Print all that a target file says, a line each."""
    scheme = format_flow(quantization_keys(file.quantization))
    facts = {
        "precisions": ", ".join(file.precisions),
        "written by": f"mpnet export --to {file.export}" if file.export else "",
        "quantization": "" if scheme == "{}" else scheme,
        "layers": "; ".join(f"{word}: {', '.join(names)}" for word, names in file.layers),
        "one precision": ", ".join(file.one_precision),
        "on the CPU": ", ".join(file.on_cpu),
        f"read {file.read}": " ".join(file.sources),
    }
    console.print(f"{file.name}: {file.what}", soft_wrap=True, markup=False)
    for name, fact in facts.items():
        if fact:
            console.print(f"  {name}: {fact}", soft_wrap=True, markup=False)
    for note in file.notes:
        console.print(f"  {note}", soft_wrap=True, markup=False)


def print_operations(rows: Sequence[Row], names: Sequence[str], console: Console) -> None:
    """Print which operation these columns can express at which precision, and below the reasons why they cannot."""
    reasons = list(dict.fromkeys(row.reasons[name] for row in rows for name in names if row.reasons[name]))
    table: list[list[str]] = []
    previous = ""
    for row in rows:
        cells = ["yes" if not row.reasons[name] else f"no ({reasons.index(row.reasons[name]) + 1})" for name in names]
        table.append(["" if row.operation == previous else row.operation, row.precision, *cells])
        previous = row.operation
    headings = ("operation", "precision", *(name.replace("/", " ") for name in names))
    print_table(console, headings, table, left=range(len(headings)), keys=2, fold=())
    for number, reason in enumerate(reasons, 1):
        console.print(f"({number}) {reason}")
