# SPDX-License-Identifier: MIT
"""The report of `mpnet analyze`: where the configuration of an experiment loses accuracy."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, fields
from typing import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from mpnet.config.experiment import Experiment, PrecisionSection
from mpnet.config.target_file import TargetFile
from mpnet.diagnose.analysis_document import (
    AnalysisDocument,
    ChangedOption,
    DefaultSchemeRow,
    LayerRow,
    MeasuredConfiguration,
    PrecisionChoices,
    ProposalRow,
    ReplacedChoice,
    StepRow,
)
from mpnet.diagnose.default_scheme import DefaultScheme, measure_default
from mpnet.diagnose.layer_errors import Analysis, LayerAnalysis, StepAnalysis, analyze
from mpnet.diagnose.proposal import MeasuredLayers, Proposal, propose
from mpnet.diagnose.raising import Raising, find_raising
from mpnet.diagnose.remedies import Remedies
from mpnet.engine.plan import Plan
from mpnet.formats.documents.experiment_writer import format_flow, quantization_keys, quote
from mpnet.model.precision import Precision
from mpnet.progress import Progress, silent
from mpnet.quantization.measure import TensorError
from mpnet.trial.defaults import target_of
from mpnet.trial.experiment import open_workbench
from mpnet.trial.identity import identity_of
from mpnet.trial.inputs import spread
from mpnet.trial.workbench import Workbench

ANALYSIS_IMAGES = 8
KEEP_MACS_PERCENT = 10.0

_ERRORS = tuple(field.name for field in fields(TensorError))


@dataclass(frozen=True, eq=False)
class AnalysisReport:
    """The analysis of a plan, and the layers worth a higher precision within keep_macs_percent of its MACs.

    target:         that will run the choice, None for mpnet's own. raising, remedies: what that has.
    default_scheme: None where it is given, or does not apply.
    """

    bench: Workbench
    plan: Plan
    analysis: Analysis
    proposal: Proposal
    keep_macs_percent: float
    target: TargetFile | None
    raising: Raising
    remedies: Remedies
    default_scheme: DefaultScheme | None

    def document(self) -> AnalysisDocument:
        """Return everything as plain values: steps and layers, worst first."""
        analysis = self.analysis
        return AnalysisDocument(
            name=self.bench.experiment.name,
            images=analysis.images,
            precision_key=self.plan.precision.key,
            digests=identity_of(self.bench, self.plan.precision).digests(),
            quantization=self.bench.quantization,
            head_sqnr_db=analysis.head_db,
            layers=tuple(self._layer_row(layer) for layer in analysis.layers),
            steps=tuple(_step_row(step) for step in sort_worst_first(analysis.steps)),
            keep=self._proposal_row(),
            target="" if self.target is None else self.target.name,
            default_quantization=self._default_row(),
        )

    def _proposal_row(self) -> ProposalRow:
        proposal, section = self.proposal, self.bench.experiment.precision
        precisions, origins = proposal.precisions, self.plan.precision.origins
        replaced = tuple(
            ReplacedChoice(
                layer=index,
                name=self.plan.network.layers[index].name,
                said=origins[index],
                precision=str(self.plan.precision[index]),
                raised=str(precision),
            )
            for index, precision in precisions.items()
            if origins[index] != "default"
        )
        return ProposalRow(
            macs_percent=self.keep_macs_percent,
            layers=tuple(layer.layer for layer in proposal.layers),
            names=tuple(layer.name for layer in proposal.layers),
            yaml=format_precisions(section, precisions) if precisions else "",
            pictures=proposal.images,
            measure=proposal.measure,
            given=self._measurement(proposal.configuration),
            raised=self._measurement(proposal.raised),
            heads=None if proposal.heads is None else self._measurement(proposal.heads),
            kept=PrecisionChoices(section.default, dict(section.layers)),
            over=replaced,
        )

    def _default_row(self) -> DefaultSchemeRow | None:
        scheme = self.default_scheme
        if scheme is None:
            return None
        return DefaultSchemeRow(
            agreement=scheme.agreement,
            differences=tuple(ChangedOption(option, *values) for option, values in scheme.differences.items()),
            yaml=f"quantization: {format_flow(quantization_keys(scheme.options))}",
            gains_more=scheme.agreement > self.proposal.raised.agreement,
        )

    def _measurement(self, result: MeasuredLayers) -> MeasuredConfiguration:
        macs_percent = 100 * result.macs / max(1, self.plan.network.macs)
        return MeasuredConfiguration(result.agreement, macs_percent, result.bit_operations)

    def _layer_row(self, layer: LayerAnalysis) -> LayerRow:
        bit_operations = max(1, self.proposal.configuration.bit_operations)
        return LayerRow(
            layer=layer.layer,
            name=layer.name,
            precision=str(layer.precision),
            macs=layer.macs,
            macs_percent=100 * layer.macs / max(1, self.plan.network.macs),
            raised_bit_operations_percent=100 * self.raising.count_cost(self.plan, layer.layer) / bit_operations,
            noise_percent=100 * layer.noise,
            alone_db=layer.alone_db,
            local=layer.local,
            cumulative=layer.cumulative,
            input_channel_spread=layer.input_spread,
            weight_channel_spread=self.remedies.weight_spread(layer.layer),
            remedies=self.remedies.find(layer) if layer.noise * len(self.analysis.layers) > 1 else (),
        )

    def csv(self) -> str:
        """Return a table with one line per step, worst first."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(
            [
                "step",
                "layer",
                "name",
                "operation",
                "detail",
                "precision",
                *(f"local_{name}" for name in _ERRORS),
                *(f"cumulative_{name}" for name in _ERRORS),
                "histogram",
            ]
        )
        for step in sort_worst_first(self.analysis.steps):
            local = [""] * len(_ERRORS) if step.local is None else [_cell(getattr(step.local, n)) for n in _ERRORS]
            writer.writerow(
                [
                    step.number,
                    step.layer,
                    step.name,
                    step.operation,
                    step.detail,
                    str(step.output_precision),
                    *local,
                    *(_cell(getattr(step.cumulative, name)) for name in _ERRORS),
                    " ".join(map(str, step.histogram)),
                ]
            )
        return text.getvalue()


