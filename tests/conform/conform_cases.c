/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conform_cases.c - the table: full type x operation at few sizes, every size boundary for float32 sum, a pairwise covering array
 * over everything, or the whole product.
 */
#include "conform.h"

#include <stdlib.h>

/* Bytes around every internal boundary: lines of 56, the small limits of 448, 1120 and 4096, 64-byte and page splits, tiles of 4 KB to 256 KB,
 * two slots of them, the 64 KB at which chunks become pages. */
static const size_t boundary_bytes[] = {
    0, 4, 8, 12, 52, 56, 60, 64, 112, 224, 444, 448, 452, 512, 1020, 1024, 1028, 1116, 1120, 1124, 4092, 4096, 4100, 8192, 16380, 16384, 16388, 32768,
    65532, 65536, 65540, 131072, 262140, 262144, 262148, 524288, 1048572, 1048576, 1048580, 2097152, 4194308};
static const size_t few_counts[] = {0, 1, 3, 17, 129, 1000, 20011};

bool conform_blocks(uno_coll c)
{
    return c == UNO_ALL_GATHER || c == UNO_REDUCE_SCATTER || c == UNO_ALL_TO_ALL || c == UNO_GATHER || c == UNO_SCATTER;
}

bool conform_legal(const struct conform_case *c)
{
    if (c->in_place && (c->coll == UNO_ALL_TO_ALL || c->coll == UNO_ALL_TO_ALL_V))
        return false;
    if (c->coll == UNO_BARRIER)
        return c->count == 0 && c->type == UNO_INT8 && c->op == UNO_SUM && !c->in_place;
    if (!coll_reduces(c->coll))
        return c->op == UNO_SUM;
    if (c->op == UNO_OP_DYNAMIC)
        return c->type != UNO_BOOL;
    return uno_op_check((uno_op)c->op, c->type) == UNO_OK;
}

struct table { struct conform_case *cases; size_t count, cap; uno_err err; };

static void add(struct table *t, struct conform_case c)
{
    if (t->err != UNO_OK || !conform_legal(&c))
        return;
    t->err = mem_grow(&t->cases, &t->cap, t->count + 1, sizeof *t->cases);
    if (t->err == UNO_OK)
        t->cases[t->count++] = c;
}

static int op_at(int i)
{
    return i < UNO_OP_COUNT ? i : UNO_OP_DYNAMIC;
}

/* Every type x op x collective x in place at a small, a middle and a tiled size. */
static void full_types(struct table *t, int ranks)
{
    static const size_t counts[] = {5, 300, 9001};
    for (int coll = 0; coll < UNO_COLL_COUNT; coll++)
        for (int type = 0; type < UNO_TYPE_COUNT; type++)
            for (int op = 0; op <= UNO_OP_COUNT; op++)
                for (int v = 0; v < 6; v++)
                    add(t, (struct conform_case){(uno_coll)coll, (uno_type)type, op_at(op), v & 1, (type + op + v) % 5 == 0,
                                                 coll == UNO_BARRIER ? 0 : counts[v / 2], (type + op) % ranks});
}

static void sizes(struct table *t, int ranks)
{
    for (int coll = 0; coll < UNO_COLL_COUNT; coll++)
        for (size_t i = 0; i < ARRAY_LEN(boundary_bytes); i++) {
            bool full_is_n_blocks = conform_blocks((uno_coll)coll);
            for (int v = 0; v < 4; v++) {
                struct conform_case c = {(uno_coll)coll, UNO_FLOAT32, UNO_SUM, v & 1, v & 2, boundary_bytes[i] / 4, (int)(i % (size_t)ranks)};
                /* n blocks of the largest sizes say nothing new beyond 3 ranks, and take most of the time */
                bool heavy = full_is_n_blocks && ranks > 3 && boundary_bytes[i] > 262148;
                if ((v < 2 || boundary_bytes[i] >= 4096) && !heavy)
                    add(t, c);
                if (full_is_n_blocks && v == 0) { /* the boundary in the whole buffer, not in one block */
                    c.count = boundary_bytes[i] / 4 / (size_t)ranks;
                    add(t, c);
                }
            }
        }
}

