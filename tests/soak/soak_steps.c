/* SPDX-License-Identifier: Apache-2.0 */
/*
 * soak_steps.c - the script: which step comes next, and all steps that are not messages. A step that this rank has no part in is
 * drawn all the same.
 */
#include "soak.h"

#include <stdlib.h>
#include <string.h>

#define MOST_BYTES ((size_t)32 << 20)  /* of one call's buffer */
#define MOST_BESIDE ((size_t)1 << 20)  /* when others are on the way */

/* Uniform in the exponent. */
static size_t spread(struct rng *r, int bits)
{
    size_t base = (size_t)1 << rng_below(r, (uint64_t)bits);
    return base + rng_below(r, base);
}

size_t soak_bytes(struct rng *r, size_t most)
{
    uint64_t kind = rng_below(r, 1000);
    size_t bytes = kind < 30 ? 0 : kind < 750 ? spread(r, 12) : kind < 930 ? spread(r, 18) : kind < 995 ? spread(r, 22) : spread(r, 25);
    return MIN(bytes, most);
}

struct soak_place *soak_pick(struct soak *s)
{
    struct soak_place *p;
    do
        p = &s->places[rng_below(&s->rng, SOAK_PLACES)];
    while (p->size == 0);
    return p;
}

static struct conform_case draw_case(struct rng *r, int size, size_t most)
{
    struct conform_case c;
    size_t bytes = soak_bytes(r, most);
    do {
        c.coll = (uno_coll)rng_below(r, UNO_COLL_COUNT);
        c.type = (uno_type)rng_below(r, UNO_TYPE_COUNT);
        c.op = (int)rng_below(r, UNO_OP_COUNT + 1);
        c.op = c.op == UNO_OP_COUNT ? UNO_OP_DYNAMIC : c.op;
        c.in_place = rng_below(r, 2);
        c.shared = rng_below(r, 3) == 0;
        c.root = (int)rng_below(r, (uint64_t)size);
        c.count = bytes / uno_type_bytes(c.type);
        if (conform_blocks(c.coll) || coll_is_v(c.coll))
            c.count /= (size_t)size;
        if (c.coll == UNO_BARRIER)
            c = (struct conform_case){.coll = UNO_BARRIER, .type = UNO_INT8, .op = UNO_SUM};
    } while (!conform_legal(&c));
    return c;
}

uno_err soak_collective(struct soak *s, const struct soak_place *at, size_t most)
{
    struct conform_case c = draw_case(&s->rng, at->size, most);
    if (!at->comm)
        return UNO_OK;
    conform_name(&c, s->last_case, sizeof s->last_case);
    s->operations++;
    return conform_run(at->comm, &s->rooms[0], &c, s->seed + s->step);
}

static uno_err one_collective(struct soak *s)
{
    return soak_collective(s, soak_pick(s), MOST_BYTES);
}

/* ---- several at a time ----------------------------------------------------------------------------------------------- */

struct several { struct conform_case cases[SOAK_CALLS]; struct conform_call calls[SOAK_CALLS]; int n; };

static void draw_several(struct soak *s, struct several *v, bool streams)
{
    v->n = 0;
    for (int i = (int)(2 + rng_below(&s->rng, SOAK_CALLS - 1)); i > 0; i--) {
        struct soak_place *at = soak_pick(s);
        uno_stream *stream = s->streams[rng_below(&s->rng, 2)];
        struct conform_case c = draw_case(&s->rng, at->size, MOST_BESIDE);
        if (!at->comm)
            continue;
        v->cases[v->n] = c;
        v->calls[v->n] = (struct conform_call){.comm = at->comm, .room = &s->rooms[v->n], .c = &v->cases[v->n], .seed = s->seed + s->step * 8 + (uint64_t)i,
                                               .stream = streams ? stream : NULL};
        v->n++;
    }
    s->operations += v->n;
    snprintf(s->last_case, sizeof s->last_case, "%d calls", v->n);
}

