#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`unisono tune` from outside, and jobs that read what it wrote: rank 0's costs are everyone's, whatever the others' files say.

usage: tune_test.py PATH_OF_UNISONO
"""
import json
import os
import re
import subprocess
import sys
import tempfile

UNISONO = sys.argv[1]


def run(args, env, status=0):
    environment = {k: v for k, v in os.environ.items() if not re.match(r"(UNISONO_|NCCL_|RCCL_|XDG_CACHE_HOME)", k)}
    environment.update(env)
    done = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=200, env=environment, universal_newlines=True)
    assert done.returncode == status, "%s: status %d, not %d\n%s\n%s" % (args, done.returncode, status, done.stdout, done.stderr)
    return done.stdout, done.stderr


def tune(args, folder, status=0, **env):
    return run([UNISONO, "tune"] + args, dict(env, XDG_CACHE_HOME=folder), status)


def measured_and_kept(folder):
    shown, _ = tune(["--show"], folder)
    assert "built in; `unisono tune` measures them" in shown, shown
    dry = json.loads(tune(["--dry-run", "--json"], folder)[0])
    assert dry["measured"] and not os.path.exists(dry["file"]), dry
    made = json.loads(tune(["--json"], folder)[0])
    kept = json.loads(tune(["--show", "--json"], folder)[0])
    assert kept == made and os.path.dirname(made["file"]) == folder + "/unisono", (made, kept)
    costs = kept["costs_ps"]
    assert 10000 < costs["switch_ps"] and 1000 <= costs["shm_latency_ps"] < costs["net_latency_ps"], costs
    assert 0 < costs["reduce_ps_per_kb"] < 100000000 and costs["map_large_ps_per_kb"] > 0, costs
    return made["file"]


def not_followed(path, folder):
    with open(path, "a", encoding="utf-8") as f:
        f.write("more\n")
    out, err = tune(["--show"], folder)
    assert "cut off or was changed" in err and "built in" in out, (out, err)
    _, err = run([UNISONO, "perf", "all_reduce", "--ranks", "2", "-b", "64K", "-e", "64K"],
                 {"XDG_CACHE_HOME": folder})
    assert err.count("not followed") == 1 and path in err, err
    tune([], folder)


def refusals(folder):
    _, err = tune(["--shwo"], folder, status=2)
    assert "--shwo" in err and "--help" in err, err
    _, err = tune(["--show", "--dry-run"], folder, status=2)
    assert "exclude each other" in err, err
    _, err = tune(["now"], folder, status=2)
    assert '"now"' in err, err
    _, err = tune([], folder, status=2, UNISONO_COSTS="none")
    assert "--dry-run" in err and "none" in err, err
    _, err = tune([], folder, status=2, UNISONO_COSTS="/proc/no/costs")
    assert "/proc/no/costs" in err and "cannot be written" in err, err


def differing_files(path, folder):
    """Ranks whose files would have them choose differently make the same choice: rank 0's. A mismatch would fail the job."""
    script = 'if [ "$UNISONO_RANK" = 0 ]; then export UNISONO_COSTS="%s"; else export UNISONO_COSTS="%s"; fi; exec "%s" perf all_reduce ' \
             '-b 4K -e 256K -f 2 -n 3 --explain=all'
    said = []
    for first, others in ((path, "none"), ("none", path)):
        out, _ = run([UNISONO, "run", "-n", "4", "--", "sh", "-c", script % (first, others, UNISONO)], {"XDG_CACHE_HOME": folder})
        said.append(re.findall(r"predicted [^;]*", out))
        assert "Out of bounds values : 0 OK" in out, out
    alone, _ = run([UNISONO, "perf", "all_reduce", "--ranks", "4", "-b", "4K", "-e", "256K", "-f", "2", "-n", "3", "--explain=all"],
                   {"XDG_CACHE_HOME": folder, "UNISONO_COSTS": "none"})
    assert said[0] != said[1], said
    assert [s.split(",")[0] for s in said[1]] == [s.split(",")[0] for s in re.findall(r"predicted [^;]*", alone)], (said[1], alone)


def between_hosts(folder):
    """Two ranks whose hosts have two names talk over TCP: rank 0 measures that, too, and alone speaks."""
    script = 'UNISONO_HOST=host$UNISONO_RANK exec "%s" tune --dry-run --json' % UNISONO
    out, _ = run([UNISONO, "run", "-n", "2", "--", "sh", "-c", script], {"XDG_CACHE_HOME": folder})
    costs = json.loads(out)["costs_ps"]
    assert costs["net_latency_ps"] != 6000000 and costs["net_ps_per_kb"] != 800000, costs
    assert costs["shm_latency_ps"] < costs["net_latency_ps"] < 10 ** 10 and 1000 < costs["net_ps_per_kb"] < 10 ** 8, costs


with tempfile.TemporaryDirectory() as where:
    written = measured_and_kept(where)
    not_followed(written, where)
    refusals(where)
    differing_files(written, where)
    between_hosts(where)
