# SPDX-License-Identifier: MIT
"""The reader of a Darknet cfg into a NetworkSpec: all of both Darknet programs but recurrent and binary networks."""

from __future__ import annotations

import hashlib
import os
from functools import partial
from pathlib import Path
from typing import Mapping, Sequence

from mpnet.config.protocol import DIALECTS
from mpnet.errors import ConfigError, FormatError, PrecisionError
from mpnet.formats.cfg.causes import describe_unknown, find_misspelt, suggest_size
from mpnet.formats.cfg.dialect import dialect_of
from mpnet.formats.cfg.keys import MISTAKEN, PRECISION_KEYS, QUANTIZATION_KEYS, TRAINING_ANYWHERE, TRAINING_NET
from mpnet.formats.cfg.layers import ALIASES, READERS, REFUSED
from mpnet.formats.cfg.position import Position
from mpnet.formats.cfg.precision import precision_keys
from mpnet.formats.cfg.published import misfits
from mpnet.formats.cfg.tokens import MAX_CFG_BYTES, CfgSection, ShapeError, shorten, tokenize
from mpnet.formats.documents.values import is_real
from mpnet.formats.files.bounded import read_bounded, utf8_bytes
from mpnet.formats.files.foreign import foreign_model
from mpnet.messages import bytes_text
from mpnet.model.layers import LayerSpec, Shape, YoloSpec
from mpnet.model.network import NetworkSpec
from mpnet.model.precision import FP32
from mpnet.model.selectors import name_layers

MAX_SIDE = 16384
MAX_IMAGE_CHANNELS = 64
MAX_ACTIVATION_BYTES = 4 << 30
MAX_PARAMETERS = 1 << 29


def read_cfg(path: str | Path, dialect: str = "auto") -> NetworkSpec:
    """Read a cfg file.

    dialect: of DIALECTS: whose program's ways to follow; auto: AlexeyAB's where the cfg uses what only that one has.
    Raises: FormatError, PrecisionError: `file:line: what is wrong; the remedy`.
    """
    return parse_cfg(read_cfg_bytes(path), str(path), dialect)


def read_cfg_bytes(path: str | Path) -> bytes:
    """Return the bytes of a network file, as UTF-8 without a mark. Raises: FormatError when it is unreadable or too large."""
    try:
        return utf8_bytes(read_bounded(path, MAX_CFG_BYTES, "cfg"))
    except FormatError:
        foreign = foreign_model(path)
        if foreign and os.path.isfile(path):
            raise FormatError(f"{path}: {foreign}") from None
        raise


def parse_cfg(content: bytes | str, source: str = "<text>", dialect: str = "auto") -> NetworkSpec:
    """Parse the network that a cfg's text describes; `source` stands for the file in messages."""
    data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else utf8_bytes(content)
    sections = tokenize(data, source)
    if not sections:
        raise FormatError(f"{source}: empty; a cfg begins with [net]")
    net, *layer_sections = sections
    if ALIASES.get(net.name, net.name) != "net":
        net.fail(f"the first section is [{shorten(net.name)}]; a cfg begins with [net]")
    if not layer_sections:
        net.fail("no layer follows [net]")
    width, height = net.integer("width", 0, 0, MAX_SIDE), net.integer("height", 0, 0, MAX_SIDE)
    if not width or not height:
        misspelt = find_misspelt([net])
        if misspelt is not None:
            raise FormatError(f"{misspelt} [net] must say the width and height of the image")
        net.fail("width and height of the image are missing or 0; add them to [net]")
    channels = net.integer("channels", 3, 1, MAX_IMAGE_CHANNELS)
    warnings: list[str] = []
    if dialect not in DIALECTS:
        raise ConfigError(f"dialect {dialect!r} is unknown; known are {', '.join(DIALECTS)}")
    suggested, reason = dialect_of(layer_sections)
    dialect_in_force = suggested if dialect == "auto" else dialect
    declared = precision_keys(net)
    letterbox = net.flag("letter_box", False)  # AlexeyAB's program reads it in test, map and demo
    _check_left_over(net, TRAINING_NET, {}, warnings)

    layers = _read_layers(net, layer_sections, (height, width, channels), dialect_in_force, warnings)
    digest = hashlib.sha256(b"".join([data, *(content for section in layer_sections for content in section.read)])).hexdigest()
    warnings += misfits(layers, source)
    network = NetworkSpec(
        width,
        height,
        channels,
        name_layers(layers),
        declared,
        source,
        digest,
        tuple(warnings),
        dialect_in_force,
        reason if dialect == "auto" else "as asked for",
        suggested,
        letterbox,
    )
    _check_memory(net, network.peak_bytes, "the layers that live at one time need")
    return network


