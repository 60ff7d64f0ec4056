/* SPDX-License-Identifier: Apache-2.0 */
/* read_peers.c - Gloo, UCX, libfabric, Horovod and MPI: lines that name an address, a size or who is missing. */
#include <stdlib.h>
#include <string.h>

#include "reader.h"

static bool add(struct model *m, struct fact f)
{
    model_add(m, &f);
    return true;
}

static const char *keep(struct model *m, struct span s)
{
    return model_string(m, s.p, s.n);
}

/* ---- Gloo -------------------------------------------------------------------------------------------------------------------- */

static bool gloo_connection(struct model *m, const struct line *l, const char *s)
{
    struct span host, words;
    int64_t port = 0, ms;
    struct fact f;
    if (scan(s, "Connection closed by peer [%t]:%d", &host, &port) || scan(s, "Read error [%t]:%d: %t", &host, &port, &words) ||
        scan(s, "writev [%t]:%d: %t", &host, &port, &words)) {
        f = fact_at(l, F_PEER_CLOSED);
        f.value = keep(m, host);
        f.a = port;
        f.name = has(s, "closed by peer") ? "closed" : "reset";
        f.more = "gloo";
        return add(m, f);
    }
    if (scan(s, "connect [%t]:%d: %t", &host, &port, &words) || scan(s, "SO_ERROR: %t, remote=[%t]:%d", &words, &host, &port)) {
        f = fact_at(l, F_CONNECT);
        f.value = keep(m, host);
        f.a = port;
        f.name = keep(m, words);
        f.extra = "connect";
        f.b = 1;
        f.more = "gloo";
        return add(m, f);
    }
    if (scan(s, "Timed out waiting %dms for %w", &ms, &words) || scan(s, "Timed out waiting %d ms for %w", &ms, &words)) {
        f = fact_at(l, F_GLOO_TIMEOUT);
        f.a = ms;
        f.value = keep(m, words);
        return add(m, f);
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
        f.name = keep(m, name);
        return add(m, f);
    }
    if (has(s, "Unable to resolve hostname to a")) {
        f = fact_at(l, F_GLOO_ADDRESS);
        f.value = "loopback";
        return add(m, f);
    }
    if (scan(s, "op.preamble.length <= op.nbytes. %d vs %d", &a, &b) || has(s, "GLOO_ENFORCE_EQ(rv, nbytes)")) {
        f = fact_at(l, F_GLOO_SIZES);
        f.a = a;
        f.b = b;
        return add(m, f);
    }
    return false;
}

/* ---- others --------------------------------------------------------------------------------------------------------------------- */

static bool others(struct model *m, const struct line *l, const char *s)
{
    struct span name, ranks;
    struct fact f;
    const char *missing = strstr(s, "[missing ranks: ");
    if (missing && scan(missing, "[missing ranks: %t]", &ranks)) {
        const char *end = missing, *from;
        while (end > s && end[-1] == ' ')
            end--;
        for (from = end; from > s && from[-1] != ' ';)
            from--;
        f = fact_at(l, F_STALLED_OPS);
        f.name = model_string(m, from, (size_t)(end - from));
        f.value = keep(m, ranks);
        return add(m, f);
    }
    if (has(s, "UCX ") && has(s, "ERROR")) {
        const char *words = strstr(s, "ERROR");
        f = fact_at(l, F_UCX);
        f.name = model_words(m, skip_blanks(words + 5));
        bool memory = has(s, "Cannot allocate memory") || has(s, "locked memory");
        if (memory) {
            struct fact r = fact_at(l, F_REGISTER);
            r.name = scan(s, "ibv_%t(", &name) ? model_say(m, "ibv_%.*s", (int)name.n, name.p) : "ibv_create_cq";
            r.value = "Cannot allocate memory";
            return add(m, r);
        }
        return add(m, f);
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
    return add(m, f);
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
    return add(m, f);
}

static bool read_line(struct model *m, struct context *c, const struct line *l)
{
    const char *s = l->text;
    if ((has(s, "[") && (gloo_connection(m, l, s))) || (has(s, "loo") && gloo_setup(m, l, s)) || (has(s, "Unable to ") && gloo_setup(m, l, s)))
        return true;
    if (has(s, "Timed out waiting") && gloo_connection(m, l, s))
        return true;
    if (has(s, "libfabric:") && libfabric(m, l, s))
        return true;
    return (has(s, "missing ranks") || has(s, "UCX ")) ? others(m, l, s) : has(s, " bound to ") && binding(m, l, s);
}

const struct reader reader_peers = {.name = "output of Gloo, UCX or MPI", .line = read_line};
