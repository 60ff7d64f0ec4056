#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""why_test.py UNISONO WHY_RANK - `unisono why` and `unisono top` on real jobs: healthy, with a rank that never calls, with a stopped one,
on what a killed job left behind; and bad input of every kind. No fixed sleeps: conditions with a limit."""
import fcntl
import json
import os
import pickle
import pty
import re
import select
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

UNISONO, RANK = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
LIMIT = 30.0


# /proc hides nothing from root: who wants to see what others see is somebody else, if possible.
SOMEBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.getuid() == 0 else []


def tool(*args, who=(), **kw):
    p = subprocess.run([*who, UNISONO, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT, check=False, **kw)
    return p.returncode, p.stdout, p.stderr


def why_json(*args):
    rc, out, err = tool("why", "--json", *args)
    return rc, json.loads(out) if out else None, err


def wait_for(condition, what):
    until = time.monotonic() + LIMIT
    while True:
        got = condition()
        if got:
            return got
        if time.monotonic() > until:
            raise AssertionError("waited in vain for " + what)
        time.sleep(0.02)


def bytes_of(text):
    number, unit = text.split()
    return float(number) * 1024 ** ["B", "KB", "MB", "GB", "TB"].index(unit)


class Job:
    """`unisono run -n N why_rank MODE`; pids by rank."""

    def __init__(self, mode, n=3, env=None, who=()):
        self.run = subprocess.Popen([*who, UNISONO, "run", "-n", str(n), "--", RANK, mode], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                    stderr=subprocess.DEVNULL, text=True, env=dict(os.environ, **(env or {})))
        self.pids = {}
        while len(self.pids) < n:
            line = self.run.stdout.readline()
            if not line:
                raise AssertionError("the job did not begin")
            rank, pid = line.split()
            self.pids[int(rank)] = int(pid)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pid in self.pids.values():
            try:
                os.kill(pid, signal.SIGCONT)
            except OSError:
                pass
        self.run.terminate()
        self.run.communicate(timeout=LIMIT)

    def kind(self, wanted, *args):
        """Ask until the verdict is of that kind."""
        def ask():
            rc, answer, err = why_json(str(self.pids[0]), *args)
            self.last = (rc, answer, err)
            return answer and answer["verdict"]["kind"] == wanted
        try:
            wait_for(ask, wanted)
        except AssertionError as e:
            raise AssertionError("%s; the last answer was %s" % (e, self.last)) from e
        return self.last[:2]


class Live(unittest.TestCase):
    def test_healthy(self):
        with Job("loop") as job:
            rc, out, err = tool("why", str(job.pids[2]))
            self.assertEqual((rc, err), (0, ""))
            self.assertRegex(out, r"^job [0-9a-f]{16}: why_rank, 3 of 3 ranks seen on this host\nnothing is wrong: ")

    def test_never_called(self):
        with Job("absent") as job:
            rc, answer = job.kind("rank_absent")
            verdict = answer["verdict"]
            self.assertEqual((rc, verdict["fault"], verdict["culprits"], verdict["number"]), (1, True, [1], 3))
            self.assertIn("rank 1 (pid %d" % job.pids[1], verdict["headline"])
            self.assertIn("pause", verdict["headline"])
            self.assertEqual((answer["format"], answer["live"], answer["size"], answer["reported"], answer["not_asked"]), (1, True, 3, 3, []))
            ranks = {r["rank"]: r for r in answer["ranks"]}
            self.assertEqual({r: ranks[r]["pid"] for r in ranks}, job.pids)
            last = ranks[0]["communicators"][0]["last"]
            self.assertEqual((last["number"], last["collective"], last["type"], last["op"], last["count"], last["state"], last["waits_for"]),
                             (3, "all_reduce", "float32", "sum", 1000, "running", 1))
            begin = time.monotonic()
            rc, out, _ = tool("why", str(job.pids[0]))
            self.assertLess(time.monotonic() - begin, 1.0)
            self.assertEqual(rc, 1)
            self.assertIn("what to do: ", out)
            self.assertIsNone(job.run.poll(), "the job goes on")

    def test_never_joined(self):
        with Job("unjoined") as job:
            rc, answer = job.kind("never_joined")
            verdict = answer["verdict"]
            self.assertEqual((rc, verdict["fault"], verdict["culprits"], answer["not_asked"]), (1, True, [1], [1]))
            self.assertRegex(verdict["headline"], r"^the job cannot start for [\d.]+ s: 2 of 3 ranks wait in joining, rank 1 is not seen to join on this host$")
            rc, out, _ = tool("why", str(job.run.pid))
            self.assertEqual(rc, 1)
            self.assertRegex(out, "(?m)^Other hosts were not asked: its processes on this host are still joining")
            self.assertEqual(answer["unjoined"], [{"rank": 1, "pid": job.pids[1], "program": "why_rank"}])
            self.assertRegex(out, r"(?m)^Started on this host, and not joining yet: rank 1 is pid %d \(why_rank\)$" % job.pids[1])

    def test_never_came_to_make_a_communicator(self):
        for mode, call in (("group", "uno_comm_create_group"), ("shrink", "uno_comm_shrink")):
            with self.subTest(mode), Job(mode, env={"UNISONO_SHRINK_TIMEOUT": "30"}) as job:
                rc, answer = job.kind("rank_absent")
                self.assertEqual((rc, answer["verdict"]["culprits"]), (1, [1]))
                self.assertRegex(answer["verdict"]["headline"], r"^%s waits for [\d.]+ s: rank 1 \(pid %d on [^)]*\) has not called it; it .*pause.*; ranks 0, 2 wait for it"
                                 % (call, job.pids[1]))

    def test_replaced(self):
        """Another program in the process of a rank has no ledger: what others hold of it tells what it was, /proc what it is."""
        with Job("exec") as job:
            rc, answer = job.kind("rank_absent")
            self.assertEqual((rc, answer["verdict"]["culprits"], answer["verdict"]["number"]), (1, [1], 3))
            self.assertRegex(answer["verdict"]["headline"],
                             r"rank 1 \(pid %d .* never called it; it runs another program now \(sleep\), which took its place by exec" % job.pids[1])
            self.assertEqual([r["run"] for r in answer["ranks"] if r["rank"] == 1], ["replaced"])
            self.assertRegex(answer["verdict"]["what_next"], "look for a call of exec in the program of rank 1")

    def test_program_without_threads(self):
        """The library's own threads keep no process alive: it ends as it would without them, when its last thread has."""
        with Job("threads") as job:
            self.assertEqual(job.run.stdout.readline(), "1 done\n")
            job.run.wait(timeout=LIMIT)
            self.assertFalse(os.path.exists("/proc/%d" % job.pids[1]))

    def test_said(self):
        """What the job itself has said, and takes back."""
        with Job("loop", env={"UNISONO_STALL": "1"}) as job:
            self.assertIsNone(why_json(str(job.pids[0]))[1]["said"])
            os.kill(job.pids[2], signal.SIGSTOP)
            said = wait_for(lambda: why_json(str(job.pids[0]))[1]["said"], "the job's own verdict")
            self.assertRegex(said, r"rank 2 \(pid %d on .* stopped" % job.pids[2])
            os.kill(job.pids[2], signal.SIGCONT)
            wait_for(lambda: why_json(str(job.pids[0]))[1]["said"] is None, "things to go on")

    def test_long_patience(self):
        with Job("absent") as job:
            job.kind("rank_absent")
            self.assertEqual(tool("why", str(job.pids[0]), "--stall", "1000")[0], 0)

    def test_stopped(self):
        with Job("loop") as job:
            os.kill(job.pids[2], signal.SIGSTOP)
            rc, answer = job.kind("stopped")
            self.assertEqual((rc, answer["verdict"]["culprits"]), (1, [2]))
            self.assertEqual(answer["stopped"], [2])
            since = time.monotonic()
            while time.monotonic() - since < 3:  # who looks for the first time knows nevertheless since when
                time.sleep(0.1)
            headline = why_json(str(job.pids[0]))[1]["verdict"]["headline"]
            self.assertGreater(float(re.search(r"is stopped.*? for ([0-9.]+) s", headline).group(1)), 2.5, headline)

    def test_all_stopped(self):
        """No steward can help, and nobody waits: who is stopped waits for nobody."""
        with Job("loop") as job:
            for pid in job.pids.values():
                os.kill(pid, signal.SIGSTOP)
            answer = wait_for(lambda: (lambda a: a if a["stopped"] == [0, 1, 2] else None)(why_json(str(job.pids[0]))[1]), "all to stop")
            self.assertEqual(answer["reported"], 3)
            self.assertEqual((answer["verdict"]["kind"], answer["verdict"]["fault"], answer["verdict"]["culprits"]), ("stopped", True, [0, 1, 2]))
            self.assertRegex(answer["verdict"]["headline"], r"^nobody runs( for [\d.]+ s)?: rank 0 .* is stopped .*; rank 1 .*; rank 2 ")
            rc, out, _ = tool("why", str(job.pids[0]))
            self.assertEqual(rc, 1)
            self.assertIn("nobody runs", out)

    def test_by_launcher_and_by_number(self):
        with Job("absent") as job:
            _, answer = job.kind("rank_absent")
            self.assertEqual(why_json(str(job.run.pid))[1]["job"], answer["job"])
            self.assertEqual(why_json("--job", answer["job"])[1]["job"], answer["job"])
            self.assertEqual(why_json("--job", answer["job"][:12])[1]["job"], answer["job"])

    def test_several(self):
        with Job("loop", 2) as one, Job("loop", 2) as two:
            rc, out, err = tool("why")
            self.assertEqual((rc, out), (2, ""))
            self.assertRegex(err, r"^unisono why: there are \d+ jobs; choose one:\n")
            for job in one, two:
                self.assertRegex(err, r"(?m)^  --job [0-9a-f]{16}  why_rank, 2 ranks, pids (%d %d|%d %d)$" % (
                    job.pids[0], job.pids[1], job.pids[1], job.pids[0]))
            rc, _, err = tool("why", "--job", "why_rank")
            self.assertEqual(rc, 2)
            self.assertIn("jobs called why_rank; choose one:", err)
            rc, _, err = tool("why", "--job", "no-such-program")
            self.assertEqual(rc, 2)
            self.assertIn('there is no job "no-such-program" of this user on this host; there is:', err)

    def test_flight_recorder(self):
        with Job("absent") as job, tempfile.TemporaryDirectory() as folder:
            job.kind("rank_absent")
            rc, out, err = tool("why", str(job.pids[0]), "--export-flight-recorder", folder + "/fr")
            self.assertEqual((rc, err), (1, ""))
            self.assertIn("6 files written to", out)
            for rank in range(3):
                with open("%s/fr/comm_lib_trace_rank_%d.json" % (folder, rank), encoding="utf-8") as f:
                    dump = json.load(f)
                self.assertEqual(dump["rank"], rank)
                self.assertEqual([json.loads(group["ranks"]) for group in dump["pg_config"].values()], [[0, 1, 2]])
                last = dump["entries"][-1]
                with open("%s/fr/flight_rank_%d" % (folder, rank), "rb") as f:
                    pickled = pickle.load(f)
                self.assertEqual(pickled["rank"], rank)
                self.assertEqual(pickled["entries"][-1], dict(last, profiling_name="gloo:all_reduce"))
                self.assertIn(last["process_group"][0], dump["pg_config"])
                self.assertEqual([last["collective_seq_id"], last["state"], last["profiling_name"], last["input_sizes"], last["input_dtypes"]],
                                 [2 if rank == 1 else 3, "completed" if rank == 1 else "started", "unisono:all_reduce", [[1000]], ["Float"]])
                self.assertLess(abs(last["time_created_ns"] / 1e9 - time.time()), 2 * LIMIT)
                self.assertEqual(dump["pg_status"]["0"]["last_completed_collective"], 2)
            rc, _, err = tool("why", str(job.pids[0]), "--export-flight-recorder", "/dev/null/no")
            self.assertEqual(rc, 2)
            self.assertIn("cannot be made", err)

    def test_flight_recorder_where_somebody_was_before(self):
        """What bears the name of a dump is neither followed, nor waited for, nor written into: a new file takes its place."""
        with Job("absent", 2) as job, tempfile.TemporaryDirectory() as folder:
            os.mkdir(folder + "/fr")
            with open(folder + "/precious", "w", encoding="utf-8") as f:
                f.write("precious")
            os.link(folder + "/precious", folder + "/fr/comm_lib_trace_rank_0.json")
            os.symlink(folder + "/precious", folder + "/fr/flight_rank_1")
            os.mkfifo(folder + "/fr/flight_rank_0")
            rc, out, err = tool("why", str(job.pids[0]), "--stall", "1000", "--export-flight-recorder", folder + "/fr")
            self.assertEqual((rc, err), (0, ""))
            self.assertIn("4 files written to", out)
            with open(folder + "/precious", encoding="utf-8") as f:
                self.assertEqual(f.read(), "precious")
            names = sorted(os.listdir(folder + "/fr"))
            self.assertEqual(names, ["comm_lib_trace_rank_0.json", "comm_lib_trace_rank_1.json", "flight_rank_0", "flight_rank_1"])
            for name in names:
                self.assertTrue(stat.S_ISREG(os.lstat(folder + "/fr/" + name).st_mode), name)
            os.unlink(folder + "/fr/flight_rank_1")
            os.mkdir(folder + "/fr/flight_rank_1")
            rc, _, err = tool("why", str(job.pids[0]), "--export-flight-recorder", folder + "/fr")
            self.assertEqual(rc, 2)
            self.assertRegex(err, "flight_rank_1 cannot be written: Is a directory")
            self.assertEqual(sorted(os.listdir(folder + "/fr")), names)  # nothing half-done is left

    def test_the_doctor_reads_crossed_groups(self):
        """What is exported of groups that are used in different orders: the doctor names the circle, from either form, of a job that stands and of one that was ended."""
        pairs = {"0 for 1": "tensor_parallel", "1 for 3": "data_parallel", "3 for 2": "tensor_parallel", "2 for 0": "data_parallel"}
        neighbours = {"0 for 1": "edge_0", "1 for 2": "edge_1", "2 for 0": "edge_2"}
        for mode, ranks, said, steps in (("crossed", 4, "Ranks 0-3", pairs), ("circle", 3, "Ranks 0-2", neighbours)):
            with tempfile.TemporaryDirectory() as folder:
                os.mkdir(folder + "/ledgers")
                with Job(mode, n=ranks, env={"UNISONO_LEDGER_DIR": folder + "/ledgers"}) as job:
                    job.kind("comm_order")
                    rc, _, err = tool("why", str(job.pids[0]), "--export-flight-recorder", folder + "/live")
                    self.assertEqual((rc, err), (1, ""))
                    for pid in job.pids.values():
                        os.kill(pid, signal.SIGKILL)
                    job.run.wait(LIMIT)
                rc, out, err = tool("why", folder + "/ledgers", "--export-flight-recorder", folder + "/left")
                self.assertEqual((rc, err), (1, ""))
                self.assertRegex(out, "before all ranks were ended by signal 9 .*: communicators are used in different order: ")
                self.assertEqual(len(re.findall("(?m)^  rank .* waits in all_reduce #[0-9]* of comm \"[a-z0-9_]*\" at ", out)), ranks, out) # and no split before it
                for where, form in (("live", ""), ("live", "flight_rank_"), ("live", "comm_lib_trace_rank_"), ("left", "")):
                    files = ["%s/%s/%s" % (folder, where, f) for f in sorted(os.listdir(folder + "/" + where)) if f.startswith(form)]
                    rc, out, _ = tool("doctor", "--json", *files)
                    first = json.loads(out)["findings"][0]
                    self.assertEqual((rc, first["kind"]), (1, "comm-order"), (where, form, first))
                    self.assertRegex(first["headline"], "^%s wait for each other in a circle of groups: " % said)
                    for step, group in steps.items():
                        self.assertIn("%s (%s)" % (step, group), first["headline"])

    def test_the_doctor_finds_nothing_in_a_job_that_goes_on(self):
        with Job("loop") as job, tempfile.TemporaryDirectory() as folder:
            rc, _, err = tool("why", str(job.pids[0]), "--export-flight-recorder", folder + "/fr")
            self.assertEqual((rc, err), (0, ""))
            rc, out, _ = tool("doctor", "--json", folder + "/fr")
            self.assertEqual((rc, json.loads(out)["findings"]), (0, []))


