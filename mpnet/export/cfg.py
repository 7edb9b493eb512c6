# SPDX-License-Identifier: MIT
"""The network's own cfg with the precisions of a configuration; comments and everything else stay."""

from __future__ import annotations

from typing import Mapping

from mpnet.export import Configuration, Exported, Target
from mpnet.formats.cfg.edit import cfg_for_key


def _write(configuration: Configuration, flavour: str, options: Mapping[str, object]) -> Exported:
    content = configuration.content
    edited = cfg_for_key(content, configuration.precisions.key, configuration.network.source)
    for point in configuration.operating_point.values():
        edited = f"# score threshold to deploy with: {point['score']:g}\n".encode() + edited
    return Exported({".cfg": edited}, {"changed": edited != content})


TARGET = Target("the network file with its precision keys", ".cfg", _write, precisions=None, reads_weights=False)
