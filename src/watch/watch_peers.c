/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_peers.c - who of the job lives, and who is told of an end.
 *
 * A process sees the ends of its own host's processes by itself. The *hub* of a host (watch_hosts.c says who that is) tells the
 * processes of other hosts; when a hub is gone the next one repeats all that it might have left unsaid. Hearing of a
 * death twice does no harm. A host that dies as a whole has no hub: then the end of all connections speaks (FIN without
 * goodbye, and no word from a hub), and who sees it tells everyone; how it ended its launcher says, where that is one that
 * does (watch_ends.h). Runs on the steward's thread only.
 */
#include "watch/watch_inner.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

static const struct watch_member *member(const struct watch *w, const struct peer *p)
{
    return &w->members[p->process];
}

bool peer_is_local(const struct watch *w, const struct peer *p)
{
    return member(w, p)->host == w->members[w->opt.rank].host;
}

bool peer_told_end(const struct watch *w, const struct peer *p, uno_end *end)
{
    return ends_find(w->ends, member(w, p)->launched, member(w, p)->pid, end);
}

struct peer *peer_find(struct watch *w, int process)
{
    int lo = 0, hi = w->npeers - 1;
    while (lo <= hi) {
        int mid = (lo + hi) / 2;
        if (w->peers[mid].process == process)
            return &w->peers[mid];
        if (w->peers[mid].process < process)
            lo = mid + 1;
        else
            hi = mid - 1;
    }
    return NULL;
}

/* ---- the table ------------------------------------------------------------------------------------------------------- */

uno_err peers_new(struct watch *w)
{
    const struct watch_member *m = w->members;
    int self = -1, n = 0;
    for (int r = 0; r < w->opt.size; r++) {
        if (m[r].process < 0 || m[r].process > r || m[m[r].process].process != m[r].process)
            return err_set(UNO_ERR_INTERNAL, "rank %d is said to be in process %d, which is not the lowest rank of a process", r,
                           m[r].process);
        n += m[r].process == r;
    }
    w->peers = mem_array((size_t)n, sizeof *w->peers);
    if (!w->peers)
        return UNO_ERR_MEMORY;
    w->npeers = 0;
    for (int r = 0; r < w->opt.size; r++)
        if (m[r].process == r) {
            if (r == m[w->opt.rank].process)
                self = w->npeers;
            w->peers[w->npeers++] = (struct peer){.process = r, .eye = {m[r].pid, m[r].start_ticks, -1}};
        }
    w->self = self;
    return UNO_OK;
}

void peers_free(struct watch *w)
{
    records_close(w);
    for (int i = 0; i < w->npeers; i++) {
        process_forget(&w->peers[i].eye);
        message_forget(&w->peers[i]);
    }
    free(w->peers);
    w->peers = NULL;
    w->npeers = 0;
}

/* "rank 3 (pid 12 on hostB)", "the process of ranks 0-3, 6 (pid 12 on hostB)" */
void peer_name(const struct watch *w, const struct peer *p, char *buf, size_t buf_bytes)
{
    char list[160];
    size_t len = 0;
    int runs = 0, first = -1, ranks = 0;
    list[0] = 0;
    for (int r = p->process; r <= w->opt.size; r++) {
        bool in = r < w->opt.size && w->members[r].process == p->process;
        ranks += in;
        if (in && first < 0)
            first = r;
        if (!in && first >= 0) {
            if (len < sizeof list)
                len += (size_t)snprintf(list + len, sizeof list - len, first == r - 1 ? "%s%d" : "%s%d-%d", runs++ ? ", " : "",
                                        first, r - 1);
            first = -1;
        }
    }
    snprintf(buf, buf_bytes, "%s %s (pid %d on %.64s)", ranks == 1 ? "rank" : "the process of ranks", list, (int)member(w, p)->pid,
             member(w, p)->hostname);
}

/* ---- telling ----------------------------------------------------------------------------------------------------------- */

