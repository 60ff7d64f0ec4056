/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot_client.c - a rank's side of joining: find the server among the addresses and ports of the id, prove the secret, then one
 * round trip per exchange. All addresses are tried at once, since which of them is reachable from here is unknown.
 */
#include "boot_internal.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RETRY_FIRST_NS 1000000ull
#define RETRY_LAST_NS 50000000ull
#define STAGGER_NS 2000000ull     /* between the first tries of two addresses */
#define HANDSHAKE_S 10.0          /* a crowded server may take its time; the server allows 2 s from when it accepts */
#define REFUSALS_MAX 8            /* failed handshakes until an address counts as another job's */
#define ANSWER_S 5.0              /* beyond the deadline, for what a server that lives says in a moment: who is missing, the rest of a frame */
#define ASK_MS 100                /* between two questions whether to go on */
#define ROUND_S 2.0               /* who has been answered has met everybody: so long a further round gets, however near the deadline is */

struct boot {
    int fd, rank, size;
    uint64_t deadline_ns, start_ns, round;
    struct boot_who server;
    char address[SOCK_TEXT_BYTES];
    struct boot_ask ask;          /* check NULL: nobody is asked */
    bool gave_up;                 /* because of what was asked, not of the server */
    uno_err failed;               /* later calls return it again */
    char failure[ERR_TEXT_BYTES];
};

static uno_err asked(const struct boot *b)
{
    return b->ask.check ? b->ask.check(b->ask.arg) : UNO_OK;
}

static uno_err failed(struct boot *b, uno_err err)
{
    b->failed = err;
    snprintf(b->failure, sizeof b->failure, "%s", err_text());
    return err;
}

/* ---- reaching the server --------------------------------------------------------------------------------------- */

struct attempt {
    struct sock_addr to;
    enum { WAITING, CONNECTING, SHAKING, GIVEN_UP } state;
    int fd;
    uint64_t next_ns, pause_ns;
    int refusals;
    struct auth_session auth;
    char why[256];                /* of the last failure */
};

struct search {
    struct attempt *list;
    size_t count;
    struct auth_key key;
    uint64_t job;
    int rank, size;               /* rank -1: a probe */
    bool asks;                    /* search_run asks between rounds */
    uint64_t say_ns;              /* when it is said next that rank 0 is waited for; UINT64_MAX = never */
    uint64_t short_ns;            /* no socket could be made since then for want of descriptors or memory; 0 = one could */
};

static void attempt_end(struct attempt *a)
{
    if (a->fd < 0)
        return;
    if (a->state == SHAKING)
        auth_give_up(&a->auth, a->fd);
    close(a->fd);
    a->fd = -1;
}

static void attempt_failed(struct attempt *a, const char *why, bool refused)
{
    attempt_end(a);
    snprintf(a->why, sizeof a->why, "%s", why);
    a->refusals += refused;
    a->state = a->refusals >= REFUSALS_MAX ? GIVEN_UP : WAITING;
    a->next_ns = clock_ns() + a->pause_ns;
    a->pause_ns = MIN(a->pause_ns * 2, RETRY_LAST_NS);
}

static void attempt_start(struct search *s, struct attempt *a)
{
    uno_err err = sock_connect_start(&a->to, NULL, &a->fd);
    int why = errno;
    bool lacking = err != UNO_OK && err != UNO_ERR_UNREACHABLE && (why == EMFILE || why == ENFILE || why == ENOBUFS || why == ENOMEM);
    s->short_ns = !lacking ? 0 : s->short_ns ? s->short_ns : clock_ns();
    if (err == UNO_OK)
        a->state = CONNECTING;
    else
        attempt_failed(a, err_text(), false);
}

static void attempt_connected(const struct search *s, struct attempt *a)
{
    int soerr = 0;
    socklen_t len = sizeof soerr;
    char text[SOCK_TEXT_BYTES], why[160];
    if (getsockopt(a->fd, SOL_SOCKET, SO_ERROR, &soerr, &len) == 0 && soerr == 0 && sock_met_itself(a->fd))
        soerr = ECONNREFUSED;
    if (soerr) {
        snprintf(why, sizeof why, "%s: %s", sock_text(&a->to, text, sizeof text), strerror(soerr));
        attempt_failed(a, why, false);
        return;
    }
    a->auth.hello = (struct auth_hello){.role = AUTH_BOOT, .job = s->job, .from = s->rank, .to = 0, .extra = (uint64_t)s->size};
    auth_start(&a->auth, &s->key, true);
    a->auth.deadline_ns = clock_after(HANDSHAKE_S);
    a->state = SHAKING;
}

