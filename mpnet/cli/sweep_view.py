# SPDX-License-Identifier: MIT
"""The live view of a sweep on standard error: rate, time left, best so far, the growing front."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar
from rich.text import Text

from mpnet.config.measures import measure
from mpnet.messages import counted, number_text, percent_text, whole_text
from mpnet.progress import Advance, Progress
from mpnet.report.data.row_words import row_words
from mpnet.report.text.front import front_chart, value_text
from mpnet.sweep.choose.findings import front_of
from mpnet.sweep.problem.space import Assignment
from mpnet.sweep.run import SweepStart
from mpnet.sweep.search.estimate import duration
from mpnet.sweep.search.state import SweepState
from mpnet.sweep.store import Trial

TERMINAL_SECONDS = 0.5
PLAIN_SECONDS = 10.0
FRONT_SECONDS = 3.0
_FRONT_ROWS = 12


class SweepView:
    """A live display in a terminal, a line now and then elsewhere, nothing when quiet."""

    def __init__(self, console: Console, quiet: bool) -> None:
        self._console, self._quiet = console, quiet
        self._live: Live | None = None
        self._start: SweepStart | None = None
        self._kept = ""
        self._shown = self._drawn = 0.0
        self._front: list[str] = []
        self._preparing = ""
        self._progress = Bar(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), console=console)
        self._task = self._progress.add_task("trials", total=None)

    def __enter__(self) -> SweepView:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()
        if kind is None or not issubclass(kind, KeyboardInterrupt):
            return
        if self._start is None:
            self._console.print("this run has measured nothing yet; the same command begins again")
        elif self._kept:
            self._console.print(f"{self._kept} in {self._start.store}; the same command goes on from there")
        else:
            self._console.print("no trial was finished yet; the same command begins again")

    def then(self, progress: Progress) -> Progress:
        """Return a progress that shows the work after the trials in place of this view."""

        def shown(what: str, total: int | None) -> AbstractContextManager[Advance]:
            if self._live is not None:
                self._live.stop()
                self._live = None
            return progress(what, total)

        return shown

    def start(self, start: SweepStart) -> None:
        """Say what is going to happen."""
        self._start = start
        if self._quiet:
            return
        space = start.problem.space
        self._console.print(
            f"{whole_text(space.size)} configurations, {start.images} images"
            + (
                f" ({start.selecting} select, {start.images - start.selecting} are held out: sweep.holdout)"
                if start.selecting < start.images
                else " (all select; none is held out)"
            )
        )
        for note in start.notes:
            self._console.print(f"note: {note}")
        if start.listed:
            self._console.print(
                f"evaluating all of them costs {start.theory:,.1f} forward passes per image, {start.estimate} here"
            )
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=4, transient=True)
            self._live.start()

    def update(self, state: SweepState) -> None:
        """Draw, unless it was drawn a moment ago."""
        if state.finished_count:
            several = f"all {state.finished_count:,} finished {_what(state)} are"
            self._kept = "1 finished trial is" if state.finished_count == len(state.trials) == 1 else several
        now = time.monotonic()
        if state.preparing and state.preparing != self._preparing and not self._quiet:
            self._preparing = state.preparing
            self._shown = now
            text = f"preparing: {state.preparing}"
            if self._live is None:
                self._console.print(text)
            else:
                self._live.update(Text(text))
            return
        interval = TERMINAL_SECONDS if self._live is not None else PLAIN_SECONDS
        if self._quiet or self._start is None or now - self._shown < interval:
            return
        self._shown = now
        line = self._line(state)
        if self._live is None:
            self._console.print(", ".join(filter(None, [f"{state.finished_count:,} of {_total_text(state)}", line])))
            return
        if now - self._drawn > FRONT_SECONDS and state.trials:
            self._drawn = now
            problem = self._start.problem
            front = [state.trials[c] for c in front_of(problem, state.trials)]
            points = [(problem.quality(t), self._cost_text(t), row_words(t.key, self._start.words(t.key))) for t in front]
            self._front = [
                f"front: {counted(len(front), 'configuration')}, {measure(problem.quality_name).label} and "
                f"{measure(problem.cost_name).label}",
                *front_chart(points, _FRONT_ROWS),
            ]
        self._progress.update(self._task, completed=state.finished_count, total=state.total, description=_what(state))
        parts: list[RenderableType] = [self._progress, Text(line), *(Text(row) for row in self._front)]
        self._live.update(Group(*parts))

    def _line(self, state: SweepState) -> str:
        assert self._start is not None
        parts = []
        if state.settled:
            parts.append(f"{state.per_second:,.1f} per second")
            left = state.seconds_left
            if left:
                parts.append(
                    f"about {duration(left)} left for {f'this stage ({state.stage})' if state.stage else 'all trials'}"
                )
        problem = self._start.problem
        baseline = state.trials.get(Assignment(problem.baseline))
        best = problem.best(state.trials.values(), baseline) if baseline is not None else None
        if best is not None:
            share = ""
            if baseline is not None and problem.cost(baseline) > 0:
                share = f" ({percent_text(100 * problem.cost(best) / problem.cost(baseline))} of the baseline's)"
            parts.append(
                f"best so far {self._start.words(best.key)}: {measure(problem.quality_name).label} "
                f"{number_text(problem.quality(best))}, {self._cost_text(best)} {measure(problem.cost_name).label}{share}"
            )
        return ", ".join(parts)

    def _cost_text(self, trial: Trial) -> str:
        assert self._start is not None
        problem = self._start.problem
        return value_text(problem.cost(trial), problem.cost_name)


def _total_text(state: SweepState) -> str:
    """Say how many there are, or of a strategy that decides as it goes how many there are up to the end of a stage."""
    return f"{state.total:,} {_what(state)}" + (" asked for so far" if state.stage else "")


def _what(state: SweepState) -> str:
    """Say what is counted."""
    counts = [(state.ruled_out, "ruled out"), (len(state.failed_trials), "failed")]
    text = ", ".join(f"{count:,} {word}" for count, word in counts if count)
    return f"configurations ({text})" if text else "trials"
