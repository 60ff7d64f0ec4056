/* SPDX-License-Identifier: Apache-2.0 */
/*
 * faults.h - what the cases share. A case is a function that every rank runs in a forked process of its own; the parent waits for
 * all of them until the case's deadline, kills what is left, and judges from the results that lie in shared memory. A rank that finds
 * something wrong says so and exits with status 3.
 */
#ifndef TEST_FAULTS_H
#define TEST_FAULTS_H

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"

#define MAX_RANKS 8
#define MAX_KIDS 8

struct outcome {
    _Atomic int done;          /* err, text and at are written */
    uno_err err;
    uint64_t at_ns;
    char text[ERR_TEXT_BYTES];
};

struct shared {                /* between the parent and the ranks */
    _Atomic int have_id;
    uno_id id;
    _Atomic int stage[MAX_RANKS];  /* how far each rank is; a case gives it a meaning */
    _Atomic int ended;             /* ranks that the parent has collected */
    _Atomic int go;
    _Atomic uint64_t mark_ns;      /* when the fault happened */
    _Atomic int kids;              /* processes that a rank leaves behind */
    pid_t kid[MAX_KIDS];
    long left[MAX_RANKS];          /* of an armed fault */
    int port;
    struct outcome outcome[MAX_RANKS];
};
extern struct shared *sh;

enum { SHM = 1, TCP = 2, ANY = 3, ONCE = 4 }; /* where a case makes sense; ONCE: it chooses itself */
enum { QUIET = 1 };                           /* nothing may be said on stderr */

struct fault_case {
    const char *name;
    int ranks, carriers;
    double limit_s;            /* the parent kills everything afterwards, and the case has failed */
    void (*rank)(int rank);
    /* In the parent, after the end. statuses: of waitpid. NULL: every rank must have exited with 0. */
    void (*judge)(const int *statuses);
    void (*during)(const pid_t *pids); /* in the parent, while they run; may be NULL */
    int flags;
    int arg;                   /* for functions shared by several cases */
};
extern const struct fault_case *now_case;
extern int now_carrier;
extern const struct fault_case fault_cases_peers[], fault_cases_groups[], fault_cases_join[], fault_cases_calls[], fault_cases_memory[], fault_cases_shrink[],
    fault_cases_shrink_ends[], fault_cases_lend[];

void lend_occupy(const char *place); /* as a program of its own: memory at that place, see faults_lend.c */
void failed(const char *file, int line, const char *fmt, ...) UNO_PRINTF(3, 4);
/* In a rank: say it and exit(3). In the parent: note that the case failed. */
#define CHECK(cond, ...)                               \
    do {                                               \
        if (!(cond))                                   \
            failed(__FILE__, __LINE__, __VA_ARGS__);   \
    } while (0)

bool wait_for(bool (*yes)(void *arg), void *arg, double seconds);
void wait_stage(int rank, int stage);                 /* until that rank has come so far */
void wait_all_stages(int except, int stage);
void set_stage(int rank, int stage);

uno_comm *join_as(int rank, int size, const uno_config *config); /* must succeed */
uno_err try_join(int rank, int size, const uno_config *config, uno_comm **comm);
void get_id(int rank);                                /* rank 0 makes it, the others wait for it */
/* Keep what a call returned, and when. */
void note(int rank, uno_err err, const uno_comm *comm);
void check_failed_comm(uno_comm *comm, uno_err err); /* it gives that error in every way, and can be destroyed */
/* In the parent: rank must have returned err with `word` in its sentence, at most `within_s` after the mark (< 0: whenever). */
void expect(int rank, uno_err err, const char *word, double within_s);
void expect_exit(const int *statuses, int rank, int status);
void expect_signal(const int *statuses, int rank, int sig);
void expect_all_zero(const int *statuses);

#endif
