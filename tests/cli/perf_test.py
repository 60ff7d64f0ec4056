#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`unisono perf` from outside: the table as parsers of nccl-tests output read it, exit statuses, sentences, JSON.

usage: perf_test.py PATH_OF_UNISONO CASE
"""
import json
import os
import re
import subprocess
import sys
import tempfile
from xml.etree import ElementTree

UNISONO = None
FLOAT = r"[0-9.]+(?:e[+-][0-9]+)?"
# Columns 1-5, then 4 + 4, as written by nccl-tests 2.19: widths 12, 12, 8, 6, 6, then 7, 6, 6, 6 twice.
ROW = re.compile(r"^\s+(\d+)\s+(\d+)\s+(\w+)\s+(\w+)\s+(-?\d+)" + (r"\s+(%s)\s+(%s)\s+(%s)\s+(\S+)" % (FLOAT, FLOAT, FLOAT)) * 2)
COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "alltoallv", "gather", "scatter",
               "sendrecv", "hypercube"]


def run(args, status=0, name=None, env=None, timeout=120):
    """Run `unisono perf ARGS`, or under another name; returns (stdout, stderr)."""
    environment = {k: v for k, v in os.environ.items()
                   if not re.match(r"(UNISONO_|NCCL_|RCCL_|OMPI_|PMI|SLURM_|RANK$|WORLD_SIZE$)", k)}
    environment["UNISONO_COSTS"] = "none"  # not those of this machine
    environment.update(env or {})
    with tempfile.TemporaryDirectory() as folder:
        command = [UNISONO, "perf"]
        if name:
            command = [os.path.join(folder, name)]
            os.symlink(UNISONO, command[0])
        done = subprocess.run(command + args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout, env=environment,
                              universal_newlines=True)
    assert done.returncode == status, "%s: status %d, not %d\n%s\n%s" % (args, done.returncode, status, done.stdout, done.stderr)
    return done.stdout, done.stderr


def rows(text):
    return [m for m in (ROW.match(line) for line in text.splitlines()) if m]


def slicing_parser(text):
    """As a widely used harness does: everything between the last "out-of-place" and "Out of bounds values" is a row."""
    lines, start, end = text.splitlines(), -1, -1
    for i, line in enumerate(lines):
        if "out-of-place" in line:
            start = i
        if "Out of bounds values" in line:
            end = i
    best, seen = -1.0, 0
    for line in lines[start + 3:end]:
        words = re.sub(r" +", " ", line.strip(" ")).split(" ")
        if len(words) <= 10:
            break
        best, seen = max(best, float(words[-6])), seen + 1
    return best, seen


def case_table():
    args = ["-b", "8", "-e", "64K", "-f", "2", "-g", "2", "-n", "3"]
    for extra in ([], ["--limit", "--explain", "--percentiles", "-M", "1"]):
        out, _ = run(args + extra, name="all_reduce_perf")
        found = rows(out)
        assert len(found) == 14, out
        assert [int(m.group(1)) for m in found] == [8 << i for i in range(14)], out
        for m in found:
            assert int(m.group(2)) * 4 == int(m.group(1)) and m.group(3, 4, 5) == ("float", "sum", "-1"), m.group(0)
            assert m.group(9) == "0" and m.group(13) == "0", m.group(0)
        best, seen = slicing_parser(out)
        assert seen == 14 and best > 0, out
        assert re.search(r"^# Out of bounds values : 0 OK$", out, re.M), out
        average = float(re.search(r"^# Avg bus bandwidth    : ([0-9.e+-]+) $", out, re.M).group(1))
        shown = [float(m.group(i)) for m in found for i in (8, 12)]
        assert abs(average - sum(shown) / len(shown)) < 0.006, (average, shown)
        assert out.rstrip().endswith("# Collective test concluded: all_reduce_perf"), out
        assert all(line.startswith("#") or ROW.match(line) for line in out.splitlines()), out
        assert all(len(line) >= 113 and line[:12].strip().isdigit() for line in out.splitlines() if ROW.match(line)), out


def case_columns():
    out, _ = run(["all_reduce", "-b", "1K", "-e", "1K", "-n", "4", "-t", "2", "-I", "1", "-S", "1", "-C", "1"])
    row = [line for line in out.splitlines() if ROW.match(line)][0]
    assert len(row.split()) == 5 + 2 * 8 + 2, row
    assert re.search(r"  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d$", row), row
    assert "cputime" in out and "i_cv%" in out
    out, _ = run(["all_reduce", "-b", "1K", "-e", "1K", "-n", "2", "-t", "2", "-c", "0"])
    assert re.search(r"     N/A .*     N/A$", out, re.M), out


def case_sizes():
    def sizes(args):
        out, _ = run(["-n", "1", "-c", "0", "-t", "2"] + args)
        return [int(m.group(1)) for m in rows(out)]
    assert sizes(["-b", "1K", "-e", "3K", "-i", "1K"]) == [1024, 2048, 3072]
    assert sizes(["-b", "1K", "-e", "1M", "-f", "8"]) == [1 << 10, 1 << 13, 1 << 16, 1 << 19]
    assert sizes(["-b", "0.5K", "-e", "512"]) == [512]
    assert sizes(["-b", "0", "-e", "8", "-f", "2"]) == [0, 0, 0, 4, 8]  # of float: 1 and 2 bytes are no element
    # blocks are rounded down to 16 bytes a rank
    assert sizes(["all_gather", "-b", "100", "-e", "100"]) == [96]
    out, _ = run(["-n", "1", "-N", "3", "-b", "8", "-e", "8", "-t", "2"])
    assert len(rows(out)) == 3, out


def case_collectives():
    for how in (["--ranks", "2"], ["-t", "2"], ["-g", "4"], ["--ranks", "4"]):
        for name in COLLECTIVES:
            out, _ = run([name, "-b", "64", "-e", "256K", "-f", "64", "-n", "2"] + how)
            found = rows(out)
            assert len(found) == 3 and "Out of bounds values : 0 OK" in out, out
            rooted = name in ("broadcast", "reduce", "gather", "scatter")
            assert all(m.group(5) == ("0" if rooted else "-1") for m in found), out
            assert all(m.group(4) == ("sum" if "reduce" in name else "none") for m in found), out
    run(["barrier", "--ranks", "2", "-n", "2"])


def case_types():
    out, _ = run(["all_reduce", "-d", "all", "-o", "all", "-b", "4K", "-e", "4K", "-n", "1", "-t", "3"])
    found = {m.group(3, 4) for m in rows(out)}
    assert len(found) == 72, sorted(found)
    out, _ = run(["broadcast", "-r", "all", "-b", "64", "-e", "64", "-n", "1", "-t", "3"])
    assert [m.group(5) for m in rows(out)] == ["0", "1", "2"], out


def case_bandwidth():
    """The formulas, from JSON, whose numbers are not rounded."""
    n = 4
    for name, moved, bus in (("all_reduce", 1, 2 * (n - 1) / n), ("all_gather", 1, (n - 1) / n), ("broadcast", 1, 1),
                             ("reduce_scatter", 1, (n - 1) / n), ("alltoall", 1, (n - 1) / n), ("sendrecv", 1, 1),
                             ("hypercube", (n - 1) / n, 1)):
        out, _ = run([name, "-b", "64K", "-e", "64K", "-n", "3", "-g", str(n), "--json", "-"])
        result = json.loads(out)["results"][0]
        for half in (result["out_of_place"], result["in_place"]):
            algbw = result["size"] * moved / half["time"] / 1e3
            assert abs(half["alg_bw"] / algbw - 1) < 0.01, (name, half)
            assert abs(half["bus_bw"] / half["alg_bw"] - bus) < 0.01, (name, half)


def case_json():
    args = ["all_reduce", "-b", "1K", "-e", "4K", "-f", "2", "-n", "5", "-t", "2"]
    out, _ = run(args + ["--json", "-", "--limit", "--explain", "--percentiles"])
    data = json.loads(out)
    assert len(data["results"]) == 3
    for r in data["results"]:
        assert r["out_of_place"]["nwrong"] == 0 and r["limit_us"] > 0 and r["explanation"]
        assert len(r["in_place_per_iter"]["times_us"]) == 5
        it = r["out_of_place_per_iter"]
        assert it["min_us"] <= it["p50_us"] <= it["p99_us"] <= it["max_us"]
    assert data["out_of_bounds"] == {"count": 0, "okay": "true"}
    assert len(data["config"]["devices"]) == 2 and data["unisono"]["ranks"] == 2
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, "a.json")
        for _ in range(3):
            run(args + ["-J", name])
        assert sorted(os.listdir(folder)) == ["a.json", "a.json.1", "a.json.2"], os.listdir(folder)
        for file in os.listdir(folder):
            with open(os.path.join(folder, file)) as f:
                assert json.load(f)["version"] == 3


def case_options():
    """Each bad option: status 2, one sentence that names the option or word and what is legal, nothing on stdout."""
    for args, words in (
            (["-b", "9", "-e", "8"], ["-b 9", "-e 8"]), (["-b", "x"], ["-b", "64K"]), (["-b"], ["-b", "value"]),
            (["-e", "-4"], ["-e"]), (["-b", "99999999999G"], ["-b"]), (["-n", "0"], ["-n", "from 1"]),
            (["-n", "3x"], ["-n", "whole number"]), (["-o", "plus"], ["-o", "sum prod"]), (["-d", "real"], ["-d", "bfloat16"]),
            (["-r", "two"], ["-r"]), (["broadcast", "-r", "7", "-t", "2"], ["-r 7", "0 to 1"]), (["-z", "4"], ["-z", "0 to 3"]),
            (["-a", "9"], ["-a"]), (["-T", "soon"], ["-T", "seconds"]), (["-D", "1"], ["-D", "device"]),
            (["-J", "out.txt"], ["-J", ".json"]), (["-i", "0", "-b", "8", "-e", "16"], ["-i"]), (["-Q"], ["-Q"]),
            (["--limt"], ["--limt", "--limit"]), (["all_reduc"], ["all_reduc", "all_reduce"]),
            (["all_reduce", "more"], ["more"]), (["--cold", "--warm"], ["--cold"]), (["-K", "20"], None),
            (["-I", "1", "-K", "20"], ["-K"]), (["--ranks", "2", "-g", "2"], ["--ranks"]), (["--ranks", "0"], ["--ranks"]),
            (["--bind", "socket"], ["--bind", "core"]), (["--memory", "hot"], ["--memory", "shared"]),
            (["hypercube", "-t", "3"], ["hypercube", "power of two"]), (["-o", "band", "-t", "2"], ["band", "float"]),
            (["-t", "2", "--json", "/nonexistent/x.json"], ["/nonexistent/x.json"])):
        if words is None:  # legal without -I
            run(args + ["-b", "8", "-e", "8", "-t", "2"])
            continue
        out, err = run(args, status=2)
        assert out == "", (args, out)
        assert err.count("\n") == 1 and err.startswith("unisono perf: "), (args, err)
        assert all(w in err for w in words), (args, err)
    for args in (["--help"], ["-h"]):
        out, _ = run(args)
        assert "--percentiles" in out and "-b, --minbytes" in out
    out, _ = run(["-G", "3", "-x", "1", "-V", "8", "-b", "8", "-e", "8", "-n", "1", "-t", "2"])
    assert out.count("has no meaning for host memory") == 3, out
    for memory in (["-M", "1"], ["--memory_report", "1"], ["--memory", "1"]):  # the last is nccl-tests' long name
        out, _ = run(memory + ["-b", "8", "-e", "8", "-n", "1", "-t", "2"])
        assert "ordinary memory" in out and "# Memory of rank 1: " in out, out


def case_statuses():
    args = ["-b", "8", "-e", "8", "-n", "1", "--ranks", "2"]
    out, _ = run(args, status=1, env={"NCCL_TESTS_MIN_BW": "100000"})
    assert re.search(r"^# Avg bus bandwidth    : \S+ FAILED$", out, re.M), out
    out, _ = run(args, env={"NCCL_TESTS_MIN_BW": "0"})
    assert re.search(r"^# Avg bus bandwidth    : \S+ OK$", out, re.M), out
    done = subprocess.run([UNISONO, "perf"] + args, stdout=open("/dev/full", "w"), stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 2 and b"standard output" in done.stderr, done


def case_default():
    out, _ = run(["-b", "8", "-e", "8", "-n", "1"])
    assert re.search(r"^# ranks: [2-4] processes started here", out, re.M), out
    out, _ = run([], timeout=300)
    assert "predicted and measured" not in out, out
    assert "# limit:" in out and len(rows(out)) == 8, out
    assert len(re.findall(r"^# plans: .*, at 16 MB \S+ .*$", out, re.M)) == 1, out


def case_explain():
    args = ["-b", "8", "-e", "256K", "-f", "8", "-n", "1", "-t", "2"]
    out, _ = run(args + ["--explain"], env={"UNISONO_ALGO": "ring"})
    assert len(re.findall("^# plans: ring", out, re.M)) == 1 and "# from " not in out, out
    assert "predicted and measured" in out, out
    out, _ = run(args + ["--explain=line"])
    assert len(re.findall("^# plans: ", out, re.M)) == 1 and "predicted and measured" not in out, out
    out, _ = run(args + ["--explain", "-d", "all"])  # a line for each walk through the sizes
    assert len(re.findall("^# plans: ", out, re.M)) == 12, out
    out, _ = run(args + ["--explain=all"])
    assert len(re.findall("^# from ", out, re.M)) == 6 and "# rank 0 in this run: " in out, out
    lines = re.findall(r"^# +(\d+) \S.* ([+-]\d+)%([! ])  (.*); (.*)$", out, re.M)
    assert len(lines) == 6 and "nothing is faster" in lines[0][4], out
    for _, percent, mark, others, decided in lines:
        assert (mark == "!") == (abs(int(percent)) > 30) or abs(int(percent)) in (30, 31), lines
        assert "ring" in others and decided, lines
    marked = sum(line[2] == "!" for line in lines)
    assert "%d of 6 predictions are off" % marked in out, out
    out, _ = run(["sendrecv"] + args + ["--explain"])
    assert len(re.findall("^# plans: sends and receives", out, re.M)) == 1, out
    out, _ = run(["reduce", "--ranks", "2", "-b", "64", "-e", "64K", "-f", "32", "-n", "2", "--choices"], env={"UNISONO_COSTS": "none"})
    table = [line.split() for line in out[out.index("# choices:"):].splitlines()]
    assert table[1][1:4] == ["size", "chosen", "chosen"] and {"flat", "ring", "tree", "hd"} < set(table[1]), table
    sizes = [row for row in table[2:] if len(row) > 5 and row[1].isdigit()]
    assert [row[1] for row in sizes] == ["64", "2048", "65536"], table
    good = re.search(r"within 10 % of the best in (\d) of 3", out)
    assert good and int(good[1]) == sum("best is" not in " ".join(row) for row in sizes), out
    out, _ = run(["reduce", "--ranks", "2", "-b", "64", "-e", "64", "-n", "2", "--choices", "--json", "-"])
    choices = json.loads(out)["results"][0]["choices"]
    assert choices["chosen_to_best"] > 0.5 and set(choices["forced_us"]) > {"flat", "ring"}, choices
    for refused, why in ((["sendrecv", "--ranks", "2"], "one fixed plan"), (["all_reduce", "-t", "2"], "processes")):
        _, err = run(refused + ["-b", "64", "-e", "64", "--choices"], status=2)
        assert why in err, err
    _, err = run(args + ["--explain=some"], status=2)
    assert "--explain" in err and "all" in err, err
    _, err = run(["--ranks", "3", "-b", "32K", "-e", "32K", "-n", "2"], env={"UNISONO_DEBUG": "info", "UNISONO_DEBUG_SUBSYS": "plan"})
    assert len(re.findall("^unisono: rank 0: all_reduce 32 KB float32 on 3 ranks, 1 host: .* predicted ", err, re.M)) == 1, err
    assert "rank 1: all_reduce" not in err, err  # the choice is the same everywhere


def case_sweep():
    """Several numbers of ranks and communicators: the table, the plot, JSON; and what a sweep larger than memory is told."""
    with tempfile.TemporaryDirectory() as folder:
        plot, data = os.path.join(folder, "p.svg"), os.path.join(folder, "d.json")
        args = ["all_gather", "--sweep=2,3", "--communicators", "1,2", "-b", "256", "-e", "64K", "-f", "16", "-n", "2"]
        out, _ = run(args + ["--plot", plot, "--json", data])
        head = re.search(r"^ +size  +2 ranks  +2 ranks x 2  +3 ranks  +3 ranks x 2$", out, re.M)
        assert head and len(re.findall(r"^ +\S+ K?B(?:  +[0-9.]+[* ]){4}$", out, re.M)) == 3, out
        assert len(re.findall(r"^[23] ranks(?: x 2)? .* GB/s at .*; limited by (?:processor|memory|waiting)$", out, re.M)) == 4, out
        with open(plot, encoding="utf-8") as f:
            svg = f.read()
        ElementTree.fromstring(svg)
        assert svg.count("<circle") == 4 and "3 ranks x 2: " in svg, svg
        with open(data, encoding="utf-8") as f:
            series = json.load(f)["series"]
        assert [(s["ranks"], s["communicators"]) for s in series] == [(2, 1), (2, 2), (3, 1), (3, 2)], series
        sizes = [p["size"] for p in series[0]["points"]]
        for s in series:
            assert len(s["points"]) == 3 and all(p["gb_s"] > 0 for p in s["points"]), s
            gb_s = [p["gb_s"] for p in s["points"]]
            knee = next(i for i, x in enumerate(gb_s) if x >= 0.9 * max(gb_s))
            assert s["stops_growing_at"] == (None if knee == 2 else s["points"][knee]["size"]), s
            assert (s["points"][0]["limit_us"] > 0) == (s["communicators"] == 1), s
            if s["ranks"] * s["communicators"] > os.cpu_count():
                assert all(p["limited_by"] in ("processor", "memory") for p in s["points"]), s
        assert sizes == sorted(sizes), sizes
        out, _ = run(args[:1] + ["--sweep=2", "--communicators", "1", "--bind", "both", "-b", "256", "-e", "256", "-n", "2"])
        assert "2 ranks, bound" in out and "2 ranks, free" in out, out  # side by side
        _, err = run(["--sweep=2,4", "-b", "8", "-e", "1024G", "-f", "2"], status=2)
        assert re.search(r"needs \S+ TB of memory for buffers, and this machine has .* available; give -e", err), err
        _, err = run(args + ["--plot", folder + "/no/such.svg"], status=2)
        assert "--plot" in err and "such.svg" in err, err
    for bad, why in ((["--sweep=2,x"], "numbers"), (["--sweep=1"], "from 2"), (["--sweep", "--ranks", "2"], "starts its ranks itself"),
                     (["--plot", "x.svg"], "belongs to --sweep"), (["--bind", "both"], "belongs to --sweep"),
                     (["--sweep", "--communicators", "0"], "from 1")):
        _, err = run(bad, status=2)
        assert why in err, (bad, err)
    _, err = run(["--sweep"], status=2, env={"RANK": "0", "WORLD_SIZE": "2"})
    assert "without a launcher" in err, err


def case_busy():
    """Other programs on the processors are told, ended ones and passing ones are not: by a /proc/loadavg of our own."""
    args = ["-g", "2", "-b", "8", "-e", "8", "-n", "1"]
    cpus = os.sysconf("SC_NPROCESSORS_ONLN")
    many = 4 * cpus
    namespace = ["unshare", "-m" if os.geteuid() == 0 else "-rm", "sh", "-c"]
    for mean, running, told in [(many, many + 1, many), (many, 1, 0), (0.0, many + 1, 0), (cpus, many + 1, cpus)]:
        with tempfile.NamedTemporaryFile("w") as fake:
            fake.write("%.2f 1.00 1.00 %d/900 4711\n" % (mean, running))
            fake.flush()
            mount = "mount --bind %s /proc/loadavg" % fake.name
            if subprocess.run(namespace + [mount], stderr=subprocess.DEVNULL).returncode != 0:
                print("skipped: no mount namespace here")
                return
            done = subprocess.run(namespace + [mount + ' && exec "$@"', "sh", UNISONO, "perf"] + args, timeout=120,
                                  stdout=subprocess.PIPE, universal_newlines=True)
        assert done.returncode == 0, done
        busy = re.findall(r"^# busy: (\d+) other thread", done.stdout, re.M)
        assert busy == ([str(told)] if told else []), (mean, running, done.stdout)
        assert len(rows(done.stdout)) == 1


def case_no_sys():
    """Where a container hides /sys, nothing but the table is printed, by any rank."""
    namespace = ["unshare", "-m" if os.geteuid() == 0 else "-rm", "sh", "-c"]
    if subprocess.run(namespace + ["mount -t tmpfs none /sys"], stderr=subprocess.DEVNULL).returncode != 0:
        print("skipped: no mount namespace here")
        return
    done = subprocess.run(namespace + ['mount -t tmpfs none /sys && exec "$@"', "sh", UNISONO, "run", "-n", "2", "--", UNISONO, "perf", "all_reduce",
                                       "-b", "8", "-e", "8", "-n", "1"], timeout=120, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr and "hwloc" not in done.stdout, done
    assert len(rows(done.stdout)) == 1


def case_hosts():
    """A rank's host is the one that its launcher named, and its device counts the ranks of that host."""
    args = ["-b", "8", "-e", "8", "-n", "1", "--ranks", "2"]
    out, _ = run(args, env={"UNISONO_HOST": "elsewhere"})
    found = re.findall(r"^#  Rank +(\d) .* on +(\S+) device +(\d)", out, re.M)
    assert found == [("0", "elsewhere", "0"), ("1", "elsewhere", "1")], out
    out, _ = run(args)
    assert [host for _, host, _ in re.findall(r"^#  Rank +(\d) .* on +(\S+) device +(\d)", out, re.M)] == [os.uname().nodename[:63]] * 2, out


