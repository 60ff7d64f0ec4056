/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict_inner.h - what the files of the judge share: the communicators put together from all ranks' views, who waits for whom,
 * and the faults that the rules find. Private to src/verdict. All times in here are on the judge's clock.
 */
#ifndef UNO_VERDICT_INNER_H
#define UNO_VERDICT_INNER_H

#include "verdict/verdict.h"

struct seat {                 /* one rank's view of one communicator */
    const struct verdict_comm *comm;
    int rank;                 /* of the job */
};
struct group {                /* one communicator */
    const struct seat *seats; /* who reported it, ascending by comm rank, each once */
    uint32_t nseats;
    int size;
    const int32_t *members;   /* NULL = comm rank and job rank are the same */
    uint32_t number;          /* the lowest collective that runs somewhere; 0 = none does */
    const struct verdict_event *sample; /* that call, of the rank that waits longest */
    uint64_t since_ns;        /* the first rank waits in it since then */
    uint64_t full_ns;         /* the last of those who have called it did so then */
    uint64_t moved_ns;        /* something of it last moved then; 0 = nobody counts */
    bool waited;              /* the program of some rank stands still for it */
    bool mismatched;          /* its calls do not fit together: who waits in it waits because of that */
    int32_t *absent;          /* job ranks without which `number` cannot end: not called, or called and not able to go on */
    int32_t nabsent;
};

struct wait {                 /* a rank stands still */
    int rank;                 /* of the job */
    struct group *group;
    const struct verdict_p2p *p2p; /* NULL = in the group's collective, for all in group->absent */
    int on;                   /* p2p: job rank of the peer; -1 = any */
    uint64_t since_ns;
};

struct fault {
    enum verdict_kind kind;
    enum verdict_sure sure;
    int priority;             /* of its rule: 0 first */
    uint64_t since_ns;        /* 0 = not known */
    bool told;                /* known only from the sentence of a failed communicator */
    const struct group *group;
    uint32_t number;
    const struct wait *wait;  /* the send or receive that waits for the culprit */
    const struct seat *maker; /* who waits longest in a call that makes a communicator of `group` */
    const struct verdict_comm *failed;
    const struct verdict_link *link;
    int link_reporter;
    int shift;                /* off by one: +1 it skipped one, -1 it made one more */
    bool holds_up;            /* SLOW_RANK, SLOW_LINK: nothing stands for long, but all goes at its pace */
    struct wait **cycle;      /* ncycle waits, each on the rank of the next one */
    int ncycle;
    int32_t *culprits;        /* ascending */
    int nculprits;
};
#define KEPT_FAULTS 64 /* of all that are found, the earliest are compared with each other */

struct judge {
    const struct verdict_facts *f;
    int size;
    uint64_t now_ns, stall_ns;
    int64_t *offset_ns;       /* by rank */
    uint64_t *error_ns;       /* by rank */
    struct seat *seats;
    struct group *groups;
    uint32_t ngroups;
    struct wait *waits;       /* in rank order */
    uint32_t nwaits;
    uint32_t *first_wait;     /* size + 1 entries */
    bool *blocked;            /* by rank: it has a wait that is old enough to explain why others wait for it */
    unsigned char *mark;      /* by rank, scratch of reach() */
    struct fault *faults;
    int nfaults;
    size_t cap_faults;
    bool joining;             /* the job has not joined yet */
    bool no_memory;
};

