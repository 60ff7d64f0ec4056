/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict.h - from what all ranks know to one sentence: who, what, where, since when, what to do. Pure: no threads, sockets,
 * clocks or files; the same facts give the same verdict. Used by the steward's inquiry, by `unisono why` on a running job and
 * on files, and by tests on recorded facts alone.
 *
 * The way of the facts: somebody who can see a rank (its own steward, its hub, the launcher, for the dead a neighbour that holds
 * its ledger) fills a verdict_rank and encodes it (verdict_encode); records travel as bytes and lie in files as bytes; who judges
 * adds each of them to a verdict_facts (verdict_facts_add), says what it knows itself (who was silent, who is dead), and asks
 * verdict_judge.
 *
 * For all structs: zeroed memory is legal and means "nothing known". Texts are 0-terminated, may be cut, and are cleaned of
 * control characters when they are encoded and decoded. A time is nanoseconds in the clock named by its comment; 0 = unknown or
 * not yet. "own clock": CLOCK_MONOTONIC of that rank's host. Ranks are ranks of the job unless a comment says "comm rank".
 */
#ifndef UNO_VERDICT_H
#define UNO_VERDICT_H

#include "base/base.h"

/* ---- one rank's facts ---------------------------------------------------------------------------------------- */

enum verdict_state { VERDICT_NOT_BEGUN = 0, VERDICT_RUNNING = 1, VERDICT_DONE = 2, VERDICT_FAILED = 3 }; /* as ledger_state */
/* How the last wait of an operation ended, or where a running one is. */
enum verdict_wait { VERDICT_WAIT_NONE = 0, VERDICT_WAIT_SPIN, VERDICT_WAIT_YIELD, VERDICT_WAIT_SLEEP };

/* Does the program stand still for it, or go on meanwhile (asynchronous, on a stream)? Decides who can be waited for. */
enum verdict_blocks { VERDICT_BLOCKS_UNKNOWN = 0, VERDICT_PROGRAM_WAITS, VERDICT_PROGRAM_GOES_ON };

#define VERDICT_SITE_BYTES 48
struct verdict_event {        /* one collective in one rank's ledger */
    uint32_t number;          /* of the communicator, from 1; calls of 0 elements count */
    uint32_t signature;       /* chained, as in the ledger; 0 = not known */
    uint8_t coll;             /* uno_coll */
    uint8_t type;             /* uno_type */
    uint8_t state;            /* enum verdict_state */
    uint8_t wait;             /* enum verdict_wait */
    uint8_t blocks;           /* enum verdict_blocks, while it runs */
    int32_t op;               /* uno_op; not looked at where the collective has none */
    int32_t root;             /* comm rank; not looked at where the collective has none */
    int32_t waits_for;        /* comm rank of the peer whose message is awaited, once a wait left the spin phase; -1 = nobody */
    int32_t step;             /* of the plan, where known; -1 */
    uint32_t tile;
    uint64_t count;           /* elements, as the call gave it; v-forms: not compared between ranks */
    uint64_t bytes_moved;     /* so far, sent and received by this rank; 0 where not counted */
    uint64_t bytes_total;     /* what it will be at the end; 0 = not known */
    uint64_t start_ns;        /* own clock */
    uint64_t end_ns;          /* own clock; 0 while running */
    uint64_t wait_since_ns;   /* own clock: since when it waits for waits_for */
    uint64_t moved_ns;        /* own clock: when something last moved; 0 = not known */
    uint64_t call_site;       /* return address, as it is in that process */
    char site[VERDICT_SITE_BYTES]; /* "train.py:212" from a binding, else "program+0x1234" (module and offset: alike on all ranks
                                      of one program, so that sites can be compared); "" = unknown */
};

enum verdict_p2p_kind { VERDICT_SEND = 1, VERDICT_RECV, VERDICT_ISEND, VERDICT_IRECV };
struct verdict_p2p {          /* one send or receive that has not ended, in one communicator */
    uint8_t kind;             /* enum verdict_p2p_kind */
    bool waited;              /* the program waits for it now (send, recv, wait, group_end, stream synchronise) */
    bool matched;             /* its partner is known, bytes move: it waits for nothing but them */
    int32_t peer;             /* comm rank; UNO_ANY */
    int32_t tag;
    uint8_t type;             /* uno_type */
    uint32_t number;          /* per (sender, receiver), from 1; 0 = not known */
    uint64_t bytes;           /* length, or room for it */
    uint64_t bytes_moved;
    uint64_t since_ns;        /* own clock: issued */
    char site[VERDICT_SITE_BYTES];
};

