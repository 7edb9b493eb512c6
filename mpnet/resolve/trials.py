# SPDX-License-Identifier: MIT
"""All finished trials of a sweep as a table for other programs: Parquet, CSV, a pandas DataFrame.

One row a trial: its precision string (`precision`), its quantisation options (`options`), the precision of each layer with
weights (a column each, by the layer's name) and every measure and cost that the store has of it (docs/evaluation.md has
their units; empty where it was not measured). What was measured on what goes along as JSON.
"""

from __future__ import annotations

import csv
import json
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Iterator, Mapping, Sequence

import numpy as np

from mpnet.config.measures import trial_columns
from mpnet.engine.cost import LayerCost
from mpnet.errors import ConfigError, StoreError
from mpnet.formats.documents.typed import as_json
from mpnet.formats.files.atomic import atomic_path
from mpnet.json_values import JsonObject
from mpnet.messages import cell_text
from mpnet.model.plan_key import split_key
from mpnet.model.precision import BY_CODE
from mpnet.packages import require, requirements
from mpnet.sweep.store import Trial, TrialStore
from mpnet.sweep.store.latest import is_store
from mpnet.sweep.store.records import choose_record

if TYPE_CHECKING:
    import pandas
    import pyarrow

TABLES = ("parquet", "csv")
EXTRA = "table"
_PYARROW, _PANDAS = requirements("pyarrow", "pandas")
_AT_ONCE = 65_536
"""Rows that are in memory at a time while a file is written."""
_KEY, _OPTIONS = "precision", "options"


@dataclass(frozen=True, eq=False)
class TrialTable:
    """The trials of one sweep of an open store.

    layers:    column of each position of a key. measures: columns of figures, those that any trial has.
    metadata:  name, strategy, objectives, digests, protocol and so on of what was measured.
    """

    store: TrialStore
    contexts: Mapping[int, str]
    layers: tuple[str, ...]
    measures: tuple[str, ...]
    metadata: JsonObject

    @property
    def columns(self) -> tuple[str, ...]:
        """Return all names, in order."""
        return (_KEY, _OPTIONS, *self.layers, *self.measures)

    @property
    def count(self) -> int:
        """Count the rows."""
        return sum(self.store.count(context) for context in self.contexts)

    def chunks(self) -> Iterator[tuple[str, list[Trial]]]:
        """Yield (text of the options, some trials) until all were there; by option set, then by key."""
        for context, options in self.contexts.items():
            trials = self.store.trials(context)
            while chunk := list(islice(trials, _AT_ONCE)):
                yield options, chunk


def open_table(path: Path, number: int | None, stack: ExitStack) -> TrialTable:
    """Open the table of a store.

    number: of a sweep as `mpnet sweep --status` counts them, None: the last one.

    Raises: StoreError for what is no store, or one without trials.
    """
    if not is_store(path):
        raise StoreError(f"{path}: is no store of a sweep; name the .sqlite file that `mpnet sweep` wrote, or its folder")
    store = stack.enter_context(TrialStore.read(path))
    record = choose_record(store, number)
    documents = store.contexts()
    contexts = {n: str(documents[n].get("options") or "") for n in (record.contexts if record else ()) if n in documents}
    first = next((next(store.trials(context), None) for context in contexts if store.count(context)), None)
    if record is None or first is None:
        raise StoreError(f"{path}: holds no finished trial yet; wait for the sweep, or start it again")
    sweep = as_json(record.sweep)
    return TrialTable(
        store,
        contexts,
        _layer_columns(record.sweep.layers, len(split_key(first.key)[0])),
        store.find_measures(contexts),
        {
            "format": "mpnet-trials",
            "version": 1,
            "store": path.name,
            "sweep": record.number,
            **{
                name: sweep[name]
                for name in ("name", "strategy", "created", "objectives", "baseline", "holdout", "images", "selecting")
            },
            **{name: sweep[name] for name in ("digests", "protocol", "constraints", "calibration", "latency", "versions")},
            "contexts": [documents[context] for context in contexts],
        },
    )


def _layer_columns(layers: Sequence[LayerCost], count: int) -> tuple[str, ...]:
    """Return the names of the layers with weights; `layer-1` and so on where the store does not tell."""
    names = [layer.name for layer in layers if layer.parameters]
    reserved = {_KEY, _OPTIONS, *trial_columns()}
    if len(names) != count or len(set(names)) != count or reserved & set(names):
        return tuple(f"layer-{number}" for number in range(1, count + 1))
    return tuple(names)


