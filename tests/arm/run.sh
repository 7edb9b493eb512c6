#!/usr/bin/env bash
# `make test-arm`: the kernel tests and a whole network through the real package on emulated arm64 CPUs, and what the kernels cost
# there in instructions (needs x86-64 Debian 12).
# Usage: run.sh [CPU...]     default: the six that stand for the supported boards. PYTHON: one with mpnet installed.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
export PYTHON=$python
missing=()
for tool in aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu qemu-aarch64-static:qemu-user-static qemu-aarch64:qemu-user \
    llvm-mca-19:llvm-19 mmdebstrap:mmdebstrap; do
    command -v "${tool%%:*}" >/dev/null || missing+=("${tool##*:}")
done
[ -e /usr/aarch64-linux-gnu/include/stdio.h ] || missing+=(libc6-dev-arm64-cross)
if [ ${#missing[@]} -gt 0 ]; then
    echo "test-arm: missing: ${missing[*]} (Debian: apt-get install --no-install-recommends ${missing[*]})" >&2
    exit 2
fi
cpus=("$@")
[ ${#cpus[@]} -gt 0 ] || cpus=(cortex-a57 cortex-a72 a64fx cortex-a76 neoverse-n1 max,sve=off)
cache=$PWD/.cache/arm
mkdir -p "$cache"
"$python" tests/arm/counts/gate.py "$cache/counts"
tests/arm/root.sh "$cache/root"
"$python" tests/arm/build.py "$cache/root" "$cache/out" >/dev/null
rm -rf "$cache/tree" && mkdir -p "$cache/tree" && cp -r tests "$cache/tree/"
export ARMROOT=$cache/root ARMPATH=$cache/out:$cache/tree
armpy=$PWD/tests/arm/armpy

aarch64-linux-gnu-gcc -O1 -static tests/arm/half_storage.c -o "$cache/half_storage"
"$python" tests/arm/network.py > "$cache/expected.txt"
echo "whole network on this machine:"; cat "$cache/expected.txt"
for cpu in "${cpus[@]}"; do
    printf '%-14s' "$cpu"
    [ "$(qemu-aarch64-static -cpu "$cpu" "$cache/half_storage")" = "2.240234 1.360352 1.800781" ] ||
        { echo "__fp16 program prints something else" >&2; exit 1; }
    (cd "$cache/tree" && QCPU=$cpu "$armpy" tests/arm/network.py > "$cache/$cpu.txt" 2> "$cache/$cpu.err") ||
        { cat "$cache/$cpu.err" >&2; exit 1; }
    cmp "$cache/expected.txt" "$cache/$cpu.txt"
    cat "$cache/$cpu.err"
done
# Every level against the scalar one. These two CPUs cover all levels; the others run the same code.
for cpu in cortex-a57 max,sve=off; do
    case " ${cpus[*]} " in *" $cpu "*) ;; *) continue ;; esac
    echo "kernel tests on $cpu:"
    (cd "$cache/tree" && QCPU=$cpu "$armpy" -m pytest -q -x -p no:cacheprovider -c /dev/null --rootdir=. tests/kernels/test_conv.py \
        tests/kernels/test_elementwise.py)
done
