#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Four ranks of the conformance suite under one launcher. Usage: launch.sh LAUNCHER CONFORM UNISONO. Exit status 77: it is not
# installed. torchrun and Slurm are played by their variables; rank r gets what they would give it.
set -eu
launcher=$1 conform=$2 unisono=$3
ranks=4
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM
# What started this test must not be taken for the launcher.
for name in $(env | sed -n 's/^\(\(UNISONO\|SLURM\|PMI\|PMIX\|OMPI\|PRTE\|MPI\)_[A-Za-z0-9_]*\|RANK\|WORLD_SIZE\|LOCAL_RANK\|MASTER_ADDR\|MASTER_PORT\)=.*/\1/p'); do
    unset "$name"
done
test_program() { echo "$conform --set pairwise --seed 1 --expect-ranks $ranks --expect-hosts 1 --verbose"; }

needs() { command -v "$1" >/dev/null 2>&1 || { echo "skipped: $1 is not installed"; exit 77; }; }
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
secret() {
    (umask 077; head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$dir/secret")
    echo "UNISONO_SECRET_FILE=$dir/secret"
}
# each NAME=VALUE...: all ranks with these variables, where @ stands for the rank
each() {
    r=0 pids=
    while [ $r -lt $ranks ]; do
        # shellcheck disable=SC2046
        env $(echo "$@" | sed "s/@/$r/g") $(test_program) >"$dir/out.$r" 2>&1 &
        pids="$pids $!"
        r=$((r + 1))
    done
    failed=0
    for p in $pids; do wait "$p" || failed=1; done
    cat "$dir"/out.*
    return $failed
}

case $launcher in
openmpi) needs mpirun.openmpi; command="mpirun.openmpi --allow-run-as-root --oversubscribe -n $ranks $(test_program)" ;;
openmpi-shadowed) # without PMIx's own variable
    needs mpirun.openmpi; command="mpirun.openmpi --allow-run-as-root --oversubscribe -n $ranks env -u PMIX_RANK $(test_program)" ;;
mpich) needs mpiexec.hydra; command="mpiexec.hydra -n $ranks $(test_program)" ;;
run) command="$unisono run -n $ranks -- $(test_program)" ;;
torchrun)
    needs python3
    command="each RANK=@ WORLD_SIZE=$ranks LOCAL_RANK=@ LOCAL_WORLD_SIZE=$ranks MASTER_ADDR=localhost MASTER_PORT=$(free_port) $(secret)" ;;
slurm)
    needs python3
    command="each SLURM_PROCID=@ SLURM_NTASKS=$ranks SLURM_LOCALID=@ SLURM_JOB_ID=$(free_port) SLURM_STEP_ID=0 SLURM_STEP_NODELIST=localhost $(secret)" ;;
variables)
    needs python3
    command="each UNISONO_RANK=@ UNISONO_SIZE=$ranks UNISONO_ADDR=127.0.0.1:$(free_port) $(secret)" ;;
file) command="each UNISONO_RANK=@ UNISONO_SIZE=$ranks UNISONO_FILE=$dir/meet" ;;
*)
    echo "unknown launcher '$launcher'"
    exit 2 ;;
esac
status=0
$command >"$dir/all" 2>&1 || status=$?
passed=$(sed -n 's/.*conform: rank \([0-9]*\): [1-9][0-9]* passed.*/\1/p' "$dir/all" | sort -u | wc -l)
if [ $status != 0 ] || [ "$passed" != $ranks ]; then
    cat "$dir/all"
    echo "FAILED: $passed of $ranks ranks passed, exit status $status"
    exit 1
fi
grep -m 1 'passed' "$dir/all"
