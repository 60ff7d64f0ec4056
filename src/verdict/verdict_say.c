/* SPDX-License-Identifier: Apache-2.0 */
/* verdict_say.c - the words of which sentences are made: ranks, ages, operations, what a process does, how it ended. */
#include "verdict/verdict_inner.h"

#include <signal.h>
#include <string.h>

struct out out_of(char *buf, size_t cap)
{
    if (cap)
        buf[0] = 0;
    return (struct out){buf, cap, 0};
}

void say(struct out *o, const char *fmt, ...)
{
    if (o->len + 1 >= o->cap)
        return;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(o->buf + o->len, o->cap - o->len, fmt, ap);
    va_end(ap);
    if (n > 0)
        o->len = MIN(o->len + (size_t)n, o->cap - 1);
}

void say_age(struct out *o, uint64_t ns)
{
    uint64_t s = ns / 1000000000u;
    if (s < 100)
        say(o, "%.1f s", (double)(ns / 1000000u) / 1000);
    else if (s < 3600)
        say(o, "%d min %d s", (int)(s / 60), (int)(s % 60));
    else
        say(o, "%llu h %d min", (unsigned long long)(s / 3600), (int)(s / 60 % 60));
}

char *verdict_age_text(char *buf, size_t buf_bytes, uint64_t ns)
{
    struct out o = out_of(buf, buf_bytes);
    say_age(&o, ns);
    return buf;
}

void say_plain_ranks(struct out *o, const int32_t *ranks, int n)
{
    say(o, n == 1 ? "rank " : "ranks ");
    for (int i = 0; i < n;) {
        int last = i;
        while (last + 1 < n && ranks[last + 1] == ranks[last] + 1)
            last++;
        if (o->cap - o->len < 40 && last < n - 1) { /* the rest has no room */
            say(o, "%s%d more", i ? " and " : "", n - i);
            return;
        }
        say(o, "%s%d", i ? ", " : "", ranks[i]);
        if (last > i)
            say(o, "%s%d", last > i + 1 ? "-" : ", ", ranks[last]);
        i = last + 1;
    }
}

char *verdict_ranks_text(char *buf, size_t buf_bytes, const int32_t *ranks, size_t n)
{
    struct out o = out_of(buf, buf_bytes);
    say_plain_ranks(&o, ranks, (int)n);
    return buf;
}

char *verdict_signal_text(char *buf, size_t buf_bytes, int signal)
{
    static const struct { int number; const char *name; } names[] = {
        {SIGHUP, "SIGHUP"}, {SIGINT, "SIGINT"}, {SIGQUIT, "SIGQUIT"}, {SIGILL, "SIGILL"}, {SIGTRAP, "SIGTRAP"}, {SIGABRT, "SIGABRT"},
        {SIGBUS, "SIGBUS"}, {SIGFPE, "SIGFPE"}, {SIGKILL, "SIGKILL"}, {SIGUSR1, "SIGUSR1"}, {SIGSEGV, "SIGSEGV"},
        {SIGUSR2, "SIGUSR2"}, {SIGPIPE, "SIGPIPE"}, {SIGALRM, "SIGALRM"}, {SIGTERM, "SIGTERM"}, {SIGXCPU, "SIGXCPU"},
        {SIGXFSZ, "SIGXFSZ"}, {SIGSYS, "SIGSYS"}};
    const char *name = NULL;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        name = names[i].number == signal ? names[i].name : name;
    snprintf(buf, buf_bytes, name ? "signal %d (%s)" : "signal %d", signal, name);
    return buf;
}

/* ---- ranks ---------------------------------------------------------------------------------------------------------- */

static void say_where(struct out *o, const struct verdict_rank *r)
{
    if (r->pid && r->host[0])
        say(o, " (pid %d on %s)", r->pid, r->host);
    else if (r->pid)
        say(o, " (pid %d)", r->pid);
    else if (r->host[0])
        say(o, " (on %s)", r->host);
}

