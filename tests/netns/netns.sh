#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# "Hosts" that are network namespaces on one bridge, started by `unisono run`: who shares memory, whom TCP reaches, what a link
# that goes down or is slow does, and what is said of it. Usage: netns.sh UNISONO CONFORM PART (see the end). Exit status 77: not
# possible here.
set -eu
unisono=$1 conform=$2 what=$3
. "$(dirname "$0")/common.sh"
need_namespaces
[ "$what" != ipv6 ] || [ -e /proc/sys/net/ipv6 ] || skip "this kernel has no IPv6"
end_with end_hosts
case $what in
ipv6) make_hosts 3 fd00:756e:6f::%/64 nodad ;;
*) make_hosts 3 10.214.0.%/24 ;;
esac

on_hosts() { # ranks of host 1, of 2, of 3, program ...
    h=uno-$id
    list="$h-1:$1,$h-2:$2,$h-3:$3"
    shift 3
    "$unisono" run --hosts "$list" --launcher 'ip netns exec {host}' "$@"
}
hosts() { # ranks of each host, program ...
    k=$1
    shift
    on_hosts "$k" "$k" "$k" "$@"
}
conforms() { # ranks of each host, set
    seed=$(date +%s)
    echo "conform: 3 hosts, $1 ranks each, set $2, seed $seed"
    hosts "$1" -- "$conform" --set "$2" --seed "$seed" --expect-ranks $((3 * $1)) --expect-hosts 3 --verbose >"$dir/out" 2>"$dir/err" ||
        fail "conform, $1 ranks a host, set $2, ended with status $?"
    passed $((3 * $1))
}
passed() { # how many ranks
    done=$(grep -c 'rank [0-9]*: [1-9][0-9]* passed' "$dir/out" || :)
    [ "$done" = "$1" ] || fail "$done of $1 ranks passed"
    sort -u -k4 "$dir/out" | head -n 1
}
# Six ranks of which host h has h, h + 3, as a launcher deals them out that goes round the hosts.
conforms_dealt() { # words for conform ...
    (umask 077 && od -An -N32 -tx1 /dev/urandom | tr -d " \n" >"$dir/secret")
    ranks=
    for r in 0 1 2 3 4 5; do
        in_host $((r % 3 + 1)) env UNISONO_RANK=$r UNISONO_SIZE=6 UNISONO_ADDR=10.214.0.1:6140 UNISONO_SECRET_FILE="$dir/secret" \
            UNISONO_LOCAL_RANK=$((r / 3)) UNISONO_LOCAL_SIZE=2 "$conform" "$@" >>"$dir/out" 2>>"$dir/err" &
        ranks="$ranks $!"
    done
    for p in $ranks; do wait "$p" || fail "conform, ranks dealt round the hosts, ended with status $?"; done
}

# A long job of two ranks a host, in the background, sending.
size=1M
start_job() {
    hosts 2 "$@" --env UNISONO_TIMEOUT=60 --keep-going -- "$unisono" perf all_reduce -b $size -e $size -n 1000000 >"$dir/out" 2>"$dir/err" &
    job=$!
    condition 60 "the job did not begin to send" in_host 3 sh -c '[ "$(cat /sys/class/net/host/statistics/tx_bytes)" -gt 5000000 ]'
}
ended() { ! kill -0 "$job" 2>/dev/null; }
job_ends() { # limit
    status=0
    condition "$1" "the job did not end within $1 s" ended
    wait "$job" || status=$?
    job=
}
signal_host() { for p in $(ip netns pids "uno-$id-$1"); do kill "-$2" "$p"; done; }
in_rank_pid() { # rank: its process
    for p in $(ip netns pids "uno-$id-$(($1 / 2 + 1))"); do
        if tr '\0' '\n' <"/proc/$p/environ" | grep -qx "UNISONO_RANK=$1" && grep -q '^unisono' "/proc/$p/comm"; then echo "$p"; return; fi
    done
}
never_dead() { grep -v '^unisono run\|^  | ' "$dir/err" | grep 'has ended\|was killed\|exited with\|is dead' && fail "a living process was said to be dead"; :; }

