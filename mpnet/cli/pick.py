# SPDX-License-Identifier: MIT
"""`mpnet pick`: the configuration of a sweep that fits budgets, without another pass."""

from __future__ import annotations

from pathlib import Path

import click

from mpnet.cli.options import budget_options, budgets_of, declare
from mpnet.cli.output import NOT_SHOWN, print_result
from mpnet.errors import ConfigError, StoreError
from mpnet.formats.documents import typed
from mpnet.report.text.pick import print_pick
from mpnet.resolve.pick import pick_by_budgets
from mpnet.sweep.store.latest import store_at

NOTHING_FITS = 1
"""Exit status where no configuration keeps the budgets."""


@declare(
    "mpnet pick runs/demo --max-loss '1 agreement'",
    "mpnet pick runs/demo --max-loss '2 agreement, 0.5 AP' --max-bytes 600kB --json",
    quiet=False,
)
@click.argument("store")
@budget_options
@click.option("--require-shown", is_flag=True, help="Exit with 4 unless the pick is shown to keep --max-loss.")
@click.option(
    "--sweep", "number", type=click.IntRange(1), metavar="N", help="Which of the store's sweeps.  [default: the last]"
)
def command(
    store: str,
    max_loss: str | None,
    max_time: str | None,
    max_bytes: str | None,
    require_shown: bool,
    number: int | None,
    as_json: bool,
) -> None:
    """Pick the configuration of a sweep's STORE that fits budgets, from what is measured already.

    With --max-loss it is the cheapest that keeps all budgets, without it the most accurate one. It is printed with its
    runner-up, and with what the next looser and the next tighter amount of each budget would give. STORE is a file, or the
    folder of a sweep. Exit status 1: nothing keeps the budgets; 4, with --require-shown: what is picked keeps --max-loss on
    the images at hand, and no test shows that it does on others.
    """
    if require_shown and max_loss is None:
        raise ConfigError("--require-shown: name the loss that is to be shown with --max-loss")
    path = store_at(Path(store))
    if path is None:
        raise StoreError(f"{store}: is no store of a sweep; name the .sqlite file that `mpnet sweep` wrote, or its folder")
    budgets = budgets_of(max_loss, max_time, max_bytes)
    outcome = pick_by_budgets(path, number, budgets)
    print_result(typed.as_json(outcome), as_json, lambda _, out: print_pick(outcome, out))
    if outcome.pick is None:
        raise SystemExit(NOTHING_FITS)
    if require_shown and not outcome.pick.is_shown:
        raise SystemExit(NOT_SHOWN)