static uno_err get_link(struct watch *w, struct peer *p)
{
    return p->link ? UNO_OK : net_link_get(w->opt.net, p->process, &member(w, p)->book, &p->link);
}

bool peer_send(struct watch *w, struct peer *to, const void *data, size_t bytes)
{
    if (!w->opt.net || to->unlinkable || to->state != PEER_ALIVE)
        return false;
    uno_err err = get_link(w, to);
    if (err == UNO_OK)
        err = net_control_send(to->link, data, bytes);
    w->net_idle_ns = 0; /* queued only: the next round sends it */
    if (err != UNO_OK) {
        char name[256];
        peer_name(w, to, name, sizeof name);
        to->unlinkable = err != UNO_ERR_MEMORY; /* that may pass */
        LOG(to->unlinkable ? LOG_INFO : LOG_DEBUG, LOG_WATCH, "%s cannot be told of deaths and aborts: %s", name, err_text());
    }
    return err == UNO_OK;
}

static void send_frame(struct watch *w, struct peer *to, const struct frame *f)
{
    unsigned char buf[FRAME_HEADER_BYTES + FRAME_TEXT_BYTES];
    (void)peer_send(w, to, buf, frame_write(f, buf));
}

/* It may have ended, and who speaks for its host now may be another one. A connection that is only being made says nothing. */
static bool doubtful(const struct peer *p)
{
    struct net_link_facts f;
    return p->suspect_ns || (p->link && net_link_facts(p->link, &f) && f.paths == 0 && f.state == NET_WAY_REFUSED);
}

/* Hubs keep links between them, so that a host that dies as a whole is noticed though nobody talked to it. At the start the lower
 * hub opens; later whoever sees a hub go or becomes one. Nobody hears of a hub that it has no link to: when both ends of one change
 * at once the new ones look for each other among those whom they took for alive. */
static void link_hubs(struct watch *w, bool starting)
{
    struct frame f = {.kind = FRAME_HELLO, .process = w->peers[w->self].process};
    if (!w->opt.net || !hosts_is_hub(w))
        return;
    for (int h = 0; h < w->nhosts; h++)
        w->hosts[h].linked = h == w->own_host;
    for (int i = 0; i < w->npeers; i++) {
        struct peer *p = &w->peers[i];
        bool *linked = &w->hosts[member(w, p)->host].linked;
        if (*linked || p->state != PEER_ALIVE || p->unlinkable)
            continue;
        if (!p->link && (!starting || i > w->self))
            send_frame(w, p, &f);
        *linked = !doubtful(p);
    }
}

void peers_link_hubs(struct watch *w)
{
    link_hubs(w, false);
}

/* everyone: also the processes of our own host, when the dead one is elsewhere. */
static void tell(struct watch *w, const struct peer *dead, bool everyone)
{
    struct frame f = {.kind = FRAME_DEATH, .process = dead->process, .code = dead->proved};
    snprintf(f.text, sizeof f.text, "%s", dead->text);
    for (int i = 0; i < w->npeers; i++)
        if (i != w->self && (everyone || !peer_is_local(w, &w->peers[i])))
            send_frame(w, &w->peers[i], &f);
}

static void tell_local_deaths(struct watch *w)
{
    for (int i = 0; i < w->npeers; i++)
        if (w->peers[i].state == PEER_DEAD && peer_is_local(w, &w->peers[i]))
            tell(w, &w->peers[i], false);
}

void peers_hub_changed(struct watch *w)
{
    tell_local_deaths(w);
    link_hubs(w, false);
}

void peers_abort(struct watch *w, const struct frame *f, const int *ranks, int nranks)
{
    for (int i = 0; i < w->npeers; i++) {
        struct peer *p = &w->peers[i];
        for (int k = 0; !peer_is_local(w, p) && k < nranks; k++)
            if (ranks[k] >= 0 && ranks[k] < w->opt.size && w->members[ranks[k]].process == p->process) {
                send_frame(w, p, f);
                break;
            }
    }
}

/* ---- ends ----------------------------------------------------------------------------------------------------------------- */

