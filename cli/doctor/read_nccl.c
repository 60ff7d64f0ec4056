/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_nccl.c - logs of NCCL 2.8 to 2.30 and RCCL: the frame of a line, the life of communicators, versions, settings, paths. What is
 * matched is the text after "NCCL INFO" or "NCCL WARN"; file and line numbers move with every release.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl.h"

struct fact nccl_fact(const struct nccl_line *n, enum fact_kind kind)
{
    struct fact f = fact_at(n->line, kind);
    if (*n->host)
        f.host = n->host;
    if (n->pid != NOBODY)
        f.pid = n->pid;
    f.dev = n->dev;
    return f;
}

/* ---- the frame: [time] host:pid:tid [dev] file:line (func) NCCL WARN msg ------------------------------------ */

static const char *back_over_digits(const char *from, const char *p)
{
    while (p > from && isdigit((unsigned char)p[-1]))
        p--;
    return p;
}

/* host:pid:tid ends before `end`, if it is there. */
static void take_frame(struct model *m, const char *from, const char *end, struct nccl_line *n)
{
    while (end > from && end[-1] == ' ')
        end--;
    const char *tid = back_over_digits(from, end);
    if (tid == end || tid - from < 4 || tid[-1] != ':')
        return;
    const char *pid = back_over_digits(from, tid - 1);
    if (pid == tid - 1)
        return;
    n->pid = strtoll(pid, NULL, 10);
    if (pid == from || pid[-1] != ':')
        return;
    const char *host = pid - 1;
    while (host > from && !isspace((unsigned char)host[-1]) && !strchr(":>()", host[-1]))
        host--;
    n->host = model_string(m, host, (size_t)(pid - 1 - host));
}

static bool take_line(struct model *m, const struct line *l, struct nccl_line *n)
{
    const char *at = strstr(l->text, "NCCL ");
    while (at && !begins(at + 5, "INFO ") && !begins(at + 5, "WARN ") && !begins(at + 5, "TRACE "))
        at = strstr(at + 5, "NCCL ");
    if (!at)
        return false;
    *n = (struct nccl_line){.line = l, .host = l->host, .pid = l->pid, .dev = NOBODY, .where = "", .warn = at[5] == 'W'};
    n->msg = skip_blanks(at + 5 + (at[5] == 'T' ? 6 : 5));
    const char *bracket = NULL;
    for (const char *p = l->text; p < at; p++)
        if (*p == '[' && (isdigit((unsigned char)p[1]) || p[1] == '-')) {
            char *end;
            long dev = strtol(p + 1, &end, 10);
            if (*end == ']') {
                bracket = p;
                n->dev = (int)dev;
                const char *where = end + 1 + strspn(end + 1, " "), *until = at;
                while (until > where && until[-1] == ' ')
                    until--;
                n->where = until > where ? model_string(m, where, (size_t)(until - where)) : "";
                break;
            }
        }
    if (bracket)
        take_frame(m, l->text, bracket, n);
    return true;
}

/* ---- communicators ------------------------------------------------------------------------------------------ */

static void take_comm_tail(struct model *m, const char *msg, struct fact *f)
{
    int64_t v;
    struct span s;
    if (scan(msg, "cudaDev %d", &v))
        f->dev = (int)v;
    if (scan(msg, "busId %w", &s))
        f->value = model_string(m, s.p, s.n);
    if (scan(msg, "parent %w", &s))
        f->more = model_string(m, s.p, s.n);
    if (scan(msg, "color %d", &v))
        f->c = v;
    if (scan(msg, "commId %w", &s) || scan(msg, "comm %w", &s))
        f->name = model_string(m, s.p, s.n);
}

static bool communicator(struct model *m, const struct nccl_line *n)
{
    int64_t rank, ranks;
    if (!scan(n->msg, "comm %*rank %d", &rank) || !(scan(n->msg, "nranks %d", &ranks) || scan(n->msg, "nRanks %d", &ranks)))
        return false;
    bool start = has(n->msg, "Init START"), complete = has(n->msg, "Init COMPLETE");
    struct fact f = nccl_fact(n, start || complete ? F_INIT : F_COMM_END);
    f.rank = (int)rank;
    f.a = ranks;
    take_comm_tail(m, n->msg, &f);
    if (start || complete) {
        struct span fn = {n->msg, strcspn(n->msg, " ")};
        if (begins(n->msg, "ncclComm"))
            f.extra = model_string(m, fn.p, fn.n);
        f.b = complete;
        /* What a pointer stands for: a split names its parent by the pointer that the parent's own line has. */
        struct span ptr;
        if (!*f.more && scan(n->msg, "comm %w", &ptr))
            f.more = model_say(m, "self %.*s", (int)ptr.n, ptr.p);
    } else if (has(n->msg, "Abort COMPLETE") || has(n->msg, "Destroy COMPLETE")) {
        f.value = has(n->msg, "Abort") ? "Abort" : "Destroy";
    } else {
        return false;
    }
    model_add(m, &f);
    return true;
}

