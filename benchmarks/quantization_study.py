# SPDX-License-Identifier: MIT
"""Which quantisation options pay: runs a list of configurations on one experiment and prints a Markdown table.

    python benchmarks/quantization_study.py EXPERIMENT.yaml [--only TEXT] > table.md

The experiment names network, images and detection; the study sets precision and quantisation. Every row is what
`mpnet run EXPERIMENT.yaml --set ...` gives with the row's overrides (--overrides prints them); here all rows share each
decoded image.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from mpnet.diagnose.analyze import ANALYSIS_IMAGES, KEEP_MACS_PERCENT
from mpnet.diagnose.layer_errors import analyze
from mpnet.diagnose.proposal import propose
from mpnet.diagnose.raising import find_raising
from mpnet.engine.cost import plan_cost
from mpnet.engine.options import resolve_options
from mpnet.engine.plan import Plan
from mpnet.engine.prepared_cache import equalisation_digest
from mpnet.errors import ConfigError
from mpnet.formats.documents.experiment import read_experiment
from mpnet.trial.calibration import calibrated
from mpnet.trial.detection import DETECTION_KIT
from mpnet.trial.experiment import open_workbench
from mpnet.trial.inference import Outcome, run_plans
from mpnet.trial.inputs import spread
from mpnet.trial.measure import measure_detections
from mpnet.trial.workbench import Workbench

PER_TENSOR = "quantization.weights.granularity=per_tensor"
MSE_WEIGHTS = "quantization.weights.method=mse"
BIAS = "quantization.bias_correction=true"
EQUALISE = "quantization.equalisation=true"
BY_ACTIVATIONS = "quantization.equalisation=activations"


def mode(name: str) -> str:
    """Return an override: how a range becomes scale and zero point."""
    return f"quantization.activations.mode={name}"


def ranges(method: str, percentile: float | None = None) -> list[str]:
    """Return overrides: ranges from calibration images."""
    settings = ["quantization.activations.ranges=calibrated", f"quantization.activations.method={method}"]
    return settings if percentile is None else [*settings, f"quantization.activations.percentile={percentile}"]


INT8 = "precision.default=int8"
HEADS = "precision.layers.heads=fp16"
FIRST_FP16 = "precision.layers.first=fp16"
# The layers that `mpnet analyze` would keep within 10 % of the MACs, with the same options.
ANALYZE_CHOICE = "analyze's choice of 10 % of the MACs fp16, rest int8 "

Ready = tuple[str, Workbench, Plan]
CONFIGURATIONS: list[tuple[str, list[str]]] = [
    ("fp16", ["precision.default=fp16"]),
    ("bf16", ["precision.default=bf16"]),
    ("int8 per channel, dynamic, affine", [INT8]),
    ("int8 per channel, dynamic, symmetric", [INT8, mode("symmetric")]),
    *((f"int8 per channel, dynamic, {name}", [INT8, mode(name)]) for name in ("MIN_COMBINED", "MIN_FIRST", "SCALED")),
    ("int8 per channel, dynamic, power of two (truncating)", [INT8, mode("power_of_two")]),
    (
        "int8 per channel, dynamic, power of two, rounded",
        [INT8, mode("power_of_two"), "quantization.activations.rounding=half_to_even"],
    ),
    (
        "int8 weights and activations power of two, per tensor (the reference program's scheme)",
        [INT8, mode("power_of_two"), PER_TENSOR, "quantization.weights.method=power_of_two"],
    ),
    *(
        (f"int8 per channel, calibrated, {scheme}, {label}", [INT8, mode(scheme), *options])
        for scheme in ("affine", "symmetric")
        for label, options in (
            ("min-max", ranges("min_max")),
            ("moving average", ranges("moving_average")),
            ("percentile 99.99", ranges("percentile", 99.99)),
            ("percentile 99.9", ranges("percentile", 99.9)),
            ("entropy", ranges("entropy")),
            ("MSE", ranges("mse")),
        )
    ),
    ("int8 per channel, dynamic, MSE weights", [INT8, MSE_WEIGHTS]),
    ("int8 per channel, dynamic, equalised", [INT8, EQUALISE]),
    ("int8 per channel, dynamic, bias corrected", [INT8, BIAS]),
    ("int8 per channel, dynamic, equalised, bias corrected", [INT8, EQUALISE, BIAS]),
    ("int8 per channel, dynamic, symmetric, equalised, bias corrected", [INT8, mode("symmetric"), EQUALISE, BIAS]),
    ("int8 per channel, calibrated, MSE, equalised, bias corrected", [INT8, *ranges("mse"), EQUALISE, BIAS]),
    ("int8 per channel, calibrated, MSE, bias corrected", [INT8, *ranges("mse"), BIAS]),
    ("int8 per channel, dynamic, equalised by activations", [INT8, BY_ACTIVATIONS]),
    ("int8 per channel, dynamic, equalised by activations, bias corrected", [INT8, BY_ACTIVATIONS, BIAS]),
    (
        "int8 per channel, calibrated, percentile 99.99, equalised by activations",
        [INT8, *ranges("percentile", 99.99), BY_ACTIVATIONS],
    ),
    (
        "int8 per channel, calibrated, percentile 99.99, equalised by activations, bias corrected",
        [INT8, *ranges("percentile", 99.99), BY_ACTIVATIONS, BIAS],
    ),
    ("int8 per tensor, dynamic", [INT8, PER_TENSOR]),
    ("int8 per tensor, dynamic, MSE weights", [INT8, PER_TENSOR, MSE_WEIGHTS]),
    ("int8 per tensor, dynamic, equalised", [INT8, PER_TENSOR, EQUALISE]),
    ("int8 per tensor, dynamic, bias corrected", [INT8, PER_TENSOR, BIAS]),
    ("int8 per tensor, dynamic, equalised, bias corrected", [INT8, PER_TENSOR, EQUALISE, BIAS]),
    ("int8 per tensor, dynamic, MSE weights, equalised, bias corrected", [INT8, PER_TENSOR, MSE_WEIGHTS, EQUALISE, BIAS]),
    ("heads fp16, rest int8 per tensor, dynamic", [INT8, HEADS, PER_TENSOR]),
    ("heads fp16, rest int8 per channel, dynamic", [INT8, HEADS]),
    ("first and heads fp16, rest int8 per channel, dynamic", [INT8, FIRST_FP16, HEADS]),
    ("first and heads fp16, rest int8 per channel, dynamic, symmetric", [INT8, FIRST_FP16, HEADS, mode("symmetric")]),
    ("first and heads fp16, rest int8 per channel, dynamic, bias corrected", [INT8, FIRST_FP16, HEADS, BIAS]),
    (
        "first and heads fp16, rest int8 per channel, calibrated, MSE, equalised, bias corrected",
        [INT8, FIRST_FP16, HEADS, *ranges("mse"), EQUALISE, BIAS],
    ),
    (ANALYZE_CHOICE + "per tensor, dynamic", [INT8, PER_TENSOR]),
    (ANALYZE_CHOICE + "per channel, dynamic", [INT8]),
    (ANALYZE_CHOICE + "per channel, dynamic, symmetric", [INT8, mode("symmetric")]),
    (ANALYZE_CHOICE + "per channel, dynamic, equalised, bias corrected", [INT8, EQUALISE, BIAS]),
    (ANALYZE_CHOICE + "per channel, calibrated, MSE, equalised, bias corrected", [INT8, *ranges("mse"), EQUALISE, BIAS]),
    ("depthwise fp16, rest int8 per tensor, dynamic", [INT8, "precision.layers.depthwise=fp16", PER_TENSOR]),
    ("depthwise fp16, rest int8 per channel, dynamic", [INT8, "precision.layers.depthwise=fp16"]),
]


def plans_of(base: Workbench, path: Path, rows: list[tuple[str, list[str]]]) -> list[Ready]:
    """Each row's name, its calibrated workbench and its plan."""
    rows_ready = []
    for name, overrides in rows:
        spec = read_experiment(path, overrides)
        quantization = spec.quantization
        options = resolve_options(base.network, quantization.options, quantization.layers, batch_norm=spec.model.batch_norm)
        try:
            bench = calibrated(replace(base, experiment=spec, options=options))
            precisions = bench.assign()
        except ConfigError as error:  # such as depthwise layers, which not every network has
            print(f"{name}: left out: {error}", file=sys.stderr)
            continue
        if name.startswith(ANALYZE_CHOICE):
            positions = spread(len(bench.inputs), ANALYSIS_IMAGES)
            batches = (batch.x for batch in bench.inputs.batches(2, positions))
            plan = bench.plan(precisions)
            analysis = analyze(bench.prepared, plan, batches, bench.threads)
            proposal = propose(bench, plan, analysis, KEEP_MACS_PERCENT, find_raising(bench, ""))
            precisions = bench.assign(proposal.precisions)
            print(f"{name}: fp16 in {', '.join(layer.name for layer in proposal.layers)}", file=sys.stderr)
        rows_ready.append((name, bench, bench.plan(precisions)))
    return rows_ready


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", type=Path)
    parser.add_argument("--only", default="", help="run configurations whose name holds this text")
    parser.add_argument("--skip", action="append", default=[], help="leave out those whose name holds this text")
    parser.add_argument("--overrides", action="store_true", help="print every configuration's overrides and stop")
    arguments = parser.parse_args()
    rows = [row for row in CONFIGURATIONS if arguments.only in row[0] and not any(text in row[0] for text in arguments.skip)]
    if arguments.overrides:
        for name, overrides in rows:
            print(f"{name}: {' '.join(f'--set {override}' for override in overrides)}")
        return
    base = open_workbench(read_experiment(arguments.experiment))
    lines: dict[str, str] = {}
    ready = plans_of(base, arguments.experiment, rows)
    # Equalised weights are other weights, so they take a pass of their own.
    groups: dict[bool | str, list[Ready]] = {}
    for row in ready:
        groups.setdefault(equalisation_digest(row[1].options.equalise), []).append(row)
    for group in groups.values():
        bench = next((bench for _, bench, _ in group if bench.calibration.channel_means), group[0][1])
        images_done = 0

        def advance(count: int, total: int = len(bench.inputs)) -> None:
            nonlocal images_done
            images_done += count
            print(f"{images_done} of {total} images", end="\r", file=sys.stderr)

        outcomes = run_plans(bench, [bench.plan(bench.uniform("fp32")), *(plan for _, _, plan in group)], advance)
        for (name, _, plan), outcome in zip(group, outcomes[1:], strict=True):
            lines[name] = line(bench, name, plan, outcome, outcomes[0])
    print("| configuration | AP | AP50 | agreement AP | AP75 | AP95 | SQNR of heads, dB | int8 MACs, % |")
    print("|---|---|---|---|---|---|---|---|")
    for name, _ in rows:
        if name in lines:
            print(lines[name])


def line(bench: Workbench, name: str, plan: Plan, outcome: Outcome, baseline: Outcome) -> str:
    """Print a row of the table."""
    metrics, _ = measure_detections(outcome.predictions, bench.dataset)
    agreed = DETECTION_KIT.agreement(
        baseline.predictions, outcome.predictions, bench.dataset, "fp32", list(outcome.head_sqnr_db)
    )
    cost = plan_cost(plan)
    heads = " / ".join("-" if db is None else f"{db:.1f}" for db in agreed.head_sqnr_db)
    figures = [metrics["AP"], metrics["AP50"], *(agreed.values[name] for name in ("AP", "AP75", "AP95"))]
    cells = [name, *(f"{value:.2f}" for value in figures), heads, f"{100 * cost['int8_macs'] / cost['macs']:.1f}"]
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
