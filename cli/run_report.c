/* SPDX-License-Identifier: Apache-2.0 */
/* run_report.c - what the launcher says when something ended: who, where, how, what it last wrote, and what happens now. */
#include "output.h"
#include "run_launch.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define TAIL_LINES 8

void report(struct launcher *l, const char *fmt, ...)
{
    va_list ap;
    char *text = NULL;
    va_start(ap, fmt);
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0)
        return;
    sink_printf(&l->err, "unisono run: %s\n", text);
    free(text);
}

static int status_of(enum run_end end, int value)
{
    if (end == END_STATUS)
        return value;
    if (end == END_SIGNAL)
        return 128 + value;
    return end == END_EXEC && value == ENOENT ? 127 : 126;
}

static void describe_end(char *buf, size_t bytes, enum run_end end, int value, const uno_end *seen)
{
    if (end == END_STATUS) {
        snprintf(buf, bytes, "exited with status %d", value);
        return;
    }
    const char *name = sigabbrev_np(value);
    int n = snprintf(buf, bytes, "was killed by signal %d (SIG%s%s)", value, name ? name : "?",
                     value == SIGKILL && !seen->oom_kill ? "; if nobody sent it, the kernel was out of memory, see dmesg" : "");
    if (seen->oom_kill)
        snprintf(buf + n, bytes - (size_t)n, ", for the kernel was out of memory (oom_kill in memory.events of %.120s),", seen->cgroup);
}

static void describe_rest(const struct launcher *l, char *buf, size_t bytes)
{
    int others = 0;
    for (int i = 0; i < l->opt->nranks; i++)
        others += !l->ranks[i].ended;
    if (others == 0)
        snprintf(buf, bytes, "no other rank was running");
    else if (l->opt->keep_going)
        snprintf(buf, bytes, "the other %d go on", others);
    else
        snprintf(buf, bytes, "ending the other %d", others);
}

int link_status(const struct link *link)
{
    int code = WEXITSTATUS(link->status);
    return WIFEXITED(link->status) && code > 128 && code < 128 + NSIG ? code - 128 : link->status;
}

static void report_start(struct launcher *l, int rank, enum run_end end, int error)
{
    const struct rank *r = &l->ranks[rank];
    const char *program = l->opt->args[0];
    if (end == END_CHDIR)
        report(l, "rank %d cannot be started: host %s does not have the directory from which unisono was started: %s", rank,
               r->link->host->name, strerror(error));
    else if (error == ENOENT)
        report(l, "\"%s\" cannot be started on host %s: %s", program, r->link->host->name,
               strchr(program, '/') ? "there is no such file, or its interpreter is missing" : "no such program in PATH");
    else
        report(l, "\"%s\" cannot be started on host %s: %s%s", program, r->link->host->name, strerror(error), out_start_hint(error));
}

void report_rank_end(struct launcher *l, int rank, enum run_end end, int value, const uno_end *seen)
{
    struct rank *r = &l->ranks[rank];
    int status = status_of(end, value);
    if (status == 0 || (l->ending && l->failed) || (r->link->ending && end == END_SIGNAL && value == SIGKILL))
        return;
    if (l->told) { /* people ended the job; how each rank took it is no news */
        l->status = 128 + l->told;
        return;
    }
    if (!l->failed)
        l->status = status;
    l->failed = true;
    if (end == END_EXEC || end == END_CHDIR) {
        report_start(l, rank, end, value);
        return;
    }
    char what[280], rest[80];
    describe_end(what, sizeof what, end, value, seen);
    describe_rest(l, rest, sizeof rest);
    report(l, "rank %d (host %s, pid %d) %s after %.1f s; %s.%s", rank, r->link->host->name, (int)r->pid, what, run_now() - l->start,
           rest, r->tail.total ? " Its last lines on stderr:" : " It wrote nothing on stderr.");
    tail_show(&r->tail, &l->err, "  | ", TAIL_LINES);
}

void report_remaining(struct launcher *l, int sig)
{
    char *list = NULL;
    size_t bytes = 0;
    int n = 0;
    FILE *f = open_memstream(&list, &bytes);
    for (int r = 0; f && r < l->opt->nranks; r++)
        if (!l->ranks[r].ended && n++ < 8)
            fprintf(f, "%srank %d (host %s, pid %d)", n > 1 ? ", " : "", r, l->ranks[r].link->host->name, (int)l->ranks[r].pid);
    if (f && n > 8)
        fprintf(f, " and %d more", n - 8);
    if (f)
        fclose(f);
    if (n > 0)
        report(l, "%s ha%s not ended %.0f s after SIG%s; a second signal kills %s", list ? list : "a rank", n == 1 ? "s" : "ve", l->opt->grace_s,
               sigabbrev_np(sig), n == 1 ? "it" : "them");
    free(list);
}

void report_ending(struct launcher *l, struct link *link, int sig)
{
    char rest[80];
    bool first = !l->failed;
    for (int r = link->host->first; r < link->host->first + link->host->n; r++)
        l->ranks[r].ended = true;
    l->failed = true;
    if (!first || l->told)
        return;
    l->status = 2;
    describe_rest(l, rest, sizeof rest);
    report(l, "the agent of host %s was ended by signal %d (SIG%s) and ended its ranks; %s", link->host->name, sig,
           sigabbrev_np(sig) ? sigabbrev_np(sig) : "?", rest);
}

void report_lost(struct launcher *l, struct link *link)
{
    char how[80], rest[80];
    if (WIFSIGNALED(link->status))
        snprintf(how, sizeof how, "was killed by signal %d (SIG%s)", WTERMSIG(link->status), sigabbrev_np(WTERMSIG(link->status)));
    else
        snprintf(how, sizeof how, "ended with status %d", WEXITSTATUS(link->status));
    bool first = !l->failed;
    l->failed = true;
    if (!first || l->told)
        return;
    l->status = 2;
    describe_rest(l, rest, sizeof rest);
    if (!link->command)
        report(l, "the agent of this host %s; its ranks are gone with it; %s", how, rest);
    else if (link->synced)
        report(l, "host %s was lost: `%s` %s; %s", link->host->name, link->command, how, rest);
    else
        report(l, "host %s could not be reached, or unisono could not be started there: `%s` %s; try that command by hand%s",
               link->host->name, link->command, how, link->err_tail.total ? ". It said:" : "");
    if (link->command && !link->synced)
        tail_show(&link->err_tail, &l->err, "  | ", TAIL_LINES);
}
