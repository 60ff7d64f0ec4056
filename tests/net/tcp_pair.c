/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_pair.c - one of two processes that stream to each other over the TCP carrier, or over a bare socket for comparison. They
 * find each other through a directory. tcp_netns.sh runs it between network namespaces.
 *
 *   tcp_pair SELF DIR MODE [bytes each way] [slot bytes] [slots]      MODE: stream ping raw rawping
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "net/net_tcp_inner.h"

static int self;
static const char *dir;

static void die(const char *what)
{
    fprintf(stderr, "tcp_pair %d: %s: %s\n", self, what, err_text());
    exit(1);
}

/* Leave our bytes in the directory, wait for the peer's. */
static void exchange(const char *name, const void *mine, void *theirs, size_t bytes)
{
    char path[300], tmp[310];
    snprintf(path, sizeof path, "%s/%s.%d", dir, name, self);
    snprintf(tmp, sizeof tmp, "%s.tmp", path);
    FILE *f = fopen(tmp, "w");
    if (!f || fwrite(mine, 1, bytes, f) != bytes || fclose(f) != 0 || rename(tmp, path) != 0)
        die("cannot write to the directory");
    snprintf(path, sizeof path, "%s/%s.%d", dir, name, !self);
    for (uint64_t end = clock_after(20); !(f = fopen(path, "r")); usleep(1000))
        if (clock_ns() > end)
            die("the peer did not come");
    if (fread(theirs, 1, bytes, f) != bytes)
        die("short file");
    fclose(f);
}

/* ---- bare sockets --------------------------------------------------------------------------------------------------- */

static int bare_socket(void)
{
    uint16_t port = 0;
    int listener = -1, fd = -1;
    struct sock_iface *ifaces;
    size_t n;
    struct sock_addr mine = {0}, theirs;
    if (sock_interfaces("", AF_INET, &ifaces, &n) != UNO_OK || sock_listen(0, &listener, &port) != UNO_OK)
        die("listen");
    mine = ifaces[0].addr;
    mine.u.in.sin_port = htons(port);
    exchange("raw", &mine, &theirs, sizeof mine);
    if (self == 1 && sock_connect(&theirs, clock_after(5), &fd) != UNO_OK)
        die("connect");
    struct pollfd wait = {.fd = listener, .events = POLLIN};
    if (self == 0 && poll(&wait, 1, 10000) == 1)
        fd = accept(listener, NULL, NULL);
    if (fd < 0 || sock_tune(fd) != UNO_OK)
        die("accept");
    return fd;
}

static void raw_stream(uint64_t bytes)
{
    int fd = bare_socket();
    uint64_t out = 0, in = 0, start = clock_ns();
    char *buf = calloc(1, 1 << 20);
    while (out < bytes || in < bytes) {
        ssize_t n = out < bytes ? send(fd, buf, MIN(bytes - out, 262144), MSG_NOSIGNAL) : 0;
        out += n > 0 ? (uint64_t)n : 0;
        n = in < bytes ? recv(fd, buf + (1 << 19), MIN(bytes - in, 262144), 0) : 0;
        if (n < 0 && errno != EAGAIN)
            die("recv");
        in += n > 0 ? (uint64_t)n : 0;
    }
    double s = (double)(clock_ns() - start) / 1e9;
    printf("raw %d: %.3f GB/s each way\n", self, (double)bytes / s / 1e9);
    shutdown(fd, SHUT_WR);
    sleep(1);
}

static void raw_ping(int rounds)
{
    int fd = bare_socket();
    char c[64] = {0};
    uint64_t start = clock_ns();
    for (int i = 0; i < rounds; i++)
        for (int turn = 0; turn < 2; turn++) {
            if (turn == self) {
                if (send(fd, c, sizeof c, MSG_NOSIGNAL) != sizeof c)
                    die("send");
            } else {
                for (size_t got = 0; got < sizeof c;) {
                    ssize_t n = recv(fd, c, sizeof c - got, 0);
                    got += n > 0 ? (size_t)n : 0;
                }
            }
        }
    printf("rawping %d: %.2f us half round trip\n", self, (double)(clock_ns() - start) / 1e3 / rounds / 2);
}

/* ---- the carrier ------------------------------------------------------------------------------------------------------ */

static struct net_proc *proc;
static struct net_link *net_link;
static struct net_end tx, rx;

static void *serve(void *arg)
{
    struct pollfd f = {.fd = net_proc_fd(proc), .events = POLLIN};
    for (;;) {
        poll(&f, 1, 100);
        net_progress(proc);
    }
    return NULL;
}

static void on_down(void *arg, int from, enum net_down how, const char *text)
{
    if (how == NET_DOWN_LEFT)
        return;
    printf("down %d: fin %d: %s\n", self, how == NET_DOWN_ENDED, text);
    fflush(stdout);
    _exit(3);
}

static void on_control(void *arg, int from, const void *data, size_t bytes)
{
    (void)data;
}

static void open_ends(int k, uint32_t stride)
{
    static struct config cfg;
    if (config_load(&cfg, NULL) != UNO_OK)
        die("configuration");
    struct net_proc_options o = {.cfg = &cfg, .job = 1, .self = self, .on_down = on_down, .on_control = on_control};
    auth_derive(&o.key, "pair", 4);
    struct sock_address_book mine, theirs;
    if (net_proc_new(&o, &proc) != UNO_OK)
        die("net_proc_new");
    net_proc_address(proc, &mine);
    exchange("book", &mine, &theirs, sizeof mine);
    if (net_link_get(proc, !self, &theirs, &net_link) != UNO_OK)
        die("net_link_get");
    pthread_t t;
    pthread_create(&t, NULL, serve, NULL);
    tx = (struct net_end){.carrier = NET_TCP, .sending = true, .next = 1};
    rx = (struct net_end){.carrier = NET_TCP, .next = 1};
    if (tcp_end_new(&tx, net_link, 1, self, !self) != UNO_OK || tcp_end_new(&rx, net_link, 1, self, !self) != UNO_OK ||
        tcp_end_shape(&tx, k, stride) != UNO_OK || tcp_end_shape(&rx, k, stride) != UNO_OK)
        die("ends");
}

