/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify_race.c - no two firings touch one cell, one of them writing, unless one surely happens first. A message that
 * lends memory reads it from the sending firing until its readers' firings.
 *
 * Order is looked up in the weakest graph in which both firings happen (verify.h): lanes, waits, and messages of their
 * own class of chunks. So the work is done class by class, on the firings of that class only, with a bit matrix of who
 * comes before whom; scratch cells that hold chunks of two classes are looked at once more for each such pair. Order inside a
 * rank goes through firings of all classes: for each step that can be waited into, the last step of every other lane that
 * has finished before it (a vector clock over the lanes that are waited for).
 */
#include "verify_proof.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK_WORDS 512 /* columns of the matrix looked at together: bounds its memory, not its work */

enum access_kind { READS, WRITES, LENDS };

struct access {
    int32_t cell, node;
    int32_t reader;  /* LENDS: the node that reads the loan last */
    uint8_t kind, buf;
    bool onto_itself; /* of a copy that in place moves and scales nothing: exec skips it */
    int32_t chunk;
};

/* A scratch cell under two classes. */
struct sharing {
    int32_t low, high, cell;
};

struct races {
    struct proof *p;
    bool in_place, lent;
    /* order inside ranks */
    int32_t *column;      /* by lane: its column among the rank's lanes that are waited for, or -1 */
    int32_t *columns;     /* nranks + 1 */
    int32_t *column_lane; /* by columns[rank] + column: lane */
    int64_t *row;         /* by step: first entry of its clock in clocks, or -1: nothing can be waited into it */
    int32_t *clocks;      /* steps (index in the program) of that lane that have finished, as one more than the last */
    /* firings by class */
    int nclasses;
    int32_t *class0, *class_nodes;
    /* the group in hand */
    int32_t *nodes, *local; /* nodes by number; by node: place in `sorted` */
    int32_t *sorted;        /* nodes in topological order */
    int count;
    uint64_t *before;       /* count x words: which sorted[] come before this one, columns of one block */
    size_t before_cap;
    int words, block0;      /* columns block0 .. block0 + words * 64 */
    struct access *accesses;
    size_t accesses_cap;
    int naccesses;
    struct sharing *sharings;
    size_t sharings_cap;
    int nsharings;
};

/* ---- order inside ranks ---------------------------------------------------------------------------------- */

static void mark_waited(struct races *c, bool *waits)
{
    const struct plan_graph *g = &c->p->g;
    for (int i = 0; i < g->nlanes; i++)
        c->column[i] = -1;
    for (int r = 0; r < g->plan->nranks; r++) {
        const struct plan_prog *prog = &g->progs[r];
        int used = c->columns[r];
        for (int l = 0; l < prog->nlanes; l++)
            for (int s = prog->lanes[l].first; s < prog->lanes[l].first + prog->lanes[l].nsteps; s++)
                for (int d = 0; d < prog->steps[s].ndep; d++) {
                    int to = prog->deps[prog->steps[s].dep + d].lane, at = g->rank_lane[r] + to;
                    if (to == l)
                        continue;
                    waits[g->rank_lane[r] + l] = true;
                    if (c->column[at] < 0) {
                        c->column_lane[used] = at;
                        c->column[at] = used++ - c->columns[r];
                    }
                }
        c->columns[r + 1] = used;
    }
}

static uno_err place_rows(struct races *c, const bool *waits)
{
    const struct plan_graph *g = &c->p->g;
    int64_t used = 0;
    for (int r = 0; r < g->plan->nranks; r++)
        for (int l = 0; l < g->progs[r].nlanes; l++) {
            const struct plan_lane *lane = &g->progs[r].lanes[l];
            for (int s = lane->first; s < lane->first + lane->nsteps; s++) {
                bool has = waits[g->rank_lane[r] + l];
                c->row[g->rank_step[r] + s] = has ? used : -1;
                used += has ? c->columns[r + 1] - c->columns[r] : 0;
            }
        }
    c->clocks = mem_array((size_t)MAX(used, 1), sizeof *c->clocks);
    return c->clocks ? UNO_OK : UNO_ERR_MEMORY;
}

