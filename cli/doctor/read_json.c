/* SPDX-License-Identifier: Apache-2.0 */
/* read_json.c - JSON files: flight-recorder dumps, the status of ncclras, results of nccl-tests. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "flight.h"
#include "read_hosts.h"
#include "reader.h"

static bool sniff(const char *head, size_t bytes)
{
    size_t i = 0;
    while (i < bytes && isspace((unsigned char)head[i]))
        i++;
    if (i >= bytes || head[i] != '{')
        return false;
    for (i++; i < bytes && isspace((unsigned char)head[i]);)
        i++;
    return i < bytes && head[i] == '"';
}

/* ---- ncclras: how many ranks of a communicator have launched how many of each operation -------------------------------------------- */

struct tally {
    int64_t count, ranks;
    char listed[512];
};

static void tally_rank(struct tally *t, int *n, int64_t count, int64_t rank)
{
    int i = 0;
    while (i < *n && t[i].count != count)
        i++;
    if (i == 16)
        return;
    if (i == *n)
        t[(*n)++] = (struct tally){.count = count};
    size_t used = strlen(t[i].listed);
    t[i].ranks++;
    if (used + 24 < sizeof t[i].listed)
        snprintf(t[i].listed + used, sizeof t[i].listed - used, "%s%lld", used ? "," : "", (long long)rank);
}

static void ras_operation(struct model *m, const char *file, const char *comm, json_t *ranks, const char *op)
{
    struct tally tallies[16];
    int n = 0;
    json_t *r;
    size_t i;
    json_array_foreach(ranks, i, r)
        tally_rank(tallies, &n, json_integer_value(json_object_get(json_object_get(r, "collective_counts"), op)), json_integer_value(json_object_get(r, "rank")));
    for (int k = 0; n > 1 && k < n; k++) {
        struct fact f = fact_of(F_RAS_COUNT);
        f.file = file;
        f.name = comm;
        f.value = model_words(m, op);
        f.a = tallies[k].count;
        f.b = tallies[k].ranks;
        f.extra = model_words(m, tallies[k].listed);
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
        json_object_foreach(json_object_get(json_array_get(ranks, 0), "collective_counts"), op, v)
            ras_operation(m, file, name, ranks, op);
        json_t *missing = json_object_get(c, "missing_ranks"), *r;
        size_t k;
        json_array_foreach(missing, k, r) {
            bool dead = json_is_true(json_object_get(json_object_get(r, "status"), "considered_dead"));
            struct fact f = fact_of(F_RAS_MISSING);
            f.file = file;
            f.name = name;
            f.rank = (int)json_integer_value(json_object_get(r, "rank"));
            f.value = dead ? "dead" : "unresponsive";
            f.text = model_say(m, "rank %d: %s", f.rank, f.value);
            model_add(m, &f);
        }
    }
}

/* ---- nccl-tests: any object that has a size and a bandwidth --------------------------------------------------------------------------- */

static double real_at(json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
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
    if (!json_is_object(v))
        return;
    json_t *out = json_object_get(v, "out_of_place") ? json_object_get(v, "out_of_place") : v;
    const char *bus = json_object_get(out, "bus_bw") ? "bus_bw" : "busbw";
    if (json_object_get(v, "size") && json_object_get(out, bus)) {
        struct fact f = fact_of(F_BENCH);
        f.file = file;
        f.a = whole(real_at(v, "size"));
        f.x = real_at(out, bus);
        f.b = whole(json_object_get(out, "nwrong") ? real_at(out, "nwrong") : real_at(out, "wrong"));
        f.text = model_say(m, "%lld bytes: %.2f GB/s, %lld wrong", (long long)f.a, f.x, (long long)f.b);
        model_add(m, &f);
        return;
    }
    json_object_foreach(v, key, child)
        bench(m, file, child, depth + 1);
}

static bool read(struct model *m, const char *file, const char *data, size_t bytes, char *why, size_t why_bytes)
{
    json_error_t e;
    json_t *root = json_loadb(data, bytes, JSON_ALLOW_NUL | JSON_DISABLE_EOF_CHECK, &e);
    if (!root) {
        snprintf(why, why_bytes, "line %d: %s", e.line, e.text);
        return false;
    }
    bool known = true;
    if (flight_looks(root))
        flight_take(m, file, root);
    else if (hosts_looks(root))
        hosts_take(m, file, root);
    else if (json_is_array(json_object_get(root, "communicators")))
        ras(m, file, root);
    else {
        unsigned long before = m->kept;
        bench(m, file, root, 0);
        known = m->kept > before;
        if (!known)
            snprintf(why, why_bytes, "it is none of the kinds that are known here");
    }
    json_decref(root);
    return known;
}

const struct reader reader_json = {.name = "JSON", .sniff = sniff, .read = read};
