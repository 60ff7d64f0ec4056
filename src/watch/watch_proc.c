/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_proc.c - what /proc and cgroupfs tell of a process (watch_proc.h). Whatever cannot be read is simply not known: containers
 * and kernels hide some of it.
 */
#include "watch/watch_proc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "watch/watch_syscalls.h"

#define MOST_THREADS 512 /* of which processor time is added up */

/* ---- small files -------------------------------------------------------------------------------------------------------- */

/* Reads at most bytes - 1, and a 0 behind them. Returns how many; 0 when it cannot be read. */
static size_t read_bytes(const char *path, char *buf, size_t bytes)
{
    buf[0] = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    size_t n = 0;
    for (ssize_t got; n < bytes - 1 && (got = read(fd, buf + n, bytes - 1 - n)) > 0;)
        n += (size_t)got;
    close(fd);
    buf[n] = 0;
    return n;
}

static bool read_file(const char *path, char *buf, size_t bytes)
{
    return read_bytes(path, buf, bytes) > 0;
}

UNO_PRINTF(3, 4) static bool read_path(char *buf, size_t bytes, const char *fmt, ...)
{
    char path[512];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(path, sizeof path, fmt, args);
    va_end(args);
    buf[0] = 0;
    return n > 0 && (size_t)n < sizeof path && read_file(path, buf, bytes);
}

/* The number behind "key" at the start of a line; false: no such line. */
static bool number_after(const char *text, const char *key, int base, uint64_t *value)
{
    size_t len = strlen(key);
    for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (strncmp(line, key, len) == 0) {
            *value = strtoull(line + len, NULL, base);
            return true;
        }
    return false;
}

static void first_line(char *s)
{
    s[strcspn(s, "\n")] = 0;
}

void proc_command(int32_t pid, char *buf, size_t buf_bytes)
{
    (void)read_path(buf, buf_bytes, "/proc/%d/comm", (int)pid);
    first_line(buf);
    text_clean(buf, strlen(buf), false);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static const char *next_argument(const char *arg, const char *end)
{
    const char *next = arg + strlen(arg) + 1;
    return next < end && *next ? next : NULL;
}

/* Of "python3 -u -m pkg.train --lr 1" pkg.train, of "python3 -W error jobs/train.py" train.py; NULL: arguments up to end name none. */
static const char *script_of(const char *arg, const char *end)
{
    while (arg && arg[0] == '-' && arg[1]) {
        const char *letter = arg[1] == '-' ? "" : arg + 1 + strcspn(arg + 1, "cmWX");
        bool valued = *letter == 'W' || *letter == 'X' || strcmp(arg, "--check-hash-based-pycs") == 0;
        if (*letter == 'c')
            return NULL;
        if (*letter == 'm')
            return letter[1] ? letter + 1 : next_argument(arg, end);
        if (valued && (!*letter || !letter[1]))
            arg = next_argument(arg, end);
        arg = arg ? next_argument(arg, end) : NULL;
    }
    return arg && arg[0] != '-' ? base_name(arg) : NULL;
}

void proc_program(int32_t pid, char *buf, size_t buf_bytes)
{
    char path[64], line[4096];
    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
    size_t n = read_bytes(path, line, sizeof line);
    const char *name = base_name(line), *script = NULL;
    if (strncmp(name, "python", 6) == 0)
        script = script_of(next_argument(line, line + n), line + n);
    snprintf(buf, buf_bytes, "%s", script ? script : name);
    text_clean(buf, strlen(buf), false);
    if (!buf[0])
        proc_command(pid, buf, buf_bytes);
}

bool proc_owner(int32_t pid, uint32_t *uid)
{
    char text[4096];
    const char *line = read_path(text, sizeof text, "/proc/%d/status", (int)pid) ? strstr(text, "\nUid:") : NULL;
    unsigned effective;
    bool known = line && sscanf(line, " Uid: %*u %u", &effective) == 1;
    *uid = known ? effective : 0;
    return known;
}

size_t proc_maps(const char *process, struct proc_map *maps, size_t most)
{
    char path[64], line[1024];
    snprintf(path, sizeof path, "/proc/%s/maps", process);
    FILE *f = fopen(path, "re");
    size_t n = 0;
    while (f && n < most && fgets(line, sizeof line, f)) {
        unsigned long long start, end, offset, inode;
        unsigned major, minor;
        char perms[8] = "";
        int at = 0;
        if (sscanf(line, "%llx-%llx %7s %llx %x:%x %llu %n", &start, &end, perms, &offset, &major, &minor, &inode, &at) != 7 || at == 0 ||
            perms[2] != 'x')
            continue;
        first_line(line);
        if (line[at] == 0)
            continue;
        maps[n] = (struct proc_map){.start = start, .end = end, .offset = offset, .device = (uint64_t)major << 32 | minor, .inode = inode};
        snprintf(maps[n++].path, sizeof maps[0].path, "%.255s", line + at);
    }
    if (f)
        fclose(f);
    return n;
}

/* ---- cgroups ---------------------------------------------------------------------------------------------------------------- */

#define CGROUP_ROOT "/sys/fs/cgroup"

/* Version 2 alone lies at the root, beside version 1 in a folder of its own. */
static const char *root_of_v2(void)
{
    return access(CGROUP_ROOT "/cgroup.controllers", F_OK) == 0 ? CGROUP_ROOT : CGROUP_ROOT "/unified";
}

/* Version 2 has one line "0::/path"; version 1 one for each controller, "4:memory:/path". Is the process in one of that version? */
static bool cgroup_of(const char *process, const char *controller, char *buf, size_t buf_bytes)
{
    char text[4096], *save = NULL;
    buf[0] = 0;
    if (!read_path(text, sizeof text, "/proc/%s/cgroup", process))
        return false;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL, *word_save = NULL;
        if (!path)
            continue;
        *path++ = 0;
        names++;
        bool found = !*names && !*controller;
        for (char *word = strtok_r(names, ",", &word_save); word && !found; word = strtok_r(NULL, ",", &word_save))
            found = strcmp(word, controller) == 0;
        if (found) {
            snprintf(buf, buf_bytes, "%s", path);
            return true;
        }
    }
    return false;
}

