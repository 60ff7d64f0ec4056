/* SPDX-License-Identifier: Apache-2.0 */
/* why_json.c - `unisono why --json`: the form that unisono-why(1) documents as stable. */
#include "job.h"

#include <string.h>

#include "output.h"

#define MOST_MESSAGES 16

static void text(const char *key, const char *value)
{
    printf(", \"%s\": ", key);
    out_json_string(stdout, value);
}

static double seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

static void print_call(const uno_job_rank *r, const uno_job_call *c)
{
    printf("{\"number\": %u", c->number);
    text("collective", c->coll);
    text("type", c->type);
    text("op", c->op);
    printf(", \"root\": %d, \"count\": %llu, \"bytes\": %llu", c->root, (unsigned long long)c->count, (unsigned long long)c->bytes);
    text("state", c->state);
    text("site", c->site);
    printf(", \"waits_for\": %d, \"moved_bytes\": %llu, \"total_bytes\": %llu", c->waits_for, (unsigned long long)c->moved_bytes,
           (unsigned long long)c->total_bytes);
    printf(", \"age_s\": %.3f}", r->taken_ns > c->start_ns ? seconds(r->taken_ns - c->start_ns) : 0.0);
}

static void print_messages(const uno_job_rank *r, const uno_job_comm *c)
{
    printf(", \"messages\": [");
    for (size_t i = 0; i < c->nmessages && i < MOST_MESSAGES; i++) {
        const uno_job_message *m = &c->messages[i];
        printf("%s{\"kind\": ", i ? ", " : "");
        out_json_string(stdout, m->kind);
        printf(", \"peer\": %d, \"tag\": %d, \"number\": %u, \"bytes\": %llu, \"waited\": %s, \"matched\": %s", job_member(c, m->peer),
               m->tag, m->number, (unsigned long long)m->bytes, m->waited ? "true" : "false", m->matched ? "true" : "false");
        text("site", m->site);
        printf(", \"age_s\": %.3f}", r->taken_ns > m->since_ns ? seconds(r->taken_ns - m->since_ns) : 0.0);
    }
    printf("], \"messages_all\": %zu", c->nmessages);
}

static void print_comm(const uno_job_rank *r, const uno_job_comm *c)
{
    printf("\n     {\"id\": \"%016llx\", \"epoch\": %u", (unsigned long long)c->id, c->epoch);
    text("name", c->name);
    printf(", \"rank\": %d, \"size\": %d, \"destroyed\": %s", c->rank, c->size, c->destroyed ? "true" : "false");
    text("failed", c->failed);
    printf(", \"newest\": %u, \"queued\": %zu, \"last\": ", c->newest, c->nqueued);
    if (c->ncalls)
        print_call(r, &c->calls[c->ncalls - 1]);
    else
        printf("null");
    print_messages(r, c);
    putchar('}');
}

static void print_rank(const uno_job_rank *r)
{
    printf("\n   {\"rank\": %d", r->rank);
    text("status", r->status);
    text("host", r->host);
    printf(", \"host_index\": %d", r->host_index);
    printf(", \"pid\": %d", r->pid);
    text("program", r->program);
    text("ended", r->ended);
    printf(", \"ended_code\": %d", r->ended_code);
    text("run", r->run);
    text("syscall", r->syscall);
    text("position", r->position);
    text("stack", r->stack);
    printf(", \"cpu_permille\": %u, \"refused_connections\": %llu, \"communicators\": [", r->cpu_permille, (unsigned long long)r->refused);
    for (size_t i = 0; i < r->ncomms; i++) {
        printf("%s", i ? "," : "");
        print_comm(r, &r->comms[i]);
    }
    printf("]}");
}

static void print_verdict(const uno_verdict *v)
{
    printf(" \"verdict\": {\"kind\": ");
    out_json_string(stdout, v->kind);
    printf(", \"fault\": %s", v->fault ? "true" : "false");
    text("sure", v->sure);
    text("headline", v->headline);
    text("what_next", v->what_next);
    text("victims", v->victims);
    printf(", \"age_s\": %.3f, \"comm\": ", seconds(v->age_ns));
    if (v->comm_id)
        printf("\"%016llx\"", (unsigned long long)v->comm_id);
    else
        printf("null");
    printf(", \"number\": %u, \"culprits\": [", v->number);
    for (int i = 0; i < v->shown_culprits; i++)
        printf("%s%d", i ? ", " : "", (int)v->culprit[i]);
    printf("], \"culprits_all\": %d, \"victims_all\": %d,\n  \"evidence\": [", v->culprits, v->nvictims);
    for (size_t i = 0; i < v->nlines; i++) {
        printf("%s\n   {\"rank\": %d, \"age_s\": %.3f", i ? "," : "", v->lines[i].rank, seconds(v->lines[i].age_ns));
        text("text", v->lines[i].text);
        putchar('}');
    }
    printf("],\n  \"others\": [");
    for (size_t i = 0; i < v->nothers; i++) {
        printf("%s", i ? ", " : "");
        out_json_string(stdout, v->others[i]);
    }
    printf("]},\n");
}

/* The ranks of which it is so. */
static void list(const char *key, const uno_job *job, bool (*so)(const uno_job_rank *r))
{
    printf(" \"%s\": [", key);
    for (int r = 0, n = 0; r < job->size; r++)
        if (so(&job->ranks[r]))
            printf("%s%d", n++ ? ", " : "", r);
    printf("],\n");
}

static void print_unjoined(const uno_job *job, const int *pids)
{
    char program[64];
    printf(" \"unjoined\": [");
    for (int r = 0, n = 0; pids && r < job->size; r++)
        if (pids[r]) {
            printf("%s{\"rank\": %d, \"pid\": %d", n++ ? ", " : "", r, pids[r]);
            text("program", why_program(pids[r], program, sizeof program));
            putchar('}');
        }
    printf("],\n");
}

void why_json(const struct job_found *found, const uno_verdict *v, const char *said, const int *unjoined)
{
    const uno_job *job = found->job;
    printf("{\"format\": 1, \"job\": \"%016llx\", \"live\": %s", (unsigned long long)job->id, found->live ? "true" : "false");
    text("program", job->program);
    text("said", said[0] ? said : NULL);
    text("not_asked_because", found->unasked[0] ? found->unasked : NULL);
    printf(", \"size\": %d, \"reported\": %d, \"hosts\": %d,\n", job->size, job->reported, job_hosts(job));
    print_verdict(v);
    list("not_asked", job, job_unheard);
    list("not_answered", job, job_silent);
    list("stopped", job, job_stands);
    print_unjoined(job, unjoined);
    printf(" \"ranks\": [");
    for (int r = 0, n = 0; r < job->size; r++) {
        if (job_unheard(&job->ranks[r]))
            continue;
        printf("%s", n++ ? "," : "");
        print_rank(&job->ranks[r]);
    }
    printf("]}\n");
}
