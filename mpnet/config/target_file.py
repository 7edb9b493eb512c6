# SPDX-License-Identifier: MIT
"""A target file: what runs a choice of precisions, a program or a family of chips by its compiler. Frozen, no I/O.

Each field says what its key may hold; `formats.documents.target_file` reads the files, those of the package and a user's own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mpnet.model.keys import section, selectors, text, word
from mpnet.model.layers import ACTIVATIONS, LAYER_KINDS
from mpnet.model.precision import FP32, PRECISIONS
from mpnet.model.quantization import NO_OPTIONS, QuantizationOptions

KINDS: tuple[str, ...] = tuple(kind.kind for kind in LAYER_KINDS)
GROUPS: tuple[str, ...] = ("depthwise", "grouped", "strided", "first", "last", "heads")
"""Groups of layers that `layers` may limit, beside kinds."""
TENSOR = "tensor"


@dataclass(frozen=True)
class TargetFile:
    """What runs a choice.

    what:          for people, one line.
    precisions:    what layers with weights can really run in, highest first.
    export:        the form of `mpnet export` that carries the choice there, such as `onnx/openvino`, '' for none.
    quantization:  how it makes codes, as an experiment file says it; only searches under these keep their order there.
    layers:        (kind or group of layers, precisions) pairs: layers that have fewer, later pairs win.
    one_precision: what has one precision: TENSOR, where that belongs to a tensor, so that all layers that read it share one;
                   kinds of layers that give their result in the precision of what they read, so that this goes through them.
    on_cpu:        kinds of layers and activations that the CPU runs beside the chip. Layers with weights of them are in fp32.
    notes:         what to know, one line each.
    read:          the day on which `sources` were read, such as 2026-11-28; sources: addresses of what this file says.
    name:          as it was named.
    """

    what: str = field(metadata=text())
    precisions: tuple[str, ...] = field(metadata=word(tuple(PRECISIONS), many=True))
    export: str = field(default="", metadata=text())
    quantization: QuantizationOptions = field(default=NO_OPTIONS, metadata=section(QuantizationOptions))
    layers: tuple[tuple[str, tuple[str, ...]], ...] = field(default=(), metadata=selectors(word(tuple(PRECISIONS), many=True)))
    one_precision: tuple[str, ...] = field(default=(), metadata=word((TENSOR, *KINDS), many=True))
    on_cpu: tuple[str, ...] = field(default=(), metadata=word((*KINDS, *ACTIVATIONS), many=True))
    notes: tuple[str, ...] = field(default=(), metadata=text(many=True))
    read: str = field(default="", metadata=text())
    sources: tuple[str, ...] = field(default=(), metadata=text(many=True))
    name: str = ""

    @property
    def export_target(self) -> str:
        """Return the name of the export target, '' where there is none."""
        return self.export.partition("/")[0]

    @property
    def flavour(self) -> str:
        """Return the export target's flavour, '' where it has none."""
        return self.export.partition("/")[2]

    @property
    def is_own(self) -> bool:
        """Return whether mpnet's own arithmetic runs there, in every precision."""
        return self.export_target == "bundle"

    @property
    def cpu_precisions(self) -> tuple[str, ...]:
        """Return the precisions of layers with weights that the CPU runs beside the chip."""
        return (FP32.name,)