class Closed(unittest.TestCase):
    """Where /proc shows nothing, stewards hand over what tools need."""

    def setUp(self):
        if SOMEBODY and not shutil.which(SOMEBODY[0]):
            self.skipTest("there is no setpriv")
        if subprocess.run([*SOMEBODY, UNISONO, "version"], capture_output=True, check=False).returncode:
            self.skipTest("the program is in a folder that others cannot read")

    def judged(self, out, job):
        answer = json.loads(out)
        self.assertEqual((answer["reported"], answer["verdict"]["kind"], answer["verdict"]["culprits"], answer["verdict"]["number"]), (3, "rank_absent", [1], 3))
        self.assertEqual({r["rank"]: r["pid"] for r in answer["ranks"]}, job.pids)

    def absent(self, words, job, who):
        def asked():
            rc, out, err = tool("why", "--json", "--stall", "0.2", *words, who=who)
            return out if (rc, err) == (1, "") else None
        self.judged(wait_for(asked, "a verdict"), job)

    def top(self, words, who):
        rc, out, err = tool("top", "--once", "--interval", "0.2", *words, who=who)
        self.assertEqual((rc, err), (0, ""))
        self.assertRegex(out, r"(?m)^[* ] +1 .* after all_reduce #2$")
        self.assertEqual(len(re.findall(r"(?m)^[* ] +[02] .* all_reduce #3 .*waits for rank 1$", out)), 2, out)

    def test_not_dumpable(self):
        for mode in "closed", "closed_early":
            with self.subTest(mode), Job(mode, who=SOMEBODY) as job:
                for pid in job.pids.values():
                    self.assertNotEqual(subprocess.run([*SOMEBODY, "ls", "/proc/%d/fd" % pid], capture_output=True, check=False).returncode, 0)
                self.absent([str(job.pids[2])], job, SOMEBODY)
                self.absent(["--job", "why_rank"], job, SOMEBODY)
                self.top([str(job.pids[0])], SOMEBODY)
                os.kill(job.pids[1], signal.SIGSTOP)  # then nobody can hand anything over, and that is said
                wait_for(lambda: tool("why", str(job.pids[1]), who=SOMEBODY)[0] == 2, "a stop")
                rc, out, err = tool("why", str(job.pids[1]), who=SOMEBODY)
                self.assertEqual((rc, out), (2, ""))
                self.assertRegex(err, r"^unisono why: nothing is known of process %d: /proc/%d/fd: Permission denied, and its steward does not answer" % (
                    job.pids[1], job.pids[1]))

    @unittest.skipUnless(os.getuid() == 0 and shutil.which("unshare"), "needs root, to hide processes")
    def test_hidden(self):
        hidden = ["unshare", "-m", "sh", "-c", 'mount -t proc -o hidepid=2 proc /proc && exec "$@"', "sh", *SOMEBODY]
        p = subprocess.run([*hidden, "true"], capture_output=True, text=True, check=False)
        if p.returncode:
            self.skipTest("no namespace of mounts: " + p.stderr)
        with Job("closed", who=SOMEBODY) as job:
            self.assertNotEqual(subprocess.run([*hidden, "ls", "/proc/%d" % job.pids[0]], capture_output=True, check=False).returncode, 0)
            for words in ([str(job.pids[2])], []):
                self.absent(words, job, hidden)
            self.top([], hidden)
            rc, out, err = tool("why", "1", who=hidden)
            self.assertEqual((rc, out), (2, ""))
            self.assertIn("there is no process 1 on this host", err)


