"""The network's own cfg with the precisions of a configuration; comments and everything else stay."""

from __future__ import annotations

from mpnet.export import Chosen, Exported, Target
from mpnet.formats.cfg_edit import cfg_for_key


def _write(chosen: Chosen) -> Exported:
    edited = cfg_for_key(chosen.content, chosen.key, str(chosen.path))
    return Exported(edited, {"changed": edited != chosen.content})


TARGET = Target("the network file with its precision keys", ".cfg", _write)
