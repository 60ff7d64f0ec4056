#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Is what the planner chooses the best there is? `unisono perf --choices` for each collective and number of ranks, as one table.

    bench/choices.py build                      all cells, in a few minutes
    bench/choices.py build --coll all_reduce --ranks 2,4 --sizes 8:4M:8 --write bench/CHOICES.md

A cell is good when the chosen algorithm takes at most 10 % more than the best of all that fit, in rounds in which all take turns.
"""
import argparse
import json
import os
import subprocess
import sys
import time

from cells import time_words, words

COLLS = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "gather", "scatter", "barrier"]
GOOD = 1.1


def measure(build, coll, ranks, sizes):
    first, last, factor = sizes
    command = [os.path.join(build, "cli", "unisono"), "perf", coll, "--ranks", str(ranks), "-b", first, "-e", last, "-f", factor, "-n", "2",
               "-c", "0", "--choices", "--json", "-"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=1800)
    if done.returncode != 0:
        sys.exit("choices: %s\n%s" % (" ".join(command), done.stderr))
    return json.loads(done.stdout)["results"]


def algorithm(explanation):
    return explanation.split(" host", 1)[1].split(": ", 1)[1].split(", ")[0].split(" ")[0].rstrip(";")


def rows(coll, ranks, results):
    for r in results:
        times = r["choices"]["forced_us"]
        best = min(times, key=times.get)
        yield {"coll": coll, "ranks": ranks, "size": r["size"], "chosen": algorithm(r["explanation"]), "best": best,
               "ratio": r["choices"]["chosen_to_best"], "best_us": times[best], "times": times}


def table(found, machine_note):
    good = sum(r["ratio"] <= GOOD for r in found)
    lines = ["# Chosen and best", "",
             "`bench/choices.py`: of every algorithm that fits, the lower quartile of the rounds in which all take turns. %s" % machine_note,
             "The chosen algorithm is within 10 %% of the best one in **%d of %d cells, %.0f %%**." % (good, len(found), 100 * good / len(found)), "",
             "| collective | ranks | size | chosen | best | takes | chosen / best |", "|---|---|---|---|---|---|---|"]
    for r in found:
        mark = "**%.2f**" if r["ratio"] > GOOD else "%.2f"
        lines.append("| %s | %d | %s | %s | %s | %s | %s |" % (r["coll"], r["ranks"], words(r["size"]), r["chosen"], r["best"],
                                                            time_words(r["best_us"] / 1e6), mark % r["ratio"]))
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--coll", default=",".join(COLLS), help="collectives, comma list")
    parser.add_argument("--ranks", default="2,4,8")
    parser.add_argument("--sizes", default="8:16M:8", help="first:last:factor")
    parser.add_argument("--write", metavar="FILE", help="write the table there")
    parser.add_argument("--json", metavar="FILE", help="write every algorithm's times there")
    args = parser.parse_args()
    found, start = [], time.monotonic()
    for coll in args.coll.split(","):
        for ranks in [int(r) for r in args.ranks.split(",")]:
            new = list(rows(coll, ranks, measure(os.path.abspath(args.build), coll, ranks, args.sizes.split(":"))))
            found += new
            if args.json: # after each: a machine may be wanted for something else
                with open(args.json, "w", encoding="utf-8") as f:
                    json.dump(found, f, indent=1)
            print("%5.0f s  %-15s %d ranks: %d of %d cells good, worst %.2f" % (
                time.monotonic() - start, coll, ranks, sum(r["ratio"] <= GOOD for r in new), len(new), max(r["ratio"] for r in new)),
                  file=sys.stderr, flush=True)
    text = table(found, "Machine: %d processors, load %.1f at the end." % (os.cpu_count(), os.getloadavg()[0]))
    if args.write:
        with open(args.write, "w", encoding="utf-8") as f:
            f.write(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
