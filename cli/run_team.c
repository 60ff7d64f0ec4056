/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_team.c - the ranks of one host: forked, watched, their output relayed, signals passed on. One thread, one poll loop that
 * never blocks; the launcher decides what a rank's end means.
 */
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <unisono_watch.h>

#include "output.h"

#define SAVE_S 0.05           /* ranks often end together: saving takes long, and how they ended is told first */
#define QUEUE_LIMIT (1u << 20) /* the launcher is behind by this much: ranks wait in write() */

struct member {
    pid_t pid;             /* 0 = not started or reaped */
    int out[2];            /* read ends of its stdout and stderr, -1 = closed */
    int exec_fd;           /* errno of a failed exec arrives here */
    bool reported;
};

struct run_team {
    struct run_wire *wire;
    const struct run_job *job;
    const char *addr;      /* of rank 0's joining socket, as seen from here */
    int listen_fd, master_port, signal_fd;
    struct run_binding *binding;
    bool orphaned;         /* the launcher is gone, or this agent shall go */
    uno_ends *ends;        /* what all ranks here can see of the job's ends; NULL: there is no memory for it */
    struct run_keep *keep; /* NULL: nothing is kept */
    double save_at;        /* a rank ended that should not have; 0 = none did */
    struct member member[];
};

/* ---- in the child ---------------------------------------------------------------------------------- */

static void export_number(const char *name, int value)
{
    char text[24];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

/* Without it ranks of other hosts are told less. */
static void export_ends(const uno_ends *ends)
{
    int fd = uno_ends_fd(ends);
    if (fd < 0 || fcntl(fd, F_SETFD, 0) != 0)
        unsetenv("UNISONO_ENDS_FD");
    else
        export_number("UNISONO_ENDS_FD", fd);
}

static void export_place(const struct run_team *t, int i, int secret_fd)
{
    const struct run_job *job = t->job;
    for (int k = 0; k < job->nenv; k++) {
        char *eq = strchr(job->env[k], '=');
        if (!eq)
            continue;
        *eq = 0;
        setenv(job->env[k], eq + 1, 1);
        *eq = '=';
    }
    export_number("UNISONO_RANK", job->first + i);
    export_number("UNISONO_SIZE", job->size);
    export_number("UNISONO_LOCAL_RANK", i);
    export_number("UNISONO_LOCAL_SIZE", job->n);
    export_number("UNISONO_SECRET_FD", secret_fd);
    setenv("UNISONO_ADDR", t->addr, 1);
    setenv("UNISONO_HOST", job->host, 1);
    if (job->first + i == 0)
        export_number("UNISONO_LISTEN_FD", t->listen_fd);
    else
        unsetenv("UNISONO_LISTEN_FD");
    /* For programs that expect torchrun. */
    char host[256];
    const char *colon = strrchr(t->addr, ':');
    bool brackets = t->addr[0] == '[';
    snprintf(host, sizeof host, "%.*s", (int)(colon - t->addr) - 2 * brackets, t->addr + brackets);
    setenv("MASTER_ADDR", host, 1);
    export_number("MASTER_PORT", t->master_port);
    export_number("RANK", job->first + i);
    export_number("WORLD_SIZE", job->size);
    export_number("LOCAL_RANK", i);
    export_number("LOCAL_WORLD_SIZE", job->n);
}

/* Each rank gets its own open file, for the position in it is not shared then. */
static int secret_file(const char *secret)
{
    int fd = memfd_create("unisono-secret", MFD_ALLOW_SEALING);
    if (fd < 0)
        return -1;
    if (write(fd, secret, RUN_SECRET_CHARS) != RUN_SECRET_CHARS || lseek(fd, 0, SEEK_SET) != 0) {
        close(fd);
        return -1;
    }
    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
    return fd;
}

static void tell_parent(int fd, enum run_end end, int error)
{
    uint32_t words[2] = {end, (uint32_t)error};
    if (write(fd, words, sizeof words) < 0)
        _exit(126);
}

static _Noreturn void become_rank(struct run_team *t, int i, pid_t parent, int out, int err, int exec_fd)
{
    const struct run_job *job = t->job;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it died before the line above */
        _exit(126);
    sigset_t none;
    sigemptyset(&none);
    int secret_fd = secret_file(job->secret); /* while no limit of file sizes sends a signal */
    if (secret_fd < 0) {
        tell_parent(exec_fd, END_EXEC, errno);
        _exit(126);
    }
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int sig = 1; sig < NSIG; sig++)
        signal(sig, SIG_DFL);
    if (!(job->first + i == 0 && job->direct_stdin)) {
        int null = open("/dev/null", O_RDONLY);
        dup2(null, 0);
        close(null);
    }
    if (out >= 0)
        dup2(out, 1);
    dup2(err, 2);
    if (job->cwd && chdir(job->cwd) != 0) {
        tell_parent(exec_fd, END_CHDIR, errno);
        _exit(126);
    }
    binding_apply(t->binding, i);
    export_place(t, i, secret_fd);
    export_ends(t->ends);
    if (job->first + i == 0 && t->listen_fd >= 0)
        fcntl(t->listen_fd, F_SETFD, 0);
    execvp(job->args[0], job->args);
    tell_parent(exec_fd, END_EXEC, errno);
    _exit(errno == ENOENT ? 127 : 126);
}

