# SPDX-License-Identifier: MIT
"""The space that a sweep chooses from: a set of precisions per layer, layers tied together, quantisation options besides.

A configuration is a plan's key (one code per layer with weights, in layer order) and the number of an option set.
Sizes are computed from the description alone, before anything runs.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import Collection, Iterator, Mapping, NamedTuple, Sequence

import numpy as np

from mpnet.config.experiment import AUTO_TIES, BLOCK_TIES, SpaceSection
from mpnet.config.target_file import TargetFile
from mpnet.errors import ConfigError
from mpnet.formats.documents.target_file import target_file
from mpnet.model.blocks import find_blocks
from mpnet.model.network import NetworkSpec
from mpnet.model.plan_key import split_key
from mpnet.model.precision import BY_CODE, PRECISIONS, precision
from mpnet.model.quantization import NO_OPTIONS, QuantizationOptions
from mpnet.model.selectors import select_layers
from mpnet.model.weights import Weights
from mpnet.trial.defaults import runnable_precisions, tied_layers

MAX_OPTION_SETS = 1000


class Assignment(NamedTuple):
    """One point of a space.

    key: of its plan. options: number of its option set, which says quantisation options and weights.
    """

    key: str
    options: int = 0


@dataclass(frozen=True)
class Variable:
    """One decision: layers that always share a precision, and the codes that they may have, highest first.

    positions: of the layers in a key (not layer indices), ascending.
    """

    positions: tuple[int, ...]
    codes: str


@dataclass(frozen=True)
class OptionSet:
    """One combination of what a sweep varies beside precisions: quantisation options, and the network's weights.

    text:    tells option sets apart, in documents as well: `path=value, ...`, '' where nothing varies.
    weights: in place of the experiment's, which None stands for; agreement is with the experiment's baseline all the same.
    layers:  options of single layers, by selector; None: the experiment's.
    sources: paths of files in place of the experiment's, by what they are.
    """

    text: str = ""
    options: QuantizationOptions = NO_OPTIONS
    weights: Weights | None = field(default=None, compare=False)
    layers: tuple[tuple[str, QuantizationOptions], ...] | None = None
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class Space:
    """All configurations: the product of the variables' codes and the option sets.

    layers: indices of the layers with weights, the order of a key's first characters.
    variables: ordered by their first layer; together they have every position once.
    suffix: what every key says of layers without weights, after the codes (see `plan_key.split_key`).
    """

    layers: tuple[int, ...]
    variables: tuple[Variable, ...]
    option_sets: tuple[OptionSet, ...] = field(default=(OptionSet(),))
    suffix: str = ""

    @property
    def size(self) -> int:
        """Count the configurations."""
        return len(self.option_sets) * math.prod(len(variable.codes) for variable in self.variables)

    @property
    def precisions(self) -> tuple[str, ...]:
        """Return the names of all precisions that any layer may have, highest first."""
        codes = {code for variable in self.variables for code in variable.codes}
        return tuple(name for name, entry in PRECISIONS.items() if entry.code in codes)

    def all_keys(self, lowest_first: bool = False) -> Iterator[str]:
        """Return all keys; layers change the slower the earlier they come, so neighbours share the longest prefixes.

        lowest_first: begin with the lowest precision of each layer, not with the highest.
        """
        step = -1 if lowest_first else 1
        for codes in itertools.product(*(variable.codes[::step] for variable in self.variables)):
            yield self.key_of(codes)

    def drawn_keys(self, count: int) -> list[str]:
        """Return at most `count` different keys, drawn at random; always the same ones."""
        generator = np.random.RandomState(0)  # its stream is frozen, unlike that of default_rng
        draws = ([v.codes[generator.randint(len(v.codes))] for v in self.variables] for _ in range(count))
        return list(dict.fromkeys(self.key_of(codes) for codes in draws))

    def key_of(self, codes: Sequence[str]) -> str:
        """Return the key with one code per variable."""
        key = [""] * len(self.layers)
        for variable, code in zip(self.variables, codes, strict=True):
            for position in variable.positions:
                key[position] = code
        return "".join(key) + self.suffix

    def codes_of(self, key: str) -> tuple[str, ...]:
        """Return one code per variable. Raises ConfigError when the key is not of this space."""
        if key not in self:
            raise ConfigError(f"{key!r} is no configuration of this space")
        return tuple(key[variable.positions[0]] for variable in self.variables)

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, str):
            return False
        codes, suffix = split_key(key)
        return (
            len(codes) == len(self.layers)
            and suffix == self.suffix
            and all(
                codes[variable.positions[0]] in variable.codes
                and all(codes[position] == codes[variable.positions[0]] for position in variable.positions[1:])
                for variable in self.variables
            )
        )

    def falling_codes(self, variable: int) -> str:
        """Return the codes of a variable from the highest to the lowest precision."""
        return "".join(sorted(self.variables[variable].codes, key=_height, reverse=True))

    def highest(self) -> str:
        """Return every layer at the highest precision that it may have."""
        return self.key_of([max(v.codes, key=_height) for v in self.variables])

    def lowest(self) -> str:
        """Return every layer at the lowest precision that it may have."""
        return self.key_of([min(v.codes, key=_height) for v in self.variables])

    def lowered(self, code: str) -> str:
        """Return every layer at one precision; those that may not have it stay at their highest."""
        return self.key_of([code if code in v.codes else max(v.codes, key=_height) for v in self.variables])

    def mixed(self, offset: int) -> str:
        """Return all precisions in turn, from layer to layer, beginning with choice number `offset` (modulo their number)."""
        return self.key_of([v.codes[(offset + number) % len(v.codes)] for number, v in enumerate(self.variables)])

    def changed(self, key: str, variable: int, code: str) -> str:
        """Return the key with one variable set to a code."""
        codes = list(self.codes_of(key))
        codes[variable] = code
        return self.key_of(codes)


def _height(code: str) -> tuple[int, int]:
    entry = BY_CODE[code]
    # Variants share a rank; the registry's order decides between them, plain ones being higher.
    return (entry.rank, -list(PRECISIONS).index(entry.name))


def build_space(network: NetworkSpec, precisions: Sequence[str], section: SpaceSection | None = None) -> Space:
    """Build the space that a sweep section describes.

    precisions: choices of every layer that `section.layers` does not name.
    Raises: ConfigError for an unknown layer or precision, a layer without weights, tied layers with different choices,
    or when nothing is left to choose.
    """
    section = section or SpaceSection()
    layers = tuple(layer.index for layer in network.convolutions)
    position = {index: number for number, index in enumerate(layers)}
    if not layers:
        raise ConfigError(f"sweep: {network.source} has no layer with weights, so there is nothing to choose")
    choices = {index: _codes(precisions, "sweep.precisions") for index in layers}
    for selector, names in section.layers:
        key_path = f"sweep.space.layers.{selector}"
        for index in _select_weighted(network, selector, key_path):
            choices[index] = _codes(names, key_path)
    target_ties: list[tuple[int, ...]] = []
    if section.target is not None:
        target = target_file(section.target)
        target_ties = tied_layers(network, target)
        choices = _within_target(network, target, choices, target_ties)
    root = {index: index for index in layers}
    for group in (*_tied(network, section), *target_ties):
        heads = {root[index] for index in group}
        lowest_root = min(heads)
        root = {index: lowest_root if head in heads else head for index, head in root.items()}
    variables = []
    for head in sorted(set(root.values())):
        tied = [index for index in layers if root[index] == head]
        for index in tied[1:]:
            if set(choices[index]) != set(choices[head]):
                raise ConfigError(
                    f"sweep.space.tied: layers {head} and {index} are tied but may have {_names(choices[head])} and "
                    f"{_names(choices[index])}; give them the same choices"
                )
        variables.append(Variable(tuple(position[index] for index in tied), choices[head]))
    space = Space(layers, tuple(variables), _option_sets(section))
    if space.size == 1:
        raise ConfigError(
            "sweep: every layer is pinned to one precision, so there is nothing to choose; give "
            "sweep.precisions at least two, or use `mpnet run`"
        )
    return space


def _within_target(
    network: NetworkSpec, target: TargetFile, choices: Mapping[int, str], ties: Sequence[tuple[int, ...]]
) -> dict[int, str]:
    """Return the codes by layer index that a target runs; a layer that it pins to one precision has that alone.

    Raises: ConfigError where nothing of a layer's choices is left.
    """
    runnable = {index: _codes(names, f"target {target.name}") for index, names in runnable_precisions(network, target).items()}
    limited = {}
    for index, codes in choices.items():
        limited[index] = runnable[index] if len(runnable[index]) == 1 else _common((codes, runnable[index]))
        if not limited[index]:
            raise ConfigError(
                f"sweep.space.target: {target.name} runs layer {index} in {_names(runnable[index])}, and the sweep may choose "
                f"{_names(codes)}; name one in sweep.precisions"
            )
    for group in ties:
        common = _common([limited[index] for index in group])
        if not common:
            raise ConfigError(
                f"sweep.space.target: layers {', '.join(map(str, group))} have one precision in {target.name}, and no "
                "choice in common; give them one in sweep.space.layers"
            )
        limited |= dict.fromkeys(group, common)
    return limited


def _common(choices: Sequence[str]) -> str:
    return "".join(code for code in choices[0] if all(code in codes for codes in choices))


def _tied(network: NetworkSpec, section: SpaceSection) -> list[tuple[int, ...]]:
    """Return the indices of layers that share a precision, by group."""
    if section.tied == BLOCK_TIES:
        return list(find_blocks(network).values())
    if section.tied != AUTO_TIES:
        groups = (
            {i for selector in group for i in _select_weighted(network, selector, "sweep.space.tied")} for group in section.tied
        )
        return [tuple(sorted(group)) for group in groups]
    # Engines run what mpnet exports layer by layer, whatever stands beside it; another program's quantiser takes or leaves a
    # node of the file that the network came from.
    nodes: dict[str, list[int]] = {}
    for layer in network.convolutions:
        for node in layer.source[:1]:
            nodes.setdefault(node, []).append(layer.index)
    return [tuple(group) for group in nodes.values()]


def _codes(names: Sequence[str], key_path: str) -> str:
    if not names:
        raise ConfigError(f"{key_path}: is empty; name at least one precision")
    return "".join(dict.fromkeys(precision(name).code for name in names))


def _names(codes: str) -> str:
    return ", ".join(BY_CODE[code].name for code in codes)


def _select_weighted(network: NetworkSpec, selector: str, key_path: str) -> tuple[int, ...]:
    try:
        indices = select_layers(network, selector)
    except ConfigError as error:
        raise ConfigError(f"{key_path}: {error}") from None
    for index in indices:
        if not network.layers[index].has_weights:
            raise ConfigError(
                f"{key_path}: layer {index} ({network.layers[index].name}) has no weights and takes the "
                f"precision of its input; a sweep chooses for layers with weights"
            )
    return indices


def _option_sets(section: SpaceSection) -> tuple[OptionSet, ...]:
    count = math.prod(len(varied.values) for varied in section.quantization)
    if not 1 <= count <= MAX_OPTION_SETS:
        raise ConfigError(f"sweep.space.quantization: {count} combinations of options; 1 to {MAX_OPTION_SETS} can be swept")
    sets = []
    for picks in itertools.product(*(range(len(varied.values)) for varied in section.quantization)):
        options, words = NO_OPTIONS, []
        for varied, pick in zip(section.quantization, picks, strict=True):
            options = options.overlaid(varied.options[pick])
            words.append(f"{varied.path}={varied.values[pick]}")
        sets.append(OptionSet(", ".join(words), options))
    return tuple(sets)


@dataclass(frozen=True)
class AllAssignments(Collection[Assignment]):
    """Every configuration of a space, in the order of the trie; made as they are asked for, since there may be millions."""

    space: Space

    def __iter__(self) -> Iterator[Assignment]:
        numbers = range(len(self.space.option_sets))
        return (Assignment(key, options) for options in numbers for key in self.space.all_keys())

    def __len__(self) -> int:
        return self.space.size

    def __contains__(self, configuration: object) -> bool:
        return isinstance(configuration, Assignment) and configuration.key in self.space
