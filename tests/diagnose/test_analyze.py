# SPDX-License-Identifier: MIT
"""What an analysis of an experiment says: rows worst first, shares that add up, a proposal that fits into its budget."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from mpnet.config.experiment import PrecisionSection
from mpnet.diagnose.analysis_document import AnalysisDocument
from mpnet.diagnose.analyze import analyze_experiment, format_precisions
from mpnet.formats.documents.experiment import read_experiment
from mpnet.model.precision import FP16, FP32
from tests.networks import small_cfg, write_experiment, write_network


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("analyze")
    write_experiment(folder, small_cfg())
    write_network(folder, 2, small_cfg())
    return folder


def analyze(folder: Path, *overrides: str, target: str = "") -> AnalysisDocument:
    experiment = read_experiment(folder / "experiment.yaml", overrides)
    return analyze_experiment(experiment, images=2, keep_macs_percent=40, target=target).document()


@pytest.fixture(scope="module")
def document(folder: Path) -> AnalysisDocument:
    return analyze(folder, "precision={default: int8, layers: {4: int8}}")


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


def raised_precisions(document: AnalysisDocument) -> set[str]:
    """Return the precisions of the layers that a proposal names by their index."""
    choices = yaml.safe_load(document.keep.yaml or "precision: {}")["precision"].get("layers", {})
    return {name for layer, name in choices.items() if layer in document.keep.layers}


POWER_OF_TWO = "quantization={activations: {mode: power_of_two}, weights: {granularity: per_tensor, method: power_of_two}}"


def test_the_default_scheme_is_measured_where_another_one_is_given(folder: Path, document: AnalysisDocument) -> None:
    assert document.default_quantization is None
    given = analyze(folder, "precision={default: int8}", POWER_OF_TWO)
    scheme = given.default_quantization
    assert scheme is not None
    assert {row.option: (row.given, row.default) for row in scheme.differences} == {
        "activations.mode": ("power_of_two", "affine"),
        "weights.granularity": ("per_tensor", "per_channel"),
        "weights.method": ("power_of_two", "min_max"),
    }
    # The line can be pasted: it is what was measured, and analysing that again gives the same figure and nothing to change.
    again = analyze(folder, "precision={default: int8}", f"quantization={scheme.yaml.removeprefix('quantization: ')}")
    assert again.default_quantization is None
    assert again.keep.given.agreement == scheme.agreement
    assert scheme.gains_more == (scheme.agreement > given.keep.raised.agreement)


def test_options_of_layers_that_hold_no_codes_are_no_other_scheme(folder: Path) -> None:
    assert analyze(folder, "precision={default: fp16}", POWER_OF_TWO).default_quantization is None


def test_layers_are_raised_to_what_the_target_runs(folder: Path) -> None:
    int8 = "precision={default: int8}"
    for document, raised in (
        (analyze(folder, int8, target="onnxruntime"), "fp32"),
        (analyze(folder, int8, "backends=[onnxruntime]"), "fp32"),
        (analyze(folder, int8, "sweep={strategy: auto, precisions: [fp32, int8]}"), "fp32"),
        (analyze(folder, int8, target="mprun"), "fp16"),
        (analyze(folder, int8), "fp16"),
    ):
        assert {row.raised for row in document.keep.over} <= {raised}
        assert set(raised_precisions(document)) <= {raised}
        assert {row.remedies[-1] for row in document.layers if row.remedies} == {raised}


def test_raised_layers_stand_over_the_choices_of_the_experiment() -> None:
    section = PrecisionSection("int8", (("heads", "fp16"), ("2", "int8")))
    line = 'precision: {default: int8, layers: {"heads": fp16, 2: fp16, 9: fp32}}'
    assert format_precisions(section, {2: FP16, 9: FP32}) == line
    assert format_precisions(PrecisionSection(), {}) == "precision: {}"
