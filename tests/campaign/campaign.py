#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""campaign.py [options] UNISONO WORKER - the faults campaign: real jobs (worker.c under `unisono run`) in which one thing is made to go
wrong at a random moment, rank and size; then it is read what was said. A fault counts as named right only if a sentence names the rank or
host that was chosen and says what was done to it. Counted too: how long that took, what was said though nothing was wrong, what is left
behind, how long an abort takes, whether the others could go on. Then healthy load, about which nothing may be said. With --log a campaign
can be run in pieces, of one build: it goes on where it was interrupted, and --judge writes the page of what there is. Another word size is
tried with CAMPAIGN_WORD_WORKER, a campaign_worker that was built for 32 bits. Exit status 0: all right. Needs Linux and Python's standard library."""
import argparse
import concurrent.futures
import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time

import jobs
from causes import CAUSES, HANDS, NETS, SHORT, SHOWS_S, WITNESS, prepare
from jobs import Impossible, Job, LIMIT_S, Nets
from page import complaints, line_of, summary, write_page

OPTIONS = None
DEATH_WORDS = re.compile(r"rank \d+ \(pid.*(was killed by|has ended|is dead)")
FACTS = re.compile(r"What to do: nothing, if|goes on after|has not called it yet; it computes|all \d+ ranks have called it|"
                   r"ranks have not joined though others wait|rank 0 was not reached for|all \d+ ranks have joined, after")


class Trial:
    """One injected fault: what was chosen, and undo functions for what was done."""

    def __init__(self, name, seed, hosts):
        self.name, self.cause = name, CAUSES[name]
        self.random = random.Random(seed)
        self.seed, self.hosts, self.undo = seed, hosts, []
        self.shows = None # true once what the rank did by itself has had its effect
        r = self.random
        self.ranks = sum(n for _, n in hosts) if hosts else r.randint(2, 8)
        self.rank = r.randrange(1 if self.cause.group == "start" and name != "never_joins" else 0, self.ranks)
        self.peer = r.choice([p for p in range(self.ranks) if p != self.rank])
        self.at = r.randint(6, 200)
        self.shrink = self.cause.group == "death" and self.ranks > 2 and name not in ("comm_abort", "exception")
        self.pid, self.done, self.when = 0, 0.0, 0.0 # done: from then on nothing is an alarm about nothing; when: the time to the verdict begins
        first, self.lost = 0, [self.rank]
        for _, n in hosts or []: # who ends with that rank
            if name in ("host", "agent") and first <= self.rank < first + n:
                self.lost = list(range(first, first + n))
            first += n
        self.pair = r.sample(hosts, 2) if hosts else None

    def env(self):
        r = self.random
        e = {"CAMPAIGN_RANK": self.rank, "CAMPAIGN_PEER": self.peer, "CAMPAIGN_SEED": r.randrange(1 << 30), "CAMPAIGN_CAUSE": self.name,
             "CAMPAIGN_AT": self.at if self.cause.how == "worker" else -1, "CAMPAIGN_SHRINK": int(self.shrink),
             "CAMPAIGN_COUNT": r.choice([16, 256, 1 << 12, 1 << 14]), "UNISONO_STALL": OPTIONS.stall, "UNISONO_TIMEOUT": OPTIONS.stall + 6,
             "UNISONO_SUSPECT": OPTIONS.stall, "UNISONO_SUSPECT_TIMEOUT": 5, "UNISONO_SHRINK_TIMEOUT": 5,
             "UNISONO_JOIN_TIMEOUT": 3 if self.name == "never_joins" else 60}
        if self.cause.group == "death" and not self.hosts and r.random() < 0.3:
            e["UNISONO_SHM_DISABLE"] = 1 # ranks of a host are as strange to each other as those of several
        if self.name == "skip":
            e["CAMPAIGN_PERIOD"] = r.randint(3, 9)
            self.at += 2 * e["CAMPAIGN_PERIOD"]
            e["CAMPAIGN_AT"] = self.at
        if self.name == "skip_alike":
            e.update(CAMPAIGN_PERIOD=1, CAMPAIGN_OPS=self.at + r.randint(5, 100))
        if self.cause.group == "slow":
            e.update(CAMPAIGN_COUNT=1 << 17, UNISONO_TIMEOUT=60)
        if self.name == "exception":
            e["CAMPAIGN_LIBRARY"] = OPTIONS.library
        if self.name == "version":
            e["CAMPAIGN_OTHER"] = OPTIONS.worker + "_other"
        prepare(self, e)
        return e

    def program(self):
        if self.name != "exception":
            return [OPTIONS.worker]
        if not os.path.exists(OPTIONS.library):
            raise Impossible("%s is not there for Python to load" % OPTIONS.library)
        return [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "raise.py")]

    def pattern(self):
        words = {"ha": "", "hb": "", "a": "", "b": ""}
        for key, host in zip("ab", self.pair or []):
            words["h" + key] = host[0].rsplit("-", 1)[1]
            words[key] = re.escape(jobs.address(host[0]))
        return self.cause.named.format(rank=self.rank, lost="|".join(map(str, self.lost)), peer=self.peer, pid=self.pid, number=self.at + 1, **words)


