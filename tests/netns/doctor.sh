#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `unisono doctor --hosts` on namespaces: nothing found when all is well, and each fault of the network named. Usage: doctor.sh UNISONO. Exit
# status 77: not possible here.
set -eu
unisono=$1
. "$(dirname "$0")/common.sh"
need_namespaces
end_with end_hosts
make_hosts 3 10.214.0.%/24
h=uno-$id

ask() { # status that is expected, arguments ...
    want=$1 status=0
    shift
    "$unisono" doctor --hosts "$h-1,$h-2,$h-3" --launcher 'ip netns exec {host}' "$@" >"$dir/out" 2>"$dir/err" || status=$?
    [ "$status" = "$want" ] || fail "exit status $status, expected $want: doctor --hosts $*"
}
says() { # words (a pattern)
    tr '\n' ' ' <"$dir/out" | tr -s ' ' | grep -q -- "$1" || fail "it does not say: $1"
}

echo "all is well"
ask 0
says "$h-1 host 10.214.0.1, MTU 1500"
for pair in "1 -> $h-2 10.214.0.2" "2 -> $h-1 10.214.0.1" "3 -> $h-2 10.214.0.2"; do says "$h-$pair [0-9.]* ms, [0-9.]* GB/s"; done

echo "another MTU on one host"
in_host 2 ip link set host mtu 1400
ask 1
says "The MTU differs: 1400 on $h-2 (host), 1500 on $h-[13]"
in_host 2 ip link set host mtu 1500

echo "another setting on one host"
cat >"$dir/launch" <<END
#!/bin/sh
where=\$1
shift
case \$where in *-3) export NCCL_ALGO=Tree ;; esac
exec ip netns exec "\$where" "\$@"
END
chmod +x "$dir/launch"
ask 1 --launcher "$dir/launch {host}"
says "NCCL_ALGO differs between $h-3 and"
says "NCCL_ALGO is Tree on $h-3 and not set on"

echo "full packets are lost on the way" # a bucket that holds no packet of that size drops it
in_host s tc qdisc add dev port2 root tbf rate 1gbit burst 1000 latency 50ms || skip "this kernel cannot shape a link"
ask 1
says "Small messages from .* reach $h-2, large ones do not"
in_host s tc qdisc del dev port2 root

echo "one direction is closed" # new connections from host 1 to host 3: their first packet fits in no bucket
in_host 1 tc qdisc add dev host root handle 1: htb default 1
in_host 1 tc class add dev host parent 1: classid 1:1 htb rate 10gbit
in_host 1 tc class add dev host parent 1: classid 1:2 htb rate 10gbit
in_host 1 tc qdisc add dev host parent 1:2 tbf rate 1mbit burst 10 latency 1ms
if in_host 1 tc filter add dev host parent 1: protocol ip u32 match ip dst 10.214.0.3/32 match ip protocol 6 0xff match u8 0x02 0x12 at 33 flowid 1:2; then
    ask 1
    says "$h-1 cannot connect to $h-3 at 10.214.0.3 (host): Connection timed out; the other way works"
else
    echo "(not tried: this kernel cannot classify packets)"
fi
in_host 1 tc qdisc del dev host root

echo "a link that is slow"
in_host 3 tc qdisc add dev host root tbf rate 20mbit burst 16kb latency 400ms
ask 1
says "Connections of $h-3 are slow: 0.00[0-9]* GB/s"
in_host 3 tc qdisc del dev host root

echo "a refusal, both ways"
in_host 1 ip route add unreachable 10.214.0.2/32
in_host 2 ip route add unreachable 10.214.0.1/32
ask 1
says "cannot connect to .*: No route to host"
in_host 1 ip route del unreachable 10.214.0.2/32
in_host 2 ip route del unreachable 10.214.0.1/32

echo "an answer that is kept can be read again"
in_host 2 ip link set host mtu 1400
ask 1 --json
cp "$dir/out" "$dir/kept.json"
status=0
"$unisono" doctor "$dir/kept.json" >"$dir/out" 2>&1 || status=$?
[ "$status" = 1 ] || fail "a kept answer: exit status $status"
says "The MTU differs: 1400"
for n in 1 2 3; do [ -z "$(ip netns pids "$h-$n")" ] || fail "an agent is left on host $n"; done
