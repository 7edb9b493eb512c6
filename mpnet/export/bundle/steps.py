"""One step of a fused plan as the fields of csrc/mprun/bundle.h's mpb_step."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.engine.operations import (
    Add,
    AvgPool,
    Blur,
    Cast,
    ChannelMax,
    Combine,
    Concat,
    Constant,
    Convolve,
    Dequantize,
    LocalAvgPool,
    Map,
    MaxPool,
    Multiply,
    Normalize,
    Operation,
    Quantize,
    Rearrange,
    Slice,
    Upsample,
    Yolo,
)
from mpnet.engine.plan import Step
from mpnet.engine.prepare import Prepared
from mpnet.errors import EngineError
from mpnet.kernels._core import lib
from mpnet.kernels.interface import ACTIVATIONS, MAPPED_ACTIVATIONS, NORMALISATIONS, OPERANDS
from mpnet.model.network import LayerSpec, Shape
from mpnet.model.quantization import ACTIVATION_MODES, SCHEME_ROUNDINGS

_Fields = dict[str, Any]


def _quantize(operation: Quantize) -> _Fields:
    scheme = operation.scheme
    low, high = operation.range or (0.0, 0.0)
    return {
        "mode": ACTIVATION_MODES.index(scheme.mode),
        "rounding": SCHEME_ROUNDINGS.index(str(scheme.rounding)),
        "narrow_range": int(scheme.narrow_range),
        "ensure_minimum_range": scheme.ensure_minimum_range,
        "calibrated": int(operation.range is not None),
        "low": low,
        "high": high,
    }


def _pool(operation: MaxPool) -> _Fields:
    return {"size": operation.size, "stride": operation.stride, "padding": operation.padding}


def _convolve(operation: Convolve) -> _Fields:
    fields: _Fields = {"quantizes": int(operation.quantize is not None), "pooled": int(operation.pool is not None)}
    return (
        fields
        | (_quantize(operation.quantize) if operation.quantize else {})
        | (_pool(operation.pool) if operation.pool else {})
    )


def _map(operation: Map) -> _Fields:
    return {
        "activation": (ACTIVATIONS + MAPPED_ACTIVATIONS).index(operation.activation),
        "parameters": [operation.scale, operation.shift],
    }


def _multiply(operation: Multiply) -> _Fields:
    return {
        "activation": ACTIVATIONS.index(operation.activation),
        "kind": OPERANDS.index(operation.operand),
        "swapped": int(operation.swapped),
    }


def _local_avgpool(operation: LocalAvgPool) -> _Fields:
    return {
        "size": operation.size,
        "stride": operation.strides[0],
        "stride_y": operation.strides[1],
        "padding": operation.padding,
    }


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
    Blur: (lib.MPB_CONVOLVE, lambda _: {}),  # a depthwise one
    Map: (lib.MPB_MAP, _map),
    Combine: (lib.MPB_COMBINE, lambda o: {"activation": ACTIVATIONS.index(o.activation)}),
    Multiply: (lib.MPB_MULTIPLY, _multiply),
    Constant: (lib.MPB_CONSTANT, lambda _: {}),
    Rearrange: (lib.MPB_GATHER, lambda _: {}),
    Normalize: (
        lib.MPB_NORMALIZE,
        lambda o: {"kind": NORMALISATIONS.index(o.kind), "parameters": [*o.parameters, 0.0, 0.0, 0.0, 0.0][:4]},
    ),
    LocalAvgPool: (lib.MPB_LOCAL_AVGPOOL, _local_avgpool),
    ChannelMax: (lib.MPB_CHANNEL_MAX, lambda _: {}),
}


def step_values(operation: Operation, prepared: Prepared, inputs: Sequence[Shape], result: Shape) -> NDArray[Any] | None:
    """What a step brings along beside its fields, as mpb_step's `values` says; None for nothing."""
    if isinstance(operation, Combine):
        return np.concatenate([part for pair in operation.factors(prepared, inputs) for part in pair]).astype(np.float32)
    if isinstance(operation, Constant):
        return operation.tiled(prepared, (1, *result))
    return operation.index(inputs[0]) if isinstance(operation, Rearrange) else None


def step_fields(step: Step, layer: LayerSpec) -> _Fields:
    """What the operation decides. Raises: EngineError for one that bundles do not have."""
    row = next((row for kind, row in _OPERATIONS.items() if isinstance(step.operation, kind)), None)
    if row is None:
        raise EngineError(
            f"--to bundle: layer {layer.index} ({layer.name}): bundles have no {step.operation.name}; "
            "run this network with mpnet itself"
        )
    return {"operation": row[0], **row[1](step.operation)}
