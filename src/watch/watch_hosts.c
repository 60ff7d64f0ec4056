/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_hosts.c - who is the hub of this host, and which other hosts are heard. Runs on the steward's thread only.
 *
 * Stewards of a host see each other's boards. The hub is the process with the highest generation whose steward runs, of several the
 * lowest one; who finds itself hub after another one takes the next generation, so that the one before, when it wakes up, sees that
 * it was replaced. Two hubs for a moment do no harm: everything they say may be said twice.
 *
 * Hubs send each other heartbeats. Silence alone says nothing of a process: whether the other host's kernel acknowledges tells a
 * host whose processes are stopped from one that is not reached, and only the latter is *unreachable*: it is said with interface and
 * addresses, everybody who can be reached is told, and communicators with ranks on both fail after UNISONO_SUSPECT_TIMEOUT.
 * Nothing here ever is a death.
 */
#include "watch/watch_inner.h"

#include "base/base_auth.h"

#include <stdlib.h>
#include <string.h>

#define MUTE_NS 1000000000ull   /* a steward of this host that does not run for so long */
#define START_NS 10000000000ull /* a host that was never heard has so long to begin */
#define DRIFT_PPM 50            /* of two clocks: an old measurement is worth less */
#define MOST_PENDING 8          /* unacknowledged control frames: more heartbeats would only queue behind them */

static const struct watch_member *member(const struct watch *w, const struct peer *p)
{
    return &w->members[p->process];
}

/* ---- life ------------------------------------------------------------------------------------------------------------ */

static struct steward_page *page_of(const struct watch *w, const struct peer *p)
{
    return p == &w->peers[w->self] ? w->page : p->records.page ? &p->records.page->steward : NULL;
}

uno_err hosts_new(struct watch *w)
{
    int n = 1;
    for (int r = 0; r < w->opt.size; r++) {
        if (w->members[r].host < 0 || w->members[r].host > w->opt.size)
            return err_set(UNO_ERR_INTERNAL, "rank %d is on host %d of %d ranks", r, w->members[r].host, w->opt.size);
        n = MAX(n, w->members[r].host + 1);
    }
    w->hosts = mem_array((size_t)n, sizeof *w->hosts);
    if (!w->hosts)
        return UNO_ERR_MEMORY;
    w->nhosts = n;
    w->own_host = w->members[w->opt.rank].host;
    uint64_t suspect = w->opt.cfg ? (uint64_t)(w->opt.cfg->suspect * 1e9) : 0;
    w->beat_step_ns = MAX((suspect ? suspect : 3000000000ull) / 4, 20000000ull);
    w->tick_step_ns = MIN(STEWARD_TICK_NS, w->beat_step_ns);
    w->suspect_timeout_ns = (uint64_t)((w->opt.cfg ? w->opt.cfg->suspect_timeout : 30.0) * 1e9);
    w->stall_ns = w->opt.cfg ? (uint64_t)(w->opt.cfg->stall * 1e9) : 0;
    for (int i = w->npeers - 1; i >= 0; i--) /* downwards: each host's lowest process is its first hub */
        w->hosts[member(w, &w->peers[i])->host].hub = i;
    w->private_page = w->opt.board ? NULL : mem_zalloc(sizeof *w->private_page);
    w->page = w->opt.board ? &w->opt.board->page->steward : w->private_page;
    return w->page ? UNO_OK : UNO_ERR_MEMORY;
}

void hosts_free(struct watch *w)
{
    free(w->private_page);
    w->private_page = NULL;
    free(w->hosts);
    w->hosts = NULL;
    w->nhosts = 0;
}

static uint64_t suspect_ns(const struct watch *w)
{
    return w->beat_step_ns * 4;
}

