/* SPDX-License-Identifier: Apache-2.0 */
/* read_ras.c - the text of `ncclras`: which communicators have ranks at different operations, which have ranks missing. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reader.h"

struct ras_state {
    char comm[64], op[48];
    int64_t last_count, last_ranks;
    char listed[512];
    struct line at;
    bool in;
};

/* Counts are told first, ranks listed below; a group is given to the model when the next begins. */
static void give(struct model *m, struct ras_state *r)
{
    if (r->last_ranks <= 0)
        return;
    struct fact f = fact_of(F_RAS_COUNT);
    f.file = r->at.file;
    f.line = r->at.number;
    f.text = model_words(m, r->at.raw);
    f.name = model_words(m, r->comm);
    f.value = model_words(m, r->op);
    f.a = r->last_count;
    f.b = r->last_ranks;
    f.extra = model_words(m, r->listed);
    model_add(m, &f);
    r->last_ranks = 0;
    r->listed[0] = 0;
}

static void remember(struct model *m, struct ras_state *r, const struct line *l, int64_t count, int64_t ranks)
{
    give(m, r);
    r->last_count = count;
    r->last_ranks = ranks;
    r->at = *l;
    r->at.raw = model_words(m, l->raw);
}

static bool in_report(struct model *m, struct context *c, const struct line *l)
{
    struct ras_state *r = c->ras;
    const char *s = skip_blanks(l->text);
    struct span op;
    int64_t n, k, rank;
    if (scan(s, "ranks have different %w operation counts", &op)) {
        snprintf(r->op, sizeof r->op, "%.*s", (int)op.n, op.p);
        return true;
    }
    if (scan(s, "%d ranks have launched up to operation %d", &n, &k)) {
        remember(m, r, l, k, n);
        return true;
    }
    if (scan(s, "%d ranks have not launched any operations", &n)) {
        remember(m, r, l, 0, n);
        return true;
    }
    if (scan(s, "Rank %d has launched up to operation %d", &rank, &k) || scan(s, "Rank %d has not launched any operations", &rank)) {
        remember(m, r, l, has(s, "not launched") ? 0 : k, 1);
        snprintf(r->listed, sizeof r->listed, "%d", (int)rank);
        return true;
    }
    if (scan(s, "Missing communicator data from %d", &n)) {
        struct fact f = fact_at(l, F_RAS_MISSING);
        f.name = model_words(m, r->comm);
        f.b = n;
        model_add(m, &f);
        return true;
    }
    if (scan(s, "Rank %d -- GPU", &rank)) {
        size_t used = strlen(r->listed);
        if (used + 12 < sizeof r->listed)
            snprintf(r->listed + used, sizeof r->listed - used, "%s%d", used ? "," : "", (int)rank);
        return true;
    }
    return false;
}

static bool read_line(struct model *m, struct context *c, const struct line *l)
{
    const char *s = l->text;
    struct span hash;
    int64_t group, comm;
    if (*s == '#' && scan(s, "#%d-%d (%t)", &group, &comm, &hash) && (has(s, "MISMATCH") || has(s, "INCOMPLETE") || has(s, "ERROR"))) {
        if (!c->ras)
            c->ras = model_alloc(m, sizeof *c->ras);
        give(m, c->ras);
        snprintf(c->ras->comm, sizeof c->ras->comm, "%.*s", (int)hash.n, hash.p);
        c->ras->in = true;
        return true;
    }
    return c->ras && c->ras->in && in_report(m, c, l);
}

static void end(struct model *m, struct context *c, const char *file)
{
    if (c->ras) {
        give(m, c->ras);
        c->ras->in = false;
    }
}

const struct reader reader_ras = {.name = "output of ncclras", .line = read_line, .end = end};