struct verdict_call {         /* issued, not begun: waits behind others of its communicator or stream */
    uint64_t order;           /* order of issue in this process, over all communicators */
    int8_t coll;              /* uno_coll; -1 = a send or receive */
    uint8_t type;
    int32_t op, root;
    uint64_t count;
    uint64_t since_ns;        /* own clock */
    char site[VERDICT_SITE_BYTES];
};

/* Why the first of a communicator's issued calls has not begun though the communicator is free, where that is known. */
enum verdict_before { VERDICT_BEFORE_NOTHING = 0, VERDICT_BEFORE_STREAM, /* a call before it in its stream has not ended */
                      VERDICT_BEFORE_EVENT }; /* its stream waits for an event that follows a call of another stream */
struct verdict_behind {
    uint8_t before;           /* enum verdict_before */
    uint8_t p2p;              /* VERDICT_SEND, VERDICT_RECV: that call is one, `root` is its peer, `count` its bytes; 0: a collective */
    uint64_t comm_id;         /* of that call's communicator */
    uint32_t epoch;
    struct verdict_call call; /* zeroed where `before` is nothing */
};

/* A communicator that is made of this one by a call that others make, too, and that is no collective of it. */
enum verdict_makes { VERDICT_MAKES_NOTHING = 0, VERDICT_MAKES_GROUP, VERDICT_MAKES_SHRUNK }; /* uno_comm_create_group, uno_comm_shrink */
#define VERDICT_MAKING_RANKS 1024
struct verdict_making {
    uint8_t kind;             /* enum verdict_makes; the last one that this rank called */
    uint64_t id;              /* equal on all ranks that make the same */
    uint64_t since_ns;        /* own clock: it waits in the call since then; 0 = the call has returned */
    uint64_t set[VERDICT_MAKING_RANKS / 64]; /* who takes part: bit comm rank, of the first so many ranks */
};

#define VERDICT_MOST_PASSED 1024u
#define VERDICT_NAME_BYTES 64
#define VERDICT_TEXT_BYTES 256
struct verdict_comm {         /* one communicator as one rank sees it */
    uint64_t id;              /* equal on all its ranks */
    uint32_t epoch;           /* of shrink; communicators of another epoch are others */
    char name[VERDICT_NAME_BYTES]; /* "" = none; told as comm "dp", else by id */
    int32_t rank, size;       /* own comm rank, members */
    int32_t *members;         /* job rank of each; size entries; NULL = comm rank and job rank are the same (the whole job) */
    bool destroyed;           /* finalized or freed by this rank: it calls here no more */
    uint32_t newest;          /* number of the newest collective begun; 0 = none */
    uint64_t newest_order;    /* order of issue of that one, as in verdict_call; 0 = not known */
    uint32_t nevents, np2p, ncalls;
    struct verdict_event *events; /* the newest ones, ascending and without gaps, up to and with `newest` */
    struct verdict_p2p *p2p;
    struct verdict_call *calls;   /* in order of issue */
    struct verdict_behind behind; /* of calls[0] */
    uint32_t passed_number;   /* all_gather_v, reduce_scatter_v: the newest one's number, and its counts per comm rank as this rank */
    uint32_t npassed;         /* ... passes them; the first VERDICT_MOST_PASSED at most */
    uint64_t *passed;
    struct verdict_making making;
    uint64_t sends, receives, sent_bytes, received_bytes; /* that have ended well, so far */
    uint64_t waited_ns;       /* so long its collectives have waited so far, where a wait took longer than 50 us */
    uint32_t left_out;        /* p2p entries and calls that had no room in the record; verdict_encode adds to it */
    int32_t failed;           /* uno_err of the first cause; UNO_OK = it works */
    int32_t failed_rank;      /* job rank where the cause began; -1 = not known */
    uint64_t failed_ns;       /* own clock */
    char failed_text[VERDICT_TEXT_BYTES];
};

