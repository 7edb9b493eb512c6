# SPDX-License-Identifier: MIT
"""Names on the command line to configurations: RUN, STORE, STORE:KEY, STORE:PICK, STORE:max_loss=1 AP; STORE:2/KEY of sweep 2.

A folder `runs/<name>` stands for its latest result, and as `runs/<name>:recommended` for its latest sweep.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping

from mpnet.config.measures import HELD_OUT
from mpnet.errors import StoreError
from mpnet.messages import limits_text
from mpnet.model.plan_key import short_key
from mpnet.resolve.pick import pick_name
from mpnet.resolve.stored_sweep import CHOSEN, chosen_key, name_assignment, read_sweep
from mpnet.sweep.choose.budgets import budgets_in_name
from mpnet.sweep.choose.picks import PICK_RULES, rule_of
from mpnet.sweep.choose.recommend import RECOMMENDED
from mpnet.sweep.choose.status import sweep_status
from mpnet.sweep.result import ConfigurationRow
from mpnet.sweep.store.latest import is_store, store_at
from mpnet.trial.result import Result, holds_result, read_result
from mpnet.trial.run_result import Provenance

NEAREST = "nearest"
"""What a sweep whose limits nothing meets has instead of picks."""


@dataclass(frozen=True)
class StoredConfiguration:
    """A result or a sweep's trial.

    key:    precision string. provenance: what was measured on what. result: of a run, None for a sweep's trial.

    values: of a sweep's trial by column name; held-out ones too. store: its file, None for a run.
    path:   the store, or the folder of the run.
    """

    key: str
    provenance: Provenance
    values: Mapping[str, float]
    store: Path | None = None
    path: Path = Path()
    result: Result | None = None

    @property
    def output(self) -> Path | None:
        """Return the folder of all results that this one is in, as `mpnet run` and `mpnet sweep` lay them out; else None."""
        folder = self.path.absolute().parent
        return folder.parent if folder.name == self.provenance.name else None

    @property
    def held_out(self) -> dict[str, float]:
        """Return the metrics on the images that did not select."""
        return {name.removeprefix(HELD_OUT): value for name, value in self.values.items() if name.startswith(HELD_OUT)}


def split_source(source: str) -> tuple[Path, str | None]:
    """Return the path, and the key of STORE:KEY; a path that exists as it stands has none.

    A folder stands for its latest result; where it has none, or a key follows it, for its latest sweep.
    Raises: StoreError for a folder of several sweeps of which none is marked as the latest, or of none where a key follows.
    """
    path = Path(source)
    if path.exists():
        return (path if is_store(path) or holds_result(path) else store_at(path) or path), None
    # Keys may hold colons as well (`fqq+3:q`), so the first cut behind which a store stands is the right one.
    for colon_at, character in enumerate(source):
        if character == ":" and (store := store_at(Path(source[:colon_at] or "."))):
            return store, source[colon_at + 1 :]
    folder, colon, key = source.rpartition(":")
    if colon and Path(folder).is_dir():
        raise StoreError(f"{folder}: holds no sweep, so {key[:60]!r} names nothing in it; `mpnet list` shows what there is")
    return path, None


def _sweep_of(key: str | None) -> tuple[int | None, str | None]:
    """Return the number of a sweep before a slash, and the rest."""
    match = re.fullmatch(r"([0-9]{1,6})/(.*)", key or "", re.DOTALL)
    return (int(match[1]), match[2]) if match else (None, key)


def _picked(path: Path, number: int | None, name: str) -> str | None:
    """Return the precision string of the recommendation or of a pick; None: of a sweep that has not ended.

    Raises: StoreError for a pick that the sweep did not make, where nothing is recommended, or when nothing meets its limits.
    """
    result = sweep_status(path, number).result
    nearest = None if result is None else result.nearest
    if name == NEAREST:
        if nearest is None:
            raise StoreError(
                f"{path}: this sweep's limits are met, or it has none or has not ended; name one of "
                f"{', '.join((RECOMMENDED, *PICK_RULES))}"
            )
        return _name(path, number, nearest)
    if result is not None and nearest is not None:
        raise StoreError(
            f"{path}: nothing meets the limits of this sweep ({limits_text(result.limits)}); nearest is "
            f"{short_key(nearest.precision)}: name it {NEAREST!r}, or change sweep.constraints"
        )
    if name in (RECOMMENDED, CHOSEN) and result is None:
        return None
    if name == CHOSEN:
        return chosen_key(path, number)
    picks = {} if result is None else result.picks
    if result is not None and name == RECOMMENDED:
        if result.recommended is None:
            raise StoreError(
                f"{path}: nothing is recommended: {result.not_recommended}; "
                f"it has {', '.join(picks) or 'no picks'}, and {CHOSEN}"
            )
        return _name(path, number, result.recommended)
    pick = picks.get(name)
    if pick is None:
        raise StoreError(
            f"{path}: has no configuration that is {name} ({rule_of(name, result)}); "
            f"it has {', '.join(picks) or 'no picks: run the sweep to its end'}"
        )
    return _name(path, number, pick)


def _name(path: Path, number: int | None, row: ConfigurationRow) -> str:
    """Return the name of a row of a sweep's result: one precision string may have been tried under several option sets."""
    return name_assignment(path, number, row.precision, row.options)


def in_store(source: str) -> tuple[Path, int | None, str | None]:
    """Return the path that `source` names, and of a store the sweep's number and the key.

    A pick, or what keeps budgets (`max_loss=1 AP, max_bytes=2MB`), is given by its precision string, with `@2` of the second
    option set; None: of a sweep that has not ended.
    Raises: StoreError for a pick that there is none of, or where nothing is recommended or keeps the budgets; ConfigError for
    what is no budget.
    """
    path, key = split_source(source)
    number, key = _sweep_of(key)
    if is_store(path) and (key in PICK_RULES or key in (None, "", RECOMMENDED, CHOSEN, NEAREST)):
        key = _picked(path, number, key or RECOMMENDED)
    if is_store(path) and (texts := budgets_in_name(key or "")):
        key = pick_name(path, number, texts)
    return path, number, key


def find_configuration(source: str) -> StoredConfiguration:
    """Return the configuration that `source` names. Raises: StoreError when there is none."""
    path, number, key = in_store(source)
    if not is_store(path):
        result = read_result(path)
        return StoredConfiguration(result.run.precision.key, result.run.provenance, {}, path=result.folder, result=result)
    stored = read_sweep(path, None if key in (None, "baseline") else key, number)
    table = stored.configurations
    row = table.baseline if key == "baseline" else table.chosen
    if row is None:
        raise StoreError(f"{path}: has no baseline among its finished trials; name a precision string")
    values = {name: table.value(row, name) for name in table.columns if math.isfinite(table.value(row, name))}
    return StoredConfiguration(table.keys[row], stored.provenance, values, path, path)
