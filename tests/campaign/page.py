# SPDX-License-Identifier: Apache-2.0
"""page.py - from the results of the faults campaign's trials to its table, its judgement and docs/faults.md."""
import os
import re
import statistics

from causes import CAUSES


def middle(times):
    return statistics.median(times) if times else None


def row(name, of, impossible):
    times = [r["time_s"] for r in of if r["time_s"] is not None]
    shrinks = [bool(r["shrunk"]) for r in of if "shrunk" in r]
    return {"cause": name, "what": CAUSES[name].what, "injected": len(of), "named": sum(r["named"] for r in of), "p50_s": middle(times),
            "max_s": max(times, default=None), "silent": sum(r["said"] is None for r in of),
            "otherwise": sum(len(r.get("otherwise", [])) for r in of),
            "false_alarms": sum(len(r.get("false_alarms", [])) for r in of), "left": sum(sum(r.get("left", {}).values()) for r in of),
            "shrunk": sum(shrinks), "shrinks": len(shrinks), "abort_max_s": max([r["abort_s"] for r in of if "abort_s" in r], default=None),
            "impossible": impossible.get(name)}


def summary(options, trials, healthy, impossible):
    rows = []
    for name in CAUSES:
        of = [r for r in trials if r["cause"] == name]
        if of or name in impossible:
            rows.append(row(name, of, impossible))
    return {"seed": options.seed, "commit": options.commit, "stall_s": options.stall, "jobs": options.jobs, "rows": rows, "trials": trials, "healthy": healthy,
            "healthy_minutes": sum(h["seconds"] for h in healthy) / 60, "healthy_alarms": [a for h in healthy for a in h["alarms"]]}


def complaints(options, total):
    """What is not as it should be, a line each; nothing = all right."""
    bad = []
    for r in total["rows"]:
        limit = {"death": 1.0, "mismatch": 1.0, "stall": options.stall + 1.0, "slow": options.stall + 1.0, "cut": options.stall + 1.0}.get(CAUSES[r["cause"]].group)
        if r["named"] != r["injected"]:
            bad.append("%s: %d of %d named right, %d silent" % (r["cause"], r["named"], r["injected"], r["silent"]))
        if r["otherwise"]:
            bad.append("%s: %d ranks whose error says something else" % (r["cause"], r["otherwise"]))
        for key in ("false_alarms", "left"):
            if r[key]:
                bad.append("%s: %d %s" % (r["cause"], r[key], key.replace("_", " ")))
        if limit and not options.short and r["p50_s"] is not None and r["p50_s"] > limit:
            bad.append("%s: p50 %.2f s, over %.1f s" % (r["cause"], r["p50_s"], limit))
        if r["shrunk"] != r["shrinks"]:
            bad.append("%s: %d of %d shrunk" % (r["cause"], r["shrunk"], r["shrinks"]))
        if r["abort_max_s"] is not None and r["abort_max_s"] > 1 and not options.short:
            bad.append("%s: an abort took %.2f s" % (r["cause"], r["abort_max_s"]))
    if total["healthy_alarms"]:
        bad.append("healthy load: %d false alarms, the first: %s" % (len(total["healthy_alarms"]), total["healthy_alarms"][0]))
    return bad


def times_of(r):
    return "%.2f / %.2f" % (r["p50_s"], r["max_s"]) if r["p50_s"] is not None else "-"


def shrunk_of(r):
    return "%d of %d" % (r["shrunk"], r["shrinks"]) if r["shrinks"] else ""


def line_of(r):
    if r["impossible"] and not r["injected"]:
        return "%-13s not possible here: %s" % (r["cause"], r["impossible"])
    return "%-13s injected %d, named %d, p50 / max %s s, silent %d, false alarms %d, left %d%s" % (
        r["cause"], r["injected"], r["named"], times_of(r), r["silent"], r["false_alarms"], r["left"],
        ", shrunk " + shrunk_of(r) if r["shrinks"] else "")


