#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cases_test.py UNISONO CASES - every case of the table CASES/*.tsv: the kind that must be first, and the patterns its headline with its explanation
must name. Healthy ones must have no finding. A case that is not right is listed; all must be right, and be no fewer than DEMANDED."""
import glob
import json
import os
import re
import subprocess
import sys

DEMANDED = {"cases": 48, "night": 14}


def inputs(folder, case):
    return sorted(p for p in glob.glob(os.path.join(folder, case + ".*")) if not p.endswith(".expect"))


def diagnose(unisono, paths):
    p = subprocess.run([unisono, "doctor", "--json", *paths], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    if p.returncode not in (0, 1):
        raise AssertionError("exit status %d: %s%s" % (p.returncode, p.stdout, p.stderr))
    answer = json.loads(p.stdout)
    assert answer["version"] == 1 and (p.returncode == 1) == bool(answer["findings"]), p.stdout
    return answer["findings"]


def judge(findings, kinds, patterns):
    """What is wrong with these findings, or None."""
    if kinds == "none":
        return "finds %s: %s" % (findings[0]["kind"], findings[0]["headline"]) if findings else None
    if not findings:
        return "finds nothing"
    first = findings[0]
    said = first["headline"] + " " + first["explanation"]
    if first["kind"] not in kinds.split("|"):
        return "first is %s (%s), not %s" % (first["kind"], first["headline"], kinds)
    missing = [p for p in patterns.split(";") if p.strip() and not re.search(p, said, re.I)]
    return "does not name %s: %s" % (missing, said) if missing else None


def main():
    unisono, folder = sys.argv[1:3]
    wrong = []
    name = os.path.basename(folder)
    with open(os.path.join(folder, name + ".tsv"), encoding="utf-8") as f:
        rows = [line.rstrip("\n").split("\t") for line in f if line.strip()]
    for case, kinds, patterns in (r + [""] * (3 - len(r)) for r in rows):
        why = judge(diagnose(unisono, inputs(folder, case)), kinds, patterns)
        if why:
            wrong.append("%s %s" % (case, why))
    right = len(rows) - len(wrong)
    print("%d of %d cases: kind first and every fact" % (right, len(rows)))
    for line in wrong:
        print("  " + line)
    return 0 if right >= DEMANDED[name] and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
