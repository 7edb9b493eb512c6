# SPDX-License-Identifier: MIT
"""How many codes of LiteRT's 16x8 convolutions differ from mpnet's, on the same inputs: one line per network.

    python benchmarks/litert_int16.py CFG WEIGHTS IMAGES

The network is exported in int16 with ranges of the first four images and run by LiteRT on the fifth. Of every
convolution, LiteRT's own input codes are then summed exactly and turned into codes twice: by mpnet's rule
(docs/arithmetic.md), which rounds once to float32, and by LiteRT's, which multiplies by a fixed-point factor of 16 bits.
The second has to give LiteRT's codes, each one.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpnet.detection.images import read_image
from mpnet.detection.preprocess import preprocess
from mpnet.engine.assign import assign
from mpnet.engine.calibrate import calibrate, range_requests
from mpnet.engine.options import resolve_options
from mpnet.engine.prepare import Prepared
from mpnet.export import Configuration, export
from mpnet.formats.cfg.read import read_cfg
from mpnet.formats.weights import read_weights
from mpnet.kernels.isa import kernels
from mpnet.model.quantization import ActivationOptions, QuantizationOptions


def main() -> None:
    """Read the command line, print the line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("cfg", "weights", "images"):
        parser.add_argument(name, type=Path)
    args = parser.parse_args()
    network = read_cfg(args.cfg)
    files = sorted(args.images.iterdir())[:5]
    images = np.concatenate([preprocess(read_image(file), network.width, network.height, "letterbox")[0] for file in files])
    prepared = Prepared(network, read_weights(args.weights, network), kernels())
    options = QuantizationOptions(ActivationOptions(mode="symmetric", ranges="calibrated"))
    requests = range_requests(network, resolve_options(network, options))
    ranges = calibrate(prepared, [images[:4]], requests, {}).by_tensor()
    plan = assign(network, "int16")
    content = export("tflite", Configuration.of(prepared, plan, resolve_options(network, options, ranges=ranges))).content
    codes, differ, farthest, unexplained = compare(content, images[4:])
    print(
        f"{args.cfg.stem}: {differ:,} of {codes:,} codes ({differ / codes:.2%}) differ, by {farthest} at most; "
        f"of LiteRT's own rule {unexplained:,}"
    )


def compare(content: bytes, image: NDArray[np.float32]) -> tuple[int, int, int, int]:
    """(codes of all convolutions, those in which mpnet's rule differs, by how much at most, those in which LiteRT's does)."""
    from ai_edge_litert.interpreter import Interpreter

    engine: Any = Interpreter(model_content=content, experimental_preserve_all_tensors=True)
    engine.allocate_tensors()
    engine.set_tensor(engine.get_input_details()[0]["index"], image)
    engine.invoke()
    details = {detail["index"]: detail for detail in engine.get_tensor_details()}
    fields = options_by_output(content)
    total = differ = farthest = unexplained = 0
    for operator in engine._get_ops_details():
        if operator["op_name"] in ("CONV_2D", "DEPTHWISE_CONV_2D"):
            x, kernel, bias = (int(index) for index in operator["inputs"])
            out = int(operator["outputs"][0])
            found = engine.get_tensor(out).astype(np.int64)
            sums = summed(engine.get_tensor(x), engine.get_tensor(kernel), found.shape, fields[out])
            biases, steps = engine.get_tensor(bias), details[bias]["quantization_parameters"]["scales"]
            scale = np.float32(details[out]["quantization"][0])
            low = 0 if fields[out].fusedActivationFunction == 1 else -32768
            real = (sums.astype(np.float32).astype(np.float64) * steps + biases * steps.astype(np.float64)).astype(np.float32)
            own = np.clip(np.rint(real * (np.float32(1) / scale)), low, 32767).astype(np.int64)
            factors = (
                details[x]["quantization"][0] * details[kernel]["quantization_parameters"]["scales"].astype(np.float64) / scale
            )
            theirs = np.clip(scaled(sums + biases, factors), low, 32767)
            total += found.size
            differ += int((own != found).sum())
            farthest = max(farthest, int(np.abs(own - found).max()))
            unexplained += int((theirs != found).sum())
    return total, differ, farthest, unexplained


def options_by_output(content: bytes) -> dict[int, Any]:
    """The options of every operator, by the tensor that it writes."""
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content))
    return {int(operator.outputs[0]): operator.builtinOptions for operator in model.subgraphs[0].operators}


def summed(x: NDArray[np.int16], kernel: NDArray[np.int8], shape: tuple[int, ...], options: Any) -> NDArray[np.int64]:
    """The sums of products, (1, height, width, filters); exact, since they stay below 2^53."""
    depthwise = hasattr(options, "depthMultiplier")
    filters, rows, columns, _ = kernel.shape if not depthwise else (kernel.shape[3], *kernel.shape[1:3], 0)
    stride, dilation = options.strideH, options.dilationHFactor
    around = [
        max((shape[axis] - 1) * stride + dilation * (size - 1) + 1 - x.shape[axis], 0) if options.padding == 0 else 0
        for axis, size in ((1, rows), (2, columns))
    ]
    padded = np.pad(x.astype(np.float64), ((0, 0), *((n // 2, n - n // 2) for n in around), (0, 0)))
    sums = np.zeros((1, *shape[1:3], filters))
    for row in range(rows):
        for column in range(columns):
            top, left = row * dilation, column * dilation
            part = padded[
                :, top : top + (shape[1] - 1) * stride + 1 : stride, left : left + (shape[2] - 1) * stride + 1 : stride
            ]
            sums += part * kernel[0, row, column] if depthwise else part @ kernel[:, row, column].T.astype(np.float64)
    return sums.astype(np.int64)


def scaled(sums: NDArray[np.int64], factors: NDArray[np.float64]) -> NDArray[np.int64]:
    """The sums times a factor per channel as LiteRT scales sums of 64 bits: a mantissa of 16 bits, a shift, rounded half up."""
    results = np.empty_like(sums)
    for channel, factor in enumerate(factors):
        mantissa, exponent = math.frexp(factor)
        whole = math.floor(mantissa * 2**31 + 0.5)
        if whole == 2**31:
            whole, exponent = whole // 2, exponent + 1
        reduced = (whole + (1 << 15)) >> 16 if whole < 0x7FFF0000 else 0x7FFF
        shift = 15 - exponent
        results[..., channel] = (sums[..., channel] * reduced + (1 << (shift - 1))) >> shift
    return results


if __name__ == "__main__":
    main()