enum verdict_status {
    VERDICT_UNKNOWN = 0,      /* nothing was heard and nothing is known: no record */
    VERDICT_REPORTED,         /* its steward answered */
    VERDICT_SILENT,           /* asked, no answer; status_since_ns: since when nothing was heard */
    VERDICT_DEAD,             /* ended without goodbye; status_since_ns: when that was seen */
    VERDICT_LEFT,             /* ended, or finalized, in order */
    VERDICT_NEVER_JOINED      /* the others wait for it in joining */
};
enum verdict_ended {          /* how a process ended */
    VERDICT_ENDED_UNKNOWN = 0,
    VERDICT_ENDED_EXIT,       /* ended_code: exit status */
    VERDICT_ENDED_SIGNAL,     /* ended_code: signal number */
    VERDICT_ENDED_HOST,       /* with its host, or its hub told no more */
    VERDICT_ENDED_AGENT       /* with the launcher's process on its host, which signal ended_code ended; 0: it ended otherwise */
};
enum verdict_run {            /* what its main thread, or the thread that last called us, does */
    VERDICT_RUN_UNKNOWN = 0,
    VERDICT_RUN_RUNS,         /* on a processor or ready to be */
    VERDICT_RUN_SLEEPS,       /* in no system call that could be named */
    VERDICT_RUN_SYSCALL,      /* waits in system call `syscall` */
    VERDICT_RUN_DISK,         /* uninterruptible (state D) */
    VERDICT_RUN_STOPPED,      /* SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU (state T) */
    VERDICT_RUN_TRACED,       /* held by a debugger (state t); tracer_pid */
    VERDICT_RUN_FROZEN,       /* its cgroup is frozen */
    VERDICT_RUN_ZOMBIE,
    VERDICT_RUN_HEADLESS,     /* that thread has ended, and others of the process live */
    VERDICT_RUN_REPLACED      /* exec: another program runs in the process, `successor` */
};
struct verdict_process {      /* what /proc, the signal for stacks and a look at them from outside tell; sampled by itself or by its host's hub */
    uint8_t run;              /* enum verdict_run */
    uint64_t run_since_ns;    /* own clock: stopped, traced, frozen or in this system call at least since then */
    uint64_t sample_ns;       /* length of the sample that the two shares are of; 0 = none was taken */
    uint8_t state;            /* of its main thread as ps shows it, 'R' 'S' 'D' ..., at taken_ns; 0 = not known */
    uint64_t cpu_ns;          /* processor time of all its threads so far, at taken_ns; 0 = not known */
    uint32_t cpu_permille;    /* of one processor used by the process in the sample; may exceed 1000 */
    uint32_t queue_permille;  /* share of the sample in which that thread was ready and had no processor (schedstat) */
    int32_t tracer_pid;       /* 0 = none */
    char tracer[32];          /* its command name */
    char syscall[24];         /* "read", "futex"; "" = not in one or not known */
    char wchan[40];           /* "" = not known */
    char successor[24];       /* command name of the program that took the place of the one that had joined; "" = none, or not known */
    char cgroup[96];          /* frozen, quota (and how much) or OOM: which; "" = not known */
    bool in_library;          /* the sampled thread is inside a call of ours */
    char python[96];          /* "train.py:212 in step()", from the binding; "" = no Python or not known */
    char stack[768];          /* native frames, top first, one a line: "step+0x2c (program)"; "" = not known */
};

enum verdict_path {
    VERDICT_PATH_OK = 0,
    VERDICT_PATH_SILENT,      /* nothing comes back, not even acknowledgements of the other kernel */
    VERDICT_PATH_RESET,
    VERDICT_PATH_REFUSED,
    VERDICT_PATH_NO_ROUTE,    /* network or host unreachable */
    VERDICT_PATH_MUTE         /* the other kernel acknowledges, but no steward answers: the host is reachable, its processes stand */
};
struct verdict_link {         /* one path from this rank's host to another one, as this host sees it */
    int32_t from_host, to_host; /* host indexes */
    uint8_t state;            /* enum verdict_path */
    uint64_t since_ns;        /* own clock of the reporter: nothing was heard, or refused, since then */
    char from_if[16], to_if[16]; /* interface names; "" = not known */
    char from_addr[48], to_addr[48]; /* printable */
    bool from_if_down;        /* the own interface is down */
    uint64_t measured_bps;    /* bytes/s moved over it lately while there was something to send; 0 = not measured */
    uint64_t expected_bps;    /* the most it has moved so far, or computed from the link's speed; 0 = not known */
    uint64_t lately_bps;      /* bytes/s over the last second, whatever there was to send */
    uint64_t behind_ns;       /* for so long up to now more has lain ready than it takes, and it has moved far less than expected_bps ... */
    uint64_t behind_bps;      /* ... namely so many bytes/s; behind_ns 0 = not so */
};

