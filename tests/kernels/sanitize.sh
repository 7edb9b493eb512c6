#!/usr/bin/env bash
# Runs the kernel tests on a C core built with address and undefined-behaviour sanitizers, by gcc and by clang.
# Usage: tests/kernels/sanitize.sh [CC...]; PYTHON names the interpreter (default: python3 of the environment).
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
for compiler in "${@:-gcc}"; do
    command -v "$compiler" >/dev/null || { echo "sanitize: no $compiler here; install it or name another" >&2; exit 2; }
    work=.cache/sanitize-$(basename "$compiler")
    rm -rf "$work"
    mkdir -p "$work"
    cp -r mpnet "$work/mpnet"
    rm -f "$work"/mpnet/kernels/_core*.so
    # Undefined behaviour ends the program; leaks are the interpreter's own.
    flags="-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g -O1"
    CC=$compiler LDSHARED="$compiler -shared" MPNET_CFLAGS="$flags" \
        "$python" setup.py -q build_ext --build-lib "$work" --build-temp "$work/objects"
    case $compiler in
    *clang*) runtime=$("$compiler" -print-file-name=libclang_rt.asan-x86_64.so); extra=-shared-libasan ;;
    *) runtime=$("$compiler" -print-file-name=libasan.so); extra= ;;
    esac
    if [ -n "$extra" ]; then
        CC=$compiler LDSHARED="$compiler -shared $extra" MPNET_CFLAGS="$flags $extra" \
            "$python" setup.py -q build_ext --force --build-lib "$work" --build-temp "$work/objects"
    fi
    echo "sanitize: $compiler"
    LD_PRELOAD=$runtime ASAN_OPTIONS=detect_leaks=0 OMP_NUM_THREADS=2 PYTHONPATH=$work \
        "$python" -m pytest -q -p no:cacheprovider tests/kernels
done
