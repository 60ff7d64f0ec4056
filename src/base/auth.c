/* SPDX-License-Identifier: Apache-2.0 */
/*
 * auth.c - the handshake that every connection starts with, and the only calls of libsodium. The wire is described in
 * base_auth.h. Each message is read exactly, so that what follows the handshake stays in the socket.
 */
#include "base_auth.h"
#include "base_sock.h"

#include <errno.h>
#include <poll.h>
#include <sodium.h>
#include <stdatomic.h>
#include <string.h>

_Static_assert(sizeof(struct auth_hello) == 64, "HELLO is 64 bytes on the wire");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "HELLO is sent as it lies in memory");

#define HELLO_BYTES sizeof(struct auth_hello)
#define ANSWER_BYTES (AUTH_NONCE_BYTES + AUTH_MAC_BYTES)
#define LIMIT_S 2.0
#define FLAG_NONE 1 /* hello.reserved[0]: the sender runs with UNISONO_AUTH=none */

/* The steps of both sides in order. */
enum { BEGIN = 0, I_SEND_HELLO, I_READ_ANSWER, I_SEND_PROOF, A_READ_HELLO, A_SEND_ANSWER, A_READ_PROOF, DONE };

static _Atomic uint64_t refused; /* relaxed: a number for people */

void auth_count_refused(void)
{
    atomic_fetch_add_explicit(&refused, 1, memory_order_relaxed);
}

uint64_t auth_refused(void)
{
    return atomic_load_explicit(&refused, memory_order_relaxed);
}

static uno_err ready(void)
{
    return sodium_init() >= 0 ? UNO_OK : err_set(UNO_ERR_SYSTEM, "libsodium cannot be initialised: no source of random numbers");
}

uno_err auth_random(void *out, size_t bytes)
{
    TRY(ready());
    randombytes_buf(out, bytes);
    return UNO_OK;
}

void auth_derive(struct auth_key *key, const void *seed, size_t bytes)
{
    static const char domain[] = "unisono secret 1";
    memset(key, 0, sizeof *key);
    crypto_generichash(key->secret, sizeof key->secret, seed, bytes, (const unsigned char *)domain, sizeof domain - 1);
}

static const uint8_t no_nonce[AUTH_NONCE_BYTES]; /* of an acceptor that is not answered */
#define GAVE_UP "gave up"

/* MAC of everything both sides have said, and of who says it. */
static void mac(const struct auth_session *s, const uint8_t *acceptor_nonce, const char *who, uint8_t out[AUTH_MAC_BYTES])
{
    static const uint8_t none[AUTH_SECRET_BYTES] = "UNISONO_AUTH=none";
    crypto_generichash_state st;
    crypto_generichash_init(&st, s->key->none ? none : s->key->secret, AUTH_SECRET_BYTES, AUTH_MAC_BYTES);
    crypto_generichash_update(&st, (const uint8_t *)&s->hello, HELLO_BYTES);
    crypto_generichash_update(&st, acceptor_nonce, AUTH_NONCE_BYTES);
    crypto_generichash_update(&st, (const uint8_t *)who, strlen(who));
    crypto_generichash_final(&st, out, AUTH_MAC_BYTES);
}

static const char *peer_name(int fd, char *buf, size_t buf_bytes)
{
    struct sock_addr a = {.len = sizeof a.u};
    if (getpeername(fd, &a.u.sa, &a.len) != 0)
        return "a peer that is gone";
    return sock_text(&a, buf, buf_bytes);
}

static uno_err refuse(int fd, const char *why)
{
    char text[SOCK_TEXT_BYTES];
    return err_set(UNO_ERR_AUTH, "%s %s", peer_name(fd, text, sizeof text), why);
}

void auth_start(struct auth_session *s, const struct auth_key *key, bool initiator)
{
    s->key = key;
    s->initiator = initiator;
    s->state = BEGIN;
    s->have = 0;
    s->deadline_ns = clock_after(LIMIT_S);
    s->wants_write = initiator;
    s->left = false;
    s->own_job = 0;
    s->patient = false;
}

bool auth_answered(const struct auth_session *s)
{
    return !s->initiator && s->state == A_READ_PROOF && s->own_job != 0 && s->hello.job == s->own_job;
}

/* Is its time over? Who has said what only our own know gets some more, once. */
static bool is_late(struct auth_session *s)
{
    if (clock_ns() < s->deadline_ns)
        return false;
    if (s->patient || !auth_answered(s))
        return true;
    s->patient = true;
    s->deadline_ns += (uint64_t)((AUTH_PATIENT_S - LIMIT_S) * 1e9);
    return clock_ns() >= s->deadline_ns;
}

/* Move the rest of a message of `bytes`: UNO_OK = complete, IN_PROGRESS = poll. */
static uno_err move(struct auth_session *s, int fd, size_t bytes, bool out)
{
    while (s->have < bytes) {
        ssize_t n = out ? send(fd, s->buf + s->have, bytes - s->have, MSG_NOSIGNAL)
                        : recv(fd, s->buf + s->have, bytes - s->have, 0);
        if (n > 0) {
            s->have += (size_t)n;
            if (s->state == A_READ_HELLO && memcmp(s->buf, &(uint32_t){AUTH_MAGIC}, MIN(s->have, 4)) != 0)
                return refuse(fd, "sent something that is not a unisono handshake; it was refused");
        } else if (n < 0 && errno == EINTR) {
            continue;
        } else if (n < 0 && errno == EAGAIN) {
            s->wants_write = out;
            if (is_late(s))
                return refuse(fd, "did not finish the handshake in time; the connection was refused");
            return err_set(UNO_ERR_IN_PROGRESS, "handshake not finished");
        } else {
            s->left = s->state == A_READ_HELLO && s->have == 0;
            return refuse(fd, "ended the connection during the handshake; it may have another secret, another version or "
                              "another value of UNISONO_AUTH");
        }
    }
    s->have = 0;
    return UNO_OK;
}

