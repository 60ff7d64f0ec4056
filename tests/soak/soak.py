#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""soak.py [options] SOAK - the endurance run: segments of random operations (soak.c), one after the other, each with a number of ranks, a
carrier and a seed that follow from the run's seed and the segment's number. A segment fails if a result is wrong, if memory or descriptors
of a rank grow in its second half or are not given back at its end, if it does not end, or if it leaves processes, shared memory or files
behind. With --log each segment adds
a line there, and a run that is started again with the same log goes on where it was, until the segments' seconds make up --time. Ends with
one line of totals; exit status 0: no segment failed. Needs Linux and Python's standard library."""
import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

CARRIERS = ["shm", "tcp", "threads", "hosts"]
MORE_DESCRIPTORS = 16  # slots of plans that had not been used before take some; what is lost with each operation would be hundreds
LINE = re.compile(r"soak: \d+ ranks, \w+, seed \d+: ([0-9.]+) s, (\d+) steps, (\d+) operations, (\w+); "
                  r"memory ([0-9 ]+) KB, descriptors ([0-9 ]+)$", re.M)


def seconds(text):
    m = re.fullmatch(r"([0-9.]+)([smhd]?)", text)
    if not m:
        raise argparse.ArgumentTypeError("%r is not a time such as 90s, 15m, 48h or 2d" % text)
    return float(m.group(1)) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[m.group(2)]


def shared_memory():
    return {n for n in os.listdir("/dev/shm") if n.startswith("uno")} if os.path.isdir("/dev/shm") else set()


def own_files():
    """The library's folder for ledgers of crashed jobs, were it made without being asked for: a segment has a folder of its own for that."""
    return {n for n in ("unisono-%d" % os.getuid(),) if os.path.exists(os.path.join("/tmp", n))}


