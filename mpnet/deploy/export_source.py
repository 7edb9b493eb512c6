# SPDX-License-Identifier: MIT
"""A configuration as files of another program, and what the engine that runs them here says of it: precisions, times, warnings.

`mpnet export` and `mpnet.api.export` both call `export_source`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence, overload

from mpnet.backends import Model, backend, flavour_here, runner_of
from mpnet.backends.deployment import slower_note
from mpnet.backends.placement import LayerPlacement, as_plain, placements, warnings_of
from mpnet.errors import ConfigError, MpnetError
from mpnet.export import Exported, Target, export, split_flavour, target, target_for
from mpnet.formats.files.atomic import write_files
from mpnet.json_values import Json, JsonObject
from mpnet.packages import require
from mpnet.resolve.source import NO_FILES, Files, configuration_named
from mpnet.tables import Table, Tabular, columns_of
from mpnet.trial.latency import time_exported


@dataclass(frozen=True)
class ExportReport(Tabular, Sequence[Path]):
    """The files that were exported, and how they run here. As a sequence it is the paths of the files; as a table, its layers.

    source, target, flavour: what was asked for; flavour is '' for a target that has none.
    precision:     the precision string. cfg: the network file of the configuration.
    exported:      the files' contents, and what the target says of them.
    out:           the main file, None where nothing was written. files: size in bytes, by path.
    layers:        each layer with the precision that was asked for, written and executed.
    engine, engine_version: the program that runs the file; '' where none is installed or there is none.
    times_ms:      one image and thread in it: of the configuration, as `mix`, and of all layers at one precision, by its name.
    warnings:      layers that fall back, a mix that takes longer than fp32, and what the target warns of; one line each.
    flavour_note:  which flavour was chosen where none was asked for, and why, else ''.
    engine_note:   what to know of the engine on this CPU, or why it could not be asked, else ''.
    """

    source: str
    target: str
    flavour: str
    precision: str
    cfg: Path
    exported: Exported = field(repr=False)
    out: Path | None = None
    files: Mapping[Path, int] = field(default_factory=dict)
    layers: tuple[LayerPlacement, ...] = ()
    engine: str = ""
    engine_version: str = ""
    times_ms: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    flavour_note: str = ""
    engine_note: str = ""

    @overload
    def __getitem__(self, index: int) -> Path: ...

    @overload
    def __getitem__(self, index: slice) -> list[Path]: ...

    def __getitem__(self, index: int | slice) -> Path | list[Path]:
        return list(self.files)[index]

    def __len__(self) -> int:
        return len(self.files)

    @property
    def table(self) -> Table:
        """Return every layer with its precisions: asked for, written, executed."""
        return Table(columns_of(as_plain(self.layers)), f"{self.source} as {self.target}")

    @property
    def executed_by(self) -> dict[str, str] | None:
        """Return the engine's name and version, None where no engine was asked."""
        return {"engine": self.engine, "version": self.engine_version} if self.engine else None

    @property
    def notes(self) -> list[str]:
        """Return everything that the user should know, one line each: choices, warnings, remarks on the engine."""
        return [line for line in (self.flavour_note, *self.warnings, self.engine_note) if line]

    def as_json(self) -> dict[str, Json]:
        """Return the document that `mpnet export --json` prints."""
        return {
            "source": self.source,
            "target": self.target,
            "flavour": self.flavour,
            "precision": self.precision,
            "cfg": str(self.cfg),
            "written": str(self.out) if self.out else None,
            "files": {str(path): size for path, size in self.files.items()},
            "layers": as_plain(self.layers),
            "executed_by": self.executed_by,
            **({"times_ms": dict(self.times_ms)} if self.times_ms else {}),
            "warnings": list(self.warnings),
            **self.exported.details,
            "text": self.exported.content.decode("utf-8", "replace") if self.out is None else None,
        }


def _ignore(line: str) -> None:
    """Take a note that nobody wants to see."""