/* ---- in the agent ------------------------------------------------------------------------------------- */

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void send_end(struct run_team *t, int i, enum run_end end, int value, const uno_end *seen)
{
    uint32_t words[3] = {(uint32_t)(t->job->first + i), end, (uint32_t)value};
    wire_send(t->wire, FRAME_EXIT, words, sizeof words, seen, sizeof *seen);
    t->member[i].reported = true;
}

static bool start_rank(struct run_team *t, int i)
{
    struct member *m = &t->member[i];
    int out[2] = {-1, -1}, err[2] = {-1, -1}, exec_fd[2] = {-1, -1};
    pid_t pid = -1, parent = getpid();
    if ((t->job->direct_stdout || pipe2(out, O_CLOEXEC) == 0) && pipe2(err, O_CLOEXEC) == 0 && pipe2(exec_fd, O_CLOEXEC) == 0)
        pid = fork();
    if (pid == 0)
        become_rank(t, i, parent, out[1], err[1], exec_fd[1]);
    int saved = errno;
    close_fd(&out[1]);
    close_fd(&err[1]);
    close_fd(&exec_fd[1]);
    m->out[0] = out[0];
    m->out[1] = err[0];
    m->exec_fd = exec_fd[0];
    if (pid < 0) {
        char text[300];
        int n = snprintf(text, sizeof text, "cannot start rank %d: %s%s", t->job->first + i, strerror(saved), out_start_hint(saved));
        wire_send(t->wire, FRAME_ERROR, text, (size_t)n, NULL, 0);
        return false;
    }
    m->pid = pid;
    setpgid(pid, pid); /* here too, whoever comes first */
    for (int s = 0; s < 2; s++)
        if (m->out[s] >= 0)
            fcntl(m->out[s], F_SETFL, O_NONBLOCK);
    uint32_t words[2] = {(uint32_t)(t->job->first + i), (uint32_t)pid};
    wire_send(t->wire, FRAME_PID, words, sizeof words, NULL, 0);
    return true;
}

static void signal_all(struct run_team *t, int sig)
{
    for (int i = 0; i < t->job->n; i++)
        if (t->member[i].pid > 0)
            kill(-t->member[i].pid, sig);
    if (sig == SIGKILL)
        procs_signal_descendants(SIGKILL, NULL, 0);
}

struct run_team *team_start(struct run_wire *wire, const struct run_job *job, const char *addr, int listen_fd, int master_port,
                            struct run_binding *binding)
{
    struct run_team *t = calloc(1, sizeof *t + (size_t)job->n * sizeof *t->member);
    if (!t)
        return NULL;
    *t = (struct run_team){.wire = wire, .job = job, .addr = addr, .listen_fd = listen_fd, .master_port = master_port,
                           .binding = binding};
    t->keep = keep_new(job);
    if (uno_ends_new(job->size, &t->ends) != UNO_OK)
        t->ends = NULL;
    uno_ends_ask(t->ends, t->keep ? SIGCHLD : 0);
    for (int i = 0; i < job->n; i++)
        t->member[i] = (struct member){.out = {-1, -1}, .exec_fd = -1};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    t->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    for (int i = 0; i < job->n; i++)
        if (!start_rank(t, i)) {
            signal_all(t, SIGKILL);
            break;
        }
    return t;
}

