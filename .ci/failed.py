# SPDX-License-Identifier: Apache-2.0
"""failed.py LOG: names of the tests that failed by meson's testlog.json, one a line, if a second try may help: no more than four, and
none with a sanitizer's report, which is a fault whenever it comes. failed.py LOG FIRST: put FIRST's other tests into LOG, too."""
import json
import sys

BAD = ("FAIL", "TIMEOUT", "ERROR", "INTERRUPT", "UNEXPECTEDPASS")
REPORTS = ("Sanitizer: ", "runtime error: ")


def read(path):
    with open(path) as f:
        return [json.loads(line) for line in f]


def main(log, first=None):
    tests = read(log)
    if first:
        tried = {t["name"] for t in tests}
        with open(log, "a") as f:
            f.writelines(json.dumps(t) + "\n" for t in read(first) if t["name"] not in tried)
        return
    bad = [t for t in tests if t["result"] in BAD]
    said = "".join(t.get("stdout", "") + t.get("stderr", "") for t in bad)
    if len(bad) <= 4 and not any(r in said for r in REPORTS):
        print("\n".join(t["name"].split(" / ", 1)[-1] for t in bad))


main(*sys.argv[1:])
