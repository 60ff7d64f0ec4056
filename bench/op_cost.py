#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What one small all-reduce costs: instructions, counted by callgrind, and time, of one build or of two that alternate.

Instructions: rank 1 of two runs under callgrind, which is so slow that what it waits for is always there: no wait is counted. Two
runs of different lengths give the instructions of one call. Time: both ranks free, the best of each run.

    bench/op_cost.py build                  instructions and time of one call
    bench/op_cost.py build build-without    the same of two builds, and the difference

The ledger's cost is the difference to a build without it:
    meson setup build-without -Dc_args=-DUNO_BENCH_WITHOUT_LEDGER && ninja -C build-without
"""
import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile

SHORT, LONG = 1000, 11000


def run(build, command):
    env = dict(os.environ, UNISONO_SPIN="10s", LD_LIBRARY_PATH=os.path.join(build, "src"))
    done = subprocess.run([os.path.join(build, "cli", "unisono"), "run", "-n", "2", "--bind", "core", "--"] + command, env=env,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
    if done.returncode != 0:
        sys.exit("op_cost: %s\n%s" % (" ".join(command), done.stdout))
    return done.stdout


def counted(build, args, times):
    loop = os.path.join(build, "bench", "op_loop")
    with tempfile.NamedTemporaryFile() as out:
        script = ('if [ "$UNISONO_RANK" = 1 ]; then exec valgrind --tool=callgrind --callgrind-out-file=%s "$0" "$@"; else '
                  'exec "$0" "$@"; fi' % out.name)
        said = run(build, ["sh", "-c", script, loop, str(args.bytes), str(times)])
    return int(re.search(r"Collected : (\d+)", said).group(1))


def instructions(build, args):
    # The least of some runs: a rank that was preempted has polled.
    return min((counted(build, args, LONG) - counted(build, args, SHORT)) / (LONG - SHORT) for _ in range(args.counts))


def nanoseconds(build, args):
    said = run(build, [os.path.join(build, "bench", "op_loop"), str(args.bytes), str(args.times)])
    return float(said.split()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="+", help="one or two build directories")
    parser.add_argument("--bytes", type=int, default=8)
    parser.add_argument("--runs", type=int, default=20, help="timed runs of each build, alternating")
    parser.add_argument("--counts", type=int, default=3, help="counted runs of each build")
    parser.add_argument("--times", type=int, default=200000, help="calls in a timed run")
    args = parser.parse_args()
    builds = [os.path.abspath(b) for b in args.build[:2]]
    count = [instructions(b, args) for b in builds]
    times = [[] for _ in builds]
    for _ in range(args.runs):
        for i, b in enumerate(builds):
            times[i].append(nanoseconds(b, args))
    print("all-reduce of %d bytes, 2 processes on 2 processors; time: median (least-most) of %d runs" % (args.bytes, args.runs))
    for i, b in enumerate(builds):
        t = times[i]
        print("%-24s %6.0f instructions %8.1f ns (%.1f-%.1f)" % (args.build[i], count[i], statistics.median(t), min(t), max(t)))
    if len(builds) == 2:
        # Each pair's own difference: what disturbs a pair disturbs both.
        both = [a - b for a, b in zip(*times)]
        print("%-24s %6.0f instructions %8.1f ns" % ("difference", count[0] - count[1], statistics.median(both)))


if __name__ == "__main__":
    main()
