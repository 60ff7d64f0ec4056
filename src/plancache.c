/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plancache.c - request -> compiled program, kept. A communicator repeats few requests, so a small table with the oldest
 * entry thrown out is enough. The walk lock protects it. Calls that repeat the last request (comm->last) do not come here.
 */
#include "comm.h"

#include <stdlib.h>
#include <string.h>

/* The deciding side and the moving side do not see each other. */
_Static_assert(PLANNER_SMALL_BYTES(2) == NET_BLOCK_BYTES && PLANNER_LINES_BYTES == NET_ENTRY_LINES * NET_LINE_PAYLOAD &&
               PLANNER_SLOTS_FAR == NET_FAR_SLOTS, "what the planner counts on is what net has");

#define ENTRIES 128
#define WAYS 4

struct key { int coll, type, op, root; size_t count; id128 arrays; bool lent, split; };
struct entry { struct key key; struct cached cached; uint64_t used; };
struct plancache { uint64_t clock; struct entry entries[ENTRIES]; };

uno_err plancache_new(struct plancache **cache)
{
    *cache = mem_zalloc(sizeof **cache);
    return *cache ? UNO_OK : UNO_ERR_MEMORY;
}

void plancache_free(struct plancache *c)
{
    if (!c)
        return;
    for (int i = 0; i < ENTRIES; i++)
        exec_program_free(c->entries[i].cached.program);
    free(c);
}

static id128 arrays_hash(const uno_comm *comm, const struct request *req, const struct request *recv_req)
{
    id128 h = {0, 0};
    const size_t *parts[] = {req->counts, req->displs, recv_req ? recv_req->counts : NULL, recv_req ? recv_req->displs : NULL};
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        if (parts[i])
            h = hash128(parts[i], (size_t)comm->size * sizeof(size_t), h.lo ^ h.hi ^ i);
    return h;
}

static struct key key_of(const uno_comm *comm, const struct request *req, const struct request *recv_req)
{
    struct key k;
    memset(&k, 0, sizeof k); /* compared as bytes */
    k.coll = req->coll;
    k.type = req->type;
    k.op = coll_reduces(req->coll) ? MIN(req->op, UNO_OP_DYNAMIC) : 0;
    k.root = coll_has_root(req->coll) ? req->root : 0;
    k.count = req->count;
    k.split = req->split;
    k.lent = req->coll == UNO_ALL_REDUCE && comm->lent;
    if (req->counts)
        k.arrays = arrays_hash(comm, req, recv_req);
    return k;
}

/* What every rank must agree on: the call and the choice. All-to-all-v's counts differ by rank and are checked per pair. */
static uint64_t agreement(const struct key *k, const struct request *req, const struct choice *choice)
{
    uint64_t h = hash_mix((uint64_t)request_call(req), (uint64_t)k->type);
    h = hash_mix(h, (uint64_t)k->op);
    h = hash_mix(h, (uint64_t)k->root);
    h = hash_mix(h, k->count);
    if (req->coll != UNO_ALL_TO_ALL_V)
        h = hash_mix(h, k->arrays.lo ^ k->arrays.hi);
    h = hash_mix(h, choice->plan->id.lo ^ choice->plan->id.hi);
    h = hash_mix(h, (uint64_t)choice->k << 40 | (uint64_t)choice->tile_bytes << 8 | (uint64_t)choice->target);
    return hash_mix(h, (uint64_t)choice->shift);
}

static const char *why(uno_comm *comm, const struct request *req, char *text, size_t bytes)
{
    struct text t = {0};
    uno_err err = planner_explain(comm->planner, req, false, &t);
    snprintf(text, bytes, "%s", err == UNO_OK ? t.s : err_text());
    text_free(&t);
    return text;
}

/* Rank 0 speaks for all: the choice is the same everywhere. */
static void say_why(uno_comm *comm, const struct request *req)
{
    char text[900];
    if (comm->rank == 0)
        LOG(LOG_INFO, LOG_PLAN, "%s", why(comm, req, text, sizeof text)); /* explained only if somebody listens */
}

static uno_err compile(uno_comm *comm, const struct key *key, const struct request *req, const struct request *recv_req,
                       struct entry *e)
{
    struct choice choice;
    struct request plain = *req;
    plain.op = key->op;
    plain.lent = key->lent;
    TRY(planner_choose(comm->planner, &plain, &choice));
    struct exec_choice ec = {.plan = choice.plan, .small = choice.target == CHOICE_SMALL, .shift = choice.shift, .k = choice.k,
                             .tile_bytes = choice.tile_bytes, .room_bytes = choice.room_bytes, .scratch_tiles = choice.scratch_tiles};
    struct exec_program *program;
    TRY(exec_compile(&comm->env, &ec, &plain, recv_req, &program));
    exec_program_free(e->cached.program);
    size_t elem = uno_type_bytes(req->type), align = req->type == UNO_COMPLEX64 || req->type == UNO_COMPLEX128 ? elem / 2 : elem;
    *e = (struct entry){.key = *key, .cached = {.req = plain, .program = program, .run_bytes = exec_op_bytes(program),
                                                .small = exec_program_small(program), .hash = agreement(key, req, &choice),
                                                .misaligned = align - 1}};
    e->cached.fields = (struct ledger_fields){.coll = (uint8_t)request_call(req), .type = (uint8_t)req->type, .state = LEDGER_RUNNING,
                                              .target = (uint8_t)choice.target, .root = key->root, .op = key->op, .waits_for = -1,
                                              .count = req->count};
    if (!req->counts)
        e->cached.extents = call_extents(comm, req);
    say_why(comm, &plain);
    return UNO_OK;
}

uno_err plancache_get(uno_comm *comm, const struct request *req, const struct request *recv_req, const struct cached **found)
{
    struct plancache *c = comm->cache;
    struct key key = key_of(comm, req, recv_req);
    uint64_t h = hash_mix(hash_mix((uint64_t)key.coll << 32 | (uint64_t)key.type << 16 | (uint64_t)key.op, key.count),
                          (uint64_t)key.root ^ key.arrays.lo);
    struct entry *set = &c->entries[h % (ENTRIES / WAYS) * WAYS], *oldest = set, *e = NULL;
    for (int i = 0; i < WAYS && !e; i++) {
        if (set[i].cached.program && memcmp(&set[i].key, &key, sizeof key) == 0)
            e = &set[i];
        else if (set[i].used < oldest->used)
            oldest = &set[i];
    }
    comm->again.cached = NULL;
    if (!e) {
        comm->last = NULL;
        TRY(compile(comm, &key, req, recv_req, oldest));
        e = oldest;
    }
    e->used = ++c->clock;
    *found = &e->cached;
    /* No call just repeats a dynamic operation, which stands for many, each with a scalar, or one within a split. */
    comm->last = key.op >= UNO_OP_DYNAMIC || key.split ? NULL : *found;
    return UNO_OK;
}
