#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""RESULTS.md, results.csv and the plots, from what bench.py has measured.

    bench/report.py RAW.jsonl [FOLDER]      default folder: the raw data's
"""
import collections
import csv
import json
import os
import statistics
import sys

import checks
import plots
import reasons
from cells import COLLS, Cell, time_words, words
from statistics_of import interval, ratio

OURS, REFUSED = "unisono", "unisono-refused"


def is_raw(name):
    return name.startswith("raw-")


def read_rows(path):
    """Whole lines only: a run that was ended may have left half a line."""
    if not os.path.exists(path):
        return []
    with open(path) as f:
        return [json.loads(text) for text in f if text.endswith("\n")]


class Data:
    """times[cell][name]: one median of batches a round, seconds; refused[cell][name]: why there is none."""

    def __init__(self, rows):
        self.rows = rows
        self.times = collections.defaultdict(lambda: collections.defaultdict(list))
        self.refused = collections.defaultdict(dict)
        self.floors = collections.defaultdict(lambda: collections.defaultdict(list))
        self.wrong, self.rounds = 0, 0
        for row in rows:
            if row["what"] == "cell":
                self._cell(row, Cell(*row["cell"]))
        self.peers = [n for n in self.names() if n not in (OURS, REFUSED) and not is_raw(n)]

    def _cell(self, row, cell):
        self.rounds = max(self.rounds, row["round"] + 1)
        if row["name"] == "floor":
            for p in row["prototypes"]:
                self.floors[cell, p["memory"]][p["name"], p["chunk"]].append(p["seconds"])
        elif "seconds" in row:
            self.times[cell][row["name"]].append(statistics.median(row["seconds"]))
            self.wrong += row["wrong"]
        else:
            self.refused[cell][row["name"]] = row["no"]

    def names(self):
        found = []
        for by_name in self.times.values():
            found += [n for n in by_name if n not in found]
        return found

    def last(self, what):
        found = [r for r in self.rows if r["what"] == what]
        return found[-1] if found else {}

    def best_peer(self, cell, among=None):
        """(name, values) of the peer with the least median, or None."""
        known = [(statistics.median(v), n, v) for n, v in self.times[cell].items() if n in (among or self.peers)]
        return min(known)[1:] if known else None

    def best_raw(self, cell):
        known = [(statistics.median(v), v) for n, v in self.times[cell].items() if is_raw(n)]
        return min(known)[1] if known else None

    def best_floor(self, cell, memory="ordinary"):
        """(name, values) of the prototype and chunk with the least median."""
        of = self.floors[cell._replace(kind="out of place"), memory]
        known = [(statistics.median(v), n, v) for (n, _), v in of.items()]
        return min(known)[1:] if known else None

    def cells(self, **want):
        return sorted((c for c in self.times if all(getattr(c, k) == v for k, v in want.items())),
                      key=lambda c: (c.where != "host", c.where, c.ranks, COLLS.index(c.coll), c.kind, c.bytes))


def ratio_words(r):
    return "%.2f (%.2f-%.2f)" % r


def value_words(values):
    middle, low, high = interval(values)
    return "%s (%s-%s)" % (time_words(middle), time_words(low), time_words(high))


def titles(data):
    return {n: t for n, (t, _) in data.last("peers").get("settings", {}).items()}


# ---- parts of the page -----------------------------------------------------------------------------------------------------------

def head(data):
    m = data.last("machine")
    most_busy = max(r["busy"] for r in data.rows if r["what"] == "machine")
    yield "# Results\n"
    yield "Made by `bench/bench.py` (see there); `results.csv` beside this page has every median and interval, and the raw data stay in the build folder.\n"
    yield ("%s, %d processors, %.0f GB, kernel %s, %s; busy with other work when it began: %.1f %%. %d rounds, in each of which every implementation is measured "
           "once in every cell, in turn. A time is the median over rounds of a round's median of 3 batches (slowest rank; calls back to back, "
           "same buffers); in brackets the bootstrap 95 %% interval. Ratios are ratios of medians with the bootstrap 95 %% interval. "
           "Results were checked in the first round: %d wrong elements.\n" %
           (m["processor"], m["processors"], m["memory_gb"], m["kernel"], m["date"], most_busy * 100, data.rounds, data.wrong))
    if most_busy > 0.1 or data.rounds < 7:
        yield "**Not a measurement to quote:** %s.\n" % " and ".join(
            (["the machine was busy (%.0f %%)" % (most_busy * 100)] if most_busy > 0.1 else []) +
            (["%d rounds are too few" % data.rounds] if data.rounds < 7 else []))


def who(data):
    versions = {r["name"]: r["version"] for r in data.rows if r["what"] == "version"}
    about = data.last("peers")
    yield "## Who is compared\n"
    yield "| | version | settings |\n|---|---|---|"
    for name, (title, settings) in about["settings"].items():
        if name in versions:
            yield "| %s | %s | %s |" % (title, versions[name], settings)
    yield ""
    for name, why in about["missing"].items():
        yield "- not here: **%s**: %s" % (about["settings"][name][0], why)
    failed = {}
    for r in data.rows:
        if r["what"] == "failed":
            failed[r["name"], r["ranks"], r["hosts"]] = r["why"].split(":")[0]
    for (name, ranks, hosts), why in failed.items():
        yield "- %s with %d ranks on %s could not be started: %s" % (titles(data).get(name, name), ranks, "one host" if hosts == 1 else "%d hosts" % hosts, why)
    yield ""


def idle(data):
    worst = {}
    for r in data.rows:
        if r["what"] == "idle":
            worst[r["name"]] = max(worst.get(r["name"], 0), r["processor_s"] / max(1e-9, r["of_s"]) * 100)
    if worst:
        yield "Processor time of ranks while others were measured, worst block: %s.\n" % ", ".join(
            "%s %.2f %%" % (titles(data).get(n, n), v) for n, v in sorted(worst.items()))


def machine_limits(data):
    values = collections.defaultdict(list)
    for r in data.rows:
        for f in r.get("facts", []) if r["what"] == "facts" else []:
            values[f["name"], f["unit"]].append(f["value"])
    if not values:
        return
    yield "## What the machine allows\n"
    yield "| | median | interval |\n|---|---|---|"
    for (name, unit), v in values.items():
        yield "| %s | %.3g %s | %.3g-%.3g |" % ((name, interval(v)[0], unit) + interval(v)[1:])
    yield ""


def table(data, cells, with_floor):
    others = [n for n in data.peers if any(n in data.times[c] for c in cells)]
    extra = [n for n in data.names() if (n == REFUSED or is_raw(n)) and any(n in data.times[c] for c in cells)]
    named = titles(data)
    yield "| size | Unisono | best other | ratio to it |" + (" limit | ratio to it |" if with_floor else "") + "".join(
        " %s |" % named.get(n, n) for n in extra + others)
    yield "|" + "---|" * (4 + 2 * with_floor + len(extra + others))
    for c in cells:
        ours, best = data.times[c].get(OURS), data.best_peer(c)
        floor = data.best_floor(c, "shared" if c.kind == "lent" else "ordinary") if with_floor else None
        if c.kind == "lent":
            best = data.best_peer(c._replace(kind="out of place"))
        row = [words(c.bytes), value_words(ours) if ours else "-", named.get(best[0], best[0]) if best else "-",
               ratio_words(ratio(ours, best[1])) if ours and best else "-"]
        if with_floor:
            row += [time_words(statistics.median(floor[1])) + " " + floor[0] if floor else "-",
                    ratio_words(ratio(ours, floor[1])) if ours and floor else "-"]
        for n in extra + others:
            v = data.times[c].get(n)
            row.append(time_words(statistics.median(v)) if v else "-")
        yield "| " + " | ".join(row) + " |"
    yield ""


def all_tables(data, folder):
    for where, ranks in sorted({(c.where, c.ranks) for c in data.times}, key=lambda w: (w[0] != "host", w)):
        yield "## %d ranks, %s\n" % (ranks, "one host" if where == "host" else where)
        for coll in COLLS:
            for kind in ("out of place", "in place", "lent"):
                cells = data.cells(where=where, ranks=ranks, coll=coll, kind=kind)
                if not cells:
                    continue
                name = {"lent": ", memory of uno_mem_alloc (the others: ordinary memory)", "in place": ", in place"}.get(kind, "")
                yield "### %s%s\n" % (coll.replace("_", "-"), name)
                if len(cells) > 2:
                    yield "![%s](%s)\n" % (coll, plots.draw(data, cells, folder, titles(data)))
                yield from table(data, cells, where == "host" and ranks == 2 and coll == "all_reduce")


def joining(data):
    by = collections.defaultdict(lambda: collections.defaultdict(list))
    for r in data.rows:
        if r["what"] == "join" and "barrier_s" in r:
            by[r["ranks"]][r["name"]].append(r["barrier_s"])
    if by:
        yield "## Joining, until the first barrier is done\n"
        yield "From the moment all processes are told to join; launchers are not counted.\n"
        yield "| processes |" + "".join(" %s |" % titles(data).get(n, n) for n in [OURS] + data.peers)
        yield "|" + "---|" * (2 + len(data.peers))
        for ranks, names in sorted(by.items()):
            yield "| %d | " % ranks + " | ".join(value_words(names[n]) if names.get(n) else "-" for n in [OURS] + data.peers) + " |"
        yield ""


def resident(data):
    rows = [r for r in data.rows if r["what"] == "memory"]
    if rows:
        yield "## Memory, 8 ranks: growth of a rank after all-reduce and all-to-all of 64 MB\n"
        yield "| | when joined, MB | growth, MB, most of the ranks |\n|---|---|---|"
        for r in rows:
            yield "| %s | %s | %s |" % (titles(data).get(r["name"], r["name"]), "%.1f" % (max(r["joined_kb"]) / 1024) if "joined_kb" in r else "-",
                                        "%.1f" % (max(r["grown_kb"]) / 1024) if "grown_kb" in r else "failed: " + r["no"].split(":")[0])
        yield ""


def aims(data):
    yield "## Aims\n"
    yield "| aim | limit | measured | |\n|---|---|---|---|"
    found = list(checks.all_checks(data))
    for c in found:
        yield "| %s | %s | %s | %s |" % (c.aim, c.limit, c.figure, {True: "reached", False: "**not reached**", None: "not measured"}[c.reached])
    yield ""
    missed = collections.defaultdict(list)
    for c in found:
        if c.reached is False:
            missed[reasons.of(c.aim) or "not known yet"].append(c.aim)
    if missed:
        yield "Why not:\n"
        yield from ("- *%s*: %s" % ("*; *".join(of), why) for why, of in missed.items())
        yield ""


def write_csv(data, path):
    with open(path, "w", newline="") as f:
        f.write("# SPDX-License-Identifier: Apache-2.0\n")
        out = csv.writer(f)
        out.writerow(("where", "ranks", "collective", "kind", "bytes", "name", "rounds", "median_s", "low_s", "high_s"))
        for c in data.cells():
            for n, v in data.times[c].items():
                out.writerow(list(c) + [n, len(v)] + ["%.6g" % x for x in interval(v)])
            for memory in ("ordinary", "shared"):
                for (n, chunk), v in data.floors.get((c, memory), {}).items():
                    out.writerow(list(c) + ["floor %s %s %d" % (memory, n, chunk), len(v)] + ["%.6g" % x for x in interval(v)])


def write(raw, folder):
    data = Data(read_rows(raw))
    os.makedirs(folder, exist_ok=True)
    parts = [head(data), aims(data), who(data), idle(data), machine_limits(data), all_tables(data, folder), joining(data), resident(data)]
    text = "\n".join(line for part in parts for line in part)
    with open(os.path.join(folder, "RESULTS.md"), "w") as f:
        f.write(text.rstrip("\n") + "\n")
    write_csv(data, os.path.join(folder, "results.csv"))


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or not os.path.exists(sys.argv[1]):
        sys.exit(__doc__)
    write(sys.argv[1], sys.argv[2] if len(sys.argv) == 3 else os.path.dirname(os.path.abspath(sys.argv[1])))
