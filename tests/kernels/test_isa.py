# SPDX-License-Identifier: MIT
"""Choosing an ISA level."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mpnet.errors import KernelError
from mpnet.kernels import isa
from mpnet.kernels.core import constant


def run(code: str, level: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "MPNET_ISA": level}, capture_output=True, text=True, check=False
    )


def test_levels_are_listed_best_first_and_one_is_active() -> None:
    levels = isa.isa_levels()
    assert levels[-1].name == "scalar"
    assert levels[-1].usable
    assert [level.name for level in levels if level.active] == [isa.active_level()]
    assert isa.kernels("auto").name == next(level.name for level in levels if level.usable)


@pytest.mark.parametrize("level", isa.usable_levels())
def test_forced_level_is_the_active_one(level: str) -> None:
    process = run("from mpnet.kernels import isa; print(isa.kernels().name, isa.active_level())", level)
    assert process.stdout.split() == [level, level], process.stderr
    assert isa.kernels(level).name == level


def test_a_constant_that_the_compiled_core_lacks_asks_for_a_build() -> None:
    with pytest.raises(KernelError, match=r"_core.* has no MP_OF_TOMORROW: .*build it again"):
        constant("MP_OF_TOMORROW")


def test_unknown_level_names_the_known_ones() -> None:
    with pytest.raises(KernelError, match=r"unknown ISA level 'sse9'; this build has .*scalar"):
        isa.kernels("sse9")
    process = run("from mpnet.kernels import isa; isa.kernels()", "sse9")
    assert process.returncode != 0
    assert "MPNET_ISA: unknown ISA level 'sse9'" in process.stderr


def test_unusable_level_is_refused() -> None:
    unusable = [level.name for level in isa.isa_levels() if not level.usable]
    for name in unusable:
        with pytest.raises(KernelError, match=f"this CPU cannot run ISA level '{name}'; it can run"):
            isa.kernels(name)
    assert set(unusable) | set(isa.usable_levels()) == {level.name for level in isa.isa_levels()}