def plain(said):
    said = re.sub(r"^\[\d+\] (error [0-9.]+ )?", "", said or "(nothing)")
    return re.sub(r"\b%s\b" % re.escape(os.uname().nodename), "node", said)


def healthy_text(total):
    jobs = total["healthy"]
    if not jobs:
        return "No healthy load was run."
    done = {word: sum(h["did"].count(word) for h in jobs) for word in ("stop", "freeze")}
    return ("Healthy load: %.1f minutes, %d jobs of 2-8 ranks (%d on three hosts) on %d processors, computing unevenly for up to %d ms between two calls, %d of them "
            "with a processor quota, %d times suspended and resumed by signals and %d times frozen and thawed with their control group: "
            "%d false alarms." % (total["healthy_minutes"], len(jobs), sum(h.get("hosts", 1) > 1 for h in jobs), os.cpu_count(), max(h["uneven_us"] for h in jobs) // 1000,
                                  sum(h["quota"] for h in jobs), done["stop"], done["freeze"], len(total["healthy_alarms"])))


def write_page(path, total, bad):
    trials = total["trials"]
    out = ["# Faults campaign", "", "What was injected and what was said, verbatim, one example a cause. Written by `make faults`",
           "(`tests/campaign/campaign.py --page FILE`)%s; seed %s, stall limit %s s (the product's own default is 5 s), %d processors,"
           % (" at commit " + total["commit"] if total["commit"] else "", total["seed"], total["stall_s"], os.cpu_count()),
           "%d trials at a time, jobs of 2-8 ranks, %d of %d on three hosts (network namespaces)."
           % (total["jobs"], sum(t["hosts"] > 1 for t in trials), len(trials)), "",
           "A fault counts as named right only if one sentence names the rank, pid or pair of hosts that was chosen, and says what the table of",
           "causes (`tests/campaign/causes.py`) asks of it. *Silent*: nothing was said. *Left behind*: processes, sockets, shared memory and files.", "",
           "The time to the verdict counts from the moment when the rank misbehaved or the fault was injected. Where that takes effect later it counts from",
           "then: of a rank that uses up its memory, when the kernel kills it (`oom_kill` of its control group); of one with 1 % of a processor, when the",
           "kernel first holds it back (`nr_throttled`); of a throttled link, when it first holds a packet back (`overlimits` of `tc -s qdisc`). In the",
           "median it must be under 1 s for ends and mismatches, and under the stall limit + 1 s for what stands, is slow or is cut off (a silent host is",
           "suspected after the stall limit here).", "",
           "| cause | injected | named right | time to verdict p50 / max, s | silent | false alarms | left behind | shrunk |",
           "|---|---|---|---|---|---|---|---|"]
    for r in total["rows"]:
        injected = "not possible: " + r["impossible"] if r["impossible"] and not r["injected"] else r["injected"]
        out.append("| %s | %s | %d | %s | %d | %d | %d | %s |" % (r["what"], injected, r["named"], times_of(r), r["silent"], r["false_alarms"],
                                                                 r["left"], shrunk_of(r)))
    out += ["", healthy_text(total), ""]
    aborts = [r["abort_max_s"] for r in total["rows"] if r["abort_max_s"] is not None]
    if aborts:
        out += ["`uno_comm_abort` freed all ranks within %.2f s at most." % max(aborts), ""]
    if bad:
        out += ["Not as it should be:", ""] + ["- " + plain(b) for b in bad] + [""]
    for r in total["rows"]:
        of = [t for t in trials if t["cause"] == r["cause"]]
        one = next((t for t in of if not t["named"]), of[0] if of else None)
        if one:
            where = "Rank %d of %d%s." % (one["rank"], one["ranks"], " on %d hosts" % one["hosts"] if one["hosts"] > 1 else "")
            out += ["## %s%s" % (r["what"][0].upper(), r["what"][1:]), "", where + ("" if one["named"] else " **Not named right.**"), "",
                    "```", plain(one["said"]), "```", ""]
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(out))
