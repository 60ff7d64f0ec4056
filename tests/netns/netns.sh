#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# "Hosts" that are network namespaces on one bridge, started by `unisono run`: who shares memory, whom TCP reaches, what a link
# that goes down or is slow does. Usage: netns.sh UNISONO CONFORM ipv4|ipv6|down|slow. Exit status 77: not possible here.
set -eu
unisono=$1 conform=$2 what=$3
id=$$
dir=$(mktemp -d)
if [ "$(id -u)" != 0 ] || ! ip netns add "uno-$id-s" 2>/dev/null; then
    echo "skipped: making network namespaces needs root"
    rm -rf "$dir"
    exit 77
fi
if [ "$what" = ipv6 ] && [ ! -e /proc/sys/net/ipv6 ]; then
    ip netns del "uno-$id-s"
    rm -rf "$dir"
    echo "skipped: this kernel has no IPv6"
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

# The switch is a namespace of its own; the launcher sits in it too, so that it reaches every host.
in_host s ip link set lo up
in_host s ip link add bridge type bridge forward_delay 0
for n in 1 2 3; do
    ip netns add "uno-$id-$n"
    ip link add host netns "uno-$id-$n" type veth peer name "port$n" netns "uno-$id-s"
    in_host s ip link set "port$n" master bridge up
    in_host "$n" ip link set lo up
    case $what in
    ipv6) in_host "$n" ip addr add "fd00:756e:6f::$n/64" dev host nodad ;;
    *)
        in_host "$n" ip addr add "10.214.0.$n/24" dev host ;;
    esac
    in_host "$n" ip link set host up
done
in_host s ip link set bridge up
for n in 1 2 3; do # the kernel reports a carrier some time after the cable is there
    condition 20 "host $n has no link" sh -c "ip netns exec uno-$id-$n ip -o link show host | grep -q 'state UP'"
done

hosts() { # ranks of each host, program ...
    h=uno-$id
    k=$1
    shift
    "$unisono" run --hosts "$h-1:$k,$h-2:$k,$h-3:$k" --launcher 'ip netns exec {host}' "$@"
}
conforms() { # ranks of each host, set
    seed=$(date +%s)
    echo "conform: 3 hosts, $1 ranks each, set $2, seed $seed"
    hosts "$1" -- "$conform" --set "$2" --seed "$seed" --expect-ranks $((3 * $1)) --expect-hosts 3 --verbose >"$dir/out" 2>"$dir/err" ||
        fail "conform, $1 ranks a host, set $2, ended with status $?"
    done=$(grep -c 'rank [0-9]*: [1-9][0-9]* passed' "$dir/out" || :)
    [ "$done" = $((3 * $1)) ] || fail "$done of $((3 * $1)) ranks passed"
    sort -u -k4 "$dir/out" | head -n 1
}

case $what in
ipv4 | ipv6)
    conforms 1 pairwise
    conforms 2 pairwise
    [ "$what" = ipv6 ] || conforms 1 sizes
    ;;
slow)
    in_host s tc qdisc add dev port2 root tbf rate 20mbit burst 16kb latency 50ms
    in_host 2 tc qdisc add dev host root tbf rate 20mbit burst 16kb latency 50ms
    conforms 1 pairwise
    ;;
down)
    # Every rank gets an error by the deadline; nobody hangs.
    start=$(date +%s)
    hosts 2 --env UNISONO_TIMEOUT=8 --keep-going -- \
        "$unisono" perf all_reduce -b 1M -e 1M -n 1000000 >"$dir/out" 2>"$dir/err" &
    job=$!
    condition 60 "the job did not begin to send" in_host 3 sh -c '[ "$(cat /sys/class/net/host/statistics/tx_bytes)" -gt 5000000 ]'
    in_host s ip link set port2 down
    cut=$(date +%s)
    status=0
    ended() { ! kill -0 "$job" 2>/dev/null; }
    condition 60 "the job did not end within 60 s after its link was cut" ended
    wait "$job" || status=$?
    job=
    [ $status != 0 ] || fail "the job ended well without a link"
    echo "link down $((cut - start)) s after the start; ended $(($(date +%s) - cut)) s later, status $status:"
    ranks=$(sed -n 's/.*perf: rank \([0-9]\): .*UNO_ERR_.*/\1/p' "$dir/err" | sort -u | wc -l)
    grep -m 3 'UNO_ERR_' "$dir/err" || :
    [ "$ranks" = 6 ] || fail "only $ranks of 6 ranks say why"
    ;;
*)
    echo "unknown part '$what'"
    exit 2 ;;
esac
echo "passed"
