#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ends.py UNISONO WHY_RANK [TEST] - how a rank ended is known on other hosts too, when nobody of its own is left to say it: what the
launcher's agents collect reaches the survivors. Hosts are network namespaces, or ranks of this host that share no memory; every
sentence is compared whole. Exit status 77: not possible here."""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "campaign"))
import jobs  # noqa: E402
from jobs import Impossible, Job, Nets, parent  # noqa: E402

UNISONO, RANK = (os.path.abspath(p) for p in (sys.argv.pop(1), sys.argv.pop(1)))
NETS = None
AGENT = "the agent of unisono run on its host"


KILLED = r"was killed by signal 9 \(SIGKILL\)"
GONE = r"has ended without leaving the job; %s, which would know how, was killed by signal 9 \(SIGKILL\), and ranks end with it" % AGENT
UNKNOWN = r"has ended without leaving the job, status unknown here: all its connections were closed \([^()]+\)"


class Ends(unittest.TestCase):
    def start(self, mode, places=None, ranks=2, env=(), before=()):
        """places: so many ranks on each host; else this one, whose ranks share no memory. before: words in front of the program."""
        hosts = [(NETS[n], k) for n, k in enumerate(places)] if places else None
        self.names = [NETS[n].rsplit("-", 1)[1] for n, k in enumerate(places) for _ in range(k)] if places else [socket.gethostname()] * ranks
        self.job = Job(UNISONO, [*before, RANK, mode], len(self.names), dict(env, **({} if places else {"UNISONO_SHM_DISABLE": 1})), hosts)
        self.addCleanup(self.job.end)
        self.job.program = [RANK, mode]
        everyone = [r"^\[%d\] %d \d+$" % (r, r) for r in range(len(self.names))]
        self.assertTrue(self.job.until(lambda: all(self.job.said(w) for w in everyone)), "the job did not begin: %s" % self.job.lines)
        self.pids = self.job.pids()[0]

    def kill(self, ranks, sig=signal.SIGKILL):
        for r in ranks:
            os.kill(self.pids[r], sig)

    def sentences(self, dead, how):
        """Of each survivor the first line of its error that is a sentence about one of these ranks with exactly these words, or None."""
        who = "|".join(r"rank %d \(pid %d on %s\)" % (r, self.pids[r], re.escape(self.names[r])) for r in dead)
        want = {r: r"^\[%d\] all_reduce: (%s) (%s); all_reduce #\d+( of rank \d+)? needs it( \(its last finished operation was #\d+\))?(; it made one call less.*)?$" % (r, who, how)
                for r in range(len(self.names)) if r not in dead}
        self.job.until(lambda: all(self.job.said(r"^\[%d\] all_reduce: " % r) for r in want), 20)
        return [self.job.said(w) for w in want.values()]

    def told(self, act, dead, how, *args, **kw):
        """Start a job, do this to it, and see what all survivors say. A machine with much else to do passes nothing on in time, and then a
        death is not held back: that is tried again."""
        for _ in range(4):
            self.start(*args, **kw)
            act()
            if all(self.sentences(dead, how)):
                return
            if not any(self.sentences(dead, UNKNOWN)):
                break
            self.job.end()
        self.fail("not all say: %s\nbut: %s" % (how, "\n".join(l for _, l in self.job.lines)))

    def test_one_rank_a_host(self):
        for sig, how in ((signal.SIGKILL, KILLED), (signal.SIGABRT, r"was killed by signal 6 \(SIGABRT\)( and dumped core)?"),
                         (signal.SIGUSR1, "exited with status 0 without leaving the job"), (signal.SIGUSR2, "exited with status 3 without leaving the job"),
                         (signal.SIGHUP, "left the job and exited with status 0")):
            with self.subTest(signal=sig):
                self.told(lambda s=sig: self.kill([1], s), [1], how, "ends", [1, 1])

    def test_a_whole_host_of_three(self):
        for sig, how in ((signal.SIGKILL, KILLED), (signal.SIGUSR1, "exited with status 0 without leaving the job")):
            with self.subTest(signal=sig):
                self.told(lambda s=sig: self.kill([2, 3], s), [2, 3], how, "ends", [2, 2, 2])

    def test_no_memory_is_shared(self):
        for sig, how in ((signal.SIGKILL, KILLED), (signal.SIGUSR2, "exited with status 3 without leaving the job")):
            with self.subTest(signal=sig):
                self.told(lambda s=sig: self.kill([1], s), [1], how, "ends", ranks=3)

    def test_children_hold_what_it_had_open(self):
        """No connection is closed: the launcher alone knows."""
        self.told(lambda: self.kill([1]), [1], KILLED, "children", [1, 1])

    def test_an_agent_that_is_ended_ends_its_ranks(self):
        self.told(lambda: os.kill(parent(self.pids[2]), signal.SIGTERM), [2, 3],
                  "was ended by %s, which was itself ended by signal 15 \\(SIGTERM\\)" % AGENT, "ends", [2, 2, 2])
        said = r"^unisono run: the agent of host %s was ended by signal 15 \(SIGTERM\) and ended its ranks; the other 4 go on$" % re.escape(NETS[1])
        self.assertTrue(self.job.said(said), self.job.lines)
        self.assertFalse(self.job.said("out of memory"), self.job.lines)
        self.job.until(lambda: self.job.process.poll() is not None)
        self.assertEqual(self.job.process.returncode, 2)

    def test_an_agent_is_killed_with_its_rank(self):
        """Who comes first is chance, and both sentences are right."""
        def act():
            agent = parent(self.pids[1])
            self.kill([1, 2])
            os.kill(agent, signal.SIGKILL)
        self.told(act, [1, 2], KILLED + "|" + GONE, "ends", [1, 2])

    def test_an_agent_is_killed(self):
        self.told(lambda: os.kill(parent(self.pids[1]), signal.SIGKILL), [1], GONE, "ends", [1, 1])
        self.assertTrue(self.job.said(r"^unisono run: host \S+ was lost: `.*` ended with status 137; the other 1 go on$"), self.job.lines)

    def test_nobody_tells(self):
        self.start("ends", [1, 1], before=["env", "-u", "UNISONO_ENDS_FD"])
        self.kill([1])
        self.assertTrue(all(self.sentences([1], UNKNOWN)), self.job.lines)

    def test_why_tells_it_too(self):
        """Asked on another host: nobody of theirs is left to report."""
        def judged():
            answer = subprocess.run([UNISONO, "why", str(self.pids[5]), "--json"], stdout=subprocess.PIPE, check=False).stdout
            ranks = {r["rank"]: r for r in json.loads(answer)["ranks"]}
            return all((ranks[r]["status"], ranks[r]["ended"], ranks[r]["ended_code"]) == ("dead", *how) for r in (2, 3))
        for sig, how in ((signal.SIGKILL, ("signal", 9)), (signal.SIGTERM, ("agent", 15))):
            with self.subTest(signal=sig):
                self.start("idle", [2, 2, 2])
                for pid in [self.pids[2], self.pids[3]] if sig == signal.SIGKILL else [parent(self.pids[2])]:
                    os.kill(pid, sig)
                self.assertTrue(self.job.until(judged, 30, 0.1))
                self.job.end()

    def test_out_of_memory(self):
        try:
            group = jobs.make_cgroup("memory")
            jobs.write(group, "memory.limit_in_bytes" if jobs.legacy("memory") else "memory.max", 64 << 20)
        except (Impossible, OSError) as e:
            self.skipTest("no control group with little memory: %s" % e)
        self.addCleanup(jobs.remove_cgroup, group)
        self.told(lambda: None, [1], KILLED + r", for the kernel was out of memory \(oom_kill in memory\.events of \S*%s\)"
                  % re.escape(os.path.basename(group)), "grow", [1, 1], env={"WHY_RANK_CGROUP": os.path.join(group, "cgroup.procs")})
        self.assertTrue(self.job.said(r"^unisono run: rank 1 .* was killed by signal 9 \(SIGKILL\), for the kernel was out of memory \(oom_kill in memory"),
                        self.job.lines)


if __name__ == "__main__":
    try:
        with Nets() as NETS:
            RESULT = unittest.main(verbosity=2, exit=False).result
    except Impossible as why:
        print("skipped: %s" % why)
        sys.exit(77)
    finally:
        jobs.remove_cgroups()
    sys.exit(not RESULT.wasSuccessful())