def analyze_experiment(
    experiment: Experiment,
    *,
    images: int = ANALYSIS_IMAGES,
    keep_macs_percent: float = KEEP_MACS_PERCENT,
    target: str = "",
    progress: Progress = silent,
) -> AnalysisReport:
    """Run the experiment's configuration beside fp32 on some of its images, evenly spread.

    target: that will run the choice, by name or path, as `trial.defaults.target_of` takes it.

    Raises: as `open_workbench`; ConfigError when every layer is fp32, EngineError naming the layer.
    """
    runner = target_of(experiment, target)
    bench = open_workbench(experiment)
    plan = bench.plan(bench.assign())
    positions = spread(len(bench.inputs), images)
    with progress("images", len(positions)) as advance:
        analysis = analyze(bench.prepared, plan, _batches(bench, positions), bench.threads, advance)
    raising = find_raising(bench, runner)
    proposal = propose(bench, plan, analysis, keep_macs_percent, raising, progress)
    default_scheme = measure_default(bench, plan, runner, progress)
    remedies = Remedies(bench, plan, raising)
    return AnalysisReport(bench, plan, analysis, proposal, keep_macs_percent, runner, raising, remedies, default_scheme)


def sort_worst_first(steps: tuple[StepAnalysis, ...]) -> list[StepAnalysis]:
    """Sort steps by local SQNR, the lowest first; exact ones at the end, in the order of running."""
    return sorted(steps, key=lambda step: (step.local is None, step.local.sqnr_db if step.local else 0.0, step.number))


def format_precisions(section: PrecisionSection, layers: Mapping[int, Precision]) -> str:
    """Write a line for an experiment file: the given section with some layers over it.

    A choice that is replaced by its own key is left out.
    """
    pairs = {selector: name for selector, name in section.layers if not (selector.isdigit() and int(selector) in layers)}
    choices = {selector if selector.isdigit() else quote(selector): name for selector, name in pairs.items()}
    choices |= {str(index): precision.name for index, precision in layers.items()}
    return f"precision: {format_flow({'default': section.default, 'layers': choices or None})}"


def _batches(bench: Workbench, positions: list[int]) -> Iterator[NDArray[np.float32]]:
    """Yield two images at a time: every tensor of a batch is held three times."""
    return (batch.x for batch in bench.inputs.batches(2, positions))


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.9g}" if isinstance(value, float) else str(value)


def _step_row(step: StepAnalysis) -> StepRow:
    return StepRow(
        step=step.number,
        layer=step.layer,
        name=step.name,
        operation=step.operation,
        detail=step.detail,
        precision=str(step.output_precision),
        local=step.local,
        cumulative=step.cumulative,
        histogram=step.histogram,
    )
