#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All-reduce of the library against prototypes without it, in one run.

Each round measures, for each size, the prototypes (floors) and then `unisono perf`, on the same two processors with two
processes, so that both see the same state of the machine. Shown are medians of the rounds and the ratio library/best
prototype: for ordinary memory against the prototypes on ordinary memory, for shared memory against mapped buffers.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

SIZES = [8, 4 << 10, 64 << 10, 1 << 20, 64 << 20]
# An iteration count that makes a measurement last some ten milliseconds.
ITERS = {8: 20000, 4 << 10: 5000, 64 << 10: 1000, 1 << 20: 100, 64 << 20: 3}


def words(n):
    for unit, shift in (("MB", 20), ("KB", 10)):
        if n >= 1 << shift:
            return "%g %s" % (n / (1 << shift), unit)
    return "%d B" % n


def run_json(argv):
    done = subprocess.run(argv, stdout=subprocess.PIPE, timeout=900)
    if done.returncode != 0:
        sys.exit("compare: %s ended with status %d" % (" ".join(argv), done.returncode))
    return json.loads(done.stdout)


def floors(args, size):
    """Best time of each kind of memory, with the prototype's name."""
    found = run_json([args.floors, "--sizes", str(size), "--batches", "3", "--no-facts", "--json", "-"])["floors"]
    best = {}
    for row in found:
        kind = row["memory"]
        if kind not in best or row["us"] < best[kind][0]:
            best[kind] = (row["us"], row["prototype"])
    return best


def library(args, size, kind):
    iters = max(1, ITERS.get(size, max(3, (64 << 20) // max(size, 1024))) // args.shorten)
    out = run_json([args.unisono, "perf", "all_reduce", "--ranks", "2", "-b", str(size), "-e", str(size), "-n", str(iters),
                    "-w", str(max(2, iters // 5)), "-a", "3", "--warm", "--memory", kind, "--json", "-"])
    result = out["results"][0]["out_of_place"]
    if result["nwrong"]:
        sys.exit("compare: wrong results at %s" % words(size))
    return result["time"]


def spread(values):
    return "%.2f (%.2f-%.2f)" % (statistics.median(values), min(values), max(values))


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    build = os.path.join(here, "..", "build")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--unisono", default=os.path.join(build, "cli", "unisono"))
    parser.add_argument("--floors", default=os.path.join(build, "bench", "floors"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--shorten", type=int, default=1, help="divide the iterations by this, for a try")
    parser.add_argument("--sizes", help="comma list of bytes; default %s" % ",".join(map(str, SIZES)))
    parser.add_argument("--json", help="write medians and all rounds there")
    args = parser.parse_args()
    sizes = [int(s) for s in args.sizes.split(",")] if args.sizes else SIZES
    cells = {(size, kind): {"floor": [], "library": [], "names": []} for size in sizes for kind in ("ordinary", "shared")}
    for turn in range(args.rounds):
        for size in sizes:
            best = floors(args, size)
            for kind in ("ordinary", "shared"):
                cell = cells[size, kind]
                cell["floor"].append(best[kind][0])
                cell["names"].append(best[kind][1])
                cell["library"].append(library(args, size, kind))
        if sys.stderr.isatty():
            print("round %d of %d done" % (turn + 1, args.rounds), file=sys.stderr)
    print("all-reduce, float32, sum, 2 processes on 2 processors; us, median (least-most) of %d rounds" % args.rounds)
    print("%-9s %-9s %-28s %-28s %7s  %s" % ("size", "memory", "library", "best prototype", "ratio", "prototype"))
    table = []
    for size in sizes:
        for kind in ("ordinary", "shared"):
            cell = cells[size, kind]
            # Each round's own ratio: what disturbs a round disturbs both.
            ratio = statistics.median(l / f for l, f in zip(cell["library"], cell["floor"]))
            name = statistics.mode(cell["names"])
            print("%-9s %-9s %-28s %-28s %6.2fx  %s" % (words(size), kind, spread(cell["library"]), spread(cell["floor"]), ratio,
                                                        name))
            table.append({"bytes": size, "memory": kind, "ratio": ratio, "prototype": name, "library_us": cell["library"],
                          "floor_us": cell["floor"]})
    if args.json:
        with open(args.json, "w") as f:
            json.dump({"rounds": args.rounds, "rows": table}, f, indent=1)


if __name__ == "__main__":
    main()