static void raise_clock(struct races *c, int rank, int32_t *row, int64_t from)
{
    int n = c->columns[rank + 1] - c->columns[rank];
    for (int i = 0; from >= 0 && i < n; i++)
        row[i] = MAX(row[i], c->clocks[from + i]);
}

static void fill_rows(struct races *c)
{
    const struct plan_graph *g = &c->p->g;
    for (int i = 0; i < g->nnodes; i++) {
        const struct plan_node *n = &g->nodes[c->p->order[i]];
        int rank = g->lanes[n->lane].rank, step = g->rank_step[rank] + n->step;
        if (n->i > 0 || c->row[step] < 0)
            continue;
        const struct plan_prog *prog = &g->progs[rank];
        int32_t *row = c->clocks + c->row[step];
        if (n->step > prog->lanes[g->lanes[n->lane].lane].first)
            raise_clock(c, rank, row, c->row[step - 1]);
        for (int d = 0; d < prog->steps[n->step].ndep; d++) {
            const struct plan_dep *dep = &prog->deps[prog->steps[n->step].dep + d];
            int target = prog->lanes[dep->lane].first + dep->step, column = c->column[g->rank_lane[rank] + dep->lane];
            if (column >= 0)
                row[column] = MAX(row[column], target + 1);
            raise_clock(c, rank, row, c->row[g->rank_step[rank] + target]);
        }
    }
}

static uno_err order_inside_ranks(struct races *c)
{
    const struct plan_graph *g = &c->p->g;
    bool *waits = mem_array((size_t)MAX(g->nlanes, 1), sizeof *waits);
    c->column = mem_array((size_t)MAX(g->nlanes, 1), sizeof *c->column);
    c->column_lane = mem_array((size_t)MAX(g->nlanes, 1), sizeof *c->column_lane);
    c->columns = mem_array((size_t)g->plan->nranks + 1, sizeof *c->columns);
    c->row = mem_array((size_t)MAX(g->nsteps, 1), sizeof *c->row);
    uno_err err = UNO_ERR_MEMORY;
    if (waits && c->column && c->column_lane && c->columns && c->row) {
        mark_waited(c, waits);
        err = place_rows(c, waits);
        if (err == UNO_OK)
            fill_rows(c);
    }
    free(waits);
    return err;
}

/* ---- the group in hand -------------------------------------------------------------------------------------- */

static uno_err add_access(struct races *c, struct access a)
{
    if (c->p->one_class && a.buf != PLAN_SCRATCH)
        return UNO_OK; /* shapes are followed through scratch only */
    TRY(mem_grow(&c->accesses, &c->accesses_cap, (size_t)c->naccesses + 1, sizeof a));
    c->accesses[c->naccesses++] = a;
    return UNO_OK;
}

static uno_err add_loans(struct races *c, struct access a)
{
    const struct plan_graph *g = &c->p->g;
    int m = g->nodes[a.node].out;
    const struct plan_link *link = &g->links[g->link_of[m]];
    a.kind = LENDS;
    for (int j = 0; j < link->readers; j++) {
        a.reader = g->reader_list[link->reader0 + (m - link->first) * link->readers + j];
        TRY(add_access(c, a));
    }
    return UNO_OK;
}

