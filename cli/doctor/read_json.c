/* SPDX-License-Identifier: Apache-2.0 */
/* read_json.c - JSON files: flight-recorder dumps, the status of ncclras, results of nccl-tests. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flight.h"
#include "query.h"
#include "read_hosts.h"
#include "reader.h"

/* An object, or a list of them as rccl-tests writes it. */
static bool sniff(const char *head, size_t bytes)
{
    size_t i = strspn(head, " \t\r\n");
    if (head[i] == '[')
        i += 1 + strspn(head + i + 1, " \t\r\n");
    if (head[i] != '{')
        return false;
    i += 1 + strspn(head + i + 1, " \t\r\n");
    return i < bytes && head[i] == '"';
}

/* ---- ncclras: how many ranks of a communicator have launched how many of each operation -------------------------------------------- */

enum { TALLIES = 64 }; /* different counts of one operation; the lowest and the highest matter */

struct tally {
    int64_t count;
    struct ranks ranks;
};

/* In order of count; when there are too many, what is in the middle goes together with its neighbour. */
static void tally_rank(struct model *m, struct tally *t, int *n, int64_t count, int rank)
{
    int i = 0;
    while (i < *n && t[i].count < count)
        i++;
    bool there = i < *n && t[i].count == count, full = *n == TALLIES;
    if (!there && full && i == TALLIES) { /* the highest so far: the last but one is given up for it */
        for (int k = 0; k < t[TALLIES - 1].ranks.n; k++)
            ranks_add(m, &t[TALLIES - 2].ranks, t[TALLIES - 1].ranks.v[k]);
        i = TALLIES - 1;
        t[i] = (struct tally){.count = count};
    } else if (!there && full && i == 0) {
        for (int k = 0; k < t[0].ranks.n; k++)
            ranks_add(m, &t[1].ranks, t[0].ranks.v[k]);
        t[0] = (struct tally){.count = count};
    } else if (!there && !full) {
        memmove(&t[i + 1], &t[i], (size_t)(*n - i) * sizeof *t);
        t[i] = (struct tally){.count = count};
        (*n)++;
    }
    ranks_add(m, &t[i].ranks, rank);
}

static void ras_operation(struct model *m, const char *file, const char *comm, json_t *ranks, const char *op)
{
    struct tally tallies[TALLIES];
    int n = 0;
    json_t *r;
    size_t i;
    json_array_foreach(ranks, i, r)
        tally_rank(m, tallies, &n, json_integer_value(json_object_get(json_object_get(r, "collective_counts"), op)), (int)json_integer_value(json_object_get(r, "rank")));
    for (int k = 0; n > 1 && k < n; k++) {
        struct fact f = fact_of(F_RAS_COUNT);
        f.file = file;
        f.name = comm;
        f.value = model_words(m, op);
        f.a = tallies[k].count;
        f.b = tallies[k].ranks.n;
        f.extra = ranks_list(m, &tallies[k].ranks);
        f.text = model_say(m, "%lld ranks have launched up to operation %lld of %s: %s", (long long)f.b, (long long)f.a, op, f.extra);
        model_add(m, &f);
    }
}

static void ras(struct model *m, const char *file, json_t *root)
{
    json_t *comms = json_object_get(root, "communicators"), *c, *v;
    size_t i;
    const char *op;
    json_array_foreach(comms, i, c) {
        const char *hash = json_string_value(json_object_get(c, "hash"));
        const char *name = hash ? model_words(m, hash) : model_say(m, "%d", (int)i);
        json_t *ranks = json_object_get(c, "ranks");
        json_t *ops = json_object(), *one; /* that any rank has launched: one that is behind may lack some */
        size_t k;
        json_array_foreach(ranks, k, one)
            json_object_update(ops, json_object_get(one, "collective_counts"));
        json_object_foreach(ops, op, v)
            ras_operation(m, file, name, ranks, op);
        json_decref(ops);
        json_t *missing = json_object_get(c, "missing_ranks"), *r;
        json_array_foreach(missing, k, r) {
            bool dead = json_is_true(json_object_get(json_object_get(r, "status"), "considered_dead"));
            struct fact f = fact_of(F_RAS_MISSING);
            f.file = file;
            f.name = name;
            f.rank = (int)json_integer_value(json_object_get(r, "rank"));
            const char *host = json_string_value(json_object_get(r, "host"));
            f.host = host ? model_words(m, host) : "";
            f.pid = json_is_integer(json_object_get(r, "pid")) ? json_integer_value(json_object_get(r, "pid")) : NOBODY;
            f.value = dead ? "dead" : "unresponsive";
            f.text = model_say(m, "rank %d%s%s: %s", f.rank, host ? " on " : "", host ? host : "", f.value);
            model_add(m, &f);
        }
    }
}

