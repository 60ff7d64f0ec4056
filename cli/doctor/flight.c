/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flight.c - PyTorch's flight-recorder dumps, versions 2.0 to 2.9: groups, the last operations of a rank, how far it came. The rank is in
 * the dump (newer) or in the file's name; a file that is missing is for the rules to notice.
 */
#include "flight.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "query.h"
#include "scan.h"

enum { GROUPS = 4096, COMPLETED_KEPT = 32, OPEN_KEPT = 256 }; /* of a rank: what is not finished matters, and a little of what was */

bool flight_looks(const json_t *root)
{
    return json_is_object(root) && json_is_array(json_object_get(root, "entries")) && (json_object_get(root, "pg_config") || json_object_get(root, "version"));
}

static const char *text_of(json_t *v)
{
    const char *s = json_string_value(v);
    return s ? s : "";
}

/* The number after "rank", else the last number of the file's name without its ending. */
static int rank_of_name(const char *file)
{
    const char *base = strrchr(file, '/');
    base = base ? base + 1 : file;
    int rank = NOBODY;
    for (const char *p = base; (p = strcasestr(p, "rank"));) {
        p += 4;
        p += strspn(p, "_.-=");
        if (isdigit((unsigned char)*p))
            rank = atoi(p);
    }
    if (rank != NOBODY)
        return rank;
    const char *end = strrchr(base, '.');
    end = end && !isdigit((unsigned char)end[1]) ? end : base + strlen(base);
    while (end > base && isdigit((unsigned char)end[-1]))
        end--;
    return isdigit((unsigned char)*end) ? atoi(end) : NOBODY;
}

/* "[0, 1, 2]" or a list -> "0-2" */
static const char *rank_list(struct model *m, json_t *v)
{
    struct ranks r = {0};
    char *list = NULL;
    size_t bytes = 0;
    FILE *f = json_is_array(v) ? open_memstream(&list, &bytes) : NULL;
    for (size_t i = 0; f && i < json_array_size(v); i++)
        fprintf(f, "%lld,", (long long)json_integer_value(json_array_get(v, i)));
    if (f)
        fclose(f);
    ranks_add_list(m, &r, list ? list : text_of(v));
    free(list);
    return ranks_list(m, &r);
}

struct dump {
    struct model *m;
    const char *file;
    int rank;
    const char *names[GROUPS]; /* of groups, by the dump's own numbers of them */
    bool told;                 /* its list of groups says who they are */
    int64_t taken_ns;          /* when our own tool looked, 0 = PyTorch's recorder, which writes when something stands */
    int64_t ended[GROUPS];     /* last operation that ended there, NOBODY = not said */
};

static struct fact dump_fact(const struct dump *d, enum fact_kind kind)
{
    struct fact f = fact_of(kind);
    f.file = d->file;
    f.rank = d->rank;
    return f;
}

/* ranks: "" where they are not said. */
static void add_group(struct dump *d, const char *name, const char *words, const char *ranks)
{
    struct fact f = dump_fact(d, F_GROUP);
    f.rank = NOBODY; /* all members say the same */
    f.name = model_words(d->m, name);
    f.extra = model_words(d->m, words);
    f.value = ranks;
    f.text = model_say(d->m, *ranks ? "group %s (%s): ranks %s" : "group %s (%s)%s", f.name, f.extra, f.value);
    model_add(d->m, &f);
}

static void take_groups(struct dump *d, json_t *root)
{
    const char *key;
    json_t *v;
    json_t *groups = json_object_get(root, "pg_config");
    if (!json_is_object(groups))
        return;
    json_object_foreach(groups, key, v) {
        if (!json_is_object(v))
            continue;
        const char *name = text_of(json_object_get(v, "name")), *words = text_of(json_object_get(v, "desc"));
        if (!*name && !*key) /* without NCCL there is one, and it has no name */
            continue;
        d->told = true;
        add_group(d, *name ? name : key, words, rank_list(d->m, json_object_get(v, "ranks")));
    }
}

/* The frame of the program itself: the first that is not of PyTorch. */
static const char *call_site(struct dump *d, json_t *entry)
{
    json_t *frames = json_object_get(entry, "frames"), *frame;
    size_t i;
    if (!json_is_array(frames))
        return "";
    json_array_foreach(frames, i, frame) {
        const char *file = text_of(json_object_get(frame, "filename")), *name = text_of(json_object_get(frame, "name"));
        if (!*file && *name) /* a program without lines: its symbol */
            return model_words(d->m, name);
        if (!*file || strstr(file, "site-packages") || strstr(file, "torch/distributed"))
            continue;
        const char *base = strrchr(file, '/');
        return model_say(d->m, "%s in %s:%lld", name, base ? base + 1 : file, (long long)json_integer_value(json_object_get(frame, "line")));
    }
    return "";
}