void hosts_begin(struct watch *w)
{
    uint64_t now = clock_ns();
    w->hub = hosts_is_hub(w);
    w->tick_ns = now + w->tick_step_ns;
    atomic_store_explicit(&w->page->beat_at_ns, now, memory_order_relaxed);
    for (int h = 0; h < w->nhosts; h++) {
        w->hosts[h].heard_ns = now;
        w->hosts[h].beat_ns = now + (h < w->own_host ? 2 * w->beat_step_ns : 0); /* the lower hub opens the link */
    }
    for (int i = 0; i < w->npeers; i++)
        w->peers[i].beat_ns = now + 2 * MUTE_NS; /* its steward may not have begun */
}

/* ---- this host ---------------------------------------------------------------------------------------------------------- */

static uint32_t generation(const struct watch *w, const struct peer *p)
{
    const struct steward_page *page = page_of(w, p);
    return page ? atomic_load_explicit(&page->generation, memory_order_relaxed) : 0;
}

/* Our own goodbye does not count here: as long as we run we go on telling, so that nothing falls between us and the next hub. */
int hosts_hub_here(const struct watch *w)
{
    int best = w->self;
    for (int i = 0; i < w->npeers; i++) {
        const struct peer *p = &w->peers[i], *b = &w->peers[best];
        if (i == w->self || !peer_is_local(w, p) || p->state != PEER_ALIVE || p->mute || p->starves ||
            (w->opt.said_goodbye && w->opt.said_goodbye(w->opt.arg, p->process)))
            continue;
        if (generation(w, p) > generation(w, b) || (generation(w, p) == generation(w, b) && i < best))
            best = i;
    }
    return best;
}

bool hosts_is_hub(const struct watch *w)
{
    return hosts_hub_here(w) == w->self;
}

static void look_at_boards(struct watch *w, uint64_t now)
{
    if (!w->boards_open)
        records_open(w);
    atomic_fetch_add_explicit(&w->page->beat, 1, memory_order_relaxed);
    atomic_store_explicit(&w->page->beat_at_ns, now, memory_order_relaxed);
    atomic_store_explicit(&w->page->refused, auth_refused(), memory_order_relaxed);
    for (int i = 0; i < w->npeers; i++) {
        struct peer *p = &w->peers[i];
        const struct steward_page *page = page_of(w, p);
        if (!page || p->state != PEER_ALIVE)
            continue;
        inquiry_page(w, p, page, now);
        if (i == w->self)
            continue;
        uint32_t beat = atomic_load_explicit(&page->beat, memory_order_relaxed);
        bool mute = beat == p->beat && now > p->beat_ns && now - p->beat_ns > MUTE_NS;
        if (beat != p->beat) {
            p->beat = beat;
            p->beat_ns = now;
        }
        if (mute != p->mute) {
            char name[256];
            peer_name(w, p, name, sizeof name);
            LOG(LOG_INFO, LOG_WATCH, mute ? "%s: its steward does not run; it is stopped, frozen or starved, which is no death"
                                          : "%s: its steward runs again", name);
        }
        p->mute = mute;
    }
}

static void look_who_is_hub(struct watch *w, uint64_t now)
{
    bool hub = hosts_is_hub(w);
    if (hub == w->hub)
        return;
    w->hub = hub;
    if (!hub)
        return;
    uint32_t last = 0;
    for (int i = 0; i < w->npeers; i++)
        last = MAX(last, generation(w, &w->peers[i]));
    atomic_store_explicit(&w->page->generation, last + 1, memory_order_relaxed);
    LOG(LOG_INFO, LOG_WATCH, "this process speaks for its host now (generation %u)", last + 1);
    for (int h = 0; h < w->nhosts; h++) {
        w->hosts[h].heard_ns = MAX(w->hosts[h].heard_ns, now); /* nothing was addressed to us so far */
        w->hosts[h].beat_ns = now;
    }
    w->inquiry.stall_ns = 0; /* who is still stalled says so again */
    w->inquiry.said = (last + 1) << 16; /* other hosts number what this host says: above all that the hubs before have said */
    peers_hub_changed(w);
}

