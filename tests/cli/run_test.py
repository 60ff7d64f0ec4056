#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run_test.py UNISONO - the launcher, as people and the worst days use it: real processes, real signals, network namespaces
as hosts where the machine lets us make them. No fixed sleeps: conditions with a limit."""
import errno
import os
import random
import re
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

UNISONO = sys.argv.pop(1) if len(sys.argv) > 1 else "unisono"
LIMIT = 30.0


def run(*args, **kw):
    """Run `unisono run ...`; returns (status, stdout, stderr)."""
    env = dict(os.environ, **kw.pop("env", {}))
    p = subprocess.run([UNISONO, "run", *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT, env=env,
                       check=False, **kw)
    return p.returncode, p.stdout, p.stderr


def start(*args):
    return subprocess.Popen([UNISONO, "run", *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def processes(word):
    """Pids whose command line contains word."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as f:
                # Exactly one argument: not the shells that carry the word in a script.
                if word.encode() in f.read().split(b"\0"):
                    found.append(int(pid))
        except OSError:
            pass
    return found


def wait_for(condition, what):
    until = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > until:
            raise AssertionError("waited in vain for " + what)
        time.sleep(0.01)


class Mark:
    """A sleep that can be found again: its argument is like no other's."""
    count = 0

    def __init__(self):
        Mark.count += 1
        self.word = "%d.%06d" % (400 + Mark.count, os.getpid())

    def there(self, n):
        wait_for(lambda: len(processes(self.word)) >= n, "%d processes" % n)

    def gone(self):
        wait_for(lambda: not processes(self.word), "no process to be left")


class Ranks(unittest.TestCase):
    def test_environment(self):
        rc, out, err = run("-n", "3", "--", "sh", "-c", "echo $UNISONO_RANK $UNISONO_SIZE $UNISONO_LOCAL_RANK $UNISONO_LOCAL_SIZE $RANK $WORLD_SIZE "
                           "$LOCAL_RANK $LOCAL_WORLD_SIZE ${UNISONO_LISTEN_FD:+listens}")
        self.assertEqual(rc, 0, err)
        self.assertEqual(sorted(out.splitlines()), ["0 3 0 3 0 3 0 3 listens", "1 3 1 3 1 3 1 3", "2 3 2 3 2 3 2 3"])

    def test_one_place_to_meet(self):
        _, out, _ = run("-n", "4", "--", "sh", "-c", "echo $UNISONO_ADDR $UNISONO_HOST $MASTER_ADDR:$MASTER_PORT")
        self.assertEqual(len(set(out.splitlines())), 1)
        self.assertRegex(out, r"^127\.0\.0\.1:\d+ \S+ 127\.0\.0\.1:\d+\n")

    def test_secret(self):
        script = "import os; d = os.pread(int(os.environ['UNISONO_SECRET_FD']), 1000, 0).decode(); print(d)"
        _, out, err = run("-n", "2", "--", sys.executable, "-c", script)
        self.assertEqual(len(set(out.split())), 1, err)
        self.assertRegex(out, r"^[0-9a-f]{64}\n")
        self.assertGreater(len(set(out)), 8)
        _, again, _ = run("-n", "2", "--", sys.executable, "-c", script)
        self.assertNotEqual(out, again)

    def test_secret_is_in_no_environment(self):
        script = ("import os; s = os.pread(int(os.environ['UNISONO_SECRET_FD']), 64, 0); "
                  "print(s in open('/proc/self/environ', 'rb').read(), s in open('/proc/self/cmdline', 'rb').read(), "
                  "s in open('/proc/%d/cmdline' % os.getppid(), 'rb').read())")
        _, out, err = run("-n", "1", "--", sys.executable, "-c", script)
        self.assertEqual(out, "False False False\n", err)

    def test_listening_socket(self):
        script = ("import os, socket; s = socket.socket(fileno=int(os.environ['UNISONO_LISTEN_FD'])); "
                  "c = socket.create_connection(os.environ['UNISONO_ADDR'].rsplit(':', 1)); s.accept(); print('met')")
        rc, out, err = run("-n", "1", "--", sys.executable, "-c", script)
        self.assertEqual((rc, out), (0, "met\n"), err)

    def test_port(self):
        _, out, err = run("-n", "1", "--port", "29871", "--", "sh", "-c", "echo $UNISONO_ADDR")
        self.assertEqual(out, "127.0.0.1:29871\n", err)

    def test_standard_input_of_rank_0(self):
        p = subprocess.run([UNISONO, "run", "-n", "2", "--", "sh", "-c", "cat"], input="for rank 0\n", capture_output=True, text=True,
                           timeout=LIMIT, check=False)
        self.assertEqual((p.returncode, p.stdout), (0, "for rank 0\n"))

    def test_many(self):
        rc, out, err = run("-n", "64", "--", "sh", "-c", "echo $RANK")
        self.assertEqual((rc, sorted(map(int, out.split()))), (0, list(range(64))), err)


