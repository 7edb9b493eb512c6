#!/usr/bin/env bash
# `make test-arm`: the kernel tests and a whole network through the real package on emulated arm64 CPUs, and what the kernels cost
# there in instructions (needs x86-64 Debian 12). Says which parts ran, and for how long.
# Usage: run.sh [CPU...]     default: the six that stand for the supported boards. PYTHON: one with mpnet and pytest installed.
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
cpus=("$@")
[ ${#cpus[@]} -gt 0 ] || cpus=(cortex-a57 cortex-a72 a64fx cortex-a76 neoverse-n1 max,sve=off)
cache=$PWD/.cache/arm
mkdir -p "$cache"
ran=()
# Runs a part, and remembers it with its seconds for the last lines.
part() {
    local name=$1 begin=$SECONDS
    shift
    echo "test-arm: $name"
    "$@" || { echo "test-arm: failed: $name" >&2; exit 1; }
    ran+=("$(printf '%5d s  %s' $((SECONDS - begin)) "$name")")
}

build() {
    "$python" tests/arm/build.py "$cache/root" "$cache/out" >/dev/null
    rm -rf "$cache/tree" && mkdir -p "$cache/tree" && cp -r tests "$cache/tree/"
    aarch64-linux-gnu-gcc -O1 -static tests/arm/half_storage.c -o "$cache/half_storage"
    "$python" tests/arm/network.py > "$cache/expected.txt"
    cat "$cache/expected.txt"
}

network() {
    [ "$(qemu-aarch64-static -cpu "$1" "$cache/half_storage")" = "2.240234 1.360352 1.800781" ] ||
        { echo "__fp16 program prints something else" >&2; return 1; }
    (cd "$cache/tree" && QCPU=$1 "$armpy" tests/arm/network.py > "$cache/$1.txt" 2> "$cache/$1.err") ||
        { cat "$cache/$1.err" >&2; return 1; }
    cmp "$cache/expected.txt" "$cache/$1.txt" && cat "$cache/$1.err"
}

# Nothing above the tree may be listed: there the emulator shows the arm64 root's folders (its /tmp is empty).
kernel_tests() {
    (cd "$cache/tree" && QCPU=$1 "$armpy" -m pytest -q -x -p no:cacheprovider -c /dev/null --rootdir=. --confcutdir=. \
        tests/kernels/test_conv.py tests/kernels/test_elementwise.py)
}

# mprun, static: what sessions of this machine expect of random configurations, with weights packed here for the board.
bundles() {
    make -s mprun-arm
    aarch64-linux-gnu-gcc -static -Icsrc/run tests/mprun/heads.c build/mprun-arm/libmprun.a -lm -pthread -o "$cache/heads"
    rm -rf "$cache/bundles" && mkdir -p "$cache/bundles"
    PYTHONPATH=$PWD "$python" -m tests.mprun.cases "$cache/bundles" 30 neon neon_i8mm
    size=$(stat -c %s build/mprun-arm/mprun)
    [ "$size" -le 1500000 ] || { echo "mprun has $size bytes; 1,500,000 are the limit" >&2; return 1; }
}
mprun() {
    qemu-aarch64-static -cpu "$1" "$cache/heads" auto 1 "$cache/bundles/list.txt" &&
        PYTHONPATH=$PWD "$python" -m tests.mprun.cases compare "$cache/bundles"
}

part "hot loops as compiled, and modelled cycles" "$python" -m pytest tests/counts -k neon
part "executed instructions, emulated" "$python" tests/counts/executed.py "$cache/counts"
part "mprun built; bundles of random configurations" bundles
for cpu in cortex-a57 max,sve=off; do
    case " ${cpus[*]} " in *" $cpu "*) part "mprun on $cpu" mprun "$cpu" ;; esac
done
part "docs/board.md, command by command" env MPNET_ARM=1 "$python" -m pytest -q tests/mprun/test_board.py
part "arm64 root (kept in .cache/arm)" tests/arm/root.sh "$cache/root"
export ARMROOT=$cache/root ARMPATH=$cache/out:$cache/tree
armpy=$PWD/tests/arm/armpy
part "cross build; the whole network on this machine" build
for cpu in "${cpus[@]}"; do
    part "whole network on $cpu" network "$cpu"
done
# Every level against the scalar one. These two CPUs cover all levels; the others run the same code.
for cpu in cortex-a57 max,sve=off; do
    case " ${cpus[*]} " in *" $cpu "*) part "kernel tests on $cpu" kernel_tests "$cpu" ;; esac
done
echo "test-arm: passed on ${cpus[*]}"
printf '%s\n' "${ran[@]}"
printf '%5d s  in all\n' $SECONDS
