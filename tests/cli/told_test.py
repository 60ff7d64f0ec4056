#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""told_test.py UNISONO WHY_RANK - what jobs tell by themselves, and when: a rank that merely computes is a fact, told once and only where
others wait; a death is told within 100 ms on the host and 1 s elsewhere, also of a rank whose children hold all that it had open."""
import os
import signal
import subprocess
import sys
import time
import unittest

UNISONO, RANK = sys.argv.pop(1), sys.argv.pop(1)
LIMIT_S = 30.0


def job(mode, n, **env):
    return subprocess.Popen([UNISONO, "run", "--keep-going", "-n", str(n), "--", RANK, mode], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, env=dict(os.environ, **env))


class Facts(unittest.TestCase):
    def told(self, mode):
        with job(mode, 3, UNISONO_STALL="0.5") as p:
            out, err = p.communicate(timeout=LIMIT_S)
        self.assertEqual((p.returncode, len(out.splitlines())), (0, 3), err)
        return [line for line in err.splitlines() if "unisono: rank" in line]

    def test_told_once(self):
        told = self.told("computes")
        self.assertEqual(len(told), 1, told)
        self.assertRegex(told[0], r"rank 1 \(pid .*has not called it yet; it computes .*What to do: nothing, if")

    def test_nobody_waits(self):
        self.assertEqual(self.told("rests"), [])


class Deaths(unittest.TestCase):
    def time_to_verdict_s(self, mode, **env):
        """From SIGKILL of rank 1 until a sentence of a survivor that names it and the signal."""
        with job(mode, 3, **env) as p:
            pids = dict(map(int, p.stdout.readline().split()) for _ in range(3))
            time.sleep(0.1) # the children are made
            began = time.monotonic()
            os.kill(pids[1], signal.SIGKILL)
            for line in p.stderr:
                if "all_reduce: rank 1 (pid %d" % pids[1] in line:
                    took = time.monotonic() - began
                    self.assertIn("killed by signal 9", line)
                    p.communicate(timeout=LIMIT_S)
                    return took
        raise AssertionError("nobody said that rank 1 is dead")

    def told_within(self, limit_s, **env):
        for mode in ("loop", "children"):
            with self.subTest(mode=mode):
                took = []
                while len(took) < 5 and not (took and min(took) < limit_s): # the machine may be busy
                    took.append(self.time_to_verdict_s(mode, **env))
                self.assertLess(min(took), limit_s)

    def test_on_the_host(self):
        self.told_within(0.1)

    def test_elsewhere(self):
        """Ranks without shared memory know as little of each other as those of several hosts."""
        self.told_within(1.0, UNISONO_SHM_DISABLE="1")


if __name__ == "__main__":
    unittest.main()
