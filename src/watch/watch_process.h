/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_process.h - one process of this host, seen from outside: is it still that process, has it ended, and how. Private to
 * src/watch; no threads, no sockets.
 */
#ifndef UNO_WATCH_PROCESS_H
#define UNO_WATCH_PROCESS_H

#include "base/base.h"

struct process_eye {
    int32_t pid;
    uint64_t start_ticks; /* 0 = unknown */
    int pidfd;            /* readable once the process has ended; -1 = must be polled with process_ended */
    bool unproved;        /* process_prove is still to be called */
};

/* Begin to watch eye->pid, with a pidfd if the kernel gives one (otherwise errno says why and pidfd is -1). false: that process
 * is not there any more; the pid may belong to another one by now. */
bool process_watch(struct process_eye *eye);
/* The same in one system call where there is a pidfd: whether it is bound to the right process is left to process_prove, which reads
 * /proc. Until then an end that the pidfd tells is an end (of who took the pid over, at the worst: then the right one has ended as
 * well), and no end may mean nothing. */
bool process_open(struct process_eye *eye);
bool process_prove(struct process_eye *eye); /* false: it is another one, and eye is forgotten */
/* For polling: has it ended? */
bool process_ended(const struct process_eye *eye);
/* Has the main thread of this very process ended, and no thread is left but `ours`? */
bool process_is_abandoned(int ours);
/* How it ended, as wait() gives it. false: not known (yet). */
bool process_status(const struct process_eye *eye, int *status);
/* The same as words behind a subject: "was killed by signal 9 (SIGKILL)", "exited with status 1". */
void process_status_text(int status, char *buf, size_t buf_bytes);
/* Its number in its own PID namespace; 0 = not known. */
int32_t process_own_pid(int32_t pid);
void process_forget(struct process_eye *eye); /* closes */

#endif
