/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.h - what the files of `unisono run` share. Three kinds of process take part:
 *
 *   launcher (cmd_run.c)   one; talks to people: options, output, sentences, the job's exit status
 *   agent (run_agent.c)    one a host, on this one a fork, elsewhere behind a remote shell; parent of that host's ranks
 *   ranks                  the program
 *
 * Launcher and agent speak frames (run_wire.c) over two pipes. An agent whose pipe from the launcher ends kills its ranks, a rank
 * whose agent dies is killed by the kernel, and launcher and agents adopt orphans (subreaper), so that nothing stays behind.
 * How a rank ended goes from its agent to the launcher, from there to all agents, and each keeps it where its ranks look (uno_ends).
 */
#ifndef UNISONO_CLI_RUN_H
#define UNISONO_CLI_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define RUN_MOST_RANKS 65536         /* as many as a communicator may have */
#define RUN_SECRET_CHARS 64          /* 32 random bytes as hexadecimal text */
#define RUN_MAGIC "\nunisono-agent-1\n" /* an agent's first bytes; what a remote shell printed before is not ours */

/* ---- options (run_options.c) ---------------------------------------------------------------------- */
enum run_bind { BIND_AUTO, BIND_NONE, BIND_CORE, BIND_NUMA, BIND_COUNT };
extern const char *const run_bind_names[BIND_COUNT];

struct run_host {
    char *name;
    int slots;      /* ranks offered by --hosts */
    int first, n;   /* ranks it really gets: first .. first + n - 1 */
};

struct run_options {
    int nranks;
    struct run_host *hosts;
    int nhosts;
    bool remote;             /* --hosts was given: agents are started through a launcher command */
    enum run_bind bind;
    bool show_bind, tag, keep_going, agent, help;
    const char *launcher;    /* NULL = ssh */
    const char *agent_program; /* path of unisono on the other hosts */
    int port;                /* of rank 0's joining socket; 0 = any */
    double grace_s;          /* between SIGTERM and SIGKILL */
    double start_s;          /* for hosts to answer */
    char **env;              /* -x: NAME or NAME=VALUE */
    int nenv;
    char **args;             /* program and its arguments, NULL-terminated */
};

/* Parse; prints a sentence and returns the exit status when something is wrong, 0 otherwise. */
int run_parse(int argc, char **argv, struct run_options *opt);
void run_options_free(struct run_options *opt);
void run_usage(void);

/* ---- the job as one host is told (run_job.c) --------------------------------------------------------- */
struct run_job {
    int size, first, n;      /* ranks of the job, and the range of this host */
    int nhosts;
    int bind;                /* enum run_bind */
    int show_bind, direct_stdout, direct_stdin, port;
    char *host, *cwd;
    char **env, **args;      /* NULL-terminated */
    int nenv, nargs;
    char secret[RUN_SECRET_CHARS + 1];
};
/* Strings of *job are copied out of data; run_job_free. False: not a job description. */
bool run_job_decode(struct run_job *job, const char *data, size_t bytes);
/* Returns malloc'ed bytes. */
char *run_job_encode(const struct run_job *job, size_t *bytes);
void run_job_free(struct run_job *job);

/* ---- frames (run_wire.c) ---------------------------------------------------------------------------------
 * length (u32), type (u8), body. Non-blocking both ways; what cannot be written yet is kept. */
enum run_frame {
    /* launcher to agent */
    FRAME_JOB = 'J',      /* run_job_encode */
    FRAME_SECRET = 'S',
    FRAME_GO = 'G',       /* "address\0address\0...": where rank 0's joining socket may be reached */
    FRAME_SIGNAL = 'K',   /* u32 */
    FRAME_ENDED = 'Z',    /* uno_end: how a rank of another host ended */
    /* agent to launcher */
    FRAME_ADDRESSES = 'A',/* from the host of rank 0: as in FRAME_GO */
    FRAME_BOUND = 'B',    /* u32 rank, text */
    FRAME_PID = 'P',      /* u32 rank, u32 pid */
    FRAME_OUTPUT = 'O',   /* u32 rank, u8 stream (1 or 2), bytes */
    FRAME_EXIT = 'X',     /* u32 rank, u32 enum run_end, u32 value, uno_end: the same for the other hosts' ranks */
    FRAME_ENDING = 'T',   /* u32 signal: the agent got it, and ends its ranks */
    FRAME_ERROR = 'E',    /* text: the agent gives up */
    FRAME_NOTE = 'N',     /* text */
    FRAME_DONE = 'D'
};
enum run_end { END_STATUS, END_SIGNAL, END_EXEC, END_CHDIR };  /* value: exit status, signal, errno, errno */

struct run_wire {
    int in, out;          /* -1 = closed */
    char *have;           /* read, not consumed */
    size_t nhave, at, cap_have;
    char *queue;          /* not yet written */
    size_t nqueue, sent, cap_queue;
    bool broken;          /* the other side is gone, or sent nonsense */
};
void wire_init(struct run_wire *w, int in, int out);
void wire_close(struct run_wire *w);
/* Queue a frame whose body is two pieces; the second may be empty. */
void wire_send(struct run_wire *w, enum run_frame type, const void *a, size_t na, const void *b, size_t nb);
void wire_flush(struct run_wire *w);
static inline size_t wire_pending(const struct run_wire *w) { return w->nqueue - w->sent; }
/* Read what is there; false at end of file or error. */
bool wire_fill(struct run_wire *w);
/* Next whole frame; the body stays valid until the next wire_fill. */
bool wire_next(struct run_wire *w, enum run_frame *type, const char **body, size_t *bytes);
/* Drop everything up to and with the agent's magic; false while it has not come. Dropped bytes go to `noise` (may be NULL). */
bool wire_sync(struct run_wire *w, void (*noise)(void *arg, const char *data, size_t bytes), void *arg);

