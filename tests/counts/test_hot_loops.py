# SPDX-License-Identifier: MIT
"""A gate that needs no hardware: every table's hot loops, as gcc and clang compile them, cost what limits.py says."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
from functools import cache
from pathlib import Path
from typing import Callable

import pytest

from tests.core import core
from tests.counts.limits import HOT_LOOPS, TOLERANCE, HotLoop
from tests.counts.loops import ARM, X86, Isa, Loop, hottest, innermost_loops, modelled_cycles

pytestmark = pytest.mark.slow  # every table, compiled by every compiler

MCA = os.environ.get("LLVM_MCA", "llvm-mca-19")
COMPILERS = ("gcc", "clang")
Loops = Callable[[HotLoop, str], list[Loop]]


def _isa(loop: HotLoop) -> Isa:
    return X86 if loop.source.startswith("x86") else ARM


def _reason_to_skip(loop: HotLoop, family: str) -> str | None:
    """Return why this loop cannot be compiled and read here."""
    if _isa(loop) is X86 and platform.machine() not in ("x86_64", "AMD64"):
        return "x86 tables are compiled on x86-64 only"
    if _isa(loop) is ARM and platform.machine() != "aarch64" and "MPNET_ARM" not in os.environ:
        return "make test-arm runs it"
    if _compiler(loop, family) is None:
        return f"SKIPPED WITHOUT A COMPILER: no {family} for {loop.source}"
    return None if shutil.which(_isa(loop).objdump) else f"SKIPPED WITHOUT {_isa(loop).objdump}"


def _compiler(loop: HotLoop, family: str) -> list[str] | None:
    cross = _isa(loop) is ARM and platform.machine() != "aarch64"
    names = ["aarch64-linux-gnu-gcc" if cross else "gcc"]
    if family == "clang":
        names = ["clang", *(f"clang-{version}" for version in range(20, 13, -1))]
    compiler = next((name for name in names if shutil.which(name)), None)
    if compiler is None:
        return None
    return [compiler, "--target=aarch64-linux-gnu"] if cross and family == "clang" else [compiler]


def _object(loop: HotLoop) -> str:
    return f"objects/arch/{Path(loop.source).stem}.o"


@pytest.fixture(scope="module")
def loops(request: pytest.FixtureRequest) -> Loops:
    """Return the hot loops of a table as a compiler makes them. What the chosen tests ask of one compiler is compiled side by
    side."""
    requested: dict[str, tuple[list[str], set[str]]] = {}
    for test in request.session.items:
        if isinstance(test, pytest.Function) and test.module is request.module:
            loop, family = test.callspec.params["loop"], test.callspec.params["family"]
            compiler = _compiler(loop, family)
            if compiler and _reason_to_skip(loop, family) is None:
                requested.setdefault(shlex.join(compiler), (compiler, set()))[1].add(_object(loop))

    @cache
    def folder(name: str) -> Path:
        compiler, objects = requested[name]
        return core(compiler, [], *sorted(objects))

    def loops_of(loop: HotLoop, family: str) -> list[Loop]:
        reason = _reason_to_skip(loop, family)
        if reason:
            pytest.skip(reason)
        object_file = folder(shlex.join(_compiler(loop, family) or [])) / _object(loop)
        return hottest(innermost_loops(_isa(loop), object_file), loop.function, loop.multiply, loop.multiplies)

    return loops_of


@pytest.mark.parametrize("family", COMPILERS)
@pytest.mark.parametrize("loop", HOT_LOOPS, ids=str)
def test_hot_loops_execute_no_more_than_their_limit_and_waste_nothing(loops: Loops, loop: HotLoop, family: str) -> None:
    for compiled in loops(loop, family):
        wasted = {kind: 0 if loop.stores else compiled.count(pattern) for kind, pattern in _isa(loop).waste.items()}
        assert wasted == dict.fromkeys(wasted, 0), "\n".join(compiled.instructions)
        assert len(compiled.instructions) <= loop.instructions * TOLERANCE, "\n".join(compiled.instructions)
        assert loop.stacked is None or compiled.stacked <= loop.stacked


@pytest.mark.parametrize("family", COMPILERS)
@pytest.mark.parametrize("loop", HOT_LOOPS, ids=str)
def test_modelled_cycles_of_hot_loops(loops: Loops, loop: HotLoop, family: str) -> None:
    if shutil.which(MCA) is None:
        pytest.skip(f"SKIPPED WITHOUT {MCA} (Debian: llvm-19; LLVM_MCA names another)")
    variants = {compiled.instructions: compiled for compiled in loops(loop, family)}
    cycles = {
        core: max(modelled_cycles(MCA, _isa(loop), core, compiled) for compiled in variants.values()) for core in loop.cycles
    }
    excess = {core: value for core, value in cycles.items() if value > loop.cycles[core] * TOLERANCE}
    assert not excess, f"at most {loop.cycles}"
