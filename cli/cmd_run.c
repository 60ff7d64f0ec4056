/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmd_run.c - `unisono run`: starts ranks, stays beside them, and leaves nothing behind. This file is the launcher's loop:
 * parse, start agents, send them off when all hosts have answered, pass output and signals, end the job, report.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"
#include "output.h"
#include "run_launch.h"

#define BACKLOG_LIMIT (1u << 20) /* our reader is behind by this much: agents wait */
#define UNKILLABLE_S 10          /* after SIGKILL */

static void send_signal(struct launcher *l, int sig)
{
    uint32_t word = (uint32_t)sig;
    for (int i = 0; i < l->nlinks; i++) {
        if (!l->links[i].closed)
            wire_send(&l->links[i].wire, FRAME_SIGNAL, &word, sizeof word, NULL, 0);
        if (l->links[i].pid > 0 && sig != SIGSTOP)
            kill(l->links[i].pid, SIGCONT); /* an agent that somebody has stopped could not pass it on */
    }
}

static void kill_job(struct launcher *l)
{
    if (!l->killed)
        send_signal(l, SIGKILL);
    if (!l->killed)
        l->kill_at = run_now() + UNKILLABLE_S;
    l->killed = l->ending = true;
}

static void end_job(struct launcher *l)
{
    if (l->ending)
        return;
    l->ending = true;
    l->kill_at = run_now() + l->opt->grace_s;
    send_signal(l, SIGTERM);
    send_signal(l, SIGCONT); /* a stopped rank could not end */
}

/* ---- frames ----------------------------------------------------------------------------------------- */

static void on_output(struct launcher *l, struct rank *r, const char *body, size_t bytes)
{
    int stream = body[4] == 2;
    const char *data = body + 5;
    size_t n = bytes - 5;
    if (stream == 1)
        tail_add(&r->tail, data, n);
    lines_feed(&r->lines[stream], stream ? &l->err : &l->out, r->tag, data, n);
}

static void on_rank_end(struct launcher *l, int rank, enum run_end end, int value, const uno_end *seen)
{
    struct rank *r = &l->ranks[rank];
    r->ended = true;
    for (int s = 0; s < 2; s++)
        lines_end(&r->lines[s], s ? &l->err : &l->out, r->tag);
    report_rank_end(l, rank, end, value, seen);
    if (l->failed && (!l->opt->keep_going || end >= END_EXEC))
        end_job(l);
}

/* The other hosts' ranks see no more than that its connections were closed. */
static void tell_end(struct launcher *l, const struct link *from, const uno_end *end)
{
    for (int i = 0; i < l->nlinks; i++)
        if (&l->links[i] != from && !l->links[i].closed)
            wire_send(&l->links[i].wire, FRAME_ENDED, end, sizeof *end, NULL, 0);
}

/* Only those that may be alive: of others it was told. */
static void tell_lost(struct launcher *l, const struct link *link)
{
    for (int r = link->host->first; r < link->host->first + link->host->n; r++) {
        uno_end end = {.kind = UNO_END_LOST, .rank = r, .pid = l->ranks[r].pid, .status = link_status(link)};
        if (!l->ranks[r].ended)
            tell_end(l, link, &end);
    }
}

static void on_agent_ending(struct launcher *l, struct link *link, int sig)
{
    link->ending = true;
    report_ending(l, link, sig);
    if (!l->opt->keep_going)
        end_job(l);
}

static void on_agent_error(struct launcher *l, struct link *link, const char *text, size_t bytes)
{
    if (!l->failed) {
        report(l, "host %s: %.*s", link->host->name, (int)bytes, text);
        l->status = CLI_ERROR;
    }
    l->failed = true;
    end_job(l);
}

static void on_exit_frame(struct launcher *l, struct link *link, const uint32_t words[3], const char *body, size_t bytes)
{
    uno_end seen = {0};
    if (bytes == 3 * sizeof *words + sizeof seen) { /* else it is an agent of another version */
        memcpy(&seen, body + 3 * sizeof *words, sizeof seen);
        seen.cgroup[sizeof seen.cgroup - 1] = 0;
        tell_end(l, link, &seen);
    }
    on_rank_end(l, (int)words[0], words[1], (int)words[2], &seen);
}