/* ---- what the hub says to everybody here ----------------------------------------------------------------------------------- */

bool watch_prints_too(const struct watch_member *members, int rank, int speaker, bool (*can)(void *arg, int rank), void *arg)
{
    const struct watch_member *m = &members[rank];
    bool prints = m->log != 0 && m->log != members[speaker].log;
    for (int r = 0; r < rank && prints; r++)
        prints = members[r].host != m->host || members[r].process == m->process || members[r].log != m->log || !can(arg, r);
    return prints;
}

static bool can_print(void *arg, int rank)
{
    struct watch *w = arg;
    const struct peer *p = peer_find(w, w->members[rank].process);
    return p && p->state == PEER_ALIVE && !p->mute;
}

static void take_notice(struct watch *w, const struct peer *from, const struct notice *n)
{
    if (atomic_load_explicit(&w->leaving, memory_order_relaxed))
        return;
    bool fresh = notice_is_fresh(n->kind), verdict = n->kind == NOTICE_VERDICT || fresh;
    inquiry_notice(w, n);
    if (!fresh && n->kind != NOTICE_UNREACHABLE && watch_prints_too(w->members, w->opt.rank, from->process, can_print, w))
        LOG(LOG_WARN, LOG_WATCH, "%s", n->text);
    if ((verdict || n->kind == NOTICE_GOES_ON) && w->opt.on_verdict)
        w->opt.on_verdict(w->opt.arg, n->comm_id, verdict ? n->text : NULL);
    if (n->kind == NOTICE_UNREACHABLE && n->host >= 0 && n->host < w->nhosts && w->opt.on_unreachable)
        w->opt.on_unreachable(w->opt.arg, n->host, n->text);
}

static void look_for_notices(struct watch *w)
{
    struct notice n;
    for (int i = 0; i < w->npeers; i++) {
        struct peer *p = &w->peers[i];
        const struct steward_page *page = page_of(w, p);
        if (!page)
            continue;
        uint32_t last = atomic_load_explicit(&page->notices, memory_order_acquire); /* pairs with the release in notice_post */
        if (last - p->notices > STEWARD_NOTICES)
            p->notices = last - STEWARD_NOTICES; /* we did not look for long */
        while (p->notices != last)
            if (notice_read(page, ++p->notices, &n))
                take_notice(w, p, &n);
    }
}

/* ---- heartbeats ------------------------------------------------------------------------------------------------------------- */

/* Whom to tell: who says that it is the hub; when that one is gone, the lowest that is left. */
struct peer *hosts_hub_of(struct watch *w, int host)
{
    struct peer *p = &w->peers[w->hosts[host].hub];
    if (p->state == PEER_ALIVE && member(w, p)->host == host)
        return p;
    for (int i = 0; i < w->npeers; i++)
        if (member(w, &w->peers[i])->host == host && w->peers[i].state == PEER_ALIVE)
            return &w->peers[i];
    return NULL;
}

static void beat_to(struct watch *w, struct peer *to, uint64_t now)
{
    unsigned char buf[BEAT_BYTES];
    const struct host *h = &w->hosts[member(w, to)->host];
    if (to->link && net_control_pending(to->link) > MOST_PENDING)
        return;
    const struct peer *hub = &w->peers[hosts_hub_here(w)];
    struct beat b = {.hub = hub->process, .generation = generation(w, hub), .sent_ns = now, .heard_sent_ns = h->sent_ns,
                     .heard_at_ns = h->sent_at_ns};
    (void)peer_send(w, to, buf, beat_write(&b, buf));
}

/* The hub there may be stopped, and who took its place may not know that we speak for ours: ask one after the other. */
static void beat_another(struct watch *w, int host, const struct peer *but, uint64_t now)
{
    struct host *h = &w->hosts[host];
    for (int k = 0; k < w->npeers; k++) {
        h->turn = (h->turn + 1) % w->npeers;
        struct peer *p = &w->peers[h->turn];
        if (p != but && member(w, p)->host == host && p->state == PEER_ALIVE) {
            beat_to(w, p, now);
            return;
        }
    }
}

