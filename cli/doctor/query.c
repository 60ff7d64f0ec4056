/* SPDX-License-Identifier: Apache-2.0 */
/* query.c - see query.h. */
#include "query.h"
#include "scan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ranks_add(struct model *m, struct ranks *r, int rank)
{
    int at = r->n;
    while (at > 0 && r->v[at - 1] > rank)
        at--;
    if (rank < 0 || (at > 0 && r->v[at - 1] == rank))
        return;
    if (r->n == r->cap) {
        int cap = r->cap ? 2 * r->cap : 16;
        int *v = model_alloc(m, (size_t)cap * sizeof *v);
        if (r->n)
            memcpy(v, r->v, (size_t)r->n * sizeof *v);
        r->v = v;
        r->cap = cap;
    }
    memmove(&r->v[at + 1], &r->v[at], (size_t)(r->n - at) * sizeof *r->v);
    r->v[at] = rank;
    r->n++;
}

/* Numbers are marked first and added in their order, so that a long list that stands backwards takes no longer than another. */
void ranks_add_list(struct model *m, struct ranks *r, const char *list)
{
    enum { MOST = 1 << 17 };
    unsigned char *marked = *list ? calloc(MOST, 1) : NULL;
    long low = MOST, high = -1;
    for (const char *p = list; marked && *p;) {
        char *end;
        long from = strtol(p, &end, 10), to = from;
        if (end == p) {
            p++;
            continue;
        }
        if (*end == '-' && end[1] >= '0' && end[1] <= '9')
            to = strtol(end + 1, &end, 10);
        for (long k = from; k >= 0 && k <= to && k - from < MOST && k < MOST; k++)
            marked[k] = 1;
        low = from >= 0 && from < low ? from : low;
        high = to > high ? to : high;
        p = end;
    }
    for (long k = low; k <= high && k < MOST; k++)
        if (marked[k])
            ranks_add(m, r, (int)k);
    free(marked);
}

bool ranks_has(const struct ranks *r, int rank)
{
    int lo = 0, hi = r->n;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (r->v[mid] == rank)
            return true;
        if (r->v[mid] < rank)
            lo = mid + 1;
        else
            hi = mid;
    }
    return false;
}

const char *ranks_numbers(struct model *m, const struct ranks *r)
{
    char out[1024] = "";
    size_t used = 0;
    int parts = 0;
    const char *last = NULL;
    for (int i = 0; i < r->n;) {
        int end = i;
        while (end + 1 < r->n && r->v[end + 1] == r->v[end] + 1)
            end++;
        if (end - i < 2)
            end = i;
        char part[40];
        snprintf(part, sizeof part, end > i ? "%d-%d" : "%d", r->v[i], r->v[end]);
        if (last && used + 80 < sizeof out)
            used += (size_t)snprintf(out + used, sizeof out - used, "%s%s", parts > 1 ? ", " : "", last);
        last = model_words(m, part);
        parts++;
        i = end + 1;
    }
    if (used + 80 >= sizeof out)
        used += (size_t)snprintf(out + used, sizeof out - used, ", ...");
    if (last)
        snprintf(out + used, sizeof out - used, "%s%s", parts > 1 ? " and " : "", last);
    return model_words(m, out);
}

const char *ranks_list(struct model *m, const struct ranks *r)
{
    char *out = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&out, &bytes);
    for (int i = 0, end; f && i < r->n; i = end + 1) {
        for (end = i; end + 1 < r->n && r->v[end + 1] == r->v[end] + 1; end++)
            ;
        fprintf(f, end > i ? "%s%d-%d" : "%s%d", i ? "," : "", r->v[i], r->v[end]);
    }
    if (f)
        fclose(f);
    const char *kept = out ? model_string(m, out, bytes) : "";
    free(out);
    return kept;
}

const char *ranks_say(struct model *m, const struct ranks *r)
{
    return model_say(m, "%s %s", r->n == 1 ? "rank" : "ranks", ranks_numbers(m, r));
}

const char *ranks_verb(const struct ranks *r, const char *one, const char *several)
{
    return r->n == 1 ? one : several;
}

static const char *capital(struct model *m, const char *s)
{
    bool word = strncmp(s, "rank", 4) == 0 || strncmp(s, "process", 7) == 0 || strncmp(s, "a rank", 6) == 0 || strncmp(s, "on ", 3) == 0 || strncmp(s, "task ", 5) == 0; /* a host's name stays as it is */
    return word ? model_say(m, "%c%s", s[0] - 'a' + 'A', s + 1) : s;
}

const char *Ranks_say(struct model *m, const struct ranks *r)
{
    return capital(m, ranks_say(m, r));
}