def _read_layers(
    net: CfgSection, layer_sections: Sequence[CfgSection], image: Shape, dialect: str, warnings: list[str]
) -> list[LayerSpec]:
    """Read all layers.

    image: its height, width and channels. Raises: FormatError, PrecisionError; where the cause may lie elsewhere than the
    error, the line of the cause.
    """
    layers: list[LayerSpec] = []
    parameters = 0
    for number, section in enumerate(layer_sections):
        kind = ALIASES.get(section.name, section.name)
        if kind in REFUSED:
            section.fail(f"[{section.name}] is not supported: {REFUSED[kind]}")
        if kind not in READERS:
            section.fail(f"layer type [{shorten(section.name)}] is not supported; known are {', '.join(READERS)}")
        reader = READERS[kind]
        try:
            layer = reader.build(section, Position(layers, image, precision_keys(section), dialect, warnings))
        except FormatError as error:
            misspelt = find_misspelt(layer_sections[: number + 1] if isinstance(error, ShapeError) else [section])
            if misspelt is not None:
                message = str(error).removeprefix(f"{section.source}:")
                raise FormatError(f"{misspelt} As it is, line {message}") from None
            size = None
            if isinstance(error, ShapeError):
                size = suggest_size(image[1], image[0], partial(_is_fitting, layer_sections[: number + 1], image[2], dialect))
            if size is not None:
                raise FormatError(
                    f"{net.source}:{net.line}: {size} ({str(error).removeprefix(section.source + ':')})"
                ) from None
            raise
        _check_head_precision(section, layer)
        _check_left_over(section, reader.training, reader.only, warnings)
        layers.append(layer)
        parameters += layer.parameters
        _check_memory(section, 4 * layer.activations, "the layer needs")
        if parameters > MAX_PARAMETERS:
            section.fail(f"the layers up to here hold {parameters} parameters; the limit is {MAX_PARAMETERS}")
    return layers


def _is_fitting(sections: Sequence[CfgSection], channels: int, dialect: str, width: int, height: int) -> bool:
    """Return whether the layers of sections can be built for another size of the image."""
    layers: list[LayerSpec] = []
    try:
        for section in sections:
            position = Position(layers, (height, width, channels), None, dialect, [])
            layers.append(READERS[ALIASES.get(section.name, section.name)].build(section, position))
    except FormatError:
        return False
    return True


def _check_memory(section: CfgSection, size_bytes: int, what: str) -> None:
    if size_bytes > MAX_ACTIVATION_BYTES:
        section.fail(
            f"{what} {bytes_text(size_bytes)} for one image; the limit is {bytes_text(MAX_ACTIVATION_BYTES)}; lower "
            "width, height or filters"
        )


def _check_head_precision(section: CfgSection, layer: LayerSpec) -> None:
    keys = layer.declared
    if isinstance(layer, YoloSpec) and keys is not None and keys.precision not in (None, FP32):
        raise PrecisionError(f"{section.source}:{keys.line}: [{layer.kind}] is always fp32; remove {keys.precision}=1")


def _check_left_over(section: CfgSection, training_words: str, single_values: Mapping[str, str], warnings: list[str]) -> None:
    """Sort the keys that nothing has read: training, unsupported, misspelt precision, unknown.

    single_values: `only` of a SectionReader.
    """
    training = frozenset(f"{TRAINING_ANYWHERE} {training_words}".split())
    for key, value in single_values.items():
        text = section.text(key)
        if text is None or text == value:
            continue
        if not (is_real(text) and is_real(value) and float(text) == float(value)):
            section.fail(f"{key}={shorten(text)} is not supported in [{section.name}]; only {key}={value} is", key)
    known = {key for key, entry in section.entries.items() if entry.used} | training
    for key, entry in section.repeated:
        first, location = section.entries[key], f"{section.source}:{entry.line}"
        if key in training or entry.value == first.value:
            warnings.append(f"{location}: {shorten(key)} is given twice; the first, in line {first.line}, counts")
        elif key in known:
            warnings.append(
                f"{location}: {key}={shorten(entry.value)} contradicts line {first.line}, which counts, as in Darknet"
            )
    for key, entry in section.entries.items():
        if entry.commented and entry.used and entry.value[0].isalpha():
            warnings.append(
                f"{section.source}:{entry.line}: Darknet takes the comment for a part of the word {shorten(entry.value)!r}, "
                "which it then does not know; put comments on lines of their own"
            )
        if key in known:
            continue
        if key in MISTAKEN:
            suggestions = [MISTAKEN[key]]
        else:
            import difflib  # for mistakes only

            suggestions = difflib.get_close_matches(key.lower(), (*PRECISION_KEYS, *QUANTIZATION_KEYS), n=1, cutoff=0.7)
        location = f"{section.source}:{entry.line}"
        if suggestions:
            raise PrecisionError(f"{location}: unknown key {shorten(key)!r}; did you mean {suggestions[0]!r}?")
        warnings.append(describe_unknown(section, key, entry))