static void stop_looking(struct watch *w, struct peer *p)
{
    message_forget(p);
    if (p->polled)
        w->npolled--;
    p->polled = false;
    process_forget(&p->eye); /* closing takes it out of the epoll set */
    p->ended_ns = p->suspect_ns = p->told_ns = 0;
}

enum source { SEEN_HERE, SEEN_AS_FIN, TOLD, TOLD_PROVED };

/* After a process of our host is gone: pass it on if that is our task now. A hub that was left out may have been the one to do so. */
static void pass_on(struct watch *w, const struct peer *p)
{
    if (!hosts_is_hub(w))
        return;
    if (p < &w->peers[w->self])
        tell_local_deaths(w);
    else if (p->state == PEER_DEAD)
        tell(w, p, false);
    link_hubs(w, false);
}

/* It is certain, and for good: who has to know before anybody acts on it? */
static void peer_proved(struct watch *w, struct peer *p)
{
    if (!p->proved && w->opt.on_ended)
        w->opt.on_ended(w->opt.arg, p->process);
    p->proved = true;
}

static void peer_died(struct watch *w, struct peer *p, enum source source, const char *text)
{
    if (source == SEEN_HERE || source == TOLD_PROVED)
        peer_proved(w, p); /* also when it was taken for dead before */
    if (p->state != PEER_ALIVE)
        return;
    p->state = PEER_DEAD;
    p->gone_ns = clock_ns();
    stop_looking(w, p);
    snprintf(p->text, sizeof p->text, "%s", text);
    bool others_say_it = peer_is_local(w, p) && !p->records.page; /* those who have its board, and know more */
    LOG(others_say_it ? LOG_DEBUG : LOG_INFO, LOG_WATCH, "%s", text);
    if (peer_is_local(w, p))
        post_soon(w); /* before anybody ends because of it */
    if (!atomic_load_explicit(&w->leaving, memory_order_relaxed))
        w->opt.on_dead(w->opt.arg, p->process, p->text);
    if (source == SEEN_AS_FIN)
        tell(w, p, true);
    if (peer_is_local(w, p))
        pass_on(w, p);
    else
        link_hubs(w, false);
}

/* how: "exited with status 0", or "" where only its goodbye is known. */
static void peer_left(struct watch *w, struct peer *p, const char *how)
{
    if (p->state != PEER_ALIVE)
        return;
    char name[256];
    peer_proved(w, p);
    peer_name(w, p, name, sizeof name);
    p->state = PEER_LEFT;
    p->gone_ns = clock_ns();
    stop_looking(w, p);
    snprintf(p->text, sizeof p->text, "%s left the job%s%s", name, how[0] ? " and " : "", how);
    LOG(LOG_DEBUG, LOG_WATCH, "%s", p->text);
    if (w->opt.on_left && !atomic_load_explicit(&w->leaving, memory_order_relaxed))
        w->opt.on_left(w->opt.arg, p->process, p->text);
    if (peer_is_local(w, p))
        pass_on(w, p);
    else
        link_hubs(w, false);
}

/* Its board knows best, then the communicators that we can read; last those that we share with it and have not destroyed ourselves. */
static bool has_left(const struct watch *w, const struct peer *p)
{
    enum goodbye goodbye = records_goodbye(&p->records);
    if (goodbye != GOODBYE_UNKNOWN)
        return goodbye == GOODBYE_SAID;
    return w->opt.said_goodbye && w->opt.said_goodbye(w->opt.arg, p->process);
}

/* What is known of the end of a process of this host, in words behind its name. */
static void local_how(struct watch *w, const struct peer *p, char *buf, size_t buf_bytes)
{
    const struct records *rec = &p->records;
    char words[400];
    uno_end end = {.kind = UNO_END_SEEN, .status = rec->status, .oom_kill = rec->oom_kill};
    if (rec->oom_kill && rec->page)
        snprintf(end.cgroup, sizeof end.cgroup, "%.255s", rec->page->cgroup);
    if (rec->status == SIGKILL && !rec->oom_kill && ends_begun(w->ends, &end.signal))
        end.kind = UNO_END_ENDED;
    bool exited_inside = rec->page && (rec->status & 0x7f) == 0; /* exec and _exit run no handler that says goodbye */
    snprintf(buf, buf_bytes, "%s%s", ends_text(&end, words, sizeof words), exited_inside ? " without leaving the job" : "");
}

