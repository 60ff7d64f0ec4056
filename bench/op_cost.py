#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What one call costs between two processes: instructions, counted by callgrind, and time, of one build or of two that alternate.

Instructions: rank 1 runs under callgrind and sleeps before each call, so that rank 0 has done its part by then and nothing is waited
for. Each call is counted on its own; what counts is the number that comes most often: it is the same from run to run, however busy
the machine is. Time: both ranks free, the best of each run.

    bench/op_cost.py build                              instructions and time of all_reduce of 8 bytes
    bench/op_cost.py build build-without --call send    the same of two builds, and the difference
    bench/op_cost.py build --check bench/op_counts.tsv  all that is recorded there, counted again: more than 5 % more is an error
    bench/op_cost.py build --write bench/op_counts.tsv  record what this build counts, in the place of its toolchain's rows

The ledger's cost is the difference to a build without it:
    meson setup build-without -Dc_args=-DUNO_BENCH_WITHOUT_LEDGER && ninja -C build-without
"""
import argparse
import collections
import glob
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

SKIPPED, SLACK, TIMES, NAP_US, LEAST = 77, 0.05, 100, 1000, 15
# What is recorded: op_loop's call, the function that is counted, bytes.
CALLS = {"all_reduce": ("all_reduce", "uno_all_reduce"), "broadcast": ("broadcast", "uno_broadcast"),
         "send": ("send_recv", "uno_send"), "recv": ("send_recv", "uno_recv")}
RECORDED = [("all_reduce", 8), ("all_reduce", 65536), ("broadcast", 8), ("send", 8), ("recv", 8)]


def run(build, command, **settings):
    env = dict(os.environ, UNISONO_SPIN="10s", LD_LIBRARY_PATH=os.path.join(build, "src"), **settings)
    done = subprocess.run([os.path.join(build, "cli", "unisono"), "run", "-n", "2", "--bind", "core", "--"] + command, env=env,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
    if done.returncode != 0:
        sys.exit("op_cost: %s\n%s" % (" ".join(command), done.stdout))
    return done.stdout


def counted(build, loop, function, size, nap_us):
    with tempfile.TemporaryDirectory() as where:
        # "rep movsb" would be counted once a byte.
        script = ('if [ "$UNISONO_RANK" = 1 ]; then GLIBC_TUNABLES=glibc.cpu.x86_rep_movsb_threshold=1073741824 exec valgrind --tool=callgrind --zero-before=%s --dump-after=%s '
                  '--callgrind-out-file=%s/counts "$0" "$@"; else exec "$0" "$@"; fi' % (function, function, where))
        # UNISONO_LEND=0: whether messages are read where they lie is decided by time, and not in the same call of each run.
        run(build, ["sh", "-c", script, os.path.join(build, "bench", "op_loop"), loop, str(size), str(TIMES), str(nap_us)], UNISONO_LEND="0")
        dumps = [open(f, encoding="utf-8").read() for f in glob.glob(where + "/counts.*")]
    return [int(re.search(r"^summary: (\d+)", d, re.M).group(1)) for d in dumps if "Trigger: --dump-after" in d]


def instructions(build, call, size):
    """The count that comes most often. Too seldom: rank 0 was late, so sleep longer."""
    loop, function = CALLS[call]
    for nap_us in (NAP_US, 5 * NAP_US, 20 * NAP_US):
        seen = collections.Counter(counted(build, loop, function, size, nap_us)).most_common()
        if seen and seen[0][1] >= LEAST:
            return min(n for n, times in seen if times == seen[0][1])
    sys.exit("op_cost: %s of %d bytes: no count came %d times in %d calls; is the machine busy?" % (call, size, LEAST, TIMES))


def nanoseconds(build, call, size, times):
    return float(run(build, [os.path.join(build, "bench", "op_loop"), CALLS[call][0], str(size), str(times)]).split()[-1])


def toolchain(build):
    """What the counts depend on beside the source: compiler, C library, vector instructions. Or why this build is not comparable."""
    with open(os.path.join(build, "meson-info", "intro-buildoptions.json"), encoding="utf-8") as f:
        options = {o["name"]: o["value"] for o in json.load(f)}
    if options.get("buildtype") != "release" or options.get("b_sanitize", "none") != "none":
        return None, "the counts are those of a release build without sanitizers"
    if not shutil.which("valgrind"):
        return None, "valgrind is not installed"
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        wide = "avx2" if " avx2 " in f.read() else "noavx2"
    with open(os.path.join(build, "src", "libunisono.so"), "rb") as f:
        said = f.read() # a compiler signs what it makes, the linker adds its startup files'
    cc = re.search(rb"(clang) version (\d+\.\d+)", said) or re.search(rb"(GCC): \([^)]*\) (\d+\.\d+)", said)
    if not cc:
        return None, "the library does not say which compiler made it"
    return "%s-%s %s-%s %s-%s" % (*(g.decode().lower() for g in cc.groups()), *platform.libc_ver(), platform.machine(), wide), None


def read_table(path):
    with open(path, encoding="utf-8") as f:
        rows = [line.rstrip("\n").split("\t") for line in f if line.strip() and not line.startswith("#")]
    return [(chain, call, int(size), int(count)) for chain, call, size, count in rows]


def write_table(path, chain, build):
    old = read_table(path) if os.path.exists(path) else []
    rows = [r for r in old if r[0] != chain] + [(chain, call, size, instructions(build, call, size)) for call, size in RECORDED]
    with open(path, "w", encoding="utf-8") as f:
        f.write("# Instructions of one call between two processes whose partner has done its part; bench/op_cost.py writes and checks them.\n"
                "# toolchain\tcall\tbytes\tinstructions\n")
        f.writelines("%s\t%s\t%d\t%d\n" % r for r in rows)


def check_table(path, chain, build):
    rows = [r for r in read_table(path) if r[0] == chain]
    if not rows:
        print("op_cost: %s has no counts of %s; --write records them" % (path, chain))
        return SKIPPED
    bad = 0
    for _, call, size, recorded in rows:
        now = instructions(build, call, size)
        word = "ok"
        if now > recorded * (1 + SLACK):
            word, bad = "more than %.0f %% more: find out why, or record it with --write" % (SLACK * 100), 1
        elif now < recorded * (1 - SLACK):
            word = "fewer: record it with --write"
        print("%-12s %8d bytes: %7d instructions, recorded %7d, %+.1f %%: %s" %
              (call, size, now, recorded, (now / recorded - 1) * 100, word))
    return bad


def compare(args, builds):
    count = [instructions(b, args.call, args.bytes) for b in builds]
    times = [[] for _ in builds]
    for _ in range(args.runs):
        for i, b in enumerate(builds):
            times[i].append(nanoseconds(b, args.call, args.bytes, args.times))
    print("%s of %d bytes, 2 processes on 2 processors; time: median (least-most) of %d runs%s" %
          (args.call, args.bytes, args.runs, ", half of there and back" if args.call in ("send", "recv") else ""))
    for i, b in enumerate(builds):
        t = times[i]
        print("%-24s %6d instructions %8.1f ns (%.1f-%.1f)" % (args.build[i], count[i], statistics.median(t), min(t), max(t)))
    if len(builds) == 2:
        # Each pair's own difference: what disturbs a pair disturbs both.
        both = [a - b for a, b in zip(*times)]
        print("%-24s %6d instructions %8.1f ns" % ("difference", count[0] - count[1], statistics.median(both)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="+", help="one or two build directories")
    parser.add_argument("--call", choices=sorted(CALLS), default="all_reduce")
    parser.add_argument("--bytes", type=int, default=8)
    parser.add_argument("--runs", type=int, default=20, help="timed runs of each build, alternating")
    parser.add_argument("--times", type=int, default=200000, help="calls in a timed run")
    parser.add_argument("--check", metavar="FILE", help="count what is recorded there, and compare")
    parser.add_argument("--write", metavar="FILE", help="record counts")
    args = parser.parse_args()
    builds = [os.path.abspath(b) for b in args.build[:2]]
    chain, why = toolchain(builds[0])
    if why:
        print("op_cost: not counted: %s" % why)
        return SKIPPED
    if args.write:
        return write_table(args.write, chain, builds[0])
    if args.check:
        return check_table(args.check, chain, builds[0])
    return compare(args, builds)


if __name__ == "__main__":
    sys.exit(main())
