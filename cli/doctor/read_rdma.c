/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_rdma.c - ports of RDMA cards as ibstat, ibstatus, ibv_devinfo and show_gids list them. A device's block begins with its name; what stands below
 * belongs to its port.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reader.h"

struct rdma_state {
    char device[64];
    int port;
    char state[32], physical[32], layer[32];
    int64_t rate, mtu; /* Gbit/s; bytes */
    struct line at;
    bool open;
};

static struct span word_at(const char *s)
{
    return (struct span){s, strcspn(s, " \t\r,;")};
}

/* A port is given to the model when the next begins, since its lines come in different orders. */
static void give(struct model *m, struct rdma_state *r)
{
    if (!r->open || !r->device[0] || !r->state[0]) {
        r->open = false;
        return;
    }
    struct fact f = fact_at(&r->at, F_PORT);
    f.name = model_words(m, r->device);
    f.a = r->port;
    f.b = r->rate;
    f.c = r->mtu;
    f.value = model_words(m, r->state);
    f.extra = model_words(m, r->layer);
    f.more = model_words(m, r->physical);
    f.text = model_say(m, "%s port %d: %s%s%s, %s, %lld Gbit/s, MTU %lld", r->device, r->port, r->state, *r->physical ? ", " : "", r->physical, *r->layer ? r->layer : "?", (long long)r->rate, (long long)r->mtu);
    model_add(m, &f);
    r->open = false;
}

static void begin_port(struct model *m, struct rdma_state *r, const struct line *l, int port)
{
    give(m, r);
    r->port = port;
    r->state[0] = r->physical[0] = r->layer[0] = 0;
    r->rate = r->mtu = 0;
    r->at = *l;
    r->at.raw = model_words(m, l->raw);
    r->open = true;
}

static void take(char *to, size_t bytes, const char *s)
{
    struct span w = word_at(s);
    snprintf(to, bytes, "%.*s", (int)w.n, w.p);
}

/* "State: Active", "state: PORT_ACTIVE (4)", "4: ACTIVE": all become ACTIVE. */
static void take_state(char *to, size_t bytes, const char *s)
{
    const char *colon = strchr(s, ':');
    s = isdigit((unsigned char)*s) && colon ? skip_blanks(colon + 1) : s;
    s = begins(s, "PORT_") ? s + 5 : s;
    take(to, bytes, s);
    for (char *p = to; *p; p++)
        *p = (char)toupper((unsigned char)*p);
}

static bool device_begins(struct model *m, struct rdma_state *r, const struct line *l, const char *s)
{
    struct span v;
    int64_t port;
    if (scan(s, "hca_id: %w", &v) || (begins(s, "CA '") && scan(s, "CA '%t'", &v))) {
        give(m, r);
        snprintf(r->device, sizeof r->device, "%.*s", (int)v.n, v.p);
        return true;
    }
    if (begins(s, "Infiniband device '") && scan(s, "Infiniband device '%t' port %d status", &v, &port)) { /* ibstatus */
        begin_port(m, r, l, (int)port);
        snprintf(r->device, sizeof r->device, "%.*s", (int)v.n, v.p);
        return true;
    }
    if (r->device[0] && ((begins(s, "Port ") && scan(s, "Port %d:", &port) && !strchr(s, 'G')) || (begins(s, "port:") && scan(s, "port: %d", &port)))) {
        begin_port(m, r, l, (int)port);
        return true;
    }
    return false;
}

static bool port_says(struct model *m, struct rdma_state *r, const struct line *l, const char *s)
{
    struct span v;
    int64_t n;
    if (!r->open)
        return false;
    if (begins(s, "State:") || begins(s, "state:"))
        take_state(r->state, sizeof r->state, skip_blanks(s + 6));
    else if (begins(s, "Physical state:") || begins(s, "phys state:"))
        take(r->physical, sizeof r->physical, skip_blanks(strchr(s, ':') + 1));
    else if ((begins(s, "Rate:") || begins(s, "rate:")) && scan(s, "ate: %d", &n))
        r->rate = n;
    else if (begins(s, "active_mtu:") && scan(s, "active_mtu: %d", &n))
        r->mtu = n;
    else if ((begins(s, "Link layer:") || begins(s, "link_layer:")) && scan(s, "ayer: %w", &v))
        take(r->layer, sizeof r->layer, v.p);
    else
        return false;
    return true;
}

/* Which layer a device has is also asked where nothing else of its port is shown. */
static bool layer_says(struct model *m, const struct rdma_state *r, const struct line *l, const char *s)
{
    struct span v;
    if (!r->device[0] || !(begins(s, "Link layer:") || begins(s, "link_layer:")) || !scan(s, "ayer: %w", &v))
        return false;
    struct fact f = fact_at(l, F_PORT_LAYER);
    f.name = model_words(m, r->device);
    f.value = model_string(m, v.p, v.n);
    model_add(m, &f);
    return true;
}

static bool is_ipv4(struct span s)
{
    return s.n >= 7 && s.n <= 15 && strspn(s.p, "0123456789.") >= s.n && memchr(s.p, '.', s.n);
}

/* show_gids: device port index gid [address] v1|v2 interface */
static bool gid(struct model *m, const struct line *l, const char *s)
{
    struct span at[8];
    int n = 0;
    for (const char *p = s; *p && n < 8; p = skip_blanks(p + at[n - 1].n))
        at[n++] = (struct span){p, strcspn(p, " \t")};
    if (n < 5 || at[3].n != 39 || !memchr(at[3].p, ':', at[3].n))
        return false;
    struct span ver = at[n - 2];
    struct fact f = fact_at(l, F_GID);
    f.name = model_string(m, at[0].p, at[0].n);
    f.a = strtol(at[2].p, NULL, 10);
    f.b = ver.n == 2 && ver.p[0] == 'v' ? ver.p[1] - '0' : 0;
    f.value = n >= 7 || is_ipv4(at[4]) ? model_string(m, at[4].p, at[4].n) : "";
    f.extra = model_string(m, at[3].p, at[3].n);
    model_add(m, &f);
    return true;
}

static bool read_line(struct model *m, struct context *c, const struct line *l)
{
    const char *s = skip_blanks(l->text);
    struct rdma_state *r = c->rdma;
    if (!*s || strlen(s) > 400)
        return false;
    if (!r) {
        if (!begins(s, "CA '") && !begins(s, "hca_id:") && !begins(s, "Infiniband device '"))
            return strchr(s, ':') && gid(m, l, s);
        r = c->rdma = model_alloc(m, sizeof *r);
    }
    if (device_begins(m, r, l, s))
        return true;
    bool layer = layer_says(m, r, l, s);
    return port_says(m, r, l, s) || layer || (strchr(s, ':') && gid(m, l, s));
}

static void end(struct model *m, struct context *c, const char *file)
{
    if (c->rdma) {
        give(m, c->rdma);
        c->rdma->device[0] = 0;
    }
}

const struct reader reader_rdma = {.name = "ports of RDMA cards", .line = read_line, .end = end};
