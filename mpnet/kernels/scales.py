# SPDX-License-Identifier: MIT
"""The map from the codes of images to reals, as kernels take it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpnet.errors import KernelError
from mpnet.kernels.arguments import FLOAT, INT, check
from mpnet.kernels.device import Device, Storage, Values
from mpnet.kernels.interface import TensorQuant


@dataclass(frozen=True, eq=False)
class ImageScales:
    """The map from images of codes to reals, one value per image (n,); filled before the calls that read them run."""

    scale: Values
    inv_scale: Values
    zero_point: Values
    offset: Values

    def of_images(self, positions: NDArray[np.intp], device: Device) -> ImageScales:
        """Return the scales of some images of tensors on a device: image positions[i] becomes image i."""
        fields = (self.scale, self.inv_scale, self.zero_point, self.offset)
        return ImageScales(*(device.take(v, positions) if isinstance(v, Storage) else v[positions] for v in fields))


Quant = TensorQuant | ImageScales | None
"""How images of codes map to reals: given as such, or ready with the reciprocals."""


def scales_of(quant: Quant, what: str, *, written: bool = False) -> ImageScales | None:
    """Return the quant with its reciprocal. written: codes are made with it, not read. Raises: KernelError for bad values."""
    if not isinstance(quant, TensorQuant):
        return quant
    scale, zero_point, offset = quant.scale, quant.zero_point, quant.offset
    # Lists: batches are small, and NumPy takes a microsecond for each question.
    if not all(0 < s < math.inf for s in scale.tolist()) or not all(map(math.isfinite, offset.tolist())):
        raise KernelError(f"{what} has scale {scale} and offset {offset}; scales must be finite and above 0")
    if not all(-128 <= z <= 127 for z in zero_point.tolist()):
        raise KernelError(f"{what} has zero point {zero_point}; it must be in [-128, 127]")
    with np.errstate(over="ignore"):
        inverse: NDArray[np.float32] = np.float32(1) / scale
    if written and not np.isfinite(inverse).all():
        raise KernelError(f"{what}.scale is {scale}; its reciprocal must be finite")
    if written and offset.any():
        raise KernelError(f"{what}.offset is not 0; such codes are made by the quantise step of the mode that made it")
    return ImageScales(scale, inverse, zero_point, offset)


def per_image(scales: ImageScales | None, images: int, what: str, *fields: str) -> list[Values]:
    """Return the values of these fields, each checked to hold one per image. Raises: KernelError."""
    if scales is None:
        raise KernelError(f"{what} is missing; codes need scale and zero point")
    columns = []
    for name in fields:
        values = getattr(scales, name)
        check(values, f"{what}.{name}", INT if name == "zero_point" else FLOAT, (images,))
        columns.append(values)
    return columns
