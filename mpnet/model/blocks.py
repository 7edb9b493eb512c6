# SPDX-License-Identifier: MIT
"""Blocks of an imported network: layers that its program made as one part, by the paths of the nodes that they came from.

PyTorch's exporter names a node by the modules around it, `/model.4/m.1/cv2/conv/Conv`, and a module of a list by a number.
The outermost numbered module is what papers draw as one box: a convolution, a C2f block, a residual block.
"""

from __future__ import annotations

import re

from mpnet.model.network import NetworkSpec
from mpnet.model.selectors import layer_groups

_NUMBERED = re.compile(r"\.\d+$")


def find_blocks(network: NetworkSpec) -> dict[str, tuple[int, ...]]:
    """Return the indices of layers with weights by block, in layer order; a layer without such a path is in none.

    A block that feeds heads is divided at the next numbered module: boxes and classes of each grid are blocks of their own.
    """
    feeding = set(layer_groups(network).get("heads", ()))
    paths = {layer.index: _module_paths(layer.source[0]) for layer in network.convolutions if layer.source}
    outermost = {index: modules[0] for index, modules in paths.items() if modules}
    divided = {block for index, block in outermost.items() if index in feeding}
    blocks: dict[str, list[int]] = {}
    for index, block in outermost.items():
        modules = paths[index]
        blocks.setdefault(modules[1] if block in divided and len(modules) > 1 else block, []).append(index)
    return {name: tuple(indices) for name, indices in blocks.items()}


def _module_paths(node: str) -> list[str]:
    """Return the paths of a node's numbered modules, the outermost first."""
    parts = node.strip("/").split("/")[:-1]
    return ["/".join(parts[: depth + 1]) for depth, part in enumerate(parts) if _NUMBERED.search(part)]