# ---- one trial ----------------------------------------------------------------------------------------------------------------

def wrong_words(trial, job):
    """Alarms before anything was done, and deaths that were none."""
    found = [l for t, l in job.lines if t < trial.done and re.search(r"unisono: rank \d+:", l) and not FACTS.search(l)]
    if trial.cause.group not in ("death", "start", "mismatch", "late"):
        found += [l for _, l in job.lines if DEATH_WORDS.search(l) and not l.startswith(("unisono run:", "  | "))]
    return found


def inject(trial, job):
    """Sets trial.when, the moment from which the time to the verdict counts: when it was done, or, where HANDS say so, when it first shows."""
    if trial.cause.how == "worker":
        found = job.until(lambda: job.said(r"\] cause ([0-9.]+)"))
        trial.done = trial.when = float(found[1].rsplit(" ", 1)[1]) if found else time.monotonic()
        if trial.shows and job.until(trial.shows, SHOWS_S):
            trial.when = time.monotonic()
        return
    time.sleep(trial.random.uniform(0.02, 0.5))
    trial.done = trial.when = time.monotonic()
    HANDS[trial.cause.how](trial, job)


def undo(trial):
    while trial.undo:
        try:
            trial.undo.pop()()
        except OSError:
            pass


def otherwise(trial, job):
    """First errors of ranks that do not say what was done: all have to be told, not only one."""
    first = {}
    for _, l in job.lines:
        found = re.match(r"\[ *(\d+)\] error", l)
        if found:
            first.setdefault(int(found.group(1)), l)
    return [l for l in first.values() if not re.search(trial.pattern(), l)]


def after(trial, job, result):
    """How the job ends: all errors, shrunk or not, nothing left."""
    alone = trial.name in ("absent_sleep", "absent_spin", "absent_read", "never_joins") # it never returns by itself
    if alone and trial.name != "never_joins":
        job.until(lambda: sum("] error" in l for _, l in list(job.lines)) >= trial.ranks - 1, OPTIONS.stall + 12, 0.05)
    pid = job.pids()[0].get(trial.rank) if alone else None
    if pid:
        os.kill(pid, signal.SIGKILL)
    if trial.cause.group != "slow" and trial.name not in ("stop", "debugger", "freeze"):
        result["ended"] = bool(job.until(lambda: job.process.poll() is not None, LIMIT_S, 0.05))
    elif job.process.poll() is None: # it goes on healthily: ask it to end
        job.process.send_signal(signal.SIGTERM)
    job.reader.join(0.5)
    errors = [t for t, l in job.lines if "] error" in l]
    if trial.name == "comm_abort" and len(errors) >= trial.ranks:
        result["abort_s"] = errors[trial.ranks - 1] - trial.when
    if trial.shrink:
        n = trial.ranks - len(trial.lost)
        result["shrunk"] = sum("] shrunk" in l and l.endswith("of %d" % n) for _, l in job.lines) == n
    if trial.cause.group == "death":
        result["otherwise"] = otherwise(trial, job)
    result["left"] = job.left()


