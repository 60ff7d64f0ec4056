/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unisono_watch.h - read what processes do: carriers, settings, ledgers, verdicts, ends. For tools, launchers and
 * monitoring. What may wait or asks other processes says so.
 */
#ifndef UNISONO_WATCH_H
#define UNISONO_WATCH_H

#include "unisono.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What moved the bytes of a communicator on this rank, sent and received, since it was made. */
typedef enum uno_carrier { UNO_CARRIER_SHM = 0, UNO_CARRIER_THREAD, UNO_CARRIER_TCP, UNO_CARRIER_COUNT } uno_carrier;
typedef struct uno_counts {
    uint64_t messages[UNO_CARRIER_COUNT];
    uint64_t bytes[UNO_CARRIER_COUNT];
    uint64_t small_operations;   /* collectives that ran on the small path (shared lines, no messages) */
    uint64_t tiled_operations;
    uint64_t lent_bytes;         /* of the bytes above, those that were read in place from lent memory */
    uint64_t waits_spin, waits_yield, waits_sleep; /* how waits ended */
    uint64_t slot_memory_bytes;  /* now held for slots */
} uno_counts;
UNO_API uno_err uno_comm_counts(uno_comm *comm, uno_counts *counts) UNO_MUST_CHECK;
/* "shm" "thread" "tcp"; static string, "?" if unknown. */
UNO_API const char *uno_carrier_name(uno_carrier carrier);
/* Number of hosts the ranks of the communicator are on, and the host index of a rank (0-based, by lowest rank); -1 on error. */
UNO_API int uno_comm_hosts(const uno_comm *comm);
UNO_API int uno_comm_host_of(const uno_comm *comm, int rank);

/* Where the program is, in its own terms, for reports of this communicator's calls from now on: a language binding sets
 * "train.py:212 in step" before it calls. text is copied (119 bytes; NULL = none). Any thread; never blocks for long.
 * UNO_ERR_ARG, UNO_ERR_USAGE (in a forked child). */
UNO_API uno_err uno_comm_set_call_site(uno_comm *comm, const char *text) UNO_MUST_CHECK;
/* Where is the program now? Called when a report about this process is made, on a thread of the library: writes at most `bytes`
 * bytes with the final zero into buf and returns their number without it, 0 = unknown. It must not wait for locks that the program
 * may hold for long (an interpreter's), must not call the library, and must work until it is replaced. One a process; NULL = none. */
typedef size_t (*uno_position_fn)(void *arg, char *buf, size_t bytes);
UNO_API void uno_set_position_callback(uno_position_fn position, void *arg);

/* Shall this thread stop waiting? Asked about every 100 ms on each thread of the program that waits in a call of the library; nonzero: a
 * signal wants it back. A wait for a request then returns UNO_ERR_IN_PROGRESS and keeps the request; any other operation cannot be taken
 * back, and its communicator fails with UNO_ERR_ABORTED on all ranks. uno_comm_destroy, what makes or ends a communicator,
 * and waits for streams, events and groups do not ask. Calls from within it are refused with UNO_ERR_USAGE, but for uno_comm_abort; nothing of
 * the communicator moves in this thread until it returns. arg must live as long as any thread may wait. One a process; NULL = none. */
typedef int (*uno_interrupt_fn)(void *arg);
UNO_API void uno_set_interrupt_callback(uno_interrupt_fn interrupt, void *arg);

/* Processes seen from outside, by who has joined no job with them: a launcher, which keeps what they show beyond their end, or a tool
 * that is asked about a process. Nobody is stopped, and nobody's help is needed: stewards are asked first, at a socket that answers the same
 * user alone, and /proc where they do not answer. One thread uses a keeper.
 * Memory of the processes stays mapped until uno_keeper_free. */
typedef struct uno_keeper uno_keeper;
UNO_API uno_err uno_keeper_new(uno_keeper **keeper) UNO_MUST_CHECK;
/* Take up process pid, or, when it is known, the communicators it has made since, which costs
 * some microseconds. Stewards that do not answer are waited for, 0.3 s for all of a keeper; 1 s each where /proc is closed as well.
 * UNO_ERR_IN_PROGRESS: it has not joined (yet), or left; UNO_ERR_SYSTEM: it is not there, or another user's; UNO_ERR_USAGE: a forked
 * child of one that joined, or a process of another PID namespace; UNO_ERR_UNSUPPORTED: another version of the library, or all its ranks are threads. */
UNO_API uno_err uno_keeper_look(uno_keeper *keeper, int pid) UNO_MUST_CHECK;
/* Processes of this user in this network namespace that have a socket for tools, also those that /proc hides: fills pids with at most
 * `most` of them, to be looked at. Returns how many. Another user may have made up some. */
