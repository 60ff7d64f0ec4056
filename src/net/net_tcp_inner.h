/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net_tcp_inner.h - what the files of the TCP carrier share. Nobody else includes it (but its tests).
 *
 * Two sides meet here. *Walkers* (holders of a communicator's walk lock) post and release messages; the *holder* of the sockets'
 * try-lock of the process moves bytes. A walker never waits for the holder: what it wants is a counter in its tcp_end, and the
 * end is pushed on the inbox, a stack that the holder empties. Whoever unlocks looks at the inbox once more, so nothing that was
 * pushed while the lock was taken is forgotten.
 *
 *   net_proc      listener, epoll descriptors, lock, inbox             net_tcp.c, net_tcp_proc.c
 *   net_link      all that is shared with one other process            net_tcp_link.c
 *   tcp_lane      a pair of interfaces of a link; tcp_half a handshake net_tcp_connect.c
 *   tcp_path      one authenticated socket          net_tcp_send.c, net_tcp_balance.c, net_tcp_recv.c
 *   tcp_end       one end of a connection; tcp_slots its memory         net_tcp_end.c
 *
 * Wire format: docs/tcp-frames.md.
 */
#ifndef UNO_NET_TCP_INNER_H
#define UNO_NET_TCP_INNER_H

#include <pthread.h>
#include <sys/uio.h>

#include "net.h"
#include "net_tcp.h"

#define TCP_SLICE 65536u             /* a message is cut at multiples of this */
#define TCP_SMALL_BYTES 16384u       /* a path's buffers for headers, control frames and short payloads */
#define TCP_CONTROL_BYTES 4096u      /* largest control frame */
#define TCP_CONTROL_QUEUE 4096       /* unacknowledged control frames of a link */
#define TCP_BATCH_SLICES 16          /* slices of one sendmsg */
#define TCP_BATCH_BYTES (256u << 10)
#define TCP_UNSENT_BYTES (128u << 10) /* TCP_NOTSENT_LOWAT: a slow path does not hoard slices */
#define TCP_MAX_PATHS 64             /* of one link */
#define TCP_MAX_LINKS 65536
#define TCP_HALF_OPEN 64             /* accepted sockets before their handshake is done */
#define TCP_HALF_OPEN_NS 2000000000ull
#define TCP_DIRECT_POLL 4            /* up to so many paths are polled by recv; more by epoll */
#define TCP_TABLE 1024               /* buckets of the table of ends */

/* ---- frames ------------------------------------------------------------------------------------------------- */
#define TCP_MAGIC 0x31465455u        /* "UTF1" */
enum tcp_type { TCP_DATA = 1, TCP_GRANT, TCP_ASK, TCP_CONTROL, TCP_GOODBYE, TCP_ACK,
                TCP_CLOSED /* the link is closed for good; the payload says why */ };
#define TCP_FLAG_RESENT 1u           /* DATA: another path may have delivered this slice already */
#define TCP_FLAG_LEAVES 4u           /* ASK: the sending end is to be freed, and waits for the last release */
#define TCP_FLAG_GONE 2u             /* GRANT: the receiving end exists no longer */

struct tcp_frame {                   /* 64 bytes, little-endian, as on the wire */
    uint32_t magic;
    uint8_t type, flags;
    uint16_t channel;
    uint64_t comm_id;
    int32_t source, destination;     /* ranks in the communicator */
    uint32_t number;                 /* DATA: of the message; GRANT: last released; CONTROL, GOODBYE, ACK: sequence number */
    uint32_t signature;              /* DATA */
    uint64_t bytes;                  /* DATA: of the whole message; GRANT: stride << 32 | k */
    uint64_t aux;                    /* DATA */
    uint32_t offset, length;         /* DATA: slice; CONTROL, GOODBYE, CLOSED: payload bytes in length */
    uint32_t shape_no;               /* DATA, GRANT */
    uint32_t reserved;
};
_Static_assert(sizeof(struct tcp_frame) == 64, "a frame header is 64 bytes");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "frames are sent as they lie in memory");