case $what in
ipv4 | ipv6)
    conforms 1 pairwise
    conforms 2 pairwise
    [ "$what" = ipv6 ] || conforms 1 sizes
    ;;
two_level)
    # Forced wherever it fits: hosts of equal and of unequal sizes, ranks in a row and dealt round the hosts.
    export UNISONO_ALGO=two_level UNISONO_DEBUG=info
    conforms 2 pairwise
    said_two_level() { [ "$(grep -c "rank 0: .* hosts\?: two_level" "$dir/err")" -gt 20 ] || fail "two_level was not chosen"; }
    said_two_level
    on_hosts 1 3 2 -- "$conform" --set pairwise --expect-ranks 6 --expect-hosts 3 --verbose >"$dir/out" 2>"$dir/err" || fail "hosts of 1, 3 and 2 ranks"
    passed 6
    said_two_level
    : >"$dir/out" >"$dir/err"
    conforms_dealt --set pairwise --expect-ranks 6 --expect-hosts 3 --verbose
    passed 6
    said_two_level
    ;;
slow)
    in_host s tc qdisc add dev port2 root tbf rate 20mbit burst 16kb latency 50ms
    in_host 2 tc qdisc add dev host root tbf rate 20mbit burst 16kb latency 50ms
    conforms 1 pairwise
    ;;
behind)
    # A link is throttled so far that operations still end well before the stall limit: its path is told all the same, on every host. While
    # all is well no path is blamed.
    size=64K
    start_job --env UNISONO_STALL=1.5
    moved() { in_host 3 cat /sys/class/net/host/statistics/tx_bytes; }
    enough=$(($(moved) + 60000000))
    condition 60 "the job does not go on" sh -c "[ \$(ip netns exec uno-$id-3 cat /sys/class/net/host/statistics/tx_bytes) -gt $enough ]"
    grep 'path between' "$dir/err" && fail "a path that is well is blamed"
    in_host 2 tc qdisc add dev host root tbf rate 2mbit burst 16kb latency 50ms
    for r in 0 2 4; do
        condition 20 "rank $r does not say which path is slow" \
            grep -q "^unisono: rank $r: the path between .*(host, 10.214.0.2:.* holds the others up: it moves [0-9.]* [KM]B/s for [0-9.]* s" "$dir/err"
    done
    grep '^unisono: rank .*path between' "$dir/err" | grep -v '(host, 10.214.0.2:' && fail "another path is blamed"
    grep 'UNO_ERR' "$dir/err" && fail "something failed"
    never_dead
    grep -m 1 'path between' "$dir/err"
    ;;
down | drop | reject)
    # The hosts are named, and the interface; every rank gets an error by the deadline; nobody hangs; nobody is said to be dead.
    start_job --env UNISONO_SUSPECT=1.5 --env UNISONO_SUSPECT_TIMEOUT=5
    case $what in
    down) in_host s ip link set port2 down ;;
    drop) # frames for a machine that is not there; hosts 2 and 3 only: both reach host 1
        in_host 2 ip neigh replace 10.214.0.3 lladdr 02:75:6e:6f:00:99 dev host nud permanent
        in_host 3 ip neigh replace 10.214.0.2 lladdr 02:75:6e:6f:00:99 dev host nud permanent ;;
    reject)
        in_host 2 ip route add unreachable 10.214.0.3/32
        in_host 3 ip route add unreachable 10.214.0.2/32 ;;
    esac
    cut=$(date +%s)
    # From here all ranks are processes of one machine; how the paths between their namespaces are `unisono why` has to ask them.
    condition 20 "unisono why does not see the cut" \
        sh -c "timeout 10 '$unisono' why \$(ip netns pids uno-$id-1 | head -n 1) | grep -q '^no path between '"
    job_ends 60
    [ $status != 0 ] || fail "the job ended well without a link"
    echo "$what; ended $(($(date +%s) - cut)) s later, status $status:"
    grep -m 4 'do not reach each other' "$dir/err" || fail "nobody says which hosts do not reach each other"
    hosts='(ranks 2-3)'
    [ "$what" = down ] || hosts='(ranks [24]-[35]) and [^ ]* (ranks [24]-[35])'
    grep 'do not reach each other' "$dir/err" | grep -qv "$hosts" && fail "a pair of hosts is blamed that is well"
    grep -q 'do not reach each other: nothing was heard for [0-9.]* s; interface host.* 10.214.0.[123].* -> ' "$dir/err" || fail "no interface is named"
    [ "$what" = down ] || grep 'rank 0:.*do not reach each other' "$dir/err" | grep -q "$hosts" || fail "host 1 was not told"
    ranks=$(sed -n 's/.*perf: rank \([0-9]\): .*UNO_ERR_.*/\1/p' "$dir/err" | sort -u | wc -l)
    [ "$ranks" = 6 ] || fail "only $ranks of 6 ranks say why"
    grep 'UNO_ERR_' "$dir/err" | grep -v UNO_ERR_UNREACHABLE && fail "another error than the cut"
    never_dead
    ;;
