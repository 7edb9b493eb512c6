# SPDX-License-Identifier: MIT
"""What lowering single layers costs, as results of sweeps have it: in measures, and in noise at the heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping


@dataclass(frozen=True)
class LayerRank:
    """The cost of lowering some layers.

    layers, names: that change together. precision: that they are lowered to. mac_share: of the network's, from 0 to 1.
    alone: change of every metric when only these layers are lowered, against everything at the highest precision.
    kept:  change when only these layers stay at the highest, against everything lowered; {} where not measured.
    """

    layers: tuple[int, ...]
    names: tuple[str, ...]
    precision: str
    mac_share: float
    alone: Mapping[str, float]
    kept: Mapping[str, float]


@dataclass(frozen=True)
class LayerNoise:
    """The noise that lowering some layers by one step brings to the heads, where most others are at their highest precision.

    layers, names: that change together. precision: that they are lowered to. mac_share: of the network's, from 0 to 1.
    noise:         added, over signal, the mean of the heads, on the images that screen; below 0 where lowering takes noise out.
    noise_percent: its share in what all steps of all layers add.
    saved_percent: of the cost that counts first, in percent of the highest configuration's.
    """

    layers: tuple[int, ...]
    names: tuple[str, ...]
    precision: str
    mac_share: float
    noise: float
    noise_percent: float
    saved_percent: float
