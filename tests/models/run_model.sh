#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Check one model: run_model.sh MODEL holds|fails [-DNAME ...]. "fails" is for broken twins: spin must find an error in them, or
# the model could not find it in the protocol either. Exit status 77: spin is not installed.
set -eu
model=$1 expected=$2
shift 2
command -v spin >/dev/null 2>&1 || { echo "skipped: spin is not installed"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM
cp "$model" "$dir/model.pml"
cd "$dir"
spin "$@" -a model.pml
${CC:-cc} -w -O1 -DSAFETY -DCOLLAPSE -o pan pan.c
./pan -m2000000 >out 2>&1 || { cat out; exit 1; }
grep -E 'errors:|states, stored|pan:' out
if grep -q 'max search depth too small\|out of memory\|Search not completed' out && [ "$expected" = holds ]; then
    echo "FAILED: the search was not complete"
    exit 1
fi
errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' out)
case $expected:${errors:-none} in
holds:0) ;;
fails:[1-9]*) ;;
holds:[1-9]*)
    echo "FAILED: the protocol breaks like this:"
    spin "$@" -t -p -g model.pml | tail -120
    exit 1 ;;
*)
    echo "FAILED: expected that it $expected; errors: ${errors:-none}"
    exit 1 ;;
esac
