/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net_tcp_connect.c - how paths come to be: the listener, handshakes, which interface meets which, and trying again. Of two
 * processes the lower-numbered one opens a link's sockets; the other one, when it is first to need the link, knocks with one
 * socket a lane, which then counts as one of them. All for the holder of the sockets' lock.
 */
#include "net_tcp_inner.h"

#include <errno.h>
#include <ifaddrs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define RETRY_FIRST_NS 20000000ull
#define RETRY_LAST_NS 1000000000ull
#define DROP_LANE_NS 2000000000ull      /* a lane that cannot connect while another one works */
#define REFUSED_NS 1000000000ull        /* never connected, and refused: peers listen before they join, so it has ended */
#define FIRST_GIVE_UP_NS 10000000000ull /* never connected */
#define LASTS_NS 1000000000ull          /* a new path that nothing comes on works all the same */
#define RESERVE_RATIO 8
#define CROWDED_NS 100000000ull         /* so long a half-open connection keeps its place when there are too many */
#define SAY_NS 1000000000ull            /* between two words about strangers */

/* ---- lanes ----------------------------------------------------------------------------------------------------------- */

static const void *address_bytes(const struct sock_addr *a, size_t *n)
{
    if (a->u.sa.sa_family == AF_INET) {
        *n = 4;
        return &a->u.in.sin_addr;
    }
    bool mapped = IN6_IS_ADDR_V4MAPPED(&a->u.in6.sin6_addr);
    *n = mapped ? 4 : 16;
    return a->u.in6.sin6_addr.s6_addr + (mapped ? 12 : 0);
}

static bool same_address(const struct sock_addr *a, const struct sock_addr *b)
{
    size_t na, nb;
    const void *pa = address_bytes(a, &na), *pb = address_bytes(b, &nb);
    return na == nb && memcmp(pa, pb, na) == 0;
}

/* Is `to` in the subnet of the local address `from`? */
static bool same_subnet(const struct ifaddrs *all, const struct sock_addr *from, const struct sock_addr *to)
{
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        struct sock_addr mine = {0}, mask = {0};
        if (!i->ifa_addr || !i->ifa_netmask || i->ifa_addr->sa_family != from->u.sa.sa_family)
            continue;
        size_t len = i->ifa_addr->sa_family == AF_INET ? sizeof mine.u.in : sizeof mine.u.in6, n, nt;
        memcpy(&mine.u, i->ifa_addr, len);
        memcpy(&mask.u, i->ifa_netmask, len);
        mask.u.sa.sa_family = i->ifa_addr->sa_family;
        if (!same_address(&mine, from))
            continue;
        const unsigned char *a = address_bytes(from, &n), *b = address_bytes(to, &nt), *m = address_bytes(&mask, &len);
        bool same = n == nt && n == len;
        for (size_t k = 0; same && k < n; k++)
            same = (a[k] & m[k]) == (b[k] & m[k]);
        if (same)
            return true;
    }
    return false;
}

static void add_lane(struct net_link *l, const struct sock_iface *from, const struct sock_addr *to, uint64_t to_rate)
{
    struct tcp_lane *lane = &l->lanes[l->nlanes++];
    *lane = (struct tcp_lane){.to = *to, .bound = from != NULL, .rate_bps = to_rate};
    if (!from)
        return;
    lane->from = from->addr;
    if (from->rate_bps && (!to_rate || from->rate_bps < to_rate))
        lane->rate_bps = from->rate_bps;
    if (to->u.sa.sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&to->u.in6.sin6_addr))
        lane->to.u.in6.sin6_scope_id = from->addr.u.in6.sin6_scope_id;
}

/* Each of our interfaces meets the peer's address in its subnet; an interface that has none, when it may be worth it, the
 * next address that nobody met: whether that is reachable is found by trying. */