static uno_err end_several(struct soak *s, struct several *v)
{
    for (int i = 0; i < v->n; i++) {
        conform_name(&v->cases[i], s->last_case, sizeof s->last_case);
        TRY(conform_end(&v->calls[i], UNO_OK));
    }
    return UNO_OK;
}

static uno_err on_streams(struct soak *s)
{
    struct several v;
    draw_several(s, &v, true);
    bool event = rng_below(&s->rng, 2);
    for (int i = 0; i < v.n; i++) {
        TRY(conform_issue(&v.calls[i]));
        if (event && i == 0) { /* the other stream goes on after the first call */
            uno_stream *other = s->streams[v.calls[0].stream == s->streams[0]];
            TRY(uno_event_record(s->event, v.calls[0].stream));
            TRY(uno_stream_wait_event(other, s->event));
        }
    }
    uno_err err;
    while ((err = uno_stream_query(s->streams[0])) == UNO_ERR_IN_PROGRESS && rng_below(&s->own, 4))
        ;
    if (err != UNO_ERR_IN_PROGRESS)
        TRY(err);
    TRY(uno_stream_synchronize(s->streams[1]));
    TRY(uno_stream_synchronize(s->streams[0]));
    return end_several(s, &v);
}

static uno_err in_group(struct soak *s)
{
    struct several v;
    draw_several(s, &v, rng_below(&s->rng, 3) == 0);
    TRY(uno_group_start());
    for (int i = 0; i < v.n; i++)
        TRY(conform_issue(&v.calls[i]));
    TRY(uno_group_end());
    TRY(uno_stream_synchronize(s->streams[0]));
    TRY(uno_stream_synchronize(s->streams[1]));
    return end_several(s, &v);
}

/* ---- communicators come and go ----------------------------------------------------------------------------------------- */

static uno_err drop(struct soak *s, struct soak_place *p)
{
    uno_comm *comm = p->comm;
    *p = (struct soak_place){0};
    if (!comm)
        return UNO_OK;
    s->operations++;
    return uno_comm_destroy(comm);
}

static uno_err destroy_one(struct soak *s)
{
    struct soak_place *p = soak_pick(s);
    return p == &s->places[0] ? UNO_OK : drop(s, p);
}

static struct soak_place *vacant(struct soak *s)
{
    for (int i = 1; i < SOAK_PLACES; i++)
        if (s->places[i].size == 0)
            return &s->places[i];
    return NULL;
}

/* Who of `from` joins colour `color`, in the order of (key, old rank). */
static void members_of(const struct soak_place *from, const int *colors, const int *keys, int color, struct soak_place *to)
{
    int order[SOAK_RANKS];
    to->size = 0;
    for (int q = 0; q < from->size; q++) {
        if (colors[q] != color)
            continue;
        int at = to->size++;
        for (; at > 0 && keys[order[at - 1]] > keys[q]; at--)
            order[at] = order[at - 1];
        order[at] = q;
    }
    for (int i = 0; i < to->size; i++)
        to->members[i] = from->members[order[i]];
}

static uno_err look_at(const struct soak *s, const struct soak_place *p)
{
    int me = p->comm ? uno_comm_rank(p->comm) : -1;
    if (!p->comm)
        return UNO_OK;
    if (uno_comm_size(p->comm) != p->size || me < 0 || p->members[me] != s->me)
        return err_set(UNO_ERR_INTERNAL, "a new communicator has rank %d of %d here, expected another", me, uno_comm_size(p->comm));
    return UNO_OK;
}

