#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Known vulnerabilities of the packages in .ci/requirements.txt, by pip-audit, which asks pypi.org. Exit status 1: there are some.
# Where it gets no answer it says so, and that is no failure. PYTHON: one that has pip-audit.
set -euo pipefail
cd "$(dirname "$0")/.."
requirements=.ci/requirements.txt
status=0
answer=$("${PYTHON:-python3}" -m pip_audit --disable-pip --require-hashes --progress-spinner off -r "$requirements" 2>&1) || status=$?
if grep -qE '^Found [0-9]+ known vulnerabilit' <<<"$answer"; then
    echo "$answer" >&2
    exit 1
fi
asked=$(grep -c '==' "$requirements")
unknown=$(grep -c 'could not be audited' <<<"$answer" || true)
if [ "$status" != 0 ] || [ $((2 * unknown)) -gt "$asked" ]; then
    echo "mpnet: SKIPPED: pip-audit could not ask about the packages here (status $status): $(tail -n 1 <<<"$answer" | cut -c1-120)" >&2
else
    echo "audit: no known vulnerability in $((asked - unknown)) of $asked packages"
fi