static uno_err begin(struct auth_session *s)
{
    TRY(ready());
    if (!s->initiator) {
        s->state = A_READ_HELLO;
        return UNO_OK;
    }
    s->hello.magic = AUTH_MAGIC;
    s->hello.version = AUTH_VERSION;
    memset(s->hello.reserved, 0, sizeof s->hello.reserved);
    s->hello.reserved[0] = s->key->none ? FLAG_NONE : 0;
    TRY(auth_random(s->hello.nonce, AUTH_NONCE_BYTES));
    memcpy(s->buf, &s->hello, HELLO_BYTES);
    s->state = I_SEND_HELLO;
    return UNO_OK;
}

static uno_err got_answer(struct auth_session *s, int fd)
{
    uint8_t want[AUTH_MAC_BYTES];
    memcpy(s->peer_nonce, s->buf, AUTH_NONCE_BYTES);
    mac(s, s->peer_nonce, "acceptor", want);
    if (sodium_memcmp(want, s->buf + AUTH_NONCE_BYTES, AUTH_MAC_BYTES) != 0)
        return refuse(fd, "does not know this job's secret; it belongs to another job, or the secret files differ");
    mac(s, s->peer_nonce, "initiator", s->buf);
    s->state = I_SEND_PROOF;
    return UNO_OK;
}

static uno_err got_hello(struct auth_session *s, int fd)
{
    memcpy(&s->hello, s->buf, HELLO_BYTES);
    if (s->hello.version != AUTH_VERSION)
        return refuse(fd, "speaks another version of the handshake; install one version of unisono everywhere");
    if ((s->hello.reserved[0] == FLAG_NONE) != s->key->none)
        return refuse(fd, s->key->none ? "has a secret, and this side runs with UNISONO_AUTH=none; set it alike on all ranks"
                                       : "runs with UNISONO_AUTH=none, and this side has a secret; set it alike on all ranks");
    TRY(auth_random(s->peer_nonce, AUTH_NONCE_BYTES));
    memcpy(s->buf, s->peer_nonce, AUTH_NONCE_BYTES);
    mac(s, s->peer_nonce, "acceptor", s->buf + AUTH_NONCE_BYTES);
    s->state = A_SEND_ANSWER;
    return UNO_OK;
}

static uno_err got_proof(struct auth_session *s, int fd)
{
    uint8_t want[AUTH_MAC_BYTES];
    mac(s, s->peer_nonce, "initiator", want);
    if (sodium_memcmp(want, s->buf, AUTH_MAC_BYTES) != 0) {
        mac(s, no_nonce, GAVE_UP, want);
        s->left = sodium_memcmp(want, s->buf, AUTH_MAC_BYTES) == 0;
        return refuse(fd, s->left ? "gave up during the handshake" : "does not know this job's secret; the connection was refused");
    }
    s->state = DONE;
    return UNO_OK;
}

uno_err auth_step(struct auth_session *s, int fd)
{
    while (s->state != DONE) {
        switch (s->state) {
        case BEGIN:
            TRY(begin(s));
            break;
        case I_SEND_HELLO:
            TRY(move(s, fd, HELLO_BYTES, true));
            s->state = I_READ_ANSWER;
            break;
        case I_READ_ANSWER:
            TRY(move(s, fd, ANSWER_BYTES, false));
            TRY(got_answer(s, fd));
            break;
        case I_SEND_PROOF:
            TRY(move(s, fd, AUTH_MAC_BYTES, true));
            s->state = DONE;
            break;
        case A_READ_HELLO:
            TRY(move(s, fd, HELLO_BYTES, false));
            TRY(got_hello(s, fd));
            break;
        case A_SEND_ANSWER:
            TRY(move(s, fd, ANSWER_BYTES, true));
            s->state = A_READ_PROOF;
            break;
        default:
            TRY(move(s, fd, AUTH_MAC_BYTES, false));
            TRY(got_proof(s, fd));
            break;
        }
    }
    return UNO_OK;
}

void auth_give_up(const struct auth_session *s, int fd)
{
    uint8_t out[AUTH_MAC_BYTES], rest[ANSWER_BYTES];
    if (!s->initiator || s->state != I_READ_ANSWER)
        return; /* nothing was said yet, or all of it */
    mac(s, no_nonce, GAVE_UP, out);
    if (send(fd, out, sizeof out, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof out)
        return;
    while (recv(fd, rest, sizeof rest, MSG_DONTWAIT) > 0) /* what is left unread makes the kernel send a reset, which may overtake it */
        ;
}

uno_err auth_run(struct auth_session *s, int fd, uint64_t deadline_ns)
{
    s->deadline_ns = MIN(s->deadline_ns, deadline_ns);
    for (;;) {
        uno_err err = auth_step(s, fd);
        if (err != UNO_ERR_IN_PROGRESS)
            return err;
        uint64_t now = clock_ns();
        int ms = now >= s->deadline_ns ? 0 : (int)MIN((s->deadline_ns - now) / 1000000 + 1, 100000);
        struct pollfd p = {.fd = fd, .events = s->wants_write ? POLLOUT : POLLIN};
        poll(&p, 1, ms);
    }
}