/* UNO_OK: the handshake is done, the peer knows the secret. */
static uno_err attempt_step(const struct search *s, struct attempt *a)
{
    if (a->state == CONNECTING)
        attempt_connected(s, a);
    if (a->state != SHAKING)
        return UNO_ERR_IN_PROGRESS;
    uno_err err = auth_step(&a->auth, a->fd);
    if (err == UNO_OK || err == UNO_ERR_IN_PROGRESS)
        return err;
    attempt_failed(a, err_text(), true);
    return UNO_ERR_IN_PROGRESS;
}

/* Nobody has answered; say what each address said. */
static uno_err search_failed(const struct search *s, bool all_given_up, double waited_s)
{
    struct text t = {0};
    for (size_t i = 0; i < s->count && t.len < 500; i++)
        if (s->list[i].why[0])
            text_add(&t, "%s%s", t.len ? "; " : "", s->list[i].why);
    uno_err err;
    if (all_given_up)
        err = err_set(UNO_ERR_AUTH, "rank 0 of this job was not found: %.700s", t.s ? t.s : "no address");
    else
        err = err_set(UNO_ERR_TIMEOUT,
                      "rank 0 was not reached within %.1f s; it is missing, has ended, or a firewall is between: %.600s", waited_s,
                      t.s ? t.s : "no answer from its addresses");
    text_free(&t);
    return err;
}

/* Start what is due, wait for the next event, and return the attempt that has become usable, if any. */
static uno_err search_round(struct search *s, uint64_t deadline_ns, struct attempt **found)
{
    struct pollfd polls[BOOT_ID_TARGETS];
    struct attempt *of[BOOT_ID_TARGETS];
    size_t n = 0, given_up = 0;
    uint64_t now = clock_ns(), next = deadline_ns;
    for (size_t i = 0; i < s->count; i++) {
        struct attempt *a = &s->list[i];
        if (a->state == WAITING && now >= a->next_ns)
            attempt_start(s, a);
        if (a->state == WAITING)
            next = MIN(next, a->next_ns);
        given_up += a->state == GIVEN_UP;
        if (a->state == CONNECTING || a->state == SHAKING) {
            bool out = a->state == CONNECTING || a->auth.wants_write;
            if (a->state == SHAKING)
                next = MIN(next, a->auth.deadline_ns);
            of[n] = a;
            polls[n++] = (struct pollfd){.fd = a->fd, .events = out ? POLLOUT : POLLIN};
        }
    }
    if (given_up == s->count)
        return UNO_ERR_AUTH;
    now = clock_ns();
    if (s->short_ns && now - s->short_ns > BOOT_SHORT_NS)
        return UNO_ERR_SYSTEM; /* attempt_start's sentence stands */
    if (now >= deadline_ns)
        return UNO_ERR_TIMEOUT;
    if (s->asks)
        next = MIN(next, now + ASK_MS * 1000000ull);
    next = MIN(next, s->say_ns);
    uint64_t wait_ns = next > now ? next - now : 0;
    struct timespec ts = {.tv_sec = (time_t)MIN(wait_ns / 1000000000, 3600), .tv_nsec = (long)(wait_ns % 1000000000)};
    ppoll(polls, (nfds_t)n, &ts, NULL);
    now = clock_ns();
    for (size_t i = 0; i < n; i++)
        if ((polls[i].revents || (of[i]->state == SHAKING && now >= of[i]->auth.deadline_ns)) &&
            attempt_step(s, of[i]) == UNO_OK) {
            *found = of[i];
            return UNO_OK;
        }
    return UNO_ERR_IN_PROGRESS;
}

/* For what must come now that something has begun to come: a deadline in the middle of a frame would lose the place in the stream. */
static uint64_t later(uint64_t deadline_ns, double seconds)
{
    return MAX(deadline_ns, clock_after(seconds));
}

