# SPDX-License-Identifier: MIT
"""Names of layers, and how `precision.layers`, `--layers` and sweeps choose them.

Every layer has a stable name `<type>-<number>`, counted from 1 per type: `conv-1`, `maxpool-3`, `route-2`, `yolo-1`.
The convolution that feeds a yolo layer says so: `conv-10/yolo-1`. `mpnet show` prints the names.

A selector is one of
  an index        `0`, `13`: Darknet's layer number
  a range         `2..8`: indices, both ends included
  a name or glob  `conv-3`, `conv-1?`, `*/yolo-1`, `*/yolo-*`, `maxpool-*`
  a group         `all` (or `conv`), `first`, `last`, `heads`, `trunk`, `head-1`, `3x3`, `1x1`, `depthwise`, `grouped`,
                  `strided`
  several         `first, heads`: joined by commas

Ranges, groups and globs choose among the layers with weights; a glob that begins with another type (`maxpool-*`)
chooses among that type. Layers without weights follow their inputs unless chosen by index, name or such a glob.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import replace
from typing import Iterable, Sequence

from mpnet.errors import ConfigError
from mpnet.model.layers import SHORT_NAMES, ConvolutionSpec, LayerSpec, YoloSpec
from mpnet.model.network import NetworkSpec

_RANGE = re.compile(r"(\d{1,6})\.\.(\d{1,6})")
_GLOB_CHARACTERS = frozenset("*?[")


def name_layers(layers: Sequence[LayerSpec]) -> tuple[LayerSpec, ...]:
    """Return the layers with their names filled in."""
    bare = NetworkSpec(1, 1, 1, tuple(layers))
    feeds: dict[int, str] = {}
    for number, yolo in enumerate(bare.yolos, 1):
        source = bare.source_convolution(yolo.inputs[0])
        if source is not None:
            feeds[source] = f"{feeds.get(source, '')}/yolo-{number}"
    counts: dict[str, int] = {}
    layers_with_names = []
    for layer in layers:
        counts[layer.short] = counts.get(layer.short, 0) + 1
        layers_with_names.append(replace(layer, name=f"{layer.short}-{counts[layer.short]}{feeds.get(layer.index, '')}"))
    return tuple(layers_with_names)


def layer_groups(network: NetworkSpec) -> dict[str, tuple[int, ...]]:
    """Return every group of this network -> its layer indices, in a fixed order; empty groups are left out.

    trunk: convolutions that reach every head. head-k: those that reach head k alone. heads: those that feed a yolo
    layer directly, one or, of boxes and classes, several. NxN: by kernel size, depthwise ones included.
    """
    convolutions = network.convolutions
    indices = [layer.index for layer in convolutions]
    groups: dict[str, list[int]] = {
        "all": indices,
        "conv": indices,
        "first": indices[:1],
        "last": indices[-1:],
        "heads": [],
        "trunk": [],
    }
    heads = len(network.yolos)
    reached = network.heads_of()
    feeding = {index for yolo in network.yolos for index in network.sources(yolo.inputs[0])}
    for layer in convolutions:
        if layer.index in feeding:
            groups["heads"].append(layer.index)
        numbers = reached[layer.index]
        if heads and len(numbers) == heads:
            groups["trunk"].append(layer.index)
        elif len(numbers) == 1:
            groups.setdefault(f"head-{min(numbers)}", []).append(layer.index)
        groups.setdefault(f"{layer.size}x{layer.size}", []).append(layer.index)
        if layer.depthwise:
            groups.setdefault("depthwise", []).append(layer.index)
        elif layer.groups > 1:
            groups.setdefault("grouped", []).append(layer.index)
        if layer.stride > 1:
            groups.setdefault("strided", []).append(layer.index)
    return {name: tuple(members) for name, members in groups.items() if members}


def layer_selectors(network: NetworkSpec) -> tuple[tuple[str, ...], ...]:
    """Return for each layer what selects it: its index, its name, the groups that it is in (without `all` and `conv`)."""
    selectors = [[str(layer.index), layer.name] for layer in network.layers]
    for name, indices in layer_groups(network).items():
        if name not in ("all", "conv"):
            for index in indices:
                selectors[index].append(name)
    return tuple(tuple(names) for names in selectors)


def select_layers(network: NetworkSpec, selector: str | int) -> tuple[int, ...]:
    """Return the indices that a selector chooses, ascending, never empty.

    Raises: ConfigError with the nearest valid name when it chooses nothing.
    """
    indices: set[int] = set()
    groups = layer_groups(network)
    for name in str(selector).split(","):
        indices.update(_select_one(network, name.strip(), groups))
    return tuple(sorted(indices))


def _select_one(network: NetworkSpec, text: str, groups: dict[str, tuple[int, ...]]) -> Iterable[int]:
    last = len(network.layers) - 1
    if text.isascii() and text.isdigit():
        if len(text) > 6 or int(text) > last:
            raise ConfigError(f"layer {text[:20]!r}: {network.source} has the layers 0 to {last}")
        return (int(text),)
    if match := _RANGE.fullmatch(text):
        low, high = int(match[1]), int(match[2])
        if low > high or high > last:
            raise ConfigError(f"layers {text!r}: a range goes upwards and {network.source} has the layers 0 to {last}")
        indices = [layer.index for layer in network.convolutions if low <= layer.index <= high]
        if not indices:
            raise ConfigError(f"layers {text!r}: no layer with weights in this range of {network.source}")
        return indices
    if text in groups:
        return groups[text]
    if not _GLOB_CHARACTERS & set(text):
        exact = [layer.index for layer in network.layers if text in (layer.name, layer.name.split("/")[0])]
        if exact:
            return exact
    else:
        kind = next((prefix for prefix in SHORT_NAMES if text.startswith(prefix)), ConvolutionSpec.short)
        indices = [
            layer.index
            for layer in network.layers
            if layer.short == kind and layer.short != YoloSpec.short and fnmatch.fnmatchcase(layer.name, text)
        ]
        if indices:
            return indices
    raise ConfigError(_no_such_layer(network, text, groups))


def _no_such_layer(network: NetworkSpec, text: str, groups: dict[str, tuple[int, ...]]) -> str:
    names = [*groups, *(layer.name for layer in network.layers)]
    import difflib  # for mistakes only

    suggestions = difflib.get_close_matches(text, names, n=1, cutoff=0.5)
    hint = f"did you mean {suggestions[0]!r}?" if suggestions else f"groups are {', '.join(groups)}"
    return f"layers {text[:60]!r}: nothing in {network.source} has this index, name or group; {hint} (see mpnet show)"