struct verdict_offset {       /* of one rank's own clock against another one */
    bool known;
    int64_t offset_ns;        /* other = own + offset */
    uint64_t error_ns;        /* +- */
};

#define VERDICT_CHILDREN 8
struct verdict_rank {
    int32_t rank;             /* of the job */
    uint8_t status;           /* enum verdict_status */
    uint8_t ended;            /* enum verdict_ended; DEAD and LEFT */
    int32_t ended_code;
    bool oom_kill;            /* memory.events of its cgroup counted an oom_kill about then */
    int32_t host_index;       /* hosts of the job, from 0; -1 = not known */
    char host[64];            /* name; "" = not known */
    int32_t pid;              /* in its own pid namespace; 0 = not known */
    int32_t reporter;         /* rank that filled this; -1 = the launcher or a tool */
    uint64_t taken_ns;        /* own clock: when the facts were taken */
    uint64_t refused;         /* connections that its process has refused: strangers, not a fault of the job */
    uint64_t taken_real_ns;   /* CLOCK_REALTIME at the same moment: aligns files of several hosts */
    struct verdict_offset clock; /* against the host where the records of all ranks were gathered, for a judge there and then */
    uint64_t status_since_ns; /* own clock; SILENT, DEAD, LEFT, NEVER_JOINED. REPORTED: it joins since then and has had no communicator; 0 = it has */
    uint32_t children_left;   /* DEAD: processes it had forked that still hold what it had open */
    int32_t children[VERDICT_CHILDREN]; /* the first of them; 0 = no more */
    uint64_t job;             /* job id, so that records of different jobs are not mixed; 0 = any */
    int32_t size;             /* ranks of the job */
    char program[64];         /* command name; "" */
    struct verdict_process process;
    uint32_t comms_left_out, links_left_out; /* had no room in the record; verdict_encode adds to them */
    uint32_t ncomms, nlinks;
    struct verdict_comm *comms;
    struct verdict_link *links; /* at least one rank a host reports its host's links */
};
/* Free what hangs on r (comms, members, events, p2p, calls, passed, links), all from malloc, and zero it. */
void verdict_rank_free(struct verdict_rank *r);

/* ---- records (verdict_record.c) ----------------------------------------------------------------------------------- */
/* One rank's facts as bytes, for control frames and files: magic, version, length, hash, then little-endian fields. */
#define VERDICT_RECORD_VERSION 9
#define VERDICT_RECORD_LIMIT (1u << 20) /* no record is longer */
#define VERDICT_RECORD_MIN (16u << 10)  /* a buffer of this size always holds the rank itself with its newest facts */

/* Write r into buf; *bytes = length. What does not fit into cap is left out, least wanted first: links over 64, oldest events,
 * calls, p2p, stack, then communicators in which nothing runs, then the last ones; what is left out is counted. UNO_ERR_ARG when cap < VERDICT_RECORD_MIN. */
uno_err verdict_encode(const struct verdict_rank *r, void *buf, size_t cap, size_t *bytes);
/* Read a record; nothing in it is believed before it is checked. *r is freed with verdict_rank_free. UNO_ERR_PARSE with a
 * sentence: too short, cut, damaged, not a record, of another version (which). UNO_ERR_MEMORY. On failure *r is zeroed. */
uno_err verdict_decode(const void *data, size_t bytes, struct verdict_rank *r);
/* Length of the record that begins at data (for files and streams with several), from its first VERDICT_HEAD_BYTES. */
#define VERDICT_HEAD_BYTES 32
uno_err verdict_record_bytes(const void *data, size_t bytes, size_t *record_bytes);

