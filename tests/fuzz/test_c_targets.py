# SPDX-License-Identifier: MIT
"""The C entries that take what users give them, over the fuzzers' seeds, what fuzzing has found, and changed files."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.fuzz.build import FOLDER, SANITIZED, TARGETS, build, can_build, inputs_of
from tests.fuzz.run import SANITIZER, workspace

COMPILERS = ("clang", "gcc")
"""The first that can is taken. Of both the core passes its own tests with sanitizers (tests/kernels/sanitize.sh)."""
RUNS = 3_000
ENVIRONMENT = {**os.environ, **SANITIZER, "LSAN_OPTIONS": "report_objects=1"}


def run_program(program: Path, *words: object, folder: Path) -> str:
    """Return what a program says that ends well.

    libFuzzer looks at the most memory that its process ever had, which begins with this one's; a shell's child begins anew.
    """
    command = ["sh", "-c", '"$@"; exit $?', "sh", str(program), *map(str, words)]
    process = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, cwd=folder, check=False)
    assert process.returncode == 0, process.stderr[-2000:]
    return process.stderr


# The others are built with all kernels, which take a minute to compile.
targets = pytest.mark.parametrize("target", [pytest.param(t, marks=[pytest.mark.slow] * (t != "jpeg")) for t in TARGETS])


@targets
def test_seeds_and_findings_are_replayed(target: str, tmp_path: Path) -> None:
    compiler = next((name for name in COMPILERS if can_build(name, "replayed")), None)
    if compiler is None:
        pytest.skip("SKIPPED: no compiler with address and undefined-behaviour sanitizers")
    build(target, tmp_path / target, "replayed", compiler)
    errors = run_program(tmp_path / target, *inputs_of(target), folder=workspace(tmp_path / "work"))
    assert errors.count("\n") == len(inputs_of(target)) > 0


def test_a_compiler_that_lacks_something_is_said_before_anything_is_compiled(tmp_path: Path) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho >&2 no sanitizer here\nexit 1\n")
    compiler.chmod(0o755)
    with pytest.raises(RuntimeError, match=r"cannot build the kind 'hunting'.*\n.*no sanitizer here"):
        build("bundle", tmp_path / "bundle", "hunting", str(compiler))
    with pytest.raises(RuntimeError, match="No such file"):
        build("bundle", tmp_path / "bundle", "hunting", str(tmp_path / "none"))


def test_changes_of_the_largest_words_are_defined(tmp_path: Path) -> None:
    """What changes files dies of nothing itself, whatever it is given."""
    if not can_build("gcc", "replayed"):
        pytest.skip("SKIPPED: no gcc with address and undefined-behaviour sanitizers")
    (tmp_path / "target.c").write_text(
        "#include <stddef.h>\n#include <stdint.h>\n"
        "int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { return size && data[0] > 256; }\n"
    )
    (tmp_path / "largest").write_bytes(b"\xff\xff\xff\x7f" * 64)
    (tmp_path / "smallest").write_bytes(b"\x00\x00\x00\x80" * 64)
    sources = (tmp_path / "target.c", FOLDER / "replay.c")
    subprocess.run(["gcc", *SANITIZED, "-std=gnu11", *map(str, sources), "-o", str(tmp_path / "replay")], check=True)
    said = run_program(tmp_path / "replay", "-m", RUNS, 1, tmp_path / "largest", tmp_path / "smallest", folder=tmp_path)
    assert said.startswith(f"{RUNS} changed files")


@targets
def test_changed_files_with_guard_pages_and_all_tables(target: str, tmp_path: Path) -> None:
    """In the objects that users have; of bundles all tables give the same bits."""
    if not (shutil.which("make") and shutil.which("gcc")):
        pytest.skip("SKIPPED: mprun is built by make and gcc, and one is missing")
    build(target, tmp_path / target, "guarded")
    folder = workspace(tmp_path / "work")
    run_program(tmp_path / target, *inputs_of(target), folder=folder)
    assert f"{RUNS} changed files" in run_program(tmp_path / target, "-m", RUNS, 1, *inputs_of(target), folder=folder)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_a_short_hunt_finds_nothing(target: str, tmp_path: Path) -> None:
    if not can_build("clang", "scalar"):
        pytest.skip("SKIPPED: no clang with libFuzzer (Debian: clang and libclang-rt-dev)")
    build(target, tmp_path / target, "scalar")
    options = (f"-runs={RUNS}", "-seed=1", "-max_len=10240", "-rss_limit_mb=512", "-timeout=10")
    (tmp_path / "found").mkdir()
    seeds = sorted({path.parent for path in inputs_of(target)})
    run_program(tmp_path / target, *options, tmp_path / "found", *seeds, folder=workspace(tmp_path / "work"))
