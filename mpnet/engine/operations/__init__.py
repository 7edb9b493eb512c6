# SPDX-License-Identifier: MIT
"""Operations of steps, as small frozen values: equal operations on equal tensors give equal bits."""

from mpnet.engine.operations.attention import Attention
from mpnet.engine.operations.base import Context, Operation, PreparedConvolution, PreparedWeights, Yolo
from mpnet.engine.operations.convert import Cast, Dequantize, Quantize, Transfer, conversion_between, conversion_steps
from mpnet.engine.operations.convolve import Convolve
from mpnet.engine.operations.elementwise import Add, Combine, Constant, Map, Multiply, Normalize
from mpnet.engine.operations.integer import (
    IntegerAdd,
    IntegerConcat,
    IntegerConvolve,
    IntegerLeaky,
    IntegerQuantize,
    IntegerRescale,
)
from mpnet.engine.operations.pooling import AvgPool, Blur, ChannelMax, LocalAvgPool, MaxPool
from mpnet.engine.operations.rearrange import (
    ChannelsLast,
    Concat,
    Crop,
    DepthToSpace,
    Flatten,
    Pad,
    Rearrange,
    Reorg,
    Reorg3d,
    Sample,
    Shuffle,
    Slice,
    Spread,
    Unflatten,
    Upsample,
)

Conversion = Quantize | Dequantize | Cast | IntegerQuantize | IntegerRescale
