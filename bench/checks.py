# SPDX-License-Identifier: Apache-2.0
"""The aims, one by one: limit, figure, reached or not. An aim is not reached only if the whole interval lies above its limit, or, for
means over sizes, if the mean of the ratios of medians does."""
import collections
import statistics

from cells import words
from statistics_of import geometric_mean, ratio

Check = collections.namedtuple("Check", "aim limit figure reached")
OURS, REFUSED = "unisono", "unisono-refused"
WHOLE = ("openmpi", "openmpi-ucx", "mpich", "gloo", "gloo-poll")


def worst(aim, limit, rows):
    """rows: (label, ours, theirs, limit of this row). The row that is furthest above its limit is named."""
    found = [(r[0] / most, label, r, most) for label, ours, theirs, most in rows if ours and theirs for r in [ratio(ours, theirs)]]
    if not found:
        return Check(aim, limit, "-", None)
    above = [f for f in found if f[2][1] > f[3]]
    _, label, r, most = max(above or found)
    figure = "%s: %.2f (%.2f-%.2f), limit %.2f" % ((label,) + r + (most,))
    if above:
        figure = "%d of %d cells above; worst at %s" % (len(above), len(found), figure)
    return Check(aim, limit, figure, not above)


def mean(aim, limit, most, rows):
    """rows: (ours, theirs)."""
    found = [statistics.median(a) / statistics.median(b) for a, b in rows if a and b]
    if not found:
        return Check(aim, limit, "-", None)
    value = geometric_mean(found)
    return Check(aim, limit, "%.2f over %d sizes" % (value, len(found)), value <= most)


def best(data, cell, among=None):
    found = data.best_peer(cell, among)
    return found[1] if found else None


def floor(data, cell, memory="ordinary"):
    found = data.best_floor(cell, memory)
    return found[1] if found else None


def prototype_limit(size_bytes):
    return 1.5 if size_bytes <= 4 << 10 else 1.3 if size_bytes <= 512 << 10 else 1.2


def all_reduce_at_two(data):
    for kind in ("out of place", "in place"):
        cells = data.cells(where="host", ranks=2, coll="all_reduce", kind=kind)
        title = "all-reduce, 2 ranks, %s: " % kind
        yield worst(title + "against the best prototype", "1.5 to 4 KB, 1.3 to 512 KB, 1.2 above",
                    [(words(c.bytes), data.times[c].get(OURS), floor(data, c), prototype_limit(c.bytes)) for c in cells])
        yield mean(title + "mean against the best of Gloo, Open MPI, MPICH", "0.75", 0.75,
                   [(data.times[c].get(OURS), best(data, c, WHOLE)) for c in cells])
        yield mean(title + "mean against UCC", "1.0", 1.0, [(data.times[c].get(OURS), data.times[c].get("ucc")) for c in cells])
        yield worst(title + "process_vm_readv refused, against the best other (which may use it)", "1.0",
                    [(words(c.bytes), data.times[c].get(REFUSED), best(data, c), 1.0) for c in cells])
    lent = data.cells(where="host", ranks=2, coll="all_reduce", kind="lent")
    yield worst("all-reduce, 2 ranks, memory of uno_mem_alloc, from 64 KB: against mapped buffers", "1.4",
                [(words(c.bytes), data.times[c].get(OURS), floor(data, c, "shared"), 1.4) for c in lent])
    yield worst("the same against the best other on ordinary memory", "0.33",
                [(words(c.bytes), data.times[c].get(OURS), best(data, c._replace(kind="out of place")), 1 / 3) for c in lent])


def against_best(data, where, ranks, colls, most_mean, most_cell):
    for coll in colls:
        cells = data.cells(where=where, ranks=ranks, coll=coll, kind="out of place")
        if not cells:
            continue
        title = "%s, %d ranks: " % (coll.replace("_", "-"), ranks)
        yield mean(title + "mean against the best other", "%.2f" % most_mean, most_mean,
                   [(data.times[c].get(OURS), best(data, c)) for c in cells])
        yield worst(title + "each cell", "%.2f" % most_cell,
                    [(words(c.bytes), data.times[c].get(OURS), best(data, c), most_cell) for c in cells])


def no_cliff(data, ranks):
    """Up to 4 KB no operation takes milliseconds."""
    slow = [(max(data.times[c][OURS]), c) for c in data.cells(where="host", ranks=ranks, kind="out of place")
            if c.bytes <= 4 << 10 and data.times[c].get(OURS)]
    if not slow:
        return Check("%d ranks: slowest round of a cell up to 4 KB" % ranks, "1 ms", "-", None)
    most, cell = max(slow)
    return Check("%d ranks: slowest round of a cell up to 4 KB" % ranks, "1 ms", "%.3f ms, %s of %s" % (
        most * 1e3, cell.coll.replace("_", "-"), words(cell.bytes)), most < 1e-3)


def between_hosts(data):
    for ranks in (2, 4):
        cells = data.cells(where="%d hosts" % ranks, ranks=ranks, kind="out of place")
        yield worst("between %d hosts, up to 4 KB: against the best other" % ranks, "1.0",
                    [(c.coll.replace("_", "-") + " " + words(c.bytes), data.times[c].get(OURS), best(data, c), 1.0) for c in cells if c.bytes <= 4 << 10])
    for coll, share in (("all_gather", 0.8), ("send_recv", 0.8), ("all_reduce", 0.9)):
        cells = [c for c in data.cells(where="2 hosts", ranks=2, coll=coll) if c.bytes >= 1 << 20]
        what = "raw TCP in both directions with a sum over half the bytes" if coll == "all_reduce" else "raw TCP in both directions"
        yield worst("%s between 2 hosts, from 1 MB: time against %s" % (coll.replace("_", "-"), what), "%.2f (a share of %d %%)" % (1 / share, share * 100),
                    [(words(c.bytes), data.times[c].get(OURS), data.best_raw(c), 1 / share) for c in cells])


def joining(data):
    for ranks, most in ((8, 12), (64, 200)):
        values = [r["barrier_s"] * 1e3 for r in data.rows if r["what"] == "join" and r["name"] == OURS and r["ranks"] == ranks and "barrier_s" in r]
        yield Check("joining until the first barrier is done, %d processes" % ranks, "%d ms" % most,
                    "%.1f ms" % statistics.median(values) if values else "-", statistics.median(values) <= most if values else None)


def memory(data):
    rows = [r for r in data.rows if r["what"] == "memory" and r["name"] == OURS and "grown_kb" in r]
    grown = max(rows[-1]["grown_kb"]) / 1024 if rows else None
    return Check("resident growth of a rank, 8 ranks, after all-reduce and all-to-all of 64 MB", "8 MB",
                 "%.1f MB" % grown if rows else "-", grown <= 8 if rows else None)


def all_checks(data):
    others = ("all_gather", "reduce_scatter", "broadcast", "all_to_all", "send_recv", "barrier")
    yield from all_reduce_at_two(data)
    yield from against_best(data, "host", 2, others, 0.85, 1.15)
    for ranks in (4, 8):
        yield from against_best(data, "host", ranks, ("all_reduce",) + others, 1.0, 1.3)
        yield no_cliff(data, ranks)
    yield from between_hosts(data)
    yield from joining(data)
    yield memory(data)