/* The end was seen. How it ended is known once the parent has collected it, which takes a moment; `last` = say it now. */
static void local_ended(struct watch *w, struct peer *p, bool last)
{
    char name[256], how[400] = "", text[FRAME_TEXT_BYTES];
    records_ended(w, p);
    if (has_left(w, p)) {
        if (p->records.status_known)
            process_status_text(p->records.status, how, sizeof how);
        peer_left(w, p, how);
        return;
    }
    if ((!p->records.page || !p->records.status_known) && !last)
        return; /* without its board: others of this host, who have it, know whether the kernel did it, and theirs shall be the sentence */
    peer_name(w, p, name, sizeof name);
    if (p->records.status_known)
        local_how(w, p, how, sizeof how);
    snprintf(text, sizeof text, "%s %s", name, p->records.status_known ? how : "has ended, status unknown here: its parent knows");
    peer_died(w, p, SEEN_HERE, text);
}

static void local_gone(struct watch *w, struct peer *p)
{
    uint64_t now = clock_ns();
    if (p->eye.pidfd >= 0)
        epoll_ctl(w->epoll, EPOLL_CTL_DEL, p->eye.pidfd, NULL); /* it stays readable */
    p->ended_ns = now;
    local_ended(w, p, false);
}

void peers_event(struct watch *w, int index)
{
    struct peer *p = &w->peers[index];
    if (p->state == PEER_ALIVE && p->ended_ns == 0)
        local_gone(w, p);
}

/* ---- begin -------------------------------------------------------------------------------------------------------------- */

static void watch_local(struct watch *w, struct peer *p)
{
    if (!process_open(&p->eye)) {
        p->ended_ns = 1; /* long ago: its parent has collected it */
        return;
    }
    struct epoll_event ev = {.events = EPOLLIN, .data.u64 = (uint64_t)(p - w->peers)};
    if (p->eye.pidfd >= 0 && epoll_ctl(w->epoll, EPOLL_CTL_ADD, p->eye.pidfd, &ev) == 0)
        return;
    int why = errno;
    process_forget(&p->eye);
    if (w->npolled++ == 0)
        LOG(LOG_INFO, LOG_WATCH, "pidfd_open is refused here (%s): /proc is looked at every %d ms instead to see processes end",
            strerror(why), (int)(POLL_NS / 1000000));
    p->polled = true;
}

/* Reading /proc takes many times as long as opening a pidfd, so it is not done while the others join. */
static void prove_some(struct watch *w, uint64_t now)
{
    int left = PROVED_AT_ONCE;
    for (int i = 0; i < w->npeers; i++) {
        struct peer *p = &w->peers[i];
        if (!p->eye.unproved || p->ended_ns)
            continue;
        if (left-- == 0) {
            w->prove_ns = now + PROVE_STEP_NS;
            return;
        }
        if (!process_prove(&p->eye))
            p->ended_ns = 1;
    }
    w->prove_ns = UINT64_MAX;
}

/* The hub, and who follows it when it dies at once, map the boards now, the others at their first look: all of a large host's
 * stewards at once would hold up the joining. */
static bool speaks_soon(const struct watch *w)
{
    int before = 0;
    for (int i = 0; i < w->self; i++)
        before += peer_is_local(w, &w->peers[i]);
    return before < BOARDS_AT_ONCE;
}

void peers_watch(struct watch *w)
{
    if (speaks_soon(w))
        records_open(w);
    for (int i = 0; i < w->npeers; i++)
        if (i != w->self && peer_is_local(w, &w->peers[i]))
            watch_local(w, &w->peers[i]);
    w->poll_ns = clock_ns() + POLL_NS;
    w->prove_ns = clock_ns() + PROVE_AFTER_NS;
    link_hubs(w, true);
}

