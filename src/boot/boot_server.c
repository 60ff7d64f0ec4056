/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot_server.c - the thread of rank 0's process that collects everyone's contribution and answers with all of them. One
 * connection a rank; whoever connects has 2 s for the handshake and 64 may be in it at once. What the frames mean is in
 * boot_job.c.
 */
#include "boot_server.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define CROWDED_NS 100000000ull /* under a crowd of half-open connections, one this old makes room for the next */
#define GRACE_S 2.0             /* beyond join_timeout, so that clients speak first */

static _Atomic int running; /* partner: boot_servers_running */

int boot_servers_running(void)
{
    return atomic_load(&running);
}

/* ---- writing ------------------------------------------------------------------------------------------------ */

static void conn_poll(struct server *s, struct conn *c, bool write)
{
    if (c->wants_write == write)
        return;
    c->wants_write = write;
    struct epoll_event ev = {.events = EPOLLIN | (write ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(s->epoll_fd, EPOLL_CTL_MOD, c->fd, &ev);
}

/* A forked child may hold a copy of the descriptor, so closing alone ends neither the connection nor its events. */
static void conn_close(struct server *s, struct conn *c)
{
    epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
    shutdown(c->fd, SHUT_RDWR);
    close(c->fd);
}

void conn_kill(struct server *s, struct conn *c)
{
    if (c->state == DEAD)
        return;
    s->half_open -= conn_half_open(c);
    if (c->state == MEMBER)
        s->members[c->rank].conn = NULL;
    c->state = DEAD;
    conn_close(s, c);
}

/* Somebody who has not proved that he belongs here. Said once a second at most: a flood must not fill a log. */
static void conn_refuse(struct server *s, struct conn *c, const char *why)
{
    auth_count_refused();
    uint64_t now = clock_ns();
    if (now - s->said_ns >= BOOT_SAY_NS) {
        s->said_ns = now;
        LOG(LOG_INFO, LOG_BOOT, "while joining: %s (%llu connections refused by this process so far)", why, (unsigned long long)auth_refused());
    }
    conn_kill(s, c);
}

/* What was sent is what the kernel has taken. */
static void sent(struct server *s, struct conn *c)
{
    int slot = c->out[0].round_slot;
    memmove(&c->out[0], &c->out[1], sizeof c->out[0] * (size_t)--c->outs);
    if (slot >= 0)
        job_answer_sent(s, slot);
}

static void conn_write(struct server *s, struct conn *c)
{
    while (c->outs > 0) {
        struct outgoing *o = &c->out[0];
        size_t head = sizeof o->head, total = head + o->head.bytes;
        bool in_head = o->done < head;
        const char *from = in_head ? (const char *)&o->head + o->done : o->data + (o->done - head);
        ssize_t n = send(c->fd, from, in_head ? head - o->done : total - o->done, MSG_NOSIGNAL | (in_head && o->head.bytes ? MSG_MORE : 0));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            conn_poll(s, c, true);
            return;
        }
        if (n < 0)
            return; /* the end shows as an event of reading */
        o->done += (size_t)n;
        if (o->done == total)
            sent(s, c);
    }
    conn_poll(s, c, false);
    if (c->state == CLOSING)
        shutdown(c->fd, SHUT_WR);
}

void conn_send(struct server *s, struct conn *c, enum boot_frame_type type, uno_err code, uint64_t round, const void *data,
               size_t bytes, int slot)
{
    if (c->outs == OUT_MAX) {
        conn_kill(s, c);
        return;
    }
    c->out[c->outs++] = (struct outgoing){.head = {type, (uint32_t)code, round, bytes}, .data = data, .round_slot = slot};
    if (c->outs == 1)
        conn_write(s, c);
}

/* ---- reading -------------------------------------------------------------------------------------------------- */

/* A head has come whole: where does its payload go? false: nothing more to read here. */
static bool head_complete(struct server *s, struct conn *c)
{
    const struct boot_frame *h = &c->head;
    c->have = 0;
    if (c->state == EXPECT_JOIN && h->type == BOOT_JOIN && h->bytes == sizeof c->who) {
        c->into = (char *)&c->who;
    } else if (c->state == MEMBER && h->type == BOOT_PUT) {
        c->into = job_round_place(s, c);
    } else if (c->state == MEMBER && h->type == BOOT_LATE && h->bytes == 0) {
        job_late(s, c->rank, h->round);
    } else if (c->state == MEMBER && h->type == BOOT_BYE && h->bytes == 0 && h->code) {
        job_gave_up(s, c);
    } else if (c->state == MEMBER && h->type == BOOT_BYE && h->bytes == 0) {
        job_left(s, c);
    } else {
        if (c->state == MEMBER)
            job_member_ended(s, c);
        conn_kill(s, c);
    }
    return c->into != NULL;
}

static void payload_complete(struct server *s, struct conn *c)
{
    c->into = NULL;
    c->have = 0;
    if (c->state == EXPECT_JOIN)
        job_join(s, c);
    else
        job_contribution(s, c);
}

static void conn_read(struct server *s, struct conn *c)
{
    while (c->state == EXPECT_JOIN || c->state == MEMBER) {
        size_t want = c->into ? c->head.bytes : sizeof c->head;
        char *to = c->into ? c->into : (char *)&c->head;
        ssize_t n = want > c->have ? recv(c->fd, to + c->have, want - c->have, 0) : 0;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0 && want > c->have) {
            if (c->state == MEMBER)
                job_member_ended(s, c);
            conn_kill(s, c);
            return;
        }
        c->have += (size_t)n;
        if (c->have < want)
            continue;
        if (c->into)
            payload_complete(s, c);
        else if (head_complete(s, c) && c->head.bytes == 0)
            payload_complete(s, c);
    }
}

