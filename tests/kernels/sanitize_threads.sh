#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs the kernel cases of levels.c with four threads on a C core built with the thread sanitizer: no data race.
# Usage: tests/kernels/sanitize_threads.sh [CC...]; PYTHON names the interpreter.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
for compiler in "${@:-gcc}"; do
    command -v "$compiler" >/dev/null || { echo "sanitize_threads: no $compiler here; install it or name another" >&2; exit 2; }
    echo 'int main(void) { return 0; }' | "$compiler" -fsanitize=thread -x c - -o /dev/null 2>/dev/null ||
        { echo "sanitize_threads: $compiler has no thread sanitizer (Debian: libtsan, libclang-rt-dev)" >&2; exit 2; }
    program=.cache/threads-$(basename "$compiler")
    # Every operation shares its work, however small it is. How it is shared no width of narrow weights changes, so they take turns.
    "$python" tests/core.py -DTHREADS=4 -DREPEATED=4 tests/kernels/levels.c "$program" "$compiler" -- -fsanitize=thread -g -O1 -DMP_WORTH_THREADS=1 -DMP_EMULATED_TILES -DMP_STACK_BYTES=4194304
    echo "sanitize_threads: $compiler"
    TSAN_OPTIONS=halt_on_error=1 setarch -R "$program" 2>&1 || exit 1
done
