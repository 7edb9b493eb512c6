# SPDX-License-Identifier: MIT
"""A value between two steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Hashable, Sequence, cast

import numpy as np
from numpy.typing import NDArray

from mpnet.arrays import Array, CodeArray, FloatArray
from mpnet.kernels.call import Call
from mpnet.kernels.calls import Binder
from mpnet.kernels.codes import PARAMS, ParamsArray
from mpnet.kernels.device import HOST, Device, HostStorage, Storage, copy_call
from mpnet.kernels.interface import CodeRules
from mpnet.kernels.scales import ImageScales
from mpnet.model.network import Shape
from mpnet.model.precision import FP32, Precision
from mpnet.model.quantization import ACTIVATION_MODES, TENSORFLOW_MODES
from mpnet.quantization import native as activations
from mpnet.quantization.codes import Codes, range_of
from mpnet.quantization.scheme import ActivationScheme

_SCALES = ("scale", "inv_scale", "zero_point", "offset")


def _placed(params: ParamsArray, device: Device) -> Storage:
    """Return params on a device: on the CPU the array itself, without being looked at, since sweeps make many."""
    return HostStorage(params) if device is HOST else device.upload(params)


class CodeMap:
    """The map from the codes of a batch to reals, per image.

    params:   (n,) of mpnet.kernels.codes.PARAMS, where the codes lie.
    scales:   the part of them that kernels read.
    mode:     of the scheme that made the codes.
    is_fixed: whether it is known before anything runs; else calls fill it.
    """

    def __init__(self, params: Storage, rows: ParamsArray, mode: str, is_fixed: bool = True) -> None:
        """Keep params and rows, the same (n,) as a NumPy array."""
        device = params.device
        self.params, self.mode, self.is_fixed = params, mode, is_fixed
        if device is HOST:
            columns = [rows[name] for name in _SCALES]
            if len(rows) > 1:  # the fields of one row already lie as arrays of one value
                columns = [column.copy() for column in columns]
            self.scales = ImageScales(*columns)
        else:
            self.scales = ImageScales(*(device.upload(rows[name].copy()) for name in _SCALES))

    @classmethod
    def from_rows(cls, params: ParamsArray, device: Device) -> CodeMap:
        """Return the map of codes on a device whose params (n,) are known."""
        return cls(_placed(params, device), params, ACTIVATION_MODES[int(params["mode"][0])])

    @classmethod
    def unmeasured(cls, images: int, scheme: ActivationScheme, device: Device) -> CodeMap:
        """Return the map of codes whose ranges are found when the calls of `filled_from` run."""
        params = np.zeros(images, PARAMS)
        params["mode"] = ACTIVATION_MODES.index(scheme.mode)
        return cls(_placed(params, device), params, scheme.mode, is_fixed=False)

    @classmethod
    def fixed(cls, codes: Codes, images: int, device: Device) -> CodeMap:
        """Return the map of codes that are known beforehand, the same for all images."""
        params = np.zeros(images, PARAMS)
        low, high = range_of(codes)
        scales = {"scale": codes.scale, "inv_scale": np.float32(1) / np.float32(codes.scale), "zero_point": codes.zero_point}
        ends = {"low": codes.least, "high": codes.largest, "range_min": low, "range_max": high}
        for name, value in (scales | ends | {"mode": ACTIVATION_MODES.index("affine")}).items():
            params[name] = value
        return cls.from_rows(params, device)

    @classmethod
    def joined(cls, maps: Sequence[CodeMap]) -> CodeMap:
        """Return the maps of consecutive groups of images, whose calls have run, as one."""
        return cls.from_rows(np.concatenate([each.rows for each in maps]), maps[0].params.device)

    def images(self, first: int, end: int) -> CodeMap:
        """Return the map of the images at these positions, once its calls have run."""
        return CodeMap.from_rows(self.rows[first:end], self.params.device)

    def of_images(self, positions: NDArray[np.intp]) -> CodeMap:
        """Return the map of some images, once its calls have run: image positions[i] becomes image i."""
        return CodeMap.from_rows(self.rows[positions], self.params.device)

    @property
    def rows(self) -> ParamsArray:
        """Return params as a NumPy array."""
        return cast(ParamsArray, self.params.host())

    @property
    def is_tensorflow(self) -> bool:
        """Return whether the codes are of one of TensorFlow's modes."""
        return self.mode in TENSORFLOW_MODES

    def filled_from(self, ranges: Storage, scheme: ActivationScheme, binder: Binder) -> list[Call]:
        """Return the calls that fill this from the [min, max] of each image (n, 2)."""
        return binder.ranges_to_scales(ranges, self.params, self.scales, activations.c_scheme(scheme), scheme.mode)

    def moved(self, device: Device) -> tuple[CodeMap, list[Call]]:
        """Return the same map on another device, and the calls that copy what other calls fill before they run."""
        if self.is_fixed:
            return CodeMap.from_rows(self.rows, device), []
        rows = np.zeros(self.params.shape, PARAMS)
        copy = CodeMap(device.upload(rows), rows, self.mode, is_fixed=False)
        pairs = [(self.params, copy.params), *((getattr(self.scales, name), getattr(copy.scales, name)) for name in _SCALES)]
        storages = [tuple(HOST.upload(v) if isinstance(v, np.ndarray) else v for v in pair) for pair in pairs]
        return copy, [copy_call(source, target).with_fixed_input() for source, target in storages]


