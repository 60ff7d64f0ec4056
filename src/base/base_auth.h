/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base_auth.h - the job's secret and the handshake that every connection starts with (design section 4). The only file
 * that calls libsodium.
 *
 * Wire: initiator sends HELLO (magic, protocol version, role, job, epoch, from, to, connection id, nonce_i), acceptor answers
 * with nonce_a and MAC_a over (all of HELLO, nonce_a, "acceptor"), initiator sends MAC_i over (all, "initiator"). Keyed
 * BLAKE2b, compared in constant time. At most 256 bytes before it is done. An initiator that gives up for reasons of its own
 * (another address answered first, it is late itself) sends MAC_g over (all of HELLO, 16 zero bytes, "gave up") and ends: who
 * counts strangers knows then that it was none. Sent again by somebody who has listened, it does nothing but that.
 */
#ifndef UNO_BASE_AUTH_H
#define UNO_BASE_AUTH_H

#include "base.h"

#define AUTH_SECRET_BYTES 32
#define AUTH_NONCE_BYTES 16
#define AUTH_MAC_BYTES 32

enum auth_role { AUTH_BOOT = 1, AUTH_DATA = 2, AUTH_CONTROL = 3, AUTH_INQUIRY = 4 };

struct auth_hello {            /* exactly as on the wire, little-endian, 64 bytes */
    uint32_t magic;            /* AUTH_MAGIC */
    uint16_t version;          /* AUTH_VERSION */
    uint16_t role;             /* enum auth_role */
    uint64_t job;
    uint32_t epoch;
    int32_t from, to;          /* ranks in the job; -1 = not known */
    uint32_t connection;       /* number of the socket between the two */
    uint64_t extra;            /* role-specific */
    uint8_t nonce[AUTH_NONCE_BYTES];
    uint8_t reserved[8];
};
#define AUTH_MAGIC 0x4f494e55u
#define AUTH_VERSION 1
#define AUTH_PATIENT_S 10.0 /* a machine that is short of processors makes even our own late */

struct auth_key { uint8_t secret[AUTH_SECRET_BYTES]; bool none; /* UNISONO_AUTH=none */ };

uno_err auth_random(void *out, size_t bytes);
void auth_derive(struct auth_key *key, const void *seed, size_t bytes); /* any secret text -> key */

/* Non-blocking handshake state machine over a connected non-blocking socket; poll the fd and call again while it returns
 * UNO_ERR_IN_PROGRESS. Any other error: UNO_ERR_AUTH with a sentence that names the peer's address; the caller closes the fd. */
struct auth_session {
    const struct auth_key *key;
    bool initiator;
    int state;
    size_t have;
    struct auth_hello hello;          /* initiator: fill all but magic, version, nonce before; acceptor: filled by the peer */
    uint8_t peer_nonce[AUTH_NONCE_BYTES];
    uint8_t buf[256];
    uint64_t deadline_ns;             /* 2 s by default */
    uint64_t own_job;                 /* acceptor, 0 = none: who has said a right HELLO for this job gets AUTH_PATIENT_S in all */
    bool patient;                     /* it has got it */
    bool wants_write;                 /* which direction to poll */
    bool left;                        /* acceptor, after a failure: the other side hung up before it said anything, as does who only asks whether
                                       * the port can be reached, or gave up and proved that it knows the secret: no refusal */
};
void auth_start(struct auth_session *s, const struct auth_key *key, bool initiator);
uno_err auth_step(struct auth_session *s, int fd);
/* Acceptor: somebody who says that it is of own_job has our answer, and takes the connection for made when that arrives. */
bool auth_answered(const struct auth_session *s);
/* Initiator, before it closes the socket of a handshake that is not done, whatever the reason. Never blocks. */
void auth_give_up(const struct auth_session *s, int fd);
/* Connections to this process that were refused: no handshake, a wrong one, or a stranger to the job who knows the secret. Counted by who
 * accepts them. Any thread. */
void auth_count_refused(void);
uint64_t auth_refused(void);
/* Blocking form, for boot: until done or deadline. */
uno_err auth_run(struct auth_session *s, int fd, uint64_t deadline_ns);

#endif