static uno_err add_node(struct races *c, int node)
{
    const struct plan_node *n = &c->p->g.nodes[node];
    const struct plan_step *s = plan_node_step(&c->p->g, node);
    const struct plan_op_info *op = &plan_ops[s->op];
    int rank = proof_rank(c->p, node);
    struct access src = {.node = node, .kind = READS, .buf = s->src_buf, .chunk = s->src + n->i};
    struct access dst = {.node = node, .kind = WRITES, .buf = s->dst_buf, .chunk = s->dst + n->i};
    if (op->reads_src)
        src.cell = proof_cell(c->p, rank, (enum plan_buf)src.buf, src.chunk, c->in_place);
    if (op->writes_dst)
        dst.cell = proof_cell(c->p, rank, (enum plan_buf)dst.buf, dst.chunk, c->in_place);
    src.onto_itself = dst.onto_itself = s->op == PLAN_COPY && src.cell == dst.cell && !(s->flags & PLAN_RAW_SRC);
    if (op->reads_src)
        TRY(add_access(c, src));
    if (op->writes_dst)
        TRY(add_access(c, dst));
    if (!c->lent || !op->sends)
        return UNO_OK;
    if (op->writes_dst)
        return add_loans(c, dst); /* a fused step may lend its own destination */
    return s->op == PLAN_SEND ? add_loans(c, src) : UNO_OK;
}

static int by_cell(const void *a, const void *b)
{
    const struct access *x = a, *y = b;
    if (x->cell != y->cell)
        return x->cell < y->cell ? -1 : 1;
    return (x->node > y->node) - (x->node < y->node);
}

struct place_of {
    int32_t at, node;
};

