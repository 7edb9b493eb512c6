# SPDX-License-Identifier: MIT
"""Identities: what decides a result goes into a digest, and nothing else does."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, fields
from typing import Mapping

from mpnet.json_values import JsonObject
from mpnet.model.keys import json_key
from mpnet.model.plan_key import split_key
from mpnet.model.precision import BY_CODE
from mpnet.model.quantization import LEARNT

FORMAT = "mpnet-trial-1"
ARITHMETIC_VERSION = "1"
"""Raised whenever docs/arithmetic.md changes a bit of any result, so that stored results are not taken for new ones."""
ID_DIGITS = 16
_STATISTICS = "lessons"
"""The stored key of `TrialIdentity.statistics`; digests have it in them."""


def digest_of(document: object) -> str:
    """Return the SHA-256 (hex) of a JSON document: equal documents have equal digests, whatever the order of their keys.

    Floats count by their shortest exact decimal form. Raises: ValueError for NaN and infinities.
    """
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class TrialIdentity:
    """Everything that decides a trial's result.

    cfg, weights, data:  SHA-256 (hex) of the files and of images with labels.
    calibration:         digest of the calibrated ranges, or None where ranges are dynamic.
    plan:                canonical text of the precision plan (`PrecisionPlan.key`).
    options:             quantisation options as plain values.
    protocol:            how images become boxes and boxes become metrics, as plain values.
    arithmetic:          version of the arithmetic contract.
    statistics:          digest of the calibration statistics of weights of fewer than eight bits, if any; a plan
                         without any has nothing to do with it. Stored as `lessons`.
    engine:              who ran it, if not mpnet's engine alone: name, version, digest of what it was given.
    parent:              SHA-256 of the weights whose baseline agreement is measured with, where these are not its own.
    """

    cfg: str
    weights: str
    data: str
    calibration: str | None
    plan: str
    options: JsonObject
    protocol: JsonObject
    arithmetic: str
    engine: JsonObject | None = None
    statistics: str | None = field(default=None, metadata=json_key(_STATISTICS, omit_default=True))
    parent: str | None = field(default=None, metadata=json_key(omit_default=True))

    def digests(self) -> dict[str, str | None]:
        """Return the `digests` of a result: one per part, and the whole trial's."""
        parts: dict[str, str | None] = {
            _STATISTICS if part.name == "statistics" else part.name: digest_of(value)
            if part.name in ("plan", "options", "protocol", "engine")
            else value
            for part in fields(self)
            for value in [getattr(self, part.name)]
            if value is not None or part.name == "calibration"  # the others: identities without them are those of 0.1.0
        }
        learns = _learns(self.options)
        if not any(
            row.is_narrow or (learns and row.carries_scale)
            for code in split_key(self.plan)[0]
            if (row := BY_CODE.get(code)) is not None
        ):
            parts.pop(_STATISTICS, None)
        return {**parts, "trial": digest_of({"format": FORMAT, **parts})}

    @property
    def id(self) -> str:
        """Return the name of the result's folder: the first 16 hex digits of the trial's digest."""
        trial = self.digests()["trial"]
        assert trial is not None
        return trial[:ID_DIGITS]


def _learns(options: JsonObject) -> bool:
    """Return whether any layer's weights of eight bits get their rounding from calibration images."""
    layers = options.get("layers")
    sections = (options, *(layers.values() if isinstance(layers, Mapping) else ()))
    weights = (section.get("weights") for section in sections if isinstance(section, Mapping))
    return any(isinstance(weight_options, Mapping) and weight_options.get("rounding") == LEARNT for weight_options in weights)
