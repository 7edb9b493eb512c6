# SPDX-License-Identifier: MIT
"""What `analyze` proposes is never worse than `heads: fp16` at equal or lower cost: three networks, all of their images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mpnet.config.experiment import Experiment, PrecisionSection, QuantizationSection
from mpnet.model.precision import FP16
from mpnet.model.quantization import NO_OPTIONS, QuantizationOptions, WeightOptions
from mpnet.model.selectors import select_layers
from mpnet.trial.analysis import analyze_experiment
from mpnet.trial.inference import run_plans

PER_TENSOR = QuantizationOptions(weights=WeightOptions(granularity="per_tensor"))


@pytest.mark.parametrize(
    ("name", "options", "percent"),
    [
        ("aix", PER_TENSOR, 3.0),
        ("aix", PER_TENSOR, 10.0),
        ("tiny", PER_TENSOR, 3.0),
        ("tiny", NO_OPTIONS, 10.0),
        ("fastest", PER_TENSOR, 10.0),
    ],
    ids=["aix-tensor-3", "aix-tensor-10", "tiny-tensor-3", "tiny-channel-10", "fastest-tensor-10"],
)
def test_the_proposal_is_no_worse_than_the_heads(
    request: pytest.FixtureRequest, output: Path, name: str, options: QuantizationOptions, percent: float
) -> None:
    experiment: Experiment = request.getfixturevalue(name)
    report = analyze_experiment(
        replace(experiment, precision=PrecisionSection("int8"), quantization=QuantizationSection(options), output=output),
        keep_macs_percent=percent,
    )
    bench, proposal = report.bench, report.proposal
    heads = dict.fromkeys(select_layers(bench.network, "heads"), FP16)
    chosen = [bench.uniform("fp32"), bench.assign(proposal.precisions), bench.assign(heads)]
    baseline, *found = run_plans(bench, [bench.plan(precisions) for precisions in chosen])
    meter = bench.kit.meter(bench.dataset, baseline.predictions)
    proposed, by_thumb = (meter.values(outcome.predictions)["agreement_AP"] for outcome in found)
    assert proposal.raised.macs <= percent / 100 * bench.network.macs
    assert proposed >= by_thumb
