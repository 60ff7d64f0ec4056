#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Training that goes on when the network is cut: examples/shrink.c on "hosts" that are network namespaces. Of three hosts the two that
# still reach each other go on; of two equal halves the one with rank 0. Who is cut off ends with an error and does not go on.
# Usage: shrink.sh UNISONO SHRINK majority|half|kill. Exit status 77: not possible here.
set -eu
unisono=$1 program=$2 what=$3
. "$(dirname "$0")/common.sh"
hosts=3
[ "$what" != half ] || hosts=2
need_namespaces
end_with end_hosts
make_hosts $hosts 10.215.0.%/24
list=
for n in $(seq $hosts); do list=$list${list:+,}uno-$id-$n:2; done

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
