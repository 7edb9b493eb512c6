# SPDX-License-Identifier: MIT
"""Choices of the user that an imported file leaves open or that differ from what it says."""

from __future__ import annotations

from dataclasses import dataclass

from mpnet.importing.file_metadata import PixelOptions


@dataclass(frozen=True)
class Choices:
    """Choices of the user about one file.

    heads:   tensors of each head, joined along channels; (): found. decoder, keys, anchors: of [yolo] sections where the file
             does not tell; anchors by head.
    size:    (width, height) where the file leaves them open. pixels: how images enter; None: as the file
             says, else assumed.
    rounded: round wherever a quantised file does, as what was deployed does; else only where int8 layers read.
    merged:  add parallel convolutions into one (RepVGG), as they are deployed.
    """

    heads: tuple[tuple[str, ...], ...] = ()
    decoder: str = ""
    keys: tuple[tuple[str, str], ...] = ()
    anchors: tuple[str, ...] = ()
    size: tuple[int, int] | None = None
    pixels: PixelOptions | None = None
    rounded: bool = True
    merged: bool = True
