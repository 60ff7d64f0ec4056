/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_door.c - the steward's side of its door (watch_door.h), in its epoll loop. Nothing here waits, and nobody can make it hold or do
 * more than a little: few guests at a time, a deadline for each, a pause when strangers come in crowds.
 */
#include "watch/watch_door.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/base_auth.h"
#include "watch/watch_inner.h"

#define BACKLOG 64
#define LET_IN_AT_ONCE 16     /* in one round of the steward */
#define ASKS_AT_ONCE 16       /* of one guest */
#define SILENT_NS 1000000000ull /* who has said nothing for so long goes */
#define ROOM_NS 100000000ull  /* ... for so long, when others wait */
#define CROWD 64              /* strangers in CROWD_NS: the door stays shut for the rest of it */
#define CROWD_NS 100000000ull
#define SAY_NS 1000000000ull

unsigned door_address(struct sockaddr_un *a, uint32_t uid, int32_t pid, int name)
{
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "unisono.%u.%d.%d", (unsigned)uid, (int)pid, name);
    return (unsigned)(offsetof(struct sockaddr_un, sun_path) + 1) + (unsigned)n;
}

void door_new(struct door *d)
{
    *d = (struct door){.listen = -1};
    for (int i = 0; i < DOOR_GUESTS; i++)
        d->guest[i] = -1;
}

/* ---- opening and closing ----------------------------------------------------------------------------------------------------- */

static bool watch_for(struct watch *w, int op, int fd, int which, bool on)
{
    struct epoll_event ev = {.events = on ? EPOLLIN : 0, .data.u64 = (uint64_t)(int64_t)DOOR_TAG(which)};
    return epoll_ctl(w->epoll, op, fd, &ev) == 0;
}

/* The first name that nobody has: another job of this process may, or another user of this network. */
static bool take_name(int fd)
{
    for (int name = 0; name < DOOR_NAMES; name++) {
        struct sockaddr_un a;
        socklen_t len = door_address(&a, (uint32_t)geteuid(), (int32_t)getpid(), name);
        if (bind(fd, (struct sockaddr *)&a, len) == 0)
            return true;
        if (errno != EADDRINUSE)
            return false;
    }
    return false;
}

