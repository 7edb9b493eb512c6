# SPDX-License-Identifier: MIT
"""What `analyze` proposes is never worse than `heads: fp16` at equal or lower cost: three networks, all of their images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mpnet.api import run_experiment
from mpnet.config.experiment import Experiment, PrecisionSection, QuantizationSection
from mpnet.diagnose.proposal import propose
from mpnet.model.precision import FP16
from mpnet.model.quantization import NO_OPTIONS, QuantizationOptions, WeightOptions
from mpnet.model.selectors import select_layers
from mpnet.trial.inference import run_plans
from tests.realdata.conftest import Analyzed

PER_TENSOR = QuantizationOptions(weights=WeightOptions(granularity="per_tensor"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "percents"),
    [("aix", PER_TENSOR, (3.0, 10.0)), ("tiny", NO_OPTIONS, (10.0,)), ("fastest", PER_TENSOR, (10.0,))],
    ids=["aix-tensor-3-10", "tiny-channel-10", "fastest-tensor-10"],
)
def test_the_proposal_is_no_worse_than_the_heads(
    request: pytest.FixtureRequest, analyzed: Analyzed, name: str, options: QuantizationOptions, percents: tuple[float, ...]
) -> None:
    """percents: of the MACs that may be kept; the same noise decides for each."""
    experiment: Experiment = request.getfixturevalue(name)
    report = analyzed(experiment, options)
    bench = report.bench
    proposals = [
        report.proposal
        if percent == report.keep_macs_percent
        else propose(bench, report.plan, report.analysis, percent, report.raising)
        for percent in percents
    ]
    heads = dict.fromkeys(select_layers(bench.network, "heads"), FP16)
    assignments = [bench.uniform("fp32"), bench.assign(heads), *(bench.assign(proposal.precisions) for proposal in proposals)]
    baseline, *outcomes = run_plans(bench, [bench.plan(precisions) for precisions in assignments])
    meter = bench.kit.meter(bench.dataset, baseline.predictions)
    by_thumb, *proposed = (meter.values(outcome.predictions)["agreement_AP"] for outcome in outcomes)
    for percent, proposal, agreement in zip(percents, proposals, proposed, strict=True):
        assert proposal.raised.macs <= percent / 100 * bench.network.macs
        assert agreement >= by_thumb


def test_yolo_fastest_per_tensor_needs_its_worst_depthwise_layers(
    fastest: Experiment, analyzed: Analyzed, output: Path
) -> None:
    kept_layers = [layer.layer for layer in analyzed(fastest, PER_TENSOR).proposal.layers]
    precision = PrecisionSection("int8", tuple((str(layer), "fp16") for layer in kept_layers))
    result = run_experiment(
        replace(fastest, precision=precision, quantization=QuantizationSection(PER_TENSOR), output=output)
    ).result
    cost = result.document["cost"]
    assert cost["int8_macs"] >= 0.9 * cost["macs"]
    assert result.metrics["AP"] >= 14.3
    assert {2, 5, 18} <= set(kept_layers)  # 67, 14 and 8 % of the noise
