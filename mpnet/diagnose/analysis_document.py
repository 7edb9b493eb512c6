# SPDX-License-Identifier: MIT
"""The JSON document of `mpnet analyze`: its fields are the keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping

from mpnet.json_values import JsonObject
from mpnet.quantization.measure import TensorError


@dataclass(frozen=True)
class LayerRow:
    """A layer that is not fp32.

    macs_percent:  its share of the network's multiply-accumulates.
    raised_bit_operations_percent: what raising it to the next higher precision adds to the configuration's bit operations.
    noise_percent: its share of the noise that all layers, each alone, bring to the heads.
    alone_db:      SQNR of each head when only this layer is lowered.
    local, cumulative: as in `LayerAnalysis`.
    input_channel_spread, weight_channel_spread: largest over median range of the channels that it reads in fp32, and of its
        filters as they are quantised (None without weights).
    remedies:      for a layer with more than an even share of the noise, the cheapest first: options of `quantization` that are
        not on, and the precision that it would be raised to.
    """

    layer: int
    name: str
    precision: str
    macs: int
    macs_percent: float
    raised_bit_operations_percent: float
    noise_percent: float
    alone_db: tuple[float, ...]
    local: TensorError
    cumulative: TensorError
    input_channel_spread: float
    weight_channel_spread: float | None
    remedies: tuple[str, ...]


@dataclass(frozen=True)
class StepRow:
    """A step. local: None where it is exact. histogram: counts of its fp32 values between their extremes."""

    step: int
    layer: int
    name: str
    operation: str
    detail: str
    precision: str
    local: TensorError | None
    cumulative: TensorError
    histogram: tuple[int, ...]


@dataclass(frozen=True)
class MeasuredConfiguration:
    """A configuration that was run on a few images.

    agreement: with the baseline, percent, -1 where it finds nothing. macs_percent: the share of the raised layers.
    """

    agreement: float
    macs_percent: float
    bit_operations: int


@dataclass(frozen=True)
class PrecisionChoices:
    """The section `precision` of an experiment: precisions by selector over a default (None: the cfg's own)."""

    default: str | None
    layers: Mapping[str, str]


@dataclass(frozen=True)
class ReplacedChoice:
    """An explicit choice of the configuration that the proposal changes.

    said: what chose it, such as a selector. precision, raised: the layer's precision without and with the proposal.
    """

    layer: int
    name: str
    said: str
    precision: str
    raised: str


@dataclass(frozen=True)
class ProposalRow:
    """Layers worth a higher precision: the section of precisions of the experiment stays, layers are raised over it.

    macs_percent:         of the network's MACs that may be raised.
    layers, names:        of the layers to raise, in network order; none where nothing is worth it.
    yaml:                 a line for an experiment file; '' without layers.
    pictures:             how many images the configurations below ran on. measure: which agreement with the baseline.
    given, raised, heads: the configuration before and after, and with the heads alone raised (None where that is too much).
    kept:                 the section of precisions that stays.
    over:                 explicit choices that change.
    """

    macs_percent: float
    layers: tuple[int, ...]
    names: tuple[str, ...]
    yaml: str
    pictures: int
    measure: str
    given: MeasuredConfiguration
    raised: MeasuredConfiguration
    heads: MeasuredConfiguration | None
    kept: PrecisionChoices
    over: tuple[ReplacedChoice, ...]


@dataclass(frozen=True)
class ChangedOption:
    """An option of quantisation in which the default differs, by its key in dots."""

    option: str
    given: str
    default: str


@dataclass(frozen=True)
class DefaultSchemeRow:
    """The default quantisation with the given precisions, on the images of the proposal.

    agreement: as of `MeasuredConfiguration`. differences: from what is given. yaml: a line for an experiment file.
    gains_more: whether it agrees better with the baseline than the proposal, for no bit operation more.
    """

    agreement: float
    differences: tuple[ChangedOption, ...]
    yaml: str
    gains_more: bool


@dataclass(frozen=True)
class AnalysisDocument:
    """The losses of a configuration by layer and step, worst first, and what to keep at a higher precision.

    name:         of the experiment. images: how many ran beside fp32.
    digests:      of what decides the result, SHA-256 (hex). quantization: its complete options.
    head_sqnr_db: SQNR of each head as the configuration runs.
    target:       the program whose precisions are proposed, '' for mpnet's own.
    default_quantization: None where it is given, or does not apply.
    """

    name: str
    images: int
    precision_key: str
    digests: Mapping[str, str | None]
    quantization: JsonObject
    head_sqnr_db: tuple[float, ...]
    layers: tuple[LayerRow, ...]
    steps: tuple[StepRow, ...]
    keep: ProposalRow
    target: str
    default_quantization: DefaultSchemeRow | None