void say_rank(struct out *o, const struct judge *j, int rank)
{
    say(o, "rank %d", rank);
    if (rank >= 0 && rank < j->size)
        say_where(o, &j->f->ranks[rank]);
}

/* All on one host? Its name, else NULL. */
static const char *one_host(const struct judge *j, const int32_t *ranks, int n)
{
    const char *host = j->f->ranks[ranks[0]].host;
    for (int i = 1; i < n; i++)
        if (strcmp(j->f->ranks[ranks[i]].host, host) != 0)
            return NULL;
    return host[0] ? host : NULL;
}

void say_ranks(struct out *o, const struct judge *j, const int32_t *ranks, int n)
{
    if (n > 3) {
        say_plain_ranks(o, ranks, n);
        const char *host = one_host(j, ranks, n);
        if (host)
            say(o, " (on %s)", host);
        return;
    }
    for (int i = 0; i < n; i++) {
        say(o, "%s", i == 0 ? "" : i == n - 1 ? " and " : ", ");
        say_rank(o, j, ranks[i]);
    }
}

/* ---- operations ------------------------------------------------------------------------------------------------------- */

void say_group(struct out *o, const struct judge *j, const struct group *g)
{
    const struct verdict_comm *c = g->seats[0].comm;
    if (c->name[0])
        say(o, " of comm \"%s\"", c->name);
    else if (j->ngroups > 1)
        say(o, " of comm %llx", (unsigned long long)c->id);
    if (c->epoch)
        say(o, " (epoch %u)", c->epoch);
}

void say_operation(struct out *o, const struct judge *j, const struct group *g, uint32_t number)
{
    const struct verdict_event *e = g->sample && g->sample->number == number ? g->sample : NULL;
    for (uint32_t i = 0; !e && i < g->nseats; i++)
        e = event_at(g->seats[i].comm, number);
    say(o, "%s #%u", e ? coll_name((uno_coll)e->coll) : "operation", number);
    say_group(o, j, g);
}

void say_p2p(struct out *o, const struct judge *j, const struct wait *w)
{
    static const char *const names[] = {"?", "send", "recv", "isend", "irecv", "send"};
    bool sends = w->p2p->kind == VERDICT_SEND || w->p2p->kind == VERDICT_ISEND;
    char size[32];
    say(o, "%s", names[MIN(w->p2p->kind, 5)]);
    if (w->on >= 0)
        say(o, " %s rank %d", sends ? "to" : "from", w->on);
    else
        say(o, " from any rank");
    say(o, " (tag %d, %s", w->p2p->tag, text_bytes(size, sizeof size, w->p2p->bytes));
    if (w->p2p->number)
        say(o, ", #%u of the pair", w->p2p->number);
    say(o, ")");
    if (w->group)
        say_group(o, j, w->group);
}

/* ---- processes -------------------------------------------------------------------------------------------------------- */

/* The place of the last call that a binding named, of any communicator. */
static const char *last_site(const struct verdict_rank *r)
{
    const char *site = "";
    uint64_t when = 0;
    for (uint32_t i = 0; i < r->ncomms; i++) {
        const struct verdict_comm *c = &r->comms[i];
        const struct verdict_event *e = c->nevents ? &c->events[c->nevents - 1] : NULL;
        if (e && e->site[0] && e->start_ns >= when) {
            when = e->start_ns;
            site = e->site;
        }
    }
    return site;
}

/* "step+0x2c (program)" or "program+0x2c": a frame of the C library, the loader, the kernel's page or ours says nothing of the program. */
static bool is_foreign(const char *frame, size_t len)
{
    static const char *const modules[] = {"libc.so", "libc-", "libpthread", "ld-linux", "ld-musl", "ld-2", "ld.so", "libunisono.so", "[vdso]"};
    size_t from = len;
    while (from > 0 && frame[from - 1] != '(')
        from--;
    for (size_t i = 0; i < ARRAY_LEN(modules); i++)
        if (strncmp(frame + from, modules[i], strlen(modules[i])) == 0)
            return true;
    return false;
}

