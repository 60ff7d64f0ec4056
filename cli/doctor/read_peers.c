/* SPDX-License-Identifier: Apache-2.0 */
/* read_peers.c - Gloo, UCX, libfabric, Horovod, MPI and Ray: lines that name an address, a size or who is missing. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "reader.h"

/* ---- Gloo -------------------------------------------------------------------------------------------------------------------- */

static bool gloo_connection(struct model *m, const struct line *l, const char *s)
{
    struct span host, words;
    int64_t port = 0, ms;
    struct fact f;
    if (scan(s, "Connection closed by peer [%t]:%d", &host, &port) || scan(s, "Read error [%t]:%d: %t", &host, &port, &words) ||
        scan(s, "writev [%t]:%d: %t", &host, &port, &words)) {
        f = fact_at(l, F_PEER_CLOSED);
        f.value = span_words(m, host);
        f.a = port;
        f.name = has(s, "closed by peer") ? "closed" : "reset";
        f.more = "gloo";
        return fact_add(m, f);
    }
    if (scan(s, "connect [%t]:%d: %t", &host, &port, &words) || scan(s, "SO_ERROR: %t, remote=[%t]:%d", &words, &host, &port)) {
        f = fact_at(l, F_CONNECT);
        f.value = span_words(m, host);
        f.a = port;
        f.name = span_words(m, words);
        f.extra = "connect";
        f.b = 1;
        f.more = "gloo";
        return fact_add(m, f);
    }
    if (scan(s, "Timed out waiting %dms for %w", &ms, &words) || scan(s, "Timed out waiting %d ms for %w", &ms, &words)) {
        f = fact_at(l, F_GLOO_TIMEOUT);
        f.a = ms;
        f.value = span_words(m, words);
        return fact_add(m, f);
    }
    return false;
}

static bool gloo_setup(struct model *m, const struct line *l, const char *s)
{
    struct span name;
    int64_t a = 0, b = 0;
    struct fact f;
    if (scan(s, "Unable to find address for: %w", &name) || scan(s, "Unable to find address for %w", &name)) {
        f = fact_at(l, F_GLOO_ADDRESS);
        f.name = span_words(m, name);
        return fact_add(m, f);
    }
    if (has(s, "Unable to resolve hostname to a")) {
        f = fact_at(l, F_GLOO_ADDRESS);
        f.value = "loopback";
        return fact_add(m, f);
    }
    if (scan(s, "op.preamble.length <= op.nbytes. %d vs %d", &a, &b) || has(s, "GLOO_ENFORCE_EQ(rv, nbytes)")) {
        f = fact_at(l, F_GLOO_SIZES);
        f.a = a;
        f.b = b;
        return fact_add(m, f);
    }
    return false;
}

static bool gloo_meets(struct model *m, const struct line *l, const char *s)
{
    struct span host, words;
    int64_t a, b, port = 0;
    struct fact f;
    if (scan(s, "ss1.ss_family == ss2.ss_family. %d vs %d", &a, &b)) {
        f = fact_at(l, F_FAMILIES);
        f.a = a;
        f.b = b;
        return fact_add(m, f);
    }
    if (scan(s, "Rank %d is NOT connected to: [%t]", &a, &words)) {
        f = fact_at(l, F_UNCONNECTED);
        f.rank = (int)a;
        f.name = span_words(m, words);
        return fact_add(m, f);
    }
    if (scan(s, "failed to connect, willRetry=%d", &a) && scan(s, "remote=[%t]:%d", &host, &port)) {
        f = fact_at(l, F_CONNECT);
        f.rank = scan(s, "rank=%d,", &b) ? (int)b : f.rank;
        f.value = span_words(m, host);
        f.a = port;
        f.name = scan(s, "error=SO_ERROR: %t,", &words) || scan(s, "error=%t,", &words) ? span_words(m, words) : "";
        f.extra = "connect";
        f.b = a == 0;
        f.more = "gloo";
        return fact_add(m, f);
    }
    return false;
}

/* ---- others --------------------------------------------------------------------------------------------------------------------- */