def observe(trial, job, result):
    if trial.cause.group != "start" and not job.ready():
        result["said"] = "the job did not start: " + " / ".join(l for _, l in job.lines[-3:])
        return
    trial.pid = job.pids()[0].get(trial.rank, 0)
    own = next((int(m.group(1)) for _, l in list(job.lines) for m in [re.search(r"pid (\d+)", l)] if m and "rank %d " % trial.rank in l), 0)
    trial.pid = trial.pid or own
    job.look()
    inject(trial, job)
    limit = {"death": 10, "mismatch": 10, "stall": OPTIONS.stall + 10, "start": 30, "slow": 30, "cut": 15, "late": 30}[trial.cause.group]
    found = job.until(lambda: job.said(trial.pattern(), launcher=False), limit)
    if found:
        result.update(named=True, time_s=max(0.0, found[0] - trial.when), said=found[1])
    else:
        heard = [l for t, l in list(job.lines) if t >= trial.when and re.search(r"unisono: rank|\] error", l)]
        result["said"] = heard[0] if heard else None
    result["false_alarms"] = wrong_words(trial, job)
    if trial.cause.group == "slow":
        job.end()
    undo(trial)
    after(trial, job, result)
    result["false_alarms"] += [l for _, l in list(job.lines) if "] wrong" in l] # data of an operation that went wrong was used


def try_cause(trial):
    """Inject once; returns what came of it."""
    result = {"cause": trial.name, "seed": trial.seed, "ranks": trial.ranks, "rank": trial.rank, "named": False, "time_s": None, "said": None,
              "hosts": len(trial.hosts) if trial.hosts else 1}
    job = None
    try:
        program, env = trial.program(), trial.env()
        job = Job(OPTIONS.unisono, program, trial.ranks, env, trial.hosts)
        observe(trial, job, result)
    finally:
        undo(trial)
        if job:
            job.end()
    return result


def run_trial(name, n):
    seed = "%d/%s/%d" % (OPTIONS.seed, name, n)
    if name in NETS or (OPTIONS.nets and n % 2):
        with Nets() as names:
            per = 2 if name in WITNESS else random.Random(seed).randint(1, 2)
            return try_cause(Trial(name, seed, [(h, per) for h in names]))
    return try_cause(Trial(name, seed, None))


# ---- healthy load -----------------------------------------------------------------------------------------------------------------

def suspend(job, group, r):
    """The machine sleeps: all processes of the job and its launcher stand for a while, by signals or with their control group."""
    pids = job.pids()[1] + [job.process.pid]
    span = r.uniform(0.5, OPTIONS.stall + 2)
    if group and r.random() < 0.5:
        for pid in pids:
            jobs.write(group, "cgroup.procs", pid)
        for on in (True, False):
            jobs.freeze(group, on)
            time.sleep(span if on else 0)
        return "freeze"
    for sig in (signal.SIGSTOP, signal.SIGCONT):
        for pid in pids:
            os.kill(pid, sig)
        time.sleep(span if sig == signal.SIGSTOP else 0)
    return "stop"


def cgroup_or_none(controller):
    try:
        return jobs.make_cgroup(controller)
    except Impossible:
        return None


def quota(job, percent):
    """So much of a processor for the whole job; None where that cannot be made."""
    group = cgroup_or_none("cpu")
    try:
        if group:
            jobs.limit_cpu(group, percent)
            for pid in job.pids()[0].values():
                jobs.write(group, "cgroup.procs", pid)
        return group
    except OSError:
        jobs.remove_cgroup(group)
        return None


