# SPDX-License-Identifier: MIT
"""Runs and sweeps in the programs that keep a team's experiments: MLflow, TensorBoard, Weights & Biases.

Each is told parameters, measures by step, and files, where its own settings say (MLFLOW_TRACKING_URI, WANDB_MODE, ...).
"""

from __future__ import annotations

import math
import os
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Mapping, Protocol, Sequence

from mpnet.errors import MpnetError
from mpnet.formats.files.atomic import write_text
from mpnet.messages import reason_of
from mpnet.packages import require, requirements
from mpnet.progress import Progress, silent
from mpnet.trial.result import Result

if TYPE_CHECKING:
    from mpnet.sweep.result import SweepResult
    from mpnet.sweep.run import SweepStart
    from mpnet.sweep.search.state import SweepState

FRONT_SECONDS = 5.0
"""Time between two counts of a growing front."""


class Tracker(Protocol):
    """One run of a tracking program."""

    def parameters(self, values: Mapping[str, str]) -> None:
        """Keep what was chosen."""

    def measures(self, values: Mapping[str, float], step: int) -> None:
        """Keep figures, all finite, under a step."""

    def file(self, path: Path) -> None:
        """Keep a file."""

    def close(self) -> None:
        """End the run."""


MLFLOW_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}
"""How often MLflow asks a server again, and for how many seconds it waits each time, unless its own settings say otherwise. By
itself it asks seven times, which keeps a run waiting for four minutes where nobody listens."""


class _MLflow:
    def __init__(self, name: str) -> None:
        for setting, value in MLFLOW_PATIENCE.items():
            os.environ.setdefault(setting, value)
        import mlflow

        self._mlflow = mlflow
        mlflow.set_experiment("mpnet")
        mlflow.start_run(run_name=name)

    def parameters(self, values: Mapping[str, str]) -> None:
        self._mlflow.log_params(dict(values))

    def measures(self, values: Mapping[str, float], step: int) -> None:
        self._mlflow.log_metrics(dict(values), step=step)

    def file(self, path: Path) -> None:
        self._mlflow.log_artifact(str(path))

    def close(self) -> None:
        self._mlflow.end_run()


class _TensorBoard:
    """Event files under runs/tensorboard/NAME; a file that is kept is named in a text."""

    def __init__(self, name: str) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._writer = EventFileWriter(str(Path("runs", "tensorboard", f"{name}-{int(time.time())}")))

    def parameters(self, values: Mapping[str, str]) -> None:
        for name, value in values.items():
            self._text(name, value)

    def measures(self, values: Mapping[str, float], step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        scalars = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=scalars)))

    def _text(self, tag: str, text: str) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.compat.proto.types_pb2 import DT_STRING

        metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        tensor = TensorProto(dtype=DT_STRING, string_val=[text.encode()])
        value = Summary.Value(tag=tag, metadata=metadata, tensor=tensor)
        self._writer.add_event(Event(wall_time=time.time(), summary=Summary(value=[value])))

    def file(self, path: Path) -> None:
        self._text("file", str(path.absolute()))

    def close(self) -> None:
        self._writer.close()


class _Wandb:
    def __init__(self, name: str) -> None:
        import wandb

        self._run = wandb.init(project="mpnet", name=name)

    def parameters(self, values: Mapping[str, str]) -> None:
        self._run.config.update(dict(values))

    def measures(self, values: Mapping[str, float], step: int) -> None:
        self._run.log(dict(values), step=step)

    def file(self, path: Path) -> None:
        self._run.save(str(path.absolute()), base_path=str(path.absolute().parent), policy="now")

    def close(self) -> None:
        self._run.finish()


TRACKERS: Mapping[str, Callable[[str], Tracker]] = {"mlflow": _MLflow, "tensorboard": _TensorBoard, "wandb": _Wandb}
"""What makes one of a name; its package and the extra of mpnet have the tracker's name."""


def open_tracker(program: str, name: str) -> Tracker:
    """Open a run of that name. Raises: ConfigError where the program is missing."""
    require(f"--log {program}", requirements(program), program)
    return TRACKERS[program](name)