/* Horovod: "NAME [missing ranks: 1, 3]", before 0.14 "NAME [ready ranks: 5, 1]"; several may stand on a line. */
static bool stalled_tensors(struct model *m, const struct line *l, const char *s)
{
    static const struct { const char *open; bool ready; } lists[] = {{"[missing ranks: ", false}, {"[ready ranks: ", true}};
    bool any = false;
    struct span ranks;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (const char *at = s; (at = strstr(at, lists[i].open)) && scan(at + strlen(lists[i].open), "%t]", &ranks); at = ranks.p) {
            const char *end = at, *from;
            while (end > s && end[-1] == ' ')
                end--;
            for (from = end; from > s && !strchr(" ,", from[-1]);)
                from--;
            struct fact f = fact_at(l, F_STALLED_OPS);
            f.name = model_string(m, from, (size_t)(end - from));
            f.rank = f.peer = NOBODY;
            if (lists[i].ready)
                f.extra = span_words(m, ranks);
            else
                f.value = span_words(m, ranks);
            model_add(m, &f);
            any = true;
        }
    return any;
}

/* From 0.16 on: "Stalled ranks:", then a line a rank: "2: [NAME, NAME ...]"; its number may have been taken for a launcher's. */
static bool stalled_rank(struct model *m, struct context *c, const struct line *l, const char *s)
{
    enum { RANKS = 4096 };
    int64_t rank = l->task;
    if (has(s, "Stalled ranks:")) {
        c->stalled_line = l->number;
        return true;
    }
    if (!c->stalled_line || l->number > c->stalled_line + RANKS)
        return false;
    const char *list = s;
    if (isdigit((unsigned char)*s)) {
        rank = strtol(s, NULL, 10);
        list += strspn(s, "0123456789! :");
    }
    if (*list != '[' || rank == NOBODY || !strchr(list, ']')) {
        c->stalled_line = 0;
        return false;
    }
    for (const char *p = list + 1; *p && *p != ']'; p += strspn(p, ", ")) {
        size_t n = strcspn(p, ", ]");
        struct fact f = fact_at(l, F_STALLED_OPS);
        f.rank = f.peer = NOBODY;
        f.name = model_string(m, p, n);
        f.value = model_say(m, "%d", (int)rank);
        if (n && !begins(p, "..."))
            model_add(m, &f);
        p += n;
    }
    return true;
}

static bool others(struct model *m, const struct line *l, const char *s)
{
    struct span name;
    struct fact f;
    if (has(s, "UCX ") && has(s, "ERROR")) {
        const char *words = strstr(s, "ERROR");
        f = fact_at(l, F_UCX);
        f.name = model_words(m, skip_blanks(words + 5));
        bool memory = has(s, "Cannot allocate memory") || has(s, "locked memory");
        if (memory) {
            struct fact r = fact_at(l, F_REGISTER);
            r.name = scan(s, "ibv_%t(", &name) ? model_say(m, "ibv_%.*s", (int)name.n, name.p) : "ibv_create_cq";
            r.value = "Cannot allocate memory";
            return fact_add(m, r);
        }
        return fact_add(m, f);
    }
    return false;
}

/* "libfabric:4711:1700000000::efa:cq:efa_rdm_txe_handle_error():737<warn> err: 5, message: ..."; older ones lack the empty field. Most warnings are
 * about what a provider cannot do, which is no fault; what is kept says that a transfer failed or that nothing was found. */
static bool libfabric(struct model *m, const struct line *l, const char *s)
{
    const char *at = strstr(s, "libfabric:"), *level = at ? strstr(at, "<warn>") : NULL;
    struct span pid, time, provider, part;
    int64_t number = 0;
    if (!level && at)
        level = strstr(at, "<error>");
    if (!level || !(scan(at, "libfabric:%t:%t::%t:%t:", &pid, &time, &provider, &part) || scan(at, "libfabric:%t:%t:%t:%t:", &pid, &time, &provider, &part)))
        return false;
    const char *words = skip_blanks(strchr(level, '>') + 1);
    bool failed = has(words, "err: ") || has(words, "prov_err"), none = has(words, "output empty list") || has(words, "No eligible") || has(words, "no data available") || has(words, "No data available"), memory = has(words, "Cannot allocate memory");
    if (!failed && !none && !memory)
        return true;
    (void)(scan(words, "err: %d", &number) || scan(words, "error %d", &number));
    struct fact f = fact_at(l, memory ? F_REGISTER : F_LIBFABRIC);
    f.name = memory ? "libfabric" : model_words(m, words);
    f.value = memory ? "Cannot allocate memory" : model_string(m, provider.p, provider.n);
    f.a = memory ? 0 : number;
    f.extra = memory ? "" : none ? "setup" : "completion";
    return fact_add(m, f);
}

