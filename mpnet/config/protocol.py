# SPDX-License-Identifier: MIT
"""The words by which a protocol says how images become findings; what they do is said where it is done."""

from __future__ import annotations

RESIZES: tuple[str, ...] = ("stretch", "letterbox", "crop", "letterbox_opencv")
NMS_KINDS: tuple[str, ...] = ("default", "greedynms", "diounms")
ORIENTATIONS: tuple[str, ...] = ("stored", "exif")
DIALECTS: tuple[str, ...] = ("auto", "darknet", "alexeyab")
BATCH_NORMS: tuple[str, ...] = ("auto", "darknet", "alexeyab")
