# SPDX-License-Identifier: MIT
"""What a recipe gives in the program that it is for: AP and agreement of a quantised ONNX file beside mpnet's own run.

Usage: recipes.py EXPERIMENT.yaml QUANTISED.onnx [--set KEY=VALUE...]

EXPERIMENT.yaml is the configuration that the recipe was exported from; QUANTISED.onnx is what the recipe's script or the
program made. Images, decoding and metrics are the experiment's on both sides; agreement is with mpnet's fp32. Layers whose
convolution has weights in codes are read from the file.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from mpnet.api import open_workbench, read_experiment
from mpnet.export.naming import layer_of
from mpnet.trial.inference import Runner, own_runner, run_all


def quantised_layers(model: onnx.ModelProto) -> list[int]:
    """Indices of layers whose convolution has weights in codes."""
    coded = {name for node in model.graph.node if node.op_type == "DequantizeLinear" for name in node.output}
    convolutions = [node for node in model.graph.node if node.op_type == "Conv"]
    return sorted(layer_of(node.name) or 0 for node in convolutions if node.input[1] in coded)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    said = parser.parse_args()
    bench = open_workbench(read_experiment(said.experiment, said.overrides))
    plan = bench.assign()
    session = onnxruntime.InferenceSession(str(said.model), providers=["CPUExecutionProvider"])
    name, outputs = session.get_inputs()[0].name, [each.name for each in session.get_outputs()]

    def forward(batch: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        """One image at a time: (n, h, w, c) in and out."""
        images = np.ascontiguousarray(batch.transpose(0, 3, 1, 2))
        passes = [session.run(outputs, {name: x[None]}) for x in images]
        return [np.ascontiguousarray(np.concatenate(heads).transpose(0, 2, 3, 1)) for heads in zip(*passes, strict=True)]

    plans = [bench.plan(bench.uniform("fp32")), bench.plan(plan)]
    runners = [*(own_runner(bench.prepared, each) for each in plans), Runner(plans[1], lambda: forward)]
    fp32, own, engine = run_all(bench, runners)
    meter = bench.kit.meter(bench.dataset, fp32.predictions)
    names = ("AP", "agreement_AP")
    asked = [index for index in plan.weighted if plan[index].carries_scale]
    made = quantised_layers(onnx.load(said.model))
    print(
        json.dumps(
            {
                "precision": plan.key,
                "mpnet": meter.values(own.predictions, names),
                "engine": meter.values(engine.predictions, names),
                "layers_as_asked": made == asked,
                "differ": sorted(set(made) ^ set(asked)),
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
