/* SPDX-License-Identifier: Apache-2.0 */
/* run_launch.h - the launcher's own state, shared by cmd_run.c (the loop), run_hosts.c (agents) and run_report.c (sentences). */
#ifndef UNISONO_CLI_RUN_LAUNCH_H
#define UNISONO_CLI_RUN_LAUNCH_H

#include <unisono_watch.h>

#include "run.h"

struct link {             /* one agent */
    struct run_host *host;
    struct run_wire wire;
    pid_t pid;            /* of the agent, or of the remote shell; 0 = reaped */
    int status;           /* wait status once reaped */
    int err_fd;           /* the remote shell's stderr; -1 = local or closed */
    struct run_lines err_lines;
    struct run_tail err_tail;
    bool synced;          /* the agent has spoken */
    bool done;            /* all its ranks have ended, in order */
    bool closed;          /* nothing more comes */
    bool lost;            /* it ended without saying so */
    bool ending;          /* it got a signal, said so, and ends its ranks: their ends are no news */
    char *command;        /* for sentences: "ssh nodeB"; NULL = local */
};

struct rank {
    struct link *link;
    pid_t pid;
    bool ended;
    struct run_lines lines[2];
    struct run_tail tail;
    char tag[24];         /* prefix of its lines; "" without --tag */
};

struct launcher {
    struct run_options *opt;
    struct link *links;
    struct rank *ranks;
    int nlinks;
    struct run_sink out, err;
    char secret[RUN_SECRET_CHARS + 1];
    char *addresses;      /* FRAME_GO's body, once rank 0's host has said it */
    size_t naddresses;
    bool going;           /* FRAME_GO was sent */
    int signal_fd;
    double start;         /* run_now() */
    int status;           /* exit status of the job */
    bool failed;          /* a failure was reported; later ones are consequences */
    bool ending, killed;
    double kill_at;       /* when ending: SIGKILL */
    int told;             /* the signal that people sent us to end the job; 0 = none */
    int interrupts;
    double remind_at;     /* then it is said who has not ended on that signal; 0 = never */
};

/* run_hosts.c: start the agent of link i, here or through the launcher command. 0, or an exit status after a sentence. */
int link_start(struct launcher *l, int i);
void link_free(struct link *link);

/* run_report.c: the job's first failure in a sentence; the caller ends the job. */
void report_rank_end(struct launcher *l, int rank, enum run_end end, int value, const uno_end *seen);
void report_lost(struct launcher *l, struct link *link);
/* Which ranks run on, though a signal to end was passed on to them. */
void report_remaining(struct launcher *l, int sig);
void report_ending(struct launcher *l, struct link *link, int sig); /* its agent got a signal */
/* How a link's agent ended, as wait() gives it: of one on another host as its remote shell passes it on. */
int link_status(const struct link *link);
/* Print "unisono run: ..." through the stderr queue, in order with what ranks wrote. */
void report(struct launcher *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
