#!/usr/bin/env bash
# The AVX-512 and VNNI kernels on an emulated CPU, for machines without them.
# They are compared with avx2, not scalar: Bochs 2.7 rounds some ties of vcvtps2ph away from even, which all vector tables then
# share. avx2 itself equals scalar on a real CPU (levels.c without these definitions, and tests/kernels).
set -euo pipefail
cd "$(dirname "$0")/../../.."
program=.cache/levels-avx512
python3 tests/kernels/build_levels.py "$program" ${CC:-gcc} -- -static '-DREFERENCE="avx2"' '-DLEFT_OUT="scalar"'
found=$(tests/kernels/bochs/run.sh "$program" "${1:-600}") || { echo "$found"; exit 1; }
echo "$found"
for table in avx512vnni avx512; do
    grep -q "^$table: .* equal" <<< "$found" || { echo "bochs: $table did not run" >&2; exit 1; }
done
