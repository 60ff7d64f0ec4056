# SPDX-License-Identifier: Apache-2.0
"""jobs.py - what a trial of the faults campaign works with: one job under `unisono run` with everything it says and holds, control
groups, and network namespaces that play hosts. Used by several threads at once; knows nothing of causes."""
import itertools
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time

LIMIT_S = 60.0  # for everything that is waited for and has no limit of its own
GROUPS = []     # control groups made so far; what is still there is removed at the end
NUMBERS = itertools.count(1)
# A host has its own name, so that sentences can be read, and sees its control groups, as a real one does: entering its network hides them.
ENTER = """#!/bin/sh
host=$1
shift
kinds=$(cd /sys/fs/cgroup && ls -d cpu freezer memory 2>/dev/null)
exec ip netns exec "$host" unshare --uts sh -c '
    hostname "${0##*-}"
    if [ -z "$1" ]; then
        mount -t cgroup2 cgroup /sys/fs/cgroup
    else
        mount -t tmpfs cgroups /sys/fs/cgroup
        for kind in $1; do
            mkdir /sys/fs/cgroup/$kind
            mount -t cgroup -o $kind cgroup /sys/fs/cgroup/$kind
        done
    fi
    shift
    exec "$@"' "$host" "$kinds" "$@"
"""


class Impossible(Exception):
    """This cannot be made on this machine; says why."""


def write(folder, name, value):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
        f.write(str(value))


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()
    except OSError:
        return ""


def parent(pid):
    return int(re.search(r"^PPid:\s*(\d+)", read("/proc/%d/status" % pid), re.M).group(1))


# ---- processes ------------------------------------------------------------------------------------------------------------

def mapped_names():
    """Everything in /dev/shm that a living process has mapped."""
    names = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        names.update(re.findall(r"/dev/shm/(\S+)", read("/proc/%s/maps" % pid)))
    return names


def orphaned_memory():
    """Names of ours in /dev/shm that no process has mapped any more. Memory without a name lives as long as a process that holds it, and
    those are counted."""
    def look():
        names = {n for n in os.listdir("/dev/shm") if n.startswith(("uno", "unisono"))} if os.path.isdir("/dev/shm") else set()
        return names - mapped_names() if names else names
    first = look()
    if not first:
        return first
    time.sleep(0.1) # another job may just have made it
    return first & look()


class Job:
    """One job: its lines with the times they came, its processes, and the kernel's objects they hold."""

    def __init__(self, unisono, program, ranks, env, hosts=None):
        self.dir = tempfile.mkdtemp(prefix="campaign-")
        self.mark = "CAMPAIGN_MARK=" + self.dir
        self.lines = []  # (time, text)
        self.held = set()
        self.program = program
        orders = {k: str(v) for k, v in env.items()}
        orders.update(CAMPAIGN_MARK=self.dir, TMPDIR=self.dir, UNISONO_LEDGER_DIR=self.dir)
        where = ["-n", str(ranks)]
        if hosts:
            write(self.dir, "enter", ENTER)
            os.chmod(os.path.join(self.dir, "enter"), 0o700)
            where = ["--hosts", ",".join("%s:%d" % h for h in hosts), "--launcher", os.path.join(self.dir, "enter") + " {host}"]
        passed = [word for k, v in orders.items() for word in ("--env", "%s=%s" % (k, v))]
        self.hosts, self.ranks, self.before = hosts, ranks, orphaned_memory()
        self.process = subprocess.Popen([unisono, "run", "--tag", "--keep-going", *where, *passed, "--", *program],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        errors="replace", env=dict(os.environ, **orders))
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line.rstrip("\n")))

    def until(self, condition, limit=LIMIT_S, step=0.005):
        end = time.monotonic() + limit
        while True:
            found = condition()
            if found or time.monotonic() > end:
                return found
            if self.process.poll() is not None:
                self.reader.join(5)
                return condition()
            time.sleep(step)

    def said(self, pattern, launcher=True):
        """The first line that matches, with its time. What the launcher repeats does not count twice. launcher: what it says by itself counts, too."""
        return next(((t, l) for t, l in list(self.lines) if re.search(pattern, l) and not l.startswith("  | ")
                     and (launcher or not l.startswith("unisono run:"))), None)

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
                if read("/proc/%s/stat" % name).rsplit(")", 1)[1].split()[0] in "ZX":
                    continue
                everyone.append(int(name))
                rank = [e for e in env if e.startswith(b"UNISONO_RANK=")]
                with open("/proc/%s/cmdline" % name, "rb") as f:
                    words = f.read().split(b"\0")
                above = parent(int(name))
                if rank and words[:len(self.program)] == [p.encode() for p in self.program]:
                    ranks.setdefault(int(rank[0].split(b"=")[1]), {})[int(name)] = above
            except (OSError, IndexError, AttributeError):
                pass
        # Children of a rank carry its environment: the worker is the one whose parent is not of the same rank.
        return {r: next(p for p in of if of[p] not in of) for r, of in ranks.items()}, everyone

    def look(self):
        """Remember which sockets and memory the job has."""
        for pid in self.pids()[1]:
            try:
                for fd in os.listdir("/proc/%d/fd" % pid):
                    target = os.readlink("/proc/%d/fd/%s" % (pid, fd))
                    if target.startswith(("socket:", "/memfd:")):
                        self.held.add(target)
            except OSError:
                pass

    def sockets(self):
        """Those of the job that are still there."""
        inodes = {s[8:-1] for s in self.held if s.startswith("socket:")}
        there = set()
        for where in [[]] + [["ip", "netns", "exec", h] for h, _ in self.hosts or []]:
            tables = subprocess.run(where + ["sh", "-c", "cd /proc/net && cat tcp tcp6 udp udp6 unix 2>/dev/null"], stdout=subprocess.PIPE, text=True, check=False)
            there.update(w for w in tables.stdout.split() if w in inodes)
        return there

    def left(self):
        """What is there after the end: processes, sockets, memory, files."""
        self.until(lambda: self.process.poll() is not None, LIMIT_S, 0.05)
        end = time.monotonic() + 5
        while self.pids()[1] and time.monotonic() < end:
            time.sleep(0.05)
        processes, there = self.pids()[1], self.sockets()
        while there and not processes and time.monotonic() < end: # who ends has no name any more while it still closes
            time.sleep(0.1)
            there = self.sockets()
        memory = orphaned_memory() - self.before
        files = [os.path.join(d, f) for d, _, fs in os.walk(self.dir) for f in fs if "unisono-%d" % os.getuid() not in d and f != "enter"]
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