/* ---- versions and settings ------------------------------------------------------------------------------------ */

static bool version(struct model *m, const struct line *l, const struct nccl_line *n, const char *text)
{
    struct span v;
    const char *name = NULL;
    if (scan(text, "NCCL version %w", &v) && v.n && isdigit((unsigned char)v.p[0]))
        name = "NCCL";
    if (scan(text, "RCCL version : %w", &v) || scan(text, "RCCL version %w", &v))
        name = "RCCL";
    if (name && memmem(v.p, v.n, "+hip", 4)) /* as RCCL called itself for long */
        name = "RCCL";
    if (!name || v.n > 40 || !memchr(v.p, '.', v.n))
        return false;
    struct fact f = n ? nccl_fact(n, F_VERSION) : fact_at(l, F_VERSION);
    const char *plus = memchr(v.p, '+', v.n);
    f.name = name;
    f.value = model_string(m, v.p, plus ? (size_t)(plus - v.p) : v.n);
    f.pid = NOBODY;
    f.dev = NOBODY;
    model_add(m, &f);
    return true;
}

/* "RCCL version : 2.21.5-HEAD:8d4ca71", then, a few lines on, "Hostname     : n1". */
static bool header(struct model *m, struct context *c, const struct line *l)
{
    struct span v;
    if (begins(l->text, "RCCL version :") && scan(l->text, "RCCL version : %w", &v)) {
        snprintf(c->rccl, sizeof c->rccl, "%.*s", (int)v.n, v.p);
        c->rccl_line = l->number;
        return false; /* the version is read as any other */
    }
    if (!*c->rccl || l->number > c->rccl_line + 6 || !begins(l->text, "Hostname ") || !scan(l->text, "Hostname : %w", &v))
        return false;
    struct fact f = fact_at(l, F_VERSION);
    f.name = "RCCL";
    f.value = model_words(m, c->rccl);
    f.host = model_string(m, v.p, v.n);
    f.text = model_say(m, "%s: RCCL version : %s", f.host, f.value);
    model_add(m, &f);
    c->rccl[0] = 0;
    return true;
}

static bool setting(struct model *m, const struct nccl_line *n)
{
    const char *by = strstr(n->msg, " set by environment to ");
    if (!by)
        return false;
    const char *from = by;
    while (from > n->msg && !isspace((unsigned char)from[-1]))
        from--;
    struct fact f = nccl_fact(n, F_SETTING_SEEN);
    f.pid = NOBODY;
    f.dev = NOBODY;
    f.name = model_string(m, from, (size_t)(by - from));
    const char *value = by + strlen(" set by environment to ");
    size_t bytes = strlen(value);
    if (bytes && value[bytes - 1] == '.')
        bytes--;
    f.value = model_string(m, value, bytes);
    model_add(m, &f);
    return true;
}

/* ---- paths: Channel 00/0 : 0[c1000] -> 1[c6000] [send] via NET/IB/1/GDRDMA ------------------------------------------ */

static bool channel(struct model *m, const struct nccl_line *n)
{
    int64_t number, a, b, card;
    struct span via;
    if (!begins(n->msg, "Channel ") || !scan(n->msg, "Channel %d%* : %d[%*-> %d[%*via %t", &number, &a, &b, &via))
        return false;
    const char *tail = strstr(via.p, " comm ");
    if (tail)
        via.n = (size_t)(tail - via.p);
    char words[96] = "";
    memcpy(words, via.p, via.n < sizeof words ? via.n : sizeof words - 1);
    struct fact f = nccl_fact(n, F_PATH);
    f.rank = (int)a;
    f.peer = (int)b;
    f.c = number;
    f.name = has(n->msg, "[send]") ? "send" : has(n->msg, "[receive]") ? "receive" : "local";
    f.b = has(words, "/GDRDMA");
    f.a = NOBODY;
    char *net = words + (begins(words, "NET/") ? 4 : 0);
    if (net != words) {
        char *slash = strchr(net, '/');
        if (slash && scan(slash, "/%d", &card))
            f.a = card;
        if (slash)
            *slash = 0;
    }
    f.value = model_words(m, words);
    model_add(m, &f);
    return true;
}

