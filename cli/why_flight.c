/* SPDX-License-Identifier: Apache-2.0 */
/*
 * why_flight.c - `unisono why --export-flight-recorder DIR`: what is known of each rank in the JSON form of PyTorch's flight recorder,
 * one file a rank, for tools that read it. Process groups are communicators.
 */
#include "job.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"
#include "output.h"

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

static unsigned long long wall(const uno_job_rank *r, uint64_t ns)
{
    return ns ? (unsigned long long)(r->taken_real_ns - r->taken_ns + ns) : 0; /* both clocks go alike; differences wrap rightly */
}

static void time_field(FILE *f, const char *key, const uno_job_rank *r, uint64_t ns)
{
    if (ns)
        fprintf(f, ", \"%s\": %llu", key, wall(r, ns));
    else
        fprintf(f, ", \"%s\": null", key);
}

static void group_fields(FILE *f, size_t group, const uno_job_comm *c)
{
    fprintf(f, "\"pg_id\": %zu, \"process_group\": [\"%zu\", ", group, group);
    out_json_string(f, c->name);
    fputs("]", f);
}

static void print_call(FILE *f, size_t record, size_t group, const uno_job_rank *r, const uno_job_comm *c, const uno_job_call *call)
{
    char name[64];
    uint64_t in, out;
    bool done = strcmp(call->state, "running") != 0;
    sizes(c, call, &in, &out);
    snprintf(name, sizeof name, "unisono:%s", call->coll);
    fprintf(f, "%s\n  {\"record_id\": %zu, ", record ? "," : "", record);
    group_fields(f, group, c);
    fprintf(f, ", \"collective_seq_id\": %u, \"p2p_seq_id\": 0, \"op_id\": %u, \"profiling_name\": ", call->number, call->number);
    out_json_string(f, name);
    fprintf(f, ", \"time_created_ns\": %llu, \"input_sizes\": [[%llu]], \"input_dtypes\": [\"%s\"], \"output_sizes\": [[%llu]], "
            "\"output_dtypes\": [\"%s\"], \"state\": \"%s\"", wall(r, call->start_ns), (unsigned long long)in, torch_type(call->type),
            (unsigned long long)out, torch_type(call->type), done ? "completed" : "started");
    time_field(f, "time_discovered_started_ns", r, call->start_ns);
    time_field(f, "time_discovered_completed_ns", r, call->end_ns);
    fprintf(f, ", \"retired\": %s, \"timeout_ms\": 0, \"is_p2p\": false", done ? "true" : "false");
    if (call->site[0]) {
        fputs(", \"frames\": [{\"name\": ", f);
        out_json_string(f, call->site);
        fputs(", \"filename\": \"\", \"line\": 0}]", f);
    }
    fputc('}', f);
}

static void print_message(FILE *f, size_t record, size_t group, const uno_job_rank *r, const uno_job_comm *c, const uno_job_message *m)
{
    char name[64];
    bool sends = strstr(m->kind, "send") != NULL;
    snprintf(name, sizeof name, sends ? "unisono:send %d->%d" : "unisono:recv %d<-%d", c->rank, m->peer);
    fprintf(f, "%s\n  {\"record_id\": %zu, ", record ? "," : "", record);
    group_fields(f, group, c);
    fprintf(f, ", \"collective_seq_id\": %u, \"p2p_seq_id\": %u, \"op_id\": %zu, \"profiling_name\": ", c->newest, m->number, record);
    out_json_string(f, name);
    fprintf(f, ", \"time_created_ns\": %llu, \"input_sizes\": [[%llu]], \"input_dtypes\": [\"Byte\"], \"output_sizes\": [[%llu]], "
            "\"output_dtypes\": [\"Byte\"], \"state\": \"%s\"", wall(r, m->since_ns), (unsigned long long)m->bytes,
            (unsigned long long)m->bytes, m->matched ? "started" : "scheduled");
    fputs(", \"time_discovered_started_ns\": null, \"time_discovered_completed_ns\": null, \"retired\": false, \"timeout_ms\": 0, "
          "\"is_p2p\": true}", f);
}

static void print_groups(FILE *f, const uno_job_rank *r)
{
    fputs(" \"pg_config\": {", f);
    for (size_t i = 0; i < r->ncomms; i++) {
        const uno_job_comm *c = &r->comms[i];
        fprintf(f, "%s\n  \"%zu\": {\"name\": \"%zu\", \"desc\": ", i ? "," : "", i, i);
        out_json_string(f, c->name);
        fputs(", \"ranks\": \"[", f);
        for (int m = 0; m < c->size; m++)
            fprintf(f, "%s%d", m ? ", " : "", job_member(c, m));
        fputs("]\"}", f);
    }
    fputs("},\n \"pg_status\": {", f);
    for (size_t i = 0; i < r->ncomms; i++) {
        const uno_job_comm *c = &r->comms[i];
        bool runs = c->ncalls && strcmp(c->calls[c->ncalls - 1].state, "running") == 0;
        long newest = c->newest ? (long)c->newest : -1, done = runs ? newest - 1 : newest;
        fprintf(f, "%s\n  \"%zu\": {\"last_enqueued_collective\": %ld, \"last_started_collective\": %ld, \"last_completed_collective\": %ld}",
                i ? "," : "", i, newest < 0 ? -1 : newest + (long)c->nqueued, newest, done > 0 ? done : -1);
    }
    fputs("},\n", f);
}

static void print_rank(FILE *f, const uno_job_rank *r)
{
    size_t record = 0;
    fprintf(f, "{\"version\": \"2.4\", \"rank\": %d, \"host_name\": ", r->rank);
    out_json_string(f, r->host);
    fputs(", \"comm_lib_version\": ", f);
    char version[48];
    snprintf(version, sizeof version, "unisono %d.%d.%d", UNO_VERSION_MAJOR, UNO_VERSION_MINOR, UNO_VERSION_PATCH);
    out_json_string(f, version);
    fputs(",\n", f);
    print_groups(f, r);
    fputs(" \"entries\": [", f);
    for (size_t i = 0; i < r->ncomms; i++) {
        for (size_t k = 0; k < r->comms[i].ncalls; k++)
            print_call(f, record++, i, r, &r->comms[i], &r->comms[i].calls[k]);
        for (size_t k = 0; k < r->comms[i].nmessages; k++)
            print_message(f, record++, i, r, &r->comms[i], &r->comms[i].messages[k]);
    }
    fputs("]}\n", f);
}

int why_flight(const char *command, const uno_job *job, const char *dir, int *files)
{
    *files = 0;
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return out_error(command, "%s cannot be made: %s", dir, strerror(errno));
    for (int r = 0; r < job->size; r++) {
        char path[4200];
        if (strcmp(job->ranks[r].status, "unknown") == 0)
            continue;
        snprintf(path, sizeof path, "%s/comm_lib_trace_rank_%d.json", dir, r);
        FILE *f = fopen(path, "w");
        if (!f)
            return out_error(command, "%s cannot be written: %s", path, strerror(errno));
        print_rank(f, &job->ranks[r]);
        bool bad = ferror(f) != 0;
        if (fclose(f) != 0 || bad)
            return out_error(command, "%s cannot be written: %s", path, strerror(errno));
        (*files)++;
    }
    return CLI_GOOD;
}
