#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One host: a rank is stopped, then the hub itself. It is said who, once, and that things go on; nothing fails and nobody is dead.
# Usage: stall.sh UNISONO
set -eu
unisono=$1
. "$(dirname "$0")/common.sh"
cleanup() {
    end_job
    for p in $(ranks_pids); do kill -9 "$p" 2>/dev/null || :; done
    rm -rf "$dir"
}
end_with cleanup
# Processes of this job: its environment names our folder.
ranks_pids() {
    for e in /proc/[0-9]*/environ; do
        tr '\0' '\n' <"$e" 2>/dev/null | grep -qx "STALL_TEST=$dir" && p=${e#/proc/} && p=${p%/environ} && [ "$p" != "$job" ] && echo "$p"
    done 2>/dev/null
    :
}
pid_of() {
    for p in $(ranks_pids); do
        tr '\0' '\n' <"/proc/$p/environ" 2>/dev/null | grep -qx "UNISONO_RANK=$1" && echo "$p" && return
    done
    :
}

STALL_TEST=$dir "$unisono" run -n 4 --env UNISONO_STALL=1.5 --env UNISONO_TIMEOUT=100 -- \
    "$unisono" perf all_reduce -b 8 -e 8 -n 1000000000 >"$dir/out" 2>"$dir/err" &
job=$!
condition 60 "the job did not begin" sh -c "grep -q busbw '$dir/out'"
sleep 1
for who in 2 0; do
    pid=$(pid_of $who)
    [ -n "$pid" ] || fail "rank $who is not found"
    speaker=$([ $who = 0 ] && echo 1 || echo 0)
    kill -STOP "$pid"
    condition 20 "nobody says that rank $who is stopped" \
        grep -q "^unisono: rank $speaker: .*is stuck for [0-9.]* s: rank $who (pid $pid on [^)]*).* is stopped" "$dir/err"
    said=$(grep -c 'goes on after' "$dir/err" || :)
    kill -CONT "$pid"
    condition 20 "nobody says that it goes on" sh -c "[ \$(grep -c 'goes on after' '$dir/err') -gt $said ]"
done
[ "$(grep -c 'is stuck' "$dir/err")" = 2 ] || fail "a verdict is not said once"
grep 'UNO_ERR\|was killed\|has ended\|exited' "$dir/err" && fail "something failed"
cat "$dir/err"
echo "passed"