void door_open(struct watch *w)
{
    if (!w->opt.board)
        return; /* there is nothing to show */
    int fd = fault_hit("door") ? (errno = EMFILE, -1) : fd_above_standard(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (fd >= 0 && take_name(fd) && listen(fd, BACKLOG) == 0 && watch_for(w, EPOLL_CTL_ADD, fd, -1, true)) {
        w->door.listen = fd;
        return;
    }
    LOG(LOG_INFO, LOG_WATCH, "tools find no socket of this process (%s); they look into /proc", strerror(errno));
    if (fd >= 0)
        close(fd);
}

static void send_away(struct watch *w, int i)
{
    if (w->door.guest[i] >= 0)
        close(w->door.guest[i]); /* epoll forgets it */
    w->door.guest[i] = -1;
}

void door_close(struct watch *w)
{
    for (int i = 0; i < DOOR_GUESTS; i++)
        send_away(w, i);
    if (w->door.listen >= 0)
        close(w->door.listen);
    door_new(&w->door);
}

/* ---- letting in --------------------------------------------------------------------------------------------------------------- */

static void shut_until(struct watch *w, uint64_t until)
{
    w->door.again_ns = until;
    watch_for(w, EPOLL_CTL_MOD, w->door.listen, -1, false);
}

static void refused(struct watch *w, const struct ucred *who, const char *why, uint64_t now)
{
    auth_count_refused();
    if (now < w->door.said_ns + SAY_NS)
        return;
    w->door.said_ns = now;
    LOG(LOG_INFO, LOG_WATCH, "refused a tool: process %d of user %u %s", (int)who->pid, (unsigned)who->uid, why);
}

static bool welcome(struct watch *w, int fd, uint64_t now)
{
    struct ucred who = {.uid = (uid_t)-1};
    socklen_t len = sizeof who;
    bool known = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0;
    if (known && (who.uid == geteuid() || who.uid == 0))
        return true;
    refused(w, &who, "is not this user", now);
    if (now > w->door.since_ns + CROWD_NS) {
        w->door.since_ns = now;
        w->door.strangers = 0;
    }
    if (++w->door.strangers >= CROWD)
        shut_until(w, w->door.since_ns + CROWD_NS);
    return false;
}

/* A free place; -1: all are taken, by guests who have asked lately. */
static int place(struct watch *w, uint64_t now)
{
    int oldest = 0;
    for (int i = 0; i < DOOR_GUESTS; i++) {
        if (w->door.guest[i] < 0)
            return i;
        if (w->door.heard_ns[i] < w->door.heard_ns[oldest])
            oldest = i;
    }
    if (w->door.heard_ns[oldest] + ROOM_NS > now) {
        shut_until(w, w->door.heard_ns[oldest] + ROOM_NS);
        return -1;
    }
    send_away(w, oldest);
    return oldest;
}

static void let_in(struct watch *w)
{
    uint64_t now = clock_ns();
    for (int n = 0; n < LET_IN_AT_ONCE && !w->door.again_ns; n++) {
        int i = place(w, now), small = 1;
        int fd = i >= 0 ? fd_above_standard(accept4(w->door.listen, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) : -1;
        if (i >= 0 && fd < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
            shut_until(w, now + ROOM_NS); /* no descriptor is left: it would fail again at once */
        if (fd < 0)
            return;
        /* small: who asks and does not read gets few descriptors */
        if (welcome(w, fd, now) && setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small) == 0 && watch_for(w, EPOLL_CTL_ADD, fd, i, true)) {
            w->door.guest[i] = fd;
            w->door.heard_ns[i] = now;
        } else {
            close(fd);
        }
    }
}

/* ---- answering ------------------------------------------------------------------------------------------------------------------ */

/* false: it does not read what it is given. */
static bool answer(struct watch *w, int to, const struct door_ask *ask)
{
    struct net_segment_ref ref = {0};
    union { struct cmsghdr head; char room[CMSG_SPACE(sizeof(int))]; } control = {0};
    watch_board_ref(w->opt.board, &ref);
    bool board = !ask->token[0] && !ask->token[1];
    uint64_t token[2] = {board ? ref.token[0] : ask->token[0], board ? ref.token[1] : ask->token[1]};
    int fd = ask->version == DOOR_VERSION ? net_segment_give(token, &ref) : -1;
    struct door_reply reply = {.magic = DOOR_MAGIC, .version = DOOR_VERSION, .boards = watch_boards()};
    struct iovec io = {&reply, sizeof reply};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};
    if (fd >= 0) {
        reply.bytes = ref.bytes;
        memcpy(reply.token, ref.token, sizeof reply.token);
        m.msg_control = control.room;
        m.msg_controllen = sizeof control.room;
        control.head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
    }
    bool sent = sendmsg(to, &m, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof reply;
    if (fd >= 0)
        close(fd);
    return sent;
}

/* One question. false: the guest goes, or there is none left; *stays tells which. */
static bool serve_one(struct watch *w, int i, uint64_t now, bool *stays)
{
    struct { struct door_ask ask; char more; } in; /* descriptors that come along have no room, and are dropped by the kernel */
    ssize_t n = recv(w->door.guest[i], &in, sizeof in, MSG_DONTWAIT);
    *stays = n < 0 && (errno == EAGAIN || errno == EINTR);
    if (n <= 0)
        return false;
    if (n != (ssize_t)sizeof in.ask || in.ask.magic != DOOR_MAGIC) {
        struct ucred who = {0};
        socklen_t len = sizeof who;
        getsockopt(w->door.guest[i], SOL_SOCKET, SO_PEERCRED, &who, &len);
        refused(w, &who, "says what is no question", now);
        return false;
    }
    w->door.heard_ns[i] = now;
    return answer(w, w->door.guest[i], &in.ask);
}

static void serve(struct watch *w, int i)
{
    uint64_t now = clock_ns();
    bool stays = true;
    for (int n = 0; n < ASKS_AT_ONCE; n++)
        if (!serve_one(w, i, now, &stays)) {
            if (!stays)
                send_away(w, i);
            return;
        }
}

void door_event(struct watch *w, int which)
{
    if (which < 0)
        let_in(w);
    else if (which < DOOR_GUESTS && w->door.guest[which] >= 0) /* it may have gone in this round */
        serve(w, which);
}

/* ---- time ------------------------------------------------------------------------------------------------------------------------- */

void door_timers(struct watch *w, uint64_t now)
{
    for (int i = 0; i < DOOR_GUESTS; i++)
        if (w->door.guest[i] >= 0 && now >= w->door.heard_ns[i] + SILENT_NS)
            send_away(w, i);
    if (w->door.again_ns && now >= w->door.again_ns) {
        w->door.again_ns = 0;
        watch_for(w, EPOLL_CTL_MOD, w->door.listen, -1, true);
    }
}

uint64_t door_next_ns(const struct watch *w)
{
    uint64_t next = w->door.again_ns ? w->door.again_ns : UINT64_MAX;
    for (int i = 0; i < DOOR_GUESTS; i++)
        if (w->door.guest[i] >= 0)
            next = MIN(next, w->door.heard_ns[i] + SILENT_NS);
    return next;
}