/* Two colours and some ranks without; what does not find a place is destroyed again. */
static uno_err split(struct soak *s, const struct soak_place *from)
{
    int colors[SOAK_RANKS], keys[SOAK_RANKS];
    uno_comm *comm = NULL;
    for (int q = 0; q < from->size; q++) {
        colors[q] = (int)rng_below(&s->rng, 5) % 3 - 1;
        keys[q] = (int)rng_below(&s->rng, 4) - 2;
    }
    int here = from->comm ? uno_comm_rank(from->comm) : -1;
    if (from->comm) {
        TRY(uno_comm_split(from->comm, colors[here], keys[here], &comm, NULL));
        s->operations++;
    }
    struct soak_place parent = *from;
    for (int color = 0; color < 2; color++) {
        struct soak_place spare = {0}, *to = vacant(s);
        to = to ? to : &spare;
        members_of(&parent, colors, keys, color, to);
        to->comm = here >= 0 && colors[here] == color ? comm : NULL;
        TRY(look_at(s, to));
        if (to == &spare)
            TRY(drop(s, &spare));
    }
    return UNO_OK;
}

static uno_err make_one(struct soak *s)
{
    struct soak_place *from = soak_pick(s), *to = vacant(s);
    if (rng_below(&s->rng, 3) || !to)
        return split(s, from);
    to->size = from->size;
    memcpy(to->members, from->members, sizeof to->members);
    if (!from->comm)
        return UNO_OK;
    s->operations++;
    TRY(uno_comm_dup(from->comm, &to->comm, NULL));
    return look_at(s, to);
}

static uno_err memory_anew(struct soak *s)
{
    for (int i = 0; i < SOAK_CALLS; i++) {
        conform_room_free(&s->rooms[i]);
        s->rooms[i] = (struct conform_room){.keep = true};
    }
    return UNO_OK;
}

/* ---- the walk --------------------------------------------------------------------------------------------------------------- */

static const struct { int weight; const char *name; uno_err (*run)(struct soak *); } steps[] = {
    {60, "a collective", one_collective}, {10, "collectives on streams", on_streams}, {10, "collectives in a group", in_group},
    {10, "messages", soak_messages}, {4, "a shift in a group", soak_shift}, {3, "a split or duplicate", make_one},
    {2, "a destroy", destroy_one}, {1, "new buffers", memory_anew}};

uno_err soak_begin(struct soak *s, uno_comm *world)
{
    s->ranks = uno_comm_size(world);
    s->me = uno_comm_rank(world);
    s->places[0] = (struct soak_place){.size = s->ranks, .comm = world};
    for (int q = 0; q < s->ranks; q++)
        s->places[0].members[q] = q;
    TRY(uno_stream_create(&s->streams[0]));
    TRY(uno_stream_create(&s->streams[1]));
    TRY(uno_event_create(&s->event));
    return memory_anew(s);
}

uno_err soak_step(struct soak *s)
{
    uint64_t mixed = hash_mix(hash_mix(s->seed, 1), s->step);
    rng_seed(&s->rng, mixed);
    rng_seed(&s->own, hash_mix(mixed, 1 + (uint64_t)s->me));
    s->last_case[0] = 0;
    int total = 0;
    for (size_t i = 0; i < ARRAY_LEN(steps); i++)
        total += steps[i].weight;
    int drawn = (int)rng_below(&s->rng, (uint64_t)total);
    size_t i = 0;
    for (; drawn >= steps[i].weight; i++)
        drawn -= steps[i].weight;
    s->doing = steps[i].name;
    TRY(steps[i].run(s));
    s->step++;
    return UNO_OK;
}

uno_err soak_calm(struct soak *s)
{
    int32_t some[4096] = {0};
    s->doing = "letting go of everything";
    for (int i = 1; i < SOAK_PLACES; i++)
        TRY(drop(s, &s->places[i]));
    TRY(memory_anew(s));
    for (int i = 0; i < 2; i++) { /* everybody has freed; everybody has noticed that peers have */
        TRY(uno_barrier(s->places[0].comm, NULL));
        TRY(uno_all_reduce(some, some, ARRAY_LEN(some), UNO_INT32, UNO_MAX, s->places[0].comm, NULL));
    }
    return uno_barrier(s->places[0].comm, NULL);
}

void soak_end(struct soak *s)
{
    (void)memory_anew(s);
    (void)uno_event_destroy(s->event);
    (void)uno_stream_destroy(s->streams[0]);
    (void)uno_stream_destroy(s->streams[1]);
}
