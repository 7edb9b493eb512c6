# SPDX-License-Identifier: MIT
"""The stages of a tuning: each proposes weights and options for a configuration, and another module judges them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Callable

import numpy as np
from numpy.typing import NDArray

from mpnet.config.experiment import QuantizationSection
from mpnet.engine.calibrate import range_requests
from mpnet.engine.observe import observe_tensors
from mpnet.engine.options import resolve_options
from mpnet.engine.session import Session
from mpnet.errors import ConfigError
from mpnet.json_values import JsonObject
from mpnet.model.quantization import NarrowOptions, QuantizationOptions, WeightOptions
from mpnet.packages import require, requirements
from mpnet.progress import Progress
from mpnet.quantization.equalise import FoldedConvolution
from mpnet.trial.tuning_images import TuneOptions, TuningImages, drawn_order
from mpnet.trial.workbench import Workbench
from mpnet.tuning.channel_signs import ChannelRanges, turn_channels, turnable_pairs
from mpnet.tuning.layerwise import corrected_layers
from mpnet.tuning.lockstep import images_that_fit
from mpnet.tuning.range_choice import METHODS, choose_methods, method_errors
from mpnet.tuning.rounding import likely_cells, rounded_layers

if TYPE_CHECKING:
    from mpnet.tuning.torch_network import TorchNetwork

SIGNS, RANGES, CHANNELS, ROUNDING, END_TO_END = "signs", "ranges", "channels", "rounding", "end-to-end"
_LAYERWISE_IMAGES = 48
"""At most, of those that tune: both networks hold all tensors of all of them."""
_WATCHED_IMAGES = 40
"""Of those that tune, at most: they choose the best state of a training instead."""


@dataclass(frozen=True, eq=False)
class Proposal:
    """The outcome of a stage, before it is judged.

    folded: every convolution, as it is to be quantised. quantization: how, in place of the experiment's own section.
    details: figures of the stage. is_interrupted: whether somebody stopped it, so that this is the best so far.
    is_equivalent: whether these weights give in fp32 what those before gave.
    """

    folded: dict[int, FoldedConvolution]
    quantization: QuantizationSection
    details: JsonObject = field(default_factory=dict)
    is_interrupted: bool = False
    is_equivalent: bool = False


Stage = Callable[[Workbench, TuningImages, TuneOptions, Progress], Proposal]


def chosen_stages(options: TuneOptions) -> tuple[dict[str, Stage], tuple[str, ...]]:
    """Return the stages to run, and what to say of those that cannot. Raises: ConfigError for one that was asked for."""
    for name in options.stages:
        if name not in STAGES:
            raise ConfigError(f"--stages: {name!r} is unknown; known are {', '.join(STAGES)}")
    chosen = {name: stage for name, stage in STAGES.items() if not options.stages or name in options.stages}
    if END_TO_END not in chosen:
        return chosen, ()
    try:
        require(f"stage {END_TO_END}", requirements("torch"), "tune")
    except ConfigError as error:
        if options.stages:
            raise
        del chosen[END_TO_END]
        return chosen, (str(error),)
    return chosen, ()


def with_options(section: QuantizationSection, changes: QuantizationOptions) -> QuantizationSection:
    """Return a section whose options say something of all layers, whatever they say of single ones."""
    layers = tuple((selector, options.overlaid(changes)) for selector, options in section.layers)
    return QuantizationSection(section.options.overlaid(changes), layers)


def _without_equalisation(bench: Workbench) -> QuantizationSection:
    """Return the section under which folded weights are quantised as they are: their channels are equalised already."""
    return _unequalised(bench, bench.experiment.quantization)


def _unequalised(bench: Workbench, section: QuantizationSection) -> QuantizationSection:
    if bench.options.equalise is False:
        return section
    return with_options(section, QuantizationOptions(equalisation=False))


def _turn_channels(bench: Workbench, images: TuningImages, options: TuneOptions, progress: Progress) -> Proposal:
    """Change signs and scales of channels, so that they fill narrower ranges. Raises: ConfigError where none needs it."""
    inputs = images.tuning.inputs
    count = min(_LAYERWISE_IMAGES, len(inputs))
    ranges = ChannelRanges(frozenset(pair.first for pair in turnable_pairs(bench.network)))
    with progress("images", count) as advance:
        for batch in inputs.batches(bench.experiment.runtime.batch, range(count)):
            observe_tensors(bench.prepared, [np.array(batch.x)], [ranges.observe], bench.threads)
            advance(len(batch.x))
    found = turn_channels(bench.network, bench.prepared.folded, ranges)
    if not found.turned and not found.scaled:
        raise ConfigError("no channel of this network needs another sign or scale")
    details: JsonObject = {"images": count, "turned": found.turned, "scaled": found.scaled}
    return Proposal(found.folded, _without_equalisation(bench), details, is_equivalent=True)


def _choose_ranges(bench: Workbench, images: TuningImages, options: TuneOptions, progress: Progress) -> Proposal:
    """Choose how the range of each tensor is found. Raises: ConfigError where none is calibrated, or all are found well."""
    network, section = bench.network, bench.experiment.quantization
    if not range_requests(network, bench.options):
        raise ConfigError("no range is calibrated: each is measured on the image itself")
    batches, count = _batches(bench, images)
    sections = [section, *(with_options(section, QuantizationOptions(activations=method)) for method in METHODS)]
    errors = []
    with progress("layers", len(sections) * len(network.layers)) as advance:
        for tried in sections:
            resolved = resolve_options(network, tried.options, tried.layers, batch_norm=bench.options.batch_norm)
            resolved = replace(resolved, channel_factors=bench.options.channel_factors)
            errors.append(
                method_errors(bench.prepared, bench.weights, bench.assign(), resolved, batches, bench.threads, advance)
            )
    chosen = choose_methods(network, bench.options, errors[0], errors[1:])
    if not chosen:
        raise ConfigError("no range is found better by another method")
    layers = tuple((str(index), QuantizationOptions(activations=method)) for index, method in chosen.items())
    details: JsonObject = {"images": count, "layers": len(chosen)}
    ranged = replace(section, layers=(*section.layers, *layers))
    return Proposal(dict(bench.prepared.folded), _unequalised(bench, ranged), details, is_equivalent=True)


def _tune_channels(bench: Workbench, images: TuningImages, options: TuneOptions, progress: Progress) -> Proposal:
    """Fit a scale and a bias of each channel, layer by layer."""
    batches, count = _batches(bench, images)
    with progress("layers", len(bench.network.layers)) as advance:
        folded = corrected_layers(bench.prepared, bench.weights, bench.assign(), bench.options, batches, bench.threads, advance)
    return Proposal(folded, _without_equalisation(bench), {"images": count})


def _batches(bench: Workbench, images: TuningImages) -> tuple[list[NDArray[np.float32]], int]:
    """Return batches of images that tune, as many as the networks may hold in lockstep, and how many these are."""
    inputs = images.tuning.inputs
    count = images_that_fit(bench.network, min(_LAYERWISE_IMAGES, len(inputs)))
    return [np.array(batch.x) for batch in inputs.batches(bench.experiment.runtime.batch, range(count))], count


def _round(bench: Workbench, images: TuningImages, options: TuneOptions, progress: Progress) -> Proposal:
    """Learn codes and biases layer by layer, from what reaches each layer."""
    aim, network = images.aim, bench.network
    batches, count = _batches(bench, images)
    section = with_options(_without_equalisation(bench), _AS_LEARNT)
    learnt = resolve_options(
        network, section.options, section.layers, batch_norm=bench.options.batch_norm, ranges=bench.options.ranges
    )
    session = Session(aim.prepared, aim.plan(aim.uniform("fp32")), aim.threads)
    cells = likely_cells(network, (session.forward(batch) for batch in batches))
    with progress("layers", len(network.layers)) as advance:
        folded = rounded_layers(aim.prepared, aim.weights, bench.assign(), learnt, batches, cells, bench.threads, advance)
    return Proposal(folded, section, {"images": count})


_AS_LEARNT = QuantizationOptions(
    bias_correction=False,
    weights=WeightOptions(rounding="half_to_even"),
    narrow=NarrowOptions(rounding="nearest", bias_correction=False),
)
"""Weights are the reals of their codes already, and biases fit them."""


def _train(bench: Workbench, images: TuningImages, options: TuneOptions, progress: Progress) -> Proposal:
    """Train the quantised network against the heads of the reference's baseline, by PyTorch."""
    from mpnet.tuning.end_to_end import Schedule, train  # brings torch
    from mpnet.tuning.torch_network import TorchNetwork

    inputs, reference = images.tuning.inputs, images.reference
    network = TorchNetwork(bench.prepared, bench.assign(), bench.options)
    session = Session(reference.prepared, reference.plan(reference.uniform(images.baseline)), bench.threads)
    order = sorted(range(len(inputs)), key=lambda i: drawn_order(inputs.records[i].sha256, options.seed + 1))
    count = max(1, min(_WATCHED_IMAGES, len(order) // 6))
    schedule = Schedule(options.minutes, options.steps, options.seed, bench.threads)
    with progress("percent of the training", 100) as advance:
        trained = train(
            bench.network,
            network,
            session.forward,
            lambda positions: inputs.take(positions).x,
            sorted(order[count:]),
            sorted(order[:count]),
            schedule,
            advance,
        )
    section = _without_equalisation(bench)
    return Proposal(trained.folded, with_options(section, _as_trained(network)), trained.details, trained.is_interrupted)


def _as_trained(network: TorchNetwork) -> QuantizationOptions:
    """Return the options under which weights become the codes that were trained, and biases stay as they are."""
    fixed = [layer.scheme.bits for layer in network.convolutions.values() if layer.is_fixed and layer.scheme is not None]
    return QuantizationOptions(
        bias_correction=False,
        weights=WeightOptions(method="min_max", rounding="half_to_even") if 8 in fixed else WeightOptions(),
        narrow=NarrowOptions(method="min_max", rounding="nearest", bias_correction=False),
    )


STAGES: dict[str, Stage] = {
    SIGNS: _turn_channels,
    RANGES: _choose_ranges,
    CHANNELS: _tune_channels,
    ROUNDING: _round,
    END_TO_END: _train,
}
"""In the order in which they run."""
