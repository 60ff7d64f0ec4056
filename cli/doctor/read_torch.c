/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_torch.c - what PyTorch's process groups, store and debug wrapper print, 1.13 to 2.x. A watchdog's own line names no group before
 * 2.9; the status line that follows does, and rules join both by rank and number. How programs end is in read_ends.c.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "torch.h"

/* ---- who speaks: "[E514 03:12:09.114 F.cpp:632] [PG ID 0 PG GUID 0(default_pg) Rank 1] [Rank 1] ..." --------------------------- */

struct torch_line {
    const struct line *line;
    const char *msg;
    int rank;
    const char *group, *description;
    double time_s;
};

static void take_group(struct model *m, const char *s, struct torch_line *t)
{
    struct span id, words;
    int64_t rank;
    if (scan(s, "PG GUID %w", &id)) { /* 21 or 21(NAME) */
        const char *open = memchr(id.p, '(', id.n);
        t->group = model_string(m, id.p, open ? (size_t)(open - id.p) : id.n);
        if (open && scan(open, "(%t)", &words))
            t->description = model_string(m, words.p, words.n);
    } else if (scan(s, "[PG %w Rank %d]", &id, &rank)) {
        t->group = model_say(m, "PG %.*s", (int)id.n, id.p);
    }
    if (scan(s, "Rank %d]", &rank))
        t->rank = (int)rank;
}

static struct torch_line torch_line(struct model *m, const struct line *l)
{
    struct torch_line t = {.line = l, .msg = l->text, .rank = l->rank, .group = "", .description = "", .time_s = l->time_s};
    int64_t day, h, min;
    double s;
    if (t.msg[0] == '[' && strchr("EWIF", t.msg[1]) && isdigit((unsigned char)t.msg[2]) && scan(t.msg + 2, "%d %d:%d:%f", &day, &h, &min, &s))
        t.time_s = (double)(day * 86400 + h * 3600 + min * 60) + s;
    take_group(m, t.msg, &t);
    return t;
}

static struct fact torch_fact(const struct torch_line *t, enum fact_kind kind)
{
    struct fact f = fact_at(t->line, kind);
    f.rank = t->rank;
    f.pid = NOBODY;
    f.host = "";
    f.time_s = t->time_s;
    return f;
}

/* ---- watchdog ------------------------------------------------------------------------------------------------------------------ */

static bool watchdog(struct model *m, const struct torch_line *t)
{
    struct span op;
    int64_t seq, v;
    if (!scan(t->msg, "WorkNCCL(SeqNum=%d, OpType=%w", &seq, &op)) {
        if (!scan(t->msg, "WorkNCCL(OpType=%w", &op)) /* 1.13 and before */
            return false;
        seq = 0;
    }
    struct fact f = torch_fact(t, F_WATCHDOG);
    f.name = t->group;
    f.more = t->description;
    f.a = seq;
    f.value = model_string(m, op.p, op.n);
    f.b = scan(t->msg, "NumelIn=%d", &v) ? v : NOBODY;
    f.c = scan(t->msg, "Timeout(ms)=%d", &v) ? v : 0;
    f.d = scan(t->msg, "ran for %d", &v) ? v / 1000 * 1000 : 0;
    model_add(m, &f);
    return true;
}

static bool progress(struct model *m, const struct torch_line *t)
{
    int64_t enqueued, completed, failed = NOBODY;
    if (!(scan(t->msg, "last enqueued NCCL work: %d, last completed NCCL work: %d", &enqueued, &completed) ||
          scan(t->msg, "ast enqueued NCCL work: %d, last completed NCCL work: %d", &enqueued, &completed) ||
          scan(t->msg, "last enqueued work: %d, last completed work: %d", &enqueued, &completed)))
        return false;
    (void)(scan(t->msg, "sequence id: %d", &failed) || scan(t->msg, "detected by watchdog at work: %d", &failed) || scan(t->msg, "Timeout at NCCL work: %d", &failed));
    struct fact f = torch_fact(t, F_PROGRESS);
    f.name = t->group;
    f.more = t->description;
    f.a = enqueued;
    f.b = completed;
    f.c = failed;
    model_add(m, &f);
    return true;
}

static bool heartbeat(struct model *m, const struct torch_line *t)
{
    int64_t s;
    if (!scan(t->msg, "watchdog got stuck for %d seconds", &s))
        return false;
    struct fact f = torch_fact(t, F_HEARTBEAT);
    f.a = s;
    model_add(m, &f);
    return true;
}

/* ---- joining ------------------------------------------------------------------------------------------------------------------- */