/* ---- ends ---------------------------------------------------------------------------------------------------- */
struct tcp_mark {                    /* receiving: what has come of the message in one slot */
    uint32_t number;                 /* 0 = nothing yet */
    uint32_t left;                   /* slices missing */
    uint32_t signature;
    bool misfit;                     /* larger than the slot: delivered as a mismatch, payload dropped */
    uint64_t bytes;
    uint64_t *begun;                 /* bit a slice: in its slot, or a path is in the middle of it */
};

/* The memory of an end for one geometry: one allocation. Owned by the walker until it is in tcp_end.fresh, then by the holder. */
struct tcp_slots {
    int k;
    uint32_t hold;                    /* so many releases may wait for a batch to travel in: a sender needs fewer slots than it has */
    uint32_t stride, shape_no, first; /* number of the first message that uses slot 0 */
    size_t room;                      /* bytes of the allocation */
    struct net_slot *heads;
    char *payload;
    struct tcp_mark *marks;
    int refs;                         /* holder: slices that a path is in the middle of */
    bool retired;
};

struct tcp_note {                     /* in the inbox */
    struct tcp_note *next;
    struct tcp_end *end;
    bool death;                       /* the walker's last word about this end */
};

struct tcp_end {
    uint64_t comm_id;
    int32_t source, destination;
    uint16_t channel;
    bool sending;
    struct net_link *link;
    /* walker -> holder; then the end is pushed on the inbox unless `queued` shows that it is there */
    _Atomic(struct tcp_slots *) fresh;   /* release, pairs with the acquire exchange in end_update */
    _Atomic uint32_t posted;             /* sender: newest message; release, pairs with the acquire in end_update */
    _Atomic uint32_t released;           /* receiver: newest released; stored by net_release, read in end_update */
    _Atomic bool queued;                 /* set by the walker's exchange, cleared by the holder before it looks */
    struct tcp_note work, death;
    _Atomic uint32_t *released_ref;      /* what net_end.released points to */
    /* holder -> walker */
    _Atomic uint64_t credit;             /* released | shape_no << 32; release, pairs with the acquire in tcp_end_ready */
    _Atomic uint32_t credit_k;           /* stored before credit */
    _Atomic(struct tcp_slots *) spare;   /* memory to use again */
    /* walker */
    struct tcp_slots *pending;           /* sender: shaped, but earlier messages are not released yet */
    struct tcp_slots *mine;              /* what heads and payload point into */
    /* holder */
    bool known;                          /* in the table */
    struct tcp_slots *now;
    struct tcp_end *chain;               /* table */
    struct tcp_end *link_prev, *link_next;
    struct tcp_end *work_next, *note_next;
    bool in_work, in_notes;              /* queued for slices; for a GRANT or ASK */
    bool in_no_hurry;                    /* the GRANT in notes goes out with the next batch */
    bool hasty;                          /* receiver: the sender waits for each release */
    bool has_shape;                      /* receiver: has ever been shaped */
    bool dying;                          /* its walker is gone */
    bool gone;                           /* sender: the receiver's walker is gone */
    uint32_t sent;                       /* sender: number of the next slice to send */
    uint32_t sent_offset;
    uint32_t resent_below;               /* messages below may have been sent before */
    uint32_t freed;                      /* sender: released as last granted */
    uint32_t credit_shape;
    uint32_t granted;                    /* receiver: as last granted */
};

/* ---- paths ------------------------------------------------------------------------------------------------------ */
struct tcp_path {
    struct net_link *link;
    int fd;                              /* -1: dead, freed at the end of the round */
    int lane;                            /* index in link->lanes; -1 = accepted from an address that is no lane's */
    bool works;                          /* a frame has come, or it has lasted: who closes what it accepts does so at once */
    uint64_t since_ns;
    unsigned idle;                       /* polls since something came */
    bool out_armed;                      /* epoll looks for room */
    struct tcp_path *dead_next;
    /* reading */
    size_t have, at;                     /* in small_in: bytes there, bytes parsed */
    struct tcp_end *end;                 /* slice in hand; NULL = its bytes are dropped */
    struct tcp_slots *slots;
    uint32_t number, offset;
    char *to;
    size_t left;                         /* bytes of the slice that are still to come */
    char *small_in;
    struct tcp_frame bad;                /* the newest frame; when it breaks the protocol, that asks for: */
    const char *expected;
    /* writing: a batch of frames that is finished before the next one is begun */
    struct iovec iov[1 + 2 * TCP_BATCH_SLICES];
    int niov, iov_at;
    struct tcp_frame heads[TCP_BATCH_SLICES];
    struct tcp_slots *held[TCP_BATCH_SLICES];
    int nheld;
    char *small_out;
    size_t small_bytes;
    uint64_t written;                    /* bytes given to the socket */
    uint64_t queued;                     /* of these not acknowledged, when last looked at */
};

