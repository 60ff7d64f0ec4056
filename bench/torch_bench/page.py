# SPDX-License-Identifier: Apache-2.0
"""What bench/torch.py measured, as a page: facts of the machine, what was to be shown and whether it was, tables with spread."""
import os
import platform
import statistics

import torch
import torch.distributed as dist

OURS, THEIRS = "unisono", "gloo"


def median(row, backend):
    return statistics.median(row["times"][backend])


def ratios(row, other=THEIRS):
    """The rounds' ratios, how many times as long as ours the other took: (quartile, median, quartile)."""
    found = sorted(a / b for a, b in zip(row["times"][other], row["times"][OURS]))
    quarter = len(found) // 4
    return found[quarter], statistics.median(found), found[-1 - quarter]


def size_text(size_bytes):
    for unit, shift in (("MB", 20), ("KB", 10)):
        if size_bytes >= 1 << shift and size_bytes % (1 << shift) == 0:
            return f"{size_bytes >> shift} {unit}"
    return f"{size_bytes} B"


def line(row):
    """One measurement as it comes, for a terminal."""
    if row["what"] == "left out":
        return f"{row['ranks']:5} {row['name']}: left out: {row['why']}"
    low, middle, high = ratios(row)
    name = f"{row['name']} {size_text(row['bytes'])}" if row["what"] == "call" else row["name"]
    return f"{row['ranks']:5} {name:42}{median(row, THEIRS) * 1e6:14.1f}{median(row, OURS) * 1e6:14.1f}{middle:9.2f}  {low:.2f}-{high:.2f}"


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        model = next((x.split(":", 1)[1].strip() for x in f if x.startswith("model name")), platform.machine())
    paths = {"mpi": dist.is_mpi_available(), "ucc": getattr(dist, "is_ucc_available", lambda: False)(), "gloo": dist.is_gloo_available()}
    there = ", ".join(f"{name} {'yes' if yes else 'no'}" for name, yes in paths.items())
    return (f"{model}, {len(os.sched_getaffinity(0))} processors, Linux {platform.release()}, torch {torch.__version__}, Python "
            f"{platform.python_version()}. Load as it began: {os.getloadavg()[0]:.1f}. torch's other paths for CPU tensors here: {there}.")


def targets(rows):
    """(what was to be shown, what was found)"""
    calls = [r for r in rows if r["what"] == "call"]

    def least(size_bytes):
        found = [(ratios(r)[1], r["name"]) for r in calls if r["ranks"] == 2 and r["bytes"] == size_bytes]
        return "; ".join(f"{name} {ratio:.1f}" for ratio, name in sorted(found)) or "not measured"
    slower = [f"{r['name']}{' ' + size_text(r['bytes']) if 'bytes' in r else ''} on {r['ranks']} ranks ({ratios(r)[1]:.2f})"
              for r in rows if r["what"] != "left out" and ratios(r)[1] < 1]
    overlap = [f"{r['name']} on {r['ranks']} ranks {median(r, OURS) / max(r['compute'], r['exchange'][OURS]):.2f}" for r in rows if "compute" in r]
    return [("at 64 KB on 2 ranks 10 times as fast as gloo", least(65536)), ("at 32 MB on 2 ranks 3 times", least(32 << 20)),
            ("nowhere slower", "slower: " + "; ".join(slower) if slower else "nowhere"),
            ("a step with communication costs at most 1.1 times the longer of computing and communicating alone, where cores allow",
             "; ".join(overlap) or "not measured")]


def table(rows):
    yield "| | gloo µs | unisono µs | gloo / unisono | quartiles of it |"
    yield "|---|---|---|---|---|"
    for r in rows:
        low, middle, high = ratios(r)
        name = size_text(r["bytes"]) if r["what"] == "call" else r["name"]
        yield f"| {name} | {median(r, THEIRS) * 1e6:.1f} | {median(r, OURS) * 1e6:.1f} | {middle:.2f} | {low:.2f}–{high:.2f} |"


def page(rows, command):
    yield "# PyTorch: gloo and unisono in turn\n"
    yield f"`{command}`\n\n{machine()}\n"
    yield ("Medians over rounds of rank 0's time for a call; in each round both backends do the same number of calls, and which one begins "
           "alternates. float32; a size is that of the larger tensor. A ratio is of the same round.\n")
    yield "## What was to be shown\n\n| | found |\n|---|---|"
    for what, found in targets(rows):
        yield f"| {what} | {found} |"
    for ranks in sorted({r["ranks"] for r in rows}):
        here = [r for r in rows if r["ranks"] == ranks and r["what"] != "left out"]
        for name in dict.fromkeys(r["name"] for r in here if r["what"] == "call"):
            yield f"\n## {name}, {ranks} ranks\n"
            yield from table([r for r in here if r["what"] == "call" and r["name"] == name])
        steps = [r for r in here if r["what"] == "step"]
        if steps:
            yield f"\n## Steps of programs, {ranks} ranks\n"
            yield from table(steps)
        for r in (r for r in rows if r["ranks"] == ranks and r["what"] == "left out"):
            yield f"\nLeft out: {r['name']}: {r['why']}."


def write(path, rows, command):
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(page(rows, command)) + "\n")