static void on_frame(struct launcher *l, struct link *link, enum run_frame type, const char *body, size_t bytes)
{
    uint32_t words[3] = {0};
    memcpy(words, body, bytes < sizeof words ? bytes : sizeof words);
    bool about_rank = strchr("BPOX", (int)type) != NULL;
    if (about_rank && (bytes < 4 || words[0] < (uint32_t)link->host->first || words[0] >= (uint32_t)(link->host->first + link->host->n)))
        return; /* not a rank of that host */
    struct rank *r = &l->ranks[words[0] % (uint32_t)l->opt->nranks];
    switch (type) {
    case FRAME_ADDRESSES:
        if (!l->addresses && bytes > 4 && (l->addresses = malloc(bytes))) {
            memcpy(l->addresses, body, bytes);
            l->naddresses = bytes;
        }
        break;
    case FRAME_BOUND:
        sink_printf(&l->err, "unisono run: rank %u on host %s: %.*s\n", words[0], link->host->name, (int)bytes - 4, body + 4);
        break;
    case FRAME_PID:
        r->pid = (pid_t)words[1];
        break;
    case FRAME_OUTPUT:
        if (bytes > 5)
            on_output(l, r, body, bytes);
        break;
    case FRAME_EXIT:
        on_exit_frame(l, link, words, body, bytes);
        break;
    case FRAME_ENDING:
        on_agent_ending(l, link, (int)words[0]);
        break;
    case FRAME_ERROR:
        on_agent_error(l, link, body, bytes);
        break;
    case FRAME_NOTE:
        report(l, "%.*s", (int)bytes, body);
        break;
    case FRAME_DONE:
        link->done = true;
        break;
    default:
        break;
    }
}

static void noise(void *arg, const char *data, size_t bytes)
{
    struct link *link = arg;
    tail_add(&link->err_tail, data, bytes);
}

static void on_link(struct launcher *l, struct link *link)
{
    enum run_frame type;
    const char *body;
    size_t bytes;
    bool open = wire_fill(&link->wire);
    if (!link->synced && !(link->synced = wire_sync(&link->wire, noise, link)) && open)
        return;
    while (link->synced && wire_next(&link->wire, &type, &body, &bytes))
        on_frame(l, link, type, body, bytes);
    if (!open)
        link->closed = true;
}

static void on_shell_stderr(struct launcher *l, struct link *link)
{
    char buf[4096], tag[300];
    ssize_t n = read(link->err_fd, buf, sizeof buf);
    snprintf(tag, sizeof tag, "[%.200s] ", link->host->name);
    if (n > 0) {
        tail_add(&link->err_tail, buf, (size_t)n);
        if (link->synced) /* before, it is part of the sentence about the failure */
            lines_feed(&link->err_lines, &l->err, tag, buf, (size_t)n);
    } else if (n == 0) {
        lines_end(&link->err_lines, &l->err, tag);
        close(link->err_fd);
        link->err_fd = -1;
    }
}

/* ---- signals ---------------------------------------------------------------------------------------------- */

static void on_end_signal(struct launcher *l, int sig)
{
    if (++l->interrupts > 1) {
        report(l, "second %s: killing all ranks", sig == SIGINT ? "SIGINT" : "signal");
        l->status = l->failed ? l->status : 128 + sig;
        l->told = l->told ? l->told : sig;
        kill_job(l);
        return;
    }
    l->told = sig;
    if (!l->going) { /* no rank runs yet */
        l->status = 128 + sig;
        kill_job(l);
    }
    send_signal(l, sig);
    send_signal(l, SIGCONT); /* a stopped rank could not end */
    l->remind_at = run_now() + l->opt->grace_s;
}

static void reap(struct launcher *l)
{
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
        for (int i = 0; i < l->nlinks; i++)
            if (l->links[i].pid == pid) {
                l->links[i].pid = 0;
                l->links[i].status = status;
            }
}

static void on_signals(struct launcher *l)
{
    struct signalfd_siginfo info;
    while (read(l->signal_fd, &info, sizeof info) == sizeof info) {
        int sig = (int)info.ssi_signo;
        if (sig == SIGCHLD)
            reap(l);
        else if (sig == SIGINT || sig == SIGTERM || sig == SIGHUP || sig == SIGQUIT)
            on_end_signal(l, sig);
        else if (sig == SIGTSTP) {
            send_signal(l, SIGSTOP);
            raise(SIGSTOP);
            send_signal(l, SIGCONT);
        } else
            send_signal(l, sig);
    }
}