/* Sockets that were authenticated count as a word. */
static bool was_there(struct watch *w, int host)
{
    struct peer *p = host == w->own_host ? NULL : hosts_hub_of(w, host);
    struct net_link_facts f;
    return p && p->link && net_link_facts(p->link, &f) && f.paths > 0;
}

static void send_beats(struct watch *w, uint64_t now)
{
    for (int h = 0; h < w->nhosts; h++) {
        struct host *host = &w->hosts[h];
        struct peer *hub = h == w->own_host ? NULL : hosts_hub_of(w, h);
        if (!hub || now < host->beat_ns)
            continue;
        host->beat_ns = now + w->beat_step_ns;
        beat_to(w, hub, now);
        if (host->heard && now - host->heard_ns > suspect_ns(w) / 2)
            beat_another(w, h, hub, now);
    }
}

/* This process leaves, and its host may never have spoken to some of the others: their first word from here is a goodbye then (net_proc_drain
 * adds it), not a port that is closed. */
void hosts_leave(struct watch *w, uint64_t now)
{
    if (!w->hub || !w->opt.net)
        return;
    for (int h = 0; h < w->nhosts; h++) {
        struct peer *hub = h == w->own_host || w->hosts[h].heard || was_there(w, h) ? NULL : hosts_hub_of(w, h);
        if (hub)
            beat_to(w, hub, now);
    }
}

/* The four times of two heartbeats: half the difference of the two ways is the offset, if both ways take equally long; what is
 * left of the round trip is the error. The least one is kept, and fades as clocks drift. */
static void measure(struct host *h, const struct beat *b, uint64_t when_ns)
{
    uint64_t t1 = b->heard_sent_ns, t2 = b->heard_at_ns, t3 = b->sent_ns, t4 = when_ns;
    if (!t1 || t4 < t1 || t3 < t2 || t4 - t1 < t3 - t2)
        return;
    uint64_t error = (t4 - t1 - (t3 - t2)) / 2;
    uint64_t faded = h->error_ns + (when_ns - MIN(h->offset_at_ns, when_ns)) / 1000000 * DRIFT_PPM;
    if (h->offset_known && error > faded)
        return;
    h->offset_known = true;
    h->offset_ns = ((int64_t)(t1 - t2) + (int64_t)(t4 - t3)) / 2;
    h->error_ns = error;
    h->offset_at_ns = when_ns;
}

uno_err hosts_beat(struct watch *w, const struct peer *from, const void *data, size_t bytes, uint64_t when_ns)
{
    struct beat b;
    TRY(beat_read(data, bytes, &b));
    int index = member(w, from)->host;
    struct host *h = &w->hosts[index];
    const struct peer *hub = peer_find(w, b.hub);
    if (index == w->own_host || !hub || member(w, hub)->host != index)
        return err_set(UNO_ERR_PARSE, "it names process %d as the hub of host %d", b.hub, index);
    if ((int32_t)(b.generation - h->generation) >= 0) {
        h->generation = b.generation;
        h->hub = (int)(hub - w->peers);
    }
    h->sent_ns = b.sent_ns;
    h->sent_at_ns = when_ns;
    measure(h, &b, when_ns);
    if (!w->hub && clock_ns() - h->answered_ns > w->beat_step_ns / 2) {
        h->answered_ns = clock_ns(); /* it does not know who speaks for this host: tell it */
        beat_to(w, &w->peers[from - w->peers], clock_ns());
    }
    return UNO_OK;
}

/* ---- silence ------------------------------------------------------------------------------------------------------------------- */

