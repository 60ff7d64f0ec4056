#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""campaign.py [options] UNISONO WORKER - the faults campaign: real jobs (worker.c under `unisono run`) in which one thing is made to go
wrong at a random moment, rank and size; then it is read what was said. A fault counts as named right only if a sentence names the rank or
host that was chosen and says what was done to it. Counted too: how long that took, what was said though nothing was wrong, what is left
behind, how long an abort takes, whether the others could go on. Exit status 0: all right. Needs Linux and Python's standard library."""
import argparse
import collections
import ctypes
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

LIMIT_S = 60.0  # for everything that is waited for and has no limit of its own
STARTED = []    # cgroups made so far; what is still there is removed at the end
OPTIONS = None

Cause = collections.namedtuple("Cause", "what group how named")
# group: what the time is measured against: death and mismatch at once, stall the stall limit, start, slow, cut.
# how: worker = by worker.c; else the function inject_HOW. named: what one sentence must match; {rank}, {peer}, {pid}, ... are filled in.
RANK = r"rank {rank}\b[^;]*"
CAUSES = {
    "absent_sleep": Cause("a rank sleeps and never calls", "stall", "worker", r"stuck.*rank {rank} \(pid {pid} .*(never called|has not called).*(sleeps|nanosleep)"),
    "absent_spin": Cause("a rank computes and never calls", "stall", "worker", r"stuck.*rank {rank} \(pid {pid} .*has not called it yet; it (computes|is ready to run)"),
    "absent_read": Cause("a rank reads from an empty pipe and never calls", "stall", "worker", r"stuck.*rank {rank} \(pid {pid} .*never called.*system call read"),
    "collective": Cause("a rank calls another collective", "mismatch", "worker", r"#{number}: (?=.*rank {rank} calls)(.* calls? ){{2}}"),
    "count": Cause("a rank passes another count", "mismatch", "worker", r"#{number}: (?=.*rank {rank} passes count)(.*passes? count){{2}}"),
    "type": Cause("a rank passes another type", "mismatch", "worker", r"#{number}: (?=.*rank {rank} passes type)(.*passes? type){{2}}"),
    "root": Cause("a rank passes another root", "mismatch", "worker", r"#{number}: (?=.*rank {rank} passes root)(.*passes? root){{2}}"),
    "op": Cause("a rank passes another operation", "mismatch", "worker", r"#{number}: (?=.*rank {rank} passes op)(.*passes? op){{2}}"),
    "skip": Cause("a rank skips one operation and goes on", "mismatch", "worker", r"rank {rank}\b.*off by one from operation #{number}"),
    "order": Cause("two communicators in opposite order", "stall", "worker", r"used in different order.*rank {rank} \(pid"),
    "send": Cause("a send without receive", "stall", "worker", r"send without receive: rank {rank} .*send to rank {peer}\b|rank {rank} .*in send to rank {peer}\b.*no receive"),
    "recv": Cause("a receive without send", "stall", "worker", r"receive without send: rank {rank} .*recv from rank {peer}\b|rank {rank} .*in recv.* rank {peer}\b.*no send"),
    "crossed": Cause("two ranks send to each other first", "stall", "worker", r"crossed sends: (?=.*send to rank {peer}\b).*send to rank {rank}\b"),
    "exit0": Cause("a rank exits with status 0 before the end", "death", "worker", RANK + r"(left the communicator|exited with status 0)"),
    "status": Cause("a rank exits with status 3", "death", "worker", RANK + r"(left the communicator|exited with status 3)"),
    "abort": Cause("a rank calls abort()", "death", "worker", RANK + r"killed by signal 6"),
    "segv": Cause("a rank crashes", "death", "worker", RANK + r"killed by signal 11"),
    "oom": Cause("a rank is killed for want of memory", "death", "worker", RANK + r"killed by signal 9"),
    "kill": Cause("SIGKILL", "death", "kill", RANK + r"killed by signal 9"),
    "children": Cause("SIGKILL of a rank with four children that hold what it had open", "death", "kill", RANK + r"killed by signal 9"),
    "comm_abort": Cause("a rank calls uno_comm_abort", "death", "worker", r"UNO_ERR_ABORTED.*rank {rank}\b"),
    "stop": Cause("SIGSTOP", "stall", "stop", r"stuck.*rank {rank} \(pid {pid} .*is stopped"),
    "debugger": Cause("a debugger holds a rank", "stall", "debugger", r"stuck.*rank {rank} \(pid {pid} .*held by a debugger"),
    "freeze": Cause("the cgroup of a rank is frozen", "stall", "freeze", r"stuck.*rank {rank} \(pid {pid} .*frozen with its cgroup"),
    "slow_rank": Cause("a rank gets 1 % of a processor", "slow", "starve", r"rank {rank} \(pid {pid} .*had no processor"),
    "never_joins": Cause("a rank never joins", "start", "worker", r"have not joined [^:]*: ([0-9]+(-[0-9]+)?, )*{rank}\b"),
    "settings": Cause("a rank has another setting", "start", "worker", r"UNISONO_CHANNELS(?=.*\b3\b).*\b0\b"),
    "cut_drop": Cause("packets between two hosts vanish", "cut", "drop", r"do not reach each other.*interface host|no path between.*\(host"),
    "cut_reject": Cause("packets between two hosts are refused", "cut", "reject", r"do not reach each other.*interface host|no path between.*\(host"),
    "cut_down": Cause("a host's link goes down", "cut", "down", r"do not reach each other.*interface host|no path between.*\(host"),
    "slow_link": Cause("a link is throttled", "slow", "throttle", r"path between .*{host}\b.*moves"),
}
NETS = [c for c in CAUSES if c.startswith("cut_") or c == "slow_link"]
SHORT = ["absent_sleep", "absent_spin", "absent_read", "collective", "count", "type", "root", "op", "order", "send", "recv", "crossed", "exit0",
         "status", "abort", "segv", "kill", "children", "comm_abort", "stop", "never_joins", "settings"]
