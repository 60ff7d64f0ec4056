/* SPDX-License-Identifier: Apache-2.0 */
/*
 * processes.h - for tests that need several processes: fork n of them, run a function in each, and look at what each returned and
 * said. Results travel through shared memory; a process that crashes or hangs leaves `ended` false.
 */
#ifndef TEST_PROCESSES_H
#define TEST_PROCESSES_H

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"

struct result { bool ended; uno_err err; pid_t pid; double seconds; char text[ERR_TEXT_BYTES]; };

/* Wait until *flag is true, at most `seconds`. */
static inline bool wait_until(bool (*yes)(void *arg), void *arg, double seconds)
{
    uint64_t deadline = clock_after(seconds);
    while (!yes(arg)) {
        if (clock_ns() > deadline)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return true;
}

struct processes { int n; struct result *results; };

/* They begin when all are there: a thread of this process that serves the first ones while others are forked may hold a lock of the
 * sanitizers' allocators, which nobody would ever release in the child. */
static inline struct processes processes_start(int n, uno_err (*run)(int index, void *arg), void *arg)
{
    _Atomic int *gate = mmap(NULL, sizeof *gate, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0); /* some have no descriptors */
    struct processes p = {n, mmap(NULL, sizeof(struct result) * (size_t)n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)};
    for (int i = 0; i < n; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            struct result *r = &p.results[i];
            alarm(30);
            while (!*gate)
                nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
            uint64_t start = clock_ns();
            r->err = run(i, arg);
            r->seconds = (double)(clock_ns() - start) / 1e9;
            snprintf(r->text, sizeof r->text, "%s", r->err == UNO_OK ? "" : err_text());
            r->ended = true;
            _exit(0);
        }
        p.results[i].pid = pid;
    }
    *gate = 1;
    munmap((void *)(uintptr_t)gate, sizeof *gate);
    return p;
}

static inline void processes_wait(struct processes *p)
{
    for (int i = 0; i < p->n; i++)
        waitpid(p->results[i].pid, NULL, 0);
}

static inline void processes_free(struct processes *p)
{
    munmap(p->results, sizeof(struct result) * (size_t)p->n);
}

#endif