UNO_API size_t uno_keeper_pids(int *pids, size_t most) UNO_MUST_CHECK;
/* As uno_keeper_look, and all processes of the same jobs that are on this host. For tools; reads all of /proc. */
UNO_API uno_err uno_keeper_look_around(uno_keeper *keeper, int pid) UNO_MUST_CHECK;
/* The caller has collected it: status as wait() gives it. Processes that nobody reports are looked after anyway. */
UNO_API void uno_keeper_ended(uno_keeper *keeper, int pid, int status);
/* What is known of every process that is kept, one record a rank, one behind the other (docs/verdict.md); *data is freed with free(). look:
 * also what they do now (60 ms, stacks by signal as UNISONO_STACKS allows). *bytes 0: none is kept. UNO_ERR_MEMORY. */
UNO_API uno_err uno_keeper_facts(uno_keeper *keeper, int look, void **data, size_t *bytes) UNO_MUST_CHECK;
/* The same of all ranks of the job on all its hosts, gathered by the stewards of the job now: of those who are dead, what was left; of
 * those whose host does not answer within a second, that it does not. For a keeper of one job. *bytes 0: all its ranks are kept here
 * anyway, and nobody was asked. Takes a second, three when the process that speaks for this host is stopped. UNO_ERR_UNREACHABLE: no
 * process of the job answers here; UNO_ERR_USAGE: not one job; UNO_ERR_MEMORY. */
UNO_API uno_err uno_keeper_gather(uno_keeper *keeper, void **data, size_t *bytes) UNO_MUST_CHECK;
/* The same question of what the ledgers hold alone, as often as once a second: nobody is looked at, asked for a stack, or interrupted;
 * never waits. What was asked before is forgotten. Errors as of uno_keeper_gather. */
UNO_API uno_err uno_keeper_ask(uno_keeper *keeper) UNO_MUST_CHECK;
/* Its answer, as of uno_keeper_gather; *bytes 0 also when nothing was asked, or the answer was fetched. UNO_ERR_IN_PROGRESS: it is not there yet (it
 * takes a quarter of a second; a second more when a host does not answer). UNO_ERR_UNREACHABLE: none has come for 3.5 s, or it is gone. */
UNO_API uno_err uno_keeper_answer(uno_keeper *keeper, void **data, size_t *bytes) UNO_MUST_CHECK;
/* As uno_keeper_facts without a look, as a file in the folder unisono-<uid> under dir, which is made with mode 0700; path: where, at least 1024 bytes.
 * UNO_ERR_SYSTEM, UNO_ERR_USAGE: the folder is not this user's alone; UNO_ERR_IN_PROGRESS: nobody is kept. */
UNO_API uno_err uno_keeper_save(uno_keeper *keeper, const char *dir, char *path, size_t path_bytes) UNO_MUST_CHECK;
/* The last verdict that the job itself told on this host, which is of all its hosts, as long as nothing has gone on since. For a
 * keeper of one job. At most text_bytes with the final zero; 1536 hold any. UNO_ERR_IN_PROGRESS: there is none. */
UNO_API uno_err uno_keeper_said(uno_keeper *keeper, char *text, size_t text_bytes) UNO_MUST_CHECK;
UNO_API void uno_keeper_free(uno_keeper *keeper); /* NULL is allowed */

/* How the processes of a job ended, as who started them tells it. A launcher makes a table on each host, in memory that the job's processes
 * there inherit: it gives each of them the descriptor, its number in UNISONO_ENDS_FD, and UNISONO_RANK. It writes there what wait() says of its own
 * children and what the launcher's other hosts pass on; the library looks there when a process has ended and nobody else says how. Nobody
 * is stopped or waited for. One thread uses a uno_ends. */
typedef struct uno_ends uno_ends;
typedef enum uno_end_kind {
    UNO_END_SEEN = 1,  /* its parent has collected it */
    UNO_END_ENDED,     /* the same, and that parent has ended it, after uno_ends_begin */
    UNO_END_LOST       /* its parent is gone, and it ends with it: nobody has seen how */
} uno_end_kind;
typedef struct uno_end {           /* of one process; plain data that may travel as it is between hosts with one version of the library */
    int32_t kind;                  /* uno_end_kind */
    int32_t rank, pid;             /* its UNISONO_RANK, and its pid as it sees it itself */
    int32_t status;                /* as wait() gives it; LOST: the parent's */
    int32_t signal;                /* ENDED: the signal that ended the parent; 0 = it had lost its launcher */
    int32_t oom_kill;              /* 1: memory.events of its cgroup has counted an oom_kill for it */
    char cgroup[256];              /* which one; "" = not known */
} uno_end;
/* For a job of `size` processes, also those of other hosts; elsewhere NULL is allowed and does nothing. UNO_ERR_ARG, UNO_ERR_MEMORY, UNO_ERR_SYSTEM. */
UNO_API uno_err uno_ends_new(int size, uno_ends **ends) UNO_MUST_CHECK;
/* The descriptor to be inherited, close-on-exec here; it belongs to *ends. NULL: -1. */
UNO_API int uno_ends_fd(const uno_ends *ends);
/* Children that have joined send the caller this signal, SIGCHLD for one, and wait for uno_ends_looked, 50 ms at most: so a keeper sees also those
 * that end at once. Before the children are started; 0 = no. */
