# SPDX-License-Identifier: Apache-2.0
"""The ranks of one implementation, started once and told over a socket what to measure; workers/worker.c is the other end."""
import os
import selectors
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import hosts


class Failed(Exception):
    pass


class Group:
    """start: a function of (socket path, folder, rank or None) -> list of (argv, environment) to start: one launcher, or one a rank.
    After __init__ all ranks have joined; joined_s and barrier_s are seconds since all were told to join."""

    def __init__(self, name, size, start, limit_s=120):
        self.name, self.size, self.limit_s = name, size, limit_s
        self.folder = tempfile.mkdtemp(prefix="bench-")
        self.errors = open(os.path.join(self.folder, "errors"), "w+")
        self.ranks, self.files, self.started = [], [], []
        try:
            self._start(start)
        except BaseException:
            self.close(hard=True)
            raise

    def _start(self, start):
        path = os.path.join(self.folder, "driver")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
            door.bind(path)
            door.listen(self.size)
            for argv, environment in start(path, self.folder):
                env = dict(os.environ, BENCH_SOCKET=path, BENCH_FOLDER=self.folder, **environment)
                self.started.append(subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=self.errors, stderr=self.errors,
                                                     start_new_session=True))
            deadline = time.monotonic() + self.limit_s
            door.settimeout(0.2)
            while len(self.ranks) < self.size:
                try:
                    self._add(door.accept()[0])
                except TimeoutError:
                    self._still_there(deadline)
        self.pids = [int(self._hear(i, deadline).split()[1]) for i in range(self.size)]
        began = time.monotonic()
        self._tell_all("go")
        self._join(began, deadline)

    def _add(self, s):
        self.ranks.append(s)
        self.files.append(s.makefile("r"))

    def _still_there(self, deadline):
        if time.monotonic() > deadline:
            raise Failed("%d of %d ranks came within %d s" % (len(self.ranks), self.size, self.limit_s) + self.said())
        if any(p.poll() not in (None, 0) for p in self.started):
            raise Failed("a rank or its launcher ended" + self.said())

    def _join(self, began, deadline):
        """Ranks may exchange data through the driver while they join."""
        joined, waiting = {}, {}
        with selectors.DefaultSelector() as chosen:
            for i, s in enumerate(self.ranks):
                chosen.register(s, selectors.EVENT_READ, i)
            while len(joined) < self.size:
                for key, _ in chosen.select(0.5):
                    words = self._hear(key.data, deadline).split(None, 5)
                    if words[0] == "gather":
                        waiting[int(words[1])] = (key.data, words[2])
                    else:
                        joined[key.data] = words
                if len(waiting) == self.size:
                    everything = "".join(waiting[r][1] for r in range(self.size))
                    for i, _ in waiting.values():
                        self._tell(i, everything)
                    waiting = {}
                self._still_there(deadline)
        self.version = joined[0][5]
        self.joined_s = max(float(w[3]) for w in joined.values()) - began
        self.barrier_s = max(float(w[4]) for w in joined.values()) - began

    def _tell(self, i, text):
        try:
            self.ranks[i].sendall((text + "\n").encode())
        except OSError as why:
            raise Failed("rank is gone: %s" % why + self.said())

    def _tell_all(self, text):
        for i in range(self.size):
            self._tell(i, text)

    def _hear(self, i, deadline):
        self.ranks[i].settimeout(max(0.1, deadline - time.monotonic()))
        try:
            text = self.files[i].readline()
        except OSError:
            raise Failed("no answer within the limit" + self.said())
        if not text:
            raise Failed("a rank ended" + self.said())
        return text.rstrip("\n")

    def ask(self, text):
        deadline = time.monotonic() + self.limit_s
        self._tell_all(text)
        return [self._hear(i, deadline).split() for i in range(self.size)]

    def measure(self, coll, size_bytes, in_place, own, warm, batches, iters, check):
        """(seconds of one call in each batch: the slowest rank's; wrong elements), or a string: why not."""
        answers = self.ask("run %s %d %d %d %d %d %d %d" % (coll, size_bytes, in_place, own, warm, batches, iters, check))
        refused = [" ".join(a[1:]) for a in answers if a[0] != "times"]
        if refused:
            return refused[0]
        times = [[float(t) for t in a[2:]] for a in answers]
        return [max(of) for of in zip(*times)], sum(int(a[1]) for a in answers)

    def resident_kb(self):
        return [int(a[1]) for a in self.ask("memory")]

    def processor_s(self):
        """Processor time of all ranks so far."""
        tick, total = os.sysconf("SC_CLK_TCK"), 0
        for pid in self.pids:
            try:
                with open("/proc/%d/stat" % pid) as f:
                    fields = f.read().rsplit(")", 1)[1].split()
                total += int(fields[11]) + int(fields[12])
            except OSError:
                pass
        return total / tick

    def said(self):
        self.errors.flush()
        self.errors.seek(0)
        text = self.errors.read()[-600:].strip()
        ended = ["status %d" % p.returncode for p in self.started if p.poll()]
        return "".join(": " + t for t in [", ".join(ended), text] if t)

    def close(self, hard=False):
        if not hard:
            for i in range(len(self.ranks)):
                try:
                    self._tell(i, "quit")
                except Failed:
                    pass
            until = time.monotonic() + 10
            while time.monotonic() < until and any(p.poll() is None for p in self.started):
                time.sleep(0.01)
        for p in self.started:
            if p.poll() is None:
                try:
                    os.killpg(p.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            p.wait()
        for s in self.files + self.ranks:
            s.close()
        self.errors.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def starter(peer, folder, job, worker):
    """What Group starts: the peer's own launcher, or one process a rank, on its host."""
    def start(path, meeting):
        own = peer.environment(folder, job)
        if peer.command:
            before = hosts.from_switch(job) if job.hosts else []
            return [(before + peer.command(folder, job) + [worker], own)]
        each = job.size // len(job.hosts) if job.hosts else job.size
        made = []
        for r in range(job.size):
            env = dict(own, BENCH_RANK=str(r), BENCH_SIZE=str(job.size))
            env.update(CCL_LOCAL_RANK=str(r % each), UNISONO_RANK=str(r), UNISONO_SIZE=str(job.size), UNISONO_FILE=os.path.join(meeting, "meet"))
            made.append((([job.agent, job.hosts[r // each]] if job.hosts else []) + [worker], env))
        return made
    return start
