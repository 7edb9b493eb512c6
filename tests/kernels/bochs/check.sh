#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The AVX-512 and VNNI kernels on an emulated CPU, for machines without them; and AMX's, whose tiles no emulator here knows, so that
# they are C (csrc/arch/x86_amx_tiles.h).
# They are compared with avx2, not scalar: Bochs 2.7 rounds some ties of vcvtps2ph away from even, which all vector tables then
# share. avx2 itself equals scalar on a real CPU (levels.c without these definitions, and tests/kernels).
# Exit status: 0 equal, 1 different, 2 the emulator did not run.
set -euo pipefail
cd "$(dirname "$0")/../../.."
program=.cache/levels-avx512
python3 tests/core.py -DREPEATED=4 '-DREFERENCE="avx2"' '-DLEFT_OUT="scalar"' tests/kernels/levels.c "$program" ${CC:-gcc} -- -static -DMP_EMULATED_TILES
status=0
found=$(tests/kernels/bochs/run.sh "$program" "${1:-600}") || status=$?
echo "$found"
for table in avx512amx avx512vnni avx512; do
    # An emulator that did not come so far says nothing about the kernels.
    grep -q "^$table: " <<< "$found" || { echo "bochs: $table did not run" >&2; exit 2; }
done
exit "$status"