class Files(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def leave(self):
        """A job whose rank 1 was killed; the path of the folder of its records."""
        with Job("loop", env={"UNISONO_LEDGER_DIR": self.folder}) as job:
            # Twice a second the launcher looks at ranks that it has seen, and 2 ms lie between two calls.
            wait_for(lambda: why_json(str(job.pids[1]))[1]["ranks"][1]["communicators"][0]["newest"] > 600, "600 calls")
            os.kill(job.pids[1], signal.SIGKILL)
            job.run.wait(timeout=LIMIT)
            self.pid = job.pids[1]
        below = "%s/unisono-%d" % (self.folder, os.getuid())
        wait_for(lambda: os.path.isdir(below) and [f for f in os.listdir(below) if f.endswith(".facts")], "records")
        return below

    def bad(self, path, text, rc=2):
        got, out, err = tool("why", path)
        self.assertEqual((got, out), (rc, ""), err)
        self.assertRegex(err, text)

    def test_killed(self):
        below = self.leave()
        for path in self.folder, below:
            rc, answer, err = why_json(path)
            self.assertEqual((rc, err), (1, ""))
            self.assertEqual((answer["live"], answer["verdict"]["kind"], answer["verdict"]["culprits"]), (False, "dead", [1]))
            self.assertIn("rank 1 (pid %d" % self.pid, answer["verdict"]["headline"])
            self.assertIn("signal 9 (SIGKILL)", answer["verdict"]["headline"])
        rc, out, _ = tool("why", self.folder)
        self.assertEqual(rc, 1)
        self.assertIn("in the records", out.splitlines()[0])

    def test_too_many(self):
        below = self.leave()
        name = [f for f in os.listdir(below) if f.endswith(".facts")][0]
        for i in range(4100 - len(os.listdir(below))):
            os.link(below + "/" + name, "%s/again-%d.facts" % (below, i))
        rc, out, err = tool("why", self.folder)
        self.assertEqual(rc, 1)
        self.assertIn("in the records", out)
        self.assertRegex(err, r"^unisono why: 4 files of records in \S*/unisono-\d+ were left out: 4096 of a folder are read")
        self.assertEqual(err.count("\n"), 1)

    def test_killed_early(self):
        """Until it has seen every rank the launcher looks often: 150 calls take 0.3 s."""
        with Job("loop", env={"UNISONO_LEDGER_DIR": self.folder}) as job:
            wait_for(lambda: why_json(str(job.pids[1]))[1]["ranks"][1]["communicators"][0]["newest"] > 150, "150 calls")
            os.kill(job.pids[1], signal.SIGKILL)
            job.run.wait(timeout=LIMIT)
        rc, answer, err = why_json(self.folder)
        self.assertEqual((rc, err, answer["live"], answer["size"]), (1, "", False, 3))

    def test_left_in_the_middle(self):
        """A rank exits with status 0, the others fail because of it and exit with status 1: they are not the reason."""
        with Job("ends", env={"UNISONO_LEDGER_DIR": self.folder}) as job:
            wait_for(lambda: why_json(str(job.pids[1]))[1]["ranks"][1]["communicators"][0]["newest"] > 20, "20 calls")
            os.kill(job.pids[1], signal.SIGHUP)
            job.run.wait(timeout=LIMIT)
        rc, answer, err = why_json(self.folder)
        self.assertEqual((rc, err, answer["verdict"]["kind"], answer["verdict"]["culprits"]), (1, "", "left", [1]), answer["verdict"])
        self.assertRegex(answer["verdict"]["headline"], r"rank 1 \(pid %d .*exited with status 0\b.*needs it" % job.pids[1])

    def test_damaged(self):
        below = self.leave()
        name = sorted(f for f in os.listdir(below) if f.endswith(".facts"))[0]
        with open(os.path.join(below, name), "rb") as f:
            good = f.read()
        cases = {"cut": (good[:-7], r"cut"), "head": (good[:20], r"."), "foreign": (b"#!/bin/sh\n" * 50, r"not a record|no record|magic|is not"),
                 "empty": (b"", r"the file is empty"), "flipped": (good[:200] + bytes([good[200] ^ 1]) + good[201:], r"damaged|checksum"),
                 "version": (good[:8] + b"\x63" + good[9:], r"version")}
        for case, (data, text) in cases.items():
            with self.subTest(case):
                path = os.path.join(self.folder, case + ".bin")
                with open(path, "wb") as f:
                    f.write(data)
                self.bad(path, r"^unisono why: " + re.escape(path) + ": .*(" + text + ")")
        # Beside good ones: told, and left out.
        with open(os.path.join(below, "zz.facts"), "wb") as f:
            f.write(good[:100])
        rc, out, err = tool("why", below)
        self.assertEqual(rc, 1)
        self.assertIn("zz.facts: ", err)
        self.assertIn("SIGKILL", out)

    def test_nothing_there(self):
        self.bad(self.folder, r"holds no records \(\*\.facts\)")
        self.bad(self.folder + "/not-there", r"not-there: No such file or directory; legal is a process id, a file of records, or a folder")
        os.mkdir(self.folder + "/unisono-%d" % (os.getuid() + 1))
        self.bad(self.folder, r"holds no records \(\*\.facts\) of this user, only of others; .* sudo unisono why \S*/unisono-%d$" % (os.getuid() + 1))
        os.mkfifo(self.folder + "/pipe")
        self.bad(self.folder + "/pipe", r"pipe: it is no file of records")


class Bad(unittest.TestCase):
    def refused(self, args, text, **kw):
        rc, out, err = tool(*args, **kw)
        self.assertEqual((rc, out), (2, ""), err)
        self.assertRegex(err, text)

    def test_pids(self):
        child = subprocess.Popen(["true"])
        child.wait()
        self.refused(["why", str(child.pid)], r"there is no process %d on this host" % child.pid)
        child = subprocess.Popen(["sleep", "1000"])
        try:
            self.refused(["why", str(child.pid)], r"process %d has joined no job of this library, or has left it" % child.pid)
        finally:
            child.kill()
            child.wait()
        self.refused(["why", "99999999999"], r"99999999999 is no process id")

    def test_pid_or_file(self):
        """Digits that are a living process are its pid, whatever lies here under that name."""
        with tempfile.TemporaryDirectory() as folder, Job("loop", 2) as job:
            child = subprocess.Popen(["true"])
            child.wait()
            for pid in (job.pids[0], child.pid):
                with open("%s/%d" % (folder, pid), "w", encoding="utf-8"):
                    pass
            rc, out, err = tool("why", str(job.pids[0]), cwd=folder)
            self.assertEqual((rc, err), (0, ""))
            self.assertIn("2 of 2 ranks seen on this host", out)
            self.refused(["why", "./%d" % job.pids[0]], r"/%d: the file is empty" % job.pids[0], cwd=folder)
            self.refused(["why", str(child.pid)], r"%d: the file is empty" % child.pid, cwd=folder)
            self.refused(["top", "--once", str(child.pid)], r"there is no process %d on this host" % child.pid, cwd=folder)

    def test_thread(self):
        with Job("loop", 2) as job:
            tid = wait_for(lambda: [t for t in os.listdir("/proc/%d/task" % job.pids[1]) if int(t) != job.pids[1]], "a thread")[0]
            self.refused(["why", tid], r"^unisono why: %s is a thread of process %d; ask for that one: unisono why %d$" % (tid, job.pids[1], job.pids[1]))

    def test_other_version(self):
        fd = os.memfd_create("unisono-board", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        os.ftruncate(fd, 65 * 4096)
        fcntl.fcntl(fd, 1033, 0x0002 | 0x0004)  # F_ADD_SEALS: no shrinking, no growing
        try:
            self.refused(["why", str(os.getpid())], r"process %d uses another version of this library" % os.getpid())
            child = subprocess.Popen(["sleep", "60"], pass_fds=(fd,))
        finally:
            os.close(fd)
        try:
            self.refused(["why", str(os.getpid())], r"process %d is in no job that can be looked at; of those that it has started: process %d uses another version of this library .*; "
                         "ask with the tool of that version$" % (os.getpid(), child.pid))
            self.refused(["why", "--job", "nobodys"], r"looked at: process %d uses another version of this library" % child.pid)
        finally:
            child.kill()
            child.wait()

    def test_ranks_are_threads(self):
        """Told apart from another version, with what helps there."""
        told = r"all ranks of process %d are its threads, and tools cannot look at such a job; .*: gdb -p %d$"
        p = subprocess.Popen([RANK, "local"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            self.assertEqual(p.stdout.readline(), "0 %d\n" % p.pid)
            self.refused(["why", str(p.pid)], "^unisono why: " + told % (p.pid, p.pid))
            self.refused(["top", "--once", str(p.pid)], "^unisono top: " + told % (p.pid, p.pid))
            self.refused(["why", str(os.getpid())], "of those that it has started: " + told % (p.pid, p.pid))
            self.refused(["why", "--job", "nobodys"], "looked at: all ranks of process")
        finally:
            p.communicate("")

    @unittest.skipUnless(os.getuid() == 0 and shutil.which("unshare") and shutil.which("nsenter"), "needs root, for a PID namespace")
    def test_other_pid_namespace(self):
        new = ["unshare", "-p", "-f", "--mount-proc", "--kill-child"]
        p = subprocess.run([*new, "true"], capture_output=True, text=True, check=False)
        if p.returncode:
            self.skipTest("no namespace: " + p.stderr)
        with Job("loop", 2, who=new) as job:
            def pids():
                found = {}
                for word in filter(str.isdigit, os.listdir("/proc")):
                    try:
                        with open("/proc/%s/status" % word, encoding="utf-8") as f:
                            numbers = re.search(r"(?m)^NSpid:(.*)", f.read())[1].split()
                        with open("/proc/%s/cmdline" % word, "rb") as f:
                            named = f.read().startswith(os.fsencode(RANK))
                    except OSError:
                        continue
                    if named and len(numbers) > 1 and int(numbers[-1]) == job.pids[1]:
                        found[int(numbers[0])] = int(numbers[-1])
                return found
            try:
                outer, inner = next(iter(wait_for(pids, "rank 1").items()))
                job.pids = {}  # here they are others' numbers
                self.refused(["why", str(outer)], r"^unisono why: process %d is in another PID namespace, where it is process %d .*: nsenter -t %d -p -m unisono why %d$"
                             % (outer, inner, outer, inner))
                p = subprocess.run(["nsenter", "-t", str(outer), "-p", "-m", UNISONO, "why", str(inner)], capture_output=True, text=True, timeout=LIMIT, check=False)
                self.assertEqual((p.returncode, p.stderr), (0, ""))
                self.assertIn("2 of 2 ranks seen on this host", p.stdout)
            finally:
                job.run.kill()  # it heeds nothing less, and takes the namespace with it

    @unittest.skipUnless(os.getuid() == 0 and shutil.which("setpriv"), "needs root, to be somebody else")
    def test_other_user(self):
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        if subprocess.run(nobody + [UNISONO, "version"], capture_output=True, check=False).returncode:
            self.skipTest("the program is in a folder that others cannot read")
        with Job("loop", 2) as job:
            def as_nobody(*args):
                p = subprocess.run(nobody + [UNISONO, "why", *args], capture_output=True, text=True, timeout=LIMIT, check=False)
                return p.returncode, p.stdout, p.stderr
            rc, out, err = as_nobody(str(job.pids[0]))
            self.assertEqual((rc, out), (2, ""))
            self.assertIn("process %d belongs to another user (root), and only that user may look at it" % job.pids[0], err)
            rc, out, err = as_nobody()
            self.assertEqual((rc, out), (2, ""))
            self.assertIn("no process of this user on this host is in a job", err)
            p = subprocess.run(nobody + [UNISONO, "top", "--once"], capture_output=True, text=True, timeout=LIMIT, check=False)
            self.assertEqual((p.returncode, p.stdout), (2, ""))
            self.assertIn("records of a job that is over are read with `unisono why DIR`", p.stderr)

    @unittest.skipUnless(os.getuid() == 0 and shutil.which("unshare"), "needs root, to take /proc away")
    def test_without_proc(self):
        """The first line says why nothing is known, not that there is no job."""
        with open(UNISONO, "rb") as f:
            if b"AddressSanitizer" in f.read():
                self.skipTest("the sanitizer needs /proc itself, even to read its options")
        beside = os.path.join(os.path.dirname(os.path.abspath(UNISONO)), "..", "src")  # the loader finds $ORIGIN through /proc
        env = dict(os.environ, LD_LIBRARY_PATH=beside)
        for words in (["why"], ["why", "1"], ["top", "--once"]):
            script = 'mount -t tmpfs none /proc && exec "$@"'
            p = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", UNISONO, *words], capture_output=True, text=True, timeout=LIMIT, check=False,
                               env=env)
            if "mount:" in p.stderr or "unshare:" in p.stderr:
                self.skipTest("no namespace of mounts: " + p.stderr)
            self.assertEqual((p.returncode, p.stdout), (2, ""), p.stderr)
            self.assertRegex(p.stderr.splitlines()[0], r"^unisono (why|top): /proc is not mounted here, and without it no process can be found")

    def test_options(self):
        self.refused(["why", "--frobnicate"], r"there is no option --frobnicate")
        self.refused(["why", "1", "2"], r'"2" is one too many')
        self.refused(["why", "--job"], r"--job needs a value")
        self.refused(["why", "--stall", "soon"], r"--stall soon: it is a number of seconds")
        self.refused(["why", ""], r"an empty word names no job")
        self.assertEqual(tool("why", "--help")[0], 0)


class Top(unittest.TestCase):
    ROW = (r"(.) +(\d+) +(\d+) (\S+) +(\d+)% (\S+) +(\d+) +(\d+) +([\d.]+ \w+)/s +(\d+%|-) +(\d+)% +(\d+)% (.*)")

    def rows(self, *args):
        rc, out, err = tool("top", "--once", *args)
        self.assertEqual((rc, err), (0, ""))
        lines = out.splitlines()
        self.assertRegex(lines[0], r"^job [0-9a-f]{16}: why_rank, \d of \d ranks on this host, \d+\.\d s$")
        self.assertNotIn("\033", out)
        rows = [re.match(self.ROW, line) for line in lines[2:]]
        self.assertTrue(all(rows), out)
        return [{"rank": int(r[2]), "slow": r[1] == "*", "pid": int(r[3]), "state": r[4], "ops": int(r[7]), "msgs": int(r[8]), "bytes": bytes_of(r[9]),
                 "limit": r[10], "wait": int(r[11]), "late": int(r[12]), "doing": r[13]} for r in rows]

    def table(self, *args):
        return {r["rank"]: r for r in self.rows(*args)}

    def test_messages_and_limit(self):
        """Sends and receives are counted, and their bytes; 100 % is what the user gives, what was measured, or nothing."""
        with Job("ring") as job:
            pid = str(job.pids[0])

            def moves():
                rows = self.table("--limit", "1M", pid)
                return rows if all(rows[r]["msgs"] > 0 for r in rows) else None
            rows = wait_for(moves, "messages")
            for r in rows.values():
                self.assertTrue(abs(r["msgs"] - 2 * r["ops"]) <= 0.1 * r["msgs"] + 4, rows)  # one each way a loop
                self.assertTrue(abs(r["bytes"] - (4000 * r["ops"] + 2000 * r["msgs"])) <= 0.1 * r["bytes"] + 8000, rows)
                share = (4000 * r["ops"] + 1000 * r["msgs"]) / (1 << 20) * 100  # a message counts on one side
                self.assertTrue(abs(int(r["limit"][:-1]) - share) <= 0.1 * share + 2, rows)
            self.assertEqual({r["limit"] for r in self.rows("--limit", "0", pid)}, {"-"})
            for r in self.rows(pid):
                self.assertRegex(r["limit"], r"^\d+%$")

    def test_sorted(self):
        with Job("slow") as job:
            for word, key in (("rank", None), ("ops", "ops"), ("msgs", "msgs"), ("bytes", "bytes"), ("limit", None), ("wait", "wait"), ("late", "late")):
                rows = self.rows("--sort", word, str(job.pids[0]))
                self.assertEqual(sorted(r["rank"] for r in rows), [0, 1, 2])
                if key:
                    self.assertEqual([r[key] for r in rows], sorted((r[key] for r in rows), reverse=True), word)
                if word in ("rank", "msgs"):  # no messages: all alike
                    self.assertEqual([r["rank"] for r in rows], [0, 1, 2])
            wait_for(lambda: self.rows("--sort", "late", str(job.pids[0]))[0]["rank"] == 1, "the late rank on top")

    def test_slow_rank(self):
        with Job("slow") as job:
            def marked():
                rows = self.table(str(job.pids[0]))
                return rows if [r for r in rows if rows[r]["slow"]] == [1] else None
            rows = wait_for(marked, "rank 1 to be marked")
            self.assertEqual({r: rows[r]["pid"] for r in rows}, job.pids)
            for r in rows:
                self.assertTrue(5 <= rows[r]["ops"] <= 60, rows)  # 20 ms and more a call
            self.assertGreater(rows[1]["late"], 50)
            for r in (0, 2):  # a share of the time, not of ten readings: all of a call but what moves the bytes
                self.assertGreater(rows[r]["wait"], rows[1]["late"] - 10, rows)
            self.assertLess(rows[1]["wait"], 25, rows)
            self.assertLess(rows[0]["late"], rows[1]["late"] / 2)

    def test_stopped(self):
        with Job("loop") as job:
            os.kill(job.pids[2], signal.SIGSTOP)
            rows = wait_for(lambda: (lambda t: t if t[2]["state"] == "T" and t[0]["ops"] == 0 else None)(self.table(str(job.pids[0]))), "a stop")
            self.assertIn("waits for rank 2", rows[0]["doing"])

    def test_terminal(self):
        """Tables follow each other, keys are obeyed, and the terminal is as it was."""
        with Job("loop") as job:
            ours, theirs = pty.openpty()
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
            before = termios.tcgetattr(theirs)
            p = subprocess.Popen([UNISONO, "top", "--interval", "0.2", str(job.pids[0])], stdin=theirs, stdout=theirs, stderr=theirs,
                                 env=dict(os.environ, TERM="xterm"))
            said = b""

            def read_until(what, n=1):
                nonlocal said
                until = time.monotonic() + LIMIT
                while said.count(what) < n:
                    self.assertLess(time.monotonic(), until, said[-2000:])
                    if select.select([ours], [], [], 0.1)[0]:
                        said += os.read(ours, 65536)
            read_until(b" all_reduce #", 9)
            for key in b"ombiwlr":
                os.write(ours, bytes([key]))
                said = b""
                read_until(b" all_reduce #", 6)
            os.write(ours, b"q")
            read_until(b"\033[?1049l")
            self.assertEqual(p.wait(timeout=LIMIT), 0)
            self.assertEqual(termios.tcgetattr(theirs), before)
            os.close(ours)
            os.close(theirs)

    def screen(self, pid, lines, columns):
        """A whole screen of a terminal of that size, without what is no text, as lines."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        p = subprocess.Popen([UNISONO, "top", "--interval", "0.2", str(pid)], stdin=theirs, stdout=theirs, stderr=theirs, env=dict(os.environ, TERM="xterm"))
        said = b""
        try:
            until = time.monotonic() + LIMIT
            while said.count(b"\033[H") < 4:
                self.assertLess(time.monotonic(), until, said[-2000:])
                if select.select([ours], [], [], 0.1)[0]:
                    said += os.read(ours, 65536)
            os.write(ours, b"q")
            self.assertEqual(p.wait(timeout=LIMIT), 0)
        finally:
            p.kill()
            p.wait()
            os.close(ours)
            os.close(theirs)
        drawn = said.split(b"\033[H")[2].decode()
        left = drawn.endswith("\n\033[J")  # the rest of the screen is cleared
        drawn = re.sub(r"\033\[[\d;?]*[A-Za-z]", "", drawn).split("\r\n")
        return drawn[:-1] if left else drawn

    def test_small_terminals(self):
        with Job("loop") as job:
            wait_for(lambda: self.rows(str(job.pids[0]))[0]["ops"] > 0, "operations")
            for lines, columns in ((24, 40), (24, 60), (24, 80), (24, 200), (7, 40), (3, 80), (2, 80), (1, 40)):
                with self.subTest(lines=lines, columns=columns):
                    drawn = self.screen(job.pids[0], lines, columns)
                    self.assertLessEqual(len(drawn), lines, drawn)
                    self.assertLessEqual(max(map(len, drawn)), columns, drawn)
                    self.assertRegex(drawn[0], "^job [0-9a-f]{16}: why_rank")
                    if lines == 24:
                        for title in ("RANK", "OPS/S", "BYTES/S", "LIMIT", "WAIT"):
                            self.assertIn(title, drawn[1].split())
                        self.assertEqual("PID" in drawn[1].split(), columns >= 80)
                        self.assertEqual(len([d for d in drawn if re.search(r"\d\.\d [KM]?B/s +\d+% +\d+%", d)]), 3, drawn)
                        self.assertEqual(len([d for d in drawn if "all_reduce" in d]), 3, drawn)
                    elif lines == 7:
                        self.assertEqual((len(drawn), drawn[-1].strip()), (7, "... 1 more"))
                    elif lines > 1:
                        self.assertEqual(drawn[-1].strip(), "... 3 more")

    def test_bad(self):
        def refused(text, *args):
            rc, out, err = tool("top", *args)
            self.assertEqual((rc, out), (2, ""))
            self.assertRegex(err, text)
        refused(r"standard output is no terminal; --once writes one table", str(os.getpid()))
        refused(r"process %d has joined no job" % os.getpid(), "--once", str(os.getpid()))
        refused(r"--sort colour: legal is rank, ops, msgs, bytes, limit, wait or late", "--once", "--sort", "colour")
        refused(r"--limit fast: it is bytes a second, as 12G or 800M", "--once", "--limit", "fast")
        refused(r"--interval 0: it is a number of seconds", "--once", "--interval", "0")
        refused(r"/tmp is no process id; what a job left behind is read with `unisono why /tmp`", "--once", "/tmp")
        refused(r"there is no option --twice", "--twice")
        child = subprocess.Popen(["true"])
        child.wait()
        refused(r"there is no process %d on this host; .* read with `unisono why DIR`" % child.pid, "--once", str(child.pid))


if __name__ == "__main__":
    unittest.main()