def case_split():
    """Groups measure at the same time; the table is rank 0's group's. Everything is checked in all of them."""
    def groups(value, name="NCCL_TESTS_SPLIT", ranks=5, args=("all_gather",), status=0):
        out, err = run(list(args) + ["--ranks", str(ranks), "-b", "64K", "-e", "64K", "-n", "2"], env={name: value}, status=status)
        return [int(g) for g in re.findall(r"^#  Rank +\d+ Group +(\d+) Pid", out, re.M)], out, err
    for value, want, size in (("MOD 2", [0, 1, 0, 1, 0], 3), ("%2", [0, 1, 0, 1, 0], 3), ("div 2", [0, 0, 1, 1, 2], 2),
                              ("AND 0x1", [0, 1, 0, 1, 0], 3), ("& 0b10", [0, 0, 2, 2, 0], 3), ("OR 0x3", [3, 3, 3, 3, 7], 4),
                              ("MOD 1", [0] * 5, 5)):
        found, out, _ = groups(value)
        assert found == want, (value, out)
        row = rows(out)[0]
        assert int(row.group(2)) == 65536 // 4 // size // 4 * 4 and row.group(9) == "0", (value, out)  # blocks of 16 bytes a rank
        assert ("groups run at the same time" in out) == (len(set(want)) > 1), out
    found, out, _ = groups("1", "NCCL_TESTS_SPLIT_MASK", 4, ("reduce", "-r", "all", "-o", "mulsum", "--limit"))
    assert found == [0, 1, 0, 1] and [m.group(5) for m in rows(out)] == ["0", "1"] and "limit: not measured" in out, out
    out, _ = run(["-t", "4", "-b", "8", "-e", "8"], env={"NCCL_TESTS_SPLIT": "MOD 2"})
    assert "one group, since processes are split" in out, out
    for value in ("MOD 0", "MOD", "XOR 3", "MOD 2x", ""):
        _, out, err = groups(value, status=2)
        assert "NCCL_TESTS_SPLIT" in err and "MOD" in err and err.count("\n") == 1, err
    _, _, err = groups("zz", "NCCL_TESTS_SPLIT_MASK", status=2)
    assert "hexadecimal" in err, err
    _, _, err = groups("MOD 2", args=("broadcast", "-r", "2"), status=2)
    assert "2 ranks, so a root is 0 to 1" in err, err