/* ---- output (run_output.c) --------------------------------------------------------------------------------- */
struct run_lines {        /* one stream of one rank */
    char *part;           /* a line that has not ended */
    size_t npart, cap;
};
struct run_sink {         /* stdout or stderr of the launcher */
    int fd;
    char *queue;
    size_t nqueue, sent, cap;
    int broken;           /* why nothing can be written any more, 0 = it can: EPIPE when nobody reads, ENOSPC ... */
};
/* Cut data into lines and queue each whole one behind `prefix` ("" = none). */
void lines_feed(struct run_lines *l, struct run_sink *sink, const char *prefix, const char *data, size_t bytes);
void lines_end(struct run_lines *l, struct run_sink *sink, const char *prefix);
void sink_add(struct run_sink *s, const char *data, size_t bytes);
void sink_printf(struct run_sink *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Write what poll says can be written without blocking. */
void sink_flush(struct run_sink *s);
/* Write everything, waiting. */
void sink_drain(struct run_sink *s);
static inline size_t sink_pending(const struct run_sink *s) { return s->nqueue - s->sent; }

#define TAIL_BYTES 2048
struct run_tail {         /* the last bytes of a rank's stderr */
    char bytes[TAIL_BYTES];
    size_t total;
};
void tail_add(struct run_tail *t, const char *data, size_t bytes);
/* Write the last whole lines, at most `lines`, each behind `prefix`; returns how many. */
int tail_show(const struct run_tail *t, struct run_sink *sink, const char *prefix, int lines);

/* ---- binding (run_bind.c) -------------------------------------------------------------------------------------- */
struct run_binding;       /* the map of one host */
/* Compute where n ranks go. Never fails: without hwloc's help the map says "not bound" and why. */
struct run_binding *binding_new(enum run_bind want, int n);
/* Bind the calling process as local rank i; called between fork and exec. */
void binding_apply(const struct run_binding *b, int i);
/* "processors 0-7, memory of node 0 (numa)". */
void binding_text(const struct run_binding *b, int i, char *buf, size_t bytes);
void binding_free(struct run_binding *b);

/* ---- processes (run_procs.c) -------------------------------------------------------------------------------------- */
/* Adopt orphans among our descendants from now on. */
void procs_adopt(void);
/* Send `sig` to every descendant of this process; returns how many there are, the first ones named in text (may be NULL). */
int procs_signal_descendants(int sig, char *text, size_t bytes);
/* Reap without waiting. */
void procs_reap(void);
/* End all descendants: wait quiet_s for them to go, then SIGTERM, then SIGKILL. Returns how many had to be told. */
int procs_end_descendants(double quiet_s, char *text, size_t bytes);

/* ---- agent (run_agent.c, run_team.c) -------------------------------------------------------------------------------------- */
/* Be the agent of this host over these descriptors; returns the exit status of the process. */
int agent_run(int in, int out);
/* `unisono run --agent`: over standard input and output, with a watcher that ends what a dead agent leaves. */
int agent_remote(void);

struct run_team;
struct run_team *team_start(struct run_wire *wire, const struct run_job *job, const char *addr, int listen_fd, int master_port,
                            struct run_binding *binding);
/* Walk until all ranks have ended and their output is relayed. */
void team_walk(struct run_team *team);
void team_free(struct run_team *team);

/* ---- what ranks show of themselves, held beyond their end (run_keep.c) ---------------------------------------------------------- */
struct run_keep;
struct run_keep *keep_new(const struct run_job *job); /* NULL: UNISONO_LEDGER_DIR names no place, or no memory */
bool keep_due(struct run_keep *keep);                 /* is it time to look again? NULL: never */
int keep_wait_ms(const struct run_keep *keep);        /* how long one may wait for something else until then; -1: without end */
bool keep_look(struct run_keep *keep, pid_t pid); /* false: it has not joined */
void keep_ended(struct run_keep *keep, pid_t pid, int status); /* NULL is allowed, here and below */
bool keep_save(struct run_keep *keep, char *text, size_t text_bytes); /* true: it failed for the first time, and text says why */
const char *keep_path(const struct run_keep *keep);   /* what was saved; "" = nothing */
void keep_free(struct run_keep *keep);

/* ---- joining socket (run_meet.c) --------------------------------------------------------------------------------------------- */
/* Listen for the joining. Returns the descriptor or -1 with a sentence in err. */
int meet_listen(int port, int *bound_port, char *err, size_t err_bytes);
/* Addresses under which others may reach `port` of this host, "ip:port\0ip:port\0"; malloc'ed. */
char *meet_addresses(int port, bool only_here, size_t *bytes);
/* The first address of the list that can be connected to from here; NULL and a sentence if none. */
const char *meet_choose(const char *list, size_t bytes, bool only_here, char *err, size_t err_bytes);
/* A port that is free now. */
int meet_free_port(void);

double run_now(void);     /* monotonic seconds */

#endif
