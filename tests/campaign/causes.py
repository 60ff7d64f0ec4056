# SPDX-License-Identifier: Apache-2.0
"""causes.py - the table of the faults campaign: what can go wrong, how it is made to, and what one sentence must say of it. How the
worker misbehaves by itself is in worker.c and raise.py; here are the hands from outside. A further cause is a further row."""
import collections
import os
import re
import shutil
import signal
import subprocess
import time

from jobs import Impossible, freeze, in_host, address, legacy, limit_cpu, make_cgroup, parent, read, remove_cgroup, write

Cause = collections.namedtuple("Cause", "what group how named")
# group: what the time is measured against: death and mismatch at once, stall the stall limit; start, slow, cut, late (it shows at the end).
# how: worker = by the program itself; else the function HANDS[how]. named: what one sentence must match; {rank}, {peer}, {pid}, {number}
# (of the operation), {lost} (all ranks that end), {ha} and {hb} (two hosts), {a} and {b} (their addresses) are filled in. What the launcher says
# does not count, and of a death each rank's error must say it.
RANK = r"rank {rank}\b[^;]*"
LOST = r"rank ({lost})\b[^;]*"
CUT = r"(do not reach each other: nothing was heard for [0-9.]+ s; interface host|no path between .*\(host.* for [0-9.]+ s)"
PAIR = r"^(?=.*\b{ha}\b)(?=.*\b{hb}\b)(?=.*\b{a}\b)(?=.*\b{b}\b).*" + CUT
BOTH = r"#{number}: (?=.*rank {rank} %s)(.* %s ){{2}}"
CAUSES = {
    "absent_sleep": Cause("a rank sleeps and never calls", "stall", "worker", r"stuck.*rank {rank} \(pid {pid} .*(never called|has not called).*nanosleep.* in \w+\+0x\w+ \(campaign_worker\)"),
    "absent_spin": Cause("a rank computes and never calls", "stall", "worker", r"stuck.*rank {rank} \(pid {pid} .*has not called it yet; it (computes|is ready to run)"),
    "absent_read": Cause("a rank reads from an empty pipe and never calls", "stall", "worker", r"stuck.*rank {rank} \(pid {pid} .*never called.*system call read\b.* in \w+\+0x\w+ \(campaign_worker\)"),
    "collective": Cause("a rank calls another collective", "mismatch", "worker", BOTH % ("calls", "calls?")),
    "count": Cause("a rank passes another count", "mismatch", "worker", BOTH % ("passes count", "passes? count")),
    "type": Cause("a rank passes another type", "mismatch", "worker", BOTH % ("passes type", "passes? type")),
    "root": Cause("a rank passes another root", "mismatch", "worker", BOTH % ("passes root", "passes? root")),
    "op": Cause("a rank passes another operation", "mismatch", "worker", BOTH % ("passes op", "passes? op")),
    "skip": Cause("a rank of a loop skips one operation and goes on", "mismatch", "worker", r"rank {rank}\b.*is off by one from operation #{number}.*skipped"),
    "skip_alike": Cause("a rank skips one of many equal operations", "late", "worker", r"rank {rank}\b.*off by one"),
    "order": Cause("two communicators in opposite order", "stall", "worker", r"used in different order.*rank {rank} \(pid"),
    "send": Cause("a send without receive", "stall", "worker", r"send without receive: rank {rank} .*send to rank {peer}\b|rank {rank} .*in send to rank {peer}\b.*no receive"),
    "recv": Cause("a receive without send", "stall", "worker", r"receive without send: rank {rank} .*recv from rank {peer}\b|rank {rank} .*in recv.* rank {peer}\b.*(no send|sent nothing)"),
    "crossed": Cause("two ranks send to each other first", "stall", "worker", r"crossed sends: (?=.*send to rank {peer}\b).*send to rank {rank}\b"),
    "exit0": Cause("a rank exits with status 0 before the end", "death", "worker", RANK + r"exited with status 0"),
    "status": Cause("a rank exits with status 3", "death", "worker", RANK + r"exited with status 3"),
    "abort": Cause("a rank calls abort()", "death", "worker", RANK + r"killed by signal 6"),
    "segv": Cause("a rank crashes", "death", "worker", RANK + r"killed by signal 11"),
    "exception": Cause("a rank's Python program ends in an exception", "death", "worker", RANK + r"exited with status 1\b"),
    "oom": Cause("a rank is killed for want of memory", "death", "worker", RANK + r"killed by signal 9[^;]*oom_kill"),
    "kill": Cause("SIGKILL", "death", "kill", RANK + r"killed by signal 9"),
    "children": Cause("SIGKILL of a rank with four children (fork, vfork, clone) that hold what it had open", "death", "kill", RANK + r"killed by signal 9"),
    "host": Cause("all ranks of a host are killed", "death", "host", LOST + r"killed by signal 9"),
    "agent": Cause("an agent of the launcher gets SIGTERM", "death", "agent", LOST + r"ended by the agent of unisono run on its host, which was itself ended by signal 15"),
    "comm_abort": Cause("a rank calls uno_comm_abort", "death", "worker", r"UNO_ERR_ABORTED.*rank {rank}\b"),
    "stop": Cause("SIGSTOP", "stall", "stop", r"stuck.*rank {rank} \(pid {pid} .*is stopped.* for [0-9.]+ s"),
    "debugger": Cause("a debugger holds a rank", "stall", "debugger", r"stuck.*rank {rank} \(pid {pid} .*held by a debugger.* for [0-9.]+ s"),
    "freeze": Cause("the control group of a rank is frozen", "stall", "freeze", r"stuck.*rank {rank} \(pid {pid} .*frozen with its cgroup.* for [0-9.]+ s"),
    "slow_rank": Cause("a rank gets 1 % of a processor", "slow", "starve", r"rank {rank} \(pid {pid} .*(no processor|throttled)[^;]* [0-9.]+ %"),
    "never_joins": Cause("a rank never joins", "start", "worker",
                         r"have not joined [^:]*: ([0-9]+(-[0-9]+)?, )*{rank}\b|: rank {rank} was not reached"),
    "settings": Cause("a rank has another setting", "start", "worker", r"UNISONO_CHANNELS=0\b.*rank {rank} .*UNISONO_CHANNELS=3\b"),
    "version": Cause("a rank has another version of the library", "start", "worker", r"rank 0 .*version 0\.1\.0\b.*rank {rank} .*version 0\.2\.0\b"),
    "word": Cause("a rank has another word size", "start", "worker", r"rank 0 .*words of 64 bits.*rank {rank} .*one for 32"),
    "cut_drop": Cause("packets between two hosts vanish", "cut", "drop", PAIR),
    "cut_reject": Cause("packets between two hosts are refused", "cut", "reject", PAIR),
    "cut_down": Cause("a host's link goes down", "cut", "down", r"^(?=.*\b{ha}\b)(?=.*\b{a}\b).*" + CUT),
    "slow_link": Cause("a link is throttled", "slow", "throttle", r"path between (?=.*\b{ha}\b)(?=.*\(host, ).*moves [0-9.]+ [KM]B/s[^;,]*(, expected|; other paths)"),
}
SHOWS_S = 20 # so long a slowness may take to show for the first time
NETS = [c for c in CAUSES if c.startswith("cut_") or c in ("slow_link", "host", "agent")]
WITNESS = ["stop", "debugger", "freeze"] # only somebody on the same host sees how a rank stands
SHORT = ["absent_sleep", "absent_spin", "absent_read", "collective", "count", "type", "root", "op", "skip", "skip_alike", "order", "send", "recv",
         "crossed", "exit0", "status", "abort", "segv", "kill", "children", "comm_abort", "stop", "never_joins", "settings", "version"]