DEATH_WORDS = re.compile(r"rank \d+ \(pid.*(was killed by|has ended|is dead)")
FACTS = re.compile(r"goes on after|has not called it yet; it computes|all \d+ ranks have called it")


class Impossible(Exception):
    """This cause cannot be made on this machine; says why."""


def shared_memory():
    """Names of ours there. Memory without a name lives as long as a process that holds it, and those are counted."""
    return [n for n in os.listdir("/dev/shm") if n.startswith(("uno", "unisono"))] if os.path.isdir("/dev/shm") else []


class Job:
    """One job: its lines with the times they came, its processes, and the kernel's objects they hold."""

    def __init__(self, ranks, env, hosts=None):
        self.dir = tempfile.mkdtemp(prefix="campaign-")
        self.mark = "CAMPAIGN_MARK=" + self.dir
        self.lines = []  # (time, text)
        self.held = set()
        orders = {k: str(v) for k, v in env.items()}
        orders.update(CAMPAIGN_MARK=self.dir, TMPDIR=self.dir, UNISONO_LEDGER_DIR=self.dir)
        where = ["-n", str(ranks)]
        if hosts:
            where = ["--hosts", ",".join("%s:%d" % h for h in hosts), "--launcher", "ip netns exec {host}"]
        passed = [word for k, v in orders.items() for word in ("--env", "%s=%s" % (k, v))]
        self.ranks, self.before = ranks, shared_memory()
        self.process = subprocess.Popen([OPTIONS.unisono, "run", "--tag", "--keep-going", *where, *passed, "--", OPTIONS.worker],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                        env=dict(os.environ, **orders))
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line.rstrip("\n")))

    def until(self, condition, limit=LIMIT_S):
        end = time.monotonic() + limit
        while True:
            found = condition()
            if found or time.monotonic() > end:
                return found
            if self.process.poll() is not None:
                self.reader.join(5)
                return condition()
            time.sleep(0.005)

    def said(self, pattern, after=0.0):
        """The first line that matches, with its time. What the launcher repeats does not count twice."""
        return next(((t, l) for t, l in list(self.lines) if t >= after and re.search(pattern, l) and not l.startswith("  | ")), None)

    def ready(self):
        return self.until(lambda: sum(" ready " in l for _, l in list(self.lines)) >= self.ranks)

    def pids(self):
        """Rank to pid, of the worker itself; and all processes of the job."""
        ranks, everyone = {}, []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open("/proc/%s/environ" % name, "rb") as f:
                    env = f.read().split(b"\0")
                if self.mark.encode() not in env or int(name) == self.process.pid:
                    continue
                with open("/proc/%s/stat" % name, encoding="utf-8", errors="replace") as f:
                    state = f.read().rsplit(")", 1)[1].split()[0]
                if state in "ZX":
                    continue
                everyone.append(int(name))
                rank = [e for e in env if e.startswith(b"UNISONO_RANK=")]
                with open("/proc/%s/cmdline" % name, "rb") as f:
                    worker = f.read().split(b"\0")[0] == OPTIONS.worker.encode()
                with open("/proc/%s/status" % name, encoding="utf-8", errors="replace") as f:
                    parent = int(re.search(r"^PPid:\s*(\d+)", f.read(), re.M).group(1))
                if rank and worker:
                    ranks.setdefault(int(rank[0].split(b"=")[1]), {})[int(name)] = parent
            except (OSError, IndexError, AttributeError):
                pass
        # Children of a rank carry its environment: the worker is the one whose parent is not of the same rank.
        return {r: next(p for p in of if of[p] not in of) for r, of in ranks.items()}, everyone

    def look(self):
        """Remember which sockets and shared memory the job has."""
        for pid in self.pids()[1]:
            try:
                for fd in os.listdir("/proc/%d/fd" % pid):
                    target = os.readlink("/proc/%d/fd/%s" % (pid, fd))
                    if target.startswith(("socket:", "/memfd:")):
                        self.held.add(target)
            except OSError:
                pass

    def left(self):
        """What is there after the end: processes, sockets, memory, files."""
        self.until(lambda: self.process.poll() is not None, LIMIT_S)
        end = time.monotonic() + 5
        while self.pids()[1] and time.monotonic() < end:
            time.sleep(0.02)
        processes = self.pids()[1]
        inodes = {s[8:-1] for s in self.held if s.startswith("socket:")}
        there, names = set(), ["/proc/net/" + n for n in ("tcp", "tcp6", "udp", "udp6", "unix")]
        for name in names:
            try:
                with open(name, encoding="utf-8", errors="replace") as f:
                    there.update(w for line in f for w in line.split() if w in inodes)
            except OSError:
                pass
        memory = [n for n in shared_memory() if n not in self.before]
        files = [os.path.join(d, f) for d, _, fs in os.walk(self.dir) for f in fs if "unisono-%d" % os.getuid() not in d]
        return {"processes": len(processes), "sockets": len(there), "shared memory": len(memory), "files": len(files)}

    def end(self):
        for pid in self.pids()[1] + ([self.process.pid] if self.process.poll() is None else []):
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        self.process.wait()
        self.reader.join(5)
        shutil.rmtree(self.dir, ignore_errors=True)