static void pair_interfaces(struct net_link *l, const struct ifaddrs *all, bool in_subnet, bool taken[SOCK_MAX_ADDRS])
{
    struct net_proc *p = l->proc;
    uint64_t best = 0;
    for (int i = 0; i < l->nlanes; i++)
        best = MAX(best, l->lanes[i].rate_bps);
    for (size_t i = 0; i < p->nifaces; i++) {
        const struct sock_iface *f = &p->ifaces[i];
        bool has = false;
        for (int j = 0; j < l->nlanes; j++)
            for (size_t k = 0; k < p->nifaces; k++)
                has |= same_address(&l->lanes[j].from, &p->ifaces[k].addr) && strcmp(p->ifaces[k].name, f->name) == 0;
        if (has || (!in_subnet && l->nlanes && f->rate_bps <= best))
            continue;
        for (int a = 0; a < l->book.count && l->nlanes < SOCK_MAX_ADDRS; a++) {
            const struct sock_addr *to = &l->book.addr[a];
            if (taken[a] || to->u.sa.sa_family != f->addr.u.sa.sa_family || (in_subnet && !same_subnet(all, &f->addr, to)))
                continue;
            add_lane(l, f, to, l->book.rate_bps[a]);
            taken[a] = true;
            break;
        }
    }
}

static void order_lanes(struct net_link *l)
{
    for (int i = 1; i < l->nlanes; i++)
        for (int j = i; j > 0 && l->lanes[j].rate_bps > l->lanes[j - 1].rate_bps; j--) {
            struct tcp_lane t = l->lanes[j];
            l->lanes[j] = l->lanes[j - 1];
            l->lanes[j - 1] = t;
        }
    for (int i = 1; i < l->nlanes; i++)
        l->lanes[i].reserve = l->lanes[i].rate_bps && l->lanes[i].rate_bps < l->lanes[0].rate_bps / RESERVE_RATIO;
}

void link_lanes(struct net_link *l)
{
    struct ifaddrs *all = NULL;
    bool taken[SOCK_MAX_ADDRS] = {false};
    if (getifaddrs(&all) != 0)
        all = NULL;
    pthread_mutex_lock(&l->control_mutex);
    pair_interfaces(l, all, true, taken);
    pair_interfaces(l, all, false, taken);
    for (int a = 0; a < l->book.count && l->nlanes == 0; a++)
        add_lane(l, NULL, &l->book.addr[a], l->book.rate_bps[a]); /* let routing choose */
    l->has_book = true;
    pthread_mutex_unlock(&l->control_mutex);
    order_lanes(l);
    if (all)
        freeifaddrs(all);
    for (int i = 0; i < l->npaths; i++) { /* the peer came first */
        l->paths[i]->lane = lane_of(l, l->paths[i]->fd);
        if (l->paths[i]->lane >= 0)
            l->lanes[l->paths[i]->lane].up++;
    }
    l->balanced = balance_lanes(l) > 1;
    if (l->wanted)
        link_want(l);
}

/* The lane an accepted socket belongs to. */
int lane_of(const struct net_link *l, int fd)
{
    struct sock_addr mine = {.len = sizeof mine.u}, peer = {.len = sizeof peer.u};
    if (getsockname(fd, &mine.u.sa, &mine.len) != 0 || getpeername(fd, &peer.u.sa, &peer.len) != 0)
        return -1;
    for (int i = 0; i < l->nlanes; i++)
        if (same_address(&l->lanes[i].to, &peer) && (!l->lanes[i].bound || same_address(&l->lanes[i].from, &mine)))
            return i;
    return -1;
}

/* ---- opening --------------------------------------------------------------------------------------------------------- */

void lane_failed(struct net_link *l, int lane, enum tcp_why why, const char *text)
{
    struct tcp_lane *n = &l->lanes[lane];
    uint64_t now = clock_ns();
    char to[SOCK_TEXT_BYTES];
    n->why = why;
    n->fails++;
    if (n->since_ns == 0)
        n->since_ns = now;
    n->retry_ns = now + MIN(RETRY_FIRST_NS << MIN(n->fails - 1, 6), RETRY_LAST_NS);
    snprintf(n->text, sizeof n->text, "%.70s: %.80s", sock_text(&n->to, to, sizeof to), text);
    LOG(LOG_DEBUG, LOG_NET, "process %d: %s", l->process, n->text);
}