struct tcp_load {                        /* what the balance knows of a lane */
    uint64_t queued, drained;            /* bytes, over its paths, when last looked at */
    uint64_t busy_bytes, busy_ns;        /* drained while something was queued, in how long; the past fades */
    uint64_t rate;                       /* bytes per second */
    uint64_t bulk, bulk_ns;              /* bytes given by the balance; when last */
    uint64_t progress_ns;                /* when last something drained, or nothing was there */
};

struct tcp_control {                     /* a control frame that waits for its acknowledgement */
    struct tcp_control *next;
    uint32_t seq;
    uint8_t type;
    uint32_t bytes;
    char data[];
};

enum tcp_why { TCP_WHY_NONE = 0, TCP_WHY_REFUSED, TCP_WHY_UNREACHABLE, TCP_WHY_SILENT, TCP_WHY_AUTH, TCP_WHY_LOCAL,
               TCP_WHY_NO_ANSWER /* not even the peer's kernel */ };
struct tcp_lane {                        /* a pair of interfaces */
    struct sock_addr from, to;
    bool bound;                          /* `from` is used */
    bool reserve;                        /* much slower than another: only when nothing else works */
    bool dropped;                        /* could not connect while another lane works */
    uint64_t rate_bps;
    int up, trying;
    int fails;                           /* in a row */
    enum tcp_why why;                    /* of the last failure */
    uint64_t since_ns;                   /* first of the failing attempts; 0 = none */
    uint64_t retry_ns;
    char text[160];                      /* last failure */
};

enum tcp_link_state { TCP_LINK_OPEN = 0, TCP_LINK_DOWN };
struct net_link {
    struct net_proc *proc;
    _Atomic(struct net_link *) next;     /* list of the process; release, pairs with the acquire of who walks it */
    int process;
    _Atomic int state;                   /* enum tcp_link_state */
    char down_text[600];                 /* written before state */
    /* holder */
    bool has_book, wanted, was_up, goodbye_in, goodbye_out;
    int32_t peer_status;             /* goodbye_in: the process exits with it; -1 = it goes on */
    bool broken;                         /* down, for the peer broke the protocol: */
    char closed_text[420];
    bool ended_by_fin;                   /* the last paths ended, and one of them with FIN: its process has ended */
    uint64_t fin_ns;                     /* when a path last ended with FIN */
    struct tcp_lane lanes[SOCK_MAX_ADDRS];
    int nlanes;
    struct tcp_load loads[SOCK_MAX_ADDRS + 1]; /* the last is for paths that belong to no lane */
    uint64_t balance_ns;
    bool balanced;                       /* paths of more than one lane are up */
    struct tcp_path *paths[TCP_MAX_PATHS];
    int npaths;
    /* Control frames keep to one path, so they stay in order. It carries no slices when there is another: it is quick, and when
     * the peer dies nothing is unread in it, so that it ends with FIN. */
    struct tcp_path *control_path;
    struct tcp_end *ends;
    struct tcp_end *work_head, *work_tail;   /* ends with slices to send */
    struct tcp_end *notes_head, *notes_tail; /* ends with a GRANT or ASK to send */
    int hurries;                         /* so many of these do not wait for a batch */
    uint32_t control_in;                 /* newest control frame received */
    bool ack_due;
    bool dirty;
    struct net_link *dirty_next;
    uint64_t first_try_ns;
    /* any thread, under control_mutex */
    pthread_mutex_t control_mutex;
    struct tcp_control *control_head, *control_tail;
    struct tcp_control *control_unsent;  /* first one that the current control path has not been given */
    uint32_t control_seq;
    int control_count;
    _Atomic bool control_due;            /* the holder should look; set under the mutex */
    struct sock_address_book book;       /* under control_mutex until has_book */
    _Atomic bool book_set;
};

