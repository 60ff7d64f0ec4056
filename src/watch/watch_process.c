/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_process.c - pidfds and /proc. A pidfd is bound to one process for ever; the start time in /proc/<pid>/stat proves that
 * it was bound to the right one.
 */
#include "watch/watch_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "watch/watch.h"

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

/* From linux/pidfd.h of Linux 6.13 and later, which older systems do not have. */
struct pidfd_info_v0 {
    uint64_t mask, cgroup;
    uint32_t ids[11];
    int32_t exit_code; /* as wait() reports it */
};
_Static_assert(sizeof(struct pidfd_info_v0) == 64, "the kernel knows this version by its size");
#define PIDFD_GET_INFO_V0 _IOWR(0xFF, 11, struct pidfd_info_v0)
#define PIDFD_INFO_EXIT_V0 (1ull << 3)

struct proc_stat {
    char state;           /* of the main thread */
    int threads;
    uint64_t start_ticks;
    bool has_exit_code;
    int exit_code;
};

/* Fields behind the last ')' of the command name, which may contain anything: state is number 3, threads 20, start time 22, exit code 52. */
static void parse_stat(char *line, struct proc_stat *st)
{
    char *save, *p = strrchr(line, ')');
    char *field = p ? strtok_r(p + 1, " \n", &save) : NULL;
    for (int number = 3; field; number++, field = strtok_r(NULL, " \n", &save)) {
        if (number == 3) {
            st->state = field[0];
        } else if (number == 20) {
            st->threads = (int)strtol(field, NULL, 10);
        } else if (number == 22) {
            st->start_ticks = strtoull(field, NULL, 10);
        } else if (number == 52) {
            st->exit_code = (int)strtol(field, NULL, 10);
            st->has_exit_code = true;
        }
    }
}

/* A main thread may end before the others of its process. */
static bool is_over(const struct proc_stat *st)
{
    return st->state == 'X' || (st->state == 'Z' && st->threads < 2);
}

enum look { LOOK_GONE, LOOK_BLIND, LOOK_OK }; /* blind: no descriptor left, no /proc: nothing is known */

static enum look read_stat(int32_t pid, struct proc_stat *st)
{
    char path[40], buf[2048];
    *st = (struct proc_stat){0};
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) { /* /proc may be hidden (hidepid), but not from signals */
        bool nothing = (errno == ENOENT || errno == ESRCH) && access("/proc/self/stat", F_OK) == 0;
        return nothing && kill(pid, 0) != 0 && errno == ESRCH ? LOOK_GONE : LOOK_BLIND;
    }
    ssize_t n = read(fd, buf, sizeof buf - 1);
    bool gone = n < 0 && errno == ESRCH;
    close(fd);
    if (n <= 0)
        return gone ? LOOK_GONE : LOOK_BLIND;
    buf[n] = 0;
    parse_stat(buf, st);
    return st->start_ticks ? LOOK_OK : LOOK_BLIND;
}

uint64_t watch_start_ticks(int32_t pid)
{
    struct proc_stat st;
    return read_stat(pid, &st) == LOOK_OK ? st.start_ticks : 0;
}

static bool is_same(const struct process_eye *eye, const struct proc_stat *st)
{
    return eye->start_ticks == 0 || st->start_ticks == eye->start_ticks;
}

bool process_open(struct process_eye *eye)
{
    eye->pidfd = -1;
    if (fault_hit("pidfd_open"))
        errno = ENOSYS;
    else
        eye->pidfd = fd_above_standard((int)syscall(SYS_pidfd_open, eye->pid, 0));
    int why = errno;
    if (eye->pidfd < 0 && why == ESRCH)
        return false;
    eye->unproved = true;
    bool there = eye->pidfd >= 0 || process_prove(eye);
    errno = why;
    return there;
}

/* After the opening: if the right process has the pid now, it had it then. */
bool process_prove(struct process_eye *eye)
{
    struct proc_stat st;
    eye->unproved = false;
    enum look look = read_stat(eye->pid, &st);
    bool there = look == LOOK_BLIND || (look == LOOK_OK && is_same(eye, &st));
    if (!there)
        process_forget(eye);
    else if (eye->start_ticks == 0)
        eye->start_ticks = st.start_ticks;
    return there;
}

bool process_watch(struct process_eye *eye)
{
    bool there = process_open(eye);
    int why = errno;
    if (there && eye->unproved)
        there = process_prove(eye);
    errno = why;
    return there;
}

bool process_ended(const struct process_eye *eye)
{
    struct proc_stat st;
    enum look look = read_stat(eye->pid, &st);
    return look == LOOK_GONE || (look == LOOK_OK && (!is_same(eye, &st) || is_over(&st)));
}

bool process_is_abandoned(int ours)
{
    struct proc_stat st;
    return read_stat(getpid(), &st) == LOOK_OK && st.state == 'Z' && st.threads == 1 + ours; /* the main thread counts until all are gone */
}

void process_status_text(int status, char *buf, size_t buf_bytes)
{
    if (WIFSIGNALED(status)) {
        const char *name = sigabbrev_np(WTERMSIG(status));
        snprintf(buf, buf_bytes, "was killed by signal %d (%s%s)%s", WTERMSIG(status), name ? "SIG" : "no name", name ? name : "",
                 WCOREDUMP(status) ? " and dumped core" : "");
    } else {
        snprintf(buf, buf_bytes, "exited with status %d", WEXITSTATUS(status));
    }
}

/* Three sources: the kernel's record of a reaped process, the zombie's own stat line, and, for our children, waitid. */
bool process_status(const struct process_eye *eye, int *status)
{
    struct pidfd_info_v0 info = {.mask = PIDFD_INFO_EXIT_V0};
    if (eye->pidfd >= 0 && ioctl(eye->pidfd, PIDFD_GET_INFO_V0, &info) == 0 && (info.mask & PIDFD_INFO_EXIT_V0)) {
        *status = info.exit_code;
        return true;
    }
    struct proc_stat st;
    if (read_stat(eye->pid, &st) == LOOK_OK && is_same(eye, &st) && is_over(&st) && st.has_exit_code && st.exit_code != 0) {
        *status = st.exit_code; /* 0 is also what a reader without permission sees */
        return true;
    }
    siginfo_t si = {0};
    if (eye->pidfd >= 0 && waitid((idtype_t)P_PIDFD, (id_t)eye->pidfd, &si, WEXITED | WNOHANG | WNOWAIT) == 0 && si.si_pid) {
        *status = si.si_code == CLD_EXITED ? si.si_status << 8 : si.si_status | (si.si_code == CLD_DUMPED ? 0x80 : 0);
        return true;
    }
    return false;
}

int32_t process_own_pid(int32_t pid)
{
    char path[40], line[256];
    int32_t own = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "re");
    while (f && !own && fgets(line, sizeof line, f)) {
        const char *last = strncmp(line, "NSpid:", 6) == 0 ? strrchr(line, '\t') : NULL; /* namespaces from here inwards */
        own = last ? (int32_t)strtol(last, NULL, 10) : 0;
    }
    if (f)
        fclose(f);
    return own;
}

void process_forget(struct process_eye *eye)
{
    if (eye->pidfd >= 0)
        close(eye->pidfd);
    eye->pidfd = -1;
}
