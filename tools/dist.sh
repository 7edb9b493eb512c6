#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# `make dist`: sdist and wheel into build/dist. Each is installed into a clean environment (pip compiles the sdist's core), where the
# quick tests run against what was installed; both must have installed the same files. Then the wheel without its dependencies but
# those of boards (docs/building.md), and the wheel for AArch64 where there is what that needs. Usage: dist.sh [PYTEST ARGUMENT...]
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/parts.sh
export python=${PYTHON:-python3} out=$PWD/build/dist work=$PWD/.cache/dist
# What the oracle gives does not hang on who installed the package.
export MPNET_ORACLE=$work/oracle
rm -rf "$out" "$work"
mkdir -p "$out" "$work"
pip() { "$work/$1/bin/python" -m pip install -q --disable-pip-version-check "${@:2}"; }
environment() { "$python" -m venv "$work/$1"; }
# The package that an environment has, from where no other is found.
installed() { (cd "$work/$1" && bin/python -c 'import mpnet; print(*mpnet.__path__)'); }
# Installs a file ($2) into a new environment ($1) and runs the quick tests there, but those that look at sources and compilers.
tried() {
    environment "$1"
    pip "$1" "$2[test]"
    (cd "$work/tree" && "$work/$1/bin/python" -m pytest --timeout 600 -n logical --maxprocesses 8 -m 'not slow' \
        --ignore tests/test_architecture.py --ignore tests/counts "${@:3}")
}

build() {
    environment builder
    pip builder build
    "$work/builder/bin/python" -m build --outdir "$out" . >"$work/build.log" 2>&1 || { tail -20 "$work/build.log" >&2; return 1; }
    [ "$(ls "$out"/*)" = "$(ls "$out"/mpnet-*-cp310-abi3-*.whl "$out"/mpnet-*.tar.gz)" ] ||
        { echo "dist: one sdist and one cp310-abi3 wheel were expected in $out" >&2; return 1; }
    # What tests need of the sources: all but the package itself, which is the installed one.
    mkdir "$work/tree"
    tar xzf "$out"/mpnet-*.tar.gz -C "$work/tree" --strip-components=1
    rm -rf "$work/tree/mpnet" "$work/tree/mpnet.egg-info"
}
wheel() { tried wheel "$(echo "$out"/*.whl)" "$@"; }
sdist() {
    tried sdist "$(echo "$out"/*.tar.gz)" "$@"
    diff -r -x '*.so' -x __pycache__ "$(installed wheel)" "$(installed sdist)"
}
slim() {
    environment slim
    pip slim numpy cffi click PyYAML rich opencv-python-headless
    pip slim --no-deps "$out"/*-cp310-abi3-*.whl
    PATH=$work/slim/bin:$PATH tools/slim.sh "$work/slim-runs"
}
arm() {
    pip wheel 'setuptools>=77' wheel
    PYTHON=$work/wheel/bin/python tests/arm/wheel.sh
}

part "sdist and wheel" 900 build
part "the wheel: quick tests" 1800 wheel "$@"
part "the sdist: quick tests of what pip compiles from it" 2400 sdist "$@"
part "the wheel without what only pages need" 300 slim
missing=
for tool in aarch64-linux-gnu-gcc mmdebstrap qemu-aarch64-static; do command -v $tool >/dev/null || missing="$missing $tool"; done
if [ -n "$missing" ]; then
    echo "dist: SKIPPED: the wheel for AArch64: no$missing" >&2
else
    part "the wheel for AArch64, on emulated CPUs" 900 arm
fi
times
ls -l "$out"