class Trial:
    """One injected fault: what was chosen, and undo functions for what was done."""

    def __init__(self, name, seed, hosts):
        self.name, self.cause = name, CAUSES[name]
        self.random = random.Random(seed)
        self.seed, self.hosts, self.undo = seed, hosts, []
        r = self.random
        self.ranks = sum(n for _, n in hosts) if hosts else r.randint(2, 8)
        self.rank = r.randrange(1 if name in ("never_joins", "settings") else 0, self.ranks)
        self.peer = r.choice([p for p in range(self.ranks) if p != self.rank])
        self.at = r.randint(6, 200)
        self.shrink = self.cause.group == "death" and self.ranks > 2 and name != "comm_abort"
        self.pid = 0
        self.pair = r.sample(hosts, 2) if hosts else None

    def env(self):
        e = {"CAMPAIGN_RANK": self.rank, "CAMPAIGN_PEER": self.peer, "CAMPAIGN_SEED": self.random.randrange(1 << 30),
             "CAMPAIGN_CAUSE": self.name, "CAMPAIGN_AT": self.at if self.cause.how == "worker" else -1, "CAMPAIGN_SHRINK": int(self.shrink),
             "CAMPAIGN_COUNT": self.random.choice([16, 256, 1 << 12, 1 << 14]), "UNISONO_STALL": OPTIONS.stall,
             "UNISONO_TIMEOUT": OPTIONS.stall + 6, "UNISONO_SUSPECT": 1.5, "UNISONO_SUSPECT_TIMEOUT": 5, "UNISONO_SHRINK_TIMEOUT": 5,
             "UNISONO_JOIN_TIMEOUT": 3 if self.name == "never_joins" else 60}
        if self.name == "oom":
            group = make_cgroup("memory")
            write(group, "memory.limit_in_bytes" if legacy("memory") else "memory.max", 64 << 20)
            self.undo.append(lambda: remove_cgroup(group))
            e["CAMPAIGN_CGROUP"] = os.path.join(group, "cgroup.procs")
        if self.cause.group == "slow":
            e["CAMPAIGN_COUNT"] = 1 << 17
        return e

    def pattern(self):
        number = self.at + 1
        host = self.pair[0][0] if self.pair else ""
        return self.cause.named.format(rank=self.rank, peer=self.peer, pid=self.pid, number=number, host=host)