/* ---- timers --------------------------------------------------------------------------------------------------------------- */

uint64_t peers_next_ns(const struct watch *w)
{
    uint64_t next = MIN(w->npolled ? w->poll_ns : UINT64_MAX, w->prove_ns);
    for (int i = 0; i < w->npeers; i++) {
        const struct peer *p = &w->peers[i];
        if (p->ended_ns)
            next = MIN(next, clock_ns() + HOW_STEP_NS);
        if (p->suspect_ns)
            next = MIN(next, MIN(p->suspect_ns + SUSPECT_NS, w->ends ? clock_ns() + TOLD_STEP_NS : UINT64_MAX));
        if (p->told_ns)
            next = MIN(next, MAX(p->told_ns + SUSPECT_NS, clock_ns() + TOLD_NS));
    }
    return next;
}

/* All connections of a process of another host were closed. Its hub, if one lives there, has the first word. */
static void suspect_timer(struct watch *w, struct peer *p, uint64_t now)
{
    char name[256], how[400], text[FRAME_TEXT_BYTES];
    uno_end end;
    bool told = now >= p->suspect_ns + TOLD_NS && peer_told_end(w, p, &end);
    if (!told && now < p->suspect_ns + SUSPECT_NS)
        return;
    peer_name(w, p, name, sizeof name);
    if (told)
        snprintf(text, sizeof text, "%s %s%s", name, ends_text(&end, how, sizeof how),
                 end.kind == UNO_END_SEEN && (end.status & 0x7f) == 0 ? " without leaving the job" : "");
    else
        snprintf(text, sizeof text, "%s has ended without leaving the job, status unknown here: all its connections were closed (%.160s)", name,
                 p->suspect_text);
    if (told && end.kind != UNO_END_LOST)
        peer_proved(w, p);
    peer_died(w, p, SEEN_AS_FIN, text);
}

/* A goodbye would have come over a way that works. Where the last way was reset it may be lost, and who failed afterwards needs none. */
static bool said_nothing(struct peer *p, const uno_end *end)
{
    struct net_link_facts f;
    if (p->unlinkable)
        return end->status != 0;
    return p->link && net_link_facts(p->link, &f) && f.paths > 0 && f.state == NET_WAY_OK;
}

/* Its launcher has collected it, and yet its connections stay: children that it had forked hold them. */
static void told_timer(struct watch *w, struct peer *p, uint64_t now)
{
    char name[256], how[400], text[FRAME_TEXT_BYTES];
    uno_end end;
    if (p->suspect_ns || now < p->told_ns + SUSPECT_NS || !peer_told_end(w, p, &end) || !said_nothing(p, &end))
        return;
    peer_name(w, p, name, sizeof name);
    snprintf(text, sizeof text, "%s %s", name, ends_text(&end, how, sizeof how));
    peer_proved(w, p);
    peer_died(w, p, SEEN_AS_FIN, text);
}

static void look_at_ends(struct watch *w, uint64_t now)
{
    uint32_t changes = ends_changes(w->ends);
    uno_end end;
    if (changes == w->ends_seen)
        return;
    w->ends_seen = changes;
    for (int i = 0; i < w->npeers; i++) {
        struct peer *p = &w->peers[i];
        if (p->state == PEER_ALIVE && !p->told_ns && !peer_is_local(w, p) && peer_told_end(w, p, &end) && end.kind != UNO_END_LOST)
            p->told_ns = now;
    }
}

/* Whose process has ended, has: nobody will look again. */
void peers_look(struct watch *w)
{
    for (int i = 0; i < w->npeers; i++) {
        struct peer *p = &w->peers[i];
        if (i == w->self || p->state != PEER_ALIVE || !peer_is_local(w, p) || !process_ended(&p->eye))
            continue;
        if (p->ended_ns == 0)
            local_gone(w, p);
        if (p->state == PEER_ALIVE)
            local_ended(w, p, true);
    }
}