def case_pairs():
    """alltoallv: nccl-tests' pattern by distance, or a matrix from a file; both ways every byte is checked."""
    variable = "NCCL_TESTS_ALLTOALLV_"
    args = ["alltoallv", "-b", "6000", "-e", "6000", "-n", "2"]

    def traffic(out):
        return [(int(a), int(b)) for a, b in re.findall(r"^#   rank=\d+ send_bytes=(\d+) recv_bytes=(\d+)", out, re.M)]
    for spread, want in (("0", 3 * 2000), ("1", 2000 + 4000), ("0.5", 992 + 2000 + 3008 - 8)):
        out, _ = run(args + ["-t", "3"], env={variable + "SPREAD": spread, variable + "PRINT_SUMMARY": "1"})
        assert all(abs(a - want) <= 48 and a == b for a, b in traffic(out)) and len(traffic(out)) == 3, (spread, out)
        assert "Out of bounds values : 0 OK" in out, out
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, "matrix")

        def matrix(text, how=("--ranks", "3"), status=0, scale="1", more=("-b", "64K", "-e", "64K")):
            with open(name, "w") as f:
                f.write(text)
            return run(["alltoallv", "-n", "2"] + list(how) + list(more), status=status,
                       env={variable + "MATRIX_FILE": name, variable + "MATRIX_SCALE": scale, variable + "PRINT_SUMMARY": "1"})
        good = "100 200 150\n50,100,75\n\n 3e2 0 160"
        out, _ = matrix(good)
        assert traffic(out) == [(96 + 192 + 144, 96 + 48 + 288), (48 + 96 + 64, 192 + 96), (288 + 160, 144 + 64 + 160)], out
        assert rows(out)[0].group(1, 2) == ("448", "0") and "Out of bounds values : 0 OK" in out, out
        out, _ = matrix(good, ("-g", "2"), scale="100")  # a larger matrix is cut
        assert traffic(out) == [(30000, 14992), (14992, 30000)], out
        for text, words in (("", "0 rows"), ("1 2\n3", "row 2 has 1 columns"), ("1 2 3\n4 5 6", "square"), ("1 x\n2 3", "\"x\""),
                            ("1 -2\n3 4", "-2"), ("1 nan\n3 4", "nan"), ("1 2\n3 4", "for 2 ranks, and there are 3"),
                            ("99999 1 1\n1 1 1\n1 1 1", "give -b 99984 -e 99984")):
            out, err = matrix(text, status=2)
            assert words in err and err.count("\n") == 1, (text, err)
        assert "must be equal" in matrix(good, status=2, more=("-b", "8", "-e", "64K"))[1]
        assert "MATRIX_SCALE" in matrix(good, status=2, scale="-1")[1]
    _, err = run(args, status=2, env={variable + "MATRIX_FILE": "/nonexistent/m"})
    assert "/nonexistent/m" in err and "No such file" in err, err
    _, err = run(args, status=2, env={variable + "SPREAD": "2"})
    assert "SPREAD" in err and "0 to 1" in err, err