/* "Timed out after 301 seconds waiting for clients. 3/4 clients joined." */
static bool clients_joined(const char *s, int64_t *count, int64_t *world)
{
    const char *end = has(s, " clients joined") ? strstr(s, " clients joined") : NULL, *p = end;
    while (p && p > s && (isdigit((unsigned char)p[-1]) || p[-1] == '/'))
        p--;
    return p && end - p < 24 && scan(p, "%d/%d clients joined", count, world);
}

static bool store(struct model *m, const struct torch_line *t)
{
    int64_t rank, world, count, port;
    struct span key;
    if (has(t->msg, "store based barrier") && scan(t->msg, "rank: %d", &rank) && scan(t->msg, "(world_size=%d, worker_count=%d", &world, &count)) {
        struct fact f = torch_fact(t, F_STORE_JOIN);
        f.rank = (int)rank;
        f.a = world;
        f.b = count;
        f.extra = begins(t->msg, "Waiting") || has(t->msg, "Waiting in") ? "waiting" : "timed out";
        f.value = scan(t->msg, "key: %w", &key) ? model_string(m, key.p, key.n) : "";
        model_add(m, &f);
        return true;
    }
    if (scan(t->msg, "Completed store-based barrier for key:%*with %d nodes", &world)) {
        struct fact f = torch_fact(t, F_STORE_JOIN);
        f.a = f.b = world;
        f.extra = "completed";
        model_add(m, &f);
        return true;
    }
    if (clients_joined(t->msg, &count, &world)) {
        struct fact f = torch_fact(t, F_STORE_JOIN);
        f.a = world;
        f.b = count;
        f.extra = "timed out";
        model_add(m, &f);
        return true;
    }
    bool taken = has(t->msg, "EADDRINUSE") || (has(t->msg, "server socket") && has_nocase(t->msg, "address already in use"));
    if (taken && (scan(t->msg, "port: %d", &port) || scan(t->msg, "]:%d (errno", &port) || scan(t->msg, ":%d (errno", &port))) {
        struct fact f = torch_fact(t, F_PORT_TAKEN);
        f.a = port;
        model_add(m, &f);
        return true;
    }
    int64_t code;
    struct span name, why;
    if (scan(t->msg, "network addresses of (%t, %d) cannot be retrieved (gai error: %d - %t)", &name, &port, &code, &why)) {
        struct fact f = torch_fact(t, F_NO_ADDRESS);
        f.value = model_string(m, name.p, name.n);
        f.a = port;
        f.name = model_string(m, why.p, why.n);
        model_add(m, &f);
        return true;
    }
    if (has(t->msg, "client socket") && (has(t->msg, "timed out after") || has(t->msg, "failed to connect"))) {
        struct span host, words;
        int64_t number;
        struct fact f = torch_fact(t, F_CONNECT);
        f.value = scan(t->msg, "connect to %*(%t, %d)", &host, &port) || scan(t->msg, "to [%t]:%d", &host, &port) || scan(t->msg, "to %t:%d", &host, &port)
                      ? model_string(m, host.p, host.n) : "";
        f.a = *f.value ? port : 0;
        f.name = scan(t->msg, "(errno: %d - %t)", &number, &words) ? model_string(m, words.p, words.n) : has(t->msg, "refused") ? "Connection refused" : "timed out";
        f.extra = "connect";
        f.b = has(t->msg, "timed out after") || has(t->msg, "any network address"); /* else it tries again, as it does until the store is there */
        f.more = "store";
        model_add(m, &f);
        return true;
    }
    return false;
}

/* Who made no id, and who waits for it: "[1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store ..." */
static bool unique_id(struct model *m, const struct torch_line *t)
{
    int64_t mine, theirs;
    struct span word;
    if (!scan(t->msg, "[%d] is setting up NCCL communicator and retr%*from [%d]", &mine, &theirs))
        return false;
    struct fact f = torch_fact(t, F_NO_ID);
    f.rank = (int)mine;
    f.peer = (int)theirs;
    f.value = scan(t->msg, "by key '%t'", &word) ? model_string(m, word.p, word.n) : "";
    f.name = scan(t->msg, "got error: %t.", &word) || scan(t->msg, "got error: %t", &word) ? model_string(m, word.p, word.n) : "no answer";
    model_add(m, &f);
    return true;
}