/* ---- nccl-tests, rccl-tests: any object that has a size and a bandwidth ------------------------------------------------------------------ */

/* The first of the names (ended by NULL) that is there; a number may stand in quotes. *there: out, may be NULL. */
static double number_of(json_t *o, const char *const *names, bool *there)
{
    json_t *v = NULL;
    for (; *names && !v; names++)
        v = json_object_get(o, *names);
    if (there)
        *there = json_is_number(v) || json_is_string(v);
    return json_is_string(v) ? strtod(json_string_value(v), NULL) : json_number_value(v);
}

static const char *const bus_names[] = {"bus_bw", "busbw", "busBw", "bus_bandwidth", NULL}, *const wrong_names[] = {"nwrong", "wrong", "#wrong", "numWrong", NULL}, *const size_names[] = {"size", NULL},
                         *const in_place_names[] = {"in_place", "inPlace", "inplace", NULL};

/* Both sides may stand in one object, or each in its own with a word that says which it is. */
static bool bench_row(struct model *m, const char *file, json_t *v)
{
    bool sized, rated;
    json_t *out = json_object_get(v, "out_of_place"), *in = json_object_get(v, "in_place"), *side = json_is_object(out) ? out : v;
    struct fact f = fact_of(F_BENCH);
    f.file = file;
    f.a = whole(number_of(v, size_names, &sized));
    f.x = number_of(side, bus_names, &rated);
    if (!sized || !rated)
        return false;
    int64_t wrong = whole(number_of(side, wrong_names, NULL));
    json_t *which = json_object_get(v, "inPlace") ? json_object_get(v, "inPlace") : json_object_get(v, "inplace");
    bool only_in = json_is_true(which) || number_of(v, in_place_names + 1, NULL) > 0;
    f.b = only_in ? 0 : wrong;
    f.c = only_in ? wrong : json_is_object(in) ? whole(number_of(in, wrong_names, NULL)) : 0;
    f.text = model_say(m, "%lld bytes: %.2f GB/s, %lld wrong", (long long)f.a, f.x, (long long)wrong);
    model_add(m, &f);
    return true;
}

static void bench(struct model *m, const char *file, json_t *v, int depth)
{
    json_t *child;
    const char *key;
    size_t i;
    if (depth > 6)
        return;
    json_array_foreach(v, i, child)
        bench(m, file, child, depth + 1);
    if (!json_is_object(v) || bench_row(m, file, v))
        return;
    json_object_foreach(v, key, child)
        bench(m, file, child, depth + 1);
}

static bool take(struct model *m, const char *file, json_t *root)
{
    unsigned long before = m->kept;
    if (flight_looks(root))
        flight_take(m, file, root);
    else if (hosts_looks(root))
        hosts_take(m, file, root);
    else if (json_is_array(json_object_get(root, "communicators")))
        ras(m, file, root);
    else {
        bench(m, file, root, 0);
        return m->kept > before;
    }
    return true;
}

/* Several in one file, one after the other, as `cat` and programs that log a line each make them. */
static bool read(struct model *m, const char *file, const char *data, size_t bytes, char *why, size_t why_bytes)
{
    bool known = false;
    size_t count = 0;
    for (size_t at = 0; at < bytes; count++) {
        json_error_t e;
        json_t *root = json_loadb(data + at, bytes - at, JSON_ALLOW_NUL | JSON_DISABLE_EOF_CHECK, &e);
        if (!root && count == 0) {
            snprintf(why, why_bytes, "line %d: %s", e.line, e.text);
            return false;
        }
        if (!root) {
            model_note(m, "%s: what stands behind %zu JSON value%s was not read: %s", file, count, count == 1 ? "" : "s", e.text);
            break;
        }
        known = take(m, file, root) || known;
        json_decref(root);
        at += e.position > 0 ? (size_t)e.position : bytes;
        while (at < bytes && (isspace((unsigned char)data[at]) || data[at] == ',' || data[at] == 0))
            at++;
    }
    if (!known)
        snprintf(why, why_bytes, "it is none of the kinds that are known here");
    return known;
}

const struct reader reader_json = {.name = "JSON", .sniff = sniff, .read = read};