static void conn_shake(struct server *s, struct conn *c)
{
    uno_err err = auth_step(&c->auth, c->fd);
    if (err == UNO_ERR_IN_PROGRESS) {
        conn_poll(s, c, c->auth.wants_write);
        return;
    }
    if (err != UNO_OK && c->auth.left) {
        conn_kill(s, c);
        return;
    }
    if (err != UNO_OK) {
        conn_refuse(s, c, err_text());
        return;
    }
    conn_poll(s, c, false);
    if (c->auth.hello.role != AUTH_BOOT || c->auth.hello.job != s->id.job) {
        s->half_open--;
        c->state = CLOSING;
        c->deadline_ns = clock_ns() + BOOT_LINGER_NS;
        conn_send(s, c, BOOT_OTHER, UNO_OK, 0, NULL, 0, -1);
        return;
    }
    if (c->auth.hello.from < 0) { /* a probe: whether this job is served here */
        conn_kill(s, c);
        return;
    }
    c->state = EXPECT_JOIN;
    conn_read(s, c);
}

static void conn_linger(struct server *s, struct conn *c)
{
    char bin[512];
    ssize_t n;
    while ((n = recv(c->fd, bin, sizeof bin, 0)) > 0)
        ;
    if (n == 0 || errno != EAGAIN)
        conn_kill(s, c);
}

static void conn_event(struct server *s, struct conn *c, uint32_t events)
{
    if (c->state == DEAD)
        return;
    if ((events & EPOLLOUT) && c->outs)
        conn_write(s, c);
    if (c->state == SHAKING)
        conn_shake(s, c);
    else if (c->state == CLOSING)
        conn_linger(s, c);
    else
        conn_read(s, c);
}

/* ---- accepting ------------------------------------------------------------------------------------------------ */

static void listen_poll(struct server *s, bool on)
{
    struct epoll_event ev = {.events = on ? EPOLLIN : 0, .data.ptr = NULL};
    epoll_ctl(s->epoll_fd, EPOLL_CTL_MOD, s->listen_fd, &ev);
    s->crowded &= !on;
    s->accept_again_ns = on ? 0 : clock_ns() + CROWDED_NS / 10;
}

/* No descriptors or no memory: a pause instead of a spin, and when it lasts, the job's fault. */
static void cannot_accept(struct server *s, int why)
{
    uint64_t now = clock_ns();
    if (s->short_ns == 0 || now - s->short_seen_ns > BOOT_SHORT_NS / 2)
        s->short_ns = now;
    s->short_seen_ns = now;
    if (now - s->short_ns > BOOT_SHORT_NS)
        job_cannot_accept(s, why);
    listen_poll(s, false);
}

/* Room for one more half-open connection? If not, the oldest goes if it has had its time. */
static bool make_room(struct server *s)
{
    if (s->half_open < BOOT_HALF_OPEN)
        return true;
    struct conn *oldest = NULL;
    for (struct conn *c = s->conns; c; c = c->next)
        if (conn_half_open(c) && (!oldest || c->born_ns < oldest->born_ns))
            oldest = c;
    if (!oldest || clock_ns() - oldest->born_ns < CROWDED_NS)
        return false;
    conn_refuse(s, oldest, "too many connections without a handshake");
    return true;
}

