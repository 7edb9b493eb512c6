"""One step of a fused plan as the fields of csrc/run/bundle.h's mpb_step."""

from __future__ import annotations

from typing import Any, Callable

from mpnet.engine.operations import (
    Add,
    AvgPool,
    Cast,
    Concat,
    Convolve,
    Dequantize,
    MaxPool,
    Operation,
    Quantize,
    Slice,
    Upsample,
    Yolo,
)
from mpnet.engine.plan import Step
from mpnet.errors import EngineError
from mpnet.kernels._core import lib
from mpnet.kernels.interface import ACTIVATIONS
from mpnet.spec.network import LayerSpec
from mpnet.spec.quantization import ACTIVATION_MODES, SCHEME_ROUNDINGS

_Fields = dict[str, Any]


def _quantize(operation: Quantize) -> _Fields:
    scheme = operation.scheme
    low, high = operation.range or (0.0, 0.0)
    return {
        "mode": ACTIVATION_MODES.index(scheme.mode), "rounding": SCHEME_ROUNDINGS.index(str(scheme.rounding)),
        "narrow_range": int(scheme.narrow_range), "ensure_minimum_range": scheme.ensure_minimum_range,
        "calibrated": int(operation.range is not None), "low": low, "high": high,
    }


def _pool(operation: MaxPool) -> _Fields:
    return {"size": operation.size, "stride": operation.stride, "padding": operation.padding}


def _convolve(operation: Convolve) -> _Fields:
    fields: _Fields = {"quantizes": int(operation.quantize is not None), "pooled": int(operation.pool is not None)}
    return fields | (_quantize(operation.quantize) if operation.quantize else {}) | (
        _pool(operation.pool) if operation.pool else {})


_OPERATIONS: dict[type[Operation], tuple[int, Callable[[Any], _Fields]]] = {
    Convolve: (lib.MPB_CONVOLVE, _convolve),
    Quantize: (lib.MPB_QUANTIZE, _quantize),
    Dequantize: (lib.MPB_DEQUANTIZE, lambda _: {}),
    Cast: (lib.MPB_CAST, lambda _: {}),
    MaxPool: (lib.MPB_MAXPOOL, _pool),
    AvgPool: (lib.MPB_AVGPOOL, lambda _: {}),
    Upsample: (lib.MPB_UPSAMPLE, lambda o: {"factor": o.factor}),
    Slice: (lib.MPB_SLICE, lambda o: {"first": o.start}),
    Concat: (lib.MPB_CONCAT, lambda _: {}),
    Add: (lib.MPB_ADD, lambda o: {"activation": ACTIVATIONS.index(o.activation)}),
    Yolo: (lib.MPB_YOLO, lambda _: {}),
}


def step_fields(step: Step, layer: LayerSpec) -> _Fields:
    """What the operation decides. Raises: EngineError for one that bundles do not have."""
    row = _OPERATIONS.get(type(step.operation))
    if row is None:
        raise EngineError(f"--to bundle: layer {layer.index} ({layer.name}): bundles have no {step.operation.name}; "
                          "run this network with mpnet itself")
    return {"operation": row[0], **row[1](step.operation)}