struct tcp_half {                        /* a socket before its handshake is done */
    struct tcp_half *next;
    int fd;
    struct net_link *link;               /* NULL = accepted */
    int lane;
    bool connected;
    struct auth_session auth;
    uint64_t deadline_ns;
};

struct tcp_event {                       /* waits for the service thread */
    struct tcp_event *next;
    int from;
    bool down;
    enum net_down how;
    size_t bytes;
    char data[];
};

/* Counted for reports and tests. */
struct tcp_counts {
    _Atomic uint64_t accepted, refused, violations, stale /* slices for ends that are gone, of an old epoch perhaps */, duplicates, resent, paths_lost, path_bytes_out, writes, reads;
};

struct net_proc {
    const struct config *cfg;
    struct net_proc_options opt;
    int listen_fd, setup_fd, data_fd, service_fd, kick_fd, wake_fd, timer_fd;
    uint16_t port;
    struct sock_iface *ifaces;
    size_t nifaces;
    int sockets;                         /* per lane */
    _Atomic int exit_status;             /* goodbyes tell it; -1 = this process goes on. Relaxed: one word */
    uint64_t patience_ns;                /* with a link that was up and has no path any more */
    _Atomic(struct net_link *) links;
    pthread_mutex_t links_mutex;         /* adding a link */
    int nlinks;
    /* the try-lock and what surrounds it */
    _Alignas(CACHE_LINE) _Atomic int busy;
    _Alignas(CACHE_LINE) _Atomic(struct tcp_note *) inbox;
    _Atomic bool look;                   /* control frames or books wait for the holder */
    _Alignas(CACHE_LINE) _Atomic int callers;  /* inside, between net_enter and net_leave */
    _Atomic int sleepers;                /* in net_sleep */
    _Atomic uint64_t activity;           /* grows when something arrived that a walker may wait for */
    _Atomic bool unsent;                 /* some link has frames that no socket took yet */
    _Atomic bool unarmed;                /* a path is full and epoll does not know */
    _Atomic bool disarmed;               /* the service thread does not watch data_fd */
    _Atomic bool served;                 /* net_proc_fd was called: there is a service thread */
    _Atomic bool leaving;
    _Atomic pthread_t service;           /* who called net_proc_fd last: callbacks come there */
    /* holder */
    struct tcp_end *table[TCP_TABLE];
    struct tcp_path **paths;
    size_t npaths, cap_paths;
    struct tcp_path *dead;
    struct tcp_half *halves;
    int naccepted;                       /* halves that were accepted */
    struct net_link *dirty;
    bool goodbye;                        /* said: links that come up from now on hear it, too */
    unsigned round;
    uint64_t tick_at_ns, health_ns;
    uint64_t said_ns;                    /* when last something was said about a stranger */
    int tick_ms;                         /* the timer's period; 0 = off */
    bool deaf;                           /* not accepting for a moment: no descriptors left, or too many are half open */
    int narmed;                          /* paths that epoll watches for room */
    char *sink;                          /* where dropped payload goes */
    /* events */
    pthread_mutex_t event_mutex;
    struct tcp_event *event_head, *event_tail;
    _Atomic bool has_events;
    struct tcp_counts counts;
};

/* net_tcp.c */
bool proc_try(struct net_proc *p);               /* the try-lock */
void proc_lock(struct net_proc *p);              /* for the end of a process only */
void proc_done(struct net_proc *p);              /* unlock; serves what came meanwhile */
void proc_push(struct net_proc *p, struct tcp_note *note);
void proc_flush_soon(struct net_proc *p);        /* try to serve the inbox now; any thread */
void proc_event(struct net_proc *p, int from, bool down, enum net_down how, const void *data, size_t bytes);
struct tcp_event *proc_next_event(struct net_proc *p); /* caller frees */
void proc_tick(struct net_proc *p);              /* holder: something has a deadline */
bool proc_round(struct net_proc *p, bool service); /* holder */
void proc_empty_inbox(struct net_proc *p);       /* holder */
void proc_free_dead(struct net_proc *p);         /* holder */
bool link_blocked(const struct net_link *l);     /* holder: a path is full */