/* verdict_graph.c: ranks, groups, waits. */
uno_err graph_build(struct judge *j);
void graph_free(struct judge *j);
uint64_t at_judge(const struct judge *j, int rank, uint64_t own_ns); /* 0 stays 0 */
uint64_t age_of(const struct judge *j, uint64_t judge_ns);           /* 0 for 0 and for the future */
int member_of(const struct group *g, int comm_rank);                 /* job rank, -1 when out of range */
const struct seat *seat_of(const struct group *g, int job_rank);     /* NULL = that rank did not report it */
const struct verdict_event *event_at(const struct verdict_comm *c, uint32_t number); /* NULL = not in what was kept */
const struct verdict_event *running(const struct verdict_comm *c);   /* NULL = none */
const struct group *group_of(const struct judge *j, const struct verdict_comm *c);
bool is_ahead(uint32_t a, uint32_t b);                               /* numbers: a after b, also around zero */
bool replaced(const struct verdict_rank *r);                         /* by exec: no call will come from it any more */
bool stands(const struct verdict_rank *r);                           /* stopped, traced, frozen */
bool joins(const struct verdict_rank *r);                            /* it waits in joining */
bool gone(const struct verdict_rank *r);                             /* dead, left, never joined, silent, unheard of */
/* verdict_reach.c */
/* Mark culprits with 2 and everyone who waits for them, directly or not, with 1, in j->mark. Returns how many wait. */
int reach(struct judge *j, const int32_t *culprits, int n);
/* A circle of waits, into *cycle (allocated) and *n; n 0 = there is none. The ranks in `used` are left out. */
uno_err find_cycle(struct judge *j, const bool *used, struct wait ***cycle, int *n);

/* verdict_calls.c: do calls fit together? */
bool calls_differ(const struct verdict_event *a, const struct verdict_event *b);
/* The first number at which a group's calls differ; 0 = none that can be seen. by_signature: only the signatures do. */
uint32_t first_difference(const struct group *g, bool *by_signature);
struct call_class { const struct seat *seat; const struct verdict_event *event; int n; };
#define MOST_CLASSES 6
/* Sort the calls of `number` into classes, the largest first. Returns their number; of[i] = class of seat i, -1 = none. */
int classes_of(const struct group *g, uint32_t number, bool by_signature, struct call_class *classes, signed char *of);
/* Is a's ledger b's, shifted by one from `number` on? +1: a skipped one, -1: a made one more, 0: no. *strong: seen more than once. */
int shifted(const struct verdict_comm *a, const struct verdict_comm *b, uint32_t number, bool *strong);
/* Of two ledgers with equal calls: the first number at which call sites part for good, by one. 0: none. */
uint32_t site_shift(const struct verdict_comm *a, const struct verdict_comm *b, int *shift);

/* verdict_rules.c, verdict_rules_calls.c, verdict_rules_paths.c, verdict_rules_slow.c: find all faults. */
void rules_run(struct judge *j);
void find_mismatches(struct judge *j);
void find_failed(struct judge *j);
void find_unreachable(struct judge *j);
void find_inside(struct judge *j);
void find_starved(struct judge *j);
void find_behind(struct judge *j);
void find_making(struct judge *j);                                   /* verdict_making.c */
int reach_making(struct judge *j, const struct fault *x);            /* as reach(): who waits in that call, in j->mark */
enum verdict_kind absent_kind(const struct judge *j, const struct group *g, int rank, bool in_p2p); /* what keeps this rank, seen by itself */
uint64_t usual_rate(const struct judge *j);                          /* median of what paths move; 0 = of too few is known */
bool host_in(const struct judge *j, const struct group *g, int host); /* is a rank of this host in it? */
bool shares_quota(const struct judge *j, const struct verdict_rank *r); /* with another rank: then the job is short of processors, not the rank */
bool failed_before(const struct verdict_rank *r);                    /* it ended after, and because, a communicator had failed elsewhere */
bool ended_because(const struct verdict_rank *r, const struct verdict_comm *c); /* it ended by itself after, and because, this one had failed elsewhere */
int32_t *rank_list(struct judge *j);                                 /* room for all ranks; NULL sets no_memory */
void sort_ranks(int32_t *list, int n);
bool old_enough(const struct judge *j, uint64_t since_ns);           /* for longer than the stall limit */
bool starved(const struct verdict_process *p);                       /* ready to run, and without a processor most of the time */
bool others_compute(const struct verdict_process *p);                /* it waits for threads of its own process that use a processor */
bool job_wants(int alike, int all);                                  /* `alike` of so many ranks want for processors: the job is large for its machines */
uint64_t first_joining(const struct judge *j);                        /* since when the first rank waits in joining; 0 = none does */
bool somebody_waits(const struct judge *j, const struct group *g);   /* in its collective */
struct fault *fault_add(struct judge *j, enum verdict_kind kind, const int32_t *culprits, int n); /* NULL: no memory. Valid until the next one is added */

