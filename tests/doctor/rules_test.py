#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""rules_test.py UNISONO RULES.TXT RULES.DEF DOCTOR.MD - every kind has its section in the documentation, and every rule has an input that it must
find (its kind first, the patterns in what it says) and a near miss in which nothing of its kind may be found."""
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases_test import diagnose  # noqa: E402


def sections(text):
    """(rule, fires or misses, what is expected, {file: text}), and the line that it begins in."""
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        head = re.match(r"== (\w+) (fires|misses) (.*)", line)
        if head:
            found.append((*head.groups(), {"input.log": ""}, number))
            name = "input.log"
        elif found and line.startswith("@@ "):
            name = line[3:].strip()
            found[-1][3][name] = ""
        elif found:
            found[-1][3][name] += line + "\n"
    return found


def run(unisono, files):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            if text.strip():
                with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
                    f.write(text)
        return diagnose(unisono, [folder])


def judge(found, way, expected):
    kind, *patterns = [p.strip() for p in expected.split(";")]
    if way == "misses":
        hits = [f["headline"] for f in found if f["kind"] == kind]
        return "finds " + hits[0] if hits else None
    if not found:
        return "finds nothing"
    said = found[0]["headline"] + " " + found[0]["explanation"]
    if found[0]["kind"] != kind:
        return "first is %s: %s" % (found[0]["kind"], found[0]["headline"])
    if not found[0]["evidence"] or not found[0]["remedies"]:
        return "has no evidence or no remedy"
    missing = [p for p in patterns if not re.search(p, said, re.I)]
    return "does not name %s: %s" % (missing, said) if missing else None


def main():
    unisono, inputs, table, page = sys.argv[1:5]
    with open(inputs, encoding="utf-8") as f:
        every = sections(f.read())
    with open(table, encoding="utf-8") as f:
        rules = re.findall(r'^RULE\("([\w-]+)",\s*(\w+),', f.read(), re.M)
    with open(page, encoding="utf-8") as f:
        told = set(re.findall(r"^### ([\w-]+)$", f.read(), re.M))
    wrong = ["docs/doctor.md has no section " + k for k in sorted({k for k, _ in rules} - told)]
    wrong += ["docs/doctor.md has a section %s, which no rule finds" % k for k in sorted(told - {k for k, _ in rules} - {"none"})]
    wrong += ["%s has no input that %s" % (rule, way) for _, rule in rules for way in ("fires", "misses") if not any(s[0] == rule and s[1] == way for s in every)]
    for rule, way, expected, files, number in every:
        why = judge(run(unisono, files), way, expected)
        if why:
            wrong.append("line %d: %s %s: %s" % (number, rule, way, why))
    print("%d rules, %d inputs, %d wrong" % (len(rules), len(every), len(wrong)))
    for line in wrong:
        print("  " + line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
