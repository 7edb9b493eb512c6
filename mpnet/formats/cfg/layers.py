# SPDX-License-Identifier: MIT
"""Which function builds the layer of which section: checked keys in, a layer with inferred shapes out."""

from __future__ import annotations

from typing import Callable

from mpnet.formats.cfg import convolutions as cfg_convolutions
from mpnet.formats.cfg import heads as cfg_heads
from mpnet.formats.cfg import joins as cfg_joins
from mpnet.formats.cfg import windows as cfg_windows
from mpnet.formats.cfg.position import Position
from mpnet.formats.cfg.tokens import CfgSection
from mpnet.model.layers import LayerSpec

BUILDERS: dict[str, Callable[[CfgSection, Position], LayerSpec]] = {
    "convolutional": cfg_convolutions.convolutional,
    "maxpool": cfg_windows.maxpool,
    "avgpool": cfg_windows.avgpool,
    "upsample": cfg_windows.upsample,
    "route": cfg_joins.route,
    "shortcut": cfg_joins.shortcut,
    "dropout": cfg_heads.dropout,
    "yolo": cfg_heads.yolo,
    "connected": cfg_convolutions.connected,
    "softmax": cfg_heads.softmax,
    "cost": cfg_heads.cost,
    "region": cfg_heads.region,
    "detection": cfg_heads.detection,
    "Gaussian_yolo": cfg_heads.gaussian_yolo,
    "reorg": cfg_windows.reorg,
    "reorg3d": cfg_windows.reorg3d,
    "scale_channels": cfg_joins.scale_channels,
    "sam": cfg_joins.sam,
    "implicit": cfg_joins.implicit,
    "crop": cfg_windows.crop,
    "pad": cfg_windows.pad,
    "slice": cfg_windows.slice_,
    "batchnorm": cfg_convolutions.batchnorm,
    "activation": cfg_heads.activation,
    "normalization": cfg_heads.normalization,
    "local_avgpool": cfg_windows.local_avgpool,
    "deconvolutional": cfg_convolutions.deconvolutional,
    "l2norm": cfg_heads.l2norm,
    "logistic": cfg_heads.logistic,
    "contrastive": cfg_heads.contrastive,
    "empty": cfg_heads.empty,
}

ALIASES: dict[str, str] = {
    "network": "net",
    "conv": "convolutional",
    "max": "maxpool",
    "avg": "avgpool",
    "conn": "connected",
    "soft": "softmax",
    "lrn": "normalization",
    "local_avg": "local_avgpool",
    "silence": "empty",
    "deconv": "deconvolutional",
}
"""Other words of Darknet for a section."""

_RECURRENT = "recurrent networks read sequences, and mpnet runs images"
REFUSED: dict[str, str] = {
    "rnn": _RECURRENT,
    "gru": _RECURRENT,
    "lstm": _RECURRENT,
    "crnn": _RECURRENT,
    "conv_lstm": _RECURRENT,
    "history": _RECURRENT,
    "local": "weights of its own at every position are quantised by nobody's kernels",
    "iseg": "it is trained only, and makes no boxes",
}
"""Sections that Darknet knows and mpnet does not run, with the reason."""