/* net_tcp_end.c; all for the holder */
void end_update(struct tcp_end *t);              /* take over what the walker wants */
void end_drop(struct tcp_end *t);                /* after its death note */
bool end_settled(const struct tcp_end *t);       /* sender: everything posted was released */
void end_destroy(struct tcp_end *t);
struct tcp_end *end_find(struct net_proc *p, const struct tcp_frame *f, bool sending);
void end_grant_due(struct tcp_end *t);
void end_was_gone(struct net_link *l, const struct tcp_frame *f); /* of a receiving end that is no more, once again */
void end_unnote_first(struct net_link *l);   /* the first of notes_head is written */
void end_replay(struct tcp_end *t);              /* a path of its link was lost */
void slots_hold(struct tcp_slots *s);
void slots_drop(struct tcp_slots *s);
static inline int slots_index(const struct tcp_slots *s, uint32_t number) { return (int)((number - s->first) % (uint32_t)s->k); }

/* net_tcp_link.c; all for the holder but link_find */
struct net_link *link_find(struct net_proc *p, int process, bool make);
void link_dirty(struct net_link *l);
void link_add_path(struct net_link *l, int fd, int lane);
void path_works(struct tcp_path *path);          /* its lane's failures are past */
void path_lost(struct tcp_path *path, bool fin, const char *text);
void link_down(struct net_link *l, enum net_down how, const char *text);
void link_violation(struct net_link *l, const char *fmt, ...) UNO_PRINTF(2, 3); /* the peer broke the protocol: "sent ..." */
void link_say_closed(const struct net_link *l, int fd); /* nothing when the link was not closed for that */
void link_refused(struct net_link *l, const char *said, size_t bytes); /* the peer says that we broke it */
uno_err link_control_queue(struct net_link *l, uint8_t type, const void *data, size_t bytes); /* any thread */
void link_goodbye(struct net_link *l); /* once, if anything was wanted of it; holder */
void link_control_acked(struct net_link *l, uint32_t seq);
void link_control_replay(struct net_link *l);
void link_free(struct net_link *l);
void link_health(struct net_link *l);            /* give up paths that no longer carry anything */

/* net_tcp_send.c */
bool link_flush(struct net_link *l);             /* write what can be written; true when something moved */
bool path_pending(const struct tcp_path *path);
bool path_takes_slices(const struct tcp_path *path);
void path_batch_drop(struct tcp_path *path);
bool link_has_unsent(const struct net_link *l);

/* net_tcp_balance.c */
int balance_lanes(const struct net_link *l);
bool balance_busy(const struct net_link *l);     /* something is queued */
bool balance_due(const struct net_link *l);
void balance_look(struct net_link *l);           /* ask the kernel */
struct tcp_path *balance_pick(struct net_link *l);
void balance_gave(struct tcp_path *path, uint64_t bytes);

/* net_tcp_recv.c */
bool path_read(struct tcp_path *path);
void path_slice_drop(struct tcp_path *path);     /* forget the slice in hand: its bytes will come again or are not wanted */

/* net_tcp_connect.c */
uno_err connect_listen(struct net_proc *p);
bool link_unheard(const struct net_link *l);     /* it never was up, and nobody listens there */
void link_want(struct net_link *l);              /* first use, or a path was lost: open what is missing */
void link_lanes(struct net_link *l);             /* from the address book */
bool connect_step(struct net_proc *p);           /* accept and shake hands */
/* Deadlines, retries; late = we were not called for so long. True = call again soon. */
bool connect_tick(struct net_proc *p, uint64_t now, uint64_t late);
bool connect_answered(const struct net_proc *p); /* does anybody who connects take its connection for made before we do? */
void connect_close(struct net_proc *p);          /* ends all that is half open, and listens no more */
int lane_of(const struct net_link *l, int fd);
void lane_failed(struct net_link *l, int lane, enum tcp_why why, const char *text); /* it waits before it tries again, each time longer */
void lane_works(struct tcp_lane *n);

#endif
