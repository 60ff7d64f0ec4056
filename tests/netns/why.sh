#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `unisono why` asked on one of three hosts tells of all of them: of a rank elsewhere that is missing, of one that was killed, with the
# process that speaks for its host stopped, and when a host does not answer. Hosts are namespaces of network and processes, so that
# nobody sees the others' processes. `unisono top` shows them all, too. Usage: why.sh UNISONO WHY_RANK. Exit status 77: not possible here.
set -eu
unisono=$(realpath "$1") program=$(realpath "$2")
. "$(dirname "$0")/common.sh"
need_namespaces
unshare --pid --fork --mount-proc true 2>/dev/null || skip "this system makes no process namespaces"
end_with end_hosts
make_hosts 3 10.215.0.%/24

start_job() { # program's mode: two ranks a host
    h=uno-$id
    : >"$dir/out" # what the job before has said is not this one's
    "$unisono" run --hosts "$h-1:2,$h-2:2,$h-3:2" --launcher 'ip netns exec {host} unshare --pid --fork --kill-child --mount-proc' \
        --env UNISONO_SUSPECT=1.5 --env UNISONO_SUSPECT_TIMEOUT=300 --keep-going -- "$program" "$1" >"$dir/out" 2>"$dir/err" &
    job=$!
    condition 60 "the job did not begin" sh -c "[ \$(grep -c '^[0-5] [0-9]' '$dir/out') = 6 ]"
}
pid_of() { # rank: its process, as it is seen from outside
    for p in $(ip netns pids "uno-$id-$(($1 / 2 + 1))"); do
        if tr '\0' '\n' <"/proc/$p/environ" | grep -qx "UNISONO_RANK=$1" && grep -q '^why_rank' "/proc/$p/comm"; then echo "$p"; return; fi
    done
}
why() { # rank beside which it is asked, words
    beside=$1
    shift
    status=0
    nsenter -t "$(pid_of "$beside")" -n -p -m "$unisono" why "$@" >"$dir/why" 2>"$dir/why.err" || status=$?
    [ ! -s "$dir/why.err" ] || { cat "$dir/why.err"; fail "why says more than the verdict"; }
}
# rank, a Python expression over the answer a, and r: by rank
answer_is() {
    why "$1" --json
    python3 - "$dir/why" "$2" <<'PYTHON'
import json, sys
with open(sys.argv[1], encoding="utf-8") as f:
    a = json.load(f)
r = {rank["rank"]: rank for rank in a["ranks"]}
kind, culprits = a["verdict"]["kind"], a["verdict"]["culprits"]
sys.exit(0 if eval(sys.argv[2]) else 1)
PYTHON
}
told() { # limit in seconds, rank, expression
    until=$(($(date +%s) + $1))
    until answer_is "$2" "$3"; do
        [ "$(date +%s)" -lt $until ] || fail "asked at rank $2: not $3; the last answer: $(head -c 1500 "$dir/why")"
        sleep 0.1
    done
}
all='a["reported"] == 6 and a["hosts"] == 3 and not a["not_asked"] and not a["not_answered"]'

# Rank 1 does not make the third call.
start_job absent
for rank in 5 2 0; do
    told 30 $rank "$all and kind == 'rank_absent' and culprits == [1] and 'pause' in a['verdict']['headline'] and a['verdict']['victims_all'] == 5"
done
why 4
[ $status = 1 ] || fail "a fault gives exit status $status"
cat "$dir/why"
grep -q '^job [0-9a-f]*: why_rank, 6 of 6 ranks heard on 3 hosts$' "$dir/why" || fail "it is not said how many were heard"
! grep 'Refused connections' "$dir/why" || fail "nobody here is a stranger: launcher and ranks alone know these ports"
why 4 --export-flight-recorder "$dir/flight"
for form in flight_rank_ comm_lib_trace_rank_; do # for PyTorch's analyser, for everybody else
    [ "$(ls "$dir/flight" | grep -c "^$form[0-5]")" = 6 ] || fail "not each rank has a trace of its own: $(ls "$dir/flight")"
