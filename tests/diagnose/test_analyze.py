# SPDX-License-Identifier: MIT
"""What an analysis of an experiment says: rows worst first, shares that add up, a proposal that fits into its budget."""

from __future__ import annotations

import pytest

from mpnet.config.experiment import PrecisionSection
from mpnet.diagnose.analysis_document import AnalysisDocument
from mpnet.diagnose.analyze import analyze_experiment, format_precisions
from mpnet.formats.documents.experiment import read_experiment
from mpnet.model.precision import FP16, FP32
from tests.networks import small_cfg, write_experiment, write_network


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> AnalysisDocument:
    folder = tmp_path_factory.mktemp("analyze")
    write_experiment(folder, small_cfg())
    write_network(folder, 2, small_cfg())
    overrides = ("precision={default: int8, layers: {4: int8}}",)
    experiment = read_experiment(folder / "experiment.yaml", overrides)
    return analyze_experiment(experiment, images=2, keep_macs_percent=40).document()


def test_rows_are_worst_first_and_shares_add_up(document: AnalysisDocument) -> None:
    noises = [layer.noise_percent for layer in document.layers]
    assert noises == sorted(noises, reverse=True)
    assert sum(noises) == pytest.approx(100)
    assert all(layer.precision == "int8" for layer in document.layers)
    ratios = [step.local.sqnr_db for step in document.steps if step.local is not None]
    assert ratios == sorted(ratios)
    assert document.steps[-1].local is None


def test_a_proposal_fits_into_its_budget_and_names_the_choices_that_it_replaces(document: AnalysisDocument) -> None:
    keep = document.keep
    assert (keep.kept.default, keep.kept.layers) == ("int8", {"4": "int8"})
    assert keep.raised.macs_percent <= keep.macs_percent
    assert keep.raised.agreement >= keep.given.agreement
    assert keep.given.macs_percent == 0
    assert [choice.layer for choice in keep.over] == [layer for layer in keep.layers if layer == 4]
    assert bool(keep.yaml) == bool(keep.layers)


def test_raised_layers_stand_over_the_choices_of_the_experiment() -> None:
    section = PrecisionSection("int8", (("heads", "fp16"), ("2", "int8")))
    line = 'precision: {default: int8, layers: {"heads": fp16, 2: fp16, 9: fp32}}'
    assert format_precisions(section, {2: FP16, 9: FP32}) == line
    assert format_precisions(PrecisionSection(), {}) == "precision: {}"
