#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bounds_test.py UNISONO - inputs that a rule or a reader could take very long for, or much memory: each is done within a bound of both."""
import os
import resource
import subprocess
import sys
import tempfile
import unittest

UNISONO = sys.argv.pop(1)

SECONDS, BYTES = 4, 200 << 20  # of processor time, and resident


def tensors(count, ranks):
    return "Stalled ops:\n" + "".join("grad_%d [missing ranks: %s]\n" % (t, ", ".join(str(r) for r in range(ranks) if r % 7 == 3)) for t in range(count))


def submitted(count, ranks):
    return "Stalled ops:\n" + "".join("grad_%d [ready ranks: %s]\n" % (t, ", ".join(str(r) for r in reversed(range(t % 5, ranks, 5)))) for t in range(count))


INPUTS = {
    "many tensors, and the last of many ranks misses": "Stalled ops:\n" + "".join("grad_%d [missing ranks: 2047]\n" % t for t in range(240)),
    "many tensors that many ranks miss": tensors(400, 4096),
    "tensors that every fifth rank submits, backwards": submitted(500, 8000),
    "a tensor with a line a rank": "Stalled ops:\n" + "".join("grad_0 [ready ranks: %d]\n" % r for r in reversed(range(20000))),
    "copies of the library": "".join("/proc/7/maps:7f0000000000-7f0000001000 r-xp 00000000 08:01 %d /opt/a/libnccl.so.2\n/proc/%d/maps:7f0000000000-7f0000001000 r-xp 00000000 08:01 1 /opt/a/libnccl.so.2\n" % (i, i) for i in range(20000)),
    "a line of digits": "[W101 10:00:00.1 socket.cpp:1] [c10d] " + "7" * 60000 + "\n",
    "a line of digits, and clients": "[W101 10:00:00.1 socket.cpp:1] [c10d] " + "7" * 30000 + "/4 clients joined\n" + "7/" * 20000 + "4 clients joined\n",
    "masks of many processes": "".join("h%d:%d:1 [0] NCCL INFO Setting affinity for GPU 0 to ffff\n" % (i, i) for i in range(4000)),
}


class Bounds(unittest.TestCase):
    def test_each_is_done_in_time(self):
        with tempfile.TemporaryDirectory() as folder:
            for what, text in INPUTS.items():
                path = os.path.join(folder, "input.log")
                with open(path, "w", encoding="utf-8") as f:
                    f.write(text)
                p = subprocess.Popen([UNISONO, "doctor", "--json", path], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                     preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (30, 30)))
                _, status, used = os.wait4(p.pid, 0)
                p.returncode = os.waitstatus_to_exitcode(status)
                self.assertIn(p.returncode, (0, 1), what)
                self.assertLess(used.ru_utime + used.ru_stime, SECONDS, what)
                self.assertLess(used.ru_maxrss << 10, BYTES, what)


if __name__ == "__main__":
    unittest.main()