const char *Who_says(struct model *m, const struct fact *f)
{
    return capital(m, who_says(m, f));
}

static int *slot_of(const struct names *s, const char *name)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (const char *p = name; *p; p++)
        h = (h ^ (unsigned char)*p) * 0x100000001b3u;
    unsigned count = 2 * (unsigned)s->cap, i = (unsigned)(h ^ h >> 32) & (count - 1); /* cap is a power of two */
    while (s->slots[i] && !same_text(s->v[s->slots[i] - 1], name))
        i = (i + 1) & (count - 1);
    return &s->slots[i];
}

int names_index(const struct names *s, const char *name)
{
    return s->n ? *slot_of(s, name) - 1 : -1;
}

bool names_has(const struct names *s, const char *name)
{
    return names_index(s, name) >= 0;
}

void names_add(struct model *m, struct names *s, const char *name)
{
    if (!*name || names_has(s, name))
        return;
    if (s->n == s->cap) {
        int cap = s->cap ? 2 * s->cap : 8;
        const char **v = model_alloc(m, (size_t)cap * sizeof *v);
        if (s->n)
            memcpy(v, s->v, (size_t)s->n * sizeof *v);
        s->v = v;
        s->cap = cap;
        s->slots = model_alloc(m, 2 * (size_t)cap * sizeof *s->slots);
        for (int i = 0; i < s->n; i++)
            *slot_of(s, v[i]) = i + 1;
    }
    s->v[s->n] = model_words(m, name);
    *slot_of(s, name) = ++s->n;
}

const char *names_say(struct model *m, const struct names *s)
{
    char out[2048] = "";
    size_t used = 0;
    for (int i = 0; i < s->n && used + 160 < sizeof out; i++)
        used += (size_t)snprintf(out + used, sizeof out - used, "%s%.128s", i == 0 ? "" : i == s->n - 1 ? " and " : ", ", s->v[i]);
    return model_words(m, out);
}

const char *names_list(struct model *m, const struct names *s)
{
    const char *list = "";
    for (int i = 0; i < s->n && i < 32; i++)
        list = model_say(m, "%s%s%s", list, i ? "," : "", s->v[i]);
    return list;
}

bool same_text(const char *a, const char *b)
{
    return a == b || strcmp(a, b) == 0; /* most are interned */
}

int rank_of(const struct model *m, const char *host, int64_t pid, int dev)
{
    int found = NOBODY;
    if (pid == NOBODY)
        return NOBODY;
    EACH_FACT(m, F_INIT, f)
        if (f->pid == pid && (!*host || !*f->host || same_text(f->host, host))) {
            if (dev == NOBODY || f->dev == dev)
                return f->rank;
            found = f->rank;
        }
    return found;
}

const char *who_says(struct model *m, const struct fact *f)
{
    int rank = f->rank != NOBODY ? f->rank : rank_of(m, f->host, f->pid, f->dev);
    const char *gpu = f->dev != NOBODY ? model_say(m, "GPU %d", f->dev) : "";
    bool host = *f->host && !strstr(f->host, "rank ") && !begins(f->host, "task ");
    if (begins(f->host, "task ") && rank == NOBODY && f->pid == NOBODY)
        return model_say(m, "%s%s%s", f->host, f->dev != NOBODY ? ", GPU " : "", f->dev != NOBODY ? model_say(m, "%d", f->dev) : "");
    const char *place = model_say(m, "%s%s%s", gpu, host ? *gpu ? " on " : "on " : "", host ? f->host : "");
    if (rank != NOBODY)
        return *place ? model_say(m, "rank %d (%s)", rank, place) : model_say(m, "rank %d", rank);
    if (f->pid != NOBODY)
        return model_say(m, "process %lld%s%s", (long long)f->pid, *place ? " " : "", host ? place : "");
    return *place ? place : "a rank";
}

const struct fact *first_of(const struct model *m, enum fact_kind kind)
{
    return m->first[kind];
}

bool fact_seen(const struct model *m, enum fact_kind kind)
{
    return m->first[kind] != NULL;
}

const struct fact *setting_of(const struct model *m, const char *name)
{
    EACH_FACT(m, F_SETTING, f)
        if (same_text(f->name, name))
            return f;
    EACH_FACT(m, F_SETTING_SEEN, f)
        if (same_text(f->name, name))
            return f;
    return NULL;
}

const char *bytes_say(struct model *m, int64_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    int u = 0;
    while (bytes >= 1024 && bytes % 1024 == 0 && u < 4) {
        bytes /= 1024;
        u++;
    }
    return model_say(m, "%lld %s", (long long)bytes, units[u]);
}
