/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net_tcp_link.c - a link: what two processes share over TCP whatever communicators they have. Its paths come and go; control
 * frames and messages that were on a lost path go out again on another. All for the holder but link_find and
 * link_control_queue.
 */
#include "net_tcp_inner.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define FIN_NS 2000000000ull

/* ---- links of a process ---------------------------------------------------------------------------------------- */

static struct net_link *link_search(struct net_proc *p, int process)
{
    /* acquire: pairs with the release in link_find */
    struct net_link *l = atomic_load_explicit(&p->links, memory_order_acquire);
    while (l && l->process != process)
        l = atomic_load_explicit(&l->next, memory_order_acquire);
    return l;
}

struct net_link *link_find(struct net_proc *p, int process, bool make)
{
    struct net_link *l = link_search(p, process);
    if (l || !make)
        return l;
    pthread_mutex_lock(&p->links_mutex);
    l = link_search(p, process);
    if (!l && p->nlinks >= TCP_MAX_LINKS)
        err_set(UNO_ERR_INTERNAL, "more than %d processes", TCP_MAX_LINKS);
    else if (!l && (l = mem_zalloc(sizeof *l))) {
        l->proc = p;
        l->process = process;
        pthread_mutex_init(&l->control_mutex, NULL);
        atomic_store_explicit(&l->next, atomic_load(&p->links), memory_order_relaxed);
        /* release: the link is complete; pairs with the acquire in link_search */
        atomic_store_explicit(&p->links, l, memory_order_release);
        p->nlinks++;
    }
    pthread_mutex_unlock(&p->links_mutex);
    return l;
}

void link_dirty(struct net_link *l)
{
    if (!l->dirty) {
        l->dirty = true;
        l->dirty_next = l->proc->dirty;
        l->proc->dirty = l;
    }
}

/* ---- paths -------------------------------------------------------------------------------------------------------- */

static struct tcp_path *path_new(struct net_link *l, int fd, int lane)
{
    struct tcp_path *path = mem_zalloc(sizeof *path);
    if (!path)
        return NULL;
    path->small_in = mem_zalloc(TCP_SMALL_BYTES);
    path->small_out = mem_zalloc(TCP_SMALL_BYTES);
    path->link = l;
    path->fd = fd;
    path->lane = lane;
    path->since_ns = clock_ns();
    if (path->small_in && path->small_out)
        return path;
    free(path->small_in);
    free(path->small_out);
    free(path);
    return NULL;
}

static bool list_path(struct net_link *l, struct tcp_path *path)
{
    struct net_proc *p = l->proc;
    if (mem_grow(&p->paths, &p->cap_paths, p->npaths + 1, sizeof *p->paths) != UNO_OK)
        return false;
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = path};
    if (epoll_ctl(p->data_fd, EPOLL_CTL_ADD, path->fd, &ev) != 0) {
        err_sys("cannot watch a socket");
        return false;
    }
    p->paths[p->npaths++] = path;
    int at = l->npaths++; /* better lanes first: they are offered bytes first */
    while (at > 0 && (unsigned)l->paths[at - 1]->lane > (unsigned)path->lane) {
        l->paths[at] = l->paths[at - 1];
        at--;
    }
    l->paths[at] = path;
    return true;
}