/* The line of the stack that tells most: the first one of the program itself, else the first one. */
static const char *telling_frame(const char *stack)
{
    for (const char *s = stack; *s && strncmp(s, "main thread:", 12) != 0;) {
        size_t len = strcspn(s, "\n");
        if (!is_foreign(s, len))
            return s;
        s += len + (s[len] == '\n');
    }
    return strncmp(stack, "main thread:", 12) == 0 ? "" : stack;
}

#define FRAME_CHARS 96

/* Of a long name, as C++ has them, the middle is left out: offset and module stay. */
static void say_frame(struct out *o, const char *frame)
{
    int len = (int)strcspn(frame, "\n"), end = len;
    while (end > 0 && strncmp(frame + end, "+0x", 3) != 0)
        end--;
    int head = FRAME_CHARS - 3 - (len - end);
    if (len <= FRAME_CHARS || end == 0 || head < FRAME_CHARS / 4)
        say(o, " in %.*s", MIN(len, FRAME_CHARS), frame);
    else
        say(o, " in %.*s...%.*s", head, frame, len - end, frame + end);
}

#define LAST_SEEN "last seen at " /* a binding that sees the last call only says so; the verdict does, too */

static bool is_last_seen(const struct verdict_process *p)
{
    return strncmp(p->python, LAST_SEEN, sizeof LAST_SEEN - 1) == 0;
}

/* " in step() at train.py:212", " in step+0x2c (program)", or nothing. */
static void say_place(struct out *o, const struct verdict_rank *r)
{
    const struct verdict_process *p = &r->process;
    const char *in = strstr(p->python, " in "), *frame = telling_frame(p->stack);
    if (is_last_seen(p))
        return;
    if (in)
        say(o, " in %s at %.*s", in + 4, (int)(in - p->python), p->python);
    else if (p->python[0])
        say(o, " at %s", p->python);
    else if (frame[0])
        say_frame(o, frame);
}

/* "; last seen at train.py:212 in step()": behind all else, and only where no place of now is known. */
static void say_last_seen(struct out *o, const struct verdict_rank *r)
{
    const struct verdict_process *p = &r->process;
    if (is_last_seen(p))
        say(o, "; %s", p->python);
    else if (!p->python[0] && !telling_frame(p->stack)[0] && last_site(r)[0])
        say(o, "; " LAST_SEEN "%s", last_site(r));
}

static void say_since(struct out *o, const struct judge *j, const struct verdict_rank *r)
{
    uint64_t age = age_of(j, at_judge(j, r->rank, r->process.run_since_ns));
    if (age) {
        say(o, " for ");
        say_age(o, age);
    }
}