@dataclass(frozen=True, eq=False)
class ChannelSums:
    """Sums over some of a convolution's input channels, int32 (n, h, w, c), for codes that mean this."""

    sums: Storage
    code_map: CodeMap


@dataclass(eq=False)
class Tensor:
    """A value between two steps.

    storage:      where it lies: (n, h, w, c), dense, of the precision's stored type, on one device.
    code_map:     what codes mean, per image; None for reals.
    ranges:       float32 (n, 2), minimum and maximum per image, where they have been measured; on the same device.
    measured:     whether an operation that gets the ranges of its result for nothing should leave them here.
    unconverted:  (the tensor that it is made of, how), where nothing is written here and who reads it converts.
    converted:    conversions of this tensor that were made before, by their operation; they live as long as it does.
    channel_sums: likewise, by weights and convolution: sums over its channels of one that reads it beside other tensors.
    """

    storage: Storage
    precision: Precision = FP32
    code_map: CodeMap | None = None
    ranges: Storage | None = None
    measured: bool = True
    unconverted: tuple[Tensor, CodeRules] | None = field(default=None, repr=False)
    converted: dict[Hashable, Tensor] = field(default_factory=dict, repr=False)
    channel_sums: dict[Hashable, ChannelSums] = field(default_factory=dict, repr=False)

    @property
    def images(self) -> int:
        """Return the number of images, n."""
        return int(self.storage.shape[0])

    @property
    def shape(self) -> Shape:
        """Return the shape of one image: (height, width, channels)."""
        _, height, width, channels = self.storage.shape
        return height, width, channels

    @property
    def params(self) -> ParamsArray | None:
        """Return what its codes mean, (n,) of PARAMS; None for reals."""
        return None if self.code_map is None else self.code_map.rows

    def host(self) -> Array:
        """Return the values as a NumPy array (n, h, w, c): the memory itself on the CPU, else a copy."""
        return self.storage.host()

    def floats(self) -> FloatArray:
        """Return the values of a float32 tensor, as `host` does."""
        return self.storage.floats()

    def codes(self) -> CodeArray:
        """Return the values of a tensor of codes, as `host` does."""
        return cast(CodeArray, self.storage.host())


def host_tensor(array: Array, precision: Precision = FP32) -> Tensor:
    """Return an array (n, h, w, c) as a tensor on the CPU. It is read in place where it is C-contiguous."""
    return Tensor(HOST.upload(array), precision)