UNO_API void uno_ends_ask(uno_ends *ends, int signal);
UNO_API void uno_ends_looked(uno_ends *ends, int rank); /* uno_keeper_look has found that child's job */
/* The caller is about to kill all its children, since `signal` ended it, or, 0, since it lost its launcher. */
UNO_API void uno_ends_begin(uno_ends *ends, int signal);
/* The caller has collected its child pid, which was UNISONO_RANK=rank: it stands in the table, and *end is what other hosts should be told. */
UNO_API void uno_ends_seen(uno_ends *ends, int rank, int pid, int status, uno_end *end);
/* What another host told. What stands there already is kept. UNO_ERR_ARG; UNO_ERR_PARSE: it makes no sense. */
UNO_API uno_err uno_ends_put(uno_ends *ends, const uno_end *end) UNO_MUST_CHECK;
UNO_API void uno_ends_free(uno_ends *ends); /* processes that inherited it keep it */

/* What is known of jobs, from records: of a keeper, or of files that were saved (docs/verdict.md). Plain data; one thread uses it.
 * Everything that structs here point to belongs to the uno_jobs and lives until the next uno_jobs_add or uno_jobs_free. Times are
 * nanoseconds of the clock of the rank's host; 0 = not known, or not yet. Texts are never NULL unless that is said. */
typedef struct uno_jobs uno_jobs;
typedef struct uno_job_call {      /* a collective, as a rank called it */
    uint32_t number;               /* of the communicator, from 1 */
    const char *coll, *type;       /* "all_reduce", "float32" */
    const char *op;                /* "sum"; "" where it has none */
    int root;                      /* comm rank; -1 where it has none */
    uint64_t count, bytes;         /* as the call gave it, and the same in bytes */
    const char *state;             /* "running" "done" "failed" */
    const char *site;              /* "train.py:212", "program+0x1234"; "" */
    int waits_for;                 /* job rank whose message it waits for; -1 = nobody, or not noted */
    uint64_t moved_bytes, total_bytes; /* so far, and at the end; 0 = not counted */
    uint64_t start_ns, end_ns, wait_since_ns;
} uno_job_call;
typedef struct uno_job_message {   /* a send or receive that has not ended */
    const char *kind;              /* "send" "recv" "isend" "irecv" */
    const char *type;
    int peer, tag;                 /* comm rank; UNO_ANY */
    uint32_t number;               /* of the pair, from 1; 0 = not known */
    uint64_t bytes, moved_bytes;
    int waited, matched;           /* the program stands still for it; its partner is known */
    const char *site;
    uint64_t since_ns;
} uno_job_message;
typedef struct uno_job_comm {      /* a communicator, as one rank sees it */
    uint64_t id;                   /* the same on all its ranks */
    uint32_t epoch;
    const char *name;              /* "" = none */
    int rank, size;
    const int32_t *members;        /* job rank of each; NULL: they are the same */
    int destroyed;
    const char *failed;            /* NULL = it works; else the sentence */
    uint32_t newest;               /* number of the newest collective; 0 = none yet */
    uint64_t sends, receives, sent_bytes, received_bytes; /* that have ended well, so far */
    uint64_t waited_ns;            /* so long its collectives have waited for other ranks so far, in waits of more than 50 us */
    size_t ncalls, nmessages, nqueued; /* queued: issued and not begun */
    const uno_job_call *calls;     /* the newest ones, ascending, without gaps, up to `newest` */
    const uno_job_message *messages;
} uno_job_comm;
typedef struct uno_job_rank {
    int rank;                      /* of the job */
    const char *status;            /* "unknown" (no record) "reported" "silent" "dead" "left" "never_joined" */
    const char *host, *program;    /* "" = not known */
    int host_index;                /* hosts of the job, from 0; -1 = not known */
    int pid;                       /* 0 = not known */
    const char *ended;             /* "" "exit" "signal" "host" "agent" (of unisono run on its host, which is gone) */
    int ended_code;                /* status or signal; "agent": the signal that ended that one, 0 = it ended otherwise */
    const char *run;               /* "" (no look) "runs" "sleeps" "syscall" "disk" "stopped" "traced" "frozen" "zombie" "thread_ended" "replaced" (by exec) */
    const char *syscall, *position, *stack; /* "read"; "train.py:212 in step()"; frames, one a line, top first */
    uint32_t cpu_permille;         /* of one processor, during the look */
    char state;                    /* of its process as ps shows it, 'R' 'S' 'T' ..., at taken_ns; 0 = not known */
    uint64_t cpu_ns;               /* processor time that it has used so far, at taken_ns, in ticks of 10 ms; 0 = not known */
    uint64_t taken_ns, taken_real_ns; /* when this was seen, on both clocks */
    int clock_known;               /* the next is: added to a time of the rank's host it gives that of the host where the records were gathered */
    int64_t clock_offset_ns;
    uint64_t refused;              /* connections to its process that were refused: strangers, wrong secrets */
    size_t ncomms;
    const uno_job_comm *comms;
} uno_job_rank;
typedef struct uno_job {
    uint64_t id;
    int size, reported;            /* ranks, and of how many there is a record */
    const char *program;           /* of the lowest rank that is known */
    const uno_job_rank *ranks;     /* `size` of them */
} uno_job;
UNO_API uno_err uno_jobs_new(uno_jobs **jobs) UNO_MUST_CHECK;
/* Add records, one behind the other. UNO_ERR_PARSE: cut, damaged, foreign, or of another version; records before that one are kept.
 * UNO_ERR_UNSUPPORTED: all jobs together would have more than 2^20 ranks, or their communicators more than 2^26 listed members. UNO_ERR_MEMORY. */