def export_source(
    source: str,
    out: Path | None,
    *,
    to: str = "",
    flavour: str = "",
    options: Mapping[str, Any] | None = None,
    files: Files = NO_FILES,
    overrides: Sequence[str] = (),
    find_operating_point: Callable[[], JsonObject] | None = None,
    is_timed: bool = True,
    on_note: Callable[[str], None] = _ignore,
) -> ExportReport:
    """Write a configuration in the form of another program, and ask the engine that runs it here what it executes.

    source:    EXPERIMENT.yaml, RUN, STORE[:KEY] or NET.cfg. files, overrides: as `configuration_named` takes them.
    out:       the main file, further ones stand beside it; None writes nothing, which only targets without weights can.
    to:        the target, also as TARGET/FLAVOUR; '': what the suffix of `out` says.
    flavour:   '': the first one that is installed here.
    options:   of the target.
    find_operating_point: gives the score threshold to write into the file and what is known of it; None: the file has none.
    is_timed:  whether to measure how long the engine takes.
    on_note:   is called with what is to be known of the source, before anything is written.
    Raises: ConfigError, StoreError, FormatError, DataError, PrecisionError; each message is one line with place and remedy.
    """
    to, flavour = split_flavour(to, flavour)
    name = target_for(to, out)
    chosen_target = target(name)
    if out is None and chosen_target.reads_weights:
        raise ConfigError(f"--to {name}: writes {chosen_target.suffix}, which is no text; name a file with -o")
    named = configuration_named(source, files, overrides, complete=chosen_target.reads_weights)
    for line in named.notes:
        on_note(line)
    configuration = named.configuration
    flavour, flavour_note = _choose_flavour(name, chosen_target, flavour)
    if find_operating_point is not None:
        document = {**configuration.document, "operating_point": find_operating_point()}
        configuration = replace(configuration, document=document)
    exported = export(name, configuration, flavour, options)
    contents = {} if out is None else exported.files_at(out)
    write_files(contents)
    flavour = chosen_target.flavour(flavour)
    engine, model, engine_note = _open_in_engine(name, flavour, exported)
    executed = None if model is None else model.executed()
    layers = placements(configuration, exported, executed) if chosen_target.reads_weights else []
    if executed is not None:
        engine_note = backend(engine).caution(executed)
    times_ms = {} if model is None or not is_timed else time_exported(engine, configuration, model)
    warnings = warnings_of(layers, engine)
    slower = slower_note(engine, times_ms.get("mix", 0.0), times_ms)
    return ExportReport(
        source,
        name,
        flavour,
        configuration.precisions.key,
        named.cfg,
        exported,
        out,
        {path: len(content) for path, content in contents.items()},
        tuple(layers),
        engine,
        "" if model is None else model.version,
        times_ms,
        (*warnings, *([slower] if slower else []), *exported.notes),
        flavour_note,
        engine_note,
    )


def _choose_flavour(name: str, chosen_target: Target, flavour: str) -> tuple[str, str]:
    """Return the flavour that is asked for, else the first that is installed here, and a note where mpnet chose it."""
    if flavour or len(chosen_target.flavours) < 2:
        return flavour, ""
    flavour, reason = flavour_here(name, chosen_target.flavours)
    others = ", ".join(other for other in chosen_target.flavours if other != flavour)
    return flavour, f"--flavour {flavour} is taken ({reason}); others are {others}"


def _open_in_engine(name: str, flavour: str, exported: Exported) -> tuple[str, Model | None, str]:
    """Return the engine that runs a file and the file opened in it; else '', None and why it cannot be asked."""
    engine = runner_of(name, flavour)
    if engine is None:
        return "", None, ""
    runner = backend(engine)
    try:
        require(f"asking {engine} what it executes", runner.packages, runner.extra)
        return engine, runner.load(exported, 1), ""
    except MpnetError as error:
        return "", None, str(error)