void lane_works(struct tcp_lane *n)
{
    n->fails = 0;
    n->since_ns = 0;
    n->why = TCP_WHY_NONE;
}

static bool half_watch(struct net_proc *p, struct tcp_half *h, int op)
{
    bool out = !h->connected || h->auth.wants_write;
    struct epoll_event ev = {.events = out ? EPOLLOUT : EPOLLIN, .data.ptr = h};
    return epoll_ctl(p->setup_fd, op, h->fd, &ev) == 0;
}

static struct tcp_half *half_new(struct net_proc *p, int fd, struct net_link *l, int lane)
{
    struct tcp_half *h = mem_zalloc(sizeof *h);
    if (!h)
        return NULL;
    h->fd = fd;
    h->link = l;
    h->lane = lane;
    h->connected = l == NULL;
    h->deadline_ns = clock_ns() + TCP_HALF_OPEN_NS;
    auth_start(&h->auth, &p->opt.key, l != NULL);
    h->auth.own_job = p->opt.job;
    if (!half_watch(p, h, EPOLL_CTL_ADD)) {
        err_sys("cannot watch a socket");
        free(h);
        return NULL;
    }
    struct tcp_half **at = &p->halves; /* oldest first */
    while (*at)
        at = &(*at)->next;
    *at = h;
    p->naccepted += l == NULL;
    proc_tick(p);
    return h;
}

static void half_end(struct net_proc *p, struct tcp_half *h, bool keep_fd)
{
    struct tcp_half **at = &p->halves;
    while (*at != h)
        at = &(*at)->next;
    *at = h->next;
    if (h->link)
        h->link->lanes[h->lane].trying--;
    else
        p->naccepted--;
    if (!keep_fd && h->connected)
        auth_give_up(&h->auth, h->fd);
    if (keep_fd)
        epoll_ctl(p->setup_fd, EPOLL_CTL_DEL, h->fd, NULL);
    else
        close(h->fd);
    free(h);
}

static void open_one(struct net_link *l, int lane)
{
    struct net_proc *p = l->proc;
    struct tcp_lane *n = &l->lanes[lane];
    int fd = -1;
    uno_err err = sock_connect_start(&n->to, n->bound ? &n->from : NULL, &fd);
    if (err != UNO_OK) {
        bool refused = err == UNO_ERR_UNREACHABLE && errno == ECONNREFUSED;
        lane_failed(l, lane, refused ? TCP_WHY_REFUSED : err == UNO_ERR_UNREACHABLE ? TCP_WHY_UNREACHABLE : TCP_WHY_LOCAL,
                    err_text());
        return;
    }
    struct tcp_half *h = half_new(p, fd, l, lane);
    if (!h) {
        close(fd);
        lane_failed(l, lane, TCP_WHY_LOCAL, err_text());
        return;
    }
    n->trying++;
    h->auth.hello = (struct auth_hello){.role = AUTH_DATA, .job = p->opt.job, .from = p->opt.self, .to = l->process,
                                        .connection = (uint32_t)lane << 8 | (uint32_t)(n->up & 0xff)};
}

static bool any_lane_up(const struct net_link *l)
{
    for (int i = 0; i < l->nlanes; i++)
        if (l->lanes[i].up && !l->lanes[i].reserve)
            return true;
    return false;
}

/* Reserve lanes are tried once no other lane works or is being tried for the first time. */
static bool lane_usable(const struct net_link *l, const struct tcp_lane *n)
{
    if (n->dropped)
        return false;
    if (!n->reserve)
        return true;
    for (int i = 0; i < l->nlanes; i++)
        if (!l->lanes[i].reserve && !l->lanes[i].dropped && (l->lanes[i].up || l->lanes[i].fails == 0))
            return false;
    return true;
}

static void open_missing(struct net_link *l, uint64_t now)
{
    struct net_proc *p = l->proc;
    bool opener = p->opt.self < l->process, control = true;
    for (int i = 0; i < l->nlanes; i++) {
        struct tcp_lane *n = &l->lanes[i];
        int want = opener ? p->sockets : l->npaths ? 0 : 1;
        if (opener && control && lane_usable(l, n) && (n->up || n->fails == 0)) {
            want++; /* the first lane that works has one more, for control frames */
            control = false;
        }
        while (lane_usable(l, n) && n->up + n->trying < want && now >= n->retry_ns)
            open_one(l, i);
    }
}