/* Random cases until every pair of values of two parameters has been seen (greedy: of 20 tries the one with most new pairs). */
#define PARAMETERS 6
struct pairwise { uint8_t seen[PARAMETERS][PARAMETERS][48][48]; };
static void values_of(const struct conform_case *c, size_t count_index, int v[PARAMETERS])
{
    v[0] = c->coll;
    v[1] = c->type;
    v[2] = c->op == UNO_OP_DYNAMIC ? UNO_OP_COUNT : c->op;
    v[3] = c->in_place;
    v[4] = c->shared;
    v[5] = (int)count_index;
}
static int new_pairs(struct pairwise *p, const int v[PARAMETERS], bool mark)
{
    int fresh = 0;
    for (int a = 0; a < PARAMETERS; a++)
        for (int b = a + 1; b < PARAMETERS; b++) {
            fresh += !p->seen[a][b][v[a]][v[b]];
            if (mark)
                p->seen[a][b][v[a]][v[b]] = 1;
        }
    return fresh;
}
static void pairwise(struct table *t, int ranks, uint64_t seed)
{
    struct pairwise *p = mem_zalloc(sizeof *p);
    struct rng rng;
    rng_seed(&rng, seed);
    if (!p) {
        t->err = UNO_ERR_MEMORY;
        return;
    }
    for (int barren = 0; barren < 200 && t->err == UNO_OK;) {
        struct conform_case best = {0};
        int best_v[PARAMETERS] = {0}, best_new = 0;
        for (int i = 0; i < 20; i++) {
            size_t ci = rng_below(&rng, ARRAY_LEN(few_counts));
            struct conform_case c = {(uno_coll)rng_below(&rng, UNO_COLL_COUNT), (uno_type)rng_below(&rng, UNO_TYPE_COUNT),
                                     op_at((int)rng_below(&rng, UNO_OP_COUNT + 1)), rng_below(&rng, 2), rng_below(&rng, 2),
                                     few_counts[ci], (int)rng_below(&rng, (uint64_t)ranks)};
            int v[PARAMETERS];
            values_of(&c, ci, v);
            int fresh = conform_legal(&c) ? new_pairs(p, v, false) : 0;
            if (fresh > best_new) {
                best = c;
                best_new = fresh;
                for (int k = 0; k < PARAMETERS; k++)
                    best_v[k] = v[k];
            }
        }
        if (best_new == 0) {
            barren++;
            continue;
        }
        new_pairs(p, best_v, true);
        add(t, best);
    }
    free(p);
}

/* Every size of one collective, type and operation. They end where no boundary is left, at 1 MB, for n blocks on many ranks at
 * 256 KB; `sizes` goes further. Memory of uno_mem_alloc only from where it is lent on. */
static void every_size(struct table *t, int ranks, struct conform_case c)
{
    size_t e = uno_type_bytes(c.type), most = conform_blocks(c.coll) && ranks > 3 ? 262148 : 1048580;
    for (size_t i = 0; i < ARRAY_LEN(boundary_bytes) && boundary_bytes[i] <= most; i++) {
        if (i > 0 && boundary_bytes[i] / e == c.count)
            continue;
        c.count = boundary_bytes[i] / e;
        c.root = (int)(i % (size_t)ranks);
        for (int v = 0; v < (boundary_bytes[i] < 4096 ? 2 : 4); v++) {
            c.in_place = v & 1;
            c.shared = v & 2;
            add(t, c);
        }
    }
}

static void everything(struct table *t, int ranks)
{
    for (int coll = 0; coll < UNO_COLL_COUNT; coll++)
        for (int type = 0; type < UNO_TYPE_COUNT; type++)
            for (int op = 0; op <= UNO_OP_COUNT; op++)
                every_size(t, ranks, (struct conform_case){.coll = (uno_coll)coll, .type = (uno_type)type, .op = op_at(op)});
}

uno_err conform_cases(enum conform_set set, int ranks, uint64_t seed, struct conform_case **cases, size_t *count)
{
    struct table t = {0};
    switch (set) {
    case CONFORM_FULL_TYPES: full_types(&t, ranks); break;
    case CONFORM_PAIRWISE: pairwise(&t, ranks, seed); break;
    case CONFORM_SIZES: sizes(&t, ranks); break;
    case CONFORM_ALL: everything(&t, ranks); break;
    }
    *cases = t.cases;
    *count = t.count;
    return t.err;
}

void conform_name(const struct conform_case *c, char *buf, size_t buf_bytes)
{
    snprintf(buf, buf_bytes, "%s %s %s count %zu root %d%s%s", coll_name(c->coll), type_name(c->type), op_name(c->op), c->count,
             c->root, c->in_place ? " in place" : "", c->shared ? " shared memory" : "");
}
