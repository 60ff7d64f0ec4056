#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Unisono, the other libraries and the machine's limits, measured in one run and in turn.

Every implementation's ranks are started once and sleep while another one is measured; each cell (collective, size, ranks, place) is
measured in every round by all of them, in an order that turns from round to round. What was measured stands in OUT/raw.jsonl, one
line a measurement; a run that was ended goes on where it was. In the end report.py makes RESULTS.md of it.

    bench/bench.py                    everything, 7 rounds: hours
    bench/bench.py --quick            few sizes, 3 rounds: two minutes
"""
import argparse
import json
import os
import platform
import subprocess
import sys
import time

import cells
import groups
import hosts
import peers
import report

HERE = os.path.dirname(os.path.abspath(__file__))
OURS = peers.Peer("unisono", "Unisono", "as delivered; ranks bound", None)
REFUSED = peers.Peer("unisono-refused", "Unisono, process_vm_readv refused", "process_vm_readv refused by the kernel; ranks bound", None,
                     lambda folder, job: {"BENCH_REFUSE": "1"})
RAW = [peers.Peer("raw-%dk" % k, "raw TCP, %d KB" % k, "one connection, both directions at once, one thread that polls, at most %d KB a system call; sums "
                  "as pieces come in" % k, None, lambda folder, job, k=k: {"BENCH_CHUNK": str(k << 10)}) for k in (32, 128, 512)]
MOST_KEPT = 4 << 20  # larger buffers are given back after each measurement, as those of all ranks of all implementations add up


class Run:
    def __init__(self, args):
        self.args, self.done, self.iters = args, set(), {}
        self.path = os.path.join(args.out, "raw.jsonl")
        os.makedirs(args.out, exist_ok=True)
        if args.fresh and os.path.exists(self.path):
            os.unlink(self.path)
        for row in report.read_rows(self.path):
            self._note(row)
        self.file = open(self.path, "a")

    def _note(self, row):
        if row["what"] == "cell":
            self.done.add((row["name"], tuple(row["cell"]), row["round"]))
            if row.get("iters"):
                self.iters[row["name"], tuple(row["cell"])] = row["iters"]
        elif row["what"] in ("join", "memory", "facts", "idle"):
            self.done.add((row["what"], row.get("name"), row.get("ranks"), row.get("round")))

    def has(self, *key):
        return key in self.done

    def write(self, row):
        self._note(row)
        self.file.write(json.dumps(row) + "\n")
        self.file.flush()

    def say(self, text):
        print("%s  %s" % (time.strftime("%H:%M:%S"), text), file=sys.stderr)


def batch_seconds(args):
    return 0.004 if args.quick else 0.010


def choose_iters(group, run, cell, key):
    """Calls in a batch, so that it lasts some milliseconds; found once for each implementation and cell."""
    if key in run.iters:
        return run.iters[key]
    once, tried = 1.0, 1
    for tried in (1, 20):
        found = group.measure(cell.coll, cell.bytes, cell.kind == "in place", cell.kind == "lent", 1, 1, tried, tried == 1)
        if isinstance(found, str):
            return found
        if found[1]:
            return "%d wrong elements" % found[1]
        once = found[0][0]
        if once * 20 > 2 * batch_seconds(run.args):
            break
    return max(1, min(50000, int(batch_seconds(run.args) / max(once, 1e-8))))


def measure(group, run, cell, turn):
    key = (group.name, tuple(cell))
    row = {"what": "cell", "name": group.name, "cell": list(cell), "round": turn}
    try:
        iters = choose_iters(group, run, cell, key)
        if isinstance(iters, str):
            run.write(dict(row, no=iters))
            return
        found = group.measure(cell.coll, cell.bytes, cell.kind == "in place", cell.kind == "lent", max(1, iters // 5),
                              3, iters, turn == 0)
        if cell.bytes > MOST_KEPT:
            group.ask("free")
        if isinstance(found, str):
            run.write(dict(row, no=found))
        else:
            run.write(dict(row, seconds=found[0], wrong=found[1], iters=iters))
    except groups.Failed as why:
        run.write(dict(row, no="failed: %s" % why))
        raise


def floors(run, cell, turn):
    """The prototypes without the library, each with its best chunk size, on the same two processors."""
    if run.has("floor", tuple(cell), turn):
        return
    done = subprocess.run([run.args.floors, "--sizes", str(cell.bytes), "--batches", "3", "--no-facts", "--json", "-"],
                          stdout=subprocess.PIPE, check=True, timeout=1800)
    rows = json.loads(done.stdout)["floors"]
    run.write({"what": "cell", "name": "floor", "cell": list(cell), "round": turn, "prototypes": [
        {"name": r["prototype"], "memory": r["memory"], "chunk": r["chunk"], "seconds": r["us"] * 1e-6} for r in rows if not r["wrong"]]})


def facts(run):
    for turn in range(run.args.rounds):
        if not run.has("facts", None, None, turn):
            done = subprocess.run([run.args.floors, "--sizes", "8", "--batches", "1", "--json", "-"], stdout=subprocess.PIPE, check=True)
            run.write({"what": "facts", "round": turn, "facts": json.loads(done.stdout)["machine"]})


# ---- groups ------------------------------------------------------------------------------------------------------------------------

def worker_of(run, peer):
    if peer in RAW:
        return run.args.raw
    return run.args.worker if peer in (OURS, REFUSED) else peer.worker(run.args.folder)


def open_group(run, peer, job, limit_s=60):
    return groups.Group(peer.name, job.size, groups.starter(peer, run.args.folder, job, worker_of(run, peer)), limit_s)


class Block:
    """All implementations with so many ranks at one place, started when first needed; one that fails thrice is left out."""

    def __init__(self, run, implementations, job):
        self.run, self.job, self.peers = run, job, {p.name: p for p in implementations}
        self.open, self.failures, self.used = {}, {}, {}

    def group(self, name):
        if name not in self.open and self.failures.get(name, 0) < 3:
            try:
                self.open[name] = open_group(self.run, self.peers[name], self.job)
                self.used[name] = self.open[name].processor_s()
                self.run.write({"what": "version", "name": name, "version": self.open[name].version})
            except groups.Failed as why:
                self.failures[name] = 3
                self.run.say("%s with %d ranks: %s" % (name, self.job.size, why))
                self.run.write({"what": "failed", "name": name, "ranks": self.job.size, "hosts": len(self.job.hosts or [0]), "why": str(why)})
        return self.open.get(name)

    def one(self, name, cell, turn):
        group = self.group(name)
        if group is None:
            return
        before = group.processor_s()
        try:
            measure(group, self.run, cell, turn)
            self.used[name] = self.used.get(name, 0) + group.processor_s() - before
        except groups.Failed as why:
            self.failures[name] = self.failures.get(name, 0) + 1
            self.run.say("%s, %s: %s" % (name, cell, why))
            self.open.pop(name).close(hard=True)

    def close(self, began):
        """What the sleeping ranks used of the processors, in all their time."""
        for name, group in self.open.items():
            self.run.write({"what": "idle", "name": name, "ranks": self.job.size, "where": "%d hosts" % len(self.job.hosts or [0]),
                            "processor_s": group.processor_s() - self.used.get(name, 0), "of_s": time.monotonic() - began})
            group.close()


def run_block(run, where, implementations, job, some_sizes):
    work = cells.cells_of(where, job.size, some_sizes, run.args.quick)
    block, began = Block(run, implementations, job), time.monotonic()
    try:
        for turn in range(run.args.rounds):
            for cell in work:
                names = [p.name for p in implementations if cell.kind != "lent" or p.name == "unisono"]
                if not names:
                    continue
                names = names[turn % len(names):] + names[:turn % len(names)]
                if where == "host" and job.size == 2 and cell.coll == "all_reduce" and cell.kind == "out of place":
                    floors(run, cell, turn)
                for name in names:
                    if not run.has(name, tuple(cell), turn) and useful(name, cell):
                        block.one(name, cell, turn)
            run.say("%s, %d ranks: round %d of %d done" % (where, job.size, turn + 1, run.args.rounds))
    finally:
        block.close(began)


def useful(name, cell):
    if name == "unisono-refused":
        return cell.coll == "all_reduce"
    return not name.startswith("raw") or cell.coll in ("all_reduce", "all_gather", "send_recv", "broadcast")


def memory(run, implementations):
    for peer in implementations:
        if run.has("memory", peer.name, 8, None):
            continue
        try:
            group = open_group(run, peer, peers.Job(8, True, run.args.folder))
            before = group.resident_kb()
            for coll in ("all_reduce", "all_to_all"):
                group.measure(coll, 64 << 20, 0, 0, 0, 1, 1, 0)
            group.ask("free")
            grown = [b - a for a, b in zip(before, group.resident_kb())]
            run.write({"what": "memory", "name": peer.name, "ranks": 8, "joined_kb": before, "grown_kb": grown})
            group.close()
        except groups.Failed as why:
            run.write({"what": "memory", "name": peer.name, "ranks": 8, "no": str(why)})


def join(run, implementations, counts):
    slow = set()
    for ranks in counts:
        for turn in range(run.args.rounds):
            for peer in implementations:
                if run.has("join", peer.name, ranks, turn) or (peer.name, ranks) in slow:
                    continue
                began = time.monotonic()
                row = {"what": "join", "name": peer.name, "ranks": ranks, "round": turn}
                try:
                    group = open_group(run, peer, peers.Job(ranks, ranks > run.args.processors, run.args.folder), 120)
                    run.write(dict(row, joined_s=group.joined_s, barrier_s=group.barrier_s))
                    group.close(hard=peer.name != "unisono")
                except groups.Failed as why:
                    run.write(dict(row, no=str(why)))
                    slow.add((peer.name, ranks))
                if time.monotonic() - began > 8:
                    slow.add((peer.name, ranks))
        run.say("joining, %d ranks: done" % ranks)


def busy_share(seconds=2.0):
    """Of the processors' time, what others used during some seconds in which this program sleeps."""
    def ticks():
        with open("/proc/stat") as f:
            fields = [int(x) for x in f.readline().split()[1:9]]
        return sum(fields), fields[3] + fields[4]
    before = ticks()
    time.sleep(seconds)
    total, idle = (b - a for a, b in zip(before, ticks()))
    return 1 - idle / max(1, total)