/* Tell the peer why its link is closed for good. When this does not get through, it comes again and is told then. */
void link_say_closed(const struct net_link *l, int fd)
{
    if (!l->broken)
        return;
    struct { struct tcp_frame f; char text[sizeof l->closed_text]; } m = {.f = {.magic = TCP_MAGIC, .type = TCP_CLOSED}};
    m.f.length = (uint32_t)strlen(l->closed_text);
    memcpy(m.text, l->closed_text, m.f.length);
    if (send(fd, &m, sizeof m.f + m.f.length, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        LOG(LOG_DEBUG, LOG_NET, "process %d could not be told why its link is closed: %s", l->process, strerror(errno));
}

void link_add_path(struct net_link *l, int fd, int lane)
{
    int low = TCP_UNSENT_BYTES;
    bool refuse = atomic_load_explicit(&l->state, memory_order_relaxed) == TCP_LINK_DOWN || l->npaths >= TCP_MAX_PATHS;
    struct tcp_path *path = refuse || sock_tune(fd) != UNO_OK ? NULL : path_new(l, fd, lane);
    if (!path || !list_path(l, path)) {
        if (!refuse)
            LOG(LOG_INFO, LOG_NET, "a socket to process %d was given up: %s", l->process, err_text());
        if (path) {
            free(path->small_in);
            free(path->small_out);
            free(path);
        }
        link_say_closed(l, fd);
        close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &low, sizeof low);
    l->was_up = l->wanted = true;
    l->ended_by_fin = false;
    if (lane >= 0)
        l->lanes[lane].up++;
    if (l->npaths <= 2) { /* the second one is free of slices: control frames move there */
        l->control_path = path;
        link_control_replay(l);
    }
    l->balanced = balance_lanes(l) > 1;
    if (l->proc->goodbye)
        link_goodbye(l);
    link_dirty(l);
    proc_tick(l->proc);
}

void path_works(struct tcp_path *path)
{
    path->works = true;
    if (path->lane >= 0)
        lane_works(&path->link->lanes[path->lane]);
}

static void unlist_path(struct tcp_path *path)
{
    struct net_link *l = path->link;
    struct net_proc *p = l->proc;
    int i = 0;
    while (l->paths[i] != path)
        i++;
    l->npaths--;
    memmove(&l->paths[i], &l->paths[i + 1], (size_t)(l->npaths - i) * sizeof l->paths[0]);
    size_t j = 0;
    while (p->paths[j] != path)
        j++;
    p->paths[j] = p->paths[--p->npaths];
    if (path->lane >= 0)
        l->lanes[path->lane].up--;
    if (l->control_path == path)
        l->control_path = l->npaths ? l->paths[l->npaths - 1] : NULL;
    l->balanced = balance_lanes(l) > 1;
}

static void path_close(struct tcp_path *path)
{
    struct net_proc *p = path->link->proc;
    path_slice_drop(path);
    path_batch_drop(path);
    unlist_path(path);
    close(path->fd);
    path->fd = -1;
    path->left = 0;
    path->dead_next = p->dead; /* epoll may still name it in this round */
    p->dead = path;
}

void path_lost(struct tcp_path *path, bool fin, const char *text)
{
    struct net_link *l = path->link;
    bool was_control = l->control_path == path;
    bool leaving = atomic_load_explicit(&l->proc->leaving, memory_order_relaxed);
    if (!l->goodbye_in && !leaving) {
        atomic_fetch_add_explicit(&l->proc->counts.paths_lost, 1, memory_order_relaxed);
        LOG(LOG_INFO, LOG_NET, "lost one of %d sockets to process %d: %s", l->npaths, l->process, text);
    }
    if (fin)
        l->fin_ns = clock_ns();
    if (path->lane >= 0 && !path->works && clock_ns() >= l->lanes[path->lane].retry_ns) /* several that end together count once */
        lane_failed(l, path->lane, TCP_WHY_AUTH, "connected, and lost before a word came");
    path_close(path);
    /* A process that is killed ends those sockets with RST in which it had something to read, the others with FIN. */
    l->ended_by_fin = l->npaths == 0 && l->fin_ns && clock_ns() - l->fin_ns < FIN_NS;
    if (l->npaths == 0 && (l->goodbye_in || leaving)) {
        char exited[48];
        snprintf(exited, sizeof exited, "exited with status %d", l->peer_status & 0xff);
        link_down(l, l->goodbye_in ? NET_DOWN_LEFT : l->ended_by_fin ? NET_DOWN_ENDED : NET_DOWN_LOST,
                  !l->goodbye_in ? text : l->peer_status < 0 ? "" : exited);
        return;
    }
    if (was_control)
        link_control_replay(l);
    for (struct tcp_end *t = l->ends; t; t = t->link_next)
        end_replay(t);
    l->ack_due = l->control_in > 0;
    link_dirty(l);
    link_want(l);
}

/* ---- the end of a link ----------------------------------------------------------------------------------------------- */

static void drop_queues(struct net_link *l)
{
    struct tcp_end *next;
    for (struct tcp_end *t = l->notes_head; t; t = next) {
        next = t->note_next;
        if (t->dying)
            end_destroy(t);
    }
    for (struct tcp_end *t = l->ends; t; t = next) {
        next = t->link_next;
        if (t->dying)
            end_destroy(t);
    }
    for (struct tcp_end *t = l->work_head; t; t = t->work_next)
        t->in_work = false;
    for (struct tcp_end *t = l->notes_head; t; t = t->note_next)
        t->in_notes = false;
    l->work_head = l->work_tail = l->notes_head = l->notes_tail = NULL;
    l->hurries = 0;
    l->ack_due = false;
}

void link_down(struct net_link *l, enum net_down how, const char *text)
{
    if (atomic_load_explicit(&l->state, memory_order_relaxed) == TCP_LINK_DOWN)
        return;
    bool left = how == NET_DOWN_LEFT;
    snprintf(l->down_text, sizeof l->down_text, "no connection to process %d: %s%s%s", l->process,
             left ? "it said goodbye" : how == NET_DOWN_BROKEN ? "it " : "", left && text[0] ? " and " : "", text);
    /* release: down_text is complete; pairs with the acquire in tcp_end_new */
    atomic_store_explicit(&l->state, TCP_LINK_DOWN, memory_order_release);
    while (l->npaths)
        path_close(l->paths[0]);
    drop_queues(l);
    LOG(LOG_INFO, LOG_NET, "%s", l->down_text);
    const char *told = left || how == NET_DOWN_BROKEN ? text : l->down_text;
    proc_event(l->proc, l->process, true, how, told, strlen(told) + 1);
}

void link_violation(struct net_link *l, const char *fmt, ...)
{
    char text[420];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    atomic_fetch_add_explicit(&l->proc->counts.violations, 1, memory_order_relaxed);
    if (atomic_load_explicit(&l->state, memory_order_relaxed) != TCP_LINK_DOWN) {
        snprintf(l->closed_text, sizeof l->closed_text, "%s", text);
        l->broken = true;
        for (int i = 0; i < l->npaths; i++)
            if (!path_pending(l->paths[i])) /* not in the middle of a frame */
                link_say_closed(l, l->paths[i]->fd);
    }
    link_down(l, NET_DOWN_BROKEN, text);
}

void link_refused(struct net_link *l, const char *said, size_t bytes)
{
    char text[520];
    int n = snprintf(text, sizeof text, "closed the connection for good, for the process of rank %d ", l->proc->opt.self);
    for (size_t i = 0; i < bytes && n < (int)sizeof text - 1 && said[i]; i++)
        text[n++] = said[i] < 0x20 || said[i] == 0x7f ? '?' : said[i];
    text[n] = 0;
    link_down(l, NET_DOWN_BROKEN, text);
}

void link_free(struct net_link *l)
{
    while (l->npaths)
        path_close(l->paths[0]);
    drop_queues(l);
    while (l->ends)
        end_destroy(l->ends);
    while (l->control_head) {
        struct tcp_control *c = l->control_head;
        l->control_head = c->next;
        free(c);
    }
    pthread_mutex_destroy(&l->control_mutex);
    free(l);
}

/* ---- control frames ---------------------------------------------------------------------------------------------------- */

uno_err link_control_queue(struct net_link *l, uint8_t type, const void *data, size_t bytes)
{
    if (atomic_load_explicit(&l->state, memory_order_acquire) == TCP_LINK_DOWN)
        return err_set(UNO_ERR_UNREACHABLE, "%s", l->down_text);
    struct tcp_control *c = mem_zalloc(sizeof *c + bytes);
    if (!c)
        return UNO_ERR_MEMORY;
    c->type = type;
    c->bytes = (uint32_t)bytes;
    if (bytes)
        memcpy(c->data, data, bytes);
    pthread_mutex_lock(&l->control_mutex);
    bool full = l->control_count >= TCP_CONTROL_QUEUE;
    if (!full) {
        c->seq = ++l->control_seq;
        if (l->control_head)
            l->control_tail->next = c;
        else
            l->control_head = c;
        l->control_tail = c;
        if (!l->control_unsent)
            l->control_unsent = c;
        l->control_count++;
        atomic_store_explicit(&l->control_due, true, memory_order_release); /* pairs with the acquire in fill_control */
    }
    pthread_mutex_unlock(&l->control_mutex);
    if (full) {
        free(c);
        return err_set(UNO_ERR_MEMORY, "process %d has not acknowledged %d control frames", l->process, TCP_CONTROL_QUEUE);
    }
    return UNO_OK;
}

void link_goodbye(struct net_link *l)
{
    int32_t status = atomic_load_explicit(&l->proc->exit_status, memory_order_relaxed);
    if (!l->wanted || l->goodbye_out || link_control_queue(l, TCP_GOODBYE, &status, status < 0 ? 0 : sizeof status) != UNO_OK)
        return;
    l->goodbye_out = true;
    link_dirty(l);
}

void link_control_acked(struct net_link *l, uint32_t seq)
{
    pthread_mutex_lock(&l->control_mutex);
    while (l->control_head && l->control_head != l->control_unsent && (int32_t)(l->control_head->seq - seq) <= 0) {
        struct tcp_control *c = l->control_head;
        l->control_head = c->next;
        l->control_count--;
        free(c);
    }
    pthread_mutex_unlock(&l->control_mutex);
}

/* A new control path: everything that is not acknowledged goes out again, in order. */
void link_control_replay(struct net_link *l)
{
    pthread_mutex_lock(&l->control_mutex);
    l->control_unsent = l->control_head;
    atomic_store_explicit(&l->control_due, l->control_head != NULL, memory_order_relaxed);
    pthread_mutex_unlock(&l->control_mutex);
    if (l->control_path)
        link_dirty(l);
}

/* ---- health -------------------------------------------------------------------------------------------------------------- */

#define SICK_RETRANSMITS 3
#define SICK_MS 1000

/* A path through a cable that was pulled says nothing for a quarter of an hour. When nothing on it is acknowledged while
 * another path works, it is given up. (A stopped peer acknowledges, so this is not taken for a stop.) */
void link_health(struct net_link *l)
{
    struct tcp_path *sick = NULL;
    bool well = false;
    for (int i = 0; i < l->npaths; i++) {
        struct tcp_info info = {0};
        socklen_t len = sizeof info;
        if (getsockopt(l->paths[i]->fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0)
            continue;
        if (info.tcpi_unacked && info.tcpi_retransmits >= SICK_RETRANSMITS && info.tcpi_last_ack_recv >= SICK_MS)
            sick = l->paths[i];
        else if (info.tcpi_retransmits == 0)
            well = true;
    }
    if (sick && well)
        path_lost(sick, false, "nothing on it is acknowledged, while others work");
}
