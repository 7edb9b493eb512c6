"""The layers that every common exchange format has: what detectors of the YOLO family are mostly made of."""

from __future__ import annotations

from mpnet.spec.layers import (
    AvgpoolSpec,
    ConvolutionSpec,
    DropoutSpec,
    LayerSpec,
    MaxpoolSpec,
    RouteSpec,
    ShortcutSpec,
    UpsampleSpec,
    YoloSpec,
)

KINDS: tuple[type[LayerSpec], ...] = (
    AvgpoolSpec, ConvolutionSpec, DropoutSpec, MaxpoolSpec, RouteSpec, ShortcutSpec, UpsampleSpec, YoloSpec,
)
ACTIVATIONS = ("linear", "leaky", "relu", "relu6", "logistic", "mish", "swish")


def plain_problem(layer: LayerSpec) -> str:
    """'' or what a layer has beyond the common ones."""
    if type(layer) not in KINDS:
        return f"mpnet writes no [{layer.kind}] in this form"
    activation = getattr(layer, "activation", "linear")
    if activation not in ACTIVATIONS:
        return f"mpnet writes no activation {activation} in this form"
    if isinstance(layer, (ConvolutionSpec, MaxpoolSpec)) and (layer.sample != (1, 1) or layer.blur):
        return "mpnet writes neither strides that differ between the axes nor antialiasing in this form"
    if isinstance(layer, MaxpoolSpec) and layer.depth:
        return "mpnet writes no maximum over channels in this form"
    if isinstance(layer, UpsampleSpec) and (layer.shrinks or layer.scale != 1.0):
        return "mpnet writes no upsampling that shrinks or scales in this form"
    if isinstance(layer, ShortcutSpec) and (not layer.plain or len(layer.inputs) != 2):
        return "mpnet writes shortcuts of two tensors of equal shapes, without weights, in this form"
    return ""