static uno_err recv_frame(int fd, struct boot_frame *head, uint64_t deadline_ns)
{
    TRY(sock_recv_all(fd, head, 1, deadline_ns));
    TRY(sock_recv_all(fd, (char *)head + 1, sizeof *head - 1, later(deadline_ns, ANSWER_S)));
    if (head->type == 0 || head->type >= BOOT_FRAME_TYPES || head->bytes > BOOT_MAX_REPLY)
        return err_set(UNO_ERR_INTERNAL, "the joining server sent a frame of unknown type %u", head->type);
    return UNO_OK;
}

/* The server's last frame: its sentence becomes ours. */
static uno_err recv_error(int fd, const struct boot_frame *head, uint64_t deadline_ns)
{
    char text[ERR_TEXT_BYTES] = "";
    TRY(sock_recv_all(fd, text, MIN(head->bytes, sizeof text - 1), deadline_ns));
    return err_set(head->code ? (uno_err)head->code : UNO_ERR_INTERNAL, "%s", text);
}

/* The secret is proved; is it our job, and does it take us? IN_PROGRESS: try on. */
static uno_err join(struct boot *b, struct attempt *a)
{
    struct { struct boot_frame head; struct boot_who who; } join = {.head = {.type = BOOT_JOIN, .bytes = sizeof join.who}};
    struct boot_frame head;
    uint64_t deadline = MIN(b->deadline_ns, clock_after(HANDSHAKE_S));
    char why[200], text[SOCK_TEXT_BYTES];
    boot_who_am_i(&join.who, b->rank, b->size);
    join.who.by_place = b->ask.check != NULL;
    uno_err err = sock_send_all(a->fd, &join, sizeof join, deadline);
    if (err == UNO_OK)
        err = recv_frame(a->fd, &head, deadline);
    if (err == UNO_OK && head.type == BOOT_ERROR)
        return recv_error(a->fd, &head, deadline);
    if (err == UNO_OK && head.type == BOOT_WELCOME && head.bytes == sizeof b->server) {
        err = sock_recv_all(a->fd, &b->server, sizeof b->server, deadline);
        if (err == UNO_OK) {
            b->server.host[sizeof b->server.host - 1] = 0;
            b->fd = a->fd;
            a->fd = -1;
            sock_text(&a->to, b->address, sizeof b->address);
            return UNO_OK;
        }
    }
    snprintf(why, sizeof why, err == UNO_OK ? "%s serves another job or an earlier communicator"
                              : err == UNO_ERR_TIMEOUT ? "%s does not answer" : "%s ended the connection",
             sock_text(&a->to, text, sizeof text));
    attempt_failed(a, why, false);
    return UNO_ERR_IN_PROGRESS;
}

static uno_err search_new(const struct boot_id *id, int rank, int size, struct search *s)
{
    struct sock_addr targets[BOOT_ID_TARGETS];
    uno_id wire;
    boot_id_write(id, &wire);
    boot_id_key(&wire, &s->key, &s->job);
    s->rank = rank;
    s->size = size;
    s->say_ns = UINT64_MAX;
    s->count = boot_id_targets(id, targets);
    s->list = mem_array(s->count, sizeof *s->list);
    if (!s->list)
        return UNO_ERR_MEMORY;
    uint64_t now = clock_ns();
    for (size_t i = 0; i < s->count; i++) {
        s->list[i].to = targets[i];
        s->list[i].fd = -1;
        s->list[i].next_ns = now + i * STAGGER_NS;
        s->list[i].pause_ns = RETRY_FIRST_NS;
    }
    return UNO_OK;
}

static void search_free(struct search *s)
{
    for (size_t i = 0; s->list && i < s->count; i++)
        attempt_end(&s->list[i]);
    free(s->list);
}

/* The others are told by rank 0 (job_say_absent). Once a host, as far as ranks know their place there. */
static bool speaks(const struct config *cfg, int rank)
{
    return rank == 1 || (rank > 1 && strcmp(cfg->local_rank, "0") == 0);
}

