/* SPDX-License-Identifier: Apache-2.0 */
/* read_ras.c - the text of `ncclras`: communicators whose ranks stand at different operations or in different states, processes and ranks that are missing. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "query.h"
#include "reader.h"

/* What the ranks that are listed below a line are said to be. */
enum said { SAID_NOTHING, SAID_COUNT, SAID_STATE, SAID_MISSING };

struct ras_state {
    char comm[64], op[48];
    enum said said;
    int64_t count, ranks; /* SAID_COUNT: operation that `ranks` ranks came to; SAID_STATE: how many are in it; SAID_MISSING: how many are missing */
    const char *words;    /* the state; "dead" of what is missing */
    struct ranks listed;
    struct line at;
    bool in;
};

/* Counts are told first, ranks listed below; a group is given to the model when the next begins. */
static void give(struct model *m, struct ras_state *r)
{
    enum said said = r->said;
    r->said = SAID_NOTHING;
    if (said == SAID_NOTHING || (said == SAID_MISSING && r->listed.n)) /* who is missing was given by name */
        return;
    struct fact f = fact_of(said == SAID_COUNT ? F_RAS_COUNT : said == SAID_STATE ? F_RAS_STATE : F_RAS_MISSING);
    f.file = r->at.file;
    f.line = r->at.number;
    f.text = r->at.raw;
    f.name = model_words(m, r->comm);
    f.value = said == SAID_COUNT ? model_words(m, r->op) : r->words;
    f.a = r->count;
    f.b = r->ranks;
    f.extra = ranks_list(m, &r->listed);
    model_add(m, &f);
}

static bool remember(struct model *m, struct ras_state *r, const struct line *l, enum said said, int64_t count, int64_t ranks, const char *words)
{
    give(m, r);
    r->said = said;
    r->count = count;
    r->ranks = ranks;
    r->words = words;
    r->listed = (struct ranks){0};
    r->at = *l;
    r->at.raw = model_words(m, l->raw);
    return true;
}

/* "Rank 3 -- GPU 3 managed by process 5003 on node 10.4.0.3", "Process 5003 on node 10.4.0.3 managing GPU 3" */
static bool missing_one(struct model *m, struct ras_state *r, const struct line *l, int64_t rank)
{
    struct fact f = fact_at(l, F_RAS_MISSING);
    struct span node;
    int64_t pid, gpu;
    f.name = model_words(m, r->comm);
    f.value = r->words;
    f.rank = (int)rank;
    f.pid = scan(l->text, "rocess %d on node", &pid) ? pid : NOBODY;
    f.dev = scan(l->text, "GPU %d managed", &gpu) || scan(l->text, "managing GPU(s) %d", &gpu) || scan(l->text, "managing GPU %d", &gpu) ? (int)gpu : NOBODY;
    if (scan(l->text, "on node %w", &node))
        f.host = model_string(m, node.p, node.n);
    f.b = 1;
    model_add(m, &f);
    ranks_add(m, &r->listed, rank == NOBODY ? r->listed.n : (int)rank);
    return true;
}

static bool counts(struct model *m, struct ras_state *r, const struct line *l, const char *s)
{
    struct span word;
    int64_t n, k, rank;
    if (scan(s, "ranks have different %w operation counts", &word)) {
        snprintf(r->op, sizeof r->op, "%.*s", (int)word.n, word.p);
        return true;
    }
    if (scan(s, "%d ranks have launched up to operation %d", &n, &k))
        return remember(m, r, l, SAID_COUNT, k, n, "");
    if (scan(s, "%d ranks have not launched any operations", &n))
        return remember(m, r, l, SAID_COUNT, 0, n, "");
    if (scan(s, "Rank %d has launched up to operation %d", &rank, &k) || scan(s, "Rank %d has not launched any operations", &rank)) {
        remember(m, r, l, SAID_COUNT, has(s, "not launched") ? 0 : k, 1, "");
        ranks_add(m, &r->listed, (int)rank);
        return true;
    }
    return false;
}

/* RUNNING, INIT, ...; or what a rank reported as its error. */
static bool states(struct model *m, struct ras_state *r, const struct line *l, const char *s)
{
    struct span word;
    int64_t n, rank;
    if (scan(s, "%d ranks have status %w", &n, &word))
        return remember(m, r, l, SAID_STATE, 0, n, model_string(m, word.p, word.n));
    if (scan(s, "%d ranks reported %t", &n, &word) && word.n)
        return remember(m, r, l, SAID_STATE, 1, n, model_string(m, word.p, word.n));
    bool error = scan(s, "Rank %d reported %t", &rank, &word) && word.n;
    if (error || scan(s, "Rank %d has status %w", &rank, &word)) {
        const char *dashes = error ? strstr(word.p, " -- ") : NULL;
        word.n = dashes ? (size_t)(dashes - word.p) : word.n;
        remember(m, r, l, SAID_STATE, error, 1, model_string(m, word.p, word.n));
        ranks_add(m, &r->listed, (int)rank);
        return true;
    }
    return false;
}

static bool in_report(struct model *m, struct ras_state *r, const struct line *l)
{
    const char *s = skip_blanks(l->text);
    int64_t n, rank;
    if (counts(m, r, l, s) || states(m, r, l, s))
        return true;
    if (scan(s, "Missing communicator data from %d", &n))
        return remember(m, r, l, SAID_MISSING, 0, n, "");
    if (has(s, "considered dead") && isdigit((unsigned char)*s) && scan(s, "%d job process", &n))
        return remember(m, r, l, SAID_MISSING, 0, n, "dead");
    if (r->said == SAID_MISSING && begins(s, "Process ") && has(s, " on node "))
        return missing_one(m, r, l, NOBODY);
    if (!scan(s, "Rank %d -- GPU", &rank))
        return false;
    if (r->said == SAID_MISSING)
        return missing_one(m, r, l, rank);
    ranks_add(m, &r->listed, (int)rank);
    return true;
}

/* "#0-1 (HASH) MISMATCH" begins what is said of a communicator, INCOMPLETE or DEAD alone what is said of processes. */
static bool read_line(struct model *m, struct context *c, const struct line *l)
{
    const char *s = l->text;
    struct span hash = {"", 0};
    int64_t group, comm;
    bool of_comm = *s == '#' && scan(s, "#%d-%d (%t)", &group, &comm, &hash) && (has(s, "MISMATCH") || has(s, "INCOMPLETE") || has(s, "ERROR"));
    if (of_comm || strcmp(s, "INCOMPLETE") == 0 || strcmp(s, "DEAD") == 0) {
        if (!c->ras)
            c->ras = model_alloc(m, sizeof *c->ras);
        give(m, c->ras);
        snprintf(c->ras->comm, sizeof c->ras->comm, "%.*s", (int)hash.n, hash.p);
        c->ras->in = true;
        return true;
    }
    return c->ras && c->ras->in && in_report(m, c->ras, l);
}

static void end(struct model *m, struct context *c, const char *file)
{
    if (c->ras) {
        give(m, c->ras);
        c->ras->in = false;
    }
}

const struct reader reader_ras = {.name = "output of ncclras", .line = read_line, .end = end};