def legacy(controller):
    return os.path.isdir("/sys/fs/cgroup/" + controller)


def make_cgroup(controller):
    root = "/sys/fs/cgroup/" + controller if legacy(controller) else "/sys/fs/cgroup"
    path = os.path.join(root, "unisono-campaign-%d-%d" % (os.getpid(), len(STARTED)))
    try:
        if root == "/sys/fs/cgroup" and controller != "freezer":
            write(root, "cgroup.subtree_control", "+" + controller)
        os.mkdir(path)
    except OSError as e:
        raise Impossible("no cgroup can be made: %s" % e) from e
    STARTED.append(path)
    return path


def remove_cgroup(path):
    end = time.monotonic() + 5
    while os.path.isdir(path) and time.monotonic() < end:
        try:
            os.rmdir(path)
        except OSError:
            time.sleep(0.02)


def write(folder, name, value):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
        f.write(str(value))


def inject_kill(trial, _job):
    os.kill(trial.pid, signal.SIGKILL)


def inject_stop(trial, _job):
    os.kill(trial.pid, signal.SIGSTOP)
    trial.undo.append(lambda: os.kill(trial.pid, signal.SIGCONT))


def inject_debugger(trial, job):
    gdb = shutil.which("gdb")
    if not gdb:
        raise Impossible("gdb is not installed")
    p = subprocess.Popen([gdb, "-q", "-nx", "-batch", "-iex", "set auto-solib-add off", "-p", str(trial.pid), "-ex", "shell sleep 100"],
                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)

    def off():
        os.killpg(p.pid, signal.SIGKILL)
        p.wait()
    trial.undo.append(off)

    def held():
        with open("/proc/%d/status" % trial.pid, encoding="utf-8") as f:
            return "TracerPid:\t0" not in f.read()
    if not job.until(held, 20):
        raise Impossible("gdb does not attach")


def inject_freeze(trial, _job):
    group = make_cgroup("freezer")
    trial.undo.append(lambda: remove_cgroup(group))
    root = os.path.dirname(group)
    trial.undo.append(lambda: write(root, "cgroup.procs", trial.pid))
    write(group, "cgroup.procs", trial.pid)
    name, on, off = ("freezer.state", "FROZEN", "THAWED") if legacy("freezer") else ("cgroup.freeze", 1, 0)
    trial.undo.append(lambda: write(group, name, off))
    write(group, name, on)


def inject_starve(trial, _job):
    group = make_cgroup("cpu")
    trial.undo.append(lambda: remove_cgroup(group))
    if legacy("cpu"):
        write(group, "cpu.cfs_period_us", 100000)
        write(group, "cpu.cfs_quota_us", 1000)
    else:
        write(group, "cpu.max", "1000 100000")
    trial.undo.append(lambda: write(os.path.dirname(group), "cgroup.procs", trial.pid))
    write(group, "cgroup.procs", trial.pid)


def in_host(host, *command):
    subprocess.run(["ip", "netns", "exec", host, *command], check=True, capture_output=True)


def host_number(host):
    return int(host.rsplit("-", 1)[1])


def each_way(trial, command):
    for here, there in (trial.pair, trial.pair[::-1]):
        in_host(here[0], *command("10.216.0.%d" % host_number(there[0])))