void say_doing(struct out *o, const struct judge *j, int rank)
{
    const struct verdict_rank *r = &j->f->ranks[rank];
    const struct verdict_process *p = &r->process;
    switch ((enum verdict_run)p->run) {
    case VERDICT_RUN_RUNS:
        if (starved(p)) {
            say(o, "is ready to run");
            say_place(o, r);
            say(o, " but had no processor for %u %% of the last ", MIN(p->queue_permille, 1000u) / 10);
            say_age(o, MAX(p->sample_ns, (uint64_t)100000000u));
            if (p->cgroup[0])
                say(o, ", in the cgroup %s", p->cgroup);
            say_last_seen(o, r);
            return;
        }
        if (p->sample_ns && !p->in_library)
            say(o, p->cpu_permille >= 200 ? "computes (%u %% of a processor)" : "is ready to run (%u %% of a processor)",
                p->cpu_permille / 10);
        else
            say(o, p->in_library ? "is inside a call of this library" : "computes");
        break;
    case VERDICT_RUN_SYSCALL:
        say(o, "waits in the system call %s", p->syscall[0] ? p->syscall : "?");
        if (p->wchan[0])
            say(o, " (%s)", p->wchan);
        say_since(o, j, r);
        break;
    case VERDICT_RUN_DISK:
        say(o, "waits uninterruptibly in the kernel%s%s%s, as for a disk or a file server", p->wchan[0] ? " (" : "", p->wchan,
            p->wchan[0] ? ")" : "");
        say_since(o, j, r);
        break;
    case VERDICT_RUN_STOPPED:
        say(o, "is stopped by a signal (SIGSTOP or from the terminal)");
        say_since(o, j, r);
        break;
    case VERDICT_RUN_TRACED:
        say(o, "is held by a debugger");
        if (p->tracer_pid)
            say(o, " (%s%spid %d)", p->tracer, p->tracer[0] ? ", " : "", p->tracer_pid);
        say_since(o, j, r);
        break;
    case VERDICT_RUN_FROZEN:
        say(o, "is frozen with its cgroup%s%s", p->cgroup[0] ? " " : "", p->cgroup);
        say_since(o, j, r);
        break;
    case VERDICT_RUN_ZOMBIE: say(o, "has ended and was not collected by its parent"); break;
    case VERDICT_RUN_HEADLESS: say(o, "lives on, but its thread that would call has ended"); break;
    case VERDICT_RUN_REPLACED:
        say(o, "runs another program now%s%s%s, which took its place by exec", p->successor[0] ? " (" : "", p->successor, p->successor[0] ? ")" : "");
        break;
    case VERDICT_RUN_SLEEPS: say(o, p->in_library ? "waits inside a call of this library" : "sleeps"); break;
    case VERDICT_RUN_UNKNOWN: say(o, "does something that could not be seen"); break;
    }
    say_place(o, r);
    if (others_compute(p))
        say(o, " while its other threads compute (%u %% of a processor)", p->cpu_permille / 10);
    say_last_seen(o, r);
}

/* What goes on is newer than what has ended, whatever the times say: a start has the coarse clock, an end the fine one. */
static bool is_newer(const struct verdict_event *a, const struct verdict_event *b)
{
    bool runs = a->state == VERDICT_RUNNING, ran = b->state == VERDICT_RUNNING;
    return runs != ran ? runs : MAX(a->start_ns, a->end_ns) > MAX(b->start_ns, b->end_ns);
}

/* The newest thing a rank did, over all its communicators. */
static const struct verdict_event *last_event(const struct judge *j, int rank, const struct group **g)
{
    const struct verdict_rank *r = &j->f->ranks[rank];
    const struct verdict_event *last = NULL;
    for (uint32_t i = 0; i < r->ncomms; i++) {
        const struct verdict_comm *c = &r->comms[i];
        const struct verdict_event *e = c->nevents ? &c->events[c->nevents - 1] : NULL;
        if (e && (!last || is_newer(e, last))) {
            last = e;
            *g = group_of(j, c);
        }
    }
    return *g ? last : NULL;
}

#define COARSE_NS 10000000u

/* The newest send or receive that its program stood in. */
static bool last_message(const struct judge *j, int rank, struct wait *w)
{
    const struct verdict_rank *r = &j->f->ranks[rank];
    *w = (struct wait){.on = -1};
    for (uint32_t i = 0; i < r->ncomms; i++) {
        const struct group *g = group_of(j, &r->comms[i]);
        for (uint32_t k = 0; g && k < r->comms[i].np2p; k++) {
            const struct verdict_p2p *p = &r->comms[i].p2p[k];
            if (p->waited && (!w->p2p || p->since_ns > w->p2p->since_ns))
                *w = (struct wait){.p2p = p, .group = (struct group *)(uintptr_t)g, .on = p->peer == UNO_ANY ? -1 : member_of(g, p->peer)};
        }
    }
    return w->p2p != NULL;
}

