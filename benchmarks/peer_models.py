# SPDX-License-Identifier: MIT
"""Writes one network for every engine, by mpnet's own exports: FOLDER/CASE.onnx and so on."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Iterable

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.assign import assign
from mpnet.engine.calibrate import calibrate, range_requests
from mpnet.engine.options import EngineOptions, resolve_options
from mpnet.engine.prepare import Prepared
from mpnet.errors import MpnetError
from mpnet.export import Configuration, export
from mpnet.formats.cfg.read import read_cfg
from mpnet.formats.weights import read_weights
from mpnet.kernels.isa import kernels
from mpnet.model.quantization import ActivationOptions, QuantizationOptions
from mpnet.model.weights import random_weights

# (file without suffix, target, flavour, precision, mode and rounding of calibrated codes, or none: dynamic ranges).
# Engines quantise the rest themselves: ONNX Runtime and NNCF what net.onnx holds.
FILES: tuple[tuple[str, str, str, str, dict[str, str] | None], ...] = (
    ("net", "onnx", "openvino", "fp32", None),
    ("net-int8", "onnx", "openvino", "int8", {"mode": "affine"}),
    ("net", "ncnn", "", "fp32", None),
    ("net-int8", "ncnn", "", "int8", {"mode": "symmetric", "rounding": "half_away"}),
    ("net", "tflite", "litert", "fp32", None),
    ("net-int8", "tflite", "integer", "int8", {"mode": "affine"}),
    ("net-dynamic", "tflite", "litert", "int8", None),
)


def open_network(folder: Path) -> Prepared:
    """net.cfg of a folder with net.weights, or random ones where there is none."""
    network = read_cfg(folder / "net.cfg")
    path = folder / "net.weights"
    return Prepared(network, read_weights(path, network) if path.exists() else random_weights(network), kernels())


def options_of(prepared: Prepared, folder: Path, codes: dict[str, str] | None) -> EngineOptions:
    """How int8 layers are quantised; codes: as of `FILES`, with ranges of calibration.npy, or none."""
    network = prepared.network
    if codes is None:
        return resolve_options(network, QuantizationOptions(activations=ActivationOptions(ranges="dynamic", mode="affine")))
    requested = QuantizationOptions(activations=ActivationOptions(ranges="calibrated", **codes))
    images: Iterable[NDArray[np.float32]] = (image[None] for image in np.load(folder / "calibration.npy"))
    ranges = calibrate(prepared, images, range_requests(network, resolve_options(network, requested)), {})
    return resolve_options(network, requested, ranges=ranges.by_tensor())


def write_models(folder: Path) -> dict[str, str]:
    """Every file that can be written. Returns why the others were not, by name with suffix."""
    prepared = open_network(folder)
    refused = {}
    for name, target, flavour, precision, codes in FILES:
        suffix = {"ncnn": ".param"}.get(target, f".{target}")
        try:
            plan = assign(prepared.network, precision)
            configuration = Configuration.from_prepared(prepared, plan, options_of(prepared, folder, codes))
            exported: Any = export(target, configuration, flavour)
        except MpnetError as error:
            refused[name + suffix] = str(error)
            continue
        for ending, content in exported.files.items():
            (folder / (name + ending)).write_bytes(content)
    return refused
