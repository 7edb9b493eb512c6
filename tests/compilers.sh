#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Builds the C core and mprun with other compilers, warnings as errors, and compares every ISA level that this CPU can run with scalar.
# Usage: tests/compilers.sh CC...; PYTHON names the interpreter (default: python3), which needs its standard library alone.
set -uo pipefail
cd "$(dirname "$0")/.."
status=0
for compiler in "$@"; do
    version=$("$compiler" --version 2>/dev/null | head -n 1) || { echo "$compiler: not here"; status=2; continue; }
    work=.cache/compilers/$compiler
    mkdir -p "$work"
    if ! "${PYTHON:-python3}" tests/core.py tests/kernels/levels.c "$work/levels" "$compiler" -- -Werror >"$work/log" 2>&1; then
        echo "$version: does not build; see $work/log"
        status=1
        continue
    fi
    if ! "$work/levels" >"$work/log" 2>&1; then
        echo "$version: differs; see $work/log"
        status=1
        continue
    fi
    echo "$version: $(tr '\n' ';' <"$work/log")"
done
exit "$status"