static bool try_send(uint64_t bytes)
{
    if (!net_can_send(&tx, bytes))
        return false;
    struct net_slot *h = net_send_head(&tx);
    h->bytes = bytes;
    h->aux = 0;
    h->kind = NET_SLOT_BYTES;
    uint64_t n = tx.next;
    memcpy(net_send_payload(&tx), &n, MIN(bytes, sizeof n));
    if (bytes > 16)
        memcpy(net_send_payload(&tx) + bytes - 8, &n, sizeof n);
    net_post(&tx, 1);
    return true;
}

static bool try_receive(uint64_t bytes)
{
    if (net_arrived(&rx, 1) != NET_ARRIVED)
        return false;
    uint64_t first = 0, last = rx.next;
    const char *p = net_recv_payload(&rx, bytes);
    memcpy(&first, p, MIN(bytes, sizeof first));
    if (bytes > 16)
        memcpy(&last, p + bytes - 8, sizeof last);
    if (net_recv_head(&rx)->bytes != bytes || first != rx.next || last != rx.next) {
        fprintf(stderr, "tcp_pair %d: message %u is wrong\n", self, rx.next);
        exit(1);
    }
    net_release(&rx);
    return true;
}

static void report_paths(void)
{
    while (!proc_try(proc))
        ;
    for (int i = 0; i < net_link->npaths; i++) {
        struct sock_addr a = {.len = sizeof a.u};
        char text[SOCK_TEXT_BYTES];
        getsockname(net_link->paths[i]->fd, &a.u.sa, &a.len);
        printf("path %d lane %d from %s: %" PRIu64 " bytes\n", self, net_link->paths[i]->lane, sock_text(&a, text, sizeof text),
               net_link->paths[i]->written);
    }
    printf("counts %d: writes %" PRIu64 " reads %" PRIu64 " resent %" PRIu64 " duplicates %" PRIu64 " lost %" PRIu64 "\n",
           self, atomic_load(&proc->counts.writes),
           atomic_load(&proc->counts.reads), atomic_load(&proc->counts.resent), atomic_load(&proc->counts.duplicates),
           atomic_load(&proc->counts.paths_lost));
    proc_done(proc);
}

static void settle(uint64_t bytes)
{
    for (int i = 0; i < 2000; i++) { /* warm up: connect, let windows grow */
        uint64_t b = i < 1990 ? 8 : bytes;
        bool sent = false, got = false;
        for (uint64_t end = clock_after(30); !(sent && got);) {
            sent = sent || try_send(b);
            got = got || try_receive(b);
            net_progress(proc);
            if (clock_ns() > end)
                die("stuck while warming up");
        }
    }
}

static void stream(uint64_t total, uint64_t slot)
{
    uint64_t out = 0, in = 0, n = total / slot;
    settle(slot);
    printf("begin %d\n", self);
    fflush(stdout);
    uint64_t start = clock_ns(), last = start;
    while (out < n || in < n || tx.freed != tx.next - 1) { /* who leaves earlier takes unsent bytes along */
        bool moved = false;
        (void)tcp_end_ready(&tx);
        if (out < n && try_send(slot)) {
            out++;
            moved = true;
        }
        if (in < n && try_receive(slot)) {
            in++;
            moved = true;
        }
        moved |= net_progress(proc);
        if (moved)
            last = clock_ns();
        else if (clock_ns() - last > 30000000000ull)
            die("nothing moved for 30 s");
    }
    printf("stream %d: %.3f GB/s each way\n", self, (double)n * (double)slot / (double)(clock_ns() - start));
    report_paths();
}

static void ping(int rounds)
{
    settle(8);
    uint64_t start = clock_ns();
    for (int i = 0; i < rounds; i++)
        for (int turn = 0; turn < 2; turn++)
            for (bool done = false; !done;) {
                done = turn == self ? try_send(8) : try_receive(8);
                if (!done)
                    net_progress(proc);
            }
    printf("ping %d: %.2f us half round trip\n", self, (double)(clock_ns() - start) / 1e3 / rounds / 2);
    report_paths();
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    self = atoi(argv[1]);
    dir = argv[2];
    uint64_t bytes = argc > 4 ? strtoull(argv[4], NULL, 0) : 1ull << 30, slot = argc > 5 ? strtoull(argv[5], NULL, 0) : 1 << 18;
    int k = argc > 6 ? atoi(argv[6]) : 2;
    if (strcmp(argv[3], "raw") == 0) {
        raw_stream(bytes);
        return 0;
    }
    if (strcmp(argv[3], "rawping") == 0) {
        raw_ping(20000);
        return 0;
    }
    open_ends(k, (uint32_t)slot);
    net_enter(proc);
    if (strcmp(argv[3], "ping") == 0)
        ping(20000);
    else
        stream(bytes, slot);
    net_leave(proc);
    tcp_end_free(&tx);
    tcp_end_free(&rx);
    net_proc_drain(proc, 1000000000);
    fflush(stdout);
    _exit(0); /* the service thread is still there */
}
