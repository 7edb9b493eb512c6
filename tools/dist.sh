#!/usr/bin/env bash
# `make dist`: sdist and wheel into build/dist, each installed into a clean environment, where the quick tests run against what was
# installed; then the wheel without its dependencies but those of boards (docs/building.md). Usage: dist.sh [PYTEST ARGUMENT...]
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
out=$PWD/build/dist
work=$PWD/.cache/dist
rm -rf "$out" "$work"
mkdir -p "$out" "$work"
pip() { "$1/bin/python" -m pip install -q --disable-pip-version-check "${@:2}"; }

# Makes an environment of that name and prints its folder.
environment() {
    "$python" -m venv "$work/$1" >&2
    echo "$work/$1"
}

builder=$(environment builder)
pip "$builder" build
"$builder/bin/python" -m build --outdir "$out" . > "$work/build.log" 2>&1 || { tail -20 "$work/build.log" >&2; exit 1; }
sdist=$(echo "$out"/mpnet-*.tar.gz) wheel=$(echo "$out"/mpnet-*-cp310-abi3-*.whl)
[ -f "$sdist" ] && [ -f "$wheel" ] || { echo "dist: one sdist and one cp310-abi3 wheel were expected in $out" >&2; exit 1; }
# What tests need of the sources: all but the package itself, which is the installed one.
mkdir "$work/tree"
tar xzf "$sdist" -C "$work/tree" --strip-components=1
rm -rf "$work/tree/mpnet" "$work/tree/mpnet.egg-info"
for made in "$wheel" "$sdist"; do
    echo "dist: quick tests with $(basename "$made")"
    clean=$(environment "$(basename "$made")")
    pip "$clean" "$made[test]"
    (cd "$work/tree" && "$clean/bin/python" -m pytest -n logical --maxprocesses 8 -m 'not slow' --ignore tests/test_architecture.py \
        --ignore tests/counts "$@")
done
echo "dist: the wheel without what only pages need"
slim=$(environment slim)
pip "$slim" --no-deps "$wheel"
pip "$slim" numpy cffi click PyYAML rich opencv-python-headless
PATH=$slim/bin:$PATH tools/slim.sh "$work/slim-runs"
ls -l "$out"