void proc_cgroup(const char *process, char *buf, size_t buf_bytes)
{
    char path[300];
    buf[0] = 0;
    if (cgroup_of(process, "memory", path, sizeof path))
        snprintf(buf, buf_bytes, CGROUP_ROOT "/memory%s", path);
    else if (cgroup_of(process, "", path, sizeof path))
        snprintf(buf, buf_bytes, "%s%s", root_of_v2(), path);
}

uint64_t proc_oom_kills(const char *cgroup)
{
    char text[1024];
    uint64_t n = 0;
    if (cgroup[0] && (read_path(text, sizeof text, "%s/memory.events", cgroup) || read_path(text, sizeof text, "%s/memory.oom_control", cgroup)))
        (void)number_after(text, "oom_kill ", 10, &n);
    return n;
}

bool proc_frozen(int32_t pid, char *cgroup, size_t cgroup_bytes)
{
    char process[16], path[300], text[512];
    uint64_t frozen = 0;
    snprintf(process, sizeof process, "%d", (int)pid);
    if (cgroup_of(process, "", path, sizeof path) && read_path(text, sizeof text, "%s%s/cgroup.events", root_of_v2(), path) &&
        number_after(text, "frozen ", 10, &frozen) && frozen) {
        snprintf(cgroup, cgroup_bytes, "%s", path);
        return true;
    }
    if (cgroup_of(process, "freezer", path, sizeof path) && read_path(text, sizeof text, CGROUP_ROOT "/freezer%s/freezer.state", path) &&
        strncmp(text, "FROZEN", 6) == 0) {
        snprintf(cgroup, cgroup_bytes, "%s", path);
        return true;
    }
    return false;
}

/* Percent of a processor that one cgroup may use; 0 = no limit. */
static uint64_t quota_percent(bool v2, const char *path)
{
    char text[64];
    unsigned long long quota, period;
    if (v2)
        return read_path(text, sizeof text, "%s%s/cpu.max", root_of_v2(), path) && sscanf(text, "%llu %llu", &quota, &period) == 2 && period
                   ? MAX(quota * 100 / period, 1) : 0;
    if (!read_path(text, sizeof text, CGROUP_ROOT "/cpu%s/cpu.cfs_quota_us", path) || text[0] == '-' || sscanf(text, "%llu", &quota) != 1)
        return 0;
    return read_path(text, sizeof text, CGROUP_ROOT "/cpu%s/cpu.cfs_period_us", path) && sscanf(text, "%llu", &period) == 1 && period
               ? MAX(quota * 100 / period, 1) : 0;
}

