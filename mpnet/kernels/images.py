# SPDX-License-Identifier: MIT
"""Images in C: JPEG files and resizing (csrc/image/)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpnet.kernels._core import ffi, lib
from mpnet.kernels.core import c_arguments, call

Fitted = tuple[int, int, tuple[float, float, float, float]]
"""Width and height of the content in pixels; x offset, y offset, width, height relative to the network's input."""


def jpeg_scratch_bytes(data: bytes, width: int, height: int) -> int:
    """Return the scratch memory that decoding a JPEG file takes, in bytes; 0 where the decoder declines the file."""
    return int(lib.mp_jpeg_scratch(ffi.from_buffer("uint8_t[]", data), len(data), width, height))


NO_END: int = lib.MP_JPEG_NO_END
EXTRA_BYTES: int = lib.MP_JPEG_EXTRA_BYTES


def decode_jpeg(data: bytes, width: int, height: int, scratch: NDArray[np.uint64], image: NDArray[np.uint8]) -> int | None:
    """Fill image (height, width, 3) from a JPEG file.

    Returns the sum of what the file has of NO_END and EXTRA_BYTES; None where the decoder declines it.
    """
    source, flaws = ffi.from_buffer("uint8_t[]", data), ffi.new("int32_t *")
    arguments = c_arguments(source, len(data), width, height, scratch, scratch.nbytes, image)
    return int(flaws[0]) if lib.mp_jpeg_decode(*arguments, flaws) == lib.MP_OK else None


def fit(image_width: int, image_height: int, net_width: int, net_height: int, mode: int) -> Fitted:
    """Return how an image lies in the network's input; sizes in pixels, mode: MP_STRETCH or another. Raises: KernelError."""
    fitted = ffi.new("mp_geometry *")
    call("resizing", lib.mp_fit, image_width, image_height, net_width, net_height, mode, fitted)
    x, y, width, height = fitted.relative
    return int(fitted.width), int(fitted.height), (x, y, width, height)


def preprocess(image: NDArray[np.uint8], out: NDArray[np.float32], mode: int, blend_last_row: bool) -> None:
    """Fill out (1, height, width, 3), the network's input, from an RGB image (h, w, 3). Raises: KernelError."""
    height, width = image.shape[:2]
    net_height, net_width = out.shape[1:3]
    scratch = np.empty(lib.mp_preprocess_scratch(width, net_width, net_height), np.uint8)
    sizes, rules = (width, height, net_width, net_height), (mode, blend_last_row)
    call("resizing", lib.mp_preprocess, np.ascontiguousarray(image), *sizes, *rules, scratch, out, ffi.new("mp_geometry *"))