def is_alarm(line):
    return (re.search(r"unisono: rank \d+:", line) and not FACTS.search(line)) or "] error" in line or "] wrong" in line


def healthy(n, end):
    """One job on one host, or every other time on three."""
    if OPTIONS.nets and n % 2 == 0:
        with Nets() as names:
            return healthy_on(n, end, [(h, random.Random("%d/hosts/%d" % (OPTIONS.seed, n)).randint(1, 2)) for h in names])
    return healthy_on(n, end, None)


def healthy_on(n, end, hosts):
    """A job of uneven, oversubscribed ranks, perhaps with a quota, that is suspended now and then; returns what was done and said."""
    r = random.Random("%d/healthy/%d" % (OPTIONS.seed, n))
    began = time.monotonic()
    h = {"healthy": n, "ranks": sum(k for _, k in hosts) if hosts else r.randint(2, 8), "hosts": len(hosts) if hosts else 1, "uneven_us": r.choice([0, 1000, 20000, 20000, 2500000]), "did": [], "alarms": []}
    percent = r.choice([20, 50, 100]) if r.random() < 0.3 else 0
    group, cpu = cgroup_or_none("freezer"), None
    job = Job(OPTIONS.unisono, [OPTIONS.worker], h["ranks"],
              {"CAMPAIGN_SEED": r.randrange(1 << 30), "CAMPAIGN_CAUSE": "", "CAMPAIGN_UNEVEN_US": h["uneven_us"],
               "CAMPAIGN_COUNT": r.choice([16, 1 << 12, 1 << 14, 1 << 17]), "UNISONO_STALL": OPTIONS.stall}, hosts)
    try:
        if not job.ready():
            h["alarms"] = ["the job did not start: " + " / ".join(l for _, l in job.lines[-3:])]
            return h
        cpu = quota(job, percent) if percent else None
        until = min(end, time.monotonic() + r.uniform(5, 20))
        while time.monotonic() < until and job.process.poll() is None:
            time.sleep(max(0.0, min(r.uniform(1, 4), until - time.monotonic())))
            if r.random() < 0.5 and time.monotonic() < until:
                h["did"].append(suspend(job, group, r))
        h["alarms"] = [l for _, l in list(job.lines) if is_alarm(l)]
        return h
    finally:
        job.end()
        for made in filter(None, (group, cpu)):
            jobs.remove_cgroup(made)
        h.update(quota=bool(cpu), seconds=time.monotonic() - began)


# ---- all of it ----------------------------------------------------------------------------------------------------------------------

class Log:
    """One JSON object a line: first the build and the options that decide what is done, then every result as soon as there is one."""
    KEYS = ("seed", "times", "causes", "stall", "nets", "healthy_minutes")

    def __init__(self, path):
        self.path, self.lock, self.trials, self.healthy, self.impossible = path, threading.Lock(), [], [], {}
        lines = jobs.read(path).splitlines() if path else []
        if lines:
            self.take_head(json.loads(lines[0]))
            for line in lines[1:]:
                self.keep(json.loads(line))
        elif path:
            self.put({**{k: getattr(OPTIONS, k) for k in self.KEYS}, "build": OPTIONS.build, "commit": OPTIONS.commit})

    def take_head(self, head):
        if head.pop("build") != OPTIONS.build and not OPTIONS.judge:
            raise SystemExit("campaign: %s is of another build (commit %s): its results are not mixed with those of this one (%s); "
                             "--judge writes its page, another --log begins anew" % (self.path, head["commit"], OPTIONS.commit))
        for key, value in head.items():
            setattr(OPTIONS, key, value)

    def keep(self, result):
        if "impossible" in result:
            self.impossible[result["impossible"]] = result["why"]
        else:
            (self.healthy if "healthy" in result else self.trials).append(result)

    def put(self, result):
        if self.path:
            with open(self.path, "a", encoding="utf-8") as f:
                f.write(json.dumps(result) + "\n")

    def add(self, result):
        with self.lock:
            self.keep(result)
            self.put(result)