/* ---- all ranks' facts (verdict_facts.c) ---------------------------------------------------------------------------- */
struct verdict_facts {
    uint64_t job;             /* 0 = of the first record */
    int32_t size;             /* ranks of the job */
    struct verdict_rank *ranks;     /* size entries, in job order; status UNKNOWN = no record */
    struct verdict_offset *offsets; /* size entries, against the judge's clock. Not known: records are aligned by taken_real_ns, if the judge's is known */
    uint64_t now_ns;          /* judge's clock; all durations end here. 0 = post mortem: the latest taken_ns */
    uint64_t now_real_ns;     /* CLOCK_REALTIME at now_ns; 0 = not known */
    uint64_t stall_ns;        /* what waits for less is not stuck: the setting `stall`, 5 s; 0 = 5 s */
    bool joining;             /* the job has not joined yet: NEVER_JOINED ranks are the fault. Who is told of nobody may have joined, sees it by the records */
    char what_job[64];        /* name of the job for the sentence; "" */
};
struct verdict_rank verdict_rank_unknown(int rank, int size); /* of which nothing is known */
/* What r tells goes over into *have, facts of the same rank of the same job. Takes *r over. */
uno_err verdict_rank_merge(struct verdict_rank *have, struct verdict_rank *r) UNO_MUST_CHECK;
uno_err verdict_facts_new(struct verdict_facts *f, int size); /* every rank UNKNOWN */
void verdict_facts_free(struct verdict_facts *f);
/* Decode a record and put it at its rank. A second record of a rank is merged: what tells more wins (dead and left over reported,
 * newer over older), communicators that only one of them has are kept. UNO_ERR_PARSE: another job, another size, rank out of range. */
uno_err verdict_facts_add(struct verdict_facts *f, const void *record, size_t bytes);
/* As verdict_facts_add for a rank in memory; takes over what hangs on *r, also on failure. */
uno_err verdict_facts_take(struct verdict_facts *f, struct verdict_rank *r);
/* What the judge knows itself about a rank without a record (member table, silence, a pidfd): host, pid, status, since when by the
 * judge's clock. Never overwrites a record's ledger; a status that tells more than the present one replaces it. */
void verdict_facts_note(struct verdict_facts *f, int rank, enum verdict_status status, uint64_t since_judge_ns, const char *host,
                        int host_index, int pid);
/* How it ended, of a rank that is dead and of which no record says it. cgroup: NULL unless the kernel was out of memory. */
void verdict_facts_ended(struct verdict_facts *f, int rank, enum verdict_ended ended, int code, const char *cgroup);

/* ---- the verdict (verdict.c) ----------------------------------------------------------------------------------------- */
/* X(kind, name, is it a fault?) - names are stable, for --json and counters. */
#define VERDICT_KINDS(X)                                                                                            \
    X(NONE, "none", 0)                   /* nothing is wrong, or nobody waits long enough */                        \
    X(NEVER_JOINED, "never_joined", 1)   /* ranks that the others wait for in joining */                            \
    X(DEAD, "dead", 1)                   /* a process ended and others need it */                                   \
    X(MISMATCH, "mismatch", 1)           /* ranks made calls that do not fit together */                            \
    X(OFF_BY_ONE, "off_by_one", 1)       /* a rank skipped an operation, or made one more */                        \
    X(ABORTED, "aborted", 1)             /* the program aborted a communicator, or a call failed first */           \
    X(UNREACHABLE, "unreachable", 1)     /* no path between hosts */                                                \
    X(STOPPED, "stopped", 1)             /* SIGSTOP, debugger, frozen cgroup */                                     \
    X(COMM_ORDER, "comm_order", 1)       /* communicators used in different order */                                \
    X(P2P_UNMATCHED, "p2p_unmatched", 1) /* send without receive, receive without send, crossed sends */            \
    X(LEFT, "left", 1)                   /* a rank ended or finalized in order and others wait for it */            \
    X(SILENT, "silent", 1)               /* a process that lives, does not answer, and is not seen to be stopped */ \
    X(RANK_ABSENT, "rank_absent", 1)     /* a rank does not make the call; it sleeps or waits elsewhere */          \
    X(SLOW_RANK, "slow_rank", 1)         /* starved of processors */                                                \
    X(SLOW_LINK, "slow_link", 1)         /* far under what was expected, or under the others */                     \
    X(COMPUTING, "computing", 0)         /* a rank is late because it computes: a fact, no fault */                 \
    X(SLOW, "slow", 0)                   /* the operation moves, only slowly for its size: a fact */                \
    X(FAULT_OF_OURS, "fault_of_ours", 1) /* all have made the same call, all paths work, nothing moves */           \
    X(UNKNOWN, "unknown", 1)             /* somebody is stuck and the facts do not tell why */
