/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot_server.h - private to boot_server.c (connections: accept, handshake, frames) and boot_job.c (members, rounds, faults), which
 * run on the one thread that serves a job's joining.
 */
#ifndef UNO_BOOT_SERVER_H
#define UNO_BOOT_SERVER_H

#include "boot_internal.h"

#define BOOT_SAY_NS 1000000000ull    /* between two words about strangers */
#define BOOT_LINGER_NS 1000000000ull /* a connection that got its error may read it this long */

/* What goes out next on a connection. */
struct outgoing { struct boot_frame head; const char *data; size_t done; int round_slot; };
#define OUT_MAX 4

struct conn {
    struct conn *next;
    int fd;
    enum { SHAKING, EXPECT_JOIN, MEMBER, CLOSING, DEAD } state;
    struct auth_session auth;
    uint64_t born_ns, deadline_ns;      /* SHAKING, EXPECT_JOIN: end of the handshake; CLOSING: of lingering */
    int rank;                           /* MEMBER */
    bool own_process;                   /* answered after all others, so that this process may end when it has its answer: */
    bool answer_due, error_due;         /* its answer, or the job's fault, is still to be sent */
    struct boot_frame head;             /* being read */
    struct boot_who who;
    char *into;                         /* where the payload goes; NULL = head is being read */
    size_t have;
    struct outgoing out[OUT_MAX];
    int outs;
    bool wants_write;
};

struct member { struct conn *conn; bool joined, left; int32_t pid; char host[64]; uint64_t rounds; /* contributions so far */ };
struct collect { uint64_t number, bytes; int have, unsent; char *all; };

struct server {
    int listen_fd, epoll_fd;
    bool lent_fd;                       /* listen_fd shares a socket that the launcher gave; later servers use it again */
    uint16_t port;
    struct auth_key key;
    struct boot_id id;
    char *unlink_path;
    char *hosts;                        /* "a:2,b:2", of the launcher whose ranks these are; NULL = not told */
    uint64_t end_ns, accept_again_ns;   /* the latter: 0 = accepting */
    uint64_t said_ns;                   /* when last something was said about a stranger */
    uint64_t stall_ns;                  /* who waits for longer is told for whom */
    uint64_t waits_ns;                  /* since when somebody waits for others; 0 = nobody does */
    uint64_t say_absent_ns;             /* when it is said next for whom; UINT64_MAX = never */
    bool said_absent;
    uint64_t tell_own_ns;               /* not later than then the own process learns that the job has failed; 0 = nothing to tell */
    bool crowded;                       /* not accepting because of half-open connections */
    uint64_t short_ns, short_seen_ns;   /* connections wait that could not be accepted for want of descriptors or memory: since when, seen last */
    struct conn *conns;
    int half_open, size, joined, left;
    struct member *members;
    int first_rank;                     /* who said the size first */
    bool by_place;                      /* ranks are places in the list of uno_comm_create_group */
    struct collect rounds[2];           /* the answered one and the collecting one */
    uint64_t done;                      /* rounds answered: the one that collects */
    uno_err failed;
    char failure[ERR_TEXT_BYTES];
};

/* ---- boot_server.c ---- */
static inline bool conn_half_open(const struct conn *c)
{
    return c->state == SHAKING || c->state == EXPECT_JOIN;
}
/* Close now; memory is freed after the batch of events. */
void conn_kill(struct server *s, struct conn *c);
/* Queue a frame and write what goes. data stays valid until it is sent. slot: the round it answers, -1 = none. */
void conn_send(struct server *s, struct conn *c, enum boot_frame_type type, uno_err code, uint64_t round, const void *data,
               size_t bytes, int slot);

/* ---- boot_job.c ---- */
void job_join(struct server *s, struct conn *c);                    /* BOOT_JOIN has come: c->who */
void job_cannot_accept(struct server *s, int why);                  /* an errno: connections wait, and there is no room for them */
char *job_round_place(struct server *s, struct conn *c);            /* where the payload of BOOT_PUT goes; NULL: failed */
void job_contribution(struct server *s, struct conn *c);            /* it is complete */
void job_answer_sent(struct server *s, int slot);                   /* one answer of that round has left */
void job_late(struct server *s, int who, uint64_t round);           /* rank `who` gave up: say for whom it waited */
void job_say_absent(struct server *s, uint64_t now);                /* for whom those who joined wait, if it is time to say so */
void job_left(struct server *s, struct conn *c);                    /* BOOT_BYE */
void job_member_ended(struct server *s, struct conn *c);            /* its connection ended without it */
void job_gave_up(struct server *s, struct conn *c);                 /* it said that it does not go on */
void job_tell_own(struct server *s, uint64_t now);                  /* the fault, once the others have read it or had their time */
void job_remove_file(struct server *s);

#endif