def inject_drop(trial, _job):
    each_way(trial, lambda to: ("ip", "neigh", "replace", to, "lladdr", "02:75:6e:6f:00:99", "dev", "host", "nud", "permanent"))


def inject_reject(trial, _job):
    each_way(trial, lambda to: ("ip", "route", "add", "unreachable", to + "/32"))


def inject_down(trial, _job):
    host = trial.pair[0][0]
    in_host(host.rsplit("-", 1)[0] + "-s", "ip", "link", "set", "port%d" % host_number(host), "down")


def inject_throttle(trial, _job):
    try:
        in_host(trial.pair[0][0], "tc", "qdisc", "add", "dev", "host", "root", "tbf", "rate", "2mbit", "burst", "16kb", "latency", "50ms")
    except (OSError, subprocess.CalledProcessError) as e:
        raise Impossible("tc cannot throttle here") from e


class Nets:
    """Three network namespaces on a bridge, which is a fourth one."""

    def __init__(self, number):
        self.base = "campaign-%d-%d" % (os.getpid(), number)
        self.names = [self.base + "-s"] + ["%s-%d" % (self.base, n) for n in (1, 2, 3)]

    def __enter__(self):
        if os.getuid() != 0:
            raise Impossible("network namespaces need root")
        try:
            for name in self.names:
                subprocess.run(["ip", "netns", "add", name], check=True, capture_output=True)
            switch = self.names[0]
            in_host(switch, "ip", "link", "set", "lo", "up")
            in_host(switch, "ip", "link", "add", "bridge", "type", "bridge", "forward_delay", "0")
            for n in (1, 2, 3):
                host = self.names[n]
                in_host(switch, "ip", "link", "add", "port%d" % n, "type", "veth", "peer", "name", "host", "netns", host)
                in_host(switch, "ip", "link", "set", "port%d" % n, "master", "bridge", "up")
                in_host(host, "ip", "link", "set", "lo", "up")
                in_host(host, "ip", "addr", "add", "10.216.0.%d/24" % n, "dev", "host")
                in_host(host, "ip", "link", "set", "host", "up")
            in_host(switch, "ip", "link", "set", "bridge", "up")
            end = time.monotonic() + LIMIT_S
            for host in self.names[1:]:
                while time.monotonic() < end and "state UP" not in subprocess.run(
                        ["ip", "netns", "exec", host, "ip", "-o", "link", "show", "host"], capture_output=True, text=True, check=False).stdout:
                    time.sleep(0.05)
        except (OSError, subprocess.CalledProcessError) as e:
            self.__exit__()
            raise Impossible("no network namespaces here: %s" % e) from e
        return self.names[1:]

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def wrong_words(trial, job, when):
    """Alarms before anything was done, and deaths that were none."""
    found = [l for t, l in job.lines if t < when and re.search(r"unisono: rank \d+:", l) and not FACTS.search(l)]
    if trial.cause.group not in ("death", "start", "mismatch"):
        found += [l for t, l in job.lines if DEATH_WORDS.search(l) and not l.startswith(("unisono run:", "  | "))]
    return found


def try_cause(trial):
    """Inject once; returns what came of it."""
    try:
        job = Job(trial.ranks, trial.env(), trial.hosts)
    except Impossible:
        undo(trial)
        raise
    result = {"cause": trial.name, "seed": trial.seed, "ranks": trial.ranks, "rank": trial.rank, "named": False, "time_s": None, "said": None,
              "hosts": len(trial.hosts) if trial.hosts else 1}
    try:
        if trial.cause.group != "start" and not job.ready():
            result["said"] = "the job did not start: " + " / ".join(l for _, l in job.lines[-3:])
            return result
        trial.pid = job.pids()[0].get(trial.rank, 0)
        own = next((int(m.group(1)) for _, l in job.lines for m in [re.search(r"pid (\d+)", l)] if m and "rank %d " % trial.rank in l), 0)
        trial.pid = trial.pid or own
        job.look()
        when = inject(trial, job)
        limit = {"death": 10, "mismatch": 10, "stall": OPTIONS.stall + 10, "start": 30, "slow": 25, "cut": 15}[trial.cause.group]
        found = job.until(lambda: job.said(trial.pattern()), limit)
        if found:
            result.update(named=True, time_s=max(0.0, found[0] - when), said=found[1])
        else:
            heard = [l for t, l in job.lines if t >= when and re.search(r"unisono: rank|\] error", l)]
            result["said"] = heard[0] if heard else None
        result["false_alarms"] = wrong_words(trial, job, when)
        if trial.cause.group == "slow":
            job.end()
        undo(trial)
        after(trial, job, when, result)
    finally:
        undo(trial)
        job.end()
    return result


