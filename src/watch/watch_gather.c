/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_gather.c - the facts of all ranks, collected by a hub: it asks the hub of every host that it hears for the records of its
 * ranks, adds those of its own host, notes what it knows itself of the others, and waits a second, for who is heard meanwhile two and a half. The inquiry (watch_inquiry.c)
 * and what answers a tool (watch_answer.c) each have one. Runs on the steward's thread only; nothing here waits but for stacks, 90 ms at most.
 */
#include "watch/watch_inner.h"

#include <stdlib.h>
#include <string.h>

#define ANSWER_NS 1000000000ull
#define SLOWLY_NS 1500000000ull /* ... and so long more for who is heard meanwhile */
#define RECORD_BYTES (64u << 10)

struct wanted { uint32_t number, look; }; /* MESSAGE_INQUIRE */

/* ---- reports of this host ----------------------------------------------------------------------------------------------- */

/* A host that is heard: the way there, if it was measured. */
static void add_measured(struct watch *w, int h, struct verdict_rank *r)
{
    struct net_link_facts f;
    struct peer *p = w->hosts[h].measured_bps ? hosts_hub_of(w, h) : NULL;
    if (!p || !p->link || !net_link_facts(p->link, &f))
        return;
    struct verdict_link *l = &r->links[r->nlinks++];
    *l = (struct verdict_link){.from_host = w->own_host, .to_host = h, .state = VERDICT_PATH_OK, .measured_bps = w->hosts[h].measured_bps,
                               .expected_bps = w->hosts[h].best_bps};
    rates_fill(&w->hosts[h], l);
    snprintf(l->from_if, sizeof l->from_if, "%s", f.interface);
    snprintf(l->from_addr, sizeof l->from_addr, "%.47s", f.from);
    snprintf(l->to_addr, sizeof l->to_addr, "%.47s", f.to);
}

static uno_err add_links(struct watch *w, struct verdict_rank *r)
{
    static const enum verdict_path path[] = {[NET_WAY_OK] = VERDICT_PATH_SILENT, [NET_WAY_SILENT] = VERDICT_PATH_SILENT,
                                             [NET_WAY_RESET] = VERDICT_PATH_RESET, [NET_WAY_REFUSED] = VERDICT_PATH_REFUSED,
                                             [NET_WAY_NO_ROUTE] = VERDICT_PATH_NO_ROUTE};
    if (r->links || w->nhosts < 2)
        return UNO_OK;
    r->links = mem_array((size_t)w->nhosts, sizeof *r->links);
    if (!r->links)
        return UNO_ERR_MEMORY;
    for (int h = 0; h < w->nhosts; h++) {
        const struct host *host = &w->hosts[h];
        if (h != w->own_host && host->state == HOST_HEARD)
            add_measured(w, h, r);
        if (h == w->own_host || host->state == HOST_HEARD)
            continue;
        struct verdict_link *l = &r->links[r->nlinks++];
        *l = (struct verdict_link){.from_host = w->own_host, .to_host = h, .since_ns = host->heard_ns,
                                   .from_if_down = host->facts.interface_down,
                                   .state = (uint8_t)(host->state == HOST_MUTE ? VERDICT_PATH_MUTE : path[host->facts.state])};
        snprintf(l->from_if, sizeof l->from_if, "%s", host->facts.interface);
        snprintf(l->from_addr, sizeof l->from_addr, "%.47s", host->facts.from);
        snprintf(l->to_addr, sizeof l->to_addr, "%.47s", host->facts.to);
    }
    return UNO_OK;
}

/* The hub adds how it sees other hosts, once a host. */
static uno_err own_rank(struct watch *w, int rank, uint32_t events, struct verdict_rank *r)
{
    TRY(report_rank(w, rank, events, r));
    uno_err err = rank == w->opt.rank ? add_links(w, r) : UNO_OK;
    if (err != UNO_OK)
        verdict_rank_free(r);
    return err;
}

