#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mutate_test.py UNISONO DATA [SEED] - the same diagnosis when a text is what real life makes of it: with prefixes of launchers, colours, CRLF,
repeated, in pieces at both ends, its lines shuffled between files; nothing found in healthy logs, wherever they are cut; in topology files
only what is wrong."""
import glob
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
# Where every line says by itself who speaks, lines may come in any order and from several files.
BY_LINE = ["B01", "B03", "B24", "B39", "B65", "B72", "B87", "B112", "B117", "B123", "B124", "B127", "H01", "H03"]


def colour(line):
    return "\033[36m" + line + "\033[0m" if line.strip() else line


def shuffled(lines, rng):
    lines = list(lines)
    rng.shuffle(lines)
    cuts = sorted(rng.sample(range(len(lines) + 1), 2)) if len(lines) > 2 else [0, 0]
    return [lines[:cuts[0]], lines[cuts[0]:cuts[1]], lines[cuts[1]:]]


def mutations(case, text, rng):
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
    if case in BY_LINE:
        for _ in range(3):
            yield "shuffled", ["\n".join(part) + "\n" for part in shuffled(lines, rng)]


def run(unisono, texts, suffix=".txt"):
    with tempfile.TemporaryDirectory() as folder:
        for i, text in enumerate(texts):
            if text.strip():
                with open(os.path.join(folder, "part%d%s" % (i, suffix)), "w", encoding="utf-8", newline="") as f:
                    f.write(text)
        return diagnose(unisono, [folder])


def cases(unisono, folder, rng, wrong):
    count = 0
    with open(os.path.join(folder, os.path.basename(folder) + ".tsv"), encoding="utf-8") as f:
        rows = [(line.rstrip("\n").split("\t") + ["", ""])[:3] for line in f if line.strip()]
    for case, kinds, patterns in rows:
        paths = inputs(folder, case)
        if len(paths) != 1 or not paths[0].endswith((".txt", ".log", ".out")):
            continue
        with open(paths[0], encoding="utf-8", newline="") as f:
            text = f.read().replace("\r\n", "\n")
        for name, texts in mutations(case, text, rng):
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
        variants = [("whole", [text])] + list(mutations("H01" if path.endswith(".log") else "", text, rng))
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
