# SPDX-License-Identifier: MIT
"""How many values of LiteRT's reference kernels differ from mpnet's under `quantization.integer_only`: a line a mixture.

    python benchmarks/litert_integer.py CFG WEIGHTS IMAGES

Ranges are of the first four images, the values of all tensors of the fifth. Mixtures: all int8, all int16, int8 with int16 in
the first layer (depthwise layers, where there are any) and heads, and layers that take turns.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpnet.detection.images import read_image
from mpnet.detection.preprocess import preprocess
from mpnet.engine.assign import PrecisionPlan, assign
from mpnet.engine.calibrate import calibrate, range_requests
from mpnet.engine.options import resolve_options
from mpnet.engine.prepare import Prepared
from mpnet.engine.session import Session
from mpnet.export import Configuration, export
from mpnet.formats.cfg.read import read_cfg
from mpnet.formats.weights import read_weights
from mpnet.kernels.isa import kernels
from mpnet.model.network import NetworkSpec
from mpnet.model.precision import INT8, INT16
from mpnet.model.quantization import ActivationOptions, QuantizationOptions

PADDINGS = ("PAD", "PADV2")
WIDENED = "/codes"
"""How names of int8 in int16 end, which mpnet's convolutions read as int8."""


def main() -> None:
    """Read the command line, print the lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("cfg", "weights", "images"):
        parser.add_argument(name, type=Path)
    args = parser.parse_args()
    network = read_cfg(args.cfg)
    files = sorted(args.images.iterdir())[:5]
    images = np.concatenate([preprocess(read_image(file), network.width, network.height, "letterbox")[0] for file in files])
    prepared = Prepared(network, read_weights(args.weights, network), kernels())
    requested = QuantizationOptions(ActivationOptions(ranges="calibrated"), integer_only=True)
    ranges = calibrate(prepared, [images[:4]], range_requests(network, resolve_options(network, requested)), {}).by_tensor()
    options = resolve_options(network, requested, ranges=ranges)
    for name, plan in mixtures(network).items():
        codes, differ, heads = compare(Configuration.from_prepared(prepared, plan, options), images[4:])
        print(f"{args.cfg.stem}, {name}: {differ:,} of {codes:,} values differ; heads {'equal' if heads else 'differ'}")


def mixtures(network: NetworkSpec) -> dict[str, PrecisionPlan]:
    """By what they are called."""
    fragile = "depthwise" if any(layer.depthwise for layer in network.convolutions) else "first"
    turns = {layer.index: (INT8, INT16)[number % 2] for number, layer in enumerate(network.convolutions)}
    return {
        "int8": assign(network, "int8"),
        "int16": assign(network, "int16"),
        f"int8, int16 in {fragile} and heads": assign(network, "int8", {fragile: "int16", "heads": "int16"}),
        "int8 and int16 in turns": assign(network, overrides=turns),
    }


def compare(configuration: Configuration, image: NDArray[np.float32]) -> tuple[int, int, bool]:
    """(values of all steps, those in which LiteRT's differ, whether the heads are equal)."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    engine: Any = Interpreter(
        model_content=export("tflite", configuration, "integer").content,
        experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
        experimental_preserve_all_tensors=True,
    )
    engine.allocate_tensors()
    engine.set_tensor(engine.get_input_details()[0]["index"], image)
    engine.invoke()
    names = {detail["index"]: detail["name"] for detail in engine.get_tensor_details()}
    outputs = [int(operator["outputs"][0]) for operator in engine._get_ops_details() if operator["op_name"] not in PADDINGS]
    outputs = [output for output in outputs if not names[output].endswith(WIDENED)]
    tensors: list[NDArray[Any]] = []
    session = Session(configuration.prepared, configuration.plan, 2)
    session.observe(
        image, lambda _, step, inputs, output: None if step.operation.is_head else tensors.append(output.host().copy())
    )
    total = differ = 0
    for ours, output in zip(tensors, outputs, strict=True):
        theirs = engine.get_tensor(output)
        total += ours.size
        differ += int(np.count_nonzero(ours != theirs)) if ours.dtype == theirs.dtype else ours.size
    heads = zip(session.forward(image), engine.get_output_details(), strict=True)
    return total, differ, all(np.array_equal(head, engine.get_tensor(detail["index"])) for head, detail in heads)


if __name__ == "__main__":
    main()