static void send_reports(struct watch *w, struct peer *to, uint32_t number)
{
    unsigned char *buf = mem_array(RECORD_BYTES + sizeof number, 1);
    uint32_t events = w->hosts[w->members[to->process].host].slow.at_ns ? REPORT_EVENTS_SLOW : REPORT_EVENTS;
    for (int r = 0; buf && r < w->opt.size; r++) {
        struct verdict_rank rank;
        size_t bytes = 0;
        if (w->members[r].host != w->own_host || own_rank(w, r, events, &rank) != UNO_OK)
            continue;
        memcpy(buf, &number, sizeof number);
        if (verdict_encode(&rank, buf + sizeof number, RECORD_BYTES, &bytes) == UNO_OK)
            message_send(w, to, MESSAGE_REPORT, buf, sizeof number + bytes);
        verdict_rank_free(&rank);
    }
    free(buf);
    message_send(w, to, MESSAGE_REPORTED, &number, sizeof number);
}

void gather_asked(struct watch *w, struct peer *from, const void *data, size_t bytes)
{
    struct wanted q;
    if (bytes != sizeof q)
        return;
    memcpy(&q, data, sizeof q);
    if (q.look)
        report_begin(w);
    struct owed *o = &w->owed[0]; /* of more askers than have room the one that waits longest is forgotten */
    for (size_t i = 1; i < ARRAY_LEN(w->owed); i++)
        if (w->owed[i].ready_ns < o->ready_ns)
            o = &w->owed[i];
    *o = (struct owed){from, q.number, MAX(report_ready_ns(w), 1)};
}

void gather_timers(struct watch *w, uint64_t now)
{
    for (size_t i = 0; i < ARRAY_LEN(w->owed); i++)
        if (w->owed[i].ready_ns && now >= w->owed[i].ready_ns) {
            w->owed[i].ready_ns = 0;
            send_reports(w, w->owed[i].to, w->owed[i].number);
        }
}

/* ---- all ranks ---------------------------------------------------------------------------------------------------------------- */

/* Nobody of its host is left to say how: its launcher may. */
static void note_end(const struct watch *w, const struct peer *p, struct verdict_facts *f, int rank)
{
    uno_end end;
    if (!peer_told_end(w, p, &end))
        return;
    int sig = end.status & 0x7f;
    if (end.kind == UNO_END_SEEN)
        verdict_facts_ended(f, rank, sig ? VERDICT_ENDED_SIGNAL : VERDICT_ENDED_EXIT, sig ? sig : end.status >> 8 & 0xff,
                            end.oom_kill ? end.cgroup : NULL);
    else
        verdict_facts_ended(f, rank, VERDICT_ENDED_AGENT, end.kind == UNO_END_LOST ? sig : end.signal, NULL);
}

/* What is known of ranks that nobody can be asked about. */
static void note_others(struct watch *w, struct verdict_facts *f)
{
    for (int r = 0; r < w->opt.size; r++) {
        const struct watch_member *m = &w->members[r];
        const struct peer *p = peer_find(w, m->process);
        const struct host *h = &w->hosts[m->host];
        if (m->host == w->own_host)
            f->offsets[r] = (struct verdict_offset){.known = true};
        else if (h->offset_known)
            f->offsets[r] = (struct verdict_offset){true, h->offset_ns, h->error_ns};
        if (m->host == w->own_host || !p)
            continue;
        if (p->state == PEER_ALIVE)
            verdict_facts_note(f, r, VERDICT_SILENT, h->heard_ns, m->hostname, m->host, m->pid); /* until it reports */
        else
            verdict_facts_note(f, r, p->state == PEER_DEAD ? VERDICT_DEAD : VERDICT_LEFT, p->gone_ns, m->hostname, m->host, m->pid);
        if (p->state == PEER_DEAD)
            note_end(w, p, f, r);
    }
}

