#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The TCP carrier between two network namespaces with two pairs of interfaces of different speed: both are used, one may be cut,
# a stopped peer is waited for, a killed one is noticed. Usage: tcp_netns.sh TCP_PAIR. Exit status 77: not possible here.
set -eu
pair=$1
a=tcp-a$$ b=tcp-b$$
dir=$(mktemp -d)
ip netns add "$a" 2>/dev/null || { echo "cannot make network namespaces here"; rm -rf "$dir"; exit 77; }
cleanup() {
    for p in $(cat "$dir"/*.pid 2>/dev/null); do kill -9 "$p" 2>/dev/null || :; done
    ip netns del "$a" 2>/dev/null || :
    ip netns del "$b" 2>/dev/null || :
    rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 1' INT TERM
ip netns add "$b"

wire() { # name subnet rate
    ip link add "$1" netns "$a" type veth peer name "$1" netns "$b"
    ip -n "$a" addr add "10.$2.0.1/24" dev "$1"
    ip -n "$b" addr add "10.$2.0.2/24" dev "$1"
    for n in "$a" "$b"; do
        ip -n "$n" link set "$1" up
        tc -n "$n" qdisc add dev "$1" root tbf rate "$3" burst 16kb latency 20ms
    done
}
carrier() { # the kernel reports a carrier some time after the cable is there
    for n in "$a" "$b"; do
        tries=0
        until ip -n "$n" -o link show "$1" | grep -q 'state UP'; do
            tries=$((tries + 1))
            [ $tries -lt 100 ] || fail "interface $1 did not come up"
            sleep 0.1
        done
    done
}

fail() {
    echo "FAILED: $1"
    cat "$dir"/out.* 2>/dev/null
    exit 1
}
wire fast 77 80mbit
wire slow 78 20mbit
carrier fast
carrier slow

start() { # arguments of tcp_pair
    rm -f "$dir"/*
    for i in 0 1; do
        if [ $i = 0 ]; then ns=$a; else ns=$b; fi
        ip netns exec "$ns" "$pair" $i "$dir" "$@" >"$dir/out.$i" 2>&1 &
        echo $! >"$dir/$i.pid"
    done
    tries=0
    while ! grep -q begin "$dir/out.0" 2>/dev/null || ! grep -q begin "$dir/out.1" 2>/dev/null; do
        tries=$((tries + 1))
        [ $tries -lt 300 ] || fail "the pair did not begin"
        for i in 0 1; do kill -0 "$(cat "$dir/$i.pid")" 2>/dev/null || fail "process $i did not begin"; done
        sleep 0.1
    done
}
finish() { # expected status of both
    for i in 0 1; do
        status=0
        wait "$(cat "$dir/$i.pid")" || status=$?
        [ $status = 0 ] || fail "process $i ended with status $status"
    done
}
lane_bytes() { awk -v lane="$1" '/^path 0/ && $4 == lane { sum += $7 } END { print sum + 0 }' "$dir/out.0"; }
count() { sed -n "s/^counts 0:.* $1 \([0-9]*\).*/\1/p" "$dir/out.0"; }

start stream 30000000 1000000 8
finish
one=$(lane_bytes 0) two=$(lane_bytes 1)
echo "two lanes: $(grep '^stream 0' "$dir/out.0"); lane 0 $one bytes, lane 1 $two bytes"
[ "$one" -gt 2000000 ] && [ "$two" -gt 2000000 ] || fail "one lane was not used"

start stream 30000000 1000000 8
ip -n "$b" link set fast down
finish
echo "cut: $(grep '^stream 0' "$dir/out.0"); $(count lost) sockets lost, $(count resent) slices resent"
[ "$(count lost)" -gt 0 ] || fail "the cut was not noticed"
ip -n "$b" link set fast up
carrier fast

start stream 30000000 1000000 8
kill -STOP "$(cat "$dir/1.pid")"
sleep 4
kill -CONT "$(cat "$dir/1.pid")"
finish
echo "stopped for 4 s: $(grep '^stream 0' "$dir/out.0"); $(count lost) sockets lost"
[ "$(count lost)" = 0 ] || fail "a stopped peer was taken for a lost path"

start stream 30000000 1000000 8
kill -KILL "$(cat "$dir/1.pid")"
at=$(date +%s%N)
status=0
wait "$(cat "$dir/0.pid")" || status=$?
took=$((($(date +%s%N) - at) / 1000000))
echo "killed: $(grep '^down' "$dir/out.0") after $took ms"
[ $status = 3 ] || fail "a killed peer was not noticed"
grep -q 'fin 1' "$dir/out.0" || fail "a killed peer was not taken for dead"
echo "passed"
