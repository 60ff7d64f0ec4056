/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.h - what `unisono why` and `unisono top` share: find a job of this user on this host, or in files, and read what is known of it.
 */
#ifndef UNO_CLI_JOB_H
#define UNO_CLI_JOB_H

#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>

#include "unisono_watch.h"

struct job_wanted {
    const char *command;   /* for error sentences */
    const char *what;      /* a pid, a file or a folder; NULL = none was given */
    const char *name;      /* of the job: its number, or its program; NULL */
    bool live;             /* what is over is not asked for: digits are a pid, whatever files there are */
};

/* job_options.c: the command line. Each command's table holds JOB_OPTIONS, ends with {0}, and uses other letters than these. */
enum { JOB_NAME = 'n', JOB_HELP = 'h' };
#define JOB_OPTIONS {"job", required_argument, NULL, JOB_NAME}, {"help", no_argument, NULL, JOB_HELP}
struct job_syntax {
    const struct option *options;
    int (*take)(int letter, const char *value, void *to); /* one of its own: CLI_GOOD, or CLI_ERROR after a sentence */
    void (*usage)(void);
    const char *only_one;  /* why a second word is one too many */
};
/* wanted->command is set before. CLI_GOOD: go on; CLI_BAD: help was asked for, and shown; CLI_ERROR after a sentence. */
int job_options(int argc, char **argv, const struct job_syntax *syntax, struct job_wanted *wanted, void *to);
/* The value of such an option. CLI_GOOD, or CLI_ERROR after a sentence. */
int job_seconds(const char *command, const char *option, const char *word, double least, double most, double *seconds);

struct job_found {
    uno_jobs *jobs;        /* records as they were last read */
    size_t index;          /* which of them */
    const uno_job *job;
    bool live;
    /* live */
    uno_keeper *keeper;
    char unasked[600];     /* why other hosts were not asked, though there are some; "" */
    uint64_t id;
    int size;
    bool *here;            /* by rank: its process was seen on this host at the last job_read */
    void *others;          /* what other hosts said last (job_hear_others) */
    size_t others_bytes;
};
/* Find the one job that is meant. Returns CLI_GOOD, or CLI_ERROR after a sentence on stderr. job_free in any case. */
int job_find(const struct job_wanted *wanted, struct job_found *found);
/* Read a live job anew, as far as it is on this host, beside what other hosts said last. CLI_ERROR after a sentence. */
int job_read(const char *command, struct job_found *found);
/* As job_read, and what its processes do now, with their stacks, and what other hosts say, by way of the job's own stewards. */
int job_ask(const char *command, struct job_found *found);
/* Ask other hosts what their ledgers show; never waits, and disturbs nobody. found->unasked says why that is not possible. */
void job_ask_others(struct job_found *found);
/* Has the answer come, or will it not? False: not yet. It counts from the next job_read on. */
bool job_hear_others(struct job_found *found);
void job_free(struct job_found *found);

/* job_files.c: records of a file, or of all "*.facts" of a folder and of its unisono-<uid>. CLI_ERROR: there was nothing to read. */
int job_read_files(const char *command, const char *path, uno_jobs *jobs);

/* Process pid: does it live, and whose is it? False: there is no such process. */
bool job_process_owner(int pid, unsigned *uid);
int job_process_parent(int pid); /* 0 = not known */
int job_process_of(int tid);     /* whose thread it is; 0 = not known */
/* Its name, else a short number; writes into buf and returns it. */
char *job_comm_name(const uno_job_comm *c, char *buf, size_t buf_bytes);
/* Job rank of a member; UNO_ANY stays. */
int job_member(const uno_job_comm *c, int comm_rank);
/* Of a rank: there is no record; its host was asked and did not answer; it is stopped, held by a debugger or frozen. */
bool job_unheard(const uno_job_rank *r);
bool job_silent(const uno_job_rank *r);
bool job_stands(const uno_job_rank *r);
/* "2, 5-7": the ranks of which it is so; "" when there are none. */
char *job_list(const uno_job *job, bool (*so)(const uno_job_rank *r), char *buf, size_t buf_bytes);
int job_hosts(const uno_job *job); /* of how many hosts ranks have answered; 0 = only what this one shows is known */

/* why_unjoined.c: by rank, the process on this host that was started as it and has not come to joining; 0 = none is known. malloc'ed; NULL: nobody is missed so. */
int *why_unjoined(const struct job_found *found, const uno_verdict *v);
char *why_program(int pid, char *buf, size_t buf_bytes); /* its command's name; returns buf */

/* why_json.c, why_flight.c */
void why_json(const struct job_found *found, const uno_verdict *v, const char *said, const int *unjoined); /* said: "" = nothing */
int why_flight(const char *command, const uno_job *job, const char *dir, int *files);

#endif
