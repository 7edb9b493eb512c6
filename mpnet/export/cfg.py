# SPDX-License-Identifier: MIT
"""The network's own cfg with the precisions of a configuration; comments and everything else stay."""

from __future__ import annotations

from typing import Any, Mapping

from mpnet.engine.options import resolve_options
from mpnet.export import Configuration, Exported, Target
from mpnet.formats.cfg.edit import cfg_for_key
from mpnet.messages import few
from mpnet.model.keys import paths_of
from mpnet.model.quantization import QuantizationOptions


def _write(configuration: Configuration, flavour: str, options: Mapping[str, object]) -> Exported:
    content = configuration.content
    edited = cfg_for_key(content, configuration.precisions.key, configuration.network.source)
    for point in configuration.operating_point.values():
        edited = f"# score threshold to deploy with: {point['score']:g}\n".encode() + edited
    return Exported({".cfg": edited}, {"changed": edited != content}, notes=_missing_options(configuration))


def _missing_options(configuration: Configuration) -> tuple[str, ...]:
    """Say which quantisation options the figures were measured with and the cfg does not state; () where it states all.

    Only precision keys change in the file, so that whoever runs it alone has other bits, and bytes, than were measured.
    """
    measured: Mapping[str, Any] = configuration.document.get("protocol", {}).get("quantization", {})
    network, precisions = configuration.network, configuration.precisions
    if not measured or not any(precision.carries_scale for precision in precisions.of_weights):
        return ()
    stated = resolve_options(network).complete
    layers_by_option: dict[tuple[str, str], list[int]] = {}
    for index in precisions.weighted:
        own_options = _options_by_path(stated[index].plain_values())
        for path, value in _options_by_path(measured.get("layers", {}).get(str(index), measured)).items():
            if own_options.get(path) != value:
                layers_by_option.setdefault((path, _cfg_text(value)), []).append(index)
    cfg_keys = {path: key.cfg for path, key in paths_of(QuantizationOptions).items()}
    by_net: list[str] = []
    by_section: list[str] = []
    unnamed: list[str] = []
    for (path, text), layers in layers_by_option.items():
        places = "" if len(layers) == len(precisions.weighted) else f" in layers {few([str(index) for index in layers])}"
        if not cfg_keys.get(path):
            unnamed.append(f"quantization.{path}: {text}{places}")
        elif places:
            by_section.append(f"{cfg_keys[path]}={text}{places}")
        else:
            by_net.append(f"{cfg_keys[path]}={text}")
    remedies = [f"add {', '.join(by_net)} to its [net]"] if by_net else []
    remedies += [f"set {', '.join(by_section)}"] if by_section else []
    remedies += [f"an experiment file says {', '.join(unnamed)}, which no cfg can"] if unnamed else []
    if not remedies:
        return ()
    return (f"the cfg has the precisions alone, not how int8 was quantised when they were measured: {'; '.join(remedies)}",)


def _options_by_path(options: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return plain values by dotted path, without those of single layers."""
    values: dict[str, Any] = {}
    for name, value in options.items():
        if isinstance(value, Mapping):
            values |= {} if name == "layers" else _options_by_path(value, f"{prefix}{name}.")
        else:
            values[prefix + name] = value
    return values


def _cfg_text(value: object) -> str:
    """Return a value as a cfg writes it."""
    return str(int(value)) if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


TARGET = Target("the network file with its precision keys", ".cfg", _write, precisions=None, reads_weights=False)