static void say_waits(struct search *s, uint64_t start_ns)
{
    char text[SOCK_TEXT_BYTES];
    uint64_t now = clock_ns();
    if (now < s->say_ns)
        return;
    s->say_ns = start_ns + 10 * (now - start_ns);
    LOG(LOG_WARN, LOG_BOOT, "rank 0 was not reached for %.1f s (%s), and all others need it to join; look whether it was started, and at its output",
        (double)(now - start_ns) / 1e9, s->count ? sock_text(&s->list[0].to, text, sizeof text) : "?");
}

/* Until joined, refused for good, or late. b = NULL: a probe. */
static uno_err search_run(struct search *s, struct boot *b, uint64_t deadline_ns)
{
    uint64_t start = clock_ns();
    for (;;) {
        struct attempt *found = NULL;
        if (b)
            TRY(asked(b));
        say_waits(s, start);
        uno_err err = search_round(s, deadline_ns, &found);
        if (err == UNO_OK && b)
            err = join(b, found);
        if (err == UNO_OK)
            return err;
        if (!found && (err == UNO_ERR_AUTH || err == UNO_ERR_TIMEOUT))
            return search_failed(s, err == UNO_ERR_AUTH, (double)(clock_ns() - start) / 1e9);
        if (err != UNO_ERR_IN_PROGRESS)
            return err;
    }
}

uno_err boot_probe(const struct boot_id *id, uint64_t deadline_ns)
{
    struct search s = {0};
    uno_err err = search_new(id, -1, 0, &s);
    if (err == UNO_OK)
        err = search_run(&s, NULL, deadline_ns);
    search_free(&s);
    return err;
}

uno_err boot_open(const uno_id *id, int rank, int size, const struct config *cfg, uint64_t deadline_ns, struct boot **boot)
{
    return boot_open_asking(id, rank, size, cfg, deadline_ns, &(struct boot_ask){0}, boot);
}

uno_err boot_open_asking(const uno_id *id, int rank, int size, const struct config *cfg, uint64_t deadline_ns, const struct boot_ask *ask,
                         struct boot **boot)
{
    struct boot_id in;
    struct search s = {0};
    TRY(boot_id_read(id, &in));
    if (size < 1 || size > BOOT_MAX_RANKS)
        return err_set(UNO_ERR_ARG, "a job has 1 to %d ranks, not %d", BOOT_MAX_RANKS, size);
    if (rank < 0 || rank >= size)
        return err_set(UNO_ERR_ARG, "rank %d is not one of 0 to %d", rank, size - 1);
    struct boot *b = mem_zalloc(sizeof *b);
    if (!b)
        return UNO_ERR_MEMORY;
    b->fd = -1;
    b->rank = rank;
    b->size = size;
    b->deadline_ns = deadline_ns;
    b->ask = *ask;
    b->start_ns = clock_ns();
    uno_err err = search_new(&in, rank, size, &s);
    s.asks = ask->check != NULL;
    if (!s.asks && speaks(cfg, rank))
        s.say_ns = b->start_ns + (uint64_t)(cfg->stall * 1e9);
    if (err == UNO_OK)
        err = search_run(&s, b, deadline_ns);
    search_free(&s);
    if (err != UNO_OK) {
        boot_close(b);
        return err_wrap(err, "joining as rank %d of %d", rank, size);
    }
    *boot = b;
    return UNO_OK;
}

/* ---- exchanging -------------------------------------------------------------------------------------------------- */

static uno_err server_gone(const struct boot *b)
{
    return err_set(UNO_ERR_PEER_DEAD,
                   "rank 0's process (host %s, pid %d), which serves the joining at %s, ended before rank %d had joined; look at "
                   "its output", b->server.host, b->server.pid, b->address, b->rank);
}

static uno_err server_silent(const struct boot *b)
{
    return err_set(UNO_ERR_TIMEOUT, "rank 0's process (host %s, pid %d), which serves the joining at %s, does not answer within "
                   "%.1f s; it is stopped, overloaded, or unreachable", b->server.host, b->server.pid, b->address,
                   (double)(clock_ns() - b->start_ns) / 1e9);
}

/* What it means for joining that bytes could not be sent or received. */
static uno_err cut_off(const struct boot *b, uno_err err)
{
    return err == UNO_ERR_TIMEOUT ? server_silent(b) : err == UNO_ERR_UNREACHABLE ? server_gone(b) : err;
}

