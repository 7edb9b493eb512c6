#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs levels.c, and the tests of kernels, boxes and images, on a C core built with address and undefined-behaviour sanitizers.
# Usage: tests/kernels/sanitize.sh [CC...]; PYTHON names the interpreter (default: python3 of the environment).
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
case $python in */*) python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python") ;; esac
for compiler in "${@:-gcc}"; do
    command -v "$compiler" >/dev/null || { echo "sanitize: no $compiler here; install it or name another" >&2; exit 2; }
    work=.cache/sanitize-$(basename "$compiler")
    rm -rf "$work"
    mkdir -p "$work"
    cp -r mpnet tests cfg csrc "$work"
    rm -f "$work"/mpnet/kernels/_core*.so
    # Undefined behaviour ends the program; leaks are the interpreter's own.
    # Tiles in C: what AMX instructions read and write no sanitizer sees.
    flags="-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g -O1 -fPIC -DMP_EMULATED_TILES"
    # The sanitizer's library comes before the interpreter; clang has a shared one, but does not link to it unasked.
    case $compiler in
    *clang*) runtime=$("$compiler" -print-file-name="libclang_rt.asan-$(uname -m).so"); flags="$flags -shared-libasan" ;;
    *) runtime=$("$compiler" -print-file-name=libasan.so) ;;
    esac
    [ -e "$runtime" ] || { echo "sanitize: $compiler has no $runtime (Debian: libclang-rt-14-dev)" >&2; exit 2; }
    echo "sanitize: $compiler"
    # Widths of narrow weights take turns, as on emulated CPUs.
    # shellcheck disable=SC2086
    "$python" tests/core.py -DREPEATED=4 tests/kernels/levels.c "$work/levels" "$compiler" -- $flags
    LD_LIBRARY_PATH=$(dirname "$runtime") ASAN_OPTIONS=detect_leaks=0 "$work/levels"
    "$python" tests/core.py --extension "$work/mpnet/kernels" "$compiler" -- $flags
    # From a copy of the tree, for the current folder comes first where Python looks for packages. What the list of convolutions says
    # of kernels alone levels.c has said; some show what the package's calls hand them. OpenCL drivers, which are none of ours, end under the sanitizer.
    (cd "$work" && LD_PRELOAD=$runtime ASAN_OPTIONS=detect_leaks=0 OMP_NUM_THREADS=2 MPNET_CASES_EVERY=11 MPNET_TEST_GPU=0 \
        "$python" -m pytest -q -c /dev/null --rootdir=. -p no:cacheprovider tests/kernels tests/detection \
        --ignore tests/kernels/test_levels.py -k 'not int16w6 and not int16w5 and not int16w3') # which are unpacked as int6, int5 and int3 are
done