def case_tool():
    def tool(*args, status=0):
        done = subprocess.run([UNISONO] + list(args), stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
                              timeout=60)
        assert done.returncode == status, (args, done)
        return done.stdout, done.stderr
    out, _ = tool()
    assert "usage: unisono" in out and "\033" not in out
    _, err = tool("prf", status=2)
    assert 'did you mean "unisono perf"?' in err
    _, err = tool("zzzzzzzz", status=2)
    assert "zzzzzzzz" in err and "did you mean" not in err
    assert tool("--version")[0] == tool("version")[0]
    assert tool("help", "perf")[0] == tool("perf", "--help")[0]
    script, _ = tool("completion", "bash")
    shell = script + '\nCOMP_WORDS=(%s perf --per); COMP_CWORD=2; _unisono; echo "${COMPREPLY[@]}"\n' % UNISONO
    shell += 'COMP_WORDS=(%s pe); COMP_CWORD=1; _unisono; echo "${COMPREPLY[@]}"\n' % UNISONO
    done = subprocess.run(["bash", "-c", shell], stdout=subprocess.PIPE, universal_newlines=True, timeout=60)
    assert done.stdout.split("\n")[0].split() == ["--per_iter_skip", "--per_iter_timing", "--percentiles"], done
    assert done.stdout.split("\n")[1] == "perf", done
    tool("completion", "fish", status=2)


def main():
    global UNISONO
    UNISONO = os.path.abspath(sys.argv[1])
    cases = {name[5:]: case for name, case in globals().items() if name.startswith("case_")}
    for name in sys.argv[2:] or sorted(cases):
        cases[name]()
        print("%s: good" % name)


if __name__ == "__main__":
    main()
