#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `unisono doctor --hosts` and `unisono run --hosts` through ssh, as they start by themselves: two namespaces with a real sshd each, keys and
# settings that are made for this and go with it. Usage: ssh.sh UNISONO EXAMPLE. Exit status 77: not possible here.
set -eu
unisono=$(realpath "$1") example=$(realpath "$2")
. "$(dirname "$0")/common.sh"
need_namespaces
sshd=$(command -v sshd || ls /usr/sbin/sshd 2>/dev/null || :)
[ -n "$sshd" ] && command -v ssh-keygen >/dev/null && command -v ssh >/dev/null || skip "there is no sshd"
made_folder=
if [ ! -d /run/sshd ]; then # the folder that sshd locks itself into
    mkdir -m 755 /run/sshd 2>/dev/null || skip "sshd has no /run/sshd, and it cannot be made"
    made_folder=yes
fi
end_ssh() {
    end_hosts
    [ -z "$made_folder" ] || rmdir /run/sshd 2>/dev/null || :
}
end_with end_ssh
make_hosts 2 10.216.0.%/24
in_host s ip addr add 10.216.0.254/24 dev bridge

# ---- a server in each namespace, and the settings of the client ----------------------------------------------------------------------
chmod 700 "$dir"
for key in host user; do ssh-keygen -q -t ed25519 -N '' -f "$dir/$key"; done
cp "$dir/user.pub" "$dir/allowed"
cat >"$dir/client" <<END
Host n1
HostName 10.216.0.1
Host n2
HostName 10.216.0.2
Host *
User $(id -un)
IdentityFile $dir/user
IdentitiesOnly yes
UserKnownHostsFile $dir/known
GlobalKnownHostsFile /dev/null
StrictHostKeyChecking yes
END
for n in 1 2; do
    cat >"$dir/server$n" <<END
ListenAddress 10.216.0.$n
HostKey $dir/host
PidFile $dir/pid$n
AuthorizedKeysFile $dir/allowed
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
AcceptEnv NOTHING
END
    in_host "$n" "$sshd" -f "$dir/server$n" -E "$dir/sshd$n.log" || skip "sshd does not start: $(tail -n 1 "$dir/sshd$n.log")"
    condition 20 "sshd of host $n does not listen" sh -c "ip netns exec uno-$id-$n ss -ltn | grep -q ':22 '"
    echo "10.216.0.$n $(cut -d' ' -f1,2 "$dir/host.pub")" >>"$dir/known"
done
mkdir "$dir/bin"
printf '#!/bin/sh\nexec %s -F %s "$@"\n' "$(command -v ssh)" "$dir/client" >"$dir/bin/ssh"
chmod +x "$dir/bin/ssh"
PATH=$dir/bin:$PATH
plain() { ip netns exec "uno-$id-s" "$@"; }

run() { # status that is expected, command ...
    want=$1 status=0
    shift
    plain "$@" >"$dir/out" 2>"$dir/err" || status=$?
    [ "$status" = "$want" ] || fail "exit status $status, expected $want: $*"
}
says() { tr '\n' ' ' <"$dir/out" | tr -s ' ' | grep -q -- "$1" || fail "it does not say: $1"; }
nothing_left() { # but the servers themselves
    for n in 1 2; do
        condition 20 "something is left on host $n" sh -c "[ -z \"\$(for p in \$(ip netns pids uno-$id-$n); do grep -l unisono /proc/\$p/cmdline; done)\" ]"
    done
}

run 0 ssh n1 true # else all that follows says nothing

echo "doctor: two hosts that are well"
run 0 "$unisono" doctor --hosts n1,n2
says "n1 host 10.216.0.1, MTU 1500, clock"
says "n1 -> n2 10.216.0.2 [0-9.]* ms, [0-9.]* GB/s"
says "n2 -> n1 10.216.0.1 [0-9.]* ms, [0-9.]* GB/s"
says "No fault found"
nothing_left

echo "doctor: a host that ssh does not know"
run 1 "$unisono" doctor --hosts n1,n2,unknown-host.invalid
says "unknown-host.invalid cannot be asked"
says "[Cc]ould not resolve hostname"

echo "doctor: a key that is not allowed"
: >"$dir/allowed"
run 1 "$unisono" doctor --hosts n1,n2
says "Permission denied (publickey)"
cp "$dir/user.pub" "$dir/allowed"

echo "doctor: a program that is not there"
run 1 "$unisono" doctor --hosts n1,n2 --agent-program /nowhere/unisono
says "/nowhere/unisono"

echo "run: ranks on both hosts, output, exit status"
run 0 "$unisono" run --hosts n1:2,n2:2 --tag -- sh -c 'echo rank $UNISONO_RANK of $UNISONO_SIZE on $UNISONO_HOST: $(ip -br addr show host | grep -o "10.216.0.[0-9]")'
for r in 0 1; do says "rank $r of 4 on n1: 10.216.0.1"; done
for r in 2 3; do says "rank $r of 4 on n2: 10.216.0.2"; done
nothing_left
run 0 "$unisono" run --hosts n1:2,n2:2 -- "$example"
says "3.14159"
run 7 "$unisono" run --hosts n1:2,n2:2 -- sh -c 'case $UNISONO_RANK in 3) echo last words >&2; exit 7 ;; esac; sleep 600'
grep -q "rank 3 .*n2" "$dir/err" && grep -q "last words" "$dir/err" || fail "it does not name rank 3 on n2"
nothing_left

echo "run: the launcher is killed"
ip netns exec "uno-$id-s" "$unisono" run --hosts n1:2,n2:2 -- sh -c 'echo up; exec sleep 600' >"$dir/out" 2>"$dir/err" &
job=$!
condition 30 "the ranks do not start" sh -c "[ \"\$(grep -c up '$dir/out')\" = 4 ]"
kill -9 "$job"
job=
for n in 1 2; do condition 30 "ranks are left on host $n" sh -c "! ip netns pids uno-$id-$n | xargs -I{} cat /proc/{}/cmdline 2>/dev/null | tr '\\0' ' ' | grep -q 'sleep 600'"; done
nothing_left

echo "run: a host that cannot be reached"
run 2 "$unisono" run --hosts n1:1,unknown-host.invalid:1 -- true
grep -qi "could not resolve hostname" "$dir/err" || fail "it does not say why"
nothing_left

echo "run: the connection to a host breaks"
ip netns exec "uno-$id-s" "$unisono" run --hosts n1:2,n2:2 -- sh -c 'echo up; exec sleep 600' >"$dir/out" 2>"$dir/err" &
job=$!
condition 30 "the ranks do not start" sh -c "[ \"\$(grep -c up '$dir/out')\" = 4 ]"
for p in $(ip netns pids "uno-$id-2"); do # the servers of this connection, not the one that listens
    [ "$p" = "$(cat "$dir/pid2")" ] || ! grep -q sshd "/proc/$p/cmdline" || kill -9 "$p"
done
status=0
wait "$job" || status=$?
job=
[ "$status" = 2 ] || fail "exit status $status, expected 2"
grep -q n2 "$dir/err" || fail "it does not name n2"
nothing_left

echo "a shell on the other side that greets" # as one does whose start-up file prints something
echo "command=\"echo Welcome to n; echo and mind the step; eval \\\"\$SSH_ORIGINAL_COMMAND\\\"\" $(cat "$dir/user.pub")" >"$dir/allowed"
run 0 "$unisono" doctor --hosts n1,n2
says "No fault found"
run 0 "$unisono" run --hosts n1:1,n2:1 -- sh -c 'echo rank $UNISONO_RANK'
says "rank 1"
nothing_left
