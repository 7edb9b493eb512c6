# SPDX-License-Identifier: MIT
"""The heads of an imported network: the tensors that leave it, and how boxes come from them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Head:
    """One head, which becomes a [yolo] section or, without a decoder, the result of a classifier.

    tensors: the tensors that leave the network, joined along channels in this order.
    decoder: the name of the decoder, '' for a classifier.
    keys:    further keys of the [yolo] section and their values.
    """

    tensors: tuple[str, ...]
    decoder: str = "none"
    keys: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class HeadChoice:
    """The heads of a network.

    heads:    in the order of the network's outputs.
    classes:  how many classes they tell apart.
    decoder:  the decoder that stands for the nodes behind the heads, for people; '' where nothing is replaced.
    nms:      the overlap from which on the file suppresses the worse of two boxes; 1: it takes the best boxes as they are
              (YOLOv10, YOLO26), without suppression; None: it does not say.
    notes:    what is worth saying of them, for people.
    """

    heads: list[Head]
    classes: int
    decoder: str
    nms: float | None = None
    notes: tuple[str, ...] = ()
