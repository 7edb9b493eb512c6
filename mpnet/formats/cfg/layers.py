# SPDX-License-Identifier: MIT
"""Readers of the sections of a cfg, by their names."""

from __future__ import annotations

from mpnet.formats.cfg import convolutions, joins, outputs, windows
from mpnet.formats.cfg.position import SectionReader, keeps_shape
from mpnet.model.layers import LAYER_KINDS

READERS: dict[str, SectionReader] = {
    **{kind.kind: SectionReader(keeps_shape(kind)) for kind in LAYER_KINDS},
    **convolutions.READERS,
    **joins.READERS,
    **windows.READERS,
    **outputs.READERS,
}
"""A kind that no module speaks of keeps its input's shape, and its fields are the section's keys."""

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
