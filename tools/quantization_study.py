"""Which quantisation options pay: runs a list of configurations on one experiment and prints a Markdown table.

    python tools/quantization_study.py EXPERIMENT.yaml [--only TEXT] > table.md

The experiment names network, pictures and detection; the study sets precision and quantisation. Results are stored and
found again as those of `mpnet run`, so an interrupted study goes on where it stopped.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from mpnet.api.experiment import run_experiment
from mpnet.formats.experiment_yaml import read_experiment

PER_TENSOR = "quantization.weights.granularity=per_tensor"
MSE_WEIGHTS = "quantization.weights.method=mse"
BIAS = "quantization.bias_correction=true"
EQUALISE = "quantization.equalisation=true"


def mode(name: str) -> str:
    """An override: how a range becomes scale and zero point."""
    return f"quantization.activations.mode={name}"


def calibrated(method: str, percentile: float | None = None) -> list[str]:
    """Overrides: ranges from calibration pictures."""
    found = ["quantization.activations.ranges=calibrated", f"quantization.activations.method={method}"]
    return found if percentile is None else [*found, f"quantization.activations.percentile={percentile}"]


INT8 = "precision.default=int8"
HEADS = "precision.layers.heads=fp16"
FIRST = "precision.layers.first=fp16"

CONFIGURATIONS: list[tuple[str, list[str]]] = [
    ("fp16", ["precision.default=fp16"]),
    ("int8 per channel, dynamic, affine", [INT8]),
    ("int8 per channel, dynamic, symmetric", [INT8, mode("symmetric")]),
    *((f"int8 per channel, dynamic, {name}", [INT8, mode(name)]) for name in ("MIN_COMBINED", "MIN_FIRST", "SCALED")),
    ("int8 per channel, dynamic, power of two (truncating)", [INT8, mode("power_of_two")]),
    ("int8 per channel, dynamic, power of two, rounded",
     [INT8, mode("power_of_two"), "quantization.activations.rounding=half_to_even"]),
    ("int8 weights and activations power of two, per tensor (the reference program's scheme)",
     [INT8, mode("power_of_two"), PER_TENSOR, "quantization.weights.method=power_of_two"]),
    *((f"int8 per channel, calibrated, {scheme}, {label}", [INT8, mode(scheme), *options])
      for scheme in ("affine", "symmetric")
      for label, options in (
          ("min-max", calibrated("min_max")), ("moving average", calibrated("moving_average")),
          ("percentile 99.99", calibrated("percentile", 99.99)), ("percentile 99.9", calibrated("percentile", 99.9)),
          ("entropy", calibrated("entropy")), ("MSE", calibrated("mse")))),
    ("int8 per channel, dynamic, MSE weights", [INT8, MSE_WEIGHTS]),
    ("int8 per channel, dynamic, equalised", [INT8, EQUALISE]),
    ("int8 per channel, dynamic, bias corrected", [INT8, BIAS]),
    ("int8 per channel, dynamic, equalised, bias corrected", [INT8, EQUALISE, BIAS]),
    ("int8 per channel, dynamic, symmetric, equalised, bias corrected", [INT8, mode("symmetric"), EQUALISE, BIAS]),
    ("int8 per channel, calibrated, MSE, equalised, bias corrected", [INT8, *calibrated("mse"), EQUALISE, BIAS]),
    ("int8 per channel, calibrated, MSE, bias corrected", [INT8, *calibrated("mse"), BIAS]),
    ("int8 per tensor, dynamic", [INT8, PER_TENSOR]),
    ("int8 per tensor, dynamic, MSE weights", [INT8, PER_TENSOR, MSE_WEIGHTS]),
    ("int8 per tensor, dynamic, equalised", [INT8, PER_TENSOR, EQUALISE]),
    ("int8 per tensor, dynamic, bias corrected", [INT8, PER_TENSOR, BIAS]),
    ("int8 per tensor, dynamic, equalised, bias corrected", [INT8, PER_TENSOR, EQUALISE, BIAS]),
    ("int8 per tensor, dynamic, MSE weights, equalised, bias corrected",
     [INT8, PER_TENSOR, MSE_WEIGHTS, EQUALISE, BIAS]),
    ("heads fp16, rest int8 per tensor, dynamic", [INT8, HEADS, PER_TENSOR]),
    ("heads fp16, rest int8 per channel, dynamic", [INT8, HEADS]),
    ("first and heads fp16, rest int8 per channel, dynamic", [INT8, FIRST, HEADS]),
    ("first and heads fp16, rest int8 per channel, dynamic, symmetric", [INT8, FIRST, HEADS, mode("symmetric")]),
    ("first and heads fp16, rest int8 per channel, dynamic, bias corrected", [INT8, FIRST, HEADS, BIAS]),
    ("first and heads fp16, rest int8 per channel, calibrated, MSE, equalised, bias corrected",
     [INT8, FIRST, HEADS, *calibrated("mse"), EQUALISE, BIAS]),
    ("depthwise fp16, rest int8 per tensor, dynamic", [INT8, "precision.layers.depthwise=fp16", PER_TENSOR]),
    ("depthwise fp16, rest int8 per channel, dynamic", [INT8, "precision.layers.depthwise=fp16"]),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", type=Path)
    parser.add_argument("--only", default="", help="run configurations whose name holds this text")
    parser.add_argument("--skip", action="append", default=[], help="leave out those whose name holds this text")
    arguments = parser.parse_args()
    print("| configuration | AP | AP50 | agreement AP | AP75 | AP95 | SQNR of heads, dB | int8 MACs, % |")
    print("|---|---|---|---|---|---|---|---|")
    for name, overrides in CONFIGURATIONS:
        if arguments.only not in name or any(text in name for text in arguments.skip):
            continue
        start = time.perf_counter()
        report = run_experiment(read_experiment(arguments.experiment, overrides))
        document = report.result.document
        metrics, agreement, cost = document["metrics"], document["agreement"], document["cost"]
        heads = " / ".join("-" if db is None else f"{db:.1f}" for db in agreement["head_sqnr_db"])
        print(f"| {name} | {metrics['AP']:.2f} | {metrics['AP50']:.2f} | {agreement['AP']:.2f} | {agreement['AP75']:.2f} "
              f"| {agreement['AP95']:.2f} | {heads} | {100 * cost['int8_macs'] / cost['macs']:.1f} |", flush=True)
        print(f"{name}: {time.perf_counter() - start:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
