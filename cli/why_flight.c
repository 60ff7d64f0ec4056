/* SPDX-License-Identifier: Apache-2.0 */
/*
 * why_flight.c - `unisono why --export-flight-recorder DIR`: what is known of each rank in the form of PyTorch's flight recorder, for tools that
 * read it: JSON, and the pickle that PyTorch's own analyser takes. Process groups are communicators.
 */
#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "output.h"
#include "why_pickle.h"

/* The words that PyTorch has for types and calls. */
static const char *torch_type(const char *type)
{
    static const char *const words[][2] = {{"int8", "Char"}, {"uint8", "Byte"}, {"int16", "Short"}, {"uint16", "UInt16"}, {"int32", "Int"},
        {"uint32", "UInt32"}, {"int64", "Long"}, {"uint64", "UInt64"}, {"bool", "Bool"}, {"float16", "Half"},
        {"bfloat16", "BFloat16"}, {"float32", "Float"}, {"float64", "Double"}, {"complex64", "ComplexFloat"},
        {"complex128", "ComplexDouble"}, {"f8e4m3", "Float8_e4m3fn"}, {"f8e5m2", "Float8_e5m2"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(type, words[i][0]) == 0)
            return words[i][1];
    return type;
}

/* Elements that go in and come out, of a call's count (as uno_all_gather and the others define it). */
static void sizes(const uno_job_comm *c, const uno_job_call *call, uint64_t *in, uint64_t *out)
{
    uint64_t n = call->count, all = n * (uint64_t)c->size;
    *in = *out = n;
    if (strcmp(call->coll, "all_gather") == 0 || (strcmp(call->coll, "gather") == 0 && call->root == c->rank))
        *out = all;
    else if (strcmp(call->coll, "reduce_scatter") == 0 || (strcmp(call->coll, "scatter") == 0 && call->root == c->rank))
        *in = all;
    else if (strcmp(call->coll, "all_to_all") == 0)
        *in = *out = all;
}

static json_int_t wall(const uno_job_rank *r, uint64_t ns)
{
    return ns ? (json_int_t)(r->taken_real_ns - r->taken_ns + ns) : 0; /* both clocks go alike; differences wrap rightly */
}

static json_t *time_or_null(const uno_job_rank *r, uint64_t ns)
{
    return ns ? json_integer(wall(r, ns)) : json_null();
}

/* json_string takes UTF-8 alone; what a program calls itself may be anything. */
static json_t *text(const char *s)
{
    json_t *v = json_string(s);
    return v ? v : json_string("?");
}

/* One dump, and whom it is for. */
struct dump {
    const uno_job *job;
    const uno_job_rank *rank;
    bool for_torch; /* its analyser takes the backends that it knows, and wants every rank's list to begin alike */
    json_t *entries;
};

/* The same on all members, and unlike that of any other group: numbers of a rank's own list would be neither. */
static const char *group_key(const uno_job_comm *c, char *key, size_t bytes)
{
    snprintf(key, bytes, "%" PRIx64 "-%u", c->id, c->epoch);
    return key;
}

/* Entries that are common to a call and a message. */
static json_t *entry_of(struct dump *d, size_t group, const char *what, const uno_job_comm *c)
{
    char key[40], name[96];
    snprintf(name, sizeof name, "%s:%s", d->for_torch ? "gloo" : "unisono", what);
    json_t *e = json_pack("{s:i, s:i, s:[s,o], s:s}", "record_id", (int)json_array_size(d->entries), "pg_id", (int)group, "process_group", group_key(c, key, sizeof key),
                          text(*c->name ? c->name : "world"), "profiling_name", name);
    json_array_append_new(d->entries, e);
    return e;
}

static void set_sizes(json_t *e, uint64_t in, uint64_t out, const char *type)
{
    json_object_set_new(e, "input_sizes", json_pack("[[I]]", (json_int_t)in));
    json_object_set_new(e, "input_dtypes", json_pack("[s]", type));
    json_object_set_new(e, "output_sizes", json_pack("[[I]]", (json_int_t)out));
    json_object_set_new(e, "output_dtypes", json_pack("[s]", type));
}

/* "train.py:212 in step()" -> file, line and name; what has no line is a name. */
static json_t *frames_of(const char *site)
{
    const char *colon = strchr(site, ':'), *in = strstr(site, " in ");
    char *end = NULL;
    long line = colon ? strtol(colon + 1, &end, 10) : 0;
    if (!*site)
        return json_array();
    if (!colon || end == colon + 1)
        return json_pack("[{s:o, s:s, s:i}]", "name", text(site), "filename", "", "line", 0);
    json_t *file = json_stringn(site, (size_t)(colon - site)), *name = in ? json_stringn(in + 4, strcspn(in + 4, "(")) : json_string("");
    return json_pack("[{s:o, s:o, s:I}]", "name", name ? name : json_string("?"), "filename", file ? file : json_string("?"), "line", (json_int_t)line);
}

/* Words of ours that PyTorch has others for. */
static const char *torch_call(const char *coll)
{
    return strcmp(coll, "all_to_all_v") == 0 ? "all_to_all" : strcmp(coll, "comm_split") == 0 ? "split" : coll;
}

static void add_call(struct dump *d, size_t group, const uno_job_comm *c, const uno_job_call *call)
{
    const uno_job_rank *r = d->rank;
    uint64_t in, out;
    bool done = strcmp(call->state, "done") == 0, runs = strcmp(call->state, "running") == 0; /* what failed is retired, and never completed */
    json_t *e = entry_of(d, group, d->for_torch ? torch_call(call->coll) : call->coll, c);
    sizes(c, call, &in, &out);
    set_sizes(e, in, out, torch_type(call->type));
    json_object_update_missing_new(e, json_pack("{s:I, s:i, s:I, s:I, s:s, s:o, s:o, s:b, s:i, s:b, s:o}", "collective_seq_id", (json_int_t)call->number, "p2p_seq_id", 0, "op_id", (json_int_t)call->number,
                                                "time_created_ns", wall(r, call->start_ns), "state", done ? "completed" : "started", "time_discovered_started_ns", time_or_null(r, call->start_ns),
                                                "time_discovered_completed_ns", time_or_null(r, done ? call->end_ns : 0), "retired", !runs, "timeout_ms", 0, "is_p2p", 0, "frames", frames_of(call->site)));
}

static void add_message(struct dump *d, size_t group, const uno_job_comm *c, const uno_job_message *m)
{
    char name[64];
    bool sends = strstr(m->kind, "send") != NULL;
    snprintf(name, sizeof name, sends ? "send %d->%d" : "recv %d<-%d", c->rank, m->peer);
    json_t *e = entry_of(d, group, name, c);
    set_sizes(e, m->bytes, m->bytes, "Byte");
    json_object_update_missing_new(e, json_pack("{s:I, s:I, s:I, s:I, s:s, s:n, s:n, s:b, s:i, s:b, s:o}", "collective_seq_id", (json_int_t)c->newest, "p2p_seq_id", (json_int_t)m->number, "op_id",
                                                (json_int_t)json_array_size(d->entries), "time_created_ns", wall(d->rank, m->since_ns), "state", m->matched ? "started" : "scheduled", "time_discovered_started_ns",
                                                "time_discovered_completed_ns", "retired", 0, "timeout_ms", 0, "is_p2p", 1, "frames", frames_of(m->site)));
}

/* The first call of a communicator that all its members still have a record of: the analyser takes a call that one of them lacks for one that was never made. */
static uint32_t first_common(const uno_job *job, const uno_job_comm *c)
{
    uint32_t first = 0;
    for (int r = 0; r < job->size; r++)
        for (size_t i = 0; i < job->ranks[r].ncomms; i++) {
            const uno_job_comm *o = &job->ranks[r].comms[i];
            if (o->id == c->id && o->epoch == c->epoch && o->ncalls && o->calls[0].number > first)
                first = o->calls[0].number;
        }
    return first;
}

static void add_entries(struct dump *d)
{
    for (size_t i = 0; i < d->rank->ncomms; i++) {
        const uno_job_comm *c = &d->rank->comms[i];
        uint32_t first = d->for_torch ? first_common(d->job, c) : 0;
        for (size_t k = 0; k < c->ncalls; k++)
            if (c->calls[k].number >= first)
                add_call(d, i, c, &c->calls[k]);
        for (size_t k = 0; k < c->nmessages; k++)
            add_message(d, i, c, &c->messages[k]);
    }
}

/* PyTorch writes the list as text. */
static json_t *members_of(const uno_job_comm *c)
{
    char *words = NULL;
    size_t bytes;
    FILE *f = open_memstream(&words, &bytes);
    if (!f)
        return json_string("[]");
    for (int m = 0; m < c->size; m++)
        fprintf(f, "%s%d", m ? ", " : "[", job_member(c, m));
    fputs("]", f);
    fclose(f);
    json_t *v = text(words ? words : "[]");
    free(words);
    return v;
}

static void add_group(json_t *groups, json_t *statuses, size_t number, const uno_job_comm *c)
{
    char key[40];
    group_key(c, key, sizeof key);
    json_object_set_new(groups, key, json_pack("{s:s, s:o, s:o}", "name", key, "desc", text(*c->name ? c->name : "world"), "ranks", members_of(c)));
    json_int_t newest = c->newest ? (json_int_t)c->newest : -1, done = newest;
    for (size_t k = c->ncalls; k-- > 0 && strcmp(c->calls[k].state, "done") != 0;)
        done = (json_int_t)c->calls[k].number - 1;
    snprintf(key, sizeof key, "%zu", number);
    json_object_set_new(statuses, key, json_pack("{s:I, s:I, s:I}", "last_enqueued_collective", newest < 0 ? -1 : newest + (json_int_t)c->nqueued, "last_started_collective", newest, "last_completed_collective", done > 0 ? done : -1));
}

/* NULL without memory. */
static json_t *dump_of(const uno_job *job, const uno_job_rank *r, bool for_torch)
{
    struct dump d = {job, r, for_torch, json_array()};
    json_t *groups = json_object(), *statuses = json_object();
    char version[48];
    snprintf(version, sizeof version, "unisono %d.%d.%d", UNO_VERSION_MAJOR, UNO_VERSION_MINOR, UNO_VERSION_PATCH);
    for (size_t i = 0; i < r->ncomms; i++)
        add_group(groups, statuses, i, &r->comms[i]);
    add_entries(&d);
    json_t *process = json_pack("{s:s, s:s, s:o, s:i, s:s, s:i}", "status", r->status, "run", r->run, "position", text(r->position), "pid", r->pid, "ended", r->ended, "ended_code", r->ended_code);
    return json_pack("{s:s, s:i, s:I, s:o, s:s, s:o, s:o, s:o, s:o}", "version", "2.4", "rank", r->rank, "taken_ns", (json_int_t)r->taken_real_ns, "host_name", text(r->host), "comm_lib_version", version, "process", process, "pg_config", groups, "pg_status", statuses, "entries",
                     d.entries);
}

static bool write_json(FILE *f, const json_t *dump)
{
    return json_dumpf(dump, f, JSON_INDENT(1) | JSON_ENSURE_ASCII) == 0 && fputc('\n', f) != EOF;
}

/* A new file in dir under a name that nobody can have prepared, and that the analyser does not take for a dump. NULL: errno says why. */
static FILE *create(const char *dir, char *path, size_t path_bytes)
{
    int fd = -1;
    errno = EEXIST;
    for (int tries = 0; tries < 16 && fd < 0 && errno == EEXIST; tries++) {
        uint64_t number;
        if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
            return NULL;
        snprintf(path, path_bytes, "%s/.unisono-%016" PRIx64, dir, number);
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    }
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (fd >= 0 && !f) {
        unlink(path);
        close(fd);
    }
    return f;
}

/* Whatever bears that name (a link, a pipe, another's file) is not opened, but replaced by the finished file. */
static int write_file(const char *command, const char *dir, const char *name, const json_t *dump, bool (*write)(FILE *, const json_t *))
{
    char path[4200], fresh[4200];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = create(dir, fresh, sizeof fresh);
    if (!f)
        return out_error(command, "%s cannot be written: %s", path, strerror(errno));
    bool good = write(f, dump);
    good = fclose(f) == 0 && good;
    if (good && rename(fresh, path) == 0)
        return CLI_GOOD;
    int why = errno;
    unlink(fresh);
    return out_error(command, "%s cannot be written: %s", path, strerror(why));
}

static int write_rank(const char *command, const uno_job *job, int r, const char *dir, bool for_torch)
{
    char name[48];
    /* The analyser takes every file for a dump that has its files' prefix in its name. */
    snprintf(name, sizeof name, for_torch ? "flight_rank_%d" : "comm_lib_trace_rank_%d.json", r);
    json_t *dump = dump_of(job, &job->ranks[r], for_torch);
    int rc = dump ? write_file(command, dir, name, dump, for_torch ? pickle_write : write_json) : out_error(command, "there is no memory");
    json_decref(dump);
    return rc;
}

int why_flight(const char *command, const uno_job *job, const char *dir, int *files)
{
    *files = 0;
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return out_error(command, "%s cannot be made: %s", dir, strerror(errno));
    for (int r = 0; r < job->size; r++) {
        if (strcmp(job->ranks[r].status, "unknown") == 0)
            continue;
        for (int for_torch = 0; for_torch < 2; for_torch++) {
            if (write_rank(command, job, r, dir, for_torch) != CLI_GOOD)
                return CLI_ERROR;
            (*files)++;
        }
    }
    return CLI_GOOD;
}