/* Pass on what a stream has; false when there was nothing. */
static bool relay(struct run_team *t, int i, int stream)
{
    char buf[65536];
    int *fd = &t->member[i].out[stream];
    ssize_t n = read(*fd, buf, sizeof buf);
    if (n > 0) {
        uint32_t rank = (uint32_t)(t->job->first + i);
        char head[5];
        memcpy(head, &rank, 4);
        head[4] = (char)(stream + 1);
        wire_send(t->wire, FRAME_OUTPUT, head, sizeof head, buf, (size_t)n);
        return true;
    }
    if (n == 0 || (errno != EAGAIN && errno != EINTR))
        close_fd(fd);
    return false;
}

/* What it had written before it ended belongs in front of the news of its end. */
static void ended(struct run_team *t, int i, int status)
{
    struct member *m = &t->member[i];
    uint32_t words[2];
    uno_end seen;
    uno_ends_seen(t->ends, t->job->first + i, m->pid, status, &seen);
    for (int stream = 0; stream < 2; stream++)
        while (m->out[stream] >= 0 && relay(t, i, stream))
            ;
    keep_ended(t->keep, m->pid, status);
    if (t->keep && status != 0)
        t->save_at = run_now() + SAVE_S;
    m->pid = 0;
    if (m->exec_fd >= 0 && read(m->exec_fd, words, sizeof words) == sizeof words)
        send_end(t, i, words[0], (int)words[1], &seen);
    else if (WIFSIGNALED(status))
        send_end(t, i, END_SIGNAL, WTERMSIG(status), &seen);
    else
        send_end(t, i, END_STATUS, WEXITSTATUS(status), &seen);
    close_fd(&m->exec_fd);
}

static void keep_all(struct run_team *t)
{
    for (int i = 0; i < t->job->n; i++)
        if (t->member[i].pid > 0 && keep_look(t->keep, t->member[i].pid))
            uno_ends_looked(t->ends, t->job->first + i);
}

/* How a child ended, as waitpid would say it, while the kernel still keeps it. */
static bool peek(pid_t pid, int *status)
{
    siginfo_t si = {0};
    if (pid <= 0 || waitid(P_PID, (id_t)pid, &si, WEXITED | WNOHANG | WNOWAIT) != 0 || si.si_pid != pid)
        return false;
    *status = si.si_code == CLD_EXITED ? si.si_status << 8 : si.si_status | (si.si_code == CLD_DUMPED ? 0x80 : 0);
    return true;
}

/* Collecting a process takes the kernel long, so that all are told of first. */
static void reap(struct run_team *t)
{
    int status;
    bool joined = t->keep != NULL; /* nobody has ended: then somebody has joined (uno_ends_ask) */
    for (int i = 0; i < t->job->n; i++)
        if (peek(t->member[i].pid, &status))
            ended(t, i, status);
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0; joined = false)
        for (int i = 0; i < t->job->n; i++)
            if (t->member[i].pid == pid)
                ended(t, i, status);
    if (joined || t->save_at > 0)
        keep_all(t); /* those who are left may not have been seen yet, and end soon */
}

static void save(struct run_team *t)
{
    char text[1200];
    t->save_at = 0;
    if (keep_save(t->keep, text, sizeof text))
        wire_send(t->wire, FRAME_NOTE, text, strlen(text), NULL, 0);
}

/* How long one may wait for something to happen; -1: without end. */
static int wait_ms(const struct run_team *t)
{
    int keep = keep_wait_ms(t->keep), left = (int)((t->save_at - run_now()) * 1000) + 1;
    return t->save_at == 0 ? keep : left < 0 ? 0 : left < keep ? left : keep;
}

/* sig: this agent got it; 0: its launcher is gone. Said before it is done, so that nobody takes it for something else. */
static void end_all(struct run_team *t, int sig)
{
    uint32_t word = (uint32_t)sig;
    if (!t->orphaned) {
        uno_ends_begin(t->ends, sig);
        wire_send(t->wire, FRAME_ENDING, &word, sizeof word, NULL, 0);
    }
    t->orphaned = true;
    signal_all(t, SIGKILL);
}

