/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_procs.c - the processes below us. Launcher and agent adopt orphans, so whatever a rank started is found here by parent
 * numbers in /proc, also when it changed its session or process group.
 */
#include "run.h"

#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct proc {
    pid_t pid, parent;
    char name[20];
    bool ours, dead;
};

void procs_adopt(void)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

static bool read_proc(const char *pid_text, struct proc *p)
{
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid_text);
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    size_t n = fread(line, 1, sizeof line - 1, f);
    fclose(f);
    line[n] = 0;
    char *open = strchr(line, '('), *close = strrchr(line, ')'), state;
    int parent, threads;
    if (!open || !close || sscanf(close + 1, " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %d", &state, &parent, &threads) != 3)
        return false;
    bool others = threads > 1; /* a main thread may end before the others */
    *p = (struct proc){.pid = atoi(line), .parent = parent, .dead = state == 'X' || (state == 'Z' && !others)};
    snprintf(p->name, sizeof p->name, "%.*s", (int)(close - open - 1), open + 1);
    return true;
}

static struct proc *list(size_t *count)
{
    DIR *dir = opendir("/proc");
    struct proc *all = NULL;
    size_t n = 0, cap = 0;
    for (struct dirent *d; dir && (d = readdir(dir));) {
        if (!isdigit((unsigned char)d->d_name[0]))
            continue;
        if (n == cap) {
            struct proc *p = realloc(all, (cap = cap ? cap * 2 : 256) * sizeof *all);
            if (!p)
                break;
            all = p;
        }
        n += read_proc(d->d_name, &all[n]);
    }
    if (dir)
        closedir(dir);
    *count = n;
    return all;
}

static void mark_descendants(struct proc *all, size_t n)
{
    pid_t self = getpid();
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < n; i++) {
            if (all[i].ours)
                continue;
            bool ours = all[i].parent == self;
            for (size_t k = 0; k < n && !ours; k++)
                ours = all[k].ours && all[k].pid == all[i].parent;
            if (ours)
                all[i].ours = more = true;
        }
    }
}

int procs_signal_descendants(int sig, char *text, size_t bytes)
{
    size_t n, used = 0;
    int count = 0;
    struct proc *all = list(&n);
    mark_descendants(all, n);
    if (text && bytes)
        text[0] = 0;
    for (size_t i = 0; i < n; i++) {
        if (!all[i].ours || all[i].dead)
            continue;
        if (text && count < 4 && used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "%s%d (%s)", count ? ", " : "", (int)all[i].pid, all[i].name);
        count++;
        if (sig)
            kill(all[i].pid, sig);
    }
    if (text && count > 4 && used < bytes)
        snprintf(text + used, bytes - used, " and %d more", count - 4);
    free(all);
    return count;
}

void procs_reap(void)
{
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

static bool gone_within(double seconds)
{
    double until = run_now() + seconds;
    for (;;) {
        procs_reap();
        /* Having no child at all is cheap to see; only then /proc need not be read. */
        if (waitpid(-1, NULL, WNOHANG) < 0 || procs_signal_descendants(0, NULL, 0) == 0)
            return true;
        if (run_now() >= until)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
}

int procs_end_descendants(double quiet_s, char *text, size_t bytes)
{
    if (gone_within(quiet_s))
        return 0;
    int told = procs_signal_descendants(SIGTERM, text, bytes);
    procs_signal_descendants(SIGCONT, NULL, 0);
    if (!gone_within(1.0))
        for (int i = 0; i < 20; i++) { /* again, for those born while the list was read */
            procs_signal_descendants(SIGKILL, NULL, 0);
            if (gone_within(0.1))
                break;
        }
    return told;
}

double run_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