void say_last(struct out *o, const struct judge *j, int rank)
{
    const struct group *g = NULL;
    const struct verdict_event *e = last_event(j, rank, &g);
    const struct verdict_rank *r = &j->f->ranks[rank];
    bool ended = r->status == VERDICT_DEAD || r->status == VERDICT_LEFT;
    struct wait message;
    if (ended && !(e && e->state == VERDICT_RUNNING) && last_message(j, rank, &message) && /* as the coarse clock tells */
        message.p2p->since_ns + COARSE_NS >= (e ? MAX(e->start_ns, e->end_ns) : 0)) {
        say(o, "its last operation was ");
        say_p2p(o, j, &message);
        say(o, ", not finished");
        return;
    }
    if (!e) {
        if (r->ncomms)
            say(o, "it has called no collective yet");
        else
            say(o, "its last operation is not known");
        return;
    }
    say(o, ended ? "its last operation was %s #%u" : "its last operation %s #%u", coll_name((uno_coll)e->coll), e->number);
    say_group(o, j, g);
    if (e->state == VERDICT_RUNNING && ended) {
        char moved[32], all[32];
        say(o, ", not finished");
        if (e->bytes_total)
            say(o, " (%s of %s moved)", text_bytes(moved, sizeof moved, e->bytes_moved), text_bytes(all, sizeof all, e->bytes_total));
        return;
    }
    uint64_t since = at_judge(j, rank, e->state == VERDICT_RUNNING ? e->start_ns : e->end_ns);
    const char *word = e->state == VERDICT_RUNNING ? "runs for" : e->state == VERDICT_FAILED ? "failed" : "ended";
    say(o, ended ? ", which %s" : " %s", word);
    if (since) {
        say(o, " ");
        say_age(o, age_of(j, since));
        say(o, e->state == VERDICT_RUNNING ? "" : " ago");
    }
}

void say_ended(struct out *o, const struct judge *j, const struct verdict_rank *r, int n)
{
    char name[32];
    if (r->ended == VERDICT_ENDED_SIGNAL)
        say(o, "%s killed by %s", n > 1 ? "were" : "was", verdict_signal_text(name, sizeof name, r->ended_code));
    else if (r->ended == VERDICT_ENDED_EXIT)
        say(o, "exited with status %d%s", r->ended_code, r->ended_code == 0 && r->status == VERDICT_DEAD ? " before the end" : "");
    else if (r->ended == VERDICT_ENDED_HOST)
        say(o, n > 1 ? "ended with their host" : "ended with its host");
    else if (r->ended == VERDICT_ENDED_AGENT && r->ended_code > 0)
        say(o, "ended with the agent of unisono run on %s host, which was ended by %s", n > 1 ? "their" : "its",
            verdict_signal_text(name, sizeof name, r->ended_code));
    else if (r->ended == VERDICT_ENDED_AGENT)
        say(o, "ended with the agent of unisono run on %s host", n > 1 ? "their" : "its");
    else
        say(o, r->status == VERDICT_LEFT ? "left in order" : "ended, status unknown here");
    uint64_t since = at_judge(j, r->rank, r->status_since_ns);
    if (since) {
        say(o, ", ");
        say_age(o, age_of(j, since));
        say(o, " ago");
    }
    if (r->oom_kill)
        say(o, ", for the kernel was out of memory (oom_kill in memory.events%s%s)", r->process.cgroup[0] ? " of " : "", r->process.cgroup);
    if (r->children_left == 0)
        return;
    if (r->children_left == 1)
        say(o, "; a process that it had forked lives on and holds what it had open");
    else
        say(o, "; %u processes that it had forked live on and hold what it had open", r->children_left);
    for (int i = 0; i < VERDICT_CHILDREN && r->children[i]; i++)
        say(o, i ? ", %d" : r->children_left == 1 ? " (pid %d" : " (pids %d", r->children[i]);
    if (r->children[0])
        say(o, r->children_left > VERDICT_CHILDREN ? ", ...)" : ")");
}