uno_err gather_begin(struct watch *w, struct gather *g, bool look, uint64_t now)
{
    gather_end(g);
    g->asked = mem_array((size_t)w->nhosts, sizeof *g->asked);
    if (!g->asked)
        return UNO_ERR_MEMORY;
    TRY(verdict_facts_new(&g->facts, w->opt.size));
    g->runs = true;
    g->own = false;
    g->number = ++w->gathers;
    g->nasked = 0;
    g->deadline_ns = now + ANSWER_NS;
    if (look)
        report_begin(w);
    struct wanted q = {g->number, look};
    note_others(w, &g->facts);
    for (int h = 0; h < w->nhosts; h++) {
        struct peer *p = h == w->own_host ? NULL : hosts_hub_of(w, h);
        if (!p || w->hosts[h].state != HOST_HEARD)
            continue;
        message_send(w, p, MESSAGE_INQUIRE, &q, sizeof q);
        g->asked[h] = true;
        g->nasked++;
    }
    return UNO_OK;
}

static void add_own(struct watch *w, struct gather *g)
{
    g->own = true;
    for (int r = 0; r < w->opt.size; r++) {
        struct verdict_rank rank;
        if (w->members[r].host == w->own_host && (own_rank(w, r, REPORT_EVENTS, &rank) != UNO_OK || verdict_facts_take(&g->facts, &rank) != UNO_OK))
            LOG(LOG_INFO, LOG_WATCH, "no report of rank %d: %s", r, err_text());
    }
}

/* Is every host whose answer is missing heard all the same? Then it comes, over a slow path. */
static bool on_the_way(const struct watch *w, const struct gather *g)
{
    for (int h = 0; h < w->nhosts; h++)
        if (g->asked[h] && (w->hosts[h].state != HOST_HEARD || w->hosts[h].heard_ns + ANSWER_NS < g->deadline_ns))
            return false;
    return true;
}

static uint64_t waits_until_ns(const struct watch *w, const struct gather *g)
{
    return g->deadline_ns + (on_the_way(w, g) ? SLOWLY_NS : 0);
}

bool gather_done(struct watch *w, struct gather *g, uint64_t now)
{
    if (!g->runs)
        return false;
    if (!g->own && now >= report_ready_ns(w))
        add_own(w, g);
    return g->own && (g->nasked == 0 || now >= waits_until_ns(w, g));
}

static uint64_t next_of(const struct watch *w, const struct gather *g)
{
    return !g->runs ? UINT64_MAX : g->own ? waits_until_ns(w, g) : report_ready_ns(w);
}

uint64_t gather_next_ns(const struct watch *w)
{
    uint64_t next = MIN(next_of(w, &w->inquiry.gather), next_of(w, &w->answer.gather));
    for (size_t i = 0; i < ARRAY_LEN(w->owed); i++)
        if (w->owed[i].ready_ns)
            next = MIN(next, w->owed[i].ready_ns);
    return next;
}

void gather_end(struct gather *g)
{
    if (g->runs)
        verdict_facts_free(&g->facts);
    free(g->asked);
    g->asked = NULL;
    g->runs = false;
}

void gather_answered(struct watch *w, struct gather *g, const struct peer *from, uint8_t kind, const void *data, size_t bytes)
{
    int host = w->members[from->process].host;
    uint32_t number;
    if (bytes < sizeof number)
        return;
    memcpy(&number, data, sizeof number);
    if (!g->runs || number != g->number || host == w->own_host)
        return; /* late, or for another one */
    if (kind == MESSAGE_REPORTED) {
        g->nasked -= g->asked[host];
        g->asked[host] = false;
        return;
    }
    struct verdict_rank rank;
    uno_err err = verdict_decode((const unsigned char *)data + sizeof number, bytes - sizeof number, &rank);
    if (err == UNO_OK && (rank.rank < 0 || rank.rank >= w->opt.size || w->members[rank.rank].host != host)) {
        verdict_rank_free(&rank);
        err = err_set(UNO_ERR_PARSE, "it reports of a rank of another host");
    } else if (err == UNO_OK) {
        err = verdict_facts_take(&g->facts, &rank);
    }
    if (err != UNO_OK)
        LOG(LOG_INFO, LOG_WATCH, "a report from rank %d's host is not used: %s", from->process, err_text());
}
