# SPDX-License-Identifier: MIT
"""ncnn's two files: layers as lines of text, weights as blocks of bytes in the same order.

Source: ncnn's documents on its param and model binary formats; what its int8 convolutions read was found by running them.
"""

from __future__ import annotations

from collections import Counter
from typing import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mpnet.arrays import Array

Number = int | float | np.floating
Numbers = list[float] | list[int] | tuple[Number, ...]
MAGIC = 7767517
# The words before a block of weights that say how they are stored.
_FLOAT32, _FLOAT16, _INT8 = 0, 0x01306B47, 0x000D4B38
_TAGS = {"float32": _FLOAT32, "float16": _FLOAT16, "int8": _INT8}
_LINE = "{:<24} {:<32} {} {}"


class NcnnFiles:
    """Layers in the order of running. A blob is a name; ncnn lets one layer read it, so further readers get copies."""

    def __init__(self) -> None:
        self._layers: list[tuple[str, str, list[str], list[str], str]] = []
        self._weights: list[bytes] = []

    def add_layer(
        self, kind: str, name: str, inputs: Sequence[str], outputs: Sequence[str] | None = None, **parameters: Number | Numbers
    ) -> str:
        """Append a layer; its first output, which has the layer's name when nothing is said.

        parameters: by `p` and their number, such as p0=16; lists are written as ncnn's arrays.
        """
        outputs_or_name = [name] if outputs is None else list(outputs)
        words = [_parameter(int(key[1:]), value) for key, value in parameters.items()]
        self._layers.append((kind, name, list(inputs), outputs_or_name, " ".join(words)))
        return outputs_or_name[0]

    def add_weights(self, values: Array) -> None:
        """Add the weights of the last layer, with the word that says how they are stored: float32, float16 or int8."""
        content = values.tobytes()
        self._weights += [np.uint32(_TAGS[values.dtype.name]).tobytes(), content, bytes(-len(content) % 4)]

    def add_floats(self, values: NDArray[np.float32]) -> None:
        """Add numbers of the last layer that ncnn always reads as float32: biases and scales."""
        self._weights.append(np.asarray(values, "<f4").tobytes())

    def param(self, outputs: Mapping[str, str]) -> bytes:
        """Return the text. outputs: by the name that a tensor has outside the blob that it is."""
        readers = Counter(blob for _, _, inputs, _, _ in self._layers for blob in inputs)
        lines: list[str] = []
        blobs = 0
        copies_left: dict[str, list[str]] = {}
        for kind, name, inputs, layer_outputs, words in self._layers:
            layer_inputs = [copies_left[blob].pop(0) if blob in copies_left else blob for blob in inputs]
            lines.append(_line(kind, name, layer_inputs, layer_outputs, words))
            blobs += len(layer_outputs)
            for blob in layer_outputs:
                # One copy for each reader; what is read from outside has a name of its own.
                copies = [f"{blob}/{number}" for number in range(readers[blob])]
                copies += [name for name, source in outputs.items() if source == blob]
                if len(copies) > 1 or blob in outputs.values():
                    lines.append(_line("Split", f"{blob}/split", [blob], copies, ""))
                    blobs += len(copies)
                    copies_left[blob] = copies
        return "\n".join([str(MAGIC), f"{len(lines)} {blobs}", *lines, ""]).encode()

    def bin(self) -> bytes:
        """Return the content of the .bin file: all weights in the order of their layers."""
        return b"".join(self._weights)


def _line(kind: str, name: str, inputs: Sequence[str], outputs: Sequence[str], words: str) -> str:
    start = _LINE.format(kind, name, len(inputs), len(outputs))
    return " ".join(word for word in (start, *inputs, *outputs, words) if word)


def _parameter(number: int, value: Number | Numbers) -> str:
    if isinstance(value, (list, tuple)):
        return f"{-23300 - number}={len(value)},{','.join(_number(item) for item in value)}"
    return f"{number}={_number(value)}"


def _number(value: Number) -> str:
    # ncnn reads a number as real when it holds a point or an exponent; nine digits give a float32 back exactly.
    return f"{float(value):.8e}" if isinstance(value, (float, np.floating)) else str(int(value))
