# SPDX-License-Identifier: MIT
"""`mpnet list`: which results and sweeps there are, and how they are named."""

from __future__ import annotations

from pathlib import Path

import click

from mpnet.cli.options import PATH, declare
from mpnet.cli.output import print_result
from mpnet.config.experiment import DEFAULT_OUTPUT
from mpnet.errors import StoreError
from mpnet.report.text.inventory import print_inventory
from mpnet.resolve.inventory import inventory


@declare("mpnet list", "mpnet list runs/demo --json", quiet=False)
@click.argument("folder", type=PATH, default=DEFAULT_OUTPUT)
def command(folder: Path, as_json: bool) -> None:
    """List the results and sweeps below FOLDER (runs/), sweeps with their strategies, holdouts and options.

    Other commands take what is listed as it stands here. Columns for which there is no room are in --json.
    """
    if not folder.is_dir():
        raise StoreError(f"{folder}: no such folder; name one that `mpnet run` or `mpnet sweep` wrote to")
    document = inventory(folder)
    print_result(document, as_json, print_inventory)