void proc_quota(int32_t pid, char *buf, size_t buf_bytes)
{
    char process[16], path[300];
    uint64_t least = 0;
    buf[0] = 0;
    snprintf(process, sizeof process, "%d", (int)pid);
    bool v2 = !cgroup_of(process, "cpu", path, sizeof path);
    if (v2 && !cgroup_of(process, "", path, sizeof path))
        return;
    for (char *slash; path[0]; *slash = 0) { /* and those above it */
        uint64_t percent = quota_percent(v2, path);
        if (percent && (least == 0 || percent < least)) {
            least = percent;
            snprintf(buf, buf_bytes, "%.50s (a quota of %llu %% of a processor)", path, (unsigned long long)percent);
        }
        slash = strrchr(path, '/');
        if (!slash)
            break;
    }
}

/* ---- threads ------------------------------------------------------------------------------------------------------------------ */

char proc_state(int32_t pid, int32_t tid)
{
    char text[1024];
    if (!read_path(text, sizeof text, "/proc/%d/task/%d/stat", (int)pid, (int)tid))
        return 0;
    const char *p = strrchr(text, ')'); /* the name may hold anything */
    return p && p[1] == ' ' ? p[2] : 0;
}

uint64_t proc_start_stack(int32_t pid)
{
    char text[1024], *save = NULL;
    if (!read_path(text, sizeof text, "/proc/%d/stat", (int)pid))
        return 0;
    char *p = strrchr(text, ')'); /* the name may hold anything */
    char *field = p ? strtok_r(p + 1, " ", &save) : NULL;
    for (int number = 3; field && number < 28; number++)
        field = strtok_r(NULL, " ", &save);
    uint64_t at = field ? strtoull(field, NULL, 10) : 0;
    return at > 1 ? at : 0; /* less: it has ended, or the kernel does not show it */
}

/* Exec leaves the process, when it began, and open pidfds of it, but none of its other threads, and not its memory. Threads also go while a
 * process ends; then there is no other memory. */
bool proc_replaced(int32_t pid, int32_t tid, uint64_t start_stack)
{
    uint64_t now = start_stack && proc_state(pid, tid) == 0 ? proc_start_stack(pid) : 0;
    return now && now != start_stack;
}

char proc_used(int32_t pid, uint64_t *cpu_ns)
{
    char text[1024], state = 0;
    unsigned long long user, kernel;
    *cpu_ns = 0;
    if (!read_path(text, sizeof text, "/proc/%d/stat", (int)pid))
        return 0;
    const char *p = strrchr(text, ')'); /* the name may hold anything */
    if (!p || sscanf(p + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &state, &user, &kernel) != 3)
        return 0;
    *cpu_ns = (user + kernel) * (1000000000u / (uint64_t)sysconf(_SC_CLK_TCK));
    return state;
}

bool proc_handles(int32_t pid, int32_t tid, int sig)
{
    char text[4096];
    uint64_t caught, blocked;
    if (sig < SIGRTMIN || sig > SIGRTMAX) /* it comes out of the other process's memory; no steward takes any other */
        return false;
    uint64_t bit = (uint64_t)1 << (sig - 1);
    return read_path(text, sizeof text, "/proc/%d/task/%d/status", (int)pid, (int)tid) &&
           number_after(text, "SigCgt:", 16, &caught) && (caught & bit) && number_after(text, "SigBlk:", 16, &blocked) &&
           !(blocked & bit);
}

bool proc_thread_times(int32_t pid, int32_t tid, uint64_t *cpu_ns, uint64_t *queue_ns)
{
    char text[128];
    unsigned long long cpu, queue;
    if (!read_path(text, sizeof text, "/proc/%d/task/%d/schedstat", (int)pid, (int)tid) || sscanf(text, "%llu %llu", &cpu, &queue) != 2)
        return false;
    *cpu_ns = cpu;
    *queue_ns = queue;
    return true;
}

