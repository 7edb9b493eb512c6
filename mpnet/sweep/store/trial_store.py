# SPDX-License-Identifier: MIT
"""One SQLite file per sweep that loses nothing: finished trials, who works on what, and how the sweep went.

A trial's identity is the digest of everything that decides its result (`Subject`, its context, its key), so a resumed
sweep cannot take over a stale result. Trials are committed in batches, each in one transaction: a process that is
killed at any moment loses what it was computing and nothing else.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any, Collection, Iterable, Iterator, Sequence

from mpnet.errors import StoreError
from mpnet.formats.documents.typed import build
from mpnet.sweep.store.documents import check_work
from mpnet.sweep.store.failed import FailedTrial, add_failed, read_failed
from mpnet.sweep.store.notes import ContextDocument
from mpnet.sweep.store.ruled_out import RuledOut, add_ruled_out, merge_keys, read_ruled_out, unpack_keys
from mpnet.sweep.store.schema import CHECKSUM, checksum, translate_errors
from mpnet.sweep.store.store_file import StoreFile
from mpnet.sweep.store.trial import Trial, Work, parse_trial

_IMAGE_COUNTS = "ruled_out_after"  # name of a note
_SLICE = 500  # names in one SQL statement, well below SQLite's limit of variables


class TrialStore(StoreFile):
    """The trials of one sweep, in a store file.

    Not for use by several threads at once.
    """

    def trial_digest(self, context: int, key: str) -> str:
        """Return the identity of a trial, SHA-256 hex; the same as that of a run of its configuration.

        Raises: StoreError for a context whose document has no `identity`.
        """
        identity = build(ContextDocument, self.contexts()[context]).identity_of(key)
        if identity is None:
            raise StoreError(f"{self.path}: context {context} names no identity; choose another --store")
        digest = self._parse(identity.digests)["trial"]
        assert digest is not None
        return digest

    def add(
        self,
        context: int,
        trials: Iterable[Trial],
        claim: str | None = None,
        work: Work | None = None,
        ruled_out: RuledOut | None = None,
        failed_trials: Sequence[FailedTrial] = (),
    ) -> int:
        """Commit finished trials, all or none, and which others need none or failed.

        The claim that they were computed under ends, and their work is counted.
        A trial that is already there stays as it is: results are reproducible, so both are the same. Result: how many
        were new. Raises: StoreError for a value of an unknown name.
        """
        rows = []
        measures = frozenset(self._measures)
        for trial in trials:
            unknown = trial.values.keys() - measures
            if unknown:
                raise StoreError(f"{self.path}: no column for {sorted(unknown)}; columns are {', '.join(self._measures)}")
            # SQLite keeps no NaN, and no sign of zero.
            values = {name: float(value) + 0.0 for name, value in trial.values.items() if not math.isnan(value)}
            values_by_column = (values.get(name) for name in self._measures)
            rows.append((context, trial.key, checksum(context, trial.key, values), *values_by_column))
        columns = ", ".join(f'"{name}"' for name in ("context", "key", CHECKSUM, *self._measures))
        placeholders = ", ".join("?" * (3 + len(self._measures)))
        with self._transaction():
            previous_changes = self._db.total_changes
            self._db.executemany(f"INSERT OR IGNORE INTO trials ({columns}) VALUES ({placeholders})", rows)
            new_count = self._db.total_changes - previous_changes
            if ruled_out is not None and ruled_out.keys:
                add_ruled_out(self._db, context, ruled_out)
                if ruled_out.image_counts:
                    self._add_image_counts(context, ruled_out)
            if failed_trials:
                add_failed(self._db, context, failed_trials)
            if claim is not None:
                self._claims.end(claim)
            if work is not None:
                self._db.execute(
                    "INSERT INTO work VALUES (?, ?, ?) ON CONFLICT (context) DO UPDATE SET "
                    "macs = macs + excluded.macs, seconds = seconds + excluded.seconds",
                    (context, work.macs, work.seconds),
                )
        return new_count

    def ruled_out(self, context: int, front: str, keys: Collection[str]) -> set[str]:
        """Return those of the keys that are known to be no part of a front (see `ruled_out`)."""
        ruled_out_keys = self._read_ruled_out(context, front, min(keys), max(keys)) if keys else ()
        return {key for key in ruled_out_keys if key in keys}

    def all_ruled_out(self, context: int, front: str) -> Iterator[str]:
        """Return all keys that are known to be no part of that front."""
        return self._read_ruled_out(context, front)

    def count_ruled_out(self, contexts: Iterable[int], front: str) -> int:
        """Count the ruled out configurations."""
        return sum(1 for context in contexts for _ in self.all_ruled_out(context, front))

    def _read_ruled_out(self, context: int, front: str, *key_range: str) -> Iterator[str]:
        with translate_errors(self.path):
            rows = read_ruled_out(self._db, context, front, *key_range)
            yield from merge_keys(self._parse(unpack_keys, packed) for packed in rows)

    def ruled_out_after(self, contexts: Iterable[int], front: str) -> dict[int, int]:
        """Count the configurations ruled out after so many images, fewest images first.

        Those that a version ruled out which did not count them are missing.
        """
        total: Counter[int] = Counter()
        for context in contexts:
            counts = self.read_figures(f"{_IMAGE_COUNTS}/{context}").get(front, {})
            total.update(self._parse(lambda counts: {int(images): int(count) for images, count in counts.items()}, counts))
        return dict(sorted(total.items()))

    def _add_image_counts(self, context: int, ruled_out: RuledOut) -> None:
        """Add to `ruled_out_after`, within a transaction."""
        name = f"{_IMAGE_COUNTS}/{context}"
        document = self.read_figures(name)
        counts = document.setdefault(ruled_out.front, {})
        for images, count in ruled_out.image_counts:
            counts[str(images)] = counts.get(str(images), 0) + count
        self._write_note(name, json.dumps(document))

    def failed_trials(self, context: int) -> Iterator[FailedTrial]:
        """Return all configurations that have no figures, by rising key."""
        with translate_errors(self.path):
            rows = read_failed(self._db, context)
            while (trial := self._parse(next, rows, None)) is not None:
                yield trial

    def find_failed(self, context: int, keys: Sequence[str]) -> list[FailedTrial]:
        """Find those of the keys that have no figures."""
        failed_trials: list[FailedTrial] = []
        with translate_errors(self.path):
            for start in range(0, len(keys), _SLICE):
                failed_trials += self._parse(list, read_failed(self._db, context, keys[start : start + _SLICE]))
        return failed_trials

    def work(self) -> Work:
        """Return all work that went into the finished trials."""
        with translate_errors(self.path):
            rows = self._db.execute("SELECT macs, seconds FROM work").fetchall()
        for row in rows:
            self._parse(check_work, *row)
        return Work(sum(float(macs) for macs, _ in rows), sum(float(seconds) for _, seconds in rows))

    def count(self, context: int | None = None) -> int:
        """Count the finished trials."""
        condition, values = ("", ()) if context is None else (" WHERE context = ?", (context,))
        with translate_errors(self.path):
            return int(self._db.execute(f"SELECT count(*) FROM trials{condition}", values).fetchone()[0])

    def find_measures(self, contexts: Iterable[int]) -> tuple[str, ...]:
        """Return the measures that any finished trial of these contexts has, in the order of the columns."""
        counts = ", ".join(f'count("{name}")' for name in self._measures)
        numbers = ", ".join(str(int(context)) for context in contexts)
        with translate_errors(self.path):
            row = self._db.execute(f"SELECT {counts} FROM trials WHERE context IN ({numbers})").fetchone()
        return tuple(name for name, count in zip(self._measures, row, strict=True) if count)

    def trials(self, context: int) -> Iterator[Trial]:
        """Return all finished trials, by rising key."""
        with translate_errors(self.path):
            for row in self._db.execute(f"SELECT {self._row} FROM trials WHERE context = ? ORDER BY key", (context,)):
                yield self._parse(self._trial, row)

    def find(self, context: int, keys: Sequence[str]) -> dict[str, Trial]:
        """Find those of the keys that are finished."""
        trials: dict[str, Trial] = {}
        with translate_errors(self.path):
            for start in range(0, len(keys), _SLICE):
                batch = keys[start : start + _SLICE]
                placeholders = ", ".join("?" * len(batch))
                for row in self._db.execute(
                    f"SELECT {self._row} FROM trials WHERE context = ? AND key IN ({placeholders})", (context, *batch)
                ):
                    trials[row[1]] = self._parse(self._trial, row)
        return trials

    @property
    def _row(self) -> str:
        """Return the columns of a trial in SQL, by name: files have them in the order in which they were added."""
        return ", ".join(["context", "key", *(f'"{name}"' for name in self._columns)])

    def _trial(self, row: Sequence[Any]) -> Trial:
        """Return the trial of a row. Raises: ValueError for a damaged one."""
        return parse_trial(row[0], row[1], dict(zip(self._columns, row[2:], strict=True)), self._measures)