UNO_API uno_err uno_jobs_add(uno_jobs *jobs, const void *records, size_t bytes) UNO_MUST_CHECK;
UNO_API size_t uno_jobs_count(const uno_jobs *jobs);
/* UNO_ERR_ARG: there are not so many; UNO_ERR_MEMORY. */
UNO_API uno_err uno_jobs_get(uno_jobs *jobs, size_t index, const uno_job **job) UNO_MUST_CHECK;
typedef struct uno_verdict_line { int rank; uint64_t age_ns; const char *text; } uno_verdict_line; /* rank -1: of no single one */
typedef struct uno_verdict {
    const char *kind;              /* "dead", "mismatch", ... (docs/verdict.md) */
    int fault;                     /* 0: a fact, or nothing is wrong */
    const char *sure;              /* "seen" "likely" "guess" */
    const char *headline, *what_next, *victims;
    const char *text;              /* all of it for people, several lines */
    uint64_t comm_id;              /* 0 = of no communicator */
    uint32_t number;               /* of the collective; 0 = none */
    uint64_t age_ns;               /* how long it has been so */
    int culprits, shown_culprits;  /* number of them; how many stand in culprit */
    const int32_t *culprit;        /* job ranks */
    int nvictims;
    size_t nlines, nothers;
    const uno_verdict_line *lines; /* evidence */
    const char *const *others;     /* other faults that do not follow from this one */
} uno_verdict;
/* Judge a job. live: the records are of now, of a keeper here; else they are judged as of when the last was taken. stall_s: what
 * waits for less is not stuck; 0 = 5 s. UNO_ERR_ARG, UNO_ERR_MEMORY. */
UNO_API uno_err uno_jobs_judge(uno_jobs *jobs, size_t index, int live, double stall_s, const uno_verdict **verdict) UNO_MUST_CHECK;
UNO_API void uno_jobs_free(uno_jobs *jobs); /* NULL is allowed */

/* One setting as a running program would see it. Strings are owned by the array; free it with uno_settings_free. */
typedef struct uno_setting {
    const char *name, *kind, *value, *source, *dflt, *legal, *foreign, *help;
} uno_setting;
UNO_API uno_err uno_settings(uno_setting **settings, size_t *count) UNO_MUST_CHECK;
UNO_API void uno_settings_free(uno_setting *settings, size_t count);

/* What the environment's UNISONO_, NCCL_ and RCCL_ variables do here. what: "used" "unknown" "illegal" "no-effect" "overridden". */
typedef struct uno_setting_finding {
    const char *name, *value, *what, *text;
} uno_setting_finding;
UNO_API uno_err uno_settings_audit(uno_setting_finding **findings, size_t *count) UNO_MUST_CHECK;
UNO_API void uno_settings_audit_free(uno_setting_finding *findings, size_t count);

#ifdef __cplusplus
}
#endif
#endif