class Trackers:
    """The tracking programs of one run or sweep, closed at the end of a `with` block however that is left.

    Results do not hang on them: a program that fails is one note, and is told nothing afterwards. What they print goes to
    standard error, for a document may stand on standard output.
    """

    def __init__(self, on_note: Callable[[str], None]) -> None:
        self._open: dict[str, Tracker] = {}
        self._on_note = on_note

    def __enter__(self) -> Trackers:
        return self

    def __exit__(self, *_: object) -> None:
        self.tell(lambda tracker: tracker.close())
        self._open.clear()

    def __bool__(self) -> bool:
        return bool(self._open)

    def open(self, program: str, name: str) -> None:
        """Open a run of that name. Raises: ConfigError where the program is missing."""
        try:
            with redirect_stdout(sys.stderr):
                self._open[program] = open_tracker(program, name)
        except MpnetError:
            raise
        except Exception as error:  # their own classes of errors have no other ancestor in common
            self._note_failure(program, error)

    def tell(self, call: Callable[[Tracker], object]) -> None:
        """Call something with each program that has not failed."""
        for program, tracker in list(self._open.items()):
            try:
                with redirect_stdout(sys.stderr):
                    call(tracker)
            except Exception as error:
                del self._open[program]
                self._note_failure(program, error)

    def _note_failure(self, program: str, error: Exception) -> None:
        reason = f"{type(error).__name__}: {reason_of(error)}"
        self._on_note(f"--log {program}: failed ({reason}); it is told nothing more, the results are as without it")

    def write_page(self, source: Path, path: Path, progress: Progress = silent) -> Path | None:
        """Write the report of a finished run or sweep to `path`, for trackers to keep; None, with a note, where that fails."""
        try:
            from mpnet.report.collect.report import collect  # brings what only pages need
            from mpnet.report.html.page import render

            write_text(path, render(collect([source], progress=progress)))
        except (MpnetError, ImportError) as error:
            self._on_note(f"--log: has no page of the report: {error}")
            return None
        return path


def open_trackers(programs: Sequence[str], name: str, on_note: Callable[[str], None]) -> Trackers:
    """Open a run of that name in each program, none twice.

    on_note: is told in one line of a program that fails, now or later.
    Raises: ConfigError where a program is missing.
    """
    trackers = Trackers(on_note)
    for program in dict.fromkeys(programs):
        trackers.open(program, name)
    return trackers


def log_run(trackers: Trackers, result: Result, page: Path | None) -> None:
    """Log a finished run: what it was, its measures and costs, result.json and the page of its report."""
    run = result.run
    parameters = _parameters(run.name, run.precision.key, run.digests)
    measures = _finite({**result.measures, **run.cost})

    def tell(tracker: Tracker) -> None:
        tracker.parameters(parameters)
        tracker.measures(measures, 0)
        tracker.file(result.folder / "result.json")
        if page is not None:
            tracker.file(page)

    trackers.tell(tell)


def _parameters(name: str, precision: str, digests: Mapping[str, str | None]) -> dict[str, str]:
    return {"name": name, "precision": precision, **{f"digest.{key}": value for key, value in digests.items() if value}}


class SweepLog:
    """A sweep for trackers: every trial's objectives as a step, the size of the front as it grows, the choice at the end."""

    def __init__(self, trackers: Trackers) -> None:
        self._trackers = trackers
        self._names: tuple[str, ...] = ()
        self._logged, self._counted = 0, -math.inf
        self._start: SweepStart | None = None

    def start(self, start: SweepStart) -> None:
        """Note what the sweep is of; called before the first trial."""
        self._start = start
        self._names = start.problem.names

    def update(self, state: SweepState) -> None:
        """Log new trials, and now and then the size of the front."""
        for trial in state.trials.iterate_from(self._logged) if self._trackers else ():
            self._logged += 1
            self._measures({name: trial.get(name) for name in self._names})
        now = time.monotonic()
        if self._trackers and self._start is not None and state.trials and now - self._counted >= FRONT_SECONDS:
            from mpnet.sweep.choose.findings import front_of  # runs do without sweeps

            self._counted = now
            self._measures({"front": len(front_of(self._start.problem, state.trials))})

    def end(self, result: SweepResult, page: Path | None) -> None:
        """Log the end of a sweep. result: what it found. page: of its report."""
        from mpnet.sweep.choose.recommend import named_configurations

        picks = {f"pick.{name}": pick.precision for name, pick in named_configurations(result).items()}
        chosen = result.recommended or result.best
        precision = chosen.precision if chosen else ""
        parameters = {**_parameters(result.name, precision, {}), "strategy": result.strategy, **picks}
        self._trackers.tell(lambda tracker: tracker.parameters(parameters))
        self._measures({"front": len(result.front)})
        self._file(Path(result.store))
        if page is not None:
            self._file(page)

    def _file(self, path: Path) -> None:
        self._trackers.tell(lambda tracker: tracker.file(path))

    def _measures(self, values: Mapping[str, float | None]) -> None:
        figures, step = _finite(values), self._logged
        self._trackers.tell(lambda tracker: tracker.measures(figures, step))


def _finite(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if value is not None and math.isfinite(value)}