static void accept_all(struct server *s)
{
    for (;;) {
        if (!make_room(s)) {
            s->crowded = true;
            listen_poll(s, false);
            return;
        }
        int fd = fd_above_standard(accept4(s->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (fd < 0) {
            if (errno == EINTR || errno == ECONNABORTED)
                continue;
            if (errno != EAGAIN)
                cannot_accept(s, errno);
            return;
        }
        s->short_ns = 0;
        struct conn *c = mem_zalloc(sizeof *c);
        if (!c || sock_tune(fd) != UNO_OK) {
            free(c);
            close(fd);
            continue;
        }
        c->fd = fd;
        c->born_ns = clock_ns();
        auth_start(&c->auth, &s->key, false);
        c->auth.own_job = s->id.job;
        c->deadline_ns = c->auth.deadline_ns;
        struct epoll_event ev = {.events = EPOLLIN, .data.ptr = c};
        if (epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &ev) != 0) {
            free(c);
            close(fd);
            continue;
        }
        c->next = s->conns;
        s->conns = c;
        s->half_open++;
        conn_shake(s, c);
    }
}

/* ---- the loop -------------------------------------------------------------------------------------------------- */

/* Its time is over, perhaps only because we did not run: what it has said meanwhile counts. Who has proved that he belongs here is no stranger. */
static void conn_late(struct server *s, struct conn *c, uint64_t now)
{
    if (c->state == SHAKING)
        conn_shake(s, c);
    else
        conn_read(s, c);
    if (!conn_half_open(c))
        return;
    c->deadline_ns = c->auth.deadline_ns;
    if (now < c->deadline_ns)
        return;
    if (c->state == SHAKING)
        conn_refuse(s, c, "a connection did not finish the handshake in time");
    else
        conn_kill(s, c);
}

/* End what is overdue, free what is dead. Returns when to look again. */
static uint64_t sweep(struct server *s)
{
    uint64_t now = clock_ns(), next = s->end_ns;
    for (struct conn *c = s->conns; c; c = c->next)
        if (conn_half_open(c) && now >= c->deadline_ns)
            conn_late(s, c, now);
        else if (c->state == CLOSING && now >= c->deadline_ns)
            conn_kill(s, c);
    job_tell_own(s, now);
    if (s->tell_own_ns)
        next = MIN(next, s->tell_own_ns);
    job_say_absent(s, now);
    next = MIN(next, s->say_absent_ns);
    for (struct conn **p = &s->conns; *p;) {
        struct conn *c = *p;
        if (c->state == DEAD) {
            *p = c->next;
            free(c);
            continue;
        }
        if (conn_half_open(c) || c->state == CLOSING)
            next = MIN(next, c->deadline_ns);
        p = &c->next;
    }
    if (s->accept_again_ns && (now >= s->accept_again_ns || (s->crowded && s->half_open < BOOT_HALF_OPEN)))
        listen_poll(s, true);
    return s->accept_again_ns ? MIN(next, s->accept_again_ns) : next;
}

static bool anyone(const struct server *s)
{
    for (const struct conn *c = s->conns; c; c = c->next)
        if (c->state == MEMBER || c->state == CLOSING)
            return true;
    return false;
}

/* All served, or failed and everyone told, or the time is over and nobody is there. */
static bool finished(const struct server *s)
{
    if (s->size && s->left == s->size && !anyone(s))
        return true;
    return clock_ns() >= s->end_ns && !anyone(s);
}

static void server_free(struct server *s)
{
    for (struct conn *c = s->conns, *next; c; c = next) {
        next = c->next;
        if (c->state != DEAD)
            conn_close(s, c);
        free(c);
    }
    if (s->listen_fd >= 0) {
        if (!s->lent_fd)
            shutdown(s->listen_fd, SHUT_RDWR); /* a forked child may hold a copy */
        close(s->listen_fd);
    }
    if (s->epoll_fd >= 0)
        close(s->epoll_fd);
    free(s->rounds[0].all);
    free(s->rounds[1].all);
    free(s->members);
    free(s->unlink_path);
    free(s->hosts);
    free(s);
}

static void *serve(void *arg)
{
    struct server *s = arg;
    struct epoll_event events[64];
    while (!finished(s)) {
        uint64_t next = sweep(s), now = clock_ns();
        if (finished(s))
            break;
        int ms = next == UINT64_MAX ? -1 : next <= now ? (now >= s->end_ns ? 100 : 0) : (int)MIN((next - now) / 1000000 + 1, 3600000);
        int n = epoll_wait(s->epoll_fd, events, ARRAY_LEN(events), ms);
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr)
                conn_event(s, events[i].data.ptr, events[i].events);
            else
                accept_all(s);
        }
    }
    job_remove_file(s);
    server_free(s);
    atomic_fetch_sub(&running, 1);
    return NULL;
}