def inject(trial, job):
    if trial.cause.how == "worker":
        found = job.until(lambda: job.said(r"\] cause ([0-9.]+)"))
        return float(found[1].rsplit(" ", 1)[1]) if found else time.monotonic()
    time.sleep(trial.random.uniform(0.02, 0.5))
    when = time.monotonic()
    globals()["inject_" + trial.cause.how](trial, job)
    return time.monotonic() if trial.cause.how == "debugger" else when


def undo(trial):
    while trial.undo:
        try:
            trial.undo.pop()()
        except OSError:
            pass


def after(trial, job, when, result):
    """How the job ends: all errors, shrunk or not, nothing left."""
    if trial.name == "never_joins":
        for pid in job.pids()[1]:
            if pid == job.pids()[0].get(trial.rank):
                os.kill(pid, signal.SIGKILL)
    if trial.name in ("absent_sleep", "absent_spin", "absent_read"): # it never returns by itself
        job.until(lambda: sum("] error" in l for _, l in list(job.lines)) >= trial.ranks - 1, OPTIONS.stall + 12)
        pid = job.pids()[0].get(trial.rank)
        if pid:
            os.kill(pid, signal.SIGKILL)
    if trial.cause.group != "slow" and trial.name not in ("stop", "debugger", "freeze"):
        result["ended"] = bool(job.until(lambda: job.process.poll() is not None, LIMIT_S))
    elif job.process.poll() is None: # it goes on healthily: ask it to end
        job.process.send_signal(signal.SIGTERM)
    job.reader.join(0.5)
    errors = [t for t, l in job.lines if "] error" in l]
    if trial.name == "comm_abort" and len(errors) >= trial.ranks:
        result["abort_s"] = errors[trial.ranks - 1] - when
    if trial.shrink:
        result["shrunk"] = sum("] shrunk" in l and l.endswith("of %d" % (trial.ranks - 1)) for _, l in job.lines) == trial.ranks - 1
    result["left"] = job.left()


def quota(job):
    """Half a processor for the whole job; None where that cannot be made."""
    try:
        group = make_cgroup("cpu")
        write(group, "cpu.cfs_quota_us" if legacy("cpu") else "cpu.max", 50000)
        for pid in job.pids()[0].values():
            write(group, "cgroup.procs", pid)
        return group
    except (Impossible, OSError):
        return None


def healthy(seed, end):
    """One job of uneven, oversubscribed ranks that is suspended now and then; returns the alarms."""
    r = random.Random(seed)
    group = None
    job = Job(r.randint(2, 8), {"CAMPAIGN_SEED": r.randrange(1 << 30), "CAMPAIGN_CAUSE": "", "CAMPAIGN_UNEVEN_US": r.choice([0, 1000, 20000]),
                                "CAMPAIGN_COUNT": r.choice([16, 1 << 12, 1 << 14]), "UNISONO_STALL": OPTIONS.stall})
    try:
        if not job.ready():
            return ["the job did not start: " + " / ".join(l for _, l in job.lines[-3:])]
        group = quota(job) if r.random() < 0.3 else None
        until = min(end, time.monotonic() + r.uniform(5, 20))
        while time.monotonic() < until and job.process.poll() is None:
            time.sleep(max(0.0, min(r.uniform(1, 4), until - time.monotonic())))
            if r.random() < 0.5: # the machine sleeps
                pids = list(job.pids()[0].values())
                for s in (signal.SIGSTOP, signal.SIGCONT):
                    for pid in pids:
                        os.kill(pid, s)
                    if s == signal.SIGSTOP:
                        time.sleep(r.uniform(0.5, OPTIONS.stall + 2))
        return [l for _, l in job.lines if (re.search(r"unisono: rank \d+:", l) and not FACTS.search(l)) or "] error" in l or "] wrong" in l]
    finally:
        job.end()
        if group:
            remove_cgroup(group)


