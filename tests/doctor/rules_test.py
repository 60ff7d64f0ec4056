#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""rules_test.py UNISONO RULES.TXT RULES.DEF DOCTOR.MD - every kind has its page in the documentation, and every rule has an input that it must
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


def examples(unisono, page):
    """What the pages show as output of a job is found, as what the page is about."""
    wrong = []
    for name in sorted(os.listdir(os.path.join(os.path.dirname(page), "doctor"))):
        with open(os.path.join(os.path.dirname(page), "doctor", name), encoding="utf-8") as f:
            looks = f.read().split("## Why it happens")[0]
        shown = "".join(line[4:] + "\n" for line in looks.split("\n") if line.startswith("    "))
        found = [f["kind"] for f in run(unisono, {"input.log": shown})] if shown else [name[:-3]]
        if name[:-3] not in found:
            wrong.append("docs/doctor/%s shows what is not found as that, but as %s" % (name, found))
    return wrong


def undocumented(kinds, page):
    """Kinds without a page of their own, whole, that the table of DOCTOR.MD leads to; pages without a kind."""
    folder = os.path.join(os.path.dirname(page), "doctor")
    with open(page, encoding="utf-8") as f:
        told = set(re.findall(r"^\| \[([\w-]+)\]\(doctor/\1\.md\)", f.read(), re.M))
    wrong = ["%s does not list %s" % (page, k) for k in sorted(kinds - told)]
    wrong += ["%s lists %s, which no rule finds" % (page, k) for k in sorted(told - kinds)]
    for kind in sorted(kinds):
        path = os.path.join(folder, kind + ".md")
        text = open(path, encoding="utf-8").read() if os.path.exists(path) else ""
        wrong += ["%s has no part %s" % (path, part) for part in ("How it looks", "Why it happens", "How it is fixed") if not re.search(r"^## %s\n\n\S" % part, text, re.M)]
    return wrong + ["%s is the page of no kind" % n for n in sorted(os.listdir(folder)) if n[:-3] not in kinds]


def main():
    unisono, inputs, table, page = sys.argv[1:5]
    with open(inputs, encoding="utf-8") as f:
        every = sections(f.read())
    with open(table, encoding="utf-8") as f:
        rules = re.findall(r'^RULE\("([\w-]+)",\s*(\w+),', f.read(), re.M)
    wrong = undocumented({k for k, _ in rules} | {"none"}, page) + examples(unisono, page)
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