static void ranks_of(const struct watch *w, int host, char *buf, size_t buf_bytes)
{
    size_t at = 0;
    const char *name = "?";
    int first = -1, n = 0;
    char list[160] = "";
    for (int r = 0; r <= w->opt.size; r++) {
        bool in = r < w->opt.size && w->members[r].host == host;
        if (in && n++ == 0)
            name = w->members[r].hostname;
        if (in && first < 0)
            first = r;
        if (!in && first >= 0 && at < sizeof list)
            at += (size_t)snprintf(list + at, sizeof list - at, first == r - 1 ? "%s%d" : "%s%d-%d", at ? ", " : "", first, r - 1);
        if (!in)
            first = -1;
    }
    snprintf(buf, buf_bytes, "%.64s (rank%s %s)", name, n == 1 ? "" : "s", list);
}

void hosts_pair_text(const struct watch *w, int host, uint64_t now, char *buf, size_t buf_bytes)
{
    char here[256], there[256];
    const struct host *h = &w->hosts[host];
    const struct net_link_facts *f = &h->facts;
    ranks_of(w, w->own_host, here, sizeof here);
    ranks_of(w, host, there, sizeof there);
    snprintf(buf, buf_bytes, "hosts %s and %s do not reach each other: nothing was heard for %.1f s; %s%s%s %s -> %s%s%s; %s", here, there,
             (double)(now - MIN(h->heard_ns, now)) / 1e9, f->interface[0] ? "interface " : "", f->interface,
             f->interface[0] && f->interface_down ? " (it is down)," : f->interface[0] ? "," : "", f->from[0] ? f->from : "?",
             f->to[0] ? f->to : "?", f->text[0] ? ": " : "", f->text, "look at cable, switch, firewall");
}

static void print(struct watch *w, const char *text)
{
    LOG(LOG_WARN, LOG_WATCH, "%s", text);
    notice_post(w->page, NOTICE_SAID, -1, 0, 0, text);
}

/* To the hubs of all other hosts. */
static void tell_pair(struct watch *w, int host, bool cut, const char *text)
{
    unsigned char buf[12 + NOTICE_TEXT_BYTES];
    int32_t head[3] = {w->own_host, host, cut};
    size_t len = strnlen(text, NOTICE_TEXT_BYTES - 1);
    memcpy(buf, head, sizeof head);
    memcpy(buf + sizeof head, text, len);
    print(w, text);
    for (int h = 0; h < w->nhosts; h++) {
        struct peer *p = h == w->own_host || h == host ? NULL : hosts_hub_of(w, h);
        if (p && w->hosts[h].state == HOST_HEARD)
            message_send(w, p, MESSAGE_PAIR, buf, sizeof head + len);
    }
}

/* Both ends of a cut tell of it: the first one is repeated here, and the first one that says that it is over. */
void hosts_pair_said(struct watch *w, const struct peer *from, const void *data, size_t bytes)
{
    int32_t head[3];
    char text[NOTICE_TEXT_BYTES];
    if (bytes < sizeof head || bytes >= sizeof head + sizeof text)
        return;
    memcpy(head, data, sizeof head);
    struct pair pair = {MIN(head[0], head[1]), MAX(head[0], head[1])};
    if (head[0] != member(w, from)->host || pair.a < 0 || pair.b >= w->nhosts || pair.a == pair.b || head[1] == w->own_host || !w->hub)
        return;
    size_t len = bytes - sizeof head;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = ((const unsigned char *)data)[sizeof head + i];
        text[i] = (char)(c < 0x20 || c == 0x7f ? '?' : c);
    }
    text[len] = 0;
    int at = 0;
    while (at < w->npairs && (w->pairs[at].a != pair.a || w->pairs[at].b != pair.b))
        at++;
    bool known = at < w->npairs, cut = head[2] != 0;
    if (known == cut || (cut && w->npairs == (int)ARRAY_LEN(w->pairs)))
        return;
    if (cut)
        w->pairs[w->npairs++] = pair;
    else
        w->pairs[at] = w->pairs[--w->npairs];
    print(w, text);
}

