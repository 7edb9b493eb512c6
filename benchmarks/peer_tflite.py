# SPDX-License-Identifier: MIT
"""Writes LiteRT models of the network in FOLDER (layers.json, arrays.npz): needs TensorFlow, not mpnet.

Usage: peer_tflite.py FOLDER. Makes fp32.tflite, int8.tflite (calibrated on calibration.npy) and dynamic.tflite.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf


def main() -> int:
    folder = Path(sys.argv[1])
    net = json.loads((folder / "layers.json").read_text(encoding="utf-8"))
    arrays = np.load(folder / "arrays.npz")
    calibration = np.load(folder / "calibration.npy")

    @tf.function(input_signature=[tf.TensorSpec([1, *net["in"]], tf.float32)])
    def forward(image: Any) -> Any:
        results: list[Any] = []
        for index, layer in enumerate(net["layers"]):
            sources = [image if i < 0 else results[i] for i in layer["inputs"]]
            x = sources[0]
            if layer["kind"] == "convolutional":
                pad = layer["padding"]
                same = layer["stride"] == 1 and 2 * pad == layer["size"] - 1
                if not same:
                    x = tf.pad(x, [[0, 0], [pad, pad], [pad, pad], [0, 0]])
                weights = arrays[f"w{index}"].transpose(2, 3, 1, 0)
                x = tf.nn.conv2d(x, tf.constant(weights), layer["stride"], "SAME" if same else "VALID")
                x = tf.nn.bias_add(x, tf.constant(arrays[f"b{index}"]))
                x = tf.nn.leaky_relu(x, 0.1) if layer["activation"] == "leaky" else x
            elif layer["kind"] == "maxpool":
                x = tf.nn.max_pool2d(x, layer["size"], layer["stride"], "SAME")
            elif layer["kind"] == "upsample":
                h, w = x.shape[1] * layer["factor"], x.shape[2] * layer["factor"]
                x = tf.image.resize(x, (h, w), method="nearest")
            elif layer["kind"] == "route":
                x = tf.concat(sources, axis=3) if len(sources) > 1 else x
            results.append(x)
        return [results[i] for i in net["heads"]]

    module = tf.Module()
    module.forward = forward
    for kind in ("fp32", "dynamic", "int8"):
        converter = tf.lite.TFLiteConverter.from_concrete_functions([forward.get_concrete_function()], module)
        if kind != "fp32":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if kind == "int8":
            converter.representative_dataset = lambda: ([image[None]] for image in calibration)
            converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        (folder / f"{kind}.tflite").write_bytes(converter.convert())
    return 0


if __name__ == "__main__":
    sys.exit(main())