/* "[n3:10233] MCW rank 0 bound to socket 0[core 0[hwt 0-1]]: [BB/../..][../..]" */
static bool binding(struct model *m, const struct line *l, const char *s)
{
    int64_t rank;
    if (!scan(s, "rank %d bound to ", &rank) || !has(s, "]: ["))
        return false;
    struct fact f = fact_at(l, F_BINDING);
    f.rank = (int)rank;
    for (const char *p = strstr(s, "]: [") + 3; *p; p++)
        if (*p == 'B' && p[-1] != 'B')
            f.a++;
    f.value = "mpi";
    f.host = s[0] == '[' ? model_string(m, s + 1, strcspn(s + 1, ":]")) : f.host;
    return fact_add(m, f);
}

/* "zmq.error.ZMQError: Address already in use (addr='tcp://10.0.0.4:41234')" */
static bool port_taken(struct model *m, const struct line *l, const char *s)
{
    struct span host;
    int64_t port;
    if (!scan(s, "tcp://%t:%d", &host, &port))
        return false;
    struct fact f = fact_at(l, F_PORT_TAKEN);
    f.a = port;
    f.name = "ZeroMQ";
    return fact_add(m, f);
}

/* Open MPI's two texts, of several lines each, and what vLLM says of nodes. */
static bool launchers(struct model *m, const struct line *l, const char *s)
{
    struct span address;
    int64_t a = 0, b = 0;
    struct fact f;
    if (scan(s, "Source IP of socket: %w", &address) || has(s, "detected an inbound MPI TCP connection request from a peer")) {
        f = fact_at(l, F_UNEXPECTED_PEER);
        f.value = has(s, "Source IP") ? span_words(m, address) : "";
        return fact_add(m, f);
    }
    if (has(s, "There are not enough slots available in the system")) {
        f = fact_at(l, F_NO_SLOTS);
        f.a = scan(s, "satisfy the %d", &a) ? a : 0;
        return fact_add(m, f);
    }
    if (has(s, "More processors requested than permitted") || has(s, "Requested node configuration is not available")) {
        f = fact_at(l, F_NO_SLOTS);
        f.value = "Slurm";
        return fact_add(m, f);
    }
    if (has(s, "should have a unique IP address") && scan(s, "Got %d nodes", &a) && scan(s, "and %d unique IP", &b)) {
        f = fact_at(l, F_ONE_ADDRESS);
        f.a = a;
        f.b = b;
        return fact_add(m, f);
    }
    return false;
}

static bool read_line(struct model *m, struct context *c, const struct line *l)
{
    const char *s = l->text;
    if ((has(s, "ss_family") || has(s, "NOT connected to") || has(s, "willRetry")) && gloo_meets(m, l, s))
        return true;
    if ((has(s, "MPI") || has(s, "Source IP") || has(s, "slots available") || has(s, "requested than permitted") || has(s, "Requested node config") || has(s, "unique IP")) && launchers(m, l, s))
        return true;
    if ((has(s, "[") && (gloo_connection(m, l, s))) || (has(s, "loo") && gloo_setup(m, l, s)) || (has(s, "Unable to ") && gloo_setup(m, l, s)))
        return true;
    if (has(s, "Timed out waiting") && gloo_connection(m, l, s))
        return true;
    if (has(s, "libfabric:") && libfabric(m, l, s))
        return true;
    if ((has(s, "missing ranks:") || has(s, "ready ranks:")) && stalled_tensors(m, l, s))
        return true;
    if ((c->stalled_line || has(s, "Stalled ranks:")) && stalled_rank(m, c, l, s))
        return true;
    if (has(s, "tcp://") && has(s, "Address already in use") && port_taken(m, l, s))
        return true;
    return has(s, "UCX ") ? others(m, l, s) : has(s, " bound to ") && binding(m, l, s);
}

const struct reader reader_peers = {.name = "output of Gloo, UCX or MPI", .line = read_line};