void peers_timers(struct watch *w, uint64_t now)
{
    bool poll = w->npolled && w->poll_ns <= now;
    if (poll)
        w->poll_ns = now + POLL_NS;
    if (w->prove_ns <= now)
        prove_some(w, now);
    look_at_ends(w, now);
    for (int i = 0; i < w->npeers; i++) {
        struct peer *p = &w->peers[i];
        if (poll && p->polled && p->ended_ns == 0 && process_ended(&p->eye))
            local_gone(w, p);
        if (p->ended_ns)
            local_ended(w, p, now >= p->ended_ns + HOW_NS);
        if (p->suspect_ns)
            suspect_timer(w, p, now);
        if (p->told_ns)
            told_timer(w, p, now);
    }
}

/* ---- from other hosts --------------------------------------------------------------------------------------------------------- */

void peers_frame(struct watch *w, int from, const void *data, size_t bytes, uint64_t when_ns)
{
    struct frame f = {0};
    struct peer *sender = peer_find(w, from);
    /* net tells the end of a link only when it knows the address and has tried once more. */
    if (w->opt.net && sender && sender != &w->peers[w->self] && get_link(w, sender) != UNO_OK)
        LOG(LOG_INFO, LOG_WATCH, "the end of rank %d's process may go unnoticed: %s", from, err_text());
    int kind = frame_kind_of(data, bytes);
    uno_err err = kind ? UNO_OK : UNO_ERR_PARSE;
    if (kind == FRAME_PART || kind == FRAME_BEAT) {
        if (!sender || sender == &w->peers[w->self])
            err = err_set(UNO_ERR_PARSE, "there is no such process");
        else if (kind == FRAME_PART)
            err = message_part(w, sender, data, bytes);
        else
            err = hosts_beat(w, sender, data, bytes, when_ns);
    } else if (kind) {
        err = frame_read(data, bytes, &f);
    }
    if (err != UNO_OK) {
        LOG(LOG_INFO, LOG_WATCH, "from rank %d: %s; ignored", from, err_text());
        return;
    }
    if (sender)
        hosts_heard(w, sender, when_ns);
    if (f.kind == FRAME_ABORT && !atomic_load_explicit(&w->leaving, memory_order_relaxed)) {
        w->opt.on_abort(w->opt.arg, f.comm_id, (uno_err)f.code, f.rank, f.text);
    } else if (f.kind == FRAME_DEATH) {
        struct peer *p = peer_find(w, f.process);
        if (!p || p == &w->peers[w->self])
            LOG(LOG_INFO, LOG_WATCH, "rank %d says that process %d is dead, which %s; ignored", from, f.process,
                p ? "is this one" : "is not in this job");
        else
            peer_died(w, p, f.code == 1 ? TOLD_PROVED : TOLD, f.text);
    }
}

void peers_down(struct watch *w, int from, enum net_down how, const char *text)
{
    struct peer *p = peer_find(w, from);
    if (!p || p->state != PEER_ALIVE || p == &w->peers[w->self])
        return;
    if (how == NET_DOWN_LEFT) {
        if (!peer_is_local(w, p)) /* of our own host's processes the pidfd tells, and they may still be needed by others */
            peer_left(w, p, text);
    } else if (how == NET_DOWN_ENDED && !peer_is_local(w, p)) {
        p->suspect_ns = MAX(clock_ns(), 1u);
        snprintf(p->suspect_text, sizeof p->suspect_text, "%s", text);
        link_hubs(w, false);
    } else {
        char name[256];
        peer_name(w, p, name, sizeof name);
        LOG(LOG_INFO, LOG_WATCH, "%s is not connected any more, which is no proof of its end: %s", name, text);
        p->unlinkable = true;
        p->broken = how == NET_DOWN_BROKEN;
        if (p->broken && w->opt.on_broken && !atomic_load_explicit(&w->leaving, memory_order_relaxed))
            w->opt.on_broken(w->opt.arg, p->process, text);
        link_hubs(w, false);
    }
}
