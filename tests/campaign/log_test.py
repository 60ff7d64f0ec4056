#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""log_test.py - the campaign's log: results of another build are neither added to nor gone on with, but their page can be written; a log
of this build is gone on with, and what it holds is not run again. Nothing is injected here: all that was asked for is in the log."""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import campaign

TRIAL = {"cause": "count", "seed": "7/count/0", "ranks": 3, "rank": 2, "named": True, "time_s": 0.25, "said": "#5: rank 2 passes count 4", "hosts": 1,
         "left": {"processes": 0}, "false_alarms": []}


def run(folder, build, *words):
    """What the campaign makes of a log of that build: exit status, output, the page or None, and whether the log is still there."""
    log, page = os.path.join(folder, "log"), os.path.join(folder, "page")
    head = {"seed": 7, "times": 1, "causes": ["count"], "stall": 1.5, "nets": False, "healthy_minutes": 0, "build": build, "commit": "0123abc"}
    with open(log, "w", encoding="utf-8") as f:
        f.write(json.dumps(head) + "\n" + json.dumps(TRIAL) + "\n")
    p = subprocess.run([sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "campaign.py"), "--log", log, "--page", page, *words,
                        os.path.join(folder, "unisono"), os.path.join(folder, "worker")], capture_output=True, text=True, check=False)
    text = None
    if os.path.exists(page):
        with open(page, encoding="utf-8") as f:
            text = f.read()
        os.remove(page)
    return p.returncode, p.stdout + p.stderr, text, os.path.exists(log)


def main():
    with tempfile.TemporaryDirectory() as folder:
        for name in ("unisono", "worker"):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
                f.write(name)
        own = campaign.build_of(os.path.join(folder, "unisono"), os.path.join(folder, "worker"))
        status, said, page, there = run(folder, "another")
        assert status == 1 and "is of another build (commit 0123abc)" in said and page is None and there, said
        for words, build in ((["--judge"], "another"), (["--judge"], own), ([], own)):
            status, said, page, there = run(folder, build, *words)
            assert status == 0 and "1 trials are done" in said and "named in" not in said, said
            assert "at commit 0123abc; seed 7" in page and "| a rank passes another count | 1 | 1 | 0.25 / 0.25 |" in page, page
            assert there == bool(words), "a log that was judged stays, one that is complete goes"
    print("passed")


main()