suspend)
    # All processes of host 2 are stopped for 4 s: nothing is said to be dead or unreachable, nothing fails.
    start_job
    before=$(in_host 3 cat /sys/class/net/host/statistics/tx_bytes)
    signal_host 2 STOP
    sleep 4
    signal_host 2 CONT
    condition 20 "the job does not go on" in_host 3 sh -c "[ \"\$(cat /sys/class/net/host/statistics/tx_bytes)\" -gt $((before + 200000000)) ]"
    kill -0 "$job" 2>/dev/null || fail "the job ended"
    grep -i 'unreach\|not reach\|UNO_ERR' "$dir/err" && fail "a suspended host was taken for an unreachable one"
    never_dead
    ;;
stall)
    # Rank 3 is stopped: every host says so, with its pid, and that things go on when they do. Nobody is dead, nothing fails.
    start_job --env UNISONO_STALL=1.5
    stopped=$(in_rank_pid 3)
    kill -STOP "$stopped"
    for r in 0 2 4; do
        condition 10 "rank $r does not say who is stopped" \
            grep -q "^unisono: rank $r: .*is stuck for [0-9.]* s: rank 3 (pid $stopped on [^)]*).* is stopped" "$dir/err"
    done
    kill -CONT "$stopped"
    for r in 0 2 4; do condition 10 "rank $r does not say that it goes on" grep -q "^unisono: rank $r: goes on after [0-9.]* s" "$dir/err"; done
    [ "$(grep -c '^unisono: rank .* stuck' "$dir/err")" = 3 ] || fail "it is not said once a host"
    grep 'UNO_ERR' "$dir/err" && fail "something failed"
    never_dead
    grep '^unisono: rank 0:' "$dir/err"
    ;;
hub)
    # The hub of host 2 is stopped: rank 3 speaks for it. Rank 3 is told of a death on host 3, and a death on host 2 is told.
    start_job --env UNISONO_DEBUG=info
    hub=$(in_rank_pid 2)
    kill -STOP "$hub"
    condition 10 "nobody took over" grep -q 'rank 3:.*speaks for its host now' "$dir/err"
    grep -i 'unreach\|not reach\|UNO_ERR' "$dir/err" && fail "a stopped hub was taken for an unreachable host"
    kill -9 "$(in_rank_pid 5)"
    condition 10 "rank 3 does not know of the death" grep -q 'perf: rank 3: .*rank 5 .*killed by signal 9' "$dir/err"
    kill -CONT "$hub"
    condition 10 "the hub does not know of the death" grep -q 'perf: rank 2: .*rank 5 .*killed by signal 9' "$dir/err"
    grep 'rank [0-4] (pid.*was killed' "$dir/err" && fail "a living process was said to be dead"
    job_ends 60
    ;;
*)
    echo "unknown part '$what'"
    exit 2 ;;
esac
echo "passed"