/* Our deadline has passed: ask the server who is missing. It may have said so to everybody and ended before it could be asked: its
 * sentence waits to be read, whether the question goes out or not. */
static uno_err ask_who(struct boot *b, struct boot_frame *head)
{
    struct boot_frame late = {.type = BOOT_LATE, .round = b->round};
    uint64_t until = clock_after(ANSWER_S);
    uno_err err = sock_send_all(b->fd, &late, sizeof late, until);
    return err == UNO_OK || err == UNO_ERR_UNREACHABLE ? recv_frame(b->fd, head, until) : err;
}

/* Until the answer begins to come, or its deadline, which who reads it notices. */
static uno_err wait_answer(struct boot *b)
{
    struct pollfd p = {.fd = b->fd, .events = POLLIN};
    while (b->ask.check && poll(&p, 1, ASK_MS) <= 0 && clock_ns() < b->deadline_ns) {
        uno_err err = asked(b);
        b->gave_up = err != UNO_OK;
        TRY(err);
    }
    return UNO_OK;
}

static uno_err receive_all(struct boot *b, size_t bytes, void *all)
{
    struct boot_frame head;
    TRY(wait_answer(b));
    uno_err err = recv_frame(b->fd, &head, b->deadline_ns);
    if (err == UNO_ERR_TIMEOUT)
        err = ask_who(b, &head);
    if (err != UNO_OK)
        return cut_off(b, err);
    if (head.type == BOOT_ERROR)
        return recv_error(b->fd, &head, clock_after(ANSWER_S));
    if (head.type != BOOT_ALL || head.round != b->round || head.bytes != bytes * (uint64_t)b->size)
        return err_set(UNO_ERR_INTERNAL, "the joining server answered round %llu with %llu bytes for round %llu",
                       (unsigned long long)b->round, (unsigned long long)head.bytes, (unsigned long long)head.round);
    err = sock_recv_all(b->fd, all, head.bytes, later(b->deadline_ns, ANSWER_S));
    return err == UNO_OK ? err : cut_off(b, err);
}

uno_err boot_exchange(struct boot *b, const void *mine, size_t bytes, void *all)
{
    if (b->failed)
        return err_set(b->failed, "%s", b->failure);
    if (bytes > BOOT_MAX_BYTES || bytes * (uint64_t)b->size > BOOT_MAX_REPLY)
        return err_set(UNO_ERR_ARG, "%zu bytes a rank are too much to exchange among %d ranks", bytes, b->size);
    struct boot_frame head = {.type = BOOT_PUT, .round = b->round, .bytes = bytes};
    uint64_t until = later(b->deadline_ns, ANSWER_S);
    uno_err err = sock_send_all(b->fd, &head, sizeof head, until);
    if (err == UNO_OK)
        err = sock_send_all(b->fd, mine, bytes, until);
    /* A failed send usually means that the server has said why and closed: its sentence is waiting. */
    err = err == UNO_OK || err == UNO_ERR_UNREACHABLE ? receive_all(b, bytes, all) : cut_off(b, err);
    if (err != UNO_OK && !b->gave_up) {
        char text[ERR_TEXT_BYTES];
        snprintf(text, sizeof text, "%s", err_text());
        uno_err why = asked(b);
        err = why != UNO_OK ? why : err_set(err, "%s", text);
    }
    if (err != UNO_OK)
        return failed(b, err_wrap(err, "joining as rank %d of %d", b->rank, b->size));
    b->round++;
    b->deadline_ns = later(b->deadline_ns, ROUND_S);
    return UNO_OK;
}

void boot_close(struct boot *b)
{
    if (!b)
        return;
    if (b->fd >= 0) {
        struct boot_frame bye = {.type = BOOT_BYE};
        if (b->gave_up)
            bye.code = (uint32_t)b->failed;
        if (!b->failed || b->gave_up)
            (void)!sock_send_all(b->fd, &bye, sizeof bye, clock_after(0.1));
        shutdown(b->fd, SHUT_RDWR); /* a forked child may hold a copy */
        close(b->fd);
    }
    free(b);
}
