# SPDX-License-Identifier: MIT
"""A value between two steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Hashable

import numpy as np
from numpy.typing import NDArray

from mpnet.kernels.call import Call, ImageScales
from mpnet.kernels.codes import PARAMS, scale_call
from mpnet.kernels.interface import CodeRules
from mpnet.model.network import Shape
from mpnet.model.precision import FP32, Precision
from mpnet.model.quantization import ACTIVATION_MODES, TENSORFLOW_MODES
from mpnet.quantization import native as activations
from mpnet.quantization.codes import Codes, range_of
from mpnet.quantization.scheme import ActivationScheme


class CodeMap:
    """How the codes of a batch mean reals, per image.

    params: (n,) of mpnet.kernels.codes.PARAMS. scales: the part of them that kernels read, as arrays.
    """

    def __init__(self, params: NDArray[Any]) -> None:
        self.params = params
        # The fields of one row already lie as arrays of one value.
        fields = [params[name] for name in ("scale", "inv_scale", "zero_point", "offset")]
        self.scales = ImageScales(*(fields if len(params) == 1 else [values.copy() for values in fields]))

    @classmethod
    def unknown(cls, images: int, scheme: ActivationScheme) -> CodeMap:
        """The map of codes whose ranges are found when the calls of `filled_from` run."""
        params = np.zeros(images, PARAMS)
        params["mode"] = ACTIVATION_MODES.index(scheme.mode)
        return cls(params)

    @classmethod
    def of(cls, codes: Codes, images: int) -> CodeMap:
        """The map of codes that are known beforehand, the same for all images."""
        params = np.zeros(images, PARAMS)
        low, high = range_of(codes)
        known = {"scale": codes.scale, "inv_scale": np.float32(1) / np.float32(codes.scale), "zero_point": codes.zero_point}
        ends = {"low": codes.least, "high": codes.largest, "range_min": low, "range_max": high}
        for name, value in (known | ends | {"mode": ACTIVATION_MODES.index("affine")}).items():
            params[name] = value
        return cls(params)

    @property
    def mode(self) -> str:
        """Of the scheme that made the codes."""
        return ACTIVATION_MODES[int(self.params["mode"][0])]

    @property
    def is_tensorflow(self) -> bool:
        """Whether the codes are of one of TensorFlow's modes."""
        return self.mode in TENSORFLOW_MODES

    def filled_from(self, ranges: NDArray[np.float32], scheme: ActivationScheme) -> list[Call]:
        """The calls that fill this from the [min, max] of each image (n, 2)."""
        function, arguments = scale_call(ranges, self.params, activations.c_scheme(scheme))
        calls: list[Call] = [ScaleCall(function, arguments, keep=(self,))]
        if len(ranges) > 1:
            calls.append(Call(self._spread, ()))
        return calls

    def _spread(self) -> None:
        for name in ("scale", "inv_scale", "zero_point", "offset"):
            getattr(self.scales, name)[...] = self.params[name]


class ScaleCall(Call):
    """Ranges to scales; it fails where a mode cannot scale a range."""

    @property
    def mode(self) -> str:
        """The scheme's."""
        code_map: CodeMap = self.keep[0]
        return code_map.mode


@dataclass(frozen=True, eq=False)
class PartSums:
    """int32 (n, h, w, c): sums over some of a convolution's input channels, for codes that mean this."""

    sums: NDArray[np.int32]
    code_map: CodeMap


@dataclass(eq=False)
class Tensor:
    """data: (n, h, w, c), dense, of the precision's stored type.

    code_map:  what codes mean, per image; None for reals.
    ranges:    (n, 2) minimum and maximum per image where they are known already.
    measured:  whether an operation that gets the ranges of its result for nothing should leave them here.
    unconverted: (the tensor that it is made of, how), where nothing is written here and who reads it converts.
    converted: conversions of this tensor that were made before, by their operation; they live as long as it does.
    part_sums: likewise, by convolution: sums over its channels of one that reads it beside other tensors.
    """

    data: NDArray[Any]
    precision: Precision = FP32
    code_map: CodeMap | None = None
    ranges: NDArray[np.float32] | None = None
    measured: bool = True
    unconverted: tuple[Tensor, CodeRules] | None = field(default=None, repr=False)
    converted: dict[Hashable, Tensor] = field(default_factory=dict, repr=False)
    part_sums: dict[Hashable, PartSums] = field(default_factory=dict, repr=False)

    @property
    def images(self) -> int:
        """The number of images, n."""
        return int(self.data.shape[0])

    @property
    def shape(self) -> Shape:
        """The shape of one image: (height, width, channels)."""
        _, height, width, channels = self.data.shape
        return height, width, channels

    @property
    def params(self) -> NDArray[Any] | None:
        """(n,) of PARAMS for codes, None for reals."""
        return None if self.code_map is None else self.code_map.params
