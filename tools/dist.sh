#!/usr/bin/env bash
# `make dist`: sdist and wheel into build/dist. The wheel is installed into a clean environment, where the quick tests run against
# what was installed; the sdist into another, where pip compiles it: the same files, and the kernels' tests of what was compiled;
# then the wheel without its dependencies but those of boards (docs/building.md). Usage: dist.sh [PYTEST ARGUMENT...]
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/parts.sh
export python=${PYTHON:-python3} out=$PWD/build/dist work=$PWD/.cache/dist
rm -rf "$out" "$work"
mkdir -p "$out" "$work"
pip() { "$work/$1/bin/python" -m pip install -q --disable-pip-version-check "${@:2}"; }
environment() { "$python" -m venv "$work/$1"; }
# The package that an environment has, from where no other is found.
installed() { (cd "$work/$1" && bin/python -c 'import mpnet; print(*mpnet.__path__)'); }
tests() { (cd "$work/tree" && "$work/$1/bin/python" -m pytest --timeout 600 -n logical --maxprocesses 8 "${@:2}"); }

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
wheel() {
    environment wheel
    pip wheel "$(echo "$out"/*.whl)[test]"
    tests wheel -m 'not slow' --ignore tests/test_architecture.py --ignore tests/counts "$@"
}
sdist() {
    environment sdist
    pip sdist "$(echo "$out"/*.tar.gz)" pytest pytest-xdist pytest-timeout hypothesis
    diff -r -x '*.so' -x __pycache__ "$(installed wheel)" "$(installed sdist)"
    tests sdist tests/kernels tests/cli/test_demo.py
}
slim() {
    environment slim
    pip slim numpy cffi click PyYAML rich opencv-python-headless
    pip slim --no-deps "$out"/*.whl
    PATH=$work/slim/bin:$PATH tools/slim.sh "$work/slim-runs"
}

part "sdist and wheel" 900 build
part "the wheel: quick tests" 1800 wheel "$@"
part "the sdist: the wheel's files, and its own core" 900 sdist
part "the wheel without what only pages need" 300 slim
times
ls -l "$out"