enum verdict_kind {
#define VERDICT_KIND_ENUM(kind, name, fault) VERDICT_KIND_##kind,
    VERDICT_KINDS(VERDICT_KIND_ENUM)
#undef VERDICT_KIND_ENUM
    VERDICT_KIND_COUNT
};
enum verdict_sure { VERDICT_SURE = 0, VERDICT_LIKELY, VERDICT_GUESS }; /* seen; follows unless a report is missing; best reading */

#define VERDICT_MAX_CULPRITS 16
#define VERDICT_MAX_LINES 24
struct verdict_line {         /* one piece of evidence */
    int32_t rank;             /* -1 = of no single rank (a link) */
    uint64_t age_ns;          /* how long it has been so; 0 = not known */
    char text[640];           /* names rank, host, pid and how long itself */
};
struct verdict {              /* about 20 KB; belongs to the caller, holds no pointers */
    enum verdict_kind kind;
    enum verdict_sure sure;
    bool fault;               /* false: a fact that is told once, no alarm (NONE, COMPUTING, SLOW) */
    uint64_t identity;        /* same fault, same number: a verdict is told once. Does not depend on times */
    uint64_t comm_id;         /* 0 = of no communicator */
    uint32_t number;          /* of the collective; 0 = none */
    uint64_t age_ns;          /* how long it has been so */
    int32_t nculprits;        /* all of them; culprits holds the first VERDICT_MAX_CULPRITS, ascending */
    int32_t culprits[VERDICT_MAX_CULPRITS];
    int32_t nvictims;         /* ranks that wait because of it */
    char headline[1024];      /* the sentence, complete in itself */
    char victims[256];        /* "ranks 0-2, 4-7 wait for it"; part of the headline too */
    char what_next[384];      /* what to do */
    int32_t nlines;
    struct verdict_line lines[VERDICT_MAX_LINES];
    int32_t nothers;          /* other primary faults, told shortly in others[] */
    char others[4][256];
};
/* Judge. UNO_OK also when nothing is wrong (kind NONE). UNO_ERR_MEMORY; UNO_ERR_ARG for facts without ranks. Runs in some
 * milliseconds for 1 000 ranks; memory in proportion to ranks and communicators, all given back. */
uno_err verdict_judge(const struct verdict_facts *f, struct verdict *v);
const char *verdict_kind_name(enum verdict_kind kind);
/* Two ranks made different calls a and b after the same history[n], oldest first. Programs are loops: 1 when b's call is what comes next and
 * a's what comes after that, so that a has skipped one (or repeated the one before); -1 when b has; 0 when the calls do not tell. */
int verdict_skipped(const struct verdict_event *history, uint32_t n, const struct verdict_event *a, const struct verdict_event *b);
/* The same call at the same place in the program, as far as one can see. */
bool verdict_same_call(const struct verdict_event *a, const struct verdict_event *b);
/* The whole verdict for people: headline, evidence, what to do; several lines. Returns what snprintf would. */
int verdict_print(const struct verdict *v, char *buf, size_t buf_bytes);

/* Words that other rooms use too. Each writes into buf and returns it. */
char *verdict_ranks_text(char *buf, size_t buf_bytes, const int32_t *ranks, size_t n); /* ascending: "ranks 0-2, 4" */
char *verdict_age_text(char *buf, size_t buf_bytes, uint64_t ns);   /* "0.3 s", "61.4 s", "12 min 5 s", "3 h 10 min" */
char *verdict_signal_text(char *buf, size_t buf_bytes, int signal); /* "signal 9 (SIGKILL)" */

#endif
