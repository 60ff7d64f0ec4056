# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own suite, torch/testing/_internal/distributed/distributed_test.py as the installed wheel has it, on gloo and on unisono:
passed, failed and skipped side by side, and every difference with its reason. No test is edited.

  suite.py                       all tests on gloo and unisono, and on unisono with gates by name open as for gloo
  suite.py --only allreduce      tests whose names contain this word
The suite needs package expecttest.
Results are kept in --results, one line a test, and a run goes on where it was interrupted (--fresh begins anew).
"""
import argparse
import collections
import json
import os
import re
import subprocess
import sys
import time
import unittest

MODES = {
    "gloo": "gloo",
    "unisono": "unisono: tests that the suite opens for gloo or nccl by name are skipped",
    "unisono as gloo": "unisono, with gates by name open as for gloo",
}


# Why a test that passes on gloo cannot pass on a backend of another name, whatever that does.
REASONS = [
    (r"monitored_barrier is only implemented for GLOO", "torch's Python refuses every backend but gloo; unisono.torch.monitored_barrier is ours"),
    (r"'custom' != 'unisono'", "torch calls every backend that it does not know itself \"custom\" in DDP's log"),
]


class AsGloo(str):
    """A backend's name that answers "gloo?" with yes, for branches that the suite takes by name when a test runs."""

    __hash__ = str.__hash__

    def __eq__(self, other):
        return str.__eq__(self, other) or other == str("gloo")

    def __ne__(self, other):
        return not self == other


def load(mode, start):
    """The suite's tests as a class that starts ranks by `start` ("fork" or "spawn")."""
    os.environ.setdefault("WORLD_SIZE", "3")
    os.environ["BACKEND"] = "unisono" if mode == "unisono" else "gloo"
    import torch
    torch.set_num_threads(1)
    import unisono.torch  # noqa: F401 - registers the backend
    from torch.testing._internal.distributed import distributed_test as suite
    if mode == "unisono as gloo":
        suite.BACKEND = AsGloo("unisono")

    class TestDistributed(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context(start).Process)
    return TestDistributed


def reason_of(text):
    """The line of a traceback that says what happened."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if re.match(r"^[\w.]*(Error|Exception|Timeout|Skip)\b", line)]
    own = [line for line in told if not line.startswith("RuntimeError: Process")]
    return (own or told or lines or [""])[0][:300]


def run_test(case, name, sizes):
    """(word, why) on the first number of ranks that the test does not refuse."""
    for size in sizes:
        os.environ["WORLD_SIZE"] = str(size)
        outcome = unittest.TestResult()
        case(name).run(outcome)
        if outcome.failures or outcome.errors:
            return "failed", reason_of((outcome.failures + outcome.errors)[0][1]), size
        if not outcome.skipped:
            return "passed", "", size
        if not re.search("world.?size", outcome.skipped[0][1]):
            break
    return "skipped", outcome.skipped[0][1], size


def run_mode(mode, names, results, start, sizes):
    case = load(mode, start)
    done = {line["test"] for line in read(results, mode)}
    wanted = [n for n in unittest.TestLoader().getTestCaseNames(case) if not names or any(w in n for w in names)]
    for number, name in enumerate(wanted):
        if name in done:
            continue
        began = time.monotonic()
        word, why, size = run_test(case, name, sizes)
        seconds = time.monotonic() - began
        with open(results, "a", encoding="utf-8") as f:
            f.write(json.dumps({"mode": mode, "test": name, "result": word, "why": why, "ranks": size, "seconds": round(seconds, 2)}) + "\n")
        print(f"{mode} {number + 1}/{len(wanted)} {name}: {word} {why}", flush=True)


def read(results, mode=None):
    if not os.path.exists(results):
        return []
    with open(results, encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    return [line for line in lines if mode in (None, line["mode"])]


def report(results):
    """The table, and every test whose result on unisono is not that on gloo. True if none that passes on gloo fails here."""
    by_mode = {m: {line["test"]: line for line in read(results, m)} for m in MODES}
    print(f"\n{'':20}{'passed':>8}{'failed':>8}{'skipped':>9}{'of':>6}")
    for mode, tests in by_mode.items():
        count = collections.Counter(t["result"] for t in tests.values())
        print(f"{mode:20}{count['passed']:8}{count['failed']:8}{count['skipped']:9}{len(tests):6}")
    worse = 0
    for mode in ("unisono as gloo", "unisono"):
        print(f"\n{MODES[mode]}; different from gloo:")
        for name, line in sorted(by_mode[mode].items()):
            there = by_mode["gloo"].get(name)
            if not there or there["result"] == line["result"]:
                continue
            if mode == "unisono" and line["result"] == "skipped":
                continue  # told in one line below
            known = [why for pattern, why in REASONS if re.search(pattern, line["why"])]
            worse += there["result"] == "passed" and line["result"] == "failed" and not known
            print(f"  {name}: gloo {there['result']}{': ' + there['why'] if there['why'] else ''}; here {line['result']}"
                  f"{': ' + line['why'] if line['why'] else ''}{'; ' + known[0] if known else ''}")
        if mode == "unisono":
            gated = [n for n, t in by_mode[mode].items() if t["result"] == "skipped" and by_mode["gloo"].get(n, {}).get("result") == "passed"]
            print(f"  {len(gated)} tests pass on gloo and are skipped here, since the suite lists backends by name")
    print(f"\n{worse} tests pass on gloo and fail on unisono for a reason of its own")
    return worse == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="WORD")
    parser.add_argument("--mode", action="append", choices=list(MODES), default=[])
    parser.add_argument("--results", default="build/torch-suite.jsonl")
    parser.add_argument("--ranks", default="3,4,8", help="numbers of ranks to try, until the test does not refuse (default: 3,4,8)")
    parser.add_argument("--start", choices=["fork", "spawn"], default="fork")
    parser.add_argument("--limit", type=int, default=60, help="seconds a test may take")
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--report", action="store_true", help="only print what is there")
    parser.add_argument("--run-mode", choices=list(MODES), help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ["DISTRIBUTED_TESTS_DEFAULT_TIMEOUT"] = str(options.limit)
    results = os.path.abspath(options.results)
    if options.run_mode:
        return run_mode(options.run_mode, options.only, results, options.start, [int(n) for n in options.ranks.split(",")])
    if options.fresh and os.path.exists(results):
        os.remove(results)
    for mode in [] if options.report else options.mode or list(MODES):
        command = [sys.executable, __file__, "--run-mode", mode, "--results", results, "--ranks", options.ranks,
                   "--start", options.start, "--limit", str(options.limit)]
        with open(results + ".log", "a", encoding="utf-8") as log:
            done = subprocess.run(command + [a for w in options.only for a in ("--only", w)], stderr=log, check=False)
        if done.returncode != 0 or not read(results, mode):
            with open(results + ".log", encoding="utf-8") as log:
                last = (log.read().splitlines() or [""])[-1]
            sys.exit(f"suite.py: {mode}: the suite did not run to its end: {last}; {results}.log has it all")
    sys.exit(0 if report(results) else 1)


if __name__ == "__main__":
    main()