/* [[2048, 1, 5120], [3]] -> elements of all, and the words of it */
static int64_t elements(json_t *sizes, char *words, size_t bytes)
{
    int64_t sum = 0;
    size_t used = 0;
    words[0] = 0;
    for (size_t i = 0; i < json_array_size(sizes); i++) {
        json_t *dims = json_array_get(sizes, i);
        int64_t product = 1;
        for (size_t k = 0; k < json_array_size(dims); k++) {
            int64_t v = json_integer_value(json_array_get(dims, k));
            product = v <= 0 ? 0 : product > INT64_MAX / v ? INT64_MAX : product * v;
            if (used + 24 < bytes)
                used += (size_t)snprintf(words + used, bytes - used, "%s%lld", k ? "x" : i ? "+" : "", (long long)v);
        }
        sum += sum > INT64_MAX - product ? 0 : product;
    }
    return sum;
}

/* PyTorch's own JSON has numbers as text in places. */
static int64_t number_at(json_t *entry, const char *key, int64_t otherwise)
{
    json_t *v = json_object_get(entry, key);
    char *end;
    long long n = json_is_string(v) ? strtoll(json_string_value(v), &end, 10) : 0;
    if (json_is_string(v))
        return end != json_string_value(v) ? n : otherwise;
    return json_is_integer(v) ? json_integer_value(v) : otherwise;
}

/* Gloo's recorder never sees an operation begin or end: it stays "scheduled", and is retired when it is waited for. Elsewhere, retired and not completed
 * is what failed or timed out. */
static bool retired(const struct dump *d, json_t *entry)
{
    int64_t id = number_at(entry, "pg_id", NOBODY), number = number_at(entry, "collective_seq_id", 0);
    if (!json_is_true(json_object_get(entry, "retired")) || !begins(text_of(json_object_get(entry, "profiling_name")), "gloo:") || strcmp(text_of(json_object_get(entry, "state")), "scheduled") != 0)
        return false;
    return json_is_true(json_object_get(entry, "is_p2p")) || id < 0 || id >= GROUPS || d->ended[id] == NOBODY || number <= d->ended[id];
}

static int state_of(const struct dump *d, json_t *entry)
{
    const char *state = text_of(json_object_get(entry, "state"));
    if (strcmp(state, "completed") == 0 || number_at(entry, "time_discovered_completed_ns", 0) > 0 || retired(d, entry))
        return 2;
    return strcmp(state, "started") == 0 || number_at(entry, "time_discovered_started_ns", 0) > 0 ? 1 : 0;
}

/* Name and description stand in a pair, in older versions the number alone. */
static const char *group_name(struct dump *d, json_t *entry)
{
    json_t *pair = json_object_get(entry, "process_group");
    int64_t id = number_at(entry, "pg_id", NOBODY);
    const char *name = json_is_array(pair) ? text_of(json_array_get(pair, 0)) : "";
    name = *name ? model_words(d->m, name) : model_say(d->m, "%lld", (long long)id);
    if (id < 0 || id >= GROUPS || d->names[id])
        return name;
    d->names[id] = name;
    if (json_is_array(pair) && *text_of(json_array_get(pair, 1)) && !d->told)
        add_group(d, name, text_of(json_array_get(pair, 1)), "");
    return name;
}

static void take_entry(struct dump *d, json_t *entry)
{
    static const char *const states[] = {"scheduled", "started", "completed"};
    char shape[160];
    struct fact f = dump_fact(d, F_OP);
    const char *op = text_of(json_object_get(entry, "profiling_name")), *colon = strchr(op, ':');
    bool p2p = json_is_true(json_object_get(entry, "is_p2p"));
    op = colon ? colon + 1 : op;
    f.name = group_name(d, entry);
    f.a = p2p ? number_at(entry, "p2p_seq_id", 0) : number_at(entry, "collective_seq_id", number_at(entry, "seq_id", 0));
    f.b = elements(json_object_get(entry, "input_sizes"), shape, sizeof shape);
    f.c = state_of(d, entry);
    f.d = p2p | (begins(text_of(json_object_get(entry, "profiling_name")), "gloo:") || begins(text_of(json_object_get(entry, "profiling_name")), "unisono:") ? 2 : 0);
    f.extra = model_words(d->m, shape);
    f.more = call_site(d, entry);
    int mine, other;
    if (sscanf(op, "%*[a-z_] %d->%d", &mine, &other) == 2 || sscanf(op, "%*[a-z_] %d<-%d", &mine, &other) == 2)
        f.peer = other;
    f.value = model_string(d->m, op, strcspn(op, " "));
    f.text = model_say(d->m, "rank %d: %s %lld of group %s, %s elements, %s%s%s", d->rank, op, (long long)f.a, f.name, shape, states[f.c], *f.more ? ", called by " : "", f.more);
    int64_t created = number_at(entry, "time_created_ns", 0), ended = number_at(entry, "time_discovered_completed_ns", 0);
    f.time_s = (double)created / 1e9;
    f.x = ended > created && created > 0 ? (double)(ended - created) / 1e9 : 0;
    model_add(d->m, &f);
}