static uint64_t process_cpu_ns(int32_t pid)
{
    char path[40];
    uint64_t sum = 0, cpu, queue;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *dir = opendir(path);
    struct dirent *d;
    for (int n = 0; dir && n < MOST_THREADS && (d = readdir(dir)); n++)
        if (d->d_name[0] != '.' && proc_thread_times(pid, (int32_t)strtol(d->d_name, NULL, 10), &cpu, &queue))
            sum += cpu;
    if (dir)
        closedir(dir);
    return sum;
}

void proc_look_begin(struct proc_look *look, int32_t pid, int32_t tid)
{
    uint64_t cpu;
    *look = (struct proc_look){.pid = pid, .tid = tid};
    if (tid <= 0 || proc_state(pid, tid) == 0)
        look->tid = pid;
    look->there = proc_state(pid, look->tid) != 0;
    (void)proc_thread_times(pid, look->tid, &cpu, &look->queue_ns);
    look->cpu_ns = process_cpu_ns(pid);
    look->at_ns = clock_ns();
}

/* Pipes and terminals; a socket may have a time limit, drivers do as they like, a file's reader is in state D. By their names alone, for a
 * file system that is asked may hang; what has another name is left alone. */
static bool restarts_on(int32_t pid, uint64_t fd)
{
    static const char *const names[] = {"pipe:[", "/dev/pts/", "/dev/tty", "/dev/console"};
    char path[64], target[64] = "";
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, (int)fd);
    if (readlink(path, target, sizeof target - 1) <= 0)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strncmp(target, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

/* The calls that go on after a handler, of those in which threads are found waiting. Whatever is not known to is left alone. */
static bool restarts(int32_t pid, long number, const uint64_t *args)
{
    switch (number) {
    case SYS_wait4:
    case SYS_waitid:
    case SYS_flock:
    case SYS_fcntl: return true;
    case SYS_read:
    case SYS_readv:
    case SYS_write:
    case SYS_writev: return restarts_on(pid, args[0]);
    case SYS_futex: {
        uint64_t command = args[1] & FUTEX_CMD_MASK;
        return (command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET) && args[3] == 0; /* without a time limit */
    }
    default: return false;
    }
}

/* Where the system call may not be read (it needs the right to trace), the kernel's function in which it sleeps tells less. */
static bool restarts_in(const char *wchan)
{
    static const char *const names[] = {"pipe_read", "anon_pipe_read", "pipe_write", "anon_pipe_write", "do_wait", "n_tty_read"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcmp(wchan, names[i]) == 0)
            return true;
    return false;
}

static bool is_undisturbed(int32_t pid, int32_t tid)
{
    char text[256], state = proc_state(pid, tid);
    if (read_path(text, sizeof text, "/proc/%d/task/%d/syscall", (int)pid, (int)tid)) {
        unsigned long long args[4];
        long number;
        if (strncmp(text, "running", 7) == 0)
            return state == 'R';
        if (sscanf(text, "%ld %llx %llx %llx %llx", &number, &args[0], &args[1], &args[2], &args[3]) == 5)
            return restarts(pid, number, (uint64_t[]){args[0], args[1], args[2], args[3]});
        return sscanf(text, "%ld", &number) == 1 && number == -1; /* asleep in no system call, as for a page */
    }
    if (state == 'R')
        return true;
    (void)read_path(text, sizeof text, "/proc/%d/task/%d/wchan", (int)pid, (int)tid);
    first_line(text);
    return state == 'S' && restarts_in(text);
}

static bool switches_of(int32_t pid, int32_t tid, uint64_t *switches)
{
    char text[4096];
    return read_path(text, sizeof text, "/proc/%d/task/%d/status", (int)pid, (int)tid) &&
           number_after(text, "voluntary_ctxt_switches:", 10, switches);
}

bool proc_waits(int32_t pid, int32_t tid, struct proc_waits *waits)
{
    char text[256], *last[2];
    memset(waits, 0, sizeof *waits);
    if (!switches_of(pid, tid, &waits->switches) || !read_path(text, sizeof text, "/proc/%d/task/%d/syscall", (int)pid, (int)tid))
        return false;
    for (int i = 0; i < 2; i++) { /* the line ends with both, whatever stands before */
        last[i] = strrchr(text, ' ');
        if (!last[i])
            return false;
        *last[i]++ = 0;
    }
    waits->pc = strtoull(last[0], NULL, 16);
    waits->stack = strtoull(last[1], NULL, 16);
    return waits->pc && waits->stack;
}

bool proc_spot(int32_t pid, int32_t tid, struct proc_spot *spot)
{
    *spot = (struct proc_spot){0};
    /* The switches first: whoever sleeps between the two is found out by the next look. */
    if (!switches_of(pid, tid, &spot->switches))
        return false;
    spot->undisturbed = is_undisturbed(pid, tid);
    return true;
}

/* The system call a thread is in; only who may trace the process may read it (a setting of the kernel), wchan is seen by more. */
static void syscall_of(int32_t pid, int32_t tid, struct verdict_process *p)
{
    char text[256], *end;
    if (read_path(text, sizeof text, "/proc/%d/task/%d/syscall", (int)pid, (int)tid)) {
        long number = strtol(text, &end, 10);
        const char *name = end > text && number >= 0 ? syscall_name(number) : NULL;
        if (name)
            snprintf(p->syscall, sizeof p->syscall, "%.23s", name);
        else if (end > text && number >= 0)
            snprintf(p->syscall, sizeof p->syscall, "%ld", number);
    }
    (void)read_path(p->wchan, sizeof p->wchan, "/proc/%d/task/%d/wchan", (int)pid, (int)tid);
    first_line(p->wchan);
    if (strcmp(p->wchan, "0") == 0)
        p->wchan[0] = 0;
}

static void tracer_of(int32_t pid, struct verdict_process *p)
{
    char text[4096];
    uint64_t tracer;
    if (!read_path(text, sizeof text, "/proc/%d/status", (int)pid) || !number_after(text, "TracerPid:", 10, &tracer))
        return;
    p->tracer_pid = (int32_t)tracer;
    if (tracer)
        proc_command(p->tracer_pid, p->tracer, sizeof p->tracer);
}

static uint32_t permille(uint64_t part, uint64_t of)
{
    return of ? (uint32_t)MIN(part * 1000 / of, (uint64_t)1000000) : 0;
}

static bool has_threads(int32_t pid)
{
    char text[4096];
    uint64_t threads;
    return read_path(text, sizeof text, "/proc/%d/status", (int)pid) && number_after(text, "Threads:", 10, &threads) && threads > 1;
}

void proc_look_end(const struct proc_look *look, struct verdict_process *p)
{
    char state = proc_state(look->pid, look->tid);
    uint64_t cpu, queue, now_cpu = process_cpu_ns(look->pid), now = clock_ns();
    memset(p, 0, sizeof *p);
    if (!look->there || state == 0)
        return;
    if (proc_thread_times(look->pid, look->tid, &cpu, &queue)) {
        p->sample_ns = now - look->at_ns;
        p->cpu_permille = permille(now_cpu > look->cpu_ns ? now_cpu - look->cpu_ns : 0, p->sample_ns);
        p->queue_permille = permille(queue > look->queue_ns ? queue - look->queue_ns : 0, p->sample_ns);
    }
    tracer_of(look->pid, p);
    syscall_of(look->pid, look->tid, p);
    if (proc_frozen(look->pid, p->cgroup, sizeof p->cgroup)) {
        p->run = VERDICT_RUN_FROZEN;
    } else if (state == 'T') {
        p->run = VERDICT_RUN_STOPPED;
    } else if (state == 't') {
        p->run = VERDICT_RUN_TRACED;
    } else if (state == 'D') {
        p->run = VERDICT_RUN_DISK;
    } else if (state == 'Z' || state == 'X') {
        p->run = has_threads(look->pid) ? VERDICT_RUN_HEADLESS : VERDICT_RUN_ZOMBIE;
    } else if (state == 'R') {
        p->run = VERDICT_RUN_RUNS;
    } else {
        p->run = p->syscall[0] ? VERDICT_RUN_SYSCALL : VERDICT_RUN_SLEEPS;
    }
}