static bool may_open(const struct net_link *l)
{
    return l->wanted && l->has_book && !l->goodbye_in && !atomic_load_explicit(&l->proc->leaving, memory_order_relaxed) &&
           atomic_load_explicit(&l->state, memory_order_relaxed) == TCP_LINK_OPEN;
}

void link_want(struct net_link *l)
{
    uint64_t now = clock_ns();
    if (!l->wanted || (l->npaths == 0 && l->was_up && l->first_try_ns == 0)) {
        l->first_try_ns = now;
        for (int i = 0; i < l->nlanes; i++) { /* a new attempt on everything */
            lane_works(&l->lanes[i]);
            l->lanes[i].retry_ns = 0;
            l->lanes[i].dropped = false;
        }
    }
    l->wanted = true;
    proc_tick(l->proc);
    if (may_open(l))
        open_missing(l, now);
}

/* ---- giving up ----------------------------------------------------------------------------------------------------------- */

static void give_up(struct net_link *l, uint64_t now)
{
    char text[360];
    size_t at = (size_t)snprintf(text, sizeof text, "tried for %.1f s", (double)(now - l->first_try_ns) / 1e9);
    bool answers = false; /* so its process has not ended */
    for (int i = 0; i < l->nlanes && at < sizeof text; i++) {
        answers |= l->lanes[i].why == TCP_WHY_AUTH;
        if (l->lanes[i].why != TCP_WHY_NONE)
            at += (size_t)snprintf(text + at, sizeof text - at, "; %s", l->lanes[i].text);
    }
    link_down(l, l->was_up && l->ended_by_fin && !answers ? NET_DOWN_ENDED : NET_DOWN_LOST, text);
}

/* Does nobody listen there, on any lane? */
static bool all_refused(const struct net_link *l)
{
    bool refused = l->nlanes > 0;
    for (int i = 0; i < l->nlanes; i++)
        refused &= l->lanes[i].why == TCP_WHY_REFUSED;
    return refused;
}

bool link_unheard(const struct net_link *l)
{
    return !l->was_up && all_refused(l);
}

/* No path: has every lane failed for good? A peer whose kernel answers but not its process may be stopped: that is waited for.
 * A link that was up is waited for as long as a silent host is, unless FIN and refusal say that the process has ended: a firewall
 * refuses, too. */
static bool hopeless(const struct net_link *l, uint64_t now)
{
    bool ended = l->was_up ? l->ended_by_fin : now - l->first_try_ns > REFUSED_NS, failed = l->nlanes > 0;
    uint64_t patience = l->was_up ? l->proc->patience_ns : FIRST_GIVE_UP_NS;
    for (int i = 0; i < l->nlanes; i++) {
        const struct tcp_lane *n = &l->lanes[i];
        failed &= n->why != TCP_WHY_NONE && n->why != TCP_WHY_SILENT;
    }
    return (ended && all_refused(l)) || (failed && now - l->first_try_ns > patience);
}

static bool link_tick(struct net_link *l, uint64_t now)
{
    if (!may_open(l))
        return false;
    if (l->npaths) {
        for (int i = 0; i < l->npaths; i++) {
            if (!l->paths[i]->works && now - l->paths[i]->since_ns > LASTS_NS)
                path_works(l->paths[i]);
            if (l->paths[i]->works)
                l->first_try_ns = 0;
        }
        for (int i = 0; i < l->nlanes; i++) {
            struct tcp_lane *n = &l->lanes[i];
            if (!n->dropped && n->up == 0 && n->since_ns && now - n->since_ns > DROP_LANE_NS && any_lane_up(l)) {
                n->dropped = true;
                LOG(LOG_INFO, LOG_NET, "process %d: a pair of interfaces is not used: %s", l->process, n->text);
            }
        }
    } else if (hopeless(l, now)) {
        give_up(l, now);
        return false;
    }
    open_missing(l, now);
    bool missing = l->npaths == 0;
    for (int i = 0; i < l->nlanes; i++)
        missing |= l->lanes[i].trying > 0 || (l->lanes[i].fails > 0 && !l->lanes[i].dropped);
    return missing;
}

