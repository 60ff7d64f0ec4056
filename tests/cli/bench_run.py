# SPDX-License-Identifier: Apache-2.0
"""The benchmark's driver: a short run of this library alone is right, goes on where it was, and the page says what was measured.
How fast it was is nobody's business here. Usage: bench_run.py BENCH_FOLDER BUILD"""
import os
import shutil
import subprocess
import sys
import tempfile

bench, build = sys.argv[1:3]
sys.path.insert(0, bench)
import checks  # noqa: E402
import report  # noqa: E402
from cells import Cell  # noqa: E402
from statistics_of import geometric_mean, ratio  # noqa: E402


def equal(what, found, wanted):
    if found != wanted:
        sys.exit("FAILED: %s is %r, not %r" % (what, found, wanted))


def numbers():
    point, low, high = ratio([2.0] * 7, [1.0] * 7)
    equal("a ratio without spread", (point, low, high), (2.0, 2.0, 2.0))
    point, low, high = ratio([1, 2, 3, 4, 5, 6, 7], [4.0] * 7)
    if not low < point < high:
        sys.exit("FAILED: the interval %g-%g does not hold the ratio %g" % (low, high, point))
    equal("a geometric mean", round(geometric_mean([0.5, 2.0, 8.0]), 6), 2.0)


def aims():
    """A cell is above its limit only if its whole interval is."""
    above = checks.worst("aim", "1.0", [("a", [2.0] * 7, [1.0] * 7, 1.0), ("b", [0.5] * 7, [1.0] * 7, 1.0)])
    equal("a cell at twice its limit: reached", above.reached, False)
    unsure = checks.worst("aim", "1.0", [("a", [0.9, 0.9, 0.9, 1.1, 1.1, 1.1, 1.1], [1.0] * 7, 1.0)])
    equal("a cell around its limit: reached", unsure.reached, True)
    equal("nothing measured: reached", checks.worst("aim", "1.0", [("a", None, [1.0], 1.0)]).reached, None)
    equal("a mean above its limit: reached", checks.mean("aim", "1.0", 1.0, [([2.0], [1.0]), ([1.0], [1.0])]).reached, False)


def short_run(out):
    argv = [sys.executable, os.path.join(bench, "bench.py"), "--build", build, "--only", "unisono,unisono-refused", "--parts", "host,join",
            "--quick", "--rounds", "1", "--sizes", "8,65536", "--ranks", "2,4", "--out", out, "--results", out, "--folder", out]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
    if done.returncode != 0:
        sys.exit("FAILED: bench.py ended with status %d\n%s" % (done.returncode, done.stdout))
    return report.read_rows(os.path.join(out, "raw.jsonl"))


def run_twice(out):
    first = short_run(out)
    data = report.Data(first)
    equal("wrong elements", data.wrong, 0)
    refused = {c: by for c, by in data.refused.items() if by}
    equal("cells that could not be measured", refused, {})
    for cell in (Cell("host", 2, "all_reduce", "out of place", 8), Cell("host", 2, "all_reduce", "lent", 65536),
                 Cell("host", 4, "all_to_all", "out of place", 16), Cell("host", 4, "barrier", "out of place", 0)):
        equal("rounds of %s" % (cell,), len(data.times[cell]["unisono"]), 1)
    if not data.best_floor(Cell("host", 2, "all_reduce", "in place", 8)):
        sys.exit("FAILED: no prototype was measured")
    again = [r for r in short_run(out)[len(first):] if r["what"] in ("cell", "join", "facts")]
    equal("what a second run measures again", again, [])
    with open(os.path.join(out, "RESULTS.md")) as f:
        page = f.read()
    for wanted in ("## Aims", "0 wrong elements", "| 64 KB |", "rounds are too few"):
        if wanted not in page:
            sys.exit("FAILED: RESULTS.md does not say %r" % wanted)


if len(os.sched_getaffinity(0)) < 2:
    print("skipped: two processors are needed")
    sys.exit(77)
numbers()
aims()
folder = tempfile.mkdtemp(prefix="bench-run-")
try:
    run_twice(folder)
finally:
    shutil.rmtree(folder)
