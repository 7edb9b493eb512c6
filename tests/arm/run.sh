#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# `make test-arm`: every kernel in C, some kernel tests and a whole network through the real package on emulated arm64 CPUs, and what
# the kernels cost there in instructions (needs x86-64 Debian 12). Says which parts ran, and for how long.
# Usage: run.sh [CPU...]     default: the six that stand for the supported boards. PYTHON: one with mpnet and pytest installed.
# a64fx stands for CPUs with fp16 and without dot products; its SVE, which mpnet does not use and glibc does, takes minutes to emulate.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
case $python in */*) python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python") ;; esac
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
. tests/parts.sh
cpus=("$@")
[ ${#cpus[@]} -gt 0 ] || cpus=(cortex-a57 cortex-a72 a64fx,sve=off cortex-a76 neoverse-n1 max,sve=off)
export cache=$PWD/.cache/arm repository=$PWD PYTHONPATH=$PWD
export MPNET_ORACLE=${MPNET_ORACLE:-$PWD/.cache/oracle}
export ARMROOT=$cache/root ARMPATH=$cache/out:$cache/tree armpy=$PWD/tests/arm/armpy
mkdir -p "$cache"
kernel_files="tests/kernels/test_conv.py tests/kernels/test_elementwise.py"
export kernel_files

# The core, compiled once: mprun, the package's library, instruction counts and hot loops are all about the same objects.
core() {
    make -s -j"$(nproc)" mprun-arm CFLAGS=-Werror
    local size
    size=$(stat -c %s build/mprun-arm/mprun)
    [ "$size" -le 1600000 ] || { echo "mprun has $size bytes; 1,600,000 are the limit" >&2; return 1; }
    aarch64-linux-gnu-gcc -static -Icsrc/mprun tests/mprun/heads.c build/mprun-arm/libmprun.a -lm -pthread -o "$cache/heads"
    "$PYTHON" tests/core.py tests/kernels/levels.c "$cache/levels" aarch64-linux-gnu-gcc
    aarch64-linux-gnu-gcc -O1 -static tests/arm/half_storage.c -o "$cache/half_storage"
}
here() {
    "$PYTHON" tests/arm/network.py | tee "$cache/expected.txt"
    "$PYTHON" -m pytest -q $kernel_files
    "$PYTHON" tests/core.py tests/kernels/levels.c "$cache/levels-here"
    "$cache/levels-here" --digest --level=scalar | grep '^digest ' | LC_ALL=C sort -u >"$cache/digests.txt"
}
package() {
    "$PYTHON" tests/arm/build.py "$cache/root" "$cache/out"
    rm -rf "$cache/tree"
    mkdir "$cache/tree"
    cp -r tests "$cache/tree/"
}
network() {
    [ "$(qemu-aarch64-static -cpu "$1" "$cache/half_storage")" = "2.240234 1.360352 1.800781" ] ||
        { echo "__fp16 program prints something else" >&2; return 1; }
    cd "$cache/tree"
    QCPU=$1 "$armpy" tests/arm/network.py >"$cache/$1.txt"
    cmp "$cache/expected.txt" "$cache/$1.txt"
}
# All kernels that this CPU would take against its scalar ones, which give what they give on this machine, where the oracle says what
# that must be. LEVEL: of a CPU whose lesser levels another one compares.
levels() {
    local status=0
    qemu-aarch64-static -cpu "$1" "$cache/levels" --digest ${2:+--level="$2"} >"$cache/levels-$1.txt" || status=$?
    grep -v '^digest ' "$cache/levels-$1.txt"
    [ $status = 0 ] || return 1
    grep '^digest ' "$cache/levels-$1.txt" | LC_ALL=C sort -u | LC_ALL=C comm -23 - "$cache/digests.txt" >"$cache/differ-$1.txt"
    [ ! -s "$cache/differ-$1.txt" ] || { echo "scalar kernels give something else than on this machine:"; head "$cache/differ-$1.txt"; return 1; }
}
# Nothing above the tree may be listed: there the emulator shows the arm64 root's folders (its /tmp is empty).
kernel_tests() {
    cd "$cache/tree"
    # One width of narrow weights beside each kind of codes, and some of the cases that `levels` has likewise: the package's calls.
    QCPU=$1 MPNET_CASES_EVERY=23 "$armpy" -m pytest -q -x -p no:cacheprovider -c /dev/null --rootdir=. --confcutdir=. $kernel_files \
        -k 'not int16w6 and not int16w5 and not int16w3 and not int6 and not int5 and not int3 and not 2100-1-1-4-9'
}
# mprun, static: what sessions of this machine expect of random configurations, with weights packed here for the board.
bundles() {
    rm -rf "$cache/bundles"
    mkdir "$cache/bundles"
    "$PYTHON" -m tests.mprun.cases "$cache/bundles" 30 neon neon_i8mm
    local cpu
    for cpu; do
        qemu-aarch64-static -cpu "$cpu" "$cache/heads" auto 1 "$cache/bundles/list.txt"
        "$PYTHON" -m tests.mprun.cases compare "$cache/bundles"
    done
}
# Of these two, which between them have all levels: mprun, and every level against the scalar one. The others run the same code.
both=()
for cpu in cortex-a57 max,sve=off; do
    case " ${cpus[*]} " in *" $cpu "*) both+=("$cpu") ;; esac
done

start "the core, compiled once" 600 core
start "arm64 root (kept in .cache/arm)" 600 tests/arm/root.sh "$cache/root"
start "the same networks and kernels on this machine" 600 here
finish
start "the package on the root" 120 package
finish
for cpu in "${cpus[@]}"; do
    case $cpu in
    max*)
        start "kernel tests on $cpu" 900 kernel_tests "$cpu"
        start "kernels on $cpu" 900 levels "$cpu"
        ;;
    cortex-a57) start "kernels on $cpu" 600 levels "$cpu" neon ;;
    a64fx*) start "kernels on $cpu" 600 levels "$cpu" neon_fp16 ;;
    cortex-a76) start "kernels on $cpu" 600 levels "$cpu" neon_dotprod ;;
    esac
done
start "docs/board.md, command by command" 900 env MPNET_ARM=1 "$PYTHON" -m pytest -q tests/mprun/test_board.py
start "mprun: random configurations on ${both[*]}" 600 bundles "${both[@]}"
for cpu in "${cpus[@]}"; do start "whole network on $cpu" 600 network "$cpu"; done
start "hot loops as compiled, and modelled cycles" 600 env MPNET_ARM=1 "$PYTHON" -m pytest -q tests/counts -k neon
start "executed instructions, emulated" 600 "$PYTHON" tests/counts/executed.py "$cache/counts"
finish
echo "test-arm: passed on ${cpus[*]}"
times
printf '%5d s  in all\n' $SECONDS
