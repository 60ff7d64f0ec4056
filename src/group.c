/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group.c - calls between uno_group_start and uno_group_end are noted by the calling thread, then issued in order and moved
 * together, over all communicators and ranks that the thread drives. Joinings of several ranks run in threads of their own.
 */
#include "comm.h"

#include <stdlib.h>
#include <string.h>

struct join_note { struct group_join join; bool config_given; char name[64]; uno_err err; char text[ERR_TEXT_BYTES]; struct join_note *next; pthread_t thread; bool started; };

/* Most groups are a few sends and receives: these need no block of memory each. */
static _Thread_local struct group_call room[8];

static _Thread_local struct {
    int depth;
    unsigned used; /* of room */
    struct op *first, **last;
    struct join_note *joins, **last_join;
} group;

_Atomic int groups_open;

bool group_open_here(void)
{
    return group.depth > 0;
}

uno_err uno_group_start(void)
{
    if (group.depth++ == 0) {
        atomic_fetch_add_explicit(&groups_open, 1, memory_order_relaxed);
        group.first = NULL;
        group.last = &group.first;
        group.used = 0;
        group.joins = NULL;
        group.last_join = &group.joins;
    }
    return UNO_OK;
}

struct group_call *group_room(void)
{
    return group.used < ARRAY_LEN(room) ? &room[group.used++] : NULL;
}

void group_note(struct op *op)
{
    op->next_in_group = NULL;
    *group.last = op;
    group.last = &op->next_in_group;
}

bool group_holds(const uno_comm *comm)
{
    for (const struct op *op = group.depth > 0 ? group.first : NULL; op; op = op->next_in_group)
        if (op->comm == comm)
            return true;
    return false;
}

uno_err group_note_join(const struct group_join *join)
{
    struct join_note *n = mem_zalloc(sizeof *n);
    if (!n)
        return UNO_ERR_MEMORY;
    n->join = *join;
    if (join->config.name) {
        snprintf(n->name, sizeof n->name, "%s", join->config.name);
        n->join.config.name = n->name;
    }
    *group.last_join = n;
    group.last_join = &n->next;
    return UNO_OK;
}

static void *join_main(void *arg)
{
    struct join_note *n = arg;
    n->err = join_id(n->join.comm, n->join.nranks, &n->join.id, n->join.rank, &n->join.config);
    snprintf(n->text, sizeof n->text, "%s", err_text());
    return NULL;
}

static uno_err run_joins(struct join_note *joins)
{
    uno_err first = UNO_OK;
    char text[ERR_TEXT_BYTES] = "";
    for (struct join_note *n = joins; n; n = n->next)
        if (!(n->started = pthread_create(&n->thread, NULL, join_main, n) == 0)) {
            n->err = UNO_ERR_SYSTEM;
            snprintf(n->text, sizeof n->text, "uno_group_end: no thread to join rank %d", n->join.rank);
        }
    while (joins) {
        struct join_note *n = joins;
        joins = n->next;
        if (n->started)
            pthread_join(n->thread, NULL);
        if (n->err != UNO_OK && first == UNO_OK) {
            first = n->err;
            snprintf(text, sizeof text, "%s", n->text);
        }
        free(n);
    }
    return first == UNO_OK ? UNO_OK : err_set(first, "%s", text);
}

/* Issue everything in order; keep the synchronous ones in a list to wait for. */
static struct op *issue_all(struct op *first, uno_err *err)
{
    static _Atomic uint64_t groups; /* relaxed: numbers need only differ */
    uint64_t number = atomic_fetch_add_explicit(&groups, 1, memory_order_relaxed) + 1;
    struct op *waiting = NULL, **last = &waiting;
    while (first) {
        struct op *op = first;
        first = op->next_in_group;
        op->next_in_group = NULL;
        op->group = number;
        op->group_waits = op->stream == NULL;
        bool waits = op->group_waits;
        uno_err e = engine_queue(op);
        if (e != UNO_OK) {
            e = engine_not_issued(op->comm, op_word(op), e);
            comm_keep_error(op->comm);
            *err = *err == UNO_OK ? e : *err;
            op_free(op);
        } else if (waits) {
            *last = op;
            last = &op->next_in_group;
        } else {
            engine_kick();
        }
    }
    return waiting;
}

uno_err uno_group_end(void)
{
    if (group.depth == 0)
        return err_set(UNO_ERR_USAGE, "uno_group_end without uno_group_start");
    if (--group.depth > 0)
        return UNO_OK;
    atomic_fetch_sub_explicit(&groups_open, 1, memory_order_relaxed);
    struct op *first = group.first;
    struct join_note *joins = group.joins;
    group.first = NULL;
    group.joins = NULL;
    if (joins && first) {
        while (first) {
            struct op *op = first;
            first = op->next_in_group;
            op_free(op);
        }
        while (joins) {
            struct join_note *n = joins;
            joins = n->next;
            free(n);
        }
        return err_set(UNO_ERR_USAGE, "a group holds either joinings or operations, not both; nothing was done");
    }
    if (joins)
        return run_joins(joins);
    uno_err err = UNO_OK;
    char text[ERR_TEXT_BYTES] = "";
    struct op *waiting = first && engine_group_p2p(first) ? first : issue_all(first, &err);
    if (err != UNO_OK)
        snprintf(text, sizeof text, "%s", err_text());
    engine_wait_group(waiting);
    while (waiting) {
        struct op *op = waiting;
        waiting = op->next_in_group;
        uno_err e = op->err;
        if (e != UNO_OK && err == UNO_OK) {
            err = e;
            snprintf(text, sizeof text, "%s", op->text ? op->text : "no memory for the sentence");
        }
        if (e != UNO_OK) {
            pthread_mutex_lock(&op->comm->fail_lock);
            snprintf(op->comm->last_error, sizeof op->comm->last_error, "%s", op->text ? op->text : "no memory for the sentence");
            pthread_mutex_unlock(&op->comm->fail_lock);
        }
        op_free(op);
    }
    return err == UNO_OK ? UNO_OK : err_set(err, "%s", text);
}