static void know_ended(struct dump *d, json_t *root)
{
    json_t *status = json_object_get(root, "pg_status"), *v;
    const char *key;
    for (int i = 0; i < GROUPS; i++)
        d->ended[i] = NOBODY;
    json_object_foreach(status, key, v) {
        long id = strtol(key, NULL, 10);
        if (id >= 0 && id < GROUPS)
            d->ended[id] = number_at(v, "last_completed_collective", NOBODY);
    }
}

/* A job that goes on has operations open, too, and its ranks are not looked at in one moment. */
static bool just_begun(const struct dump *d, json_t *entry)
{
    return d->taken_ns && d->taken_ns - number_at(entry, "time_created_ns", 0) < 1000000000;
}

static void take_entries(struct dump *d, json_t *entries)
{
    size_t n = json_array_size(entries), open = 0;
    for (size_t i = 0; i < n; i++) {
        json_t *e = json_array_get(entries, i);
        if (!json_is_object(e))
            continue;
        (void)group_name(d, e);
        bool done = state_of(d, e) == 2;
        if ((done && n - i <= COMPLETED_KEPT) || (!done && !just_begun(d, e) && open++ < OPEN_KEPT))
            take_entry(d, e);
    }
}

/* "pg_status" counts by the dump's own numbers of groups, which entries translate. */
static void take_status(struct dump *d, json_t *root)
{
    json_t *status = json_object_get(root, "pg_status"), *v;
    json_t *groups = json_object_get(root, "pg_config");
    const char *key;
    if (!json_is_object(status))
        return;
    json_object_foreach(status, key, v) {
        long id = strtol(key, NULL, 10);
        const char *name = id >= 0 && id < GROUPS ? d->names[id] : NULL;
        if (!name && json_object_size(groups) == 1 && json_object_get(groups, key))
            name = model_words(d->m, key);
        if (!name)
            continue;
        struct fact f = dump_fact(d, F_PROGRESS);
        f.name = name;
        f.a = number_at(v, "last_enqueued_collective", NOBODY);
        f.b = number_at(v, "last_completed_collective", NOBODY);
        f.c = NOBODY;
        f.value = "dump";
        f.text = model_say(d->m, "rank %d, group %s: last enqueued %lld, last completed %lld", d->rank, name, (long long)f.a, (long long)f.b);
        model_add(d->m, &f);
    }
}

/* Our own dumps say of each process what it did, and how it ended. */
static void take_process(struct dump *d, json_t *root)
{
    json_t *process = json_object_get(root, "process");
    const char *ended = text_of(json_object_get(process, "ended"));
    if (!json_is_object(process))
        return;
    struct fact f = dump_fact(d, F_PROCESS);
    f.pid = number_at(process, "pid", NOBODY);
    f.host = model_words(d->m, text_of(json_object_get(root, "host_name")));
    f.name = model_words(d->m, text_of(json_object_get(process, "run")));
    const char *position = text_of(json_object_get(process, "position")); /* "train.py:7 in step", or "last seen at" that */
    f.value = model_words(d->m, begins(position, "last seen at ") ? position + 13 : position);
    f.text = model_say(d->m, "rank %d, pid %lld on %s: %s%s%s", d->rank, (long long)f.pid, f.host, f.name, *f.value ? ", at " : "", f.value);
    model_add(d->m, &f);
    if (strcmp(ended, "exit") != 0 && strcmp(ended, "signal") != 0)
        return;
    struct fact e = dump_fact(d, F_EXIT);
    int64_t code = number_at(process, "ended_code", 0);
    e.a = ended[0] == 's' ? -code : code;
    e.pid = f.pid;
    e.host = f.host;
    e.text = model_say(d->m, "rank %d ended: %s %lld", d->rank, ended, (long long)code);
    model_add(d->m, &e);
}

void flight_take(struct model *m, const char *file, json_t *root)
{
    struct dump *d = calloc(1, sizeof *d);
    if (!d)
        return;
    d->m = m;
    d->file = file;
    d->rank = (int)number_at(root, "rank", rank_of_name(file));
    d->taken_ns = number_at(root, "taken_ns", 0);
    json_t *entries = json_object_get(root, "entries");
    struct fact f = dump_fact(d, F_DUMP);
    f.a = (int64_t)json_array_size(entries);
    f.value = model_words(m, text_of(json_object_get(root, "version")));
    f.text = model_say(m, "flight-recorder dump of rank %d: %lld operations", d->rank, (long long)f.a);
    model_add(m, &f);
    const char *library = text_of(json_object_get(root, "nccl_version"));
    library = *library ? library : text_of(json_object_get(root, "comm_lib_version"));
    if (*library) {
        struct fact v = dump_fact(d, F_VERSION);
        v.name = "NCCL";
        v.value = model_words(m, library);
        v.host = d->rank == NOBODY ? "" : model_say(m, "rank %d", d->rank);
        v.text = model_say(m, "rank %d: NCCL %s", d->rank, library);
        model_add(m, &v);
    }
    take_process(d, root);
    take_groups(d, root);
    know_ended(d, root);
    take_entries(d, entries);
    take_status(d, root);
    free(d);
}