# ---- control groups ---------------------------------------------------------------------------------------------------------

def legacy(controller):
    return os.path.isdir("/sys/fs/cgroup/" + controller)


def make_cgroup(controller):
    root = "/sys/fs/cgroup/" + controller if legacy(controller) else "/sys/fs/cgroup"
    path = os.path.join(root, "unisono-campaign-%d-%d" % (os.getpid(), next(NUMBERS)))
    try:
        if root == "/sys/fs/cgroup" and controller != "freezer":
            write(root, "cgroup.subtree_control", "+" + controller)
        os.mkdir(path)
    except OSError as e:
        raise Impossible("no control group can be made: %s" % e) from e
    GROUPS.append(path)
    return path


def remove_cgroup(path):
    end = time.monotonic() + 5
    while os.path.isdir(path) and time.monotonic() < end:
        try:
            os.rmdir(path)
        except OSError:
            time.sleep(0.02)


def remove_cgroups():
    for path in filter(os.path.isdir, GROUPS):
        remove_cgroup(path)


def freeze(group, on):
    name, words = ("freezer.state", ("THAWED", "FROZEN")) if legacy("freezer") else ("cgroup.freeze", (0, 1))
    write(group, name, words[on])


def limit_cpu(group, percent):
    if legacy("cpu"):
        write(group, "cpu.cfs_period_us", 100000)
        write(group, "cpu.cfs_quota_us", 1000 * percent)
    else:
        write(group, "cpu.max", "%d 100000" % (1000 * percent))


# ---- hosts --------------------------------------------------------------------------------------------------------------------

def in_host(host, *command):
    return subprocess.run(["ip", "netns", "exec", host, *command], check=True, capture_output=True, text=True).stdout


def address(host):
    return "10.216.0.%d" % int(host.rsplit("-h", 1)[1])


class Nets:
    """Three network namespaces on a bridge, which is a fourth one."""

    def __init__(self):
        base = "campaign-%d-%d" % (os.getpid(), next(NUMBERS))
        self.switch, self.hosts = base + "-s", ["%s-h%d" % (base, n) for n in (1, 2, 3)]

    def plug(self, n, host):
        in_host(self.switch, "ip", "link", "add", "port%d" % n, "type", "veth", "peer", "name", "host", "netns", host)
        in_host(self.switch, "ip", "link", "set", "port%d" % n, "master", "bridge", "up")
        in_host(host, "ip", "link", "set", "lo", "up")
        in_host(host, "ip", "addr", "add", address(host) + "/24", "dev", "host")
        in_host(host, "ip", "link", "set", "host", "up")

    def __enter__(self):
        if os.getuid() != 0:
            raise Impossible("network namespaces need root")
        try:
            for name in [self.switch] + self.hosts:
                subprocess.run(["ip", "netns", "add", name], check=True, capture_output=True)
            in_host(self.switch, "ip", "link", "set", "lo", "up")
            in_host(self.switch, "ip", "link", "add", "bridge", "type", "bridge", "forward_delay", "0")
            for n, host in enumerate(self.hosts, 1):
                self.plug(n, host)
            in_host(self.switch, "ip", "link", "set", "bridge", "up")
            end = time.monotonic() + LIMIT_S
            for host in self.hosts:
                while time.monotonic() < end and "state UP" not in subprocess.run(
                        ["ip", "netns", "exec", host, "ip", "-o", "link", "show", "host"], capture_output=True, text=True, check=False).stdout:
                    time.sleep(0.05)
        except (OSError, subprocess.CalledProcessError) as e:
            self.__exit__()
            raise Impossible("no network namespaces here: %s" % e) from e
        return self.hosts

    def __exit__(self, *_):
        for name in [self.switch] + self.hosts:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
