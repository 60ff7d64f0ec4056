/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page.h - what is inside the page that `--html` writes: its parts, and how text gets into it. Nothing in a page is fetched or run: no script, one
 * style sheet in it, and a policy that forbids both to whatever a log may carry.
 */
#ifndef UNO_DOCTOR_PAGE_H
#define UNO_DOCTOR_PAGE_H

#include <stdio.h>

#include "lanes.h"
#include "machine.h"
#include "rule.h"

/* Write markup. `markup` is ours; every %s in it is escaped, and bytes that are no UTF-8 become U+FFFD. Of the rest it knows %d, %lu, %lld and %.Nf. */
void put(FILE *f, const char *markup, ...) __attribute__((format(printf, 2, 3)));

/* At most `most` bytes of s, then "..."; never half a character. */
void put_cut(FILE *f, const char *s, size_t most);

/* A sentence in which what stands between back quotes is a command to be copied. */
void put_advice(FILE *f, const char *s);

extern const char page_style[];

/* The parts; each writes whole elements, or nothing when there is nothing to say. */
void page_ranks(FILE *f, struct judge *j);
void page_machines(FILE *f, struct model *m);
void page_links(FILE *f, struct model *m);

/* The whole page. False when it could not be written. */
bool page_write(FILE *f, struct judge *j, const struct machine *here);

/* A GPU, card or switch of a drawing of links, and a link. */
struct dot {
    const char *name;
    int node; /* NUMA node, -1 = not known */
    bool gpu, centre;
};

struct edge {
    int from, to, width; /* width: number of links, 0 = a path that is near, without a number */
    const char *words;
};

enum { DOTS = 40, EDGES = DOTS * DOTS };

struct ring {
    struct dot dots[DOTS];
    struct edge edges[EDGES];
    int dot_count, edge_count, left_out;
};

int ring_dot(struct ring *r, const char *name, int node, bool gpu);
void ring_edge(struct ring *r, int from, int to, int width, const char *words);
void ring_draw(FILE *f, const struct ring *r, const char *title);

#endif
