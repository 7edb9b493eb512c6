# SPDX-License-Identifier: MIT
"""result.json: the keys that it always had, in their order, and old documents."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mpnet.config.measures import DEPLOYED, names_of
from mpnet.formats.documents.typed import as_json, build, from_json
from mpnet.trial.experiment import RunReport
from mpnet.trial.run_result import RUN_RESULT, EngineRun, PlacedLayer, RunResult

KEYS = [
    *("format", "version", "name", "id", "created", "command", "digests", "protocol", "precision", "metrics", "agreement"),
    *("per_class", "cost", "latency", "versions", "sources", "calibration", "notes"),
]
MINIMAL_DOCUMENT: dict[str, Any] = {
    "name": "old",
    "id": "0" * 16,
    "digests": {"cfg": "1"},
    "protocol": {"dataset": "yolo", "images": 5, "batch_norm": "darknet"},
    "precision": {"key": "fq"},
    "metrics": {"AP": 50.0},
    "per_class": [{"id": 1, "name": "circle", "truths": 3, "AP": 50}],
    "cost": {"macs": 1, "weight_bytes": 2, "peak_activation_bytes": 3, "int8_macs": 4, "bit_operations": 5},
    "versions": {"mpnet": "0.1.0"},
}


def test_a_run_writes_the_keys_in_their_order(report: RunReport) -> None:
    text = (report.result.folder / "result.json").read_text(encoding="utf-8")
    document = json.loads(text)
    assert list(document) == KEYS
    assert list(document["latency"]) == [
        *("isa", "threads", "cpu", "median_ms", "min_ms", "low_ms", "high_ms", "images", "doubt", "steps")
    ]
    assert list(document["latency"]["steps"][0]) == ["step", "layer", "ms"]
    assert list(document["agreement"]) == ["baseline", "AP", "AP75", "AP95", "head_sqnr_db"]
    assert list(document["precision"]["layers"][0]) == [
        *("index", "type", "name", "selectors", "precision", "origin", "conversions", "in_shape", "shape"),
        *("macs", "parameters", "weight_bytes", "activation_bytes"),
    ]
    assert list(document["per_class"][0]) == ["id", "name", "truths", "AP", "AP50", "AR100", "darknet_AP50"]


def test_what_is_read_is_written_again_byte_for_byte(report: RunReport) -> None:
    path = report.result.folder / "result.json"
    run = build(RunResult, RUN_RESULT.read(path))
    assert run == report.result.run
    text = json.dumps({**RUN_RESULT.head, **as_json(run)}, indent=1) + "\n"
    assert text == path.read_text(encoding="utf-8")


def test_documents_of_0_1_0_lack_what_came_later() -> None:
    run = from_json(RunResult, MINIMAL_DOCUMENT, "result")
    assert (run.created, run.latency, run.agreement, run.deployed, run.notes) == ("", None, None, None, ())
    assert run.per_class[0].values == {"AP": 50}
    assert run.provenance.sources == {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": "x"}, "result.id must be the first digits of a digest, not 'x'"),
        ({"precision": {"key": "f q"}}, "result.precision.key must be a precision string, such as fqqh, not 'f q'"),
        ({"precision": {"key": "f", "layers": [{}]}}, "result.precision.layers[0].index is missing"),
        ({"latency": {"isa": "avx2", "threads": 1}}, "result.latency.median_ms is missing"),
        ({"cost": {}}, "result.cost.macs is missing"),
        ({"protocol": {"dataset": "yolo", "images": "5", "batch_norm": ""}}, "result.protocol.images must be a whole number"),
        ({"deployed": {"engine": "e", "version": "1", "reference": 5}}, "result.deployed.reference must be a text, not 5"),
    ],
)
def test_damage_is_named_by_its_place(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="result") as error:
        from_json(RunResult, {**MINIMAL_DOCUMENT, **change}, "result")
    assert str(error.value).startswith(message)


def test_an_engines_run_stands_in_one_object() -> None:
    values = {"AP": 40.0, "agreement_AP": None, "head_error": 0.5, "latency_ms": 2.0, "int8_latency_ms": 3.0}
    engine_run = EngineRun(
        "onnxruntime", "1.0", "0" * 16, values, (PlacedLayer(0, "conv", "int8", "int8", "fp32", "why", 1.0),)
    )
    document = as_json(engine_run)
    assert list(document) == ["engine", "version", "reference", *values, "layers"]
    assert document["layers"] == [
        {"index": 0, "name": "conv", "asked": "int8", "written": "int8", "executed": "fp32", "why": "why", "ms": 1.0}
    ]
    assert from_json(EngineRun, document, "deployed") == engine_run
    assert set(engine_run.measures) <= set(names_of("deployed"))
    assert engine_run.measures[f"{DEPLOYED}AP"] == 40.0