done
# Who speaks for host 3 is stopped: rank 5 takes over, and answers.
kill -STOP "$(pid_of 4)"
told 30 5 "$all and a['stopped'] == [4] and r[4]['run'] == 'stopped' and r[0]['communicators'][0]['newest'] == 3"
kill -CONT "$(pid_of 4)"
# All of host 2 are stopped: it is said that it does not answer; there, that nobody answers.
for rank in 2 3; do kill -STOP "$(pid_of $rank)"; done
told 30 5 "a['not_answered'] == [2, 3] and a['hosts'] == 2 and not a['not_asked']"
told 30 2 "a['not_asked'] == [0, 1, 4, 5] and 'all are stopped' in a['not_asked_because'] and a['stopped'] == [2, 3]"
why 5
grep 'Did not answer: ranks 2-3 (their hosts were asked)' "$dir/why" || fail "it is not said who did not answer"
why 2
grep 'Other hosts were not asked: no process of the job on this host answers: all are stopped' "$dir/why" || fail "it is not said why"
for rank in 2 3; do kill -CONT "$(pid_of $rank)"; done
told 30 5 "$all and kind == 'rank_absent' and culprits == [1]"
# The cable of host 2.
in_host s ip link set port2 down
told 30 5 "a['not_answered'] == [2, 3] and a['hosts'] == 2 and not a['not_asked']"
in_host s ip link set port2 up
told 30 5 "$all and kind == 'rank_absent'"
kill -9 "$job"
wait "$job" 2>/dev/null || :
job=

# `unisono top` shows all hosts, too: rank 1 is slow, as is seen from host 3, where it does not run.
start_job slow
top() { # rank beside which it is asked, words
    beside=$1
    shift
    nsenter -t "$(pid_of "$beside")" -n -p -m "$unisono" top --once "$@" >"$dir/top" 2>"$dir/top.err" || fail "top: $(cat "$dir/top.err")"
}
table_has() { # limit in seconds, rank, grep's expression
    until=$(($(date +%s) + $1))
    until top "$2" && grep -q "$3" "$dir/top"; do
        [ "$(date +%s)" -lt $until ] || fail "top at rank $2 has not $3, but: $(cat "$dir/top")"
    done
}
table_has 30 5 '^\*    1 '
cat "$dir/top"
grep -q '^job [0-9a-f]*: why_rank, 6 of 6 ranks on 3 hosts, ' "$dir/top" || fail "top does not say how many it shows: $(cat "$dir/top")"
[ "$(grep -c '^\*' "$dir/top")" = 2 ] || fail "others than rank 1 are marked" # and the line of titles
python3 - "$dir/top" <<'PYTHON' || fail "the rates of another host are wrong: $(cat "$dir/top")"
import re, sys
row = r"([ *]) +(\d+) (\S+) +(\d+) (\S+) +(\d+%|-) (\S+) +(\d+) +(\d+) +([\d.]+ \w+)/s +(\d+%|-) +(\d+)% +(\d+)% (.*)"
with open(sys.argv[1], encoding="utf-8") as f:
    rows = [re.fullmatch(row, line.rstrip("\n")) for line in f.readlines()[2:]]
ranks = {int(r[2]): r for r in rows}
assert sorted(ranks) == list(range(6))
assert all(ranks[r][5] in "RSD" and ranks[r][6] != "-" for r in ranks)      # of other hosts, their hubs tell
assert all(2 <= int(ranks[r][8]) <= 50 for r in ranks)                      # rank 1 takes 20 ms and more for each
assert all(ranks[r][11] == "-" for r in ranks)                              # no limit is known of what goes between hosts
assert int(ranks[1][13]) > 50 and int(ranks[0][13]) < int(ranks[1][13]) / 2
PYTHON
top 5 --local
grep -q 'why_rank, 2 of 6 ranks on this host, ' "$dir/top" && [ "$(wc -l <"$dir/top")" = 4 ] || fail "--local: $(cat "$dir/top")"
for rank in 2 3; do kill -STOP "$(pid_of $rank)"; done
table_has 30 5 '^did not answer: ranks 2-3 (their hosts were asked)$'
for rank in 2 3; do kill -CONT "$(pid_of $rank)"; done
table_has 30 5 '6 of 6 ranks on 3 hosts'
kill -9 "$job"
wait "$job" 2>/dev/null || :
job=

# Nobody waits; rank 3 is killed. Its host tells what it last did.
start_job idle
killed=$(pid_of 3)
kill -9 "$killed"
told 30 5 "r[3]['status'] == 'dead' and (r[3]['ended'], r[3]['ended_code']) == ('signal', 9) and r[3]['communicators'][0]['newest'] == 2"
told 30 0 "kind == 'dead' and culprits == [3] and '9 (SIGKILL)' in a['verdict']['headline']"
echo "passed"