def kill(trial, _job):
    os.kill(trial.pid, signal.SIGKILL)


def host(trial, job):
    """A host ends at one moment: two kills in a row may be far apart where processors are short, so they take effect together."""
    pids = job.pids()[0]
    group = make_cgroup("freezer")
    trial.undo.append(lambda: remove_cgroup(group))
    for r in trial.lost:
        write(group, "cgroup.procs", pids[r])
    freeze(group, True)
    for r in trial.lost:
        os.kill(pids[r], signal.SIGKILL)
    trial.when = time.monotonic()
    freeze(group, False)


def agent(trial, _job):
    os.kill(parent(trial.pid), signal.SIGTERM)


def stop(trial, _job):
    os.kill(trial.pid, signal.SIGSTOP)
    trial.undo.append(lambda: os.kill(trial.pid, signal.SIGCONT))


def debugger(trial, job):
    gdb = shutil.which("gdb")
    if not gdb:
        raise Impossible("gdb is not installed")
    p = subprocess.Popen([gdb, "-q", "-nx", "-batch", "-iex", "set auto-solib-add off", "-p", str(trial.pid), "-ex", "shell sleep 100"],
                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)

    def off():
        os.killpg(p.pid, signal.SIGKILL)
        p.wait()
    trial.undo.append(off)
    if not job.until(lambda: "TracerPid:\t0" not in read("/proc/%d/status" % trial.pid), 20):
        raise Impossible("gdb does not attach")
    trial.when = time.monotonic()


