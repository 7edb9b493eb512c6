# SPDX-License-Identifier: MIT
"""What quantisation costs on real networks and images, at least as good as docs/results/quantization.md promises.

AP moves by 0.2 between equally valid implementations, so the limits on AP are loose; agreement with fp32 separates.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Callable

import pytest

from mpnet.api import run_experiment
from mpnet.config.experiment import Experiment, PrecisionSection, QuantizationSection
from mpnet.model.quantization import NO_OPTIONS, ActivationOptions, QuantizationOptions, WeightOptions
from mpnet.trial.result import Result
from tests.realdata.conftest import Analyzed

RunExperiment = Callable[..., Result]

SYMMETRIC = QuantizationOptions(ActivationOptions(mode="symmetric"))
PER_TENSOR = QuantizationOptions(weights=WeightOptions(granularity="per_tensor"))
CALIBRATED = QuantizationOptions(ActivationOptions(ranges="calibrated", method="mse"))
CORRECTED = QuantizationOptions(ActivationOptions(ranges="calibrated", method="mse"), bias_correction=True, equalisation=True)
PER_TENSOR_CORRECTED = replace(PER_TENSOR, bias_correction=True, equalisation=True)


@pytest.fixture
def run(output: Path) -> RunExperiment:
    """Run an experiment with other options, unless another test did."""

    def call(experiment: Experiment, options: QuantizationOptions = NO_OPTIONS, **layers: str) -> Result:
        default = layers.pop("default", "int8")
        precision = PrecisionSection(default, tuple((name.lstrip("_"), value) for name, value in layers.items()))
        changed_experiment = replace(experiment, precision=precision, quantization=QuantizationSection(options), output=output)
        return run_experiment(changed_experiment).result

    return call


def figures(result: Result) -> tuple[float, float]:
    agreement: dict[str, Any] = result.document["agreement"]
    return result.metrics["AP"], agreement["AP"]


@pytest.mark.parametrize(
    ("options", "layers", "least_ap", "least_agreement"),
    [
        (NO_OPTIONS, {"default": "fp16"}, 44.45, 99.9),
        (NO_OPTIONS, {}, 44.2, 95.0),
        (SYMMETRIC, {}, 43.9, 91.0),
        (CALIBRATED, {}, 44.0, 95.5),
        (CORRECTED, {}, 44.0, 98.0),
        (PER_TENSOR, {}, 41.5, 79.0),
        (PER_TENSOR, {"heads": "fp16"}, 43.0, 80.0),
        (PER_TENSOR_CORRECTED, {}, 41.5, 86.6),
    ],
    ids=["fp16", "int8", "symmetric", "calibrated", "corrected", "per tensor", "heads fp16", "per tensor corrected"],
)
def test_aix(
    aix: Experiment,
    run: RunExperiment,
    options: QuantizationOptions,
    layers: dict[str, str],
    least_ap: float,
    least_agreement: float,
) -> None:
    ap, agreement = figures(run(aix, options, **layers))
    assert ap >= least_ap
    assert agreement >= least_agreement


def test_aix_mixed_with_nine_tenths_of_the_macs_in_int8(aix: Experiment, run: RunExperiment, analyzed: Analyzed) -> None:
    """fp16 for the layers that analysis would keep within 10 % of the MACs."""
    fp16_layers = {f"_{layer.layer}": "fp16" for layer in analyzed(aix, CORRECTED).proposal.layers}
    result = run(aix, CORRECTED, **fp16_layers)
    cost = result.document["cost"]
    assert cost["int8_macs"] >= 0.9 * cost["macs"]
    ap, agreement = figures(result)
    assert ap >= 44.4
    assert agreement >= 97.0


@pytest.mark.parametrize(("options", "least_ap"), [(NO_OPTIONS, 14.3), (SYMMETRIC, 13.5)], ids=["affine", "symmetric"])
def test_yolo_fastest(fastest: Experiment, run: RunExperiment, options: QuantizationOptions, least_ap: float) -> None:
    assert figures(run(fastest, options))[0] >= least_ap
