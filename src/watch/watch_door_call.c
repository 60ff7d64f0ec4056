/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_door_call.c - the tool's side of a steward's door (watch_door.h): who is really there is asked of the kernel, and every wait has
 * its end. What was given is checked by net before it is mapped.
 */
#include "watch/watch_door.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define TRY_AGAIN_NS 2000000ull

void door_hang_up(struct door_call *call)
{
    if (call->fd >= 0)
        close(call->fd);
    *call = (struct door_call)DOOR_NO_CALL;
}

/* The kernel remembers who began to listen. Names are free to all: another user may have taken this one. */
static bool is_at_home(int fd, int32_t pid)
{
    struct ucred who = {0};
    socklen_t len = sizeof who;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 && who.uid == geteuid() && who.pid == pid;
}

enum door_said door_call(struct door_call *call, int32_t pid, int name, uint64_t wait_ns)
{
    struct sockaddr_un a;
    socklen_t len = door_address(&a, (uint32_t)geteuid(), pid, name);
    uint64_t until = clock_ns() + wait_ns;
    *call = (struct door_call){.pid = pid, .name = name,
                               .fd = fd_above_standard(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0))};
    bool full = false;
    while (call->fd >= 0 && connect(call->fd, (struct sockaddr *)&a, len) != 0) {
        full = errno == EAGAIN || errno == EINTR; /* many wait there; whose door it is cannot be seen yet */
        if (full && clock_ns() < until) {
            poll(NULL, 0, (int)(TRY_AGAIN_NS / 1000000));
            continue;
        }
        door_hang_up(call);
    }
    if (call->fd >= 0 && is_at_home(call->fd, pid))
        return DOOR_GIVEN;
    door_hang_up(call);
    return full ? DOOR_SILENT : DOOR_NOBODY;
}

/* The descriptor that came along; -1. There was room for one: the kernel drops what is more. */
static int taken(struct msghdr *m)
{
    int fd = -1;
    struct cmsghdr *c = CMSG_FIRSTHDR(m);
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len >= CMSG_LEN(sizeof fd))
        memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return fd_above_standard(fd);
}

static enum door_said read_reply(struct door_call *call, struct net_segment_ref *ref, uint32_t *boards, int *fd)
{
    struct door_reply reply;
    union { struct cmsghdr head; char room[CMSG_SPACE(sizeof(int))]; } control;
    struct iovec io = {&reply, sizeof reply};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = CMSG_LEN(sizeof(int))};
    ssize_t n = recvmsg(call->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    *fd = n > 0 ? taken(&m) : -1;
    if (n <= 0)
        return DOOR_SILENT; /* it is gone, or had no room for us */
    bool right = n == (ssize_t)sizeof reply && reply.magic == DOOR_MAGIC && reply.version == DOOR_VERSION;
    if (right)
        *boards = reply.boards;
    if (right && reply.bytes && *fd >= 0) {
        *ref = (struct net_segment_ref){.pid = call->pid, .fd = -1, .bytes = reply.bytes, .token = {reply.token[0], reply.token[1]}};
        return DOOR_GIVEN;
    }
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    return DOOR_REFUSED;
}

enum door_said door_fetch(struct door_call *call, const uint64_t token[2], uint64_t wait_ns, struct net_segment_ref *ref, uint32_t *boards, int *fd)
{
    struct door_ask ask = {.magic = DOOR_MAGIC, .version = DOOR_VERSION, .token = {token ? token[0] : 0, token ? token[1] : 0}};
    uint64_t until = clock_ns() + wait_ns;
    struct pollfd p = {.fd = call->fd, .events = POLLIN};
    *fd = -1;
    if (call->fd < 0 || send(call->fd, &ask, sizeof ask, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)sizeof ask)
        return DOOR_SILENT;
    for (;;) {
        uint64_t now = clock_ns();
        int n = poll(&p, 1, now < until ? (int)((until - now + 999999) / 1000000) : 0);
        if (n > 0)
            return read_reply(call, ref, boards, fd);
        if ((n < 0 && errno != EINTR) || now >= until)
            return DOOR_SILENT;
    }
}

size_t door_pids(int32_t *pids, size_t most)
{
    FILE *f = fopen("/proc/net/unix", "re");
    char line[512];
    size_t n = 0;
    while (f && n < most && fgets(line, sizeof line, f)) {
        const char *at = strstr(line, " @unisono.");
        unsigned uid;
        int pid, name, end = 0;
        if (!at || sscanf(at, " @unisono.%u.%d.%d%n", &uid, &pid, &name, &end) != 3 || at[end] != '\n' || uid != geteuid() || pid <= 0)
            continue;
        bool known = false;
        for (size_t i = 0; i < n && !known; i++)
            known = pids[i] == pid;
        if (!known)
            pids[n++] = pid;
    }
    if (f)
        fclose(f);
    return n;
}
