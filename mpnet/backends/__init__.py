# SPDX-License-Identifier: MIT
"""Programs other than mpnet's engine that run what was exported: one module per backend, found by its name.

A new backend is a file here that declares `BACKEND`, and its tests. Its module must not import the program's package:
`load` does, when a model is opened.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Callable, Collection, Mapping, Protocol

import numpy as np
from numpy.typing import NDArray

from mpnet.config.target_file import TargetFile
from mpnet.errors import ConfigError
from mpnet.export import Exported
from mpnet.messages import nearest
from mpnet.packages import declared, require

Executed = Mapping[int, tuple[str, str]]
"""By layer index: the precision that really runs ('fp32', 'fp16', 'int8'), and where that was read, or why it fell back."""


class Model(Protocol):
    """An exported configuration, loaded. Not for use by several threads at once.

    version: of the program that runs it.
    """

    version: str

    def forward(self, batch: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        """Return the tensors that enter the heads, (n, h, w, c) float32 each, from (n, height, width, channels) float32.

        As `Session.forward`; the arrays are the caller's. Raises: EngineError when the program fails.
        """
        ...

    def executed(self) -> Executed | None:
        """Return what the program runs each layer in; None when it cannot be asked."""
        ...

    def layer_ms(self) -> Mapping[int, float] | None:
        """Return the milliseconds by layer index of passes with one image; None when it cannot be asked."""
        ...


@dataclass(frozen=True)
class Backend:
    """A program that runs an exported configuration.

    file:     its target file: what it is, the exported form that it runs, the quantisation options that match what it does,
              and the precisions that layers can really run in; others are widened when a file is loaded.
    packages: requirements such as `onnxruntime>=1.17`; extra: the extra of mpnet that brings them.
    load:     (exported, threads) -> model. Raises: EngineError, one line, when the program refuses the file.
    caution:  what the layers run in -> one line on what to know of this program on this CPU, else ''.
    """

    file: TargetFile
    load: Callable[[Exported, int], Model] = field(repr=False)
    packages: tuple[str, ...] = ()
    extra: str = ""
    caution: Callable[[Executed], str] = field(default=lambda executed: "", repr=False)

    @property
    def what(self) -> str:
        """Return what it is, for --help."""
        return self.file.what

    @property
    def target(self) -> str:
        """Return the export target that it runs."""
        return self.file.export_target

    @property
    def flavour(self) -> str:
        """Return the flavour of that target, '' where it has none."""
        return self.file.flavour

    @property
    def mode(self) -> Mapping[str, Any]:
        """Return the quantisation options that match what it does, such as {"activations": {"ranges": "calibrated"}}."""
        return self.file.quantization.plain_values()


def backends() -> dict[str, Backend]:
    """Return all backends by name, with hyphens; their programs are imported when a model is opened."""
    return {name.replace("_", "-"): row for name, row in declared(__name__, __path__, "BACKEND", Backend).items()}


def backend(name: str) -> Backend:
    """Return the backend of a name. Raises: ConfigError listing the known ones."""
    known = backends()
    if name not in known:
        raise ConfigError(f"engine {name!r} is unknown; {nearest(name, known)}")
    return known[name]


def runner_of(target: str, flavour: str) -> str | None:
    """Return the backend that runs a target in a flavour; None when there is none."""
    return next((name for name, known in backends().items() if (known.target, known.flavour) == (target, flavour)), None)


def flavour_here(target: str, flavours: Collection[str]) -> tuple[str, str]:
    """Return the first of a target's flavours that a program of this machine runs, else the first of all; and why, for people.

    ('', '') for a target without flavours.
    """
    for flavour in flavours:
        runner = runner_of(target, flavour)
        with suppress(ConfigError):
            if runner is not None:
                require(runner, backend(runner).packages, backend(runner).extra)
                return flavour, f"{backend(runner).what} is installed here"
    return next(iter(flavours), ""), "the first; no program that runs one of them is installed here" if flavours else ""