/* A mask is hexadecimal, in words of 32 bits, the highest first: "ff,ffff0000,00ffffff"; newer releases print a list: "0-23,48-71". */
static int64_t processors(struct model *m, struct span mask)
{
    int64_t bits = 0;
    size_t word = 0;
    bool list = memchr(mask.p, '-', mask.n) != NULL;
    for (size_t i = mask.n; i-- > 0 && !list; word = mask.p[i] == ',' ? 0 : word + 1) {
        int c = (unsigned char)mask.p[i];
        list = c == ',' && word != 8;
        bits += c == ',' ? 0 : __builtin_popcount((unsigned)(isdigit(c) ? c - '0' : (c | 32) - 'a' + 10));
    }
    return list ? numbers_listed(model_string(m, mask.p, mask.n)) : bits;
}

static bool affinity(struct model *m, const struct nccl_line *n)
{
    int64_t gpu;
    struct span mask;
    if (!scan(n->msg, "Setting affinity for GPU %d to %w", &gpu, &mask))
        return false;
    mask.n = strspn(mask.p, "0123456789abcdefABCDEF,-");
    if (n->line->cut)
        return true;
    struct fact f = nccl_fact(n, F_AFFINITY);
    f.dev = (int)gpu;
    f.name = model_string(m, mask.p, mask.n);
    f.value = "nccl";
    f.a = processors(m, mask);
    model_add(m, &f);
    return true;
}

static bool trace(struct model *m, const struct nccl_line *n)
{
    struct span op, comm;
    int64_t number, count, type;
    if (!scan(n->msg, "opCount %x", &number) || !scan(n->msg, "count %d datatype %d", &count, &type) || !scan(n->msg, "comm %w", &comm))
        return false;
    op = (struct span){n->msg, strcspn(n->msg, ": ")};
    struct fact f = nccl_fact(n, F_LAST_OP);
    f.name = model_string(m, comm.p, comm.n);
    f.newest = true;
    f.last_number = number;
    f.last_count = count;
    f.last_word = model_string(m, op.p, op.n);
    f.x = (double)type;
    model_add(m, &f);
    return true;
}

static bool state(struct model *m, const struct nccl_line *n)
{
    struct span word;
    struct fact f;
    int64_t model;
    if (scan(n->msg, "Using network %w", &word)) {
        f = nccl_fact(n, F_NETWORK);
        f.name = model_string(m, word.p, word.n);
    } else if (begins(n->msg, "NUMA auto balancing enabled")) {
        f = nccl_fact(n, F_NUMA_BALANCE);
        f.pid = f.dev = NOBODY;
    } else if (scan(n->msg, "lack of support for odd-number of nodes for model index %d", &model)) {
        f = nccl_fact(n, F_ODD_HOSTS);
        f.pid = f.dev = NOBODY;
        f.a = model;
    } else if (scan(n->msg, "Missing \"%t\"", &word)) {
        f = nccl_fact(n, F_IOMMU_WARNED);
        f.pid = f.dev = NOBODY;
        f.name = model_string(m, word.p, word.n);
    } else {
        return false;
    }
    model_add(m, &f);
    return true;
}

/* The lines under a warning, "file.cc:12 -> 3", are only its way up. */
static bool unwound(struct model *m, const struct nccl_line *n)
{
    struct span where;
    int64_t code;
    if (!scan(n->msg, "%w -> %d", &where, &code) || code < 1 || code > 8 || !memchr(where.p, ':', where.n))
        return false;
    struct fact f = nccl_fact(n, F_UNWOUND);
    f.a = code;
    f.name = model_string(m, where.p, where.n);
    model_add(m, &f);
    return true;
}

static bool known(struct model *m, const struct nccl_line *n)
{
    return channel(m, n) || communicator(m, n) || setting(m, n) || state(m, n) || affinity(m, n) || trace(m, n) || unwound(m, n) ||
           nccl_network(m, n) || version(m, n->line, n, n->msg);
}

void nccl_message(struct model *m, const struct line *l, const char *msg)
{
    struct nccl_line n = {.line = l, .host = l->host, .pid = l->pid, .dev = NOBODY, .warn = true, .where = "", .msg = msg};
    nccl_network(m, &n);
}

static bool read_line(struct model *m, struct context *c, const struct line *l)
{
    struct nccl_line n;
    if (header(m, c, l))
        return true;
    if (!strstr(l->text, "CCL"))
        return false;
    if (!take_line(m, l, &n))
        return begins(l->text, "# ") ? false : version(m, l, NULL, l->text) && !has(l->text, "compiled with") && !has(l->text, "error");
    if (*n.host) {
        struct fact f = fact_at(l, F_HOST_NAMED);
        f.host = n.host;
        f.pid = NOBODY;
        f.rank = NOBODY;
        model_add(m, &f);
    }
    if (!known(m, &n) && n.warn) {
        struct fact f = nccl_fact(&n, F_WARNED);
        f.name = model_words(m, n.msg);
        model_add(m, &f);
    }
    return true;
}

const struct reader reader_nccl = {.name = "an NCCL or RCCL log", .line = read_line};