def processes(mark):
    """Who has the segment's mark in its environment and is no corpse."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/environ" % pid, "rb") as f:
                if mark not in f.read().split(b"\0"):
                    continue
            with open("/proc/%s/stat" % pid, encoding="utf-8", errors="replace") as f:
                if f.read().rsplit(")", 1)[1].split()[0] not in "ZX":
                    found.append(int(pid))
        except (OSError, IndexError):
            pass
    return found


def not_flat(line, options):
    """Numbers are before joining, eight times while working, each after everything but the first communicator was let go, and after the end."""
    ranks = line["ranks"] if line["carrier"] == "threads" else 1  # there all are in one process
    memory, descriptors, problems = line["memory_kb"], line["descriptors"], []
    if memory[8] - memory[4] > options.grow_kb * ranks:
        problems.append("memory grew from %d to %d KB in the second half" % (memory[4], memory[8]))
    if memory[9] - memory[0] > options.keep_kb * ranks:
        problems.append("of %d KB before joining %d were left after the end" % (memory[0], memory[9]))
    if descriptors[8] - descriptors[4] > MORE_DESCRIPTORS * ranks:
        problems.append("descriptors grew from %d to %d in the second half" % (descriptors[4], descriptors[8]))
    if descriptors[9] > descriptors[0]:
        problems.append("of %d descriptors before joining there were %d after the end" % (descriptors[0], descriptors[9]))
    return problems


def run_segment(options, number):
    """One launch; what it said and what it left."""
    r = random.Random("%d/%d" % (options.seed, number))
    carrier = CARRIERS[number % len(CARRIERS)] if options.carrier is None else options.carrier
    ranks = r.randint(2, 8)
    seed = r.randrange(1 << 48)
    folder = tempfile.mkdtemp(prefix="soak-")
    mark = "SOAK_MARK=" + folder
    memory, files = shared_memory(), own_files()
    command = [options.soak, "--ranks", str(ranks), "--carrier", carrier, "--seed", str(seed), "--seconds", str(options.segment)]
    env = dict(os.environ, SOAK_MARK=folder, UNISONO_LEDGER_DIR=folder, TMPDIR=folder, UNISONO_TIMEOUT="300")
    began, problems, limit = time.monotonic(), [], options.segment * 2 + 400
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", env=env) as p:
        try:
            out, err = p.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            for pid in processes(mark.encode()):
                os.kill(pid, signal.SIGKILL)
            out, err = p.communicate()
            problems.append("it did not end within %.0f s" % limit)
        except BaseException:
            for pid in processes(mark.encode()):
                os.kill(pid, signal.SIGKILL)
            shutil.rmtree(folder, ignore_errors=True)
            raise
    found = LINE.search(out)
    if not found or p.returncode != 0 or found.group(4) != "right":
        problems.append("it failed with status %d" % p.returncode)
    line = {"segment": number, "ranks": ranks, "carrier": carrier, "seed": seed, "seconds": round(time.monotonic() - began, 1)}
    if found:
        line.update(steps=int(found.group(2)), operations=int(found.group(3)), memory_kb=[int(n) for n in found.group(5).split()],
                    descriptors=[int(n) for n in found.group(6).split()])
        if not problems:
            problems += not_flat(line, options)
    end = time.monotonic() + 5
    while processes(mark.encode()) and time.monotonic() < end:
        time.sleep(0.02)
    left = ["process %d" % p for p in processes(mark.encode())] + sorted(shared_memory() - memory) + sorted(own_files() - files)
    said = [l for l in err.splitlines() if l.strip()]
    wanted = problems or any(" is stuck for " in l or " holds the others up" in l for l in said)  # facts are kept for whom a verdict was said to
    left += [os.path.join(d, f) for d, _, fs in os.walk(folder) for f in fs if not wanted or "unisono-%d" % os.getuid() not in d]
    if left:
        problems.append("it left behind: " + ", ".join(left))
    shutil.rmtree(folder, ignore_errors=True)
    line.update(problems=problems, said=said[:20])
    return line


def read_log(path, seed):
    """Lines so far, and the seed. A torn last line is of a run that was stopped while it wrote: that segment is run again."""
    if not path or not os.path.exists(path):
        return [], seed
    lines, good = [], 0
    with open(path, "rb") as f:
        text = f.read()
    for raw in text.splitlines(keepends=True):
        try:
            lines.append(json.loads(raw))
        except ValueError as e:
            if good + len(raw) < len(text) or raw.endswith(b"\n"):
                sys.exit("soak: %s, line %d is not a line of a soak log: %s" % (path, len(lines) + 1, e))
            os.truncate(path, good)
            break
        good += len(raw)
    if not lines:
        return [], seed
    if "soak" not in lines[0] or (seed is not None and lines[0]["soak"] != seed):
        sys.exit("soak: %s is not the log of a run with seed %s; remove it to begin anew" % (path, seed))
    return lines[1:], lines[0]["soak"]


def note(path, line, first=False):
    if path:
        with open(path, "w" if first else "a", encoding="utf-8") as f:
            f.write(json.dumps(line) + "\n")
            f.flush()
            os.fsync(f.fileno())


def between(numbers):
    return "%d, %d to %d, %d" % (numbers[0], numbers[4], numbers[8], numbers[9]) if numbers else "?"


def tell(line):
    print("soak: segment %d: %d ranks, %s: %.1f s, %d operations, memory %s KB, descriptors %s: %s" % (
        line["segment"], line["ranks"], line["carrier"], line["seconds"], line.get("operations", 0), between(line.get("memory_kb")),
        between(line.get("descriptors")), "; ".join(line["problems"]) or "right"), flush=True)
    for said in line["said"]:
        print("  | " + said, flush=True)


def most(lines, key, a, b):
    return max((l[key][b] - l[key][a] for l in lines if key in l), default=0)


def totals(lines, seed):
    by = {c: sum(l["carrier"] == c for l in lines) for c in CARRIERS}
    print("soak: seed %d: %d segments (%s), %.2f hours, %d steps, %d operations, %d segments failed, in %d something was said; at most %d KB and %d "
          "descriptors more in a second half, %d KB and %d descriptors more after the end than before" % (
              seed, len(lines), ", ".join("%d %s" % (n, c) for c, n in by.items() if n), sum(l["seconds"] for l in lines) / 3600,
              sum(l.get("steps", 0) for l in lines), sum(l.get("operations", 0) for l in lines), sum(bool(l["problems"]) for l in lines),
              sum(bool(l["said"]) for l in lines), most(lines, "memory_kb", 4, 8), most(lines, "descriptors", 4, 8),
              most(lines, "memory_kb", 0, 9), most(lines, "descriptors", 0, 9)))


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("soak")
    p.add_argument("--time", type=seconds, default=3600.0, help="90s, 15m, 48h, 2d; of all segments in the log together (default 1h)")
    p.add_argument("--segment", type=seconds, default=120.0, help="of one segment (default 120s)")
    p.add_argument("--seed", type=int, help="default: the log's, else by the clock")
    p.add_argument("--log", metavar="FILE", help="add to it and go on from it")
    p.add_argument("--carrier", choices=CARRIERS, help="default: one after the other")
    p.add_argument("--grow-kb", type=int, default=16384, help="what a rank may grow by in the second half (default %(default)s)")
    p.add_argument("--keep-kb", type=int, default=8192, help="what a rank may keep after its last communicator (default %(default)s)")
    options = p.parse_args()
    options.soak = os.path.abspath(options.soak)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda n, _: sys.exit(128 + n))  # what was started is still ended
    lines, seed = read_log(options.log, options.seed)
    options.seed = int(time.time()) if seed is None else seed
    if not lines:
        note(options.log, {"soak": options.seed}, first=True)
    print("soak: seed %d, %d segments done" % (options.seed, len(lines)), flush=True)
    while sum(l["seconds"] for l in lines) < options.time:
        line = run_segment(options, len(lines))
        lines.append(line)
        note(options.log, line)
        tell(line)
    totals(lines, options.seed)
    return 1 if any(l["problems"] for l in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
