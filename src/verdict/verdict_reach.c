/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict_reach.c - who waits because of whom, directly or through others; and circles in which everybody waits for the next.
 */
#include "verdict/verdict_inner.h"

#include <stdlib.h>
#include <string.h>

/* ---- who waits because of whom ----------------------------------------------------------------------------------------- */

static bool any_marked(const struct judge *j, const struct group *g)
{
    for (int i = 0; i < g->nabsent; i++)
        if (j->mark[g->absent[i]])
            return true;
    return false;
}

int reach(struct judge *j, const int32_t *culprits, int n)
{
    memset(j->mark, 0, (size_t)j->size);
    for (int i = 0; i < n; i++)
        j->mark[culprits[i]] = 2;
    int found = 0;
    for (bool more = true; more;) {
        more = false;
        struct group *last = NULL; /* waits of one group often stand together: ask once */
        bool last_marked = false;
        for (uint32_t i = 0; i < j->nwaits; i++) {
            const struct wait *w = &j->waits[i];
            if (j->mark[w->rank])
                continue;
            if (!w->p2p && w->group != last) {
                last = w->group;
                last_marked = any_marked(j, last);
            }
            if (w->p2p ? w->on >= 0 && j->mark[w->on] : last_marked) {
                j->mark[w->rank] = 1;
                found++;
                more = true;
                last = NULL;
            }
        }
    }
    return found;
}

/* The first rank of `in` that an old wait leads to; -1. */
static int leads_into(const struct judge *j, const struct wait *w, const unsigned char *in)
{
    if (age_of(j, w->since_ns) < j->stall_ns)
        return -1;
    if (w->p2p)
        return w->on >= 0 && in[w->on] ? w->on : -1;
    for (int i = 0; i < w->group->nabsent; i++)
        if (in[w->group->absent[i]])
            return w->group->absent[i];
    return -1;
}

/* Ranks all of whose ways end leave; who remains waits, at last, in a circle. */
static void keep_circular(struct judge *j, unsigned char *in)
{
    for (bool more = true; more;) {
        more = false;
        for (int r = 0; r < j->size; r++) {
            bool leads = false;
            for (uint32_t i = j->first_wait[r]; in[r] && !leads && i < j->first_wait[r + 1]; i++)
                leads = leads_into(j, &j->waits[i], in) >= 0;
            if (in[r] && !leads) {
                in[r] = 0;
                more = true;
            }
        }
    }
}

/* The shortest way from `start` back to itself among the ranks in `in`, breadth first. by[r]: the wait that led to r. */
static int shortest(struct judge *j, int start, const unsigned char *in, struct wait **by, int *queue, struct wait **path)
{
    int head = 0, tail = 0;
    queue[tail++] = start;
    while (head < tail) {
        int r = queue[head++];
        for (uint32_t i = j->first_wait[r]; i < j->first_wait[r + 1]; i++) {
            struct wait *w = &j->waits[i];
            int n = leads_into(j, w, in) < 0 ? 0 : w->p2p ? 1 : w->group->nabsent;
            for (int k = 0; k < n; k++) {
                int to = w->p2p ? w->on : w->group->absent[k];
                if (!in[to] || by[to])
                    continue;
                by[to] = w;
                if (to != start)
                    queue[tail++] = to;
                else
                    head = tail;
            }
        }
    }
    int n = 0;
    for (int at = start; by[at] && (n == 0 || at != start); at = by[at]->rank)
        path[n++] = by[at];
    for (int i = 0; i < n / 2; i++) { /* from start onwards */
        struct wait *keep = path[i];
        path[i] = path[n - 1 - i];
        path[n - 1 - i] = keep;
    }
    return n;
}

/* A rank that remains may only lead to a circle: after as many steps as there are ranks we are in it. */
static int walk_onto(const struct judge *j, int r, const unsigned char *in)
{
    for (int steps = 0; steps < j->size; steps++) {
        int next = -1;
        for (uint32_t i = j->first_wait[r]; next < 0 && i < j->first_wait[r + 1]; i++)
            next = leads_into(j, &j->waits[i], in);
        r = next < 0 ? r : next;
    }
    return r;
}

uno_err find_cycle(struct judge *j, const bool *used, struct wait ***cycle, int *n)
{
    size_t size = (size_t)j->size;
    unsigned char *in = mem_array(size, 1);
    struct wait **by = mem_array(size, sizeof *by), **path = mem_array(size + 1, sizeof *path);
    int *queue = mem_array(size + 1, sizeof *queue);
    *n = 0;
    uno_err err = in && by && path && queue ? UNO_OK : UNO_ERR_MEMORY;
    if (err == UNO_OK) {
        for (int r = 0; r < j->size; r++)
            in[r] = j->first_wait[r] < j->first_wait[r + 1] && !used[r];
        keep_circular(j, in);
        for (int r = 0; r < j->size && *n == 0; r++)
            if (in[r])
                *n = shortest(j, walk_onto(j, r, in), in, by, queue, path);
    }
    free(in);
    free(by);
    free(queue);
    if (*n == 0) {
        free(path);
        path = NULL;
    }
    *cycle = path;
    return err;
}