class Output(unittest.TestCase):
    def test_tags(self):
        rc, out, err = run("-n", "2", "--tag", "--", "sh", "-c", "echo a; echo b >&2; printf c")
        self.assertEqual(rc, 0)
        self.assertEqual(sorted(out.splitlines()), ["[0] a", "[0] c", "[1] a", "[1] c"])
        self.assertEqual(sorted(err.splitlines()), ["[0] b", "[1] b"])

    def test_lines_never_mix(self):
        # Written in pieces, with a pause inside each line.
        script = "import sys, time\nfor i in range(200):\n  sys.stdout.write('x' * 50); sys.stdout.flush(); sys.stdout.write('y' * 50 + '\\n'); sys.stdout.flush()"
        _, out, err = run("-n", "4", "--", sys.executable, "-c", script)
        self.assertEqual(set(out.splitlines()), {"x" * 50 + "y" * 50}, err)
        self.assertEqual(len(out.splitlines()), 800)

    def test_much(self):
        _, out, err = run("-n", "2", "--", "seq", "1", "200000")
        self.assertEqual(len(out.splitlines()), 400000, err)

    def test_binary_and_long_line(self):
        p = subprocess.run([UNISONO, "run", "-n", "1", "--", "sh", "-c", "head -c 300000 /dev/zero"], capture_output=True, timeout=LIMIT,
                           stdin=subprocess.DEVNULL, check=False)
        self.assertEqual(p.stdout, b"\0" * 300000)

    def test_reader_that_leaves(self):
        p = start("-n", "2", "--", "yes")
        p.stdout.readline()
        p.stdout.close()
        self.assertEqual(p.wait(LIMIT), 128 + signal.SIGPIPE)
        p.stderr.close()

    def test_full_disk(self):
        for words in (["echo", "short"], ["yes"]):
            with open("/dev/full", "w") as full:
                p = subprocess.run([UNISONO, "run", "-n", "2", "--", *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=LIMIT,
                                   stdin=subprocess.DEVNULL, check=False)
            self.assertEqual(p.returncode, 2, p.stderr)
            self.assertRegex(p.stderr, "^unisono run: the ranks' output cannot be written: No space left on device(; ending the job)?\n$")

    def test_show_bind(self):
        rc, _, err = run("-n", "2", "--bind", "none", "--show-bind", "--", "true")
        self.assertEqual((rc, len(re.findall(r"rank [01] on host \S+: not bound: as asked", err))), (0, 2), err)
        rc, _, err = run("-n", "1", "--bind", "numa", "--show-bind", "--", "true")
        self.assertRegex(err, r"rank 0 on host \S+: processors [\d,-]+, memory of node \d+ first \(numa\)")

    def test_bind_core(self):
        cpus = len(os.sched_getaffinity(0))
        rc, out, err = run("-n", "1", "--bind", "core", "--", sys.executable, "-c", "import os; print(len(os.sched_getaffinity(0)))")
        self.assertEqual((rc, int(out)), (0, cpus), err)
        _, out, _ = run("-n", str(cpus + 1), "--", sys.executable, "-c", "import os; print(len(os.sched_getaffinity(0)))")
        self.assertEqual(set(out.split()), {str(cpus)})


class Ends(unittest.TestCase):
    def test_failure(self):
        mark = Mark()
        rc, _, err = run("-n", "3", "--", "sh", "-c", "if [ $RANK = 1 ]; then echo first >&2; echo last words >&2; exit 7; fi; sleep " + mark.word)
        self.assertEqual(rc, 7)
        self.assertRegex(err, r"unisono run: rank 1 \(host \S+, pid \d+\) exited with status 7 after [\d.]+ s; ending the other 2\. "
                              r"Its last lines on stderr:\n  \| first\n  \| last words\n")
        mark.gone()

    def test_signal(self):
        rc, _, err = run("-n", "2", "--", "sh", "-c", "if [ $RANK = 1 ]; then kill -SEGV $$; fi; sleep 100")
        self.assertEqual(rc, 128 + signal.SIGSEGV)
        self.assertRegex(err, r"rank 1 .* was killed by signal 11 \(SIGSEGV\)")

    def test_rank_killed_from_outside(self):
        mark = Mark()
        p = start("-n", "2", "--", "sleep", mark.word)
        mark.there(2 + 2)  # the ranks, and the command lines of launcher and agent
        children = [pid for pid in processes(mark.word) if comm(pid) == "sleep\n"]
        os.kill(children[0], signal.SIGKILL)
        _, err = p.communicate(timeout=LIMIT)
        self.assertEqual(p.returncode, 137)
        self.assertRegex(err, r"was killed by signal 9 \(SIGKILL; if nobody sent it, the kernel was out of memory")
        mark.gone()

    def test_ledgers_outlive_all_ranks(self):
        """Also those of ranks that are killed as soon as they have joined: they show themselves to the launcher first."""
        library = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(UNISONO))), "src", "libunisono.so.0")
        if not os.path.exists(library):
            self.skipTest("no library beside the program")
        loads = subprocess.run([sys.executable, "-c", "import ctypes; ctypes.CDLL(%r)" % library], stderr=subprocess.PIPE, text=True)
        if "undefined symbol: __asan" in loads.stderr or "undefined symbol: __tsan" in loads.stderr:
            self.skipTest("the library of a sanitizer's build can only be loaded into programs of that build")
        program = ("import ctypes, os, signal; u = ctypes.CDLL('%s'); c = ctypes.c_void_p(); "
                   "assert u.uno_comm_init_env(ctypes.byref(c), None) == 0; os.kill(os.getpid(), signal.SIGKILL)" % library)
        for _ in range(5):  # 50 ms are not enough for a launcher that gets no processor
            with tempfile.TemporaryDirectory() as where:
                rc, _, err = run("-n", "2", "--", sys.executable, "-c", program, env={"UNISONO_LEDGER_DIR": where})
                self.assertEqual(rc, 137, err)
                saved = re.search(r"what was known of the ranks of host \S+ is in (\S+)", err)
                why = subprocess.run([UNISONO, "why", where], capture_output=True, text=True, timeout=LIMIT, check=False)
                if saved:
                    self.assertTrue(saved.group(1).startswith(where))
                    with open(saved.group(1), "rb") as f:
                        records = f.read().count(b"UNOFACTS")
                    if records == 2:
                        self.assertRegex(why.stdout, r"2 of 2 ranks[\s\S]*was killed by signal 9 \(SIGKILL\)")
                        return
        self.fail("not all was saved:\n%s%s" % (err, why))

    def test_deaf_ranks(self):
        mark = Mark()
        # All traps stand before rank 1 fails: each rank waits for the others' files.
        script = "trap '' TERM; touch %s.$RANK; while [ ! -e %s.0 ] || [ ! -e %s.1 ]; do :; done; [ $RANK = 1 ] && exit 3; sleep %s"
        base = "/tmp/unisono-run-" + mark.word
        try:
            rc, _, err = run("-n", "2", "--grace", "0.2", "--", "sh", "-c", script % (base, base, base, mark.word))
        finally:
            for r in "01":
                os.unlink(base + "." + r)
        self.assertEqual(rc, 3)
        self.assertIn("killing all ranks", err)
        mark.gone()

    def test_left_behind(self):
        mark = Mark()
        rc, _, err = run("-n", "2", "--", "sh", "-c", "setsid sleep %s >/dev/null 2>&1 & :" % mark.word)
        self.assertEqual(rc, 0)
        self.assertRegex(err, r"ended 2 processes that ranks left behind on host \S+: pid \d+ \(sleep\), \d+ \(sleep\)")
        mark.gone()

    def test_keep_going(self):
        rc, out, err = run("-n", "3", "--keep-going", "--", "sh", "-c", "[ $RANK = 0 ] && exit 5; echo $RANK")
        self.assertEqual((rc, sorted(out.split())), (5, ["1", "2"]), err)

    def test_nobody_is_missed_at_a_healthy_end(self):
        """All destroy their communicator and exit, one a little before the other: that is no death, whoever looks."""
        for _ in range(8):
            rc, _, err = run("-n", "4", "--", UNISONO, "perf", "all_reduce", "-b", "8", "-e", "8", env={"UNISONO_DEBUG": "info"})
            self.assertEqual(rc, 0, err)
            self.assertIn("joined, 4 ranks", err)
            self.assertNotRegex(err, r"rank \d \(pid \d+ on [^)]*\) (exited|has ended|left)")

    def test_strangers_at_the_launcher_s_port(self):
        """It is open before rank 0 serves it: what strangers leave in its queue holds up nobody for long."""
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        p = start("-n", "3", "--port", str(port), "--", "sh", "-c", "sleep 1; exec '%s' perf all_reduce -b 8 -e 8" % UNISONO)
        held, tried, noise = [], 0, random.Random(7)
        try:
            until = time.monotonic() + LIMIT
            while p.poll() is None and time.monotonic() < until:
                s = socket.socket()
                s.setblocking(False)
                if s.connect_ex(("127.0.0.1", port)) not in (0, errno.EINPROGRESS):
                    s.close()
                    time.sleep(0.01)
                    continue
                tried += 1
                kind = noise.randrange(4)
                if kind and select.select([], [s], [], 0.05)[1]:
                    try:
                        s.send(noise.randbytes(noise.randrange(1, 400)) if kind < 3 else b"\x55\x4e\x49\x4f\x01")
                    except OSError:
                        pass
                if kind == 1:
                    s.close()
                else:
                    held.append(s)
                if len(held) > 500:
                    held.pop(0).close()
                time.sleep(0.001)
            out, err = p.communicate(timeout=LIMIT)
        finally:
            p.kill()
            for s in held:
                s.close()
        self.assertEqual(p.returncode, 0, err)
        self.assertIn("Avg bus bandwidth", out)
        self.assertGreater(tried, 100)

    def test_without_a_secret_is_said(self):
        for auth, says in ("secret", False), ("none", True):
            rc, _, err = run("-n", "2", "--", UNISONO, "perf", "all_reduce", "-b", "8", "-e", "8", env={"UNISONO_DEBUG": "info", "UNISONO_AUTH": auth})
            self.assertEqual((rc, "without a secret (UNISONO_AUTH=none)" in err), (0, says), err)

    def test_status_of_all_good(self):
        self.assertEqual(run("-n", "2", "--", "true")[0], 0)

    def test_closed_standard_descriptors(self):
        for closed in ("<&-", ">&-", "2>&-", "<&- >&-", "<&- 2>&-", ">&- 2>&-", "<&- >&- 2>&-"):
            p = subprocess.run(["sh", "-c", "exec \"$0\" run -n 2 -- sh -c 'test -S /proc/self/fd/${UNISONO_LISTEN_FD:-none} || test $RANK = 1 && echo hello' " + closed,
                                UNISONO], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT, check=False)
            self.assertEqual((closed, p.returncode, p.stdout, p.stderr), (closed, 0, "" if ">&-" in closed.split() else "hello\n" * 2, ""))

    def test_few_descriptors(self):
        worked = []
        for limit in range(6, 40, 2):
            script = "test -e /proc/self/fd/$UNISONO_SECRET_FD"
            rc, _, err = run("-n", "3", "--", "sh", "-c", script, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
            worked.append(rc == 0)
            self.assertTrue(rc == 0 or "Too many open files" in err, "%d descriptors: %d %s" % (limit, rc, err))
        self.assertIn(False, worked)
        self.assertTrue(worked[-1])

    def test_no_program(self):
        rc, _, err = run("-n", "2", "--", "/no/such/program")
        self.assertEqual(rc, 127)
        self.assertEqual(err.count("\n"), 1, err)
        self.assertRegex(err, r'"/no/such/program" cannot be started on host \S+: there is no such file')
        rc, _, err = run("-n", "2", "--", "no-such-program-anywhere")
        self.assertEqual(rc, 127)
        self.assertIn("no such program in PATH", err)
        self.assertEqual(run("-n", "1", "--", "/etc/passwd")[0], 126)


class Signals(unittest.TestCase):
    def test_interrupt(self):
        mark = Mark()
        p = start("-n", "3", "--", "sh", "-c", "sleep " + mark.word)
        mark.there(3)
        p.send_signal(signal.SIGINT)
        _, err = p.communicate(timeout=LIMIT)
        self.assertEqual((p.returncode, err), (130, "unisono run: ended by SIGINT; no rank is left\n"))
        mark.gone()

    def test_second_interrupt(self):
        mark = Mark()
        p = start("-n", "2", "--tag", "--", "sh", "-c", "trap '' INT; echo ready; sleep " + mark.word)
        self.assertEqual({p.stdout.readline(), p.stdout.readline()}, {"[0] ready\n", "[1] ready\n"})
        mark.there(2)
        p.send_signal(signal.SIGINT)
        p.send_signal(signal.SIGTERM)
        _, err = p.communicate(timeout=LIMIT)
        self.assertIn("killing all ranks", err)
        self.assertIn(p.returncode, (130, 143))
        mark.gone()

    def test_passed_on(self):
        script = ("import signal, sys, time\nfor s in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):\n"
                  "  signal.signal(s, lambda n, f: print(signal.Signals(n).name, flush=True))\n"
                  "signal.signal(signal.SIGTERM, lambda n, f: sys.exit(0))\nprint('ready', flush=True)\nwhile True: time.sleep(1)")
        p = start("-n", "1", "--", sys.executable, "-c", script)
        self.assertEqual(p.stdout.readline(), "ready\n")
        for s in (signal.SIGUSR1, signal.SIGUSR2):
            p.send_signal(s)
            self.assertEqual(p.stdout.readline(), s.name + "\n")
        p.send_signal(signal.SIGTERM)
        _, err = p.communicate(timeout=LIMIT)
        self.assertEqual((p.returncode, err), (0, ""))  # it ended in order

    def test_agent_stopped(self):
        mark = Mark()
        p = start("-n", "2", "--", "sleep", mark.word)
        mark.there(2 + 2)
        os.kill(agents(p.pid)[0], signal.SIGSTOP)
        p.send_signal(signal.SIGTERM)
        _, err = p.communicate(timeout=LIMIT)
        self.assertEqual((p.returncode, err), (143, "unisono run: ended by SIGTERM; no rank is left\n"))
        mark.gone()

    def test_rank_stopped(self):
        for sig in signal.SIGINT, signal.SIGTERM:
            mark = Mark()
            p = start("-n", "2", "--", "sh", "-c", 'test $UNISONO_RANK = 0 || kill -STOP $$; exec sleep "$0"', mark.word)
            mark.there(2 + 2)
            wait_for(lambda: any(parent_and_state(rank)[1] == "T" for agent in agents(p.pid) for rank in agents(agent)), "rank 1 to be stopped")
            p.send_signal(sig)
            _, err = p.communicate(timeout=LIMIT)
            self.assertEqual((p.returncode, err), (128 + sig, "unisono run: ended by %s; no rank is left\n" % sig.name))
            mark.gone()

    def test_rank_that_ignores_the_signal(self):
        mark = Mark()
        p = start("-n", "2", "--grace", "1", "--", "sh", "-c", 'test $UNISONO_RANK = 0 || trap "" TERM; exec sleep "$0"', mark.word)
        mark.there(2 + 2)
        wait_for(lambda: [name_of(rank) for agent in agents(p.pid) for rank in agents(agent)] == ["sleep"] * 2, "the trap to stand")
        p.send_signal(signal.SIGTERM)
        said = p.stderr.readline()
        self.assertRegex(said, r"^unisono run: rank 1 \(host \S+, pid \d+\) has not ended 1 s after SIGTERM; a second signal kills it\n$")
        p.send_signal(signal.SIGTERM)
        _, err = p.communicate(timeout=LIMIT)
        self.assertEqual((p.returncode, err), (143, "unisono run: second signal: killing all ranks\nunisono run: ended by SIGTERM; no rank is left\n"))
        mark.gone()

    def test_launcher_stopped_over_the_end(self):
        mark = Mark()
        p = start("-n", "2", "--", "sh", "-c", "sleep %s; echo last words" % mark.word)
        mark.there(2)
        agent = agents(p.pid)[0]
        p.send_signal(signal.SIGSTOP)
        for pid in processes(mark.word):
            os.kill(pid, signal.SIGTERM)
        wait_for(lambda: parent_and_state(agent)[1] == "Z", "the end of the agent")
        p.send_signal(signal.SIGCONT)  # passed on as others are, and nobody is there any more
        out, err = p.communicate(timeout=LIMIT)
        self.assertEqual((p.returncode, out), (0, "last words\n" * 2), err)

    def test_launcher_killed(self):
        mark = Mark()
        p = start("-n", "3", "--", "sh", "-c", "setsid sleep %s & sleep %s" % (mark.word, mark.word))
        mark.there(6)
        p.kill()
        p.communicate(timeout=LIMIT)
        mark.gone()

    def test_agent_killed(self):
        mark = Mark()
        p = start("-n", "2", "--", "sh", "-c", "setsid sleep %s & sleep %s" % (mark.word, mark.word))
        mark.there(4)
        agent = agents(p.pid)
        self.assertEqual(len(agent), 1)
        os.kill(agent[0], signal.SIGKILL)
        _, err = p.communicate(timeout=LIMIT)
        self.assertEqual(p.returncode, 2)
        self.assertIn("the agent of this host was killed by signal 9", err)
        mark.gone()


    def test_agent_ended(self):
        """It ends its ranks with itself, and nobody is sent to look for memory that ran out."""
        for sig in signal.SIGTERM, signal.SIGHUP:
            mark = Mark()
            p = start("-n", "2", "--", "sh", "-c", "setsid sleep %s & sleep %s" % (mark.word, mark.word))
            mark.there(4)
            os.kill(agents(p.pid)[0], sig)
            _, err = p.communicate(timeout=LIMIT)
            self.assertEqual(p.returncode, 2)
            self.assertRegex(err, r"\Aunisono run: the agent of host \S+ was ended by signal %d \(%s\) and ended its ranks; no other rank was running\n(unisono run: ended .*\n)?\Z"
                             % (sig, sig.name))
            mark.gone()


def comm(pid):
    try:
        with open("/proc/%d/comm" % pid) as f:
            return f.read()
    except OSError:
        return ""


def parent_and_state(pid):
    try:
        with open("/proc/%s/stat" % pid) as f:
            state, ppid = f.read().rsplit(")", 1)[1].split()[:2]
            return int(ppid), state
    except OSError:
        return -1, ""


def name_of(pid):
    try:
        with open("/proc/%s/comm" % pid) as f:
            return f.read().strip()
    except OSError:
        return ""


def agents(launcher):
    return [int(pid) for pid in filter(str.isdigit, os.listdir("/proc")) if parent_and_state(pid)[0] == launcher]


class Words(unittest.TestCase):
    def refused(self, words, *args):
        rc, out, err = run(*args)
        self.assertEqual((rc, out), (2, ""))
        self.assertEqual(err.count("\n"), 1, err)
        self.assertIn(words, err)

    def test_refused(self):
        for number in "0", "four", "99999999999", "65537":
            self.refused(f"-n {number}: legal is a number of ranks from 1 to 65536", "-n", number, "--", "true")
        self.refused("more than 65536 ranks", "--hosts", "a:65536,b:1", "--", "true")
        self.refused("how many ranks", "--", "true")
        self.refused("which program", "-n", "2")
        self.refused("did you mean --bind", "-n", "2", "--bnd", "core", "--", "true")
        self.refused("legal are none, core, numa and auto", "-n", "2", "--bind", "socket", "--", "true")
        self.refused("needs a value", "-n")
        self.refused("places for 4 ranks on 2 hosts", "-n", "5", "--hosts", "a:2,b:2", "--", "true")
        self.refused("no number of ranks after the colon", "--hosts", "a:x", "--", "true")
        self.refused('names "a" twice', "--hosts", "a:1,a:1", "--", "true")
        self.refused("is empty", "--hosts", "", "--", "true")
        self.refused("not a host", "--hosts=-oProxyCommand=x:1", "--", "true")
        self.refused("does not contain {host}", "--hosts", "a", "--launcher", "ssh", "--", "true")
        self.refused("name them with --hosts", "-n", "1", "--launcher", "ssh {host}", "--", "true")
        self.refused("not a port", "-n", "1", "--port", "70000", "--", "true")
        self.refused("not a time", "-n", "1", "--grace", "soon", "--", "true")

    def test_port_in_use(self):
        import socket
        with socket.socket() as s:
            s.bind(("0.0.0.0", 0))
            s.listen()
            port = str(s.getsockname()[1])
            rc, _, err = run("-n", "1", "--port", port, "--", "true")
        self.assertEqual(rc, 2)
        self.assertIn("port %s is in use" % port, err)

    def test_doctor_says_units(self):
        p = subprocess.run([UNISONO, "doctor", "--env"], capture_output=True, text=True, timeout=LIMIT, check=False,
                           env={"PATH": os.environ["PATH"], "UNISONO_MEMORY_LIMIT": "3M"})
        self.assertRegex(p.stdout, r"(?m)^  UNISONO_MEMORY_LIMIT +3145728 bytes = 3 MB  \(")
        self.assertRegex(p.stdout, r"(?m)^  UNISONO_STALL +5 s  \(")

    def test_help(self):
        rc, out, _ = run("--help")
        self.assertEqual(rc, 0)
        self.assertIn("--hosts", out)


class OtherHosts(unittest.TestCase):
    """Launcher commands that start the agent elsewhere, here or in a namespace."""

    def test_any_command(self):
        rc, out, err = run("--hosts", "one:2,two:1", "--launcher", "env HOST={host}", "--tag", "--", "sh", "-c", "echo $UNISONO_HOST $HOST $LOCAL_RANK")
        if "reaches the host of rank 0 at none" in err:
            self.skipTest("this machine has no address but loopback")
        self.assertEqual(rc, 0, err)
        self.assertEqual(sorted(out.splitlines()), ["[0] one one 0", "[1] one one 1", "[2] two two 0"])

    def test_hosts_of_ranks_that_do_not_join(self):
        """Rank 0 says it when it has waited for long, and everybody at the deadline."""
        rc, _, err = run("--hosts", "one:1,two:2,three:1", "--launcher", "env HOST={host}", "--", "sh", "-c",
                         'case $UNISONO_RANK in 2|3) exec sleep 1h;; esac; exec "$0" perf all_reduce -b 8 -e 8', UNISONO,
                         env={"UNISONO_STALL": "0.3", "UNISONO_JOIN_TIMEOUT": "2"})
        self.assertNotEqual(rc, 0)
        where = r"2-3 \(host two: 2; host three: 3\)"
        self.assertRegex(err, r"unisono: rank 0: 2 of 4 ranks have not joined though others wait for [0-9.]+ s: " + where)
        self.assertRegex(err, r"2 of 4 ranks have not joined when the deadline of rank [01] passed: " + where)

    def test_rank_0_does_not_join(self):
        """Nobody serves the joining: the first rank of each host says so."""
        rc, _, err = run("--hosts", "one:2,two:2", "--launcher", "env HOST={host}", "--", "sh", "-c",
                         'case $UNISONO_RANK in 0) exec sleep 1h;; esac; exec "$0" perf all_reduce -b 8 -e 8', UNISONO,
                         env={"UNISONO_STALL": "0.3", "UNISONO_JOIN_TIMEOUT": "2"})
        self.assertNotEqual(rc, 0)
        self.assertEqual(sorted(re.findall(r"(?m)^unisono: rank (\d): rank 0 was not reached for 0\.\d s \([^)]*:\d+\), and all others need it", err)), ["1", "2"], err)

    def test_noise_of_a_login_shell(self):
        rc, out, err = run("--hosts", "one:1", "--launcher", "sh -c 'echo Welcome to {host}; exec \"$@\"' {host}", "--", "sh", "-c", "echo fine")
        # Quotes inside quotes are the template's own business: what matters is that the greeting did no harm.
        self.assertIn((rc, out), [(0, "fine\n"), (2, "")], err)

    def test_variables_travel(self):
        rc, out, err = run("--hosts", "one:1", "--launcher", "env -i HOST={host}", "-x", "COLOUR", "-x", "SHAPE=round", "--", "/bin/sh", "-c",
                           "echo $COLOUR $SHAPE $UNISONO_DEBUG", env={"COLOUR": "blue", "UNISONO_DEBUG": "warn"})
        self.assertEqual((rc, out), (0, "blue round warn\n"), err)

    def test_unreachable(self):
        rc, _, err = run("--hosts", "one:1", "--launcher", "sh -c 'exit 255' {host}", "--", "true")
        self.assertEqual(rc, 2)
        self.assertRegex(err, r"host one could not be reached.*ended with status 255")
        rc, _, err = run("--hosts", "one:1", "--launcher", "no-such-shell {host}", "--", "true")
        self.assertEqual(rc, 2)
        self.assertIn("cannot start no-such-shell", err)

    def test_silent_host(self):
        mark = Mark()
        rc, _, err = run("--hosts", "one:1", "--start-timeout", "0.3", "--launcher", "sleep %s --{host}" % "1h", "--", "true")
        self.assertEqual(rc, 2)  # sleep refuses the option, or hangs: either way a sentence
        rc, _, err = run("--hosts", "one:1", "--start-timeout", "0.3", "--launcher", "sh -c 'sleep %s' {host}" % mark.word, "--", "true")
        self.assertEqual(rc, 2)
        self.assertIn("has not answered for", err)
        mark.gone()

    def test_launcher_killed(self):
        mark = Mark()
        p = start("--hosts", "one:2", "--launcher", "env HOST={host}", "--", "sh", "-c", "setsid sleep %s & sleep %s" % (mark.word, mark.word))
        mark.there(4)
        p.kill()
        p.communicate(timeout=LIMIT)
        mark.gone()


class Ssh(unittest.TestCase):
    """The default way, with a stand-in for ssh that notes its arguments and hands the command to a shell, as sshd does."""

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="unisono-ssh-")
        self.addCleanup(shutil.rmtree, self.dir)
        with open(os.path.join(self.dir, "ssh"), "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\nprintf '%%s\\n' \"$@\" >> %s/arguments\nfor last; do :; done\necho Last login: today\n"
                    "exec env -i HOME=/ sh -c \"$last\"\n" % self.dir)
        os.chmod(os.path.join(self.dir, "ssh"), 0o755)

    def run_there(self, *args, **env):
        return run(*args, env=dict(env, PATH=self.dir + ":" + os.environ["PATH"]))

    def test_ranks_there(self):
        rc, out, err = self.run_there("--hosts", "nodeA:1,nodeB:1", "--tag", "--", "sh", "-c", "echo $UNISONO_HOST $OMP_NUM_THREADS; pwd", OMP_NUM_THREADS="3")
        if "reaches the host of rank 0 at none" in err:
            self.skipTest("this machine has no address but loopback")
        self.assertEqual(rc, 0, err)
        here = os.getcwd()
        self.assertEqual(sorted(out.splitlines()), sorted(["[0] nodeA 3", "[0] " + here, "[1] nodeB 3", "[1] " + here]))

    def test_secret_is_not_an_argument(self):
        script = "import os; print(os.pread(int(os.environ['UNISONO_SECRET_FD']), 64, 0).decode())"
        rc, secret, err = self.run_there("--hosts", "nodeA:1", "--", sys.executable, "-c", script)
        self.assertEqual(rc, 0, err)
        with open(os.path.join(self.dir, "arguments"), encoding="utf-8") as f:
            arguments = f.read()
        self.assertIn("nodeA\n", arguments)
        self.assertEqual(len(secret.strip()), 64)
        self.assertNotIn(secret.strip(), arguments)

    def test_own_host_needs_no_ssh(self):
        rc, out, err = self.run_there("--hosts", "localhost:2", "--", "echo", "here")
        self.assertEqual((rc, out), (0, "here\nhere\n"), err)
        self.assertFalse(os.path.exists(os.path.join(self.dir, "arguments")))

    def test_program_missing_there(self):
        rc, _, err = self.run_there("--hosts", "nodeA:1", "--agent-program", "/not/there/unisono", "--", "true")
        self.assertEqual(rc, 2)
        self.assertIn("unisono could not be started there", err)
        self.assertIn("/not/there/unisono", err)


