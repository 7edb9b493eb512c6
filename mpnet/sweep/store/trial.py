# SPDX-License-Identifier: MIT
"""The contents of a store: its subject, finished trials, and the work that went into them."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Collection, Mapping

from mpnet.sweep.store.documents import check_trial
from mpnet.sweep.store.schema import CHECKSUM, checksum


@dataclass(frozen=True)
class Subject:
    """The subject of a store: SHA-256 digests (hex) of cfg, data and protocol, which never change.

    weights: of the sweep that began the store, which its usual name tells. Each context says which weights its trials have, so
    that sweeps of other weights of the network may go into the same store.
    """

    network: str
    weights: str
    data: str
    protocol: str


@dataclass(frozen=True)
class Trial:
    """A finished trial. key: canonical text of its plan; values: metrics and costs by column name."""

    key: str
    values: Mapping[str, float]

    def get(self, name: str) -> float:
        """Return the value called `name`; NaN when it was not measured."""
        return self.values.get(name, math.nan)


@dataclass(frozen=True)
class Work:
    """macs: multiply-accumulates that were executed, all images; seconds: of wall clock."""

    macs: float = 0.0
    seconds: float = 0.0


def parse_trial(context: int, key: str, columns: Mapping[str, float | None], measures: Collection[str]) -> Trial:
    """Read a trial from what a store holds of it, by column; of its values only those of `measures` are read.

    Raises: ValueError for values that no trial has, or another checksum.
    """
    values = {name: value for name, value in columns.items() if value is not None}
    stored_checksum = values.pop(CHECKSUM, None)
    trial = Trial(key, {name: value for name, value in values.items() if name in measures})
    check_trial(key, trial.values)
    try:
        is_whole = stored_checksum is None or stored_checksum == checksum(context, key, values)
    except struct.error:  # a value of a newer mpnet that is no number
        is_whole = False
    if not is_whole:
        raise ValueError(f"trial {key}: its checksum does not match")
    return trial