def run_cause(name, n, count):
    seed = "%d/%s/%d" % (OPTIONS.seed, name, n)
    if name in NETS or (OPTIONS.nets and n % 2 and CAUSES[name].group != "start"):
        with Nets(count) as names:
            per = random.Random(seed).randint(1, 2)
            result = try_cause(Trial(name, seed, [(h, per) for h in names]))
    else:
        result = try_cause(Trial(name, seed, None))
    result["seed"] = seed
    return result


def percent(times):
    return "%.2f / %.2f" % (statistics.median(times), max(times)) if times else "-"


def summary(results, alarms, impossible):
    rows = []
    for name, cause in CAUSES.items():
        of = [r for r in results if r["cause"] == name]
        if not of and name not in impossible:
            continue
        times = [r["time_s"] for r in of if r["time_s"] is not None]
        left = sum(sum(r.get("left", {}).values()) for r in of)
        rows.append({"cause": name, "what": cause.what, "injected": len(of), "named": sum(r["named"] for r in of), "p50_max_s": percent(times),
                     "p50_s": statistics.median(times) if times else None, "max_s": max(times) if times else None,
                     "silent": sum(r["said"] is None for r in of), "false_alarms": sum(len(r.get("false_alarms", [])) for r in of), "left": left,
                     "shrunk": "%d of %d" % (sum(bool(r["shrunk"]) for r in of if "shrunk" in r), sum("shrunk" in r for r in of)),
                     "abort_max_s": max([r["abort_s"] for r in of if "abort_s" in r], default=None), "impossible": impossible.get(name)})
    return {"seed": OPTIONS.seed, "stall_s": OPTIONS.stall, "rows": rows, "healthy_minutes": OPTIONS.healthy_minutes, "healthy_alarms": alarms,
            "trials": results}


def good(total):
    def row_good(r):
        limit = {"death": 1.0, "mismatch": 1.0, "stall": OPTIONS.stall + 1.0}.get(CAUSES[r["cause"]].group)
        slow = limit and not OPTIONS.short and r["p50_s"] is not None and r["p50_s"] > limit
        shrunk = r["shrunk"].split(" of ")
        return r["named"] == r["injected"] and not r["false_alarms"] and not r["left"] and not slow and shrunk[0] == shrunk[1]
    return all(row_good(r) for r in total["rows"]) and not total["healthy_alarms"]


def page(total):
    out = ["# Faults campaign", "", "What was injected and what was said, verbatim, one example a cause. Written by",
           "`tests/campaign/campaign.py --page FILE`; seed %s, stall limit %s s (the product's own default is 5 s), %d processors." %
           (total["seed"], total["stall_s"], os.cpu_count()), "",
           "| cause | injected | named right | time to verdict p50 / max, s | silent | false alarms | left behind | shrunk |",
           "|---|---|---|---|---|---|---|---|"]
    for r in total["rows"]:
        out.append("| %s | %s | %d | %s | %d | %d | %d | %s |" % (r["what"], "not possible: " + r["impossible"] if r["impossible"] else r["injected"],
                   r["named"], r["p50_max_s"], r["silent"], r["false_alarms"], r["left"], "" if r["shrunk"] == "0 of 0" else r["shrunk"]))
    out += ["", "Healthy load: %s minutes, %d false alarms." % (total["healthy_minutes"], len(total["healthy_alarms"])), ""]
    aborts = [r["abort_max_s"] for r in total["rows"] if r["abort_max_s"] is not None]
    if aborts:
        out += ["`uno_comm_abort` freed all ranks within %.2f s at most." % max(aborts), ""]
    for r in total["rows"]:
        of = [t for t in total["trials"] if t["cause"] == r["cause"]]
        one = next((t for t in of if not t["named"]), of[0] if of else None)
        if one:
            said = re.sub(r"^\[\d+\] (error [0-9.]+ )?", "", one["said"] or "(nothing)")
            said = re.sub(r"\b%s\b" % re.escape(os.uname().nodename), "node", said)
            out += ["## %s" % r["what"], "", "Rank %d of %d.%s" % (one["rank"], one["ranks"], "" if one["named"] else " **Not named right.**"), "",
                    "```", said, "```", ""]
    with open(OPTIONS.page, "w", encoding="utf-8") as f:
        f.write("\n".join(out))


