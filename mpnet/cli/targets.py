# SPDX-License-Identifier: MIT
"""`mpnet targets`: what can be exported to what."""

from __future__ import annotations

from typing import Any

from mpnet.backends import backends
from mpnet.cli.options import declare
from mpnet.cli.output import console, print_json
from mpnet.export import targets
from mpnet.export.table import columns, support_table
from mpnet.packages import version_of
from mpnet.report.terminal import print_table


@declare("mpnet targets", "mpnet targets --json", quiet=False)
def command(as_json: bool) -> None:
    """Show which operation each target of `mpnet export` can express at which precision, and why not.

    Below: the engines of `mpnet run --engine`, the quantisation mode that matches each, and whether it is installed.
    """
    known = targets()
    rows, names = support_table(known), list(columns(known))
    engines: dict[str, dict[str, Any]] = {
        name: {
            "what": row.what,
            "target": row.target,
            "flavour": row.flavour,
            "mode": dict(row.mode),
            "packages": {package.partition(">=")[0]: version_of(package.partition(">=")[0]) for package in row.packages},
            "extra": row.extra,
        }
        for name, row in backends().items()
    }
    if as_json:
        print_json(
            {
                "targets": {
                    name: {
                        "what": row.what,
                        "suffix": row.suffix,
                        "flavours": list(row.flavours),
                        "options": [option.name for option in row.options],
                    }
                    for name, row in known.items()
                },
                "support": [row.__dict__ for row in rows],
                "engines": engines,
            }
        )
        return
    reasons = list(dict.fromkeys(reason for row in rows for reason in row.reasons.values() if reason))
    table: list[list[str]] = []
    last = ""
    for row in rows:
        cells = ["yes" if not row.reasons[name] else f"no ({reasons.index(row.reasons[name]) + 1})" for name in names]
        table.append(["" if row.operation == last else row.operation, row.precision, *cells])
        last = row.operation
    out = console()
    headings = ("operation", "precision", *(name.replace("/", " ") for name in names))
    print_table(out, headings, table, left=range(len(headings)), keys=2, fold=())
    for number, reason in enumerate(reasons, 1):
        out.print(f"({number}) {reason}")
    for name, engine in engines.items():
        there = ", ".join(f"{package} {version or 'not installed'}" for package, version in engine["packages"].items())
        out.print(
            f"engine {name}: {engine['what']}; runs {engine['target']}"
            f"{'/' + engine['flavour'] if engine['flavour'] else ''}; {there or 'nothing to install'}"
        )
