# SPDX-License-Identifier: MIT
"""The commands sweep, compare, report and export as functions whose results notebooks show (`mpnet.api`)."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Mapping, Sequence

from mpnet.config.experiment import Experiment
from mpnet.deploy import ExportReport, export_source
from mpnet.errors import ConfigError
from mpnet.formats.documents.experiment import read_experiment
from mpnet.formats.documents.typed import as_json, build
from mpnet.formats.files.atomic import write_text
from mpnet.progress import silent
from mpnet.report.collect.compare_runs import compare_runs
from mpnet.report.collect.report import collect
from mpnet.report.data.comparison import Comparison
from mpnet.report.data.figure import Figure, Series
from mpnet.report.data.summary import sentences
from mpnet.report.data.sweep_sentences import recommendation_text
from mpnet.report.html import svg
from mpnet.report.html.page import render
from mpnet.resolve.trials import trials
from mpnet.sweep import result as sweep_result
from mpnet.sweep.choose.findings import front_of
from mpnet.sweep.choose.recommend import RECOMMENDED, labelled_configurations
from mpnet.sweep.result import Recommendation
from mpnet.sweep.run import SweepStart, run_sweep
from mpnet.sweep.search.state import SweepState
from mpnet.tables import Chart, Table, Tabular, columns_of
from mpnet.trial.result import Result

if TYPE_CHECKING:
    import pandas

OnTrial = Callable[[str, Mapping[str, float]], None]
"""Called with each finished trial, stored ones too: its precision string, and its figures by the names of measures."""
LIVE_SECONDS = 1.0
"""Time between two drawings of a growing front."""


@dataclass(frozen=True)
class SweepResult(Tabular):
    """A finished sweep. document: what `mpnet sweep --json` prints."""

    document: Mapping[str, Any]

    @property
    def store(self) -> Path:
        """Return the file that keeps all trials."""
        return Path(self.document["store"])

    @property
    def table(self) -> Table:
        """Return the front, the most accurate first: precision string, name of the pick, objectives, costs."""
        return self._entries(self.document["front"], f"{self.document['name']}: front of {self.document['strategy']}")

    @property
    def recommended(self) -> Recommendation | None:
        """Return what the sweep recommends, and whether it is shown to keep the budget; None where nothing is."""
        return build(sweep_result.SweepResult, self.document).recommended

    @property
    def recommendation(self) -> str:
        """Return what the sweep recommends and why, in the sentence that terminal and report have."""
        return recommendation_text(build(sweep_result.SweepResult, self.document))

    @property
    def picks(self) -> Table:
        """Return what somebody could take: `recommended`, `safe`, `balanced`, `smallest`, as far as there is one."""
        rows = labelled_configurations(build(sweep_result.SweepResult, self.document))
        return self._entries([as_json(row) for _, row in rows], "What you could take")

    def trials(self) -> pandas.DataFrame:
        """Return all trials, one row each, as `mpnet.api.trials` gives them."""
        return trials(self.store)

    def _entries(self, entries: Sequence[Mapping[str, Any]], title: str) -> Table:
        names: dict[str, list[str]] = {}
        baseline = self.document["baseline"]
        recommended = self.document["recommended"]
        for name, entry in (("baseline", baseline), (RECOMMENDED, recommended), *self.document["picks"].items()):
            if entry is not None:
                names.setdefault(entry["trial"], []).append(name)
        times = self.document["times"]
        objectives = self.document["objectives"]
        rows = []
        for entry in entries:
            known = names.get(entry["trial"], [])
            rows.append(
                {
                    "precision": entry["precision"],
                    "pick": ", ".join(known),
                    **{name: value for name, value in entry["metrics"].items() if name in objectives},
                    **{f"held out {name}": value for name, value in entry.get("held_out", {}).items() if name in objectives},
                    **entry["costs"],
                    **({"ms here": next((times[n]["median_ms"] for n in known if n in times), math.nan)} if times else {}),
                }
            )
        if not entries:
            return Table({}, title)
        quality = next(name for name in objectives if name in entries[0]["metrics"])
        cost = next((name for name in objectives if name in entries[0]["costs"]), "bit_operations")
        return Table(columns_of(rows), title, Chart(quality, "pick", cost))

    def _repr_html_(self) -> str:
        return f"<p>{escape(self.recommendation)}</p>" + self.picks.html() + self.table.html()


def sweep(
    experiment: Experiment | str | Path,
    overrides: Sequence[str] = (),
    *,
    store: Path | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    yes: bool = False,
    timed: bool = True,
    on_trial: OnTrial | None = None,
) -> SweepResult:
    """Sweep as an experiment says; in a notebook the front is drawn while it grows.

    overrides: KEY=VALUE over an experiment file, as `--set` has them. on_trial: called with every finished trial.
    The rest, and what it raises, is as of `mpnet.sweep.run.run_sweep`.
    """
    if not isinstance(experiment, Experiment):
        experiment = read_experiment(experiment, overrides)
    elif overrides:
        raise ConfigError("overrides change an experiment file; give its path, or use `parse_experiment(text, overrides)`")
    watch = _Watch(on_trial, _notebook_display())
    result = run_sweep(
        experiment,
        store=store,
        workers=workers,
        scheduler=scheduler,
        yes=yes,
        timed=timed,
        command="mpnet.api.sweep",
        on_start=watch.start,
        on_update=watch.update,
    )
    return SweepResult(as_json(result))


@dataclass
class _Watch:
    """A watcher that hands finished trials on and draws the front every LIVE_SECONDS. show: takes HTML, None: nobody looks."""

    on_trial: OnTrial | None
    show: Callable[[str], None] | None
    handed: int = 0
    drawn: float = -math.inf
    begun: list[SweepStart] = field(default_factory=list)

    def start(self, start: SweepStart) -> None:
        self.begun.append(start)

    def update(self, state: SweepState) -> None:
        if self.on_trial is not None and len(state.trials) > self.handed:
            for trial in state.trials.iterate_from(self.handed):
                self.on_trial(trial.key, trial.values)
            self.handed = len(state.trials)
        now = time.monotonic()
        if self.show is not None and state.trials and now - self.drawn >= LIVE_SECONDS:
            self.drawn = now
            self.show(growing_front(self.begun[0], state))


def growing_front(start: SweepStart, state: SweepState) -> str:
    """Return HTML of how far a sweep is, with its front so far as a drawing on white paper, whatever a notebook's theme."""
    problem = start.problem
    front = sorted((state.trials[c] for c in front_of(problem, state.trials)), key=problem.cost)
    points = Series(
        "front", [problem.cost(t) for t in front], [problem.quality(t) for t in front], "accent", mode="line+points"
    )
    title = f"{state.finished_count:,} of {state.total:,} trials; {len(front)} on the front so far"
    drawing = svg.draw(Figure("front", "xy", title, problem.cost_name, problem.quality_name, (points,)), 640, 320)
    return f'<div style="background: #fff; width: max-content">{drawing}</div>'