def machine():
    model = "unknown processor"
    with open("/proc/cpuinfo") as f:
        for text in f:
            if text.startswith("model name"):
                model = text.split(":", 1)[1].strip()
    return {"what": "machine", "processor": model, "processors": len(os.sched_getaffinity(0)), "kernel": ".".join(platform.release().split(".")[:2]),
            "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1), "date": time.strftime("%Y-%m-%d"),
            "busy": busy_share()}


def main():
    build = os.path.join(HERE, "..", "build")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    peers.add_options(parser)
    parser.add_argument("--build", default=build, help="the build directory of Unisono")
    parser.add_argument("--quick", action="store_true", help="few sizes, 3 rounds, one host")
    parser.add_argument("--fresh", action="store_true", help="forget what an earlier run has measured")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--sizes", help="comma list of bytes")
    parser.add_argument("--ranks", help="comma list; default 2,4,8")
    parser.add_argument("--only", help="comma list of implementations")
    parser.add_argument("--parts", default="host,join,memory,hosts", help="comma list of what to measure; default %(default)s")
    parser.add_argument("--out", help="folder of the raw data; default BUILD/bench-full or BUILD/bench-quick")
    parser.add_argument("--results", help="folder of RESULTS.md; default this folder, with --quick the raw data's")
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    args.out = args.out or os.path.join(args.build, "bench-quick" if args.quick else "bench-full")
    args.results = args.results or (args.out if args.quick else HERE)
    args.rounds = args.rounds or (3 if args.quick else 7)
    args.worker, args.raw, args.floors = (os.path.join(args.build, "bench", n) for n in ("bench_worker", "bench_raw", "floors"))
    args.processors = len(os.sched_getaffinity(0))
    some_sizes = [int(s) for s in args.sizes.split(",")] if args.sizes else cells.QUICK_SIZES if args.quick else cells.SIZES
    ranks = [int(r) for r in args.ranks.split(",")] if args.ranks else [2, 4, 8]
    parts = args.parts.split(",")
    wanted = args.only.split(",") if args.only else ["unisono", "unisono-refused", "raw"] + [p.name for p in peers.PEERS]
    there, missing = peers.install_all(args, wanted)
    for name, why in missing.items():
        print("bench: without %s: %s" % (name, why), file=sys.stderr)
    run = Run(args)
    run.write(machine())
    run.write({"what": "peers", "missing": missing, "settings": {p.name: [p.title, p.settings] for p in [OURS, REFUSED] + RAW + peers.PEERS}})
    others = [p for p in peers.PEERS if p.name in there]
    everyone = ([OURS] if "unisono" in wanted else []) + others
    if "host" in parts:
        facts(run)
        for n in ranks:
            refused = [REFUSED] if n == 2 and REFUSED.name in wanted else []
            run_block(run, "host", everyone + refused, peers.Job(n, n > args.processors, args.folder), some_sizes)
    if "join" in parts:
        join(run, everyone, (8,) if args.quick else (8, 64))
    if "memory" in parts and not args.quick:
        memory(run, everyone)
    if "hosts" in parts and not args.quick:
        for n in (2, 4):
            with hosts.made(n) as job_hosts:
                if job_hosts is None:
                    run.say("network namespaces cannot be made here: nothing is measured between hosts")
                    break
                raw = RAW if n == 2 and "raw" in wanted else []
                run_block(run, "%d hosts" % n, everyone + raw, peers.Job(n, n > args.processors, args.folder, **job_hosts), some_sizes)
    run.file.close()
    report.write(run.path, args.results)
    print(os.path.join(args.results, "RESULTS.md"))


if __name__ == "__main__":
    main()
