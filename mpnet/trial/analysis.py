"""Where a configuration loses accuracy, and whether its int8 is what simulation says: for experiments."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict, dataclass, fields
from typing import Any, Iterator

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.analyze import Analysis, LayerAnalysis, StepAnalysis, analyze, worth_keeping
from mpnet.engine.plan import Plan
from mpnet.engine.verify import StepCheck, Verifier
from mpnet.progress import Progress, silent
from mpnet.quantization.measure import TensorError
from mpnet.spec.experiment import Experiment
from mpnet.trial.experiment import open_workbench
from mpnet.trial.workbench import Workbench

ANALYSIS_IMAGES = 8
VERIFY_IMAGES = 16
KEEP_MACS_PERCENT = 10.0

_ERRORS = tuple(field.name for field in fields(TensorError))


@dataclass(frozen=True, eq=False)
class AnalysisReport:
    """analysis of `plan`; keep: the layers worth a higher precision within keep_macs_percent of the MACs."""

    bench: Workbench
    plan: Plan
    analysis: Analysis
    keep: tuple[LayerAnalysis, ...]
    keep_macs_percent: float

    def document(self) -> dict[str, Any]:
        """Everything as plain values: steps and layers, worst first."""
        analysis = self.analysis
        return {
            "name": self.bench.experiment.name,
            "images": analysis.images,
            "precision_key": self.plan.precision.key,
            "digests": self.bench.identity(self.plan.precision).digests(),
            "quantization": self.bench.quantization,
            "head_sqnr_db": list(analysis.head_db),
            "layers": [self._layer(layer) for layer in analysis.layers],
            "steps": [_step(step) for step in worst_first(analysis.steps)],
            "keep": {
                "macs_percent": self.keep_macs_percent,
                "layers": [layer.layer for layer in self.keep],
                "names": [layer.name for layer in self.keep],
                "yaml": keep_yaml(self.keep),
            },
        }

    def _layer(self, layer: LayerAnalysis) -> dict[str, Any]:
        return {
            "layer": layer.layer,
            "name": layer.name,
            "precision": str(layer.precision),
            "macs": layer.macs,
            "macs_percent": 100 * layer.macs / max(1, self.plan.network.macs),
            "noise_percent": 100 * layer.noise,
            "alone_db": list(layer.alone_db),
            "local": asdict(layer.local),
            "cumulative": asdict(layer.cumulative),
        }

    def csv(self) -> str:
        """One line per step, worst first."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(
            ["step", "layer", "name", "operation", "detail", "precision", *(f"local_{name}" for name in _ERRORS),
             *(f"cumulative_{name}" for name in _ERRORS), "histogram"]
        )
        for step in worst_first(self.analysis.steps):
            local = [""] * len(_ERRORS) if step.local is None else [_cell(getattr(step.local, n)) for n in _ERRORS]
            writer.writerow(
                [step.number, step.layer, step.name, step.operation, step.detail, str(step.gives), *local,
                 *(_cell(getattr(step.cumulative, name)) for name in _ERRORS), " ".join(map(str, step.histogram))]
            )
        return text.getvalue()


def analyze_experiment(
    experiment: Experiment, *, images: int = ANALYSIS_IMAGES, keep_macs_percent: float = KEEP_MACS_PERCENT,
    progress: Progress = silent,
) -> AnalysisReport:
    """Run the experiment's configuration beside fp32 on some of its pictures, evenly spread.

    Raises: as `open_workbench`; ConfigError when every layer is fp32, EngineError naming the layer.
    """
    bench = open_workbench(experiment)
    plan = bench.plan(bench.assign())
    positions = spread(len(bench.inputs), images)
    with progress("pictures", len(positions)) as advance:
        analysis = analyze(bench.prepared, plan, _batches(bench, positions), bench.threads, advance)
    keep = worth_keeping(analysis, plan, keep_macs_percent / 100)
    return AnalysisReport(bench, plan, analysis, keep, keep_macs_percent)


def verify(bench: Workbench, images: int = VERIFY_IMAGES) -> tuple[int, tuple[StepCheck, ...]]:
    """Check int8 kernels against simulation on some of the workbench's pictures: (pictures, checks of the steps).

    Raises: ConfigError when nothing is int8.
    """
    verifier = Verifier(bench.prepared, bench.plan(bench.assign()), bench.threads)
    positions = spread(len(bench.inputs), images)
    return len(positions), verifier.run(_batches(bench, positions))


def spread(available: int, wanted: int) -> list[int]:
    """Positions of `wanted` pictures, evenly spread; all when there are no more."""
    if wanted >= available:
        return list(range(available))
    return [i * available // wanted for i in range(wanted)]


def worst_first(steps: tuple[StepAnalysis, ...]) -> list[StepAnalysis]:
    """Steps by local SQNR, the lowest first; exact ones at the end, in the order of running."""
    return sorted(steps, key=lambda step: (step.local is None, step.local.sqnr_db if step.local else 0.0, step.number))


def keep_yaml(keep: tuple[LayerAnalysis, ...]) -> str:
    """Lines for an experiment file."""
    if not keep:
        return ""
    pairs = ", ".join(f"{layer.layer}: fp16" for layer in keep)
    return f"precision: {{default: int8, layers: {{{pairs}}}}}"


def _batches(bench: Workbench, positions: list[int]) -> Iterator[NDArray[np.float32]]:
    """Two pictures at a time: every tensor of a batch is held three times."""
    return (batch.x for batch in bench.inputs.batches(2, positions))


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.9g}" if isinstance(value, float) else str(value)


def _step(step: StepAnalysis) -> dict[str, Any]:
    return {
        "step": step.number,
        "layer": step.layer,
        "name": step.name,
        "operation": step.operation,
        "detail": step.detail,
        "precision": str(step.gives),
        "local": None if step.local is None else asdict(step.local),
        "cumulative": asdict(step.cumulative),
        "histogram": list(step.histogram),
    }
