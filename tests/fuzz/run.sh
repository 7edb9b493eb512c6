#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Hunts for MINUTES: half of it in the C entries that read files (coverage-guided, where clang has libFuzzer), half in the Python
# readers, and kills sweeps at the end. What is found is kept in .cache/fuzz. Usage: tests/fuzz/run.sh MINUTES
set -euo pipefail
cd "$(dirname "$0")/../.."
minutes=${1:?tests/fuzz/run.sh MINUTES}
python=${PYTHON:-python3}
clang=${FUZZ_CC:-clang}
export PYTHONPATH=$PWD ASAN_OPTIONS=quarantine_size_mb=32
mkdir -p .cache/fuzz/found
failed=0
targets=$("$python" -c 'from tests.fuzz.build import TARGETS; print(*TARGETS)')
seconds=$((minutes * 30 / $(wc -w <<<"$targets")))
for target in $targets; do
    if ! "$python" tests/fuzz/build.py "$target" ".cache/fuzz/$target" "$clang"; then
        echo "fuzz: SKIPPED: $target: no clang with libFuzzer here (Debian: clang and libclang-rt-dev)" >&2
        continue
    fi
    mkdir -p ".cache/fuzz/corpus-$target"
    ".cache/fuzz/$target" -max_total_time="$seconds" -max_len=10240 -rss_limit_mb=512 -timeout=60 -print_final_stats=1 \
        -artifact_prefix=.cache/fuzz/found/ ".cache/fuzz/corpus-$target" $(ls -d "tests/fuzz/corpus/$target" 2>/dev/null) || failed=1
done
until=$((SECONDS + minutes * 30)) round=0
while [ $SECONDS -lt $until ]; do
    round=$((round + 1))
    "$python" -m tests.fuzz.readers all 300 "$RANDOM" --found .cache/fuzz/found 2>/dev/null || failed=1
done
"$python" -m tests.fuzz.kills $((10 * minutes)) 20 "$RANDOM" || failed=1
[ $failed = 0 ] || echo "fuzz: something was found; its files are in .cache/fuzz/found, and belong to tests/fuzz/findings" >&2
exit $failed