def options():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("unisono")
    p.add_argument("worker")
    p.add_argument("--times", type=int, default=20, help="how often each cause is injected (default 20)")
    p.add_argument("--causes", default=",".join(CAUSES), help="comma list; default all: %(default)s")
    p.add_argument("--seed", type=int, default=int(time.time()))
    p.add_argument("--stall", type=float, default=1.5, help="UNISONO_STALL of the jobs, seconds (default 1.5)")
    p.add_argument("--healthy-minutes", type=float, default=0)
    p.add_argument("--no-nets", dest="nets", action="store_false", help="one host only; causes that need several are left out")
    p.add_argument("--short", action="store_true", help="what needs one host and no privilege, once each; times are not judged")
    p.add_argument("--json", metavar="FILE", help="everything, for programs; - is stdout")
    p.add_argument("--page", metavar="FILE", help="write the results page there")
    o = p.parse_args()
    o.unisono, o.worker = os.path.abspath(o.unisono), os.path.abspath(o.worker)
    o.causes = SHORT if o.short else [c for c in o.causes.split(",") if c]
    if o.short:
        o.times, o.nets = 1, False
    for c in o.causes:
        if c not in CAUSES:
            p.error("there is no cause %s; known are %s" % (c, ", ".join(CAUSES)))
    return o


def main():
    global OPTIONS
    OPTIONS = options()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda n, _: sys.exit(128 + n)) # what was started and made is still ended and removed
    talk = sys.stderr if OPTIONS.json == "-" else sys.stdout
    print("campaign: seed %d, %d causes, %d times each" % (OPTIONS.seed, len(OPTIONS.causes), OPTIONS.times), file=talk, flush=True)
    results, impossible, count = [], {}, 0
    for name in OPTIONS.causes:
        for n in range(OPTIONS.times):
            if name in NETS and not OPTIONS.nets:
                impossible[name] = "one host only was asked for"
                break
            count += 1
            try:
                result = run_cause(name, n, count)
            except Impossible as e:
                impossible[name] = str(e)
                print("%-13s not possible here: %s" % (name, e), file=talk, flush=True)
                break
            results.append(result)
            bad = {k: v for k, v in result.get("left", {}).items() if v}
            print("%-13s %d ranks, %d hosts, rank %d: %s%s%s%s" % (
                name, result["ranks"], result["hosts"], result["rank"],
                "named in %.2f s" % result["time_s"] if result["named"] else "NOT NAMED (seed %s): %s" % (result["seed"], result["said"]),
                "; LEFT %s" % bad if bad else "", "; FALSE ALARMS %s" % result["false_alarms"] if result.get("false_alarms") else "",
                "" if result.get("shrunk", True) else "; NOT SHRUNK"), file=talk, flush=True)
    alarms, end, n = [], time.monotonic() + 60 * OPTIONS.healthy_minutes, 0
    while time.monotonic() < end:
        n += 1
        alarms += healthy("%d/healthy/%d" % (OPTIONS.seed, n), end)
    total = summary(results, alarms, impossible)
    for r in total["rows"]:
        print("%-13s injected %d, named %d, p50 / max %s s, silent %d, false alarms %d, left %d, shrunk %s" % (
            r["cause"], r["injected"], r["named"], r["p50_max_s"], r["silent"], r["false_alarms"], r["left"], r["shrunk"]), file=talk)
    if OPTIONS.healthy_minutes:
        print("healthy: %s minutes, %d jobs, %d false alarms %s" % (OPTIONS.healthy_minutes, n, len(alarms), alarms[:5]), file=talk)
    if OPTIONS.json:
        with (sys.stdout if OPTIONS.json == "-" else open(OPTIONS.json, "w", encoding="utf-8")) as f:
            json.dump(total, f, indent=1)
    if OPTIONS.page:
        page(total)
    return 0 if good(total) and results + ([1] if n else []) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        for made in filter(os.path.isdir, STARTED):
            remove_cgroup(made)
