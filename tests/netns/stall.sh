#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One host: a rank is stopped, then the hub itself. It is said who, once, and that things go on; nothing fails and nobody is dead.
# Usage: stall.sh UNISONO
set -eu
unisono=$1
dir=$(mktemp -d)
job=
cleanup() {
    [ -z "$job" ] || kill -9 "$job" 2>/dev/null || :
    for p in $(ranks_pids); do kill -9 "$p" 2>/dev/null || :; done
    rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 1' INT TERM HUP
fail() {
    echo "FAILED: $1"
    tail -n 30 "$dir"/out "$dir"/err 2>/dev/null || :
    exit 1
}
condition() { # limit in seconds, what, command ...: true within that time
    tries=$(($1 * 10)) said=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || fail "$said"
        sleep 0.1
    done
}
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
