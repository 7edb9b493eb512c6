# SPDX-License-Identifier: MIT
"""Experiment YAML -> Experiment. Every message names the line; docs/experiments.md lists the keys."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Sequence

from mpnet.config.experiment import DEFAULT_OUTPUT, LABEL_KEYS, LISTED, DataSection, Experiment
from mpnet.errors import ConfigError
from mpnet.formats.documents.target_file import is_path
from mpnet.formats.documents.yaml_section import mapping, missing, read_section
from mpnet.formats.documents.yaml_tree import Mapping, Node, Scalar, parse_yaml, read_yaml_file
from mpnet.formats.files.paths import without_detours
from mpnet.messages import shown
from mpnet.model.keys import paths_of

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
# Mappings whose keys are not fixed words but may hold dots themselves.
_SELECTOR_MAPS = tuple(
    path
    for path, key in paths_of(Experiment).items()
    if key.kind == "options" or (key.kind == "selectors" and key.of.kind != "section")
)


def read_experiment(path: str | Path, overrides: Sequence[str] = ()) -> Experiment:
    """Read an experiment file; `overrides` are texts such as `detection.nms=0.5`, applied before anything is checked.

    Paths in the file count from its folder, paths in overrides as well.
    Raises: ConfigError, one line with file and line number.
    """
    path = Path(path)
    return _experiment(read_yaml_file(path), overrides, str(path), path.parent)


def parse_experiment(
    data: bytes | str, overrides: Sequence[str] = (), source: str = "experiment", base: str | Path = "."
) -> Experiment:
    """Parse an experiment as `read_experiment`, from text; `base` is the folder that paths count from."""
    return _experiment(parse_yaml(data, source), overrides, source, Path(base))


def _experiment(root: Node, overrides: Sequence[str], source: str, base: Path) -> Experiment:
    tree = mapping(root, "the file")
    for override in overrides:
        _override(tree, override)
    experiment = read_section(Experiment, tree, "", base)
    if not _NAME.match(experiment.name):
        raise ConfigError(
            f"{tree.items['name'].location}: name is {shown(experiment.name)}; it names a folder: use up to 100 of letters, "
            "digits, '.', '_' and '-', the first a letter or digit"
        )
    if experiment.data is not None:
        _check_data(experiment.data, mapping(tree.items["data"], "data"))
    sweep = experiment.sweep
    if sweep is not None and sweep.space.target is not None and is_path(sweep.space.target):
        target = str(without_detours(base / sweep.space.target))
        experiment = replace(experiment, sweep=replace(sweep, space=replace(sweep.space, target=target)))
    # A path that the file names counts from `base` already; so does the default.
    output = base / experiment.output if experiment.output is DEFAULT_OUTPUT else experiment.output
    return replace(experiment, output=output, source=source)


def _check_data(data: DataSection, node: Mapping) -> None:
    """Check the labels of a data section: each format has its own kind."""
    if not data.format:
        if data.unlabelled is None or "images" in node.items:
            raise missing(node, "data.format")
        labels_key = None
    elif data.images is None and data.format not in LISTED:
        raise missing(node, "data.images")
    else:
        labels_key = LABEL_KEYS[data.format]
    if labels_key is not None and getattr(data, labels_key) is None:
        raise missing(node, f"data.{labels_key}")
    for other in ("labels", "annotations"):
        if other != labels_key and getattr(data, other) is not None:
            raise ConfigError(
                f"{node.items[other].location}: data.{other} does not go with format {data.format}; remove it "
                "or change data.format"
            )


def _override(tree: Mapping, override: str) -> None:
    """Put `key.key=value` into the tree."""
    begin = override if len(override) <= 80 else f"{override[:77]}..."
    source = "--set " + "".join(c if c.isprintable() else " " for c in begin)
    keys, equals, value = override.partition("=")
    path = _split(keys.strip())
    if not equals or not all(path):
        raise ConfigError(f"{source}: is not of the form key.key=value, such as detection.nms=0.5")
    node = parse_yaml(value, source, numbered=False) if value.strip() else Scalar("", False, source)
    tree_node = tree
    for depth, name in enumerate(path[:-1], start=1):
        child = tree_node.items.setdefault(name, Mapping(source))
        tree_node.key_locations.setdefault(name, source)
        if not isinstance(child, Mapping):
            dotted = ".".join(path[:depth])
            raise ConfigError(
                f"{source}: {dotted!r} holds one value in {child.location}; set it whole: --set '{dotted}={{...}}'"
            )
        tree_node = child
    tree_node.items[path[-1]] = node
    tree_node.key_locations[path[-1]] = source


def _split(keys: str) -> list[str]:
    """Split a dotted key; below a mapping of selectors all the rest is one part, such as `2..8`."""
    for prefix in _SELECTOR_MAPS:
        if keys.startswith(f"{prefix}.") and len(keys) > len(prefix) + 1:
            return [*prefix.split("."), keys.removeprefix(f"{prefix}.")]
    return keys.split(".")
