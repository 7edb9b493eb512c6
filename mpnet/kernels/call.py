# SPDX-License-Identifier: MIT
"""One call of a kernel with all arguments ready."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Callable

import numpy as np
from numpy.typing import NDArray

from mpnet.arrays import Array


@dataclass(eq=False)
class Call:
    """function(*arguments) returns an mp_status, or None from Python.

    input_index:   position of the input among the arguments; None: the call never reads another one.
    keep:          what must stay alive beside the arguments.
    scratch_bytes: scratch memory that it needs.
    scaled_mode:   of a call that finds scales of ranges: the mode, which cannot scale every range; else ''.
    """

    function: Callable[..., int | None]
    arguments: tuple[object, ...]
    input_index: int | None = None
    keep: tuple[object, ...] = field(default=(), repr=False)
    scratch_bytes: int = 0
    scaled_mode: str = ""

    def set_input(self, x: Array) -> None:
        """Let the next call read another array of the same type and shape, which the caller keeps alive."""
        if self.input_index is not None:
            arguments = list(self.arguments)
            arguments[self.input_index] = self._as_argument(x)
            self.arguments = tuple(arguments)

    def with_fixed_input(self) -> Call:
        """Return this call, which never reads another input from now on."""
        self.input_index = None
        return self

    def use_scratch(self, memory: NDArray[np.uint8]) -> None:
        """Let it use this memory, of at least scratch_bytes and aligned to 64, for intermediate values."""

    def _as_argument(self, x: Array) -> object:
        """Return what stands for the input among the arguments: the array, or its address."""
        return x
