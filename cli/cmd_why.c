/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_why.c - `unisono why`: why does a job stand, or why did it end? The sentence of the judge on what its processes show now, or on
 * the records they left.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "job.h"
#include "output.h"

struct why_options {
    struct job_wanted wanted;
    double stall_s;
    const char *flight_dir;
    bool json;
};

static void usage(void)
{
    printf("usage: unisono why [PID | --job NAME | DIR] [--json] [--stall SECONDS] [--export-flight-recorder DIR]\n\n"
           "Says in one sentence why a job stands: who, what, where, since when, and what to do. PID is a process of the job, or what\n"
           "started it; without one it is the only job of this user on this host. DIR is a folder (or a file) of records that a job left\n"
           "behind, see UNISONO_LEDGER_DIR. A job is not stopped, and does not have to answer.\n\n"
           "      --job NAME       the number or the program of a job, when there are several\n"
           "      --stall SECONDS  who waits for less is not stuck (default 1)\n"
           "      --json           for programs\n"
           "      --export-flight-recorder DIR\n"
           "                       also write what is known of each rank to DIR, in the form of PyTorch's flight recorder: as JSON, and\n"
           "                       as the pickle that PyTorch's analyser reads\n\n"
           "Exit status: 0 = nothing is wrong, 1 = there is a fault, or a process is stopped, 2 = not done.\n");
}

static int take(int letter, const char *value, void *to)
{
    struct why_options *o = to;
    switch (letter) {
    case 'j': o->json = true; return CLI_GOOD;
    case 'f': o->flight_dir = value; return CLI_GOOD;
    default: return job_seconds("why", "--stall", value, 0.001, 1e6, &o->stall_s);
    }
}

static int parse(int argc, char **argv, struct why_options *o)
{
    static const struct option options[] = {JOB_OPTIONS, {"json", no_argument, NULL, 'j'}, {"stall", required_argument, NULL, 's'},
                                            {"export-flight-recorder", required_argument, NULL, 'f'}, {0}};
    static const struct job_syntax syntax = {options, take, usage, "one process, folder or file is asked about"};
    *o = (struct why_options){.wanted = {.command = "why"}, .stall_s = 1.0};
    return job_options(argc, argv, &syntax, &o->wanted, o);
}

static void print_list(const char *what, const uno_job *job, bool (*so)(const uno_job_rank *r), const char *because)
{
    char ranks[512];
    job_list(job, so, ranks, sizeof ranks);
    if (ranks[0])
        printf("%s: rank%s %s%s\n", what, strpbrk(ranks, ",-") ? "s" : "", ranks, because);
}

static int count(const uno_job *job, bool (*so)(const uno_job_rank *r))
{
    int n = 0;
    for (int r = 0; r < job->size; r++)
        n += so(&job->ranks[r]);
    return n;
}

/* A process with several ranks counts once. */
static void print_refused(const uno_job *job)
{
    unsigned long long n = 0;
    int at = -1;
    for (int r = 0; r < job->size; r++) {
        const uno_job_rank *k = &job->ranks[r];
        bool seen = false;
        for (int q = 0; q < r && !seen; q++)
            seen = job->ranks[q].pid == k->pid && job->ranks[q].host_index == k->host_index;
        n += seen ? 0 : k->refused;
        if (k->refused && (at < 0 || k->refused > job->ranks[at].refused))
            at = r;
    }
    if (n)
        printf("Refused connections of strangers: %llu so far, most of them by rank %d (%llu). What to do: see who else reaches these ports, and "
               "shut them out with a firewall\n", n, at, (unsigned long long)job->ranks[at].refused);
}

static void print_unjoined(const uno_job *job, const int *pids)
{
    enum { MOST = 8 };
    char program[64];
    int n = 0;
    for (int r = 0; pids && r < job->size; r++)
        if (pids[r] && n++ < MOST)
            printf("%srank %d is pid %d (%s)", n > 1 ? ", " : "Started on this host, and not joining yet: ", r, pids[r], why_program(pids[r], program, sizeof program));
    if (n)
        printf(n > MOST ? ", and %d more\n" : "\n", n - MOST);
}

static void print_people(const struct job_found *found, const uno_verdict *v, const char *said, const int *unjoined)
{
    const uno_job *job = found->job;
    const char *colour = out_colour(stdout, v->fault ? OUT_RED : OUT_GREEN);
    int hosts = job_hosts(job), heard = job->reported - count(job, job_silent);
    char where[40] = "in the records";
    if (found->live && hosts > 1)
        snprintf(where, sizeof where, "heard on %d hosts", hosts);
    else if (found->live)
        snprintf(where, sizeof where, "seen on this host");
    printf("%sjob %016llx%s: %s, %d of %d rank%s %s\n", colour, (unsigned long long)job->id, out_colour(stdout, OUT_PLAIN),
           job->program[0] ? job->program : "?", heard, job->size, job->size == 1 ? "" : "s", where);
    if (said[0] && !v->fault) /* it has watched for longer */
        printf("the job said last, and not since then that it goes on: %s\nat this moment: ", said);
    fputs(v->text, stdout);
    if (strcmp(v->kind, "stopped") != 0)
        print_list("Stopped, held by a debugger, or frozen", job, job_stands, "");
    print_refused(job);
    print_unjoined(job, unjoined);
    print_list("Did not answer", job, job_silent, " (their hosts were asked)");
    print_list(found->live ? "Not asked" : "Not in the records", job, job_unheard,
               found->live ? " (on other hosts, not joined yet, or ended before)" : " (their hosts' files are not here)");
    if (found->unasked[0])
        printf("Other hosts were not asked: %s; ask `unisono why` there too\n", found->unasked);
    if (said[0] && v->fault && (heard < job->size || found->unasked[0]))
        printf("The job itself says, of all its hosts: %s\n", said);
}

static int answer(const struct why_options *o, struct job_found *found)
{
    const uno_verdict *v;
    int files = 0;
    char said[1536] = "";
    if (found->live && uno_keeper_said(found->keeper, said, sizeof said) != UNO_OK)
        said[0] = 0;
    if (uno_jobs_judge(found->jobs, found->index, found->live, o->stall_s, &v) != UNO_OK)
        return out_error("why", "the records cannot be judged: %s", uno_last_error(NULL));
    if (o->flight_dir && why_flight("why", found->job, o->flight_dir, &files) != CLI_GOOD)
        return CLI_ERROR;
    int *unjoined = why_unjoined(found, v);
    if (o->json)
        why_json(found, v, said, unjoined);
    else
        print_people(found, v, said, unjoined);
    free(unjoined);
    if (files && !o->json)
        printf("%d file%s written to %s\n", files, files == 1 ? "" : "s", o->flight_dir);
    /* Who is stopped and not waited for is no fault yet. */
    return v->fault || count(found->job, job_stands) ? CLI_BAD : CLI_GOOD;
}

int cmd_why(int argc, char **argv)
{
    struct why_options o;
    struct job_found found;
    int rc = parse(argc, argv, &o);
    if (rc != CLI_GOOD)
        return rc == CLI_BAD ? CLI_GOOD : rc;
    rc = job_find(&o.wanted, &found);
    if (rc == CLI_GOOD && found.live)
        rc = job_ask("why", &found);
    if (rc == CLI_GOOD)
        rc = answer(&o, &found);
    job_free(&found);
    return rc;
}