/* ---- handshakes ------------------------------------------------------------------------------------------------------------ */

/* Counted, and said once a second at most: a flood must not fill a log. */
static void stranger(struct net_proc *p, const char *text)
{
    uint64_t n = atomic_fetch_add_explicit(&p->counts.refused, 1, memory_order_relaxed) + 1, now = clock_ns();
    auth_count_refused();
    if (now - p->said_ns < SAY_NS)
        return;
    p->said_ns = now;
    LOG(LOG_INFO, LOG_NET, "refused a connection: %s (%llu so far)", text, (unsigned long long)n);
}

static void half_failed(struct net_proc *p, struct tcp_half *h, enum tcp_why why, const char *text)
{
    if (h->link) {
        lane_failed(h->link, h->lane, why, text);
    } else if (!h->auth.left) {
        stranger(p, text);
    }
    half_end(p, h, false);
}

/* Who is it? Its MAC was right, so it knows the secret; it may still be in the wrong place. */
static void welcome(struct net_proc *p, struct tcp_half *h)
{
    const struct auth_hello *hello = &h->auth.hello;
    struct net_link *l = NULL;
    bool nobody = hello->from < 0 || hello->from == p->opt.self || (p->opt.ranks && hello->from >= p->opt.ranks);
    if (hello->job != p->opt.job || hello->to != p->opt.self || nobody ||
        (hello->role != AUTH_DATA && hello->role != AUTH_CONTROL)) {
        half_failed(p, h, TCP_WHY_AUTH, "a peer asked for another job or process");
        return;
    }
    int fd = h->fd;
    if (!(l = link_find(p, hello->from, true)) || atomic_load(&l->state) == TCP_LINK_DOWN || l->npaths >= TCP_MAX_PATHS) {
        if (l)
            link_say_closed(l, fd);
        LOG(LOG_INFO, LOG_NET, "process %d: a connection is not used: %s", hello->from, l ? "its link is closed or has enough sockets" : err_text());
        half_end(p, h, false); /* one of ours: no stranger */
        return;
    }
    half_end(p, h, true);
    atomic_fetch_add_explicit(&p->counts.accepted, 1, memory_order_relaxed);
    link_add_path(l, fd, lane_of(l, fd));
    link_want(l);
}

static void half_step(struct net_proc *p, struct tcp_half *h)
{
    if (!h->connected) {
        int why = 0;
        socklen_t len = sizeof why;
        getsockopt(h->fd, SOL_SOCKET, SO_ERROR, &why, &len);
        if (why) {
            half_failed(p, h, why == ECONNREFUSED ? TCP_WHY_REFUSED : TCP_WHY_UNREACHABLE, strerror(why));
            return;
        }
        h->connected = true;
    }
    uno_err err = auth_step(&h->auth, h->fd);
    if (err == UNO_ERR_IN_PROGRESS) {
        half_watch(p, h, EPOLL_CTL_MOD);
    } else if (err != UNO_OK) {
        half_failed(p, h, clock_ns() >= h->auth.deadline_ns ? TCP_WHY_SILENT : TCP_WHY_AUTH, err_text());
    } else if (!h->link) {
        welcome(p, h);
    } else {
        struct net_link *l = h->link;
        int fd = h->fd, lane = h->lane;
        half_end(p, h, true);
        link_add_path(l, fd, lane);
    }
}

static void watch_listener(struct net_proc *p, bool on)
{
    struct epoll_event ev = {.events = on ? EPOLLIN : 0};
    epoll_ctl(p->setup_fd, EPOLL_CTL_MOD, p->listen_fd, &ev);
    p->deaf = !on;
    proc_tick(p);
}

/* Room for one more half-open connection? If not, the oldest goes, once it has had its chance: who floods us must keep out neither
 * those who come now nor those who are in the middle of their handshake. */
