# SPDX-License-Identifier: MIT
# Sourced by .ci/run and tests/arm/run.sh: parts with names, limits and times.
#
#     part NAME SECONDS COMMAND...    now; what it prints is seen at once
#     start NAME SECONDS COMMAND...   beside others, as many as there are cores; what it prints is shown whole when it ends
#     finish                          waits for all that were started; ends the script when one failed
#     times                           the seconds of each part so far
#
# A part that takes longer than its SECONDS is ended and has failed. After a failure nothing new starts. Commands may be
# functions; they see exported variables only.
parts=$(mktemp -d)
declare -A _started=()
_failed=()
_end() {
    kill $(jobs -p) 2>/dev/null || true
    rm -rf "$parts"
}
trap _end EXIT

_limited() {
    local name=$1 limit=$2 begin=$SECONDS status=0
    shift 2
    timeout -k 10 "$limit" bash -euo pipefail -c '"$@"' part "$@" </dev/null &
    trap "kill $!" TERM
    wait $! || status=$?
    # Ended by timeout, or killed by it 10 s later.
    case $status in 124 | 137) echo "$name: not finished within $limit s, ended" >&2 ;; esac
    printf '%5d s  %s%s\n' $((SECONDS - begin)) "$name" "$([ $status = 0 ] || echo "   FAILED")" >>"$parts/times"
    return $status
}

# Waits for one part and shows it.
_show() {
    local pid status=0
    wait -n -p pid || status=$?
    printf '\n===== %s\n' "${_started[$pid]}"
    cat "$parts/$pid.log"
    [ $status = 0 ] || { _failed+=("${_started[$pid]}"); echo "failed: ${_started[$pid]}" >&2; }
    unset "_started[$pid]"
}

part() {
    export -f $(compgen -A function)
    printf '\n===== %s\n' "$1"
    _limited "$@" &
    wait $! || exit 1
}

start() {
    export -f $(compgen -A function)
    while [ ${#_started[@]} -ge "$(nproc)" ]; do _show; done
    [ ${#_failed[@]} = 0 ] || finish
    { _limited "$@" >"$parts/$BASHPID.log" 2>&1; } &
    _started[$!]=$1
}

finish() {
    while [ ${#_started[@]} -gt 0 ]; do _show; done
    [ ${#_failed[@]} = 0 ] || exit 1
}

times() { cat "$parts/times" 2>/dev/null || true; }