/* verdict_say.c: words. */
struct out { char *buf; size_t cap, len; };
void say(struct out *o, const char *fmt, ...) UNO_PRINTF(2, 3);
struct out out_of(char *buf, size_t cap);
void say_age(struct out *o, uint64_t ns);
void say_rank(struct out *o, const struct judge *j, int rank);       /* "rank 3 (pid 812 on n2)" */
void say_ranks(struct out *o, const struct judge *j, const int32_t *ranks, int n); /* one by one while they are few */
void say_joining(struct out *o, const struct judge *j); /* "2 of 4 ranks wait in joining, ranks 1, 3 are not seen to join on this host" */
void say_plain_ranks(struct out *o, const int32_t *ranks, int n);    /* "ranks 0-2, 4" */
void say_operation(struct out *o, const struct judge *j, const struct group *g, uint32_t number); /* all_reduce #17 of comm "dp" */
void say_group(struct out *o, const struct judge *j, const struct group *g);              /* ' of comm "dp"', or nothing */
void say_p2p(struct out *o, const struct judge *j, const struct wait *w); /* "send (tag 3, 4 KB) to rank 1" */
void say_doing(struct out *o, const struct judge *j, int rank);      /* "it computes in step() at train.py:212" */
void say_last(struct out *o, const struct judge *j, int rank);       /* "its last operation ... ended 61.4 s ago" */
void say_ended(struct out *o, const struct judge *j, const struct verdict_rank *r, int n); /* "was killed by signal 9 (SIGKILL)";
                                                                                        n: so many ranks are the subject */
/* verdict_headline.c, verdict_say_calls.c, verdict_say_paths.c: sentences. */
void say_stuck(struct out *o, const struct judge *j, const struct fault *x); /* 'all_reduce #17 of comm "dp" is stuck for 6.2 s: ' */
const char *missing(const struct fault *x, bool for_good); /* what the others miss from a culprit: "never called it" */
bool sends(const struct verdict_p2p *p);
void add_victims(struct out *o, struct judge *j, const struct fault *x); /* "; ranks 0-2 wait for it" */
void say_silent(struct out *o, const struct judge *j, int rank);
void say_so_for(struct out *o, const struct judge *j, const struct fault *x);
void say_wait(struct out *o, const struct judge *j, const struct wait *w);
void say_pair(struct out *o, const struct judge *j, const struct verdict_link *l);
void say_mismatch(struct out *o, struct judge *j, const struct fault *x);
void say_off_by_one(struct out *o, struct judge *j, const struct fault *x);
void say_comm_order(struct out *o, struct judge *j, const struct fault *x);
void say_unmatched(struct out *o, struct judge *j, const struct fault *x);
void say_unreachable(struct out *o, struct judge *j, const struct fault *x);
void say_slow_link(struct out *o, struct judge *j, const struct fault *x);
void say_slow(struct out *o, struct judge *j, const struct fault *x);
void say_making(struct out *o, struct judge *j, const struct fault *x);
void say_ours(struct out *o, struct judge *j, const struct fault *x);
void headline(struct out *o, struct judge *j, const struct fault *x);
void victims(struct out *o, const struct judge *j, int nculprits);   /* after reach() */
/* verdict_advice.c */
void what_next(struct out *o, const struct judge *j, const struct fault *x);
void evidence(struct verdict *v, struct judge *j, const struct fault *x);

#endif