def into_cgroup(trial, controller):
    """A control group with the rank in it, until the trial is over."""
    group = make_cgroup(controller)
    trial.undo.append(lambda: remove_cgroup(group))
    trial.undo.append(lambda: write(os.path.dirname(group), "cgroup.procs", trial.pid))
    write(group, "cgroup.procs", trial.pid)
    return group


def frozen(trial, _job):
    group = into_cgroup(trial, "freezer")
    trial.undo.append(lambda: freeze(group, False))
    freeze(group, True)


def starve(trial, job):
    group = into_cgroup(trial, "cpu")
    limit_cpu(group, 1)
    job.until(lambda: re.search(r"nr_throttled [1-9]", read(os.path.join(group, "cpu.stat"))), SHOWS_S)
    trial.when = time.monotonic() # it first wanted more than it gets


def each_way(trial, command):
    for here, there in (trial.pair, trial.pair[::-1]):
        in_host(here[0], *command(address(there[0])))


def drop(trial, _job):
    each_way(trial, lambda to: ("ip", "neigh", "replace", to, "lladdr", "02:75:6e:6f:00:99", "dev", "host", "nud", "permanent"))


def reject(trial, _job):
    each_way(trial, lambda to: ("ip", "route", "add", "unreachable", to + "/32"))


def down(trial, _job):
    base, number = trial.pair[0][0].rsplit("-h", 1)
    in_host(base + "-s", "ip", "link", "set", "port" + number, "down")


def throttle(trial, job):
    host = trial.pair[0][0]
    try:
        in_host(host, "tc", "qdisc", "add", "dev", "host", "root", "tbf", "rate", "2mbit", "burst", "16kb", "latency", "50ms")
    except (OSError, subprocess.CalledProcessError) as e:
        raise Impossible("tc cannot throttle here") from e
    job.until(lambda: re.search(r"overlimits [1-9]", in_host(host, "tc", "-s", "qdisc", "show", "dev", "host")), SHOWS_S)
    trial.when = time.monotonic() # the first packet was held back


HANDS = {"kill": kill, "host": host, "agent": agent, "stop": stop, "debugger": debugger, "freeze": frozen, "starve": starve, "drop": drop, "reject": reject, "down": down,
         "throttle": throttle}


def prepare(trial, env):
    """What has to be there before the job starts."""
    if trial.name == "oom":
        group = make_cgroup("memory")
        write(group, "memory.limit_in_bytes" if legacy("memory") else "memory.max", 96 << 20)
        trial.undo.append(lambda: remove_cgroup(group))
        trial.shows = lambda: re.search(r"oom_kill [1-9]", read(os.path.join(group, "memory.oom_control" if legacy("memory") else "memory.events")))
        env["CAMPAIGN_CGROUP"] = os.path.join(group, "cgroup.procs")
    if trial.name == "word":
        if "CAMPAIGN_WORD_WORKER" not in os.environ:
            raise Impossible("CAMPAIGN_WORD_WORKER names no campaign_worker that was built for 32 bits")
        env["CAMPAIGN_OTHER"] = os.environ["CAMPAIGN_WORD_WORKER"]
