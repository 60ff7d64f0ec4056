/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_proc.h - what /proc and cgroupfs tell of a process of this host, without stopping it and without being its tracer: what its
 * threads do, how much of a processor they get, who holds it. Private to src/watch; no threads, no sockets.
 */
#ifndef UNO_WATCH_PROC_H
#define UNO_WATCH_PROC_H

#include "base/base.h"
#include "verdict/verdict.h"

struct proc_map { uint64_t start, end, offset, device, inode; char path[256]; };
/* Executable mappings of files, in order of addresses; process: "self" or a pid. Returns how many of at most `most`. */
size_t proc_maps(const char *process, struct proc_map *maps, size_t most);
void proc_command(int32_t pid, char *buf, size_t buf_bytes);       /* its command name; "" = not known */
void proc_program(int32_t pid, char *buf, size_t buf_bytes);       /* what a person calls it: its file, of Python its script or module */
void proc_cgroup(const char *process, char *buf, size_t buf_bytes);/* folder of its memory controller; "" = not known */
uint64_t proc_oom_kills(const char *cgroup);                       /* counted there so far; 0 = none or not known */
bool proc_owner(int32_t pid, uint32_t *uid);                        /* whose it is; false = not known */
/* Time on a processor and time ready without one, in nanoseconds, of one thread so far. */
bool proc_thread_times(int32_t pid, int32_t tid, uint64_t *cpu_ns, uint64_t *queue_ns);
/* "/job (a quota of 50 % of a processor)": the cgroup with a quota that binds this process most; "" = none. */
void proc_quota(int32_t pid, char *buf, size_t buf_bytes);
uint64_t proc_start_stack(int32_t pid);                            /* where its main thread's stack begins, in its memory; 0 = not known */
/* Has another program taken its place by exec? tid: a thread that only that ends, or the end of the process; start_stack: what it was. */
bool proc_replaced(int32_t pid, int32_t tid, uint64_t start_stack);
bool proc_frozen(int32_t pid, char *cgroup, size_t cgroup_bytes);  /* and which one; it may be one above it that was frozen */

/* A look at a process takes two moments: between them its threads run or do not. The caller sleeps, once for many of them. */
struct proc_look {
    int32_t pid, tid;         /* tid: the thread to look at; falls back to the main thread */
    uint64_t at_ns, cpu_ns, queue_ns;
    bool there;
};
void proc_look_begin(struct proc_look *look, int32_t pid, int32_t tid);
/* Fill everything of *p but python, stack and in_library. */
void proc_look_end(const struct proc_look *look, struct verdict_process *p);
char proc_state(int32_t pid, int32_t tid);                         /* R S D T t Z X I, 0 = not known */
char proc_used(int32_t pid, uint64_t *cpu_ns);                     /* its state, and the processor time of all its threads so far (in ticks of 10 ms) */
/* Where a thread is, and would a signal whose handler has SA_RESTART change what its program does? That is so in calls which the kernel
 * ends with EINTR whatever the flags (sleeps, poll, timed waits: signal(7)). Looked at twice: whoever has not slept in between
 * (same `switches`) is hardly about to enter such a call. */
struct proc_spot { uint64_t switches; bool undisturbed; };
bool proc_spot(int32_t pid, int32_t tid, struct proc_spot *spot);  /* false: the thread is gone, or hidden */
/* Where a thread waits in the kernel, where its stack ends, how often it has waited before; false: it runs, or may not be seen. */
struct proc_waits { uint64_t pc, stack, switches; };
bool proc_waits(int32_t pid, int32_t tid, struct proc_waits *waits);
/* May signal `sig` be sent to that thread to be handled soon: caught by the process, not blocked by the thread? */
bool proc_handles(int32_t pid, int32_t tid, int sig);

#endif