class Progress:
    def __init__(self, total, done):
        self.total, self.done, self.began, self.lock = total, done, time.monotonic(), threading.Lock()

    def tell(self, text):
        with self.lock:
            self.done += 1
            print("[%d/%d %4.0f s] %s" % (self.done, self.total, time.monotonic() - self.began, text), file=OPTIONS.talk, flush=True)


def line_of_trial(r):
    bad = {k: v for k, v in r.get("left", {}).items() if v}
    return "%-13s %d ranks, %d hosts, rank %d: %s%s%s%s%s" % (
        r["cause"], r["ranks"], r["hosts"], r["rank"],
        "named in %.2f s" % r["time_s"] if r["named"] else "NOT NAMED (seed %s): %s" % (r["seed"], r["said"]),
        "; LEFT %s" % bad if bad else "", "; OTHERS SAY %s" % r["otherwise"] if r.get("otherwise") else "", "; FALSE ALARMS %s" % r["false_alarms"] if r.get("false_alarms") else "",
        "" if r.get("shrunk", True) else "; NOT SHRUNK")


def run_trials(log, stopping):
    """Several at a time, causes taking turns: stalls mostly wait. Returns what is not possible here, and why."""
    impossible = {c: "one host only was asked for" for c in OPTIONS.causes if c in NETS and not OPTIONS.nets}
    done = {r["seed"] for r in log.trials}
    todo = [(c, n) for n in range(OPTIONS.times) for c in OPTIONS.causes
            if c not in impossible and "%d/%s/%d" % (OPTIONS.seed, c, n) not in done]
    progress = Progress(len(todo) + len(done), len(done))

    def one(name, n):
        if stopping.is_set() or name in impossible:
            return
        try:
            result = run_trial(name, n)
        except Impossible as e:
            impossible[name] = str(e)
            log.add({"impossible": name, "why": str(e)})
            progress.tell("%-13s not possible here: %s" % (name, e))
            return
        if not stopping.is_set():
            log.add(result)
            progress.tell(line_of_trial(result))

    with concurrent.futures.ThreadPoolExecutor(OPTIONS.jobs) as pool:
        waiting = [pool.submit(one, c, n) for c, n in todo]
        for w in waiting:
            w.result()
    return impossible


def run_healthy(log, stopping):
    while not stopping.is_set():
        left = 60 * OPTIONS.healthy_minutes - sum(h["seconds"] for h in log.healthy)
        if left <= 0.5:
            return
        h = healthy(len(log.healthy) + 1, time.monotonic() + left)
        if stopping.is_set():
            return
        log.add(h)
        print("healthy %d, %.0f s left: %d ranks, %d hosts, uneven by %.1f ms%s, suspended %d times: %s" % (
            h["healthy"], max(0, left - h["seconds"]), h["ranks"], h["hosts"], h["uneven_us"] / 1000, ", quota" if h["quota"] else "", len(h["did"]),
            "FALSE ALARMS %s" % h["alarms"] if h["alarms"] else "no alarm"), file=OPTIONS.talk, flush=True)


def build_of(*paths):
    """What was built, so that results of different builds are not mixed."""
    return hashlib.sha256(b"".join(hashlib.sha256(open(p, "rb").read()).digest() for p in paths if os.path.exists(p))).hexdigest()[:16]


def commit_of():
    """The commit of these sources, with a + where they differ from it; empty where they are not in git."""
    def git(*words):
        return subprocess.run(["git", "-C", os.path.dirname(os.path.abspath(__file__)), *words], capture_output=True, text=True, check=False).stdout.strip()
    try:
        commit = git("rev-parse", "--short=10", "HEAD")
        return commit + ("+" if commit and git("status", "--porcelain", "--untracked-files=no", ":/src", ":/cli", ":/include", ":/tests/campaign") else "")
    except OSError:
        return ""


