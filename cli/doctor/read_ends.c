/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_ends.c - how ranks end, and what they did last: exit codes as launchers print them, torchrun's summary, tracebacks, exceptions,
 * progress bars.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "nccl.h"
#include "torch.h"

enum { TRACES = 128 };

/* The frames of a traceback come line by line, ranks mixed; the innermost frame of the user's own files is kept for each rank. */
struct trace_state {
    struct {
        const char *where, *function;
        bool open;
    } of[TRACES];
    /* torchrun's summary */
    int rank;
    bool root, in_summary, last_error;
    const char *host;
};

static struct trace_state *state_of(struct model *m, struct context *c)
{
    if (!c->trace) {
        c->trace = model_alloc(m, sizeof *c->trace);
        c->trace->rank = NOBODY;
        c->trace->host = "";
    }
    return c->trace;
}

void torch_ends_file(struct model *m, struct context *c, const char *file)
{
    if (c->trace)
        *c->trace = (struct trace_state){.rank = NOBODY, .host = ""};
}

/* ---- tracebacks --------------------------------------------------------------------------------------------------------------- */

static bool is_library(struct span file)
{
    static const char *const parts[] = {"site-packages", "dist-packages", "lib/python", "<frozen", "torch/distributed/"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (memmem(file.p, file.n, parts[i], strlen(parts[i])))
            return true;
    return false;
}

static bool traceback(struct model *m, struct context *c, const struct line *l)
{
    const char *s = skip_blanks(l->text);
    struct span file, function;
    int64_t number;
    unsigned slot = (unsigned)(l->rank < 0 ? TRACES - 1 : l->rank % (TRACES - 1));
    if (begins(s, "Traceback (most recent call last)")) {
        struct trace_state *t = state_of(m, c);
        t->of[slot].open = true;
        t->of[slot].where = t->of[slot].function = "";
        return true;
    }
    if (begins(s, "File \"") && scan(s, "File \"%t\", line %d, in %w", &file, &number, &function)) {
        struct trace_state *t = state_of(m, c);
        if (is_library(file) && t->of[slot].where && *t->of[slot].where)
            return true;
        const char *base = memrchr(file.p, '/', file.n);
        size_t skip = base ? (size_t)(base + 1 - file.p) : 0;
        t->of[slot].open = true;
        t->of[slot].where = model_say(m, "%.*s:%ld", (int)(file.n - skip), file.p + skip, (long)number);
        t->of[slot].function = model_string(m, function.p, function.n);
        return true;
    }
    return false;
}

/* "RuntimeError: ...", at the end of a traceback or where a program prints only that. Later readers see the line too. */
static void exception(struct model *m, struct context *c, const struct line *l)
{
    const char *s = skip_blanks(l->text);
    size_t n = name_bytes(s, "_.");
    if (n < 5 || s[n] != ':' || !(memmem(s, n, "Error", 5) || memmem(s, n, "Exception", 9)) || memmem(s, n, "nccl", 4))
        return;
    unsigned slot = (unsigned)(l->rank < 0 ? TRACES - 1 : l->rank % (TRACES - 1));
    struct fact f = fact_at(l, F_EXCEPTION);
    f.name = model_string(m, s, n);
    f.value = model_words(m, skip_blanks(s + n + 1));
    if (c->trace && c->trace->of[slot].open && c->trace->of[slot].where) {
        f.extra = c->trace->of[slot].where;
        f.more = c->trace->of[slot].function;
        c->trace->of[slot].open = false;
    }
    model_add(m, &f);
}

/* ---- exits ---------------------------------------------------------------------------------------------------------------------- */

static bool add_exit(struct model *m, const struct line *l, int64_t rank, int64_t code, int64_t pid, const char *words)
{
    struct fact f = fact_at(l, F_EXIT);
    if (rank != NOBODY)
        f.rank = (int)rank;
    f.a = code;
    f.pid = pid;
    f.value = words;
    model_add(m, &f);
    return true;
}

static int64_t signal_named(const char *s)
{
    return has_nocase(s, "killed") || has(s, "SIGKILL") ? -9 : has_nocase(s, "segmentation fault") || has(s, "SIGSEGV") ? -11 :
           has_nocase(s, "aborted") || has(s, "SIGABRT") ? -6 : has(s, "SIGTERM") || has_nocase(s, "terminated") ? -15 : has(s, "SIGBUS") || has_nocase(s, "bus error") ? -7 : 0;
}

/* torchrun: "Root Cause (first observed failure):" and the block below it. */
static bool summary(struct model *m, struct context *c, const struct line *l)
{
    const char *s = skip_blanks(l->text);
    int64_t v, pid;
    struct span host;
    if (begins(s, "Root Cause (first observed failure)") || (begins(s, "Other Failures:") && c->trace)) {
        struct trace_state *t = state_of(m, c);
        t->in_summary = true;
        t->root = begins(s, "Root");
        return true;
    }
    if (!c->trace || !c->trace->in_summary)
        return false;
    struct trace_state *t = c->trace;
    if (begins(s, "host") && scan(s, "host : %w", &host)) {
        t->host = model_string(m, host.p, host.n);
        return true;
    }
    if (begins(s, "rank") && scan(s, "rank : %d", &v)) {
        t->rank = (int)v;
        return true;
    }
    if (begins(s, "exitcode") && scan(s, "exitcode : %d (pid: %d)", &v, &pid)) {
        struct fact f = fact_at(l, F_EXIT);
        f.rank = t->rank;
        f.host = t->host;
        f.a = v;
        f.pid = pid;
        f.extra = t->root ? "root" : "";
        f.value = "torchrun";
        model_add(m, &f);
        return true;
    }
    return false;
}

/* Slurm, LSF, PBS and Kubernetes say why they end a job. */
static bool batch_ended(struct model *m, const struct line *l)
{
    static const struct { const char *words, *reason; } known[] = {{"DUE TO TIME LIMIT", "time limit"}, {"DUE TO NODE FAILURE", "node failure"}, {"DUE TO PREEMPTION", "preemption"}, {"DUE TO JOB REQUEUE", "preemption"}, {"TERM_RUNLIMIT", "time limit"},
        {"PBS: job killed: walltime", "time limit"}, {"Node failure on", "node failure"}, {"The node was low on resource", "eviction"}, {"CANCELLED AT", "cancelled"}};
    const char *s = l->text, *reason = NULL;
    if (!has(s, "CANCELLED") && !has(s, "TERM_") && !has(s, "job killed") && !has(s, "ode failure") && !has(s, "low on resource"))
        return false;
    for (size_t i = 0; !reason && i < sizeof known / sizeof *known; i++)
        reason = has(s, known[i].words) ? known[i].reason : NULL;
    struct span id, host;
    if (!reason)
        return false;
    struct fact f = fact_at(l, F_BATCH_ENDED);
    f.rank = NOBODY;
    f.name = scan(s, "*** STEP %w ON", &id) || scan(s, "*** JOB %w ON", &id) ? model_say(m, "%s %.*s", has(s, "STEP") ? "step" : "job", (int)id.n, id.p) : "";
    if (scan(s, "*** %*ON %w CANCELLED", &host) || scan(s, "failure on %w", &host))
        f.host = model_string(m, host.p, host.n);
    f.value = reason;
    model_add(m, &f);
    return true;
}

/* "1 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons": the first number. */
static bool ray_killed(const char *s)
{
    const char *p = strstr(s, " Workers (tasks / actors) killed due to memory pressure");
    const char *number = p;
    while (number && number > s && isdigit((unsigned char)number[-1]))
        number--;
    return p && strtol(number, NULL, 10) > 0;
}

static bool launcher_said(struct model *m, const struct line *l)
{
    int64_t rank, code, pid = NOBODY;
    const char *s = l->text;
    if (has(s, "oom_kill event") || has(s, "oom-kill event") || has(s, "OOMKilled")) {
        struct fact f = fact_at(l, F_KILLED);
        f.pid = NOBODY;
        f.value = "cgroup";
        model_add(m, &f);
        return true;
    }
    if (has(s, "killed due to memory pressure") && ray_killed(s)) {
        struct span ip;
        struct fact f = fact_at(l, F_KILLED);
        f.pid = f.rank = NOBODY;
        f.value = "Ray";
        f.host = scan(s, "IP: %w", &ip) ? span_words(m, ip) : f.host;
        return fact_add(m, f);
    }
    if (!has(s, "xit") && !begins(s, "srun:"))
        return false;
    if (scan(s, "failed (exitcode: %d) local_rank: %d (pid: %d)", &code, &rank, &pid))
        return add_exit(m, l, NOBODY, code, pid, "torchrun");
    if ((scan(s, "rank %d exit status %d", &rank, &code) || scan(s, "rank %d exited with status %d", &rank, &code) || scan(s, "rank %d exited with code %d", &rank, &code) ||
         scan(s, "rank %d exit code %d", &rank, &code) || scan(s, "Rank %d exited with code %d", &rank, &code)))
        return add_exit(m, l, rank, code, pid, "said");
    if (scan(s, "task %d: Exited with exit code %d", &rank, &code))
        return add_exit(m, l, rank, code, pid, "srun");
    if (begins(s, "srun: error:") && scan(s, "task %d: %*", &rank) && signal_named(s))
        return add_exit(m, l, rank, signal_named(s), pid, "srun");
    if (has(s, "exited on signal") && scan(s, "rank %d", &rank) && scan(s, "on signal %d", &code))
        return add_exit(m, l, rank, -code, pid, "mpirun");
    return false;
}

/* ---- what a rank did last ---------------------------------------------------------------------------------------------------------- */

/* tqdm: "words:  7%|#...| 44000/640000 [5:49:12<79:40:11, 2.1 examples/s]" */
static bool progress_bar(struct model *m, const struct line *l)
{
    const char *bar = strstr(l->text, "%|");
    int64_t done, of;
    if (!bar || !scan(bar + 2, "%*| %d/%d [", &done, &of))
        return false;
    const char *end = bar;
    while (end > l->text && (isdigit((unsigned char)end[-1]) || end[-1] == ' ' || end[-1] == ':'))
        end--;
    struct fact f = fact_at(l, F_BUSY);
    f.name = model_string(m, l->text, (size_t)(end - l->text));
    f.x = of ? 100.0 * (double)done / (double)of : 0;
    f.newest = true;
    model_add(m, &f);
    return true;
}

static bool library_error(struct model *m, struct context *c, const struct line *l)
{
    const char *s = skip_blanks(l->text);
    if (c->trace && c->trace->last_error) {
        c->trace->last_error = false;
        struct fact f = fact_at(l, F_LIBRARY_ERROR);
        f.name = "Last error";
        f.value = model_words(m, s);
        model_add(m, &f);
        nccl_message(m, l, s);
        return true;
    }
    if (begins(s, "Last error:")) {
        state_of(m, c)->last_error = true;
        return true;
    }
    return false;
}

bool torch_ends(struct model *m, struct context *c, const struct line *l)
{
    if (traceback(m, c, l) || summary(m, c, l) || batch_ended(m, l) || launcher_said(m, l) || progress_bar(m, l) || library_error(m, c, l))
        return true;
    exception(m, c, l);
    return false;
}
