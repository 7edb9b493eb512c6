# SPDX-License-Identifier: MIT
"""Ranges of a network's tensors, found once on calibration images."""

from __future__ import annotations

from typing import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.integer import codes_owner
from mpnet.engine.lowering import is_quantized_afterwards, range_owner
from mpnet.engine.observe import observe_tensors
from mpnet.engine.options import EngineOptions
from mpnet.engine.prepare import Prepared
from mpnet.errors import ConfigError
from mpnet.model.network import NETWORK_INPUT, NetworkSpec
from mpnet.model.quantization import scheme_of
from mpnet.model.ranges import CalibratedRanges
from mpnet.quantization.calibrate import CalibrationMethod, Calibrator
from mpnet.quantization.scheme import ActivationScheme

Request = tuple[CalibrationMethod, ActivationScheme]


def range_requests(network: NetworkSpec, options: EngineOptions) -> dict[int, Request]:
    """Return how to find each range that some assignment of precisions may need calibrated, by tensor index.

    The cfg states those of the other tensors.

    Raises: ConfigError when two layers read one tensor and ask for ranges that may differ.
    """
    if options.integer_only:
        return _of_all_codes(network, options)
    requests: dict[int, tuple[Request, int]] = {}
    for layer in network.layers:
        layer_options = options.of(layer.index)
        if not layer_options.calibrated or layer.always_fp32:
            continue
        tensors = list(layer.inputs)
        if is_quantized_afterwards(layer):
            tensors.append(layer.index)
        request = (scheme_of(CalibrationMethod, options.complete[layer.index].activations), layer_options.activations)
        for tensor in (range_owner(network, tensor) for tensor in tensors):
            if tensor in network.stated_ranges:
                continue
            earlier = requests.setdefault(tensor, (request, layer.index))
            if _decides(earlier[0]) != _decides(request):
                raise ConfigError(
                    f"layers {earlier[1]} ({network.layers[earlier[1]].name}) and {layer.index} ({layer.name}) read one "
                    f"tensor, but ask for calibration by {earlier[0][0]} ({earlier[0][1].mode}) and {request[0]} "
                    f"({request[1].mode}); give both the same"
                )
    return {tensor: request for tensor, (request, _) in sorted(requests.items())}


def _of_all_codes(network: NetworkSpec, options: EngineOptions) -> dict[int, Request]:
    """Request the range of every tensor with codes of its own as its layer asks; of the image, as its first reader asks."""
    requests: dict[int, Request] = {}
    for layer in network.layers:
        owners = {codes_owner(network, layer.index)} if not layer.always_fp32 else set()
        owners |= {NETWORK_INPUT} & {codes_owner(network, tensor) for tensor in layer.inputs}
        request = (scheme_of(CalibrationMethod, options.complete[layer.index].activations), options.of(layer.index).activations)
        for tensor in owners - network.stated_ranges.keys():
            requests.setdefault(tensor, request)
    return dict(sorted(requests.items()))


def _decides(request: Request) -> tuple[str, ActivationScheme | None]:
    """Return the parts of a request that decide the range: the method, and the scheme where the method weighs codes."""
    method, scheme = request
    return str(method), scheme if method.method in ("percentile", "entropy", "mse") else None


def calibrate(
    prepared: Prepared,
    batches: Iterable[NDArray[np.float32]],
    requests: Mapping[int, Request],
    digests: Mapping[str, str],
    threads: int = 1,
) -> CalibratedRanges:
    """Run the images in fp32 and find the requested ranges.

    batches: (n, height, width, channels) float32. digests: go into the result, see CalibratedRanges.
    Raises: DataError without images, EngineError naming the layer for values that are not finite.
    """
    names = {NETWORK_INPUT: "picture", **{layer.index: layer.name for layer in prepared.network.layers}}
    calibrator = Calibrator(requests, names)
    observe_tensors(prepared, batches, [calibrator.observe], threads)
    return calibrator.result(digests)