def write_trials(path: Path, out: Path, form: str, number: int | None = None) -> int:
    """Write a sweep's trials as Parquet (metadata under the key `mpnet`) or CSV (metadata beside it, `.json`).

    Result: how many. Raises: StoreError; ConfigError where a package is missing.
    """
    with ExitStack() as stack:
        if form == "parquet":
            require("--to parquet", [_PYARROW], EXTRA)
        table = open_table(path, number, stack)
        if form == "parquet":
            _write_parquet(table, stack.enter_context(atomic_path(out)))
        else:
            if out.suffix == ".json":
                raise ConfigError(f"{out}: is where the metadata of a CSV file goes; give the file another suffix")
            metadata_path = stack.enter_context(atomic_path(out.with_suffix(".json")))
            _write_csv(table, stack.enter_context(atomic_path(out)))
            metadata_path.write_text(json.dumps(table.metadata, indent=1) + "\n", encoding="utf-8")
        return table.count


def trials(store: str | Path, sweep: int | None = None) -> pandas.DataFrame:
    """Return all finished trials of a sweep, one row each; `attrs["mpnet"]` says what was measured on what.

    store: file of a sweep. sweep: its number as `mpnet sweep --status` counts them, None: the last. Layers are categories,
    measures float64 (NaN: not measured).
    Raises: StoreError; ConfigError where pandas or pyarrow is missing.
    """
    require("trials of a sweep as a DataFrame", [_PANDAS, _PYARROW], EXTRA)
    import pandas as pd
    import pyarrow as pa

    with ExitStack() as stack:
        table = open_table(Path(store), sweep, stack)
        arrow_table = pa.Table.from_batches(_batches(table), _schema(table))
    frame = arrow_table.to_pandas(
        types_mapper={pa.string(): pd.ArrowDtype(pa.string())}.get, self_destruct=True, split_blocks=True
    )
    frame.attrs["mpnet"] = dict(table.metadata)
    return frame


def _write_parquet(table: TrialTable, path: Path) -> None:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(path, _schema(table), compression="zstd") as writer:
        for batch in _batches(table):
            writer.write_batch(batch)


def _schema(table: TrialTable) -> pyarrow.Schema:
    import pyarrow as pa

    fields = [pa.field(_KEY, pa.string()), pa.field(_OPTIONS, pa.dictionary(pa.int32(), pa.string()))]
    fields += [pa.field(name, pa.dictionary(pa.int8(), pa.string())) for name in table.layers]
    fields += [pa.field(name, pa.float64()) for name in table.measures]
    return pa.schema(fields, metadata={"mpnet": json.dumps(table.metadata)})


def _batches(table: TrialTable) -> Iterator[pyarrow.RecordBatch]:
    import pyarrow as pa

    codes = sorted(BY_CODE)
    names = pa.array([BY_CODE[code].name for code in codes])
    position = np.full(128, -1, np.int8)
    for number, code in enumerate(codes):
        position[ord(code)] = number
    schema, texts = _schema(table), list(dict.fromkeys(table.contexts.values()))
    for options, chunk in table.chunks():
        letters = np.frombuffer("".join(split_key(trial.key)[0] for trial in chunk).encode("ascii"), np.uint8)
        layers = position[letters.reshape(len(chunk), len(table.layers))]
        arrays = [
            pa.array([trial.key for trial in chunk]),
            pa.DictionaryArray.from_arrays(np.full(len(chunk), texts.index(options), np.int32), pa.array(texts)),
            *(pa.DictionaryArray.from_arrays(np.ascontiguousarray(column), names) for column in layers.T),
            *(pa.array([trial.get(name) for trial in chunk], from_pandas=True) for name in table.measures),
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _write_csv(table: TrialTable, path: Path) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(map(cell_text, table.columns))
        for options, chunk in table.chunks():
            for trial in chunk:
                layers = (BY_CODE[code].name for code in split_key(trial.key)[0])
                values = (trial.values.get(name) for name in table.measures)
                figures = ("" if value is None else repr(value) for value in values)
                writer.writerow([trial.key, cell_text(options), *layers, *figures])