class Namespaces(unittest.TestCase):
    NAMES = ["uno-run-a", "uno-run-b"]

    @classmethod
    def setUpClass(cls):
        if not shutil.which("ip"):
            raise unittest.SkipTest("no network namespaces here: there is no program ip (Debian: iproute2)")

        def ip(*args):
            subprocess.run(["ip", *args], check=True, capture_output=True)
        try:
            for name in cls.NAMES:
                ip("netns", "add", name)
            ip("link", "add", "uno-run-va", "netns", cls.NAMES[0], "type", "veth", "peer", "name", "uno-run-vb", "netns", cls.NAMES[1])
            for i, name in enumerate(cls.NAMES):
                ip("-n", name, "addr", "add", "10.213.7.%d/24" % (i + 1), "dev", "uno-run-v" + "ab"[i])
                ip("-n", name, "link", "set", "uno-run-v" + "ab"[i], "up")
        except (OSError, subprocess.CalledProcessError) as e:
            cls.tearDownClass()
            raise unittest.SkipTest("no network namespaces here: %s" % e)

    @classmethod
    def tearDownClass(cls):
        for name in cls.NAMES:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def lo(self, state):
        for name in self.NAMES:
            subprocess.run(["ip", "-n", name, "link", "set", "lo", state], check=True)

    def hosts(self, *args):
        return run("--hosts", "uno-run-a:2,uno-run-b:2", "--launcher", "ip netns exec {host}", *args)

    def test_two_hosts(self):
        self.lo("up")
        rc, out, err = self.hosts("--tag", "--", "sh", "-c", "echo $UNISONO_HOST ${UNISONO_ADDR%:*} $LOCAL_RANK")
        self.assertEqual(rc, 0, err)
        self.assertEqual(sorted(out.splitlines()), ["[0] uno-run-a 10.213.7.1 0", "[1] uno-run-a 10.213.7.1 1", "[2] uno-run-b 10.213.7.1 0",
                                                    "[3] uno-run-b 10.213.7.1 1"])

    def test_failure_on_the_other_host(self):
        self.lo("up")
        mark = Mark()
        rc, _, err = self.hosts("--", "sh", "-c", "if [ $RANK = 3 ]; then echo ouch >&2; exit 4; fi; setsid sleep %s & sleep %s" % (mark.word, mark.word))
        self.assertEqual(rc, 4)
        self.assertRegex(err, r"rank 3 \(host uno-run-b, pid \d+\) exited with status 4")
        mark.gone()

    def test_no_loopback(self):
        self.lo("down")
        rc, _, err = self.hosts("--", "true")
        self.assertEqual(rc, 2)
        self.assertIn("ip link set lo up", err)

    def test_no_way(self):
        self.lo("up")
        subprocess.run(["ip", "-n", "uno-run-b", "addr", "flush", "dev", "uno-run-vb"], check=True)
        try:
            rc, _, err = self.hosts("--", "true")
        finally:
            subprocess.run(["ip", "-n", "uno-run-b", "addr", "add", "10.213.7.2/24", "dev", "uno-run-vb"], check=True)
        self.assertEqual(rc, 2)
        self.assertRegex(err, r"host uno-run-b: it reaches the host of rank 0 at none of its addresses \(10\.213\.7\.1:\d+")


if __name__ == "__main__":
    unittest.main(verbosity=2)