def _notebook_display() -> Callable[[str], None] | None:
    """Return a function that shows HTML in the present notebook cell, in place of what it showed before; None elsewhere."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import HTML, display

    handle = display(HTML(""), display_id=True)
    return lambda html: handle.update(HTML(html))


def compare(*runs: str | Path | Result, **options: Any) -> Comparison:
    """Compare everything with the first run: a Result, its folder, or STORE:KEY.

    options: `draws`, `seed`, `images`, `score`, `unlabelled`, as of `mpnet.report.collect.compare_runs.compare_runs`.
    """
    return compare_runs([run.folder if isinstance(run, Result) else run for run in runs], **options)


@dataclass(frozen=True)
class Page:
    """A written report. summary: what it recommends and says, in at most four sentences.

    html: the page itself, which needs no other file.
    """

    path: Path
    summary: tuple[str, ...]
    html: str = field(repr=False)

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self.html)}" width="100%" height="600" style="border: 0"></iframe>'


def report(*sources: str | Path | Result | SweepResult, out: str | Path = "report.html", **options: Any) -> Page:
    """Write a report of runs (the first is the baseline) or of a sweep.

    options: as of `mpnet.report.collect.report.collect`.
    """
    paths = [
        source.folder if isinstance(source, Result) else source.store if isinstance(source, SweepResult) else Path(source)
        for source in sources
    ]
    data = collect(paths, progress=silent, **options)
    html = render(data)
    write_text(Path(out), html)
    return Page(Path(out), sentences(data), html)


def export(
    source: str | Path | Result, out: str | Path, to: str = "", flavour: str = "", *, timed: bool = True, **options: Any
) -> ExportReport:
    """Write a configuration in the form of another program, as `mpnet export` does.

    source:  experiment file, run, STORE:KEY or cfg. out: the main file; further ones stand beside it.
    to:      the target, '': what the suffix of `out` says. flavour: '': the first one that is installed here.
    timed:   whether to measure how long the program that runs the file takes here.
    options: of the target.
    Result:  what the command prints: the files (the report is a sequence of their paths), the precision that each layer is
             executed in, times and warnings.
    Raises: ConfigError, StoreError, PrecisionError; each message is one line with place and remedy.
    """
    named = str(source.folder if isinstance(source, Result) else source)
    return export_source(named, Path(out), to=to, flavour=flavour, options=options, is_timed=timed)
