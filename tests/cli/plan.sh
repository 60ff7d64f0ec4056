#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# plan.sh UNISONO IMPORTS ALGORITHMS.MD - `unisono plan` as people use it: exit statuses, conversions, sentences.
set -u
unisono=$1 imports=$2 page=$3
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
failures=0
export UNISONO_COSTS=none # not those of this machine

# expect STATUS PATTERN args...: the exit status, and a pattern in what is said on either stream
expect() {
    status=$1 pattern=$2
    shift 2
    "$unisono" plan "$@" >"$dir/said" 2>&1
    got=$?
    if [ $got -ne "$status" ] || ! grep -Eq -- "$pattern" "$dir/said"; then
        echo "unisono plan $*: status $got, not $status, or no /$pattern/ in:"
        head -5 "$dir/said"
        failures=$((failures + 1))
    fi
}

expect 0 'usage: unisono plan'
expect 0 'usage: unisono plan' --help
expect 0 'ring +every rank sends to the next' algos
expect 2 'did you mean "verify"' verfy
expect 2 'legal are flat' make all_reduce --ranks 4 --algo circle
expect 2 'make needs --ranks' make all_reduce
expect 2 '"2x0" do not hold 1 to 4096 ranks' make all_reduce --hosts 2x0
"$unisono" plan make all_reduce --ranks 4 --json >"$dir/piped.json"
expect 0 'proved' verify - <"$dir/piped.json"
expect 0 '5 ranks' make all_reduce --hosts 2,3 --verify
expect 2 'is not a collective' make allreduces --ranks 4
expect 2 'ranks 5000 is not a whole number from 1 to 4096' make all_reduce --ranks 5000
expect 2 'No such file' show "$dir/none"
expect 2 'sends to a group' make all_reduce --ranks 4 --algo flat --xml
expect 0 'predicted' make all_reduce --ranks 8 --bytes 64M --explain
expect 0 'in place +2 slots +proved' make broadcast --ranks 8 --algo tree --root 3 --verify
expect 0 'rank 2:' make all_reduce --ranks 4 --algo ring --rank 2

for coll in all_reduce broadcast reduce all_gather reduce_scatter all_to_all gather scatter barrier; do
    for hosts in 2x4 1,2,5; do
        expect 0 'slots +proved' make $coll --ranks 8 --algo two_level --hosts $hosts --root 3 --verify
    done
    "$unisono" plan make $coll --ranks 8 --algo two_level --hosts 3,1,4 --root 5 --json >"$dir/plan.json" || failures=$((failures + 1))
    expect 0 'proved' verify "$dir/plan.json"
    "$unisono" plan show "$dir/plan.json" --json | cmp - "$dir/plan.json" || failures=$((failures + 1))
done
# The page on algorithms has the table that the tool has.
"$unisono" plan algos | awk '/^[a-z]/ { algo = $1 } /^ / { for (i = 1; i <= NF; i++) print $i, algo }' | sort >"$dir/has"
awk -F ' *[|] *' 'NF > 2 && $2 == "" && !names { for (i = 3; i < NF; i++) algo[i] = $i; names = NF }
    $2 ~ /^[a-z_]+$/ && NF == names { for (i = 3; i < NF; i++) if ($i == "yes") print $2, algo[i] }' "$page" | sort >"$dir/said"
diff "$dir/has" "$dir/said" || { echo "$page does not say what the tool says"; failures=$((failures + 1)); }
expect 2 'needs ranks on several hosts, and several on one' make all_to_all --ranks 8 --algo two_level

# Other people's plans keep their claims; what they do not claim is told apart.
for file in "$imports"/*/*.xml; do
    expect 0 'proved' verify "$file"
    expect 0 '"proved": true' verify --json "$file"
done
expect 0 'not claimed, and not so \(wrong\): rank 0' verify --all "$imports/azure/ag-1k-512k.xml"
expect 1 'refuted \(deadlock\): rank 0' verify --slots 1 "$imports/azure/ap2ll.xml"

# What is printed can be read back, and is still right.
for algo in flat ring tree hd; do
    "$unisono" plan make all_reduce --ranks 5 --algo $algo --json >"$dir/plan.json" || failures=$((failures + 1))
    expect 0 'proved' verify "$dir/plan.json"
    "$unisono" plan show "$dir/plan.json" --json | cmp - "$dir/plan.json" || failures=$((failures + 1))
    "$unisono" plan show "$dir/plan.json" --xml --unicast >"$dir/plan.xml" || failures=$((failures + 1))
    expect 0 'proved' verify "$dir/plan.xml"
done

# What is no plan.
head -c 500 "$imports/azure/a2a2ll.xml" >"$dir/short.xml"
expect 2 'short.xml line [0-9]+: .*cut short' verify "$dir/short.xml"
head -c 500 "$dir/plan.json" >"$dir/short.json"
expect 2 'short.json line [0-9]+:' verify "$dir/short.json"
printf '<!DOCTYPE a [<!ENTITY b "&b;">]><algo/>' >"$dir/entities.xml"
expect 2 'entities.xml line 1: a document type' verify "$dir/entities.xml"
sed 's/type="r"/type="x"/' "$imports/azure/a2a2ll.xml" >"$dir/opcode.xml"
expect 2 'opcode.xml line 4: unknown opcode type="x"' verify "$dir/opcode.xml"
# A healthy file with one chunk that lands in the wrong place is refuted, and the step is named.
sed '4s/dstoff="2"/dstoff="3"/' "$imports/azure/a2a2ll.xml" >"$dir/wrong.xml"
expect 1 'refuted \(.*rank 0' verify "$dir/wrong.xml"

# What a full disk has cut is not called good, whatever the command.
if [ -w /dev/full ]; then
    for words in 'plan make all_reduce --ranks 4 --json' 'plan algos' 'topo --input host:2' version help 'doctor --rules'; do
        # shellcheck disable=SC2086
        "$unisono" $words >/dev/full 2>"$dir/said"
        got=$?
        if [ $got -ne 2 ] || ! grep -q 'writing to standard output failed' "$dir/said"; then
            echo "unisono $words on a full disk: status $got, $(cat "$dir/said")"
            failures=$((failures + 1))
        fi
    done
fi

[ $failures -eq 0 ] || echo "$failures failures"
[ $failures -eq 0 ]