void hosts_heard(struct watch *w, const struct peer *from, uint64_t when_ns)
{
    struct host *h = &w->hosts[member(w, from)->host];
    if (member(w, from)->host == w->own_host)
        return;
    uint64_t since = h->heard_ns;
    h->heard = true;
    h->heard_ns = MAX(h->heard_ns, when_ns);
    h->state = HOST_HEARD;
    h->failed = false;
    if (!h->told)
        return;
    h->told = false;
    char here[256], there[256], text[600];
    ranks_of(w, w->own_host, here, sizeof here);
    ranks_of(w, member(w, from)->host, there, sizeof there);
    snprintf(text, sizeof text, "hosts %s and %s reach each other again after %.1f s", here, there, (double)(h->heard_ns - since) / 1e9);
    tell_pair(w, member(w, from)->host, false, text);
}

static void suspect(struct watch *w, int host, uint64_t now)
{
    struct host *h = &w->hosts[host];
    struct peer *p = hosts_hub_of(w, host);
    struct net_link_facts f = {0};
    char text[NOTICE_TEXT_BYTES];
    if (p->broken || !p->link || !net_link_facts(p->link, &f))
        return; /* at the next tick */
    h->facts = f;
    if (h->state == HOST_HEARD && f.answers) {
        ranks_of(w, host, text, sizeof text);
        LOG(LOG_INFO, LOG_WATCH, "no steward of host %s was heard for %.1f s, though its kernel answers: stopped, frozen or starved", text,
            (double)(now - h->heard_ns) / 1e9);
    }
    h->state = f.answers ? HOST_MUTE : HOST_SILENT;
    if (h->state != HOST_SILENT)
        return;
    hosts_pair_text(w, host, now, text, sizeof text);
    if (!h->told)
        tell_pair(w, host, true, text);
    h->told = true;
    if (h->failed || now - h->heard_ns < w->suspect_timeout_ns)
        return;
    h->failed = true;
    notice_post(w->page, NOTICE_UNREACHABLE, host, 0, 0, text);
}

static void look_at_silence(struct watch *w, uint64_t now)
{
    for (int h = 0; h < w->nhosts; h++) {
        struct host *host = &w->hosts[h];
        host->heard = host->heard || was_there(w, h);
        uint64_t patience = suspect_ns(w) + (host->heard ? 0 : START_NS);
        if (h != w->own_host && now > host->heard_ns && now - host->heard_ns > patience && hosts_hub_of(w, h))
            suspect(w, h, now);
    }
}

/* A whole machine, a virtual one or a group of processes was suspended, or we were starved: what seemed silent was not. */
void hosts_late(struct watch *w, uint64_t late_ns, uint64_t now)
{
    LOG(LOG_INFO, LOG_WATCH, "the steward did not run for %.1f s: what it did not hear meanwhile says nothing", (double)late_ns / 1e9);
    for (int h = 0; h < w->nhosts; h++)
        if (!w->hosts[h].told)
            w->hosts[h].heard_ns = now;
    for (int i = 0; i < w->npeers; i++)
        w->peers[i].beat_ns = MAX(w->peers[i].beat_ns, now);
    inquiry_late(w, late_ns);
}

/* ---- timers --------------------------------------------------------------------------------------------------------------------- */

uint64_t hosts_next_ns(const struct watch *w)
{
    return w->npeers > 1 || inquiry_pending(w) ? w->tick_ns : UINT64_MAX;
}

void hosts_timers(struct watch *w, uint64_t now)
{
    if (now < w->tick_ns)
        return;
    w->tick_ns = now + w->tick_step_ns;
    look_at_boards(w, now);
    look_who_is_hub(w, now);
    if (w->hub && w->opt.net) {
        peers_link_hubs(w);
        send_beats(w, now);
        look_at_silence(w, now);
    }
    look_for_notices(w);
}