/* What follows a first failure and is never its cause; of the store's, who is gone is kept. */
static bool secondary(struct model *m, const struct torch_line *t)
{
    struct span host;
    int64_t port;
    if ((has(t->msg, "sendBytes failed") || has(t->msg, "recvValue failed") || has(t->msg, "recvBytes failed")) && scan(t->msg, "remote=[%t]:%d", &host, &port)) {
        struct fact f = torch_fact(t, F_PEER_CLOSED);
        f.value = model_string(m, host.p, host.n);
        f.a = port;
        f.name = "connection of the store closed";
        f.more = "c10d";
        model_add(m, &f);
        return true;
    }
    return has(t->msg, "should dump") || has(t->msg, "sendBytes failed") || has(t->msg, "recvValue failed") || has(t->msg, "recvBytes failed") ||
           has(t->msg, "Stack trace of the failed collective not found") || has(t->msg, "taking the entire process down") ||
           has(t->msg, "Some NCCL operations have failed") || has(t->msg, "destroy_process_group() was not called");
}

/* ---- the debug wrapper --------------------------------------------------------------------------------------------------------- */

struct print {
    int64_t rank, seq;
    struct span op, shape;
};

static bool take_print(const char *s, struct print *p)
{
    if (!scan(s, "Rank %d is running %*OpType=%w", &p->rank, &p->op))
        return false;
    if (!scan(s, "SequenceNumber=%d", &p->seq))
        p->seq = NOBODY;
    const char *next = strstr(s, "but Rank"), *shape = strstr(s, "TensorShape=[");
    p->shape = (struct span){"", 0};
    if (shape && (!next || shape < next))
        (void)scan(shape, "[%t]", &p->shape);
    return true;
}

static bool wrapper(struct model *m, const struct torch_line *t)
{
    struct print mine, theirs;
    if (!has(t->msg, "CollectiveFingerPrint(") || !take_print(strstr(t->msg, "Rank ") ? t->msg : "", &mine))
        return false;
    const char *but = strstr(t->msg, "but Rank");
    struct fact f = torch_fact(t, F_FINGERPRINT);
    f.rank = (int)mine.rank;
    f.name = model_string(m, mine.op.p, mine.op.n);
    f.extra = model_string(m, mine.shape.p, mine.shape.n);
    f.a = mine.seq;
    f.b = NOBODY;
    if (but && take_print(but + 4, &theirs)) {
        f.peer = (int)theirs.rank;
        f.value = model_string(m, theirs.op.p, theirs.op.n);
        f.more = model_string(m, theirs.shape.p, theirs.shape.n);
        f.b = theirs.seq;
    }
    model_add(m, &f);
    return true;
}

static bool monitored(struct model *m, const struct torch_line *t)
{
    int64_t ms = 0;
    const char *end = strstr(t->msg, " failed to pass monitoredBarrier"), *from = NULL;
    for (const char *p = t->msg; end && (p = strstr(p, "Rank")) && p < end; p += 4)
        from = p + 4 + strspn(p + 4, "s ");
    if (!end || !from || from > end)
        return false;
    (void)scan(t->msg, "monitoredBarrier in %d ms", &ms);
    struct fact f = torch_fact(t, F_BARRIER_MISS);
    f.name = model_string(m, from, (size_t)(end - from));
    f.a = ms;
    model_add(m, &f);
    return true;
}

/* ---- limits that a program sets: timeout=timedelta(hours=2) ------------------------------------------------------------------------ */

static bool limits(struct model *m, const struct line *l)
{
    const char *call = strstr(l->text, "init_process_group("), *group = strstr(l->text, "new_group(");
    const char *delta = strstr(l->text, "timedelta(");
    if ((!call && !group) || !delta)
        return false;
    static const struct { const char *word; int64_t seconds; } units[] = {{"days=%d", 86400}, {"hours=%d", 3600}, {"minutes=%d", 60}, {"seconds=%d", 1}};
    int64_t sum = 0, v;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (scan(delta, units[i].word, &v))
            sum += v * units[i].seconds;
    struct fact f = fact_at(l, F_GROUP_LIMIT);
    f.a = sum;
    f.b = group != NULL;
    model_add(m, &f);
    return true;
}

static bool read_line(struct model *m, struct context *c, const struct line *l)
{
    /* Cheap tests first: most lines of a log are none of these. */
    if (torch_ends(m, c, l) || limits(m, l))
        return true;
    if (!has(l->text, "ank") && !has(l->text, "NCCL") && !has(l->text, "PG ") && !has(l->text, "ocket") && !has(l->text, "joined") && !has(l->text, "watchdog"))
        return false;
    struct torch_line t = torch_line(m, l);
    return watchdog(m, &t) || progress(m, &t) || heartbeat(m, &t) || unique_id(m, &t) || store(m, &t) || wrapper(m, &t) || monitored(m, &t) || secondary(m, &t);
}

const struct reader reader_torch = {.name = "output of PyTorch", .line = read_line, .end = torch_ends_file};
