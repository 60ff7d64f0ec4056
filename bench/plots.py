# SPDX-License-Identifier: Apache-2.0
"""Plots as SVG, written without a library: time against size, both logarithmic, a line for each implementation."""
import html
import math
import os
import statistics

from cells import time_words, words

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 420, 70, 190, 30, 45
COLOURS = {"unisono": "#c0143c", "unisono-refused": "#e58ca0", "openmpi": "#1f77b4", "openmpi-ucx": "#6baed6",
           "mpich": "#2ca02c", "intelmpi": "#9467bd", "gloo": "#ff7f0e", "gloo-poll": "#bcbd22", "ucc": "#8c564b", "oneccl": "#17becf"}
LIMIT = "limit"


def series(data, cells):
    found = {}
    for c in cells:
        for name, values in data.times[c].items():
            found.setdefault(name, []).append((c.bytes, statistics.median(values)))
        floor = data.best_floor(c, "shared" if c.kind == "lent" else "ordinary")
        if floor:
            found.setdefault(LIMIT, []).append((c.bytes, statistics.median(floor[1])))
    return found


def ticks(low, high, base):
    first, last = math.floor(math.log(low, base)), math.ceil(math.log(high, base))
    return [base ** k for k in range(first, last + 1)]


def draw(data, cells, folder, titles):
    """Write the plot of these cells (one collective at all sizes); returns the file's name."""
    c = cells[0]
    name = "-".join([c.coll, c.where.replace(" ", ""), str(c.ranks), c.kind.replace(" ", "_")]) + ".svg"
    lines = series(data, cells)
    every = [t for points in lines.values() for _, t in points]
    sizes = [x.bytes for x in cells]
    down, up = ticks(min(every), max(every), 10)[0], ticks(min(every), max(every), 10)[-1]

    def x_of(size_bytes):
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log(size_bytes / sizes[0]) / math.log(sizes[-1] / sizes[0])

    def y_of(seconds):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * math.log(seconds / down) / math.log(up / down)

    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">' % (WIDTH, HEIGHT),
           '<rect width="100%" height="100%" fill="white"/>',
           '<text x="%d" y="18" font-size="13">%s, %d ranks, %s, %s</text>' % (
               LEFT, c.coll.replace("_", "-"), c.ranks, "one host" if c.where == "host" else c.where,
               {"lent": "memory of uno_mem_alloc"}.get(c.kind, c.kind))]
    for t in ticks(min(every), max(every), 10):
        out.append('<path d="M%d %.1fH%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%s</text>' % (
            LEFT, y_of(t), WIDTH - RIGHT, LEFT - 5, y_of(t) + 4, time_words(t).replace(".00", "").replace(".0", "")))
    for s in sizes[::2] if len(sizes) > 8 else sizes:
        out.append('<path d="M%.1f %dV%d" stroke="#ddd"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>' % (
            x_of(s), TOP, HEIGHT - BOTTOM, x_of(s), HEIGHT - BOTTOM + 16, words(s)))
    order = sorted(lines, key=lambda n: (n != "unisono", n == LIMIT, n))
    for i, n in enumerate(order):
        colour, dash = COLOURS.get(n, "#222222"), ' stroke-dasharray="5 4"' if n == LIMIT or n.startswith("raw") else ""
        path = " ".join("%s%.1f %.1f" % ("L" if k else "M", x_of(s), y_of(t)) for k, (s, t) in enumerate(lines[n]))
        wide = 2.6 if n == "unisono" else 1.4
        out.append('<path d="%s" fill="none" stroke="%s" stroke-width="%.1f"%s/>' % (path, colour, wide, dash))
        y = TOP + 14 + 17 * i
        out.append('<path d="M%d %dh22" stroke="%s" stroke-width="%.1f"%s/><text x="%d" y="%d">%s</text>' % (
            WIDTH - RIGHT + 12, y - 4, colour, wide, dash, WIDTH - RIGHT + 40, y, html.escape(titles.get(n, n))))
    out.append("</svg>")
    os.makedirs(os.path.join(folder, "plots"), exist_ok=True)
    with open(os.path.join(folder, "plots", name), "w") as f:
        f.write("\n".join(out) + "\n")
    return "plots/" + name
