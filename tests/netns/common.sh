# SPDX-License-Identifier: Apache-2.0
# What the tests here share: a folder, a job that ends with the test, waiting for a condition, "hosts" that are network namespaces on
# one bridge. The switch (s) is a namespace of its own; the launcher sits in it too, so that it reaches every host. Sourced.
id=$$
dir=$(mktemp -d)
job=
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
end_with() { # command: what goes when the test ends
    trap "$1" EXIT
    trap 'exit 1' INT TERM HUP
}
end_job() { [ -z "$job" ] || kill -9 "$job" 2>/dev/null || :; }

in_host() { where=$1; shift; ip netns exec "uno-$id-$where" "$@"; }
skip() {
    echo "skipped: $1"
    ip netns del "uno-$id-s" 2>/dev/null || :
    rm -rf "$dir"
    exit 77
}
need_namespaces() { [ "$(id -u)" = 0 ] && ip netns add "uno-$id-s" 2>/dev/null || skip "making network namespaces needs root"; }
end_hosts() {
    end_job
    for n in s 1 2 3; do
        for p in $(ip netns pids "uno-$id-$n" 2>/dev/null); do kill -9 "$p" 2>/dev/null || :; done
        ip netns del "uno-$id-$n" 2>/dev/null || :
    done
    rm -rf "$dir"
}
make_hosts() { # how many, address with % for the host's number, words for `ip addr add`
    how_many=$1 address=$2
    shift 2
    in_host s ip link set lo up
    in_host s ip link add bridge type bridge forward_delay 0
    for n in $(seq "$how_many"); do
        ip netns add "uno-$id-$n"
        ip link add host netns "uno-$id-$n" type veth peer name "port$n" netns "uno-$id-s"
        in_host s ip link set "port$n" master bridge up
        in_host "$n" ip link set lo up
        in_host "$n" ip addr add "$(echo "$address" | sed "s/%/$n/")" dev host "$@"
        in_host "$n" ip link set host up
    done
    in_host s ip link set bridge up
    for n in $(seq "$how_many"); do # the kernel reports a carrier some time after the cable is there
        condition 20 "host $n has no link" sh -c "ip netns exec uno-$id-$n ip -o link show host | grep -q 'state UP'"
    done
}
