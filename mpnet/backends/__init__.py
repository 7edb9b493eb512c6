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

from mpnet.errors import ConfigError
from mpnet.export import Exported
from mpnet.messages import nearest
from mpnet.model.precision import USUAL_NAMES
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

    what:     for --help.
    target, flavour: the exported form that it runs.
    mode:     the quantisation options that match what it does, as an experiment file has them, such as
              {"activations": {"ranges": "calibrated", "mode": "affine"}}; only searches under them keep their order.
    packages: requirements such as `onnxruntime>=1.17`; extra: the extra of mpnet that brings them.
    load:     (exported, threads) -> model. Raises: EngineError, one line, when the program refuses the file.
    caution:  what the layers run in -> one line on what to know of this program on this CPU, else ''.
    runs:     the usual precisions that layers can really run in; others are widened when a file is loaded.
    """

    what: str
    target: str
    flavour: str
    load: Callable[[Exported, int], Model] = field(repr=False)
    mode: Mapping[str, Any] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    extra: str = ""
    caution: Callable[[Executed], str] = field(default=lambda executed: "", repr=False)
    runs: tuple[str, ...] = USUAL_NAMES


@dataclass(frozen=True)
class Reader:
    """A program that reads an exported form, and that mpnet does not start itself; fields as of `Backend`."""

    target: str
    flavour: str
    mode: Mapping[str, Any]
    runs: tuple[str, ...] = USUAL_NAMES


READERS = {"armnn": Reader("tflite", "armnn", {"activations": {"mode": "affine", "ranges": "calibrated"}})}


def backends() -> dict[str, Backend]:
    """Return all backends by name, with hyphens; their programs are imported when a model is opened."""
    return {name.replace("_", "-"): row for name, row in declared(__name__, __path__, "BACKEND", Backend).items()}


def backend(name: str) -> Backend:
    """Return the backend of a name. Raises: ConfigError listing the known ones."""
    known = backends()
    if name not in known:
        raise ConfigError(f"engine {name!r} is unknown; {nearest(name, known)}")
    return known[name]


def reader(name: str) -> Backend | Reader:
    """Return the backend, or else the other program, of a name. Raises: as `backend`."""
    return READERS.get(name) or backend(name)


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