/* With every signal blocked: the program's handlers are not for this thread. */
static uno_err start_thread(struct server *s)
{
    pthread_t thread;
    pthread_attr_t attr;
    sigset_t all, before;
    sigfillset(&all);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, 512 << 10);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    atomic_fetch_add(&running, 1);
    int rc = fault_hit("thread") ? EAGAIN : pthread_create(&thread, &attr, serve, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (rc == 0)
        return UNO_OK;
    atomic_fetch_sub(&running, 1);
    errno = rc;
    return err_sys("cannot start the thread that serves joining");
}

/* The first free one of the id's ports. */
static uno_err bind_port(struct server *s, const struct boot_id *id)
{
    uno_err err = UNO_ERR_SYSTEM;
    for (int p = 0; p < id->ports && err != UNO_OK; p++) {
        /* Who holds the port may let go of it: a server of an earlier communicator that is about to end, or a rank that looks for
         * us, whose own connection was given this very port. */
        for (int patience = 0; patience < 400 && err != UNO_OK; patience++) {
            err = sock_listen((uint16_t)(id->port + p * id->port_step), &s->listen_fd, &s->port);
            if (err == UNO_OK || id->ports > 1 || id->port == 0)
                break;
            usleep(5000);
        }
    }
    return err;
}

/* Use the listening socket that the launcher opened for this rank. */
static uno_err adopt_socket(struct server *s, int fd)
{
    int listening = 0;
    socklen_t len = sizeof listening;
    struct sock_addr a = {.len = sizeof a.u};
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len) != 0 || !listening || getsockname(fd, &a.u.sa, &a.len) != 0)
        return err_set(UNO_ERR_CONFIG, "UNISONO_LISTEN_FD=%d is not a listening socket; only a launcher should set it", fd);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    s->listen_fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (s->listen_fd < 0)
        return err_sys("cannot keep the listening socket of the launcher");
    s->lent_fd = true;
    s->port = ntohs(a.u.sa.sa_family == AF_INET6 ? a.u.in6.sin6_port : a.u.in.sin_port);
    return sock_tune(s->listen_fd);
}

uno_err boot_serve(const struct config *cfg, struct boot_id *id, const char *unlink_path, int listen_fd)
{
    struct server *s = mem_zalloc(sizeof *s);
    if (!s)
        return UNO_ERR_MEMORY;
    s->listen_fd = -1;
    s->epoll_fd = fd_above_standard(epoll_create1(EPOLL_CLOEXEC));
    uno_err err = s->epoll_fd < 0 ? err_sys("cannot make an epoll descriptor to serve joining") : UNO_OK;
    if (err == UNO_OK && unlink_path && !(s->unlink_path = strdup(unlink_path)))
        err = err_set(UNO_ERR_MEMORY, "no memory for a path");
    if (err == UNO_OK && listen_fd >= 0 && cfg->run_hosts[0] && !(s->hosts = strdup(cfg->run_hosts)))
        err = err_set(UNO_ERR_MEMORY, "no memory for the names of hosts");
    if (err == UNO_OK)
        err = listen_fd >= 0 ? adopt_socket(s, listen_fd) : bind_port(s, id);
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = NULL};
    if (err == UNO_OK && epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, s->listen_fd, &ev) != 0)
        err = err_sys("cannot wait for ranks that join");
    if (err == UNO_OK) {
        id->port = s->port;
        id->ports = 1;
        id->port_step = 0;
        s->id = *id;
        uno_id wire;
        uint64_t job;
        boot_id_write(id, &wire);
        boot_id_key(&wire, &s->key, &job);
        s->end_ns = clock_after(cfg->join_timeout + GRACE_S);
        s->stall_ns = (uint64_t)(cfg->stall * 1e9);
        s->say_absent_ns = UINT64_MAX;
        err = start_thread(s);
    }
    if (err != UNO_OK)
        server_free(s);
    return err;
}
