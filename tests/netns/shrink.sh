#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Training that goes on when the network is cut: examples/shrink.c on "hosts" that are network namespaces. Of three hosts the two that
# still reach each other go on; of two equal halves the one with rank 0. Who is cut off ends with an error and does not go on.
# Usage: shrink.sh UNISONO SHRINK majority|half|kill. Exit status 77: not possible here.
set -eu
unisono=$1 program=$2 what=$3
id=$$
dir=$(mktemp -d)
hosts=3
[ "$what" != half ] || hosts=2
if [ "$(id -u)" != 0 ] || ! ip netns add "uno-$id-s" 2>/dev/null; then
    echo "skipped: making network namespaces needs root"
    rm -rf "$dir"
    exit 77
fi
job=
cleanup() {
    [ -z "$job" ] || kill -9 "$job" 2>/dev/null || :
    for n in s 1 2 3; do
        for p in $(ip netns pids "uno-$id-$n" 2>/dev/null); do kill -9 "$p" 2>/dev/null || :; done
        ip netns del "uno-$id-$n" 2>/dev/null || :
    done
    rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 1' INT TERM HUP
fail() {
    echo "FAILED: $1"
    tail -n 30 "$dir"/out "$dir"/err 2>/dev/null || :
    exit 1
}
in_host() { where=$1; shift; ip netns exec "uno-$id-$where" "$@"; }
condition() { # limit in seconds, what, command ...: true within that time
    tries=$(($1 * 10)) said=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || fail "$said"
        sleep 0.1
    done
}

in_host s ip link set lo up
in_host s ip link add bridge type bridge forward_delay 0
list=
for n in $(seq $hosts); do
    ip netns add "uno-$id-$n"
    ip link add host netns "uno-$id-$n" type veth peer name "port$n" netns "uno-$id-s"
    in_host s ip link set "port$n" master bridge up
    in_host "$n" ip link set lo up
    in_host "$n" ip addr add "10.215.0.$n/24" dev host
    in_host "$n" ip link set host up
    list=$list${list:+,}uno-$id-$n:2
done
in_host s ip link set bridge up
for n in $(seq $hosts); do
    condition 20 "host $n has no link" sh -c "ip netns exec uno-$id-$n ip -o link show host | grep -q 'state UP'"
done

"$unisono" run --hosts "$list" --launcher 'ip netns exec {host}' --keep-going --tag --env UNISONO_SUSPECT=1 --env UNISONO_SUSPECT_TIMEOUT=2 \
    --env UNISONO_SHRINK_TIMEOUT=3 --env UNISONO_TIMEOUT=30 -- "$program" 20 >"$dir/out" 2>"$dir/err" &
job=$!
condition 60 "the job did not begin to send" in_host 2 sh -c '[ "$(cat /sys/class/net/host/statistics/tx_bytes)" -gt 5000000 ]'
case $what in
majority | half) # the last host loses its link
    in_host s ip link set "port$hosts" down
    left=$((2 * hosts - 2)) ;;
kill)
    victim=
    for p in $(ip netns pids "uno-$id-2"); do
        if tr '\0' '\n' <"/proc/$p/environ" | grep -qx "UNISONO_RANK=3" && [ "$(cat "/proc/$p/comm")" = shrink ]; then victim=$p; fi
    done
    kill -9 "$victim"
    left=5 ;;
*)
    echo "unknown part '$what'"
    exit 2 ;;
esac
went_on() { [ "$(grep -c "of $left goes on" "$dir/out")" = "$left" ]; }
condition 40 "not all that can go on have gone on" went_on
grep "goes on" "$dir/out"
ended_well() { [ "$(grep -c "of $left has ended well" "$dir/out")" = "$left" ]; }
condition 80 "who went on did not end well" ended_well
[ "$what" = kill ] || {
    cut_off() { [ "$(grep -c '^\[[0-9]\] cannot go on: UNO_ERR_\(UNREACHABLE\|EXCLUDED\)' "$dir/err")" = 2 ]; }
    condition 30 "the ranks that were cut off do not say so" cut_off
    grep '^\[[0-9]\] cannot go on' "$dir/err"
}
[ "$(grep -c 'has ended well' "$dir/out")" = "$left" ] || fail "more than one side went on"
echo passed