static int by_place(const void *a, const void *b)
{
    const struct place_of *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

static uno_err sort_group(struct races *c)
{
    struct place_of *places = mem_array((size_t)c->count, sizeof *places);
    if (!places)
        return UNO_ERR_MEMORY;
    for (int i = 0; i < c->count; i++)
        places[i] = (struct place_of){c->p->at[c->nodes[i]], c->nodes[i]};
    qsort(places, (size_t)c->count, sizeof *places, by_place);
    for (int i = 0; i < c->count; i++) {
        c->sorted[i] = places[i].node;
        c->local[places[i].node] = i;
    }
    free(places);
    return UNO_OK;
}

/* The last node of the group whose number is at most `node`, as its place in nodes[]; -1 if none. */
static int last_up_to(const struct races *c, int node)
{
    int low = 0, high = c->count;
    while (low < high) {
        int mid = (low + high) / 2;
        if (c->nodes[mid] <= node)
            low = mid + 1;
        else
            high = mid;
    }
    return low - 1;
}

/* node `before` (and what is before it) comes before sorted[to]. */
static void add_before(struct races *c, int to, int before)
{
    int column = c->local[before] - c->block0;
    uint64_t *row = c->before + (size_t)to * (size_t)c->words;
    const uint64_t *other = c->before + (size_t)c->local[before] * (size_t)c->words;
    bool inside = column >= 0 && column < c->words * 64;
    if (inside && (row[column / 64] >> (column % 64) & 1))
        return; /* known, with all before it */
    for (int w = 0; w < c->words; w++)
        row[w] |= other[w];
    if (inside)
        row[column / 64] |= 1ull << (column % 64);
}

static void add_all_before(struct races *c, int to)
{
    const struct plan_graph *g = &c->p->g;
    int node = c->sorted[to];
    const struct plan_node *n = &g->nodes[node];
    const struct plan_graph_lane *lane = &g->lanes[n->lane];
    int previous = last_up_to(c, node - 1);
    if (previous >= 0 && c->nodes[previous] >= lane->first)
        add_before(c, to, c->nodes[previous]);
    const struct plan_step *s = plan_node_step(g, node);
    for (int i = 0; i < s->nrecv; i++)
        add_before(c, to, g->sender[g->in_list[n->in + i]]);
    int64_t row = c->row[g->rank_step[lane->rank] + n->step];
    for (int col = 0; row >= 0 && col < c->columns[lane->rank + 1] - c->columns[lane->rank]; col++) {
        int finished = c->clocks[row + col];
        const struct plan_graph_lane *other = &g->lanes[c->column_lane[c->columns[lane->rank] + col]];
        if (finished == 0 || other == lane)
            continue;
        int last = last_up_to(c, g->step_node[g->rank_step[lane->rank] + finished] - 1);
        if (last >= 0 && c->nodes[last] >= other->first && c->nodes[last] < other->first + other->count)
            add_before(c, to, c->nodes[last]);
    }
}

/* ---- pairs ---------------------------------------------------------------------------------------------------- */

enum answer { ORDERED, UNORDERED, OTHER_BLOCK };

/* Does `a` surely come before `b`? */
static enum answer comes_before(const struct races *c, int a, int b)
{
    int from = c->local[a], to = c->local[b], column = from - c->block0;
    if (from > to)
        return UNORDERED;
    if (column < 0 || column >= c->words * 64)
        return OTHER_BLOCK;
    return c->before[(size_t)to * (size_t)c->words + (size_t)column / 64] >> (column % 64) & 1 ? ORDERED : UNORDERED;
}

static uno_err say_race(const struct races *c, const struct access *w, const struct access *other)
{
    char chunk[64], who[160], reader[160];
    int rank = proof_rank(c->p, w->node);
    proof_chunk_text(rank, (enum plan_buf)w->buf, w->chunk, chunk, sizeof chunk);
    plan_node_text(&c->p->g, other->node, who, sizeof who);
    if (other->kind == LENDS)
        return proof_refute(c->p, VERIFY_RACE, w->node,
                            "writes %s while %s may still be reading it, lent by %s: nothing orders them", chunk,
                            plan_node_text(&c->p->g, other->reader, reader, sizeof reader), who);
    /* the one that comes later in some order is the one that should have waited */
    if (other->kind == READS && c->local[other->node] > c->local[w->node])
        return proof_refute(c->p, VERIFY_RACE, other->node, "reads %s while %s may be writing it: nothing orders them", chunk,
                            plan_node_text(&c->p->g, w->node, reader, sizeof reader));
    return proof_refute(c->p, VERIFY_RACE, w->node, "writes %s while %s may %s it: nothing orders them", chunk, who,
                        other->kind == READS ? "still be reading" : "also be writing");
}

static bool pair_races(const struct races *c, const struct access *w, const struct access *other)
{
    if (w->node == other->node)
        return false;
    /* Such a copy acts only out of place, where it meets only those who use the same buffer. */
    if ((w->onto_itself || other->onto_itself) && w->buf != other->buf)
        return false;
    int wat = c->local[w->node], oat = c->local[other->node];
    if (other->kind != LENDS)
        return comes_before(c, wat < oat ? w->node : other->node, wat < oat ? other->node : w->node) == UNORDERED;
    /* a write before the loan is seen as write against the sender's own access */
    return wat > oat && comes_before(c, other->reader, w->node) == UNORDERED;
}

static uno_err check_cells(struct races *c)
{
    for (int i = 0, end; i < c->naccesses; i = end) {
        int writes = 0;
        for (end = i; end < c->naccesses && c->accesses[end].cell == c->accesses[i].cell; end++)
            writes += c->accesses[end].kind == WRITES;
        if (writes == 0)
            continue;
        for (int w = i; w < end; w++)
            for (int other = i; c->accesses[w].kind == WRITES && other < end; other++)
                if ((c->accesses[other].kind != WRITES || other > w) && pair_races(c, &c->accesses[w], &c->accesses[other]))
                    return say_race(c, &c->accesses[w], &c->accesses[other]);
    }
    return UNO_OK;
}

/* Fill the matrix, block by block, and look at all pairs whose earlier one is in the block. */
static uno_err check_group(struct races *c)
{
    if (c->naccesses == 0)
        return UNO_OK;
    TRY(sort_group(c));
    c->words = MIN((c->count + 63) / 64, BLOCK_WORDS);
    TRY(mem_grow(&c->before, &c->before_cap, (size_t)c->count * (size_t)c->words, sizeof *c->before));
    for (c->block0 = 0; c->block0 < c->count; c->block0 += c->words * 64) {
        memset(c->before, 0, (size_t)c->count * (size_t)c->words * sizeof *c->before);
        for (int i = c->block0; i < c->count; i++)
            add_all_before(c, i);
        TRY(check_cells(c));
    }
    return UNO_OK;
}

/* ---- classes ------------------------------------------------------------------------------------------------------ */

static uno_err sort_by_class(struct races *c)
{
    const struct plan_graph *g = &c->p->g;
    c->nclasses = c->p->one_class ? 1 : g->plan->coll == UNO_ALL_TO_ALL ? g->plan->parts : plan_shapes(g->plan);
    size_t n = (size_t)MAX(g->nnodes, 1);
    c->class0 = mem_array((size_t)c->nclasses + 1, sizeof *c->class0);
    c->class_nodes = mem_array(n, sizeof *c->class_nodes);
    c->nodes = mem_array(n, sizeof *c->nodes);
    c->local = mem_array(n, sizeof *c->local);
    c->sorted = mem_array(n, sizeof *c->sorted);
    int32_t *fill = mem_array((size_t)c->nclasses + 1, sizeof *fill);
    bool all = c->class0 && c->class_nodes && c->nodes && c->local && c->sorted && fill;
    for (int i = 0; all && i < g->nnodes; i++)
        if (plan_node_step(g, i)->op != PLAN_NOP)
            c->class0[proof_class(c->p, i) + 1]++;
    for (int i = 0; all && i < c->nclasses; i++) {
        c->class0[i + 1] += c->class0[i];
        fill[i] = c->class0[i];
    }
    for (int i = 0; all && i < g->nnodes; i++)
        if (plan_node_step(g, i)->op != PLAN_NOP)
            c->class_nodes[fill[proof_class(c->p, i)]++] = i;
    free(fill);
    return all ? UNO_OK : UNO_ERR_MEMORY;
}

static uno_err check_class(struct races *c, int class)
{
    c->count = c->class0[class + 1] - c->class0[class];
    memcpy(c->nodes, c->class_nodes + c->class0[class], (size_t)c->count * sizeof *c->nodes);
    c->naccesses = 0;
    for (int i = 0; i < c->count; i++)
        TRY(add_node(c, c->nodes[i]));
    if (c->naccesses > 0)
        qsort(c->accesses, (size_t)c->naccesses, sizeof *c->accesses, by_cell);
    return check_group(c);
}

/* ---- scratch cells under two classes --------------------------------------------------------------------------- */

struct use {
    int32_t cell, class;
};

static int by_use(const void *a, const void *b)
{
    const struct use *x = a, *y = b;
    if (x->cell != y->cell)
        return x->cell < y->cell ? -1 : 1;
    return (x->class > y->class) - (x->class < y->class);
}

static int by_sharing(const void *a, const void *b)
{
    const struct sharing *x = a, *y = b;
    if (x->low != y->low)
        return x->low < y->low ? -1 : 1;
    if (x->high != y->high)
        return x->high < y->high ? -1 : 1;
    return (x->cell > y->cell) - (x->cell < y->cell);
}

static uno_err find_uses(struct races *c, struct use **uses, size_t *nuses)
{
    size_t cap = 0;
    const struct plan_graph *g = &c->p->g;
    for (int i = 0; i < g->nnodes; i++) {
        const struct plan_step *s = plan_node_step(g, i);
        const struct plan_op_info *op = &plan_ops[s->op];
        int rank = proof_rank(c->p, i), class = s->op == PLAN_NOP ? 0 : proof_class(c->p, i);
        TRY(mem_grow(uses, &cap, *nuses + 2, sizeof **uses));
        if (op->reads_src && s->src_buf == PLAN_SCRATCH)
            (*uses)[(*nuses)++] = (struct use){proof_cell(c->p, rank, PLAN_SCRATCH, s->src + g->nodes[i].i, false), class};
        if ((op->writes_dst || op->reads_dst) && s->dst_buf == PLAN_SCRATCH)
            (*uses)[(*nuses)++] = (struct use){proof_cell(c->p, rank, PLAN_SCRATCH, s->dst + g->nodes[i].i, false), class};
    }
    if (*nuses > 0)
        qsort(*uses, *nuses, sizeof **uses, by_use);
    size_t kept = 0;
    for (size_t i = 0; i < *nuses; i++)
        if (i == 0 || by_use(&(*uses)[i], &(*uses)[i - 1]) != 0)
            (*uses)[kept++] = (*uses)[i];
    *nuses = kept;
    return UNO_OK;
}

static uno_err find_sharings(struct races *c, const struct use *uses, size_t nuses)
{
    for (size_t i = 0, end; i < nuses; i = end) {
        for (end = i; end < nuses && uses[end].cell == uses[i].cell; end++)
            ;
        for (size_t a = i; a < end; a++)
            for (size_t b = a + 1; b < end; b++) {
                if (c->nsharings > 50000000)
                    return err_set(UNO_ERR_UNSUPPORTED, "scratch chunks are used for too many kinds of chunks to look at");
                TRY(mem_grow(&c->sharings, &c->sharings_cap, (size_t)c->nsharings + 1, sizeof *c->sharings));
                c->sharings[c->nsharings++] = (struct sharing){uses[a].class, uses[b].class, uses[i].cell};
            }
    }
    if (c->nsharings > 1)
        qsort(c->sharings, (size_t)c->nsharings, sizeof *c->sharings, by_sharing);
    return UNO_OK;
}

static int by_node(const void *a, const void *b)
{
    const int32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Keep the accesses of the cells that the two classes share. */
static void keep_shared(struct races *c, const struct sharing *s, int n)
{
    int kept = 0, at = 0;
    for (int i = 0; i < c->naccesses; i++) {
        while (at < n && s[at].cell < c->accesses[i].cell)
            at++;
        if (at < n && s[at].cell == c->accesses[i].cell)
            c->accesses[kept++] = c->accesses[i];
    }
    c->naccesses = kept;
}

static uno_err check_two_classes(struct races *c, const struct sharing *s, int n)
{
    c->count = 0;
    for (int which = 0; which < 2; which++) {
        int class = which ? s->high : s->low;
        for (int i = c->class0[class]; i < c->class0[class + 1]; i++)
            c->nodes[c->count++] = c->class_nodes[i];
    }
    qsort(c->nodes, (size_t)c->count, sizeof *c->nodes, by_node);
    c->naccesses = 0;
    for (int i = 0; i < c->count; i++)
        TRY(add_node(c, c->nodes[i]));
    if (c->naccesses > 0)
        qsort(c->accesses, (size_t)c->naccesses, sizeof *c->accesses, by_cell);
    keep_shared(c, s, n);
    return check_group(c);
}

static uno_err check_sharings(struct races *c)
{
    struct use *uses = NULL;
    size_t nuses = 0;
    uno_err err = find_uses(c, &uses, &nuses);
    if (err == UNO_OK)
        err = find_sharings(c, uses, nuses);
    free(uses);
    for (int i = 0, end; err == UNO_OK && i < c->nsharings; i = end) {
        for (end = i; end < c->nsharings && c->sharings[end].low == c->sharings[i].low &&
                      c->sharings[end].high == c->sharings[i].high; end++)
            ;
        err = check_two_classes(c, &c->sharings[i], end - i);
    }
    return err;
}

static uno_err check_all(struct races *c)
{
    TRY(order_inside_ranks(c));
    TRY(sort_by_class(c));
    for (int class = 0; class < c->nclasses; class++)
        TRY(check_class(c, class));
    return check_sharings(c);
}

uno_err proof_races(struct proof *p, bool in_place, bool lent)
{
    struct races c = {.p = p, .in_place = in_place, .lent = lent};
    uno_err err = check_all(&c);
    void *all[] = {c.column, c.columns, c.column_lane, c.row, c.clocks, c.class0, c.class_nodes, c.nodes, c.local, c.sorted,
                   c.before, c.accesses, c.sharings};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        free(all[i]);
    return err;
}