static void on_signal(struct run_team *t)
{
    struct signalfd_siginfo info;
    while (read(t->signal_fd, &info, sizeof info) == sizeof info)
        if (info.ssi_signo != SIGCHLD) /* somebody ends the agent itself */
            end_all(t, (int)info.ssi_signo);
    reap(t);
}

static void on_launcher(struct run_team *t)
{
    enum run_frame type;
    const char *body;
    size_t bytes;
    bool open = wire_fill(t->wire);
    while (wire_next(t->wire, &type, &body, &bytes)) {
        uint32_t sig;
        if (type == FRAME_SIGNAL && bytes == sizeof sig) {
            memcpy(&sig, body, sizeof sig);
            signal_all(t, (int)sig);
        }
        uno_end end;
        if (type == FRAME_ENDED && bytes == sizeof end) {
            memcpy(&end, body, sizeof end);
            if (uno_ends_put(t->ends, &end) != UNO_OK) /* of a launcher of another version: as if nothing was said */
                continue;
        }
    }
    if (!open || t->wire->broken)
        end_all(t, 0);
}

static int living(const struct run_team *t)
{
    int n = 0;
    for (int i = 0; i < t->job->n; i++)
        n += t->member[i].pid > 0;
    return n;
}

static void walk_once(struct run_team *t, int timeout_ms)
{
    int n = t->job->n, used = 0;
    struct pollfd fds[3 + 2 * n];
    int who[3 + 2 * n];
    fds[used++] = (struct pollfd){.fd = t->signal_fd, .events = POLLIN};
    fds[used++] = (struct pollfd){.fd = t->orphaned ? -1 : t->wire->in, .events = POLLIN};
    fds[used++] = (struct pollfd){.fd = wire_pending(t->wire) && !t->orphaned ? t->wire->out : -1, .events = POLLOUT};
    bool listen_to_ranks = wire_pending(t->wire) < QUEUE_LIMIT;
    for (int i = 0; i < n; i++)
        for (int s = 0; s < 2; s++)
            if (t->member[i].out[s] >= 0 && listen_to_ranks) {
                who[used] = 2 * i + s;
                fds[used++] = (struct pollfd){.fd = t->member[i].out[s], .events = POLLIN};
            }
    if (poll(fds, (nfds_t)used, timeout_ms) <= 0)
        return;
    if (fds[2].revents)
        wire_flush(t->wire);
    for (int k = 3; k < used; k++)
        if (fds[k].revents)
            relay(t, who[k] / 2, who[k] % 2);
    if (fds[0].revents)
        on_signal(t);
    if (fds[1].revents)
        on_launcher(t);
}

void team_walk(struct run_team *t)
{
    while (living(t) > 0) {
        if (keep_due(t->keep))
            keep_all(t);
        if (t->save_at > 0 && run_now() >= t->save_at)
            save(t);
        walk_once(t, wait_ms(t));
    }
    if (t->save_at > 0)
        save(t);
    char names[300];
    int left = procs_end_descendants(t->orphaned ? 0 : 0.5, names, sizeof names);
    for (int i = 0; i < t->job->n; i++)
        for (int s = 0; s < 2; s++)
            while (t->member[i].out[s] >= 0 && relay(t, i, s))
                ;
    if (left > 0) {
        char text[400];
        int n = snprintf(text, sizeof text, "ended %d process%s that ranks left behind on host %s: pid %s", left, left == 1 ? "" : "es",
                         t->job->host, names);
        wire_send(t->wire, FRAME_NOTE, text, (size_t)n, NULL, 0);
    }
    if (keep_path(t->keep)[0]) {
        char text[1300];
        int n = snprintf(text, sizeof text, "what was known of the ranks of host %s is in %s", t->job->host, keep_path(t->keep));
        wire_send(t->wire, FRAME_NOTE, text, (size_t)n, NULL, 0);
    }
    wire_send(t->wire, FRAME_DONE, NULL, 0, NULL, 0);
    while (wire_pending(t->wire) && !t->wire->broken && !t->orphaned)
        walk_once(t, -1);
}

void team_free(struct run_team *t)
{
    for (int i = 0; i < t->job->n; i++) {
        close_fd(&t->member[i].out[0]);
        close_fd(&t->member[i].out[1]);
        close_fd(&t->member[i].exec_fd);
    }
    close_fd(&t->signal_fd);
    keep_free(t->keep);
    uno_ends_free(t->ends);
    free(t);
}
