# SPDX-License-Identifier: Apache-2.0
"""What is measured: a cell is a collective, a size, a number of ranks, where they are, and the kind of buffers."""
import collections

COLLS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send_recv", "barrier")
SIZES = (8, 64, 512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 512 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20)
QUICK_SIZES = (8, 64 << 10, 4 << 20)
IN_BLOCKS = ("all_gather", "reduce_scatter", "all_to_all")

# where: "host", or "2 hosts"; kind: "out of place", "in place", "lent" (uno_mem_alloc)
Cell = collections.namedtuple("Cell", "where ranks coll kind bytes")


def smallest(coll, ranks, size_bytes):
    """A block holds at least one float32."""
    return max(size_bytes, 4 * ranks) if coll in IN_BLOCKS else size_bytes


def cells_of(where, ranks, sizes, quick):
    found = []
    for coll in COLLS:
        if coll == "barrier":
            found.append(Cell(where, ranks, coll, "out of place", 0))
            continue
        for size_bytes in sorted({smallest(coll, ranks, s) for s in sizes}):
            found.append(Cell(where, ranks, coll, "out of place", size_bytes))
            if coll == "all_reduce" and ranks == 2 and where == "host":
                found.append(Cell(where, ranks, coll, "in place", size_bytes))
                if size_bytes >= 64 << 10:
                    found.append(Cell(where, ranks, coll, "lent", size_bytes))
    return found


def words(n):
    for unit, shift in (("GB", 30), ("MB", 20), ("KB", 10)):
        if n >= 1 << shift:
            return "%g %s" % (n / (1 << shift), unit)
    return "%d B" % n


def time_words(seconds):
    us = seconds * 1e6
    if us < 10:
        return "%.2f us" % us
    if us < 1000:
        return "%.1f us" % us
    return "%.2f ms" % (us / 1e3) if us < 1e6 else "%.2f s" % (us / 1e6)