static bool make_room(struct net_proc *p)
{
    if (p->naccepted < TCP_HALF_OPEN)
        return true;
    struct tcp_half *h = p->halves;
    while (h->link)
        h = h->next;
    if (h->deadline_ns - TCP_HALF_OPEN_NS + CROWDED_NS > clock_ns())
        return false;
    half_failed(p, h, TCP_WHY_SILENT, "too many connections without a handshake");
    return true;
}

static bool accept_some(struct net_proc *p)
{
    bool any = false;
    for (int i = 0; i < TCP_HALF_OPEN; i++) {
        if (!make_room(p)) {
            watch_listener(p, false); /* until the next tick */
            break;
        }
        int fd = fd_above_standard(accept4(p->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
                watch_listener(p, false); /* it would be ready for ever; tried again at the next tick */
            break;
        }
        any = true;
        if (sock_tune(fd) != UNO_OK || !half_new(p, fd, NULL, -1)) {
            LOG(LOG_INFO, LOG_NET, "a connection is not accepted: %s", err_text());
            close(fd);
        }
    }
    return any;
}

uno_err connect_listen(struct net_proc *p)
{
    TRY(sock_listen(0, &p->listen_fd, &p->port));
    TRY(sock_tune(p->listen_fd));
    struct epoll_event ev = {.events = EPOLLIN};
    if (epoll_ctl(p->setup_fd, EPOLL_CTL_ADD, p->listen_fd, &ev) != 0)
        return err_sys("cannot watch the listening socket");
    return UNO_OK;
}

static bool still_half(const struct net_proc *p, const struct tcp_half *h)
{
    const struct tcp_half *i = p->halves;
    while (i && i != h)
        i = i->next;
    return i != NULL;
}

bool connect_step(struct net_proc *p)
{
    struct epoll_event ev[16];
    int n = epoll_wait(p->setup_fd, ev, ARRAY_LEN(ev), 0);
    bool any = false;
    for (int i = 0; i < n; i++)
        if (ev[i].data.ptr && still_half(p, ev[i].data.ptr)) {
            half_step(p, ev[i].data.ptr);
            any = true;
        }
    for (int i = 0; i < n; i++)
        if (!ev[i].data.ptr)
            any |= accept_some(p);
    return any;
}

/* An accepted one's time is over: what has come meanwhile counts, and who seems to be ours gets some more. true: it is there still. */
static bool half_late(struct net_proc *p, struct tcp_half *h)
{
    half_step(p, h);
    if (!still_half(p, h))
        return false;
    h->deadline_ns = h->auth.deadline_ns;
    return true;
}

bool connect_tick(struct net_proc *p, uint64_t now, uint64_t late)
{
    bool again = false;
    struct tcp_half *next;
    if (p->deaf)
        watch_listener(p, true);
    for (struct tcp_half *h = p->halves; h; h = next) {
        next = h->next;
        h->deadline_ns += late;
        h->auth.deadline_ns += late;
        bool down = h->link && atomic_load(&h->link->state) == TCP_LINK_DOWN;
        if (down)
            half_end(p, h, false);
        else if (!h->link && now >= h->deadline_ns)
            again |= half_late(p, h);
        else if (now >= h->deadline_ns)
            half_failed(p, h, h->connected ? TCP_WHY_SILENT : TCP_WHY_NO_ANSWER,
                        h->connected ? "no handshake within 2 s" : "no answer within 2 s");
        else
            again = true;
    }
    for (struct net_link *l = atomic_load(&p->links); l; l = atomic_load(&l->next))
        again |= link_tick(l, now);
    return again;
}

bool connect_answered(const struct net_proc *p)
{
    for (const struct tcp_half *h = p->halves; h; h = h->next)
        if (!h->link && auth_answered(&h->auth))
            return true;
    return false;
}

void connect_close(struct net_proc *p)
{
    while (p->halves)
        half_end(p, p->halves, false);
    if (p->listen_fd >= 0)
        close(p->listen_fd);
    p->listen_fd = -1;
}