def options():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("unisono")
    p.add_argument("worker")
    p.add_argument("--times", type=int, default=20, help="how often each cause is injected (default 20)")
    p.add_argument("--causes", default=",".join(CAUSES), help="comma list; default all: %(default)s")
    p.add_argument("--jobs", type=int, default=3, help="so many trials at a time (default 3)")
    p.add_argument("--seed", type=int, default=int(time.time()))
    p.add_argument("--stall", type=float, default=1.5, help="UNISONO_STALL of the jobs, seconds (default 1.5)")
    p.add_argument("--healthy-minutes", type=float, default=0)
    p.add_argument("--no-nets", dest="nets", action="store_false", help="one host only; causes that need several are left out")
    p.add_argument("--short", action="store_true", help="what needs one host and no privilege, once each; times are not judged")
    p.add_argument("--log", metavar="FILE", help="keep every result there; a log of an unfinished campaign is gone on with, its seed and options count")
    p.add_argument("--judge", action="store_true", help="run nothing: judge what the log holds so far, and write it")
    p.add_argument("--json", metavar="FILE", help="everything, for programs; - is stdout")
    p.add_argument("--page", metavar="FILE", help="write the results page there")
    o = p.parse_args()
    o.unisono, o.worker = os.path.abspath(o.unisono), os.path.abspath(o.worker)
    o.library = os.path.join(os.path.dirname(o.unisono), "..", "src", "libunisono.so")
    o.causes = SHORT if o.short else [c for c in o.causes.split(",") if c]
    if o.short:
        o.times, o.nets = 1, False
    for c in o.causes:
        if c not in CAUSES:
            p.error("there is no cause %s; known are %s" % (c, ", ".join(CAUSES)))
    if o.jobs < 1 or o.times < 0:
        p.error("--jobs begins at 1, --times at 0")
    if o.judge and not (o.log and os.path.exists(o.log)):
        p.error("--judge needs a log: --log FILE")
    o.build, o.commit = build_of(o.unisono, o.library, o.worker), commit_of()
    o.talk = sys.stderr if o.json == "-" else sys.stdout
    return o


def finish(log, impossible):
    impossible = {**log.impossible, **impossible}
    total = summary(OPTIONS, log.trials, log.healthy, impossible)
    bad = complaints(OPTIONS, total)
    for r in total["rows"]:
        print(line_of(r), file=OPTIONS.talk)
    if log.healthy:
        print("healthy: %.1f minutes, %d jobs, %d false alarms" % (total["healthy_minutes"], len(log.healthy), len(total["healthy_alarms"])),
              file=OPTIONS.talk)
    for b in bad:
        print("NOT RIGHT: " + b, file=OPTIONS.talk)
    if OPTIONS.json:
        with (sys.stdout if OPTIONS.json == "-" else open(OPTIONS.json, "w", encoding="utf-8")) as f:
            json.dump(total, f, indent=1)
    if OPTIONS.page:
        write_page(OPTIONS.page, total, bad)
    if log.path and not OPTIONS.judge:
        os.replace(log.path, "%s.%d" % (log.path, OPTIONS.seed))
    return 0 if not bad and (log.trials or log.healthy) else 1


def main():
    global OPTIONS
    OPTIONS = options()
    stopping = threading.Event()

    def stop(number, _):
        if stopping.is_set():
            return
        stopping.set()
        print("campaign: signal %d: what runs is ended; nothing more is begun" % number, file=OPTIONS.talk, flush=True)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, stop)
    log = Log(OPTIONS.log)
    print("campaign: seed %d, %d causes, %d times each, %d at a time, %d trials are done" % (
        OPTIONS.seed, len(OPTIONS.causes), OPTIONS.times, OPTIONS.jobs, len(log.trials)), file=OPTIONS.talk, flush=True)
    if OPTIONS.judge:
        return finish(log, {})
    impossible = run_trials(log, stopping)
    run_healthy(log, stopping)
    return 130 if stopping.is_set() else finish(log, impossible)


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        jobs.remove_cgroups()