static int catch_signals(void)
{
    static const int caught[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT, SIGWINCH};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++)
        sigaddset(&set, caught[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* ---- the loop ------------------------------------------------------------------------------------------------ */

/* When every host has answered and rank 0's address is known, all start at once. */
static void maybe_go(struct launcher *l)
{
    if (l->going || l->ending || !l->addresses)
        return;
    for (int i = 0; i < l->nlinks; i++)
        if (!l->links[i].synced)
            return;
    for (int i = 0; i < l->nlinks; i++)
        wire_send(&l->links[i].wire, FRAME_GO, l->addresses, l->naddresses, NULL, 0);
    l->going = true;
}

static void check_lost(struct launcher *l)
{
    for (int i = 0; i < l->nlinks; i++) {
        struct link *link = &l->links[i];
        if (!link->closed || link->done || link->lost || link->pid)
            continue;
        tell_lost(l, link);
        while (link->err_fd >= 0 && !wire_pending(&link->wire)) { /* its last words */
            struct pollfd p = {.fd = link->err_fd, .events = POLLIN};
            if (poll(&p, 1, 200) <= 0)
                break;
            on_shell_stderr(l, link);
        }
        link->lost = true;
        for (int r = link->host->first; r < link->host->first + link->host->n; r++)
            l->ranks[r].ended = true;
        report_lost(l, link);
        if (!l->opt->keep_going || !l->going)
            end_job(l);
    }
}

static void check_time(struct launcher *l)
{
    double now = run_now();
    if (!l->going && !l->ending && now - l->start >= l->opt->start_s)
        for (int i = 0; i < l->nlinks && !l->ending; i++)
            if (!l->links[i].synced || (i == 0 && !l->addresses)) {
                report(l, "host %s has not answered for %.0f s; `%s` hangs. Try it by hand, or wait longer with --start-timeout",
                       l->links[i].host->name, now - l->start, l->links[i].command ? l->links[i].command : "the agent");
                l->failed = true;
                l->status = CLI_ERROR;
                kill_job(l);
            }
    if (l->remind_at > 0 && !l->ending && now >= l->remind_at) {
        report_remaining(l, l->told);
        l->remind_at = 0;
    }
    if (l->ending && !l->killed && now >= l->kill_at) {
        report(l, "still running %.0f s after SIGTERM; killing all ranks", l->opt->grace_s);
        kill_job(l);
    }
}

static bool finished(const struct launcher *l)
{
    for (int i = 0; i < l->nlinks; i++)
        if (!l->links[i].closed || l->links[i].pid)
            return false;
    return true;
}

static int wait_ms(const struct launcher *l)
{
    double until = -1, now = run_now();
    if (l->ending)
        until = l->kill_at;
    else if (!l->going)
        until = l->start + l->opt->start_s;
    else if (l->remind_at > 0)
        until = l->remind_at;
    if (until < 0)
        return -1;
    return until <= now ? 0 : (int)((until - now) * 1000) + 1;
}

static void walk_once(struct launcher *l)
{
    int n = l->nlinks, used = 0;
    struct pollfd fds[3 + 3 * n];
    bool room = sink_pending(&l->out) < BACKLOG_LIMIT && sink_pending(&l->err) < BACKLOG_LIMIT;
    fds[used++] = (struct pollfd){.fd = l->signal_fd, .events = POLLIN};
    fds[used++] = (struct pollfd){.fd = sink_pending(&l->out) ? l->out.fd : -1, .events = POLLOUT};
    fds[used++] = (struct pollfd){.fd = sink_pending(&l->err) ? l->err.fd : -1, .events = POLLOUT};
    for (int i = 0; i < n; i++) {
        struct link *k = &l->links[i];
        fds[used++] = (struct pollfd){.fd = k->closed || !room ? -1 : k->wire.in, .events = POLLIN};
        fds[used++] = (struct pollfd){.fd = wire_pending(&k->wire) && !k->wire.broken ? k->wire.out : -1, .events = POLLOUT};
        fds[used++] = (struct pollfd){.fd = room ? k->err_fd : -1, .events = POLLIN};
    }
    if (poll(fds, (nfds_t)used, wait_ms(l)) < 0)
        return;
    if (fds[0].revents)
        on_signals(l);
    for (int i = 0; i < n; i++) {
        struct pollfd *p = &fds[3 + 3 * i];
        if (p[1].revents)
            wire_flush(&l->links[i].wire);
        if (p[0].revents)
            on_link(l, &l->links[i]);
        if (p[2].revents && l->links[i].err_fd >= 0)
            on_shell_stderr(l, &l->links[i]);
    }
    sink_flush(&l->out);
    sink_flush(&l->err);
}

/* Nobody reads the output: as a shell pipe would, end quietly. Any other reason is told. */
static void on_no_output(struct launcher *l)
{
    bool told = l->out.broken != EPIPE;
    if (told)
        report(l, "the ranks' output cannot be written: %s%s", strerror(l->out.broken), finished(l) ? "" : "; ending the job");
    if (!l->failed)
        l->status = told ? CLI_ERROR : 128 + SIGPIPE;
    l->failed = true;
    end_job(l);
}

static void walk(struct launcher *l)
{
    while (!finished(l)) {
        maybe_go(l);
        walk_once(l);
        check_lost(l);
        check_time(l);
        if (l->out.broken && !l->ending)
            on_no_output(l);
        if (l->killed && run_now() >= l->kill_at) {
            for (int r = 0; r < l->opt->nranks; r++)
                if (!l->ranks[r].ended && l->ranks[r].pid)
                    report(l, "rank %d (host %s, pid %d) does not end even on SIGKILL; it is left to the kernel", r,
                           l->ranks[r].link->host->name, (int)l->ranks[r].pid);
            break;
        }
    }
    sink_drain(&l->out);
    if (l->out.broken && !l->failed)
        on_no_output(l);
    if (l->told && l->status == 128 + l->told)
        report(l, "ended by SIG%s%s", sigabbrev_np(l->told), finished(l) ? "; no rank is left" : "");
}

/* ---- begin and end ----------------------------------------------------------------------------------------------- */

static bool make_secret(char *text)
{
    unsigned char raw[RUN_SECRET_CHARS / 2];
    if (getrandom(raw, sizeof raw, 0) != (ssize_t)sizeof raw)
        return false;
    for (size_t i = 0; i < sizeof raw; i++)
        sprintf(text + 2 * i, "%02x", raw[i]);
    return true;
}

static int digits(int n)
{
    int d = 1;
    for (; n >= 10; n /= 10)
        d++;
    return d;
}

static bool prepare(struct launcher *l)
{
    struct run_options *opt = l->opt;
    l->nlinks = opt->nhosts;
    l->links = calloc((size_t)l->nlinks, sizeof *l->links);
    l->ranks = calloc((size_t)opt->nranks, sizeof *l->ranks);
    if (!l->links || !l->ranks || !make_secret(l->secret))
        return false;
    for (int i = 0; i < l->nlinks; i++) {
        l->links[i].host = &opt->hosts[i];
        l->links[i].err_fd = l->links[i].wire.in = l->links[i].wire.out = -1;
        for (int r = opt->hosts[i].first; r < opt->hosts[i].first + opt->hosts[i].n; r++)
            l->ranks[r].link = &l->links[i];
    }
    int width = digits(opt->nranks - 1);
    for (int r = 0; r < opt->nranks && opt->tag; r++)
        snprintf(l->ranks[r].tag, sizeof l->ranks[r].tag, "[%*d] ", width < 8 ? width : 8, r);
    return true;
}

static void finish(struct launcher *l)
{
    bool lost = false;
    for (int i = 0; i < l->nlinks; i++)
        lost = lost || l->links[i].lost || l->links[i].pid > 0;
    for (int r = 0; l->ranks && r < l->opt->nranks; r++)
        for (int s = 0; s < 2; s++)
            lines_end(&l->ranks[r].lines[s], s ? &l->err : &l->out, l->ranks[r].tag);
    for (int i = 0; l->links && i < l->nlinks; i++)
        link_free(&l->links[i]);
    if (lost) /* an agent that was killed could not end what its ranks had started */
        procs_end_descendants(0, NULL, 0);
    sink_drain(&l->out);
    sink_drain(&l->err);
    free(l->out.queue);
    free(l->err.queue);
    free(l->addresses);
    free(l->links);
    free(l->ranks);
    if (l->signal_fd >= 0)
        close(l->signal_fd);
}

static int run_job(struct run_options *opt)
{
    struct launcher l = {.opt = opt, .out.fd = 1, .err.fd = 2, .signal_fd = -1, .start = run_now()};
    int rc = 0;
    if (!prepare(&l))
        rc = out_error("run", "no memory, or no random numbers");
    procs_adopt();
    if (rc == 0 && (l.signal_fd = catch_signals()) < 0)
        rc = out_error("run", "cannot catch signals: %s", strerror(errno));
    for (int i = 0; i < l.nlinks && rc == 0; i++)
        rc = link_start(&l, i);
    if (rc == 0)
        walk(&l);
    finish(&l);
    return rc ? rc : l.status;
}

int cmd_run(int argc, char **argv)
{
    struct run_options opt;
    int rc = run_parse(argc, argv, &opt);
    if (rc == 0 && opt.agent)
        rc = agent_remote();
    else if (rc == 0 && opt.help)
        run_usage();
    else if (rc == 0)
        rc = run_job(&opt);
    run_options_free(&opt);
    return rc;
}
