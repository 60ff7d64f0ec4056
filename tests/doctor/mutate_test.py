#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mutate_test.py UNISONO DATA [SEED] - the same diagnosis when a text is what real life makes of it: with prefixes of launchers, colours, CRLF,
repeated, in pieces at both ends, its lines shuffled between files; nothing found in healthy logs, wherever they are cut; in topology files
only what is wrong."""
import glob
import json
import os
import random
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases_test import diagnose, inputs, judge  # noqa: E402

PREFIXES = {
    "srun": "0: ", "mpirun": "[1,0]<stdout>:", "kubernetes": "2031-05-14T02:10:44.123456789Z ", "ray": "(RayWorkerWrapper pid=4009, ip=10.77.0.7) ",
    "torchrun": "[default0]:", "kubectl": "[pod/job-0/main] ", "ours": "[0] ", "both": "[1,0]<stderr>:2031-05-14 02:10:44 ",
    "containerd": "2031-05-14T02:10:44.123456789Z stderr F ", "syslog": "May 14 02:10:44 node7 slurmstepd[812]: ", "journalctl": "2031-05-14T02:10:44+0000 node7 slurmstepd[812]: ", "compose": "worker-1  | ",
}
# Where the order of lines is what they say: tables, reports, scripts, and sections of a pasted text. All others are shuffled between files.
ORDERED = {"B18", "B48", "B61", "B75", "B86", "B98", "B100", "B107", "B120", "S01", "S03", "A07", "A12"}


def colour(line):
    return "\033[36m" + line + "\033[0m" if line.strip() else line


def shuffled(lines, rng):
    lines = list(lines)
    rng.shuffle(lines)
    cuts = sorted(rng.sample(range(len(lines) + 1), 2)) if len(lines) > 2 else [0, 0]
    return [lines[:cuts[0]], lines[cuts[0]:cuts[1]], lines[cuts[1]:]]


def mutations(text, rng, ordered):
    """(name, list of the texts of files)"""
    lines = text.rstrip("\n").split("\n")
    for name, prefix in PREFIXES.items():
        yield name, ["\n".join(prefix + l for l in lines) + "\n"]
    yield "coloured", ["\n".join(colour(l) for l in lines) + "\n"]
    yield "colour and prefix", ["\n".join("\033[36m(worker pid=7)\033[0m " + l for l in lines) + "\n"]
    yield "CRLF", [text.replace("\n", "\r\n")]
    yield "a byte order mark", ["\ufeff" + text]
    several = rng.choice(list(PREFIXES.values())) + rng.choice(list(PREFIXES.values()))
    yield "prefixes of two, colour and CRLF", ["".join(several + colour(l) + "\r\n" for l in lines)]
    yield "100 times", [text * 100]
    yield "between others", ["rank7]: the second half of some line\nanother line = of no meaning\n" + text + "and the first half of an"]
    yield "no last newline", [text.rstrip("\n")]
    if not ordered:
        for _ in range(3):
            yield "shuffled", ["\n".join(part) + "\n" for part in shuffled(lines, rng)]


def run(unisono, texts, suffix=".txt"):
    with tempfile.TemporaryDirectory() as folder:
        for i, text in enumerate(texts):
            if text.strip():
                with open(os.path.join(folder, "part%d%s" % (i, suffix)), "w", encoding="utf-8", newline="") as f:
                    f.write(text)
        return diagnose(unisono, [folder])


def spaced(data):
    return json.dumps(json.loads(data), indent=2).encode()


def whole_files(unisono, paths, case, kinds, patterns, wrong):
    """Dumps and machines: what a transfer or an editor makes of them, and another name in front."""
    ways = {"CRLF": lambda d: d.replace(b"\n", b"\r\n"), "a byte order mark": lambda d: b"\xef\xbb\xbf" + d, "blank lines in front": lambda d: b"\n\n" + d, "written out": spaced}
    count = 0
    for name, way in ways.items():
        if any(p.endswith(".gz") for p in paths) or (name in ("written out", "blank lines in front") and not all(p.endswith(".json") for p in paths)):
            continue
        with tempfile.TemporaryDirectory() as folder:
            for path in paths:
                with open(path, "rb") as f, open(os.path.join(folder, "job7-" + os.path.basename(path)), "wb") as to:
                    to.write(way(f.read()))
            why = judge(diagnose(unisono, [folder]), kinds, patterns)
        count += 1
        if why:
            wrong.append("%s %s: %s" % (case, name, why))
    return count


def cases(unisono, folder, rng, wrong):
    count = 0
    with open(os.path.join(folder, os.path.basename(folder) + ".tsv"), encoding="utf-8") as f:
        rows = [(line.rstrip("\n").split("\t") + ["", ""])[:3] for line in f if line.strip()]
    for case, kinds, patterns in rows:
        paths = inputs(folder, case)
        if len(paths) != 1 or not paths[0].endswith((".txt", ".log", ".out")):
            count += whole_files(unisono, paths, case, kinds, patterns, wrong)
            continue
        with open(paths[0], encoding="utf-8", newline="") as f:
            text = f.read().replace("\r\n", "\n")
        for name, texts in mutations(text, rng, case in ORDERED):
            count += 1
            why = judge(run(unisono, texts), kinds, patterns)
            if why:
                wrong.append("%s %s: %s" % (case, name, why))
    return count


def healthy(unisono, folder, rng, wrong):
    count = 0
    for path in sorted(glob.glob(os.path.join(folder, "*"))):
        with open(path, encoding="utf-8", newline="") as f:
            text = f.read()
        variants = [("whole", [text])] + list(mutations(text, rng, not path.endswith(".log")))
        for _ in range(12):
            a, b = sorted(rng.sample(range(len(text)), 2))
            if not path.endswith(".log"):  # half a name in a script is another name
                a, b = text.rfind("\n", 0, a) + 1, text.rfind("\n", 0, b) + 1
            variants.append(("cut at %d-%d" % (a, b), [text[a:b]]))
        for name, texts in variants:
            count += 1
            found = run(unisono, texts) if any(t.strip() for t in texts) else []
            if found:
                wrong.append("healthy %s %s: finds %s: %s" % (os.path.basename(path), name, found[0]["kind"], found[0]["headline"]))
    return count


# What is really wrong in these files: a speed in the wrong unit; two ports of 100 Gbit/s in a slot of four lanes.
LINT = {"topo_4p_940.xml": "1000 times", "topo_8p_rome_pcie.xml": "PCIe slot of 3 GB/s"}


def topologies(unisono, folder, wrong):
    paths = sorted(glob.glob(os.path.join(folder, "*", "*.xml")))
    for path in paths:
        found, lint = diagnose(unisono, [path]), LINT.get(os.path.basename(path))
        if len(found) != (1 if lint else 0) or (lint and lint not in found[0]["headline"]):
            wrong.append("%s: %s" % (os.path.basename(path), found))
    return len(paths)


def main():
    unisono, data = sys.argv[1:3]
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 20311
    rng, wrong = random.Random(seed), []
    print("seed %d" % seed)
    print("%d mutated cases" % (cases(unisono, os.path.join(data, "cases"), rng, wrong) + cases(unisono, os.path.join(data, "night"), rng, wrong)))
    print("%d healthy texts" % healthy(unisono, os.path.join(data, "healthy"), rng, wrong))
    print("%d topology files" % topologies(unisono, os.path.join(data, "topologies"), wrong))
    for line in wrong:
        print("  " + line[:400])
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
