# SPDX-License-Identifier: MIT
"""Image -> network input, as Darknet does it, and the way back for boxes.

Darknet resizes bilinearly with aligned corners, each axis by itself, the horizontal one first, on float32 images:
src = i * ((in - 1) / (out - 1)), i0 = int(src), d = src - i0, value = (1 - d) * p[i0] + d * p[i0 + 1].
cv2.resize and PIL give other values. Its last output row lacks the second term; src is normally exactly in - 1 there
and d = 0, but for some heights float32 rounding gives i0 = in - 2 and d close to 1, and the row comes out almost black.
That quirk is kept on purpose: all three reference programs have it, and equality with them is what makes a result
checkable. `last_row="blend"` gives the row its second term. The work is done in csrc/image/resize.c.

Classifiers see the middle of an image: AlexeyAB's program brings the shorter side to the network's width and cuts out
the centre (`crop`); pjreddie's letterboxes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.config.protocol import RESIZES
from mpnet.errors import ConfigError, DataError
from mpnet.kernels import images
from mpnet.kernels.core import constant

MODES: dict[str, int] = {
    "stretch": constant("MP_STRETCH"),
    "letterbox": constant("MP_LETTERBOX"),
    "crop": constant("MP_CROP"),
    "letterbox_opencv": constant("MP_LETTERBOX_OPENCV"),
}
MAX_NET_SIDE = constant("MP_MAX_NET_SIDE")
MAX_IMAGE_SIDE = constant("MP_MAX_IMAGE_SIDE")


@dataclass(frozen=True)
class Geometry:
    """The position of an image in the network input; sizes in pixels.

    content: the image's size after resizing, which reaches beyond the input where that shows its middle only. relative: x
    offset, y offset, width, height of the content, relative to the network input; with Darknet's modes the offset is half the
    margin, also where that is odd.
    """

    image_width: int
    image_height: int
    net_width: int
    net_height: int
    content_width: int
    content_height: int
    relative: tuple[float, float, float, float]


def geometry_array(geometries: Sequence[Geometry]) -> NDArray[np.float32]:
    """Return float32 (n, 4): `Geometry.relative` of each, as box decoding takes it."""
    return np.array([geometry.relative for geometry in geometries], dtype=np.float32).reshape(-1, 4)


def plan_geometry(image_width: int, image_height: int, net_width: int, net_height: int, mode: str) -> Geometry:
    """Plan how an image of this size is put into the network input.

    Raises: ConfigError for an unknown mode or network size, DataError for an empty image.
    """
    if mode not in RESIZES:
        raise ConfigError(f"detection.resize: unknown mode {mode!r}; known are {', '.join(RESIZES)}")
    if image_width < 1 or image_height < 1:
        raise DataError(f"an image of {image_width} x {image_height} pixels cannot be resized")
    if not (1 <= net_width <= MAX_NET_SIDE and 1 <= net_height <= MAX_NET_SIDE):
        raise ConfigError(f"a network input of {net_width} x {net_height} is outside 1 to {MAX_NET_SIDE} pixels")
    if max(image_width, image_height) > MAX_IMAGE_SIDE:
        raise DataError(f"an image of {image_width} x {image_height} pixels has a side above {MAX_IMAGE_SIDE}; scale it")
    width, height, relative = images.fit(image_width, image_height, net_width, net_height, MODES[mode])
    return Geometry(image_width, image_height, net_width, net_height, width, height, relative)


def resize(image: NDArray[np.uint8], width: int, height: int, *, last_row: str = "darknet") -> NDArray[np.float32]:
    """Resize an RGB image as Darknet does, bilinearly: (h, w, 3) uint8 -> (height, width, 3) float32 in [0, 1].

    last_row: 'darknet' leaves out the second term in the last row (see above), 'blend' keeps it.
    """
    resized: NDArray[np.float32] = preprocess(image, width, height, last_row=last_row)[0][0]
    return resized


def preprocess(
    image: NDArray[np.uint8], net_width: int, net_height: int, mode: str = "stretch", *, last_row: str = "darknet"
) -> tuple[NDArray[np.float32], Geometry]:
    """Return the network input of an RGB image and where the image lies in it.

    image: uint8 (h, w, 3), RGB.
    mode:    'stretch' fills the input and ignores the aspect; 'letterbox' keeps it, centred, the rest 0.5; 'crop' brings
             the shorter side to the input's width and takes the middle, its border repeated where that is too low;
             'letterbox_opencv' is what Ultralytics' programs do: OpenCV's bilinear resize of bytes, the rest 114 / 255.
    Result:  float32 (1, net_height, net_width, 3) in [0, 1], and the geometry that decoding needs.
    Raises: DataError for another shape or type, ConfigError for an unknown mode.
    """
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
        raise DataError(f"an image is uint8 (height, width, 3), not {image.dtype} {image.shape}")
    if last_row not in ("darknet", "blend"):
        raise ConfigError(f"last_row: {last_row!r} is neither 'darknet' nor 'blend'")
    geometry = plan_geometry(image.shape[1], image.shape[0], net_width, net_height, mode)
    out = np.empty((1, net_height, net_width, 3), dtype=np.float32)
    images.preprocess(image, out, MODES[mode], last_row == "blend")
    return out, geometry
