#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# `make dist-arm`: the wheel for AArch64 by the cross build of docs/building.md, unpacked, imported and run under emulation.
# PYTHON: one with mpnet's build requirements and mpnet itself, whose results are compared.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
case $python in */*) python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python") ;; esac
export PYTHON=$python
cache=$PWD/.cache/arm
out=$PWD/build/dist
root=${ARMROOT:-$cache/root}
mkdir -p "$cache" "$out"
tests/arm/root.sh "$root"
rm -rf "$cache/build" "$cache/wheel" "$out"/mpnet-*aarch64.whl
CC=aarch64-linux-gnu-gcc LDSHARED="aarch64-linux-gnu-gcc -shared" \
    CFLAGS="-I$root/usr/include/python3.11 -I$root/usr/include" _PYTHON_HOST_PLATFORM=linux-aarch64 \
    "$python" setup.py -q build --build-base "$cache/build" bdist_wheel --dist-dir "$out" > "$cache/wheel.log" 2>&1 ||
    { tail -20 "$cache/wheel.log" >&2; exit 1; }
wheel=$(echo "$out"/mpnet-*-cp310-abi3-linux_aarch64.whl)
[ -f "$wheel" ] || { echo "dist-arm: one cp310-abi3-linux_aarch64 wheel was expected in $out" >&2; exit 1; }
"$python" -m zipfile -e "$wheel" "$cache/wheel"
rm -rf "$cache/tree" && mkdir -p "$cache/tree" && cp -r tests "$cache/tree/"
"$python" tests/arm/network.py > "$cache/expected.txt"
armpy=$PWD/tests/arm/armpy
export ARMROOT=$root ARMPATH=$cache/wheel:$cache/tree
for cpu in cortex-a57 max,sve=off; do
    (cd "$cache/tree" && QCPU=$cpu MPNET_CACHE_LIMIT=0 "$armpy" -m mpnet info) | grep -E '^(kernel tables|compiler)'
    (cd "$cache/tree" && QCPU=$cpu "$armpy" tests/arm/network.py) | cmp - "$cache/expected.txt"
done
ls -l "$wheel"
