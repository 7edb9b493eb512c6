"""What a step can do, as small frozen values: equal operations on equal tensors give equal bits."""

from mpnet.engine.operations.base import Operation
from mpnet.engine.operations.convert import Cast, Conversion, Dequantize, Quantize, conversion_between
from mpnet.engine.operations.convolve import Convolve
from mpnet.engine.operations.plain import Add, AvgPool, Concat, MaxPool, Slice, Upsample, Yolo

__all__ = [
    "Add", "AvgPool", "Cast", "Concat", "Conversion", "Convolve", "Dequantize", "MaxPool", "Operation", "Quantize",
    "Slice", "Upsample", "Yolo", "conversion_between",
]
