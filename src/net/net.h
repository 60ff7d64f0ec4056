/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net.h - moving bytes: one contract, several carriers (shared memory, threads of one process, TCP).
 *
 * The unit is a *message* on a *connection end*: the sender fills a free slot and posts it, the receiver sees it arrive,
 * uses it in place and releases the slot. Messages on a connection are numbered from 1. A message has arrived when its flag
 * shows the expected number; a flag with that number and another signature is a mismatch, at once.
 *
 * Who calls: exec (walk, p2p) for the ends, join.c for set-up, watch for the service thread. An end is used by the holder of
 * its communicator's walk lock only; sockets are shared by communicators and have locks of their own.
 *
 * Shared memory. Each rank owns, per communicator, one control region in a memfd segment of its process (layout below), which
 * every rank of the host maps. Slots live in segments of the *sending* process; released counters in the *receiver's* control
 * region. A segment is opened by peers as /proc/<pid>/fd/<fd>, checked (seals, size, token) and mapped; nothing has a name,
 * so nothing is left behind.
 */
#ifndef UNO_NET_H
#define UNO_NET_H

#include <stdatomic.h>

#include "base/base.h"
#include "base/base_auth.h"
#include "base/base_config.h"
#include "base/base_sock.h"

/* ---- segments: memory that other processes can map (net_segment.c) ------------------------------------- */
struct net_segment_ref {        /* travels; enough to open it from another process of this host */
    int32_t pid;
    int32_t fd;
    uint64_t bytes;
    uint64_t token[2];          /* random, first 16 bytes of the segment's trailer page; proves it is the right one */
};
struct net_segment;             /* one memfd of this process */
uno_err net_segment_new(size_t bytes, const char *name, struct net_segment **seg, void **base); /* sealed, zeroed */
void net_segment_free(struct net_segment *seg);              /* unmaps and closes; peers keep what they mapped */
void net_segment_ref(const struct net_segment *seg, struct net_segment_ref *ref);
/* Map a peer's segment; cached per (pid, token), counted. UNO_ERR_UNREACHABLE when the kernel refuses; the sentence says what. */
uno_err net_segment_map(const struct net_segment_ref *ref, void **base);
/* The same of a descriptor that was handed over, which is closed in any case. */
uno_err net_segment_map_given(const struct net_segment_ref *ref, int fd, void **base);
void net_segment_unmap(const struct net_segment_ref *ref);
/* Tools of the same user may have this segment of our own. */
void net_segment_show(const struct net_segment_ref *ref);
/* A descriptor of it for them, which the caller closes; -1 = there is no such segment, it is not for them, or there is no descriptor left. */
int net_segment_give(const uint64_t token[2], struct net_segment_ref *ref);
/* uno_mem_alloc's memory: find the segment that contains [ptr, ptr+bytes) of this process. false = private memory. */
bool net_segment_find(const void *ptr, size_t bytes, struct net_segment_ref *ref, uint64_t *offset);
uno_err net_mem_alloc(void **ptr, size_t bytes);
uno_err net_mem_free(void *ptr);
void net_segments_forked(void);                              /* in a forked child */
uint32_t net_mem_freed(void);                                /* how often uno_mem_free was called; any thread */
bool net_segment_lendable(const struct net_segment_ref *ref); /* is it memory of uno_mem_alloc that is not freed? */

/* ---- slots ------------------------------------------------------------------------------------------------- */
enum net_slot_kind { NET_SLOT_BYTES = 0, NET_SLOT_LENT = 1, NET_SLOT_PLACED = 2 /* already where the receiver offered */ };
struct net_slot {                /* one line; the writer's. Everything before `flag` is written first */
    _Alignas(CACHE_LINE) _Atomic uint64_t flag; /* number | signature << 32; release store, pairs with the acquire in net_arrived */
    uint64_t bytes;              /* payload of this message */
    uint64_t aux;                /* in clear: the pair's total count in all-to-all-v, tag words in p2p */
    uint32_t kind;               /* enum net_slot_kind */
    _Atomic uint32_t withdrawn;  /* lent memory was taken back: the reader's operation fails */
    uint64_t address;            /* bytes: offset in the connection's room. Lent: in the same process an address, else an offset in
                                  * the lender's segment */
    uint64_t lent_segment;       /* index + 1 in the lender's segment table (control region); 0 = same process */
    _Atomic uint32_t reading;    /* threads of the same process that read the loan now; its return waits for them */
};
#define NET_LENT_READ UINT64_MAX /* lent_segment: private memory of the lender, at `address` there, to be read by process_vm_readv */
static inline bool net_is_read(const struct net_slot *h) { return h->kind == NET_SLOT_LENT && h->lent_segment == NET_LENT_READ; }
static inline bool net_lies(const struct net_slot *h) { return h->kind != NET_SLOT_BYTES && !net_is_read(h); }
static inline uint64_t net_flag(uint32_t number, uint32_t signature) { return number | (uint64_t)signature << 32; }

/* An offer: the receiver lets the sender of message `number` write it straight to its place. One line with the credit.
 * key = number << 8 | state: the receiver stores OFFERED with release after the other fields; the sender claims it by
 * compare-and-swap before it writes there; the receiver takes it back likewise. */
enum net_offer_state { NET_OFFER_NONE = 0, NET_OFFER_OPEN = 1, NET_OFFER_CLAIMED = 2 };
#define NET_OFFERS 8
#define NET_READ_MIN_SHIFT 14 /* from 16 KB on: below, a copy is cheaper than the system call */
#define NET_READ_CLASSES 8
struct net_offer { _Atomic uint64_t key; uint64_t offset; uint32_t segment, bytes; };

enum net_carrier { NET_SELF = 0, NET_SHM, NET_THREAD, NET_TCP, NET_CARRIER_COUNT };
extern const char *const net_carrier_names[];

enum net_arrival { NET_NOT_YET = 0, NET_ARRIVED, NET_MISMATCH };

struct net_comm;
struct tcp_end;                  /* net_tcp.c */

/* One end of one connection of one communicator. Fields are read by the inline functions below only. */
struct net_end {
    struct net_comm *comm;
    enum net_carrier carrier;
    bool sending, group;
    int peer;                    /* real rank; -1 for a sending group end */
    int channel;
    int k;                       /* slots: messages that may be under way; set by net_end_shape */
    uint32_t stride;             /* payload bytes that a message may have. Memory: a power of two */
    uint32_t next;               /* number of the next message */
    int slot;                    /* its slot */
    uint32_t shape_no;           /* how often net_end_shape changed the geometry; equal at both ends */
    /* memory carriers */
    struct net_slot *heads;      /* k of them */
    char *payload;               /* TCP: k * stride. Memory: the room */
    size_t room;                 /* memory: payload bytes of the connection; a multiple of stride */
    size_t reach;                /* sending: as much of it is used yet */
    int promised;                /* so many messages always fit, as the plan was proved */
    size_t at, clear;            /* sending: where the next payload goes, and as far as that the room is known to be free */
    struct net_range { uint32_t from, to; } *placed; /* sending: of each slot, where its payload is, in cache lines */
    int nreaders;                /* sending: 1, or the size of the group */
    _Atomic uint32_t **released; /* sending: each reader's counter; receiving: [0] = own counter */
    uint32_t freed;              /* sending: messages known to be released by all */
    uint32_t shaped_at;          /* sending: the last message before the present slots */
    bool mapped;                 /* slots of the present geometry are known and mapped */
    uno_err failed;              /* could not be (no memory, refused, mismatch): the operation fails, sentence set */
    struct net_region **readers; /* whom to wake: the readers when sending, the sender when receiving */
    struct slot_extent *extent;  /* sending: where the slots are */
    size_t offset, capacity;
    bool any_lent;               /* sending: loans may be out; the last one is message last_lent */
    bool left_lying;             /* since exec_start: a message stayed in memory that both sides map. Alike at both ends */
    uint32_t last_lent;
    bool reading;                /* receiving: counted in its head's `reading` */
    /* TCP */
    struct tcp_end *tcp;
    struct net_taste *taste;     /* receiving: NET_READ_CLASSES of them once a message was timed */
    _Atomic uint32_t *wish;      /* the receiver's: which messages it wants lent by reading (net_read.c) */
    uint32_t looked;             /* sending: looks that the receiver wished for and got, */
    uint8_t looks[NET_READ_CLASSES]; /* and of each length class how many messages of the present one */
    char *aside;                 /* receiving: where private memory of the lender is read to when it has no other place */
    size_t aside_bytes;
    struct net_offer *offers;    /* NET_OFFERS of them, in the receiver's region; NULL for groups and TCP */
    uint32_t offered_bytes[NET_OFFERS]; /* receiving: what this rank offered; 0 = nothing. Its own memory, so believed */
    char *offered_at[NET_OFFERS];
    /* counted, for reports */
    uint64_t messages, bytes, lent_bytes;
    uint64_t placements;         /* sending: messages written where the receiver offered */
};

/* Find or make an end; nothing is allocated until it is shaped. channel 0 for groups and p2p control. */
uno_err net_end_get(struct net_comm *comm, bool sending, int peer, int channel, bool group, struct net_end **end);
/* Both ends agree that following messages have at most `stride` bytes and that k of them may always be under way. In memory
 * their payloads go round a room of about `room` bytes (net_end.c says why). Shapes only grow, so that operations of different
 * sizes seldom change them. A change takes effect when all earlier messages are released (sender) or used (receiver); until
 * then, and until the peer's memory is mapped or its grant is here, net_can_send and net_arrived say no. Never blocks. */
uno_err net_end_shape(struct net_end *end, int k, uint32_t stride, size_t room);
/* Slow paths behind the inline functions: advance a pending shape, map the peer, look at sockets. `bytes`: of the next message. */
bool net_end_ready_slow(struct net_end *end, uint64_t bytes);
/* Sending: the reader that is furthest behind. */
int net_slowest_reader(const struct net_end *end);
/* Sending: number of the last message that every reader has released. */
uint32_t net_end_freed(struct net_end *end);

/* ---- sending: may I fill the next slot? where? post it ------------------------------------------------ */
/* Room that a payload takes: its own size as a power of two, so that it begins at a multiple of it. */
static inline size_t net_unit(uint64_t bytes)
{
    return bytes <= CACHE_LINE ? CACHE_LINE : (size_t)1 << (64 - __builtin_clzll(bytes - 1));
}
static inline size_t net_place_at(const struct net_end *e, uint64_t bytes) { return (e->at + net_unit(bytes) - 1) & -net_unit(bytes); }
/* Is there a slot, and room for `bytes` (at most stride)? */
static inline bool net_can_send(struct net_end *e, uint64_t bytes)
{
    if (__builtin_expect(e->mapped && (uint32_t)(e->next - 1 - e->freed) < (uint32_t)e->k &&
                         net_place_at(e, bytes) + net_unit(bytes) <= e->clear, 1)) {
        e->at = net_place_at(e, bytes);
        return true;
    }
    return net_end_ready_slow(e, bytes);
}
/* After net_can_send. TCP ends have heads and payload too: local staging, sent when posted and kept until released. */
static inline char *net_send_payload(struct net_end *e)
{
    return e->payload + (e->carrier == NET_TCP ? (size_t)e->slot * e->stride : e->at);
}
static inline struct net_slot *net_send_head(struct net_end *e) { return &e->heads[e->slot]; }
void net_post_slow(struct net_end *e);   /* TCP: hand to the sockets; memory: wake sleepers */
/* head->bytes, kind, aux, lent_* are set by the caller before. */
static inline void net_post(struct net_end *e, uint32_t signature)
{
    struct net_slot *h = &e->heads[e->slot];
    if (e->carrier != NET_TCP) {
        size_t end = h->kind == NET_SLOT_BYTES ? e->at + net_unit(h->bytes) : e->at;
        e->placed[e->slot] = (struct net_range){(uint32_t)(e->at / CACHE_LINE), (uint32_t)(end / CACHE_LINE)};
        if (h->kind == NET_SLOT_BYTES)
            h->address = e->at;
        e->at = end;
    }
    /* release: everything written to head and payload is seen by who acquires the flag in net_arrived */
    atomic_store_explicit(&h->flag, net_flag(e->next, signature), memory_order_release);
    e->left_lying |= net_lies(h);
    e->messages++;
    e->bytes += h->bytes;
    e->next++;
    e->slot = e->slot + 1 == e->k ? 0 : e->slot + 1;
    net_post_slow(e);
}

/* ---- receiving --------------------------------------------------------------------------------------------- */
static inline enum net_arrival net_arrived(struct net_end *e, uint32_t signature)
{
    if (__builtin_expect(!e->mapped, 0) && !net_end_ready_slow(e, 0))
        return NET_NOT_YET;
    /* acquire: pairs with the release in net_post */
    uint64_t flag = atomic_load_explicit(&e->heads[e->slot].flag, memory_order_acquire);
    if ((uint32_t)flag != e->next)
        return NET_NOT_YET;
    return (uint32_t)(flag >> 32) == signature ? NET_ARRIVED : NET_MISMATCH;
}
static inline struct net_slot *net_recv_head(struct net_end *e) { return &e->heads[e->slot]; }
/* Payload of the arrived message: in the room, or the lent memory. NULL = it points outside, or the lender's memory could not be
 * mapped, or was taken back (sentence set). Lent memory may be read until net_release, or, when the operation fails, net_loan_end. */
const void *net_recv_elsewhere(struct net_end *e, const struct net_slot *head, uint64_t bytes);
static inline const void *net_recv_payload(struct net_end *e, uint64_t bytes)
{
    const struct net_slot *h = &e->heads[e->slot];
    if (e->carrier == NET_TCP)
        return e->payload + (size_t)e->slot * e->stride;
    uint64_t at = h->address; /* read once: it is the peer's */
    if (__builtin_expect(h->kind == NET_SLOT_BYTES && at <= e->room && bytes <= e->room - at, 1))
        return e->payload + at;
    return net_recv_elsewhere(e, h, bytes);
}
void net_loan_end(struct net_end *e);

/* ---- private memory, read by the receiver (net_read.c) -------------------------------------------------------- */
struct net_taste {               /* what messages of one length class cost a receiving end; 0 = not known */
    uint64_t by_slots;           /* bytes received so */
    uint32_t slot_ns, read_ns;
    uint32_t cost_then, interval, wait; /* when the way that was not taken is tried again */
};
void net_read_probe(struct net_comm *c); /* may this rank read its neighbours' memory? Says so in its region */
/* Sending: does the receiver want the next message, of so many bytes, lent? Asked once for each message. */
bool net_read_next(struct net_end *e, uint64_t bytes);
/* Straight into dst. The message must be net_is_read. UNO_ERR_UNREACHABLE: the lender is gone, or took the memory back. */
uno_err net_read(struct net_end *e, const struct net_slot *head, void *dst, uint64_t bytes);
const void *net_read_aside(struct net_end *e, const struct net_slot *head, uint64_t bytes); /* NULL: sentence set */
/* Is the work on messages of this end and length worth a measurement? Then tell how long it took. */
static inline bool net_timed(const struct net_end *e, uint64_t bytes)
{
    return bytes >> NET_READ_MIN_SHIFT && e && e->carrier == NET_SHM && !e->group;
}
void net_note_copied(struct net_end *e, uint64_t bytes, uint64_t ns);
/* sends: this rank sends as much meanwhile, so a copy into a slot costs it as well; else that is done while it reads the one before. */
void net_note_received(struct net_end *e, bool read, uint64_t bytes, uint64_t ns, bool sends);
void net_release_slow(struct net_end *e); /* TCP: grant; memory: wake a sleeping sender */
static inline void net_release(struct net_end *e)
{
    e->left_lying |= net_lies(&e->heads[e->slot]);
    e->messages++;
    e->bytes += e->heads[e->slot].bytes;
    if (__builtin_expect(e->reading, 0))
        net_loan_end(e);
    /* release: our reads of the slot come before; pairs with the acquire in net_end_ready_slow of the sender */
    atomic_store_explicit(e->released[0], e->next, memory_order_release);
    e->next++;
    e->slot = e->slot + 1 == e->k ? 0 : e->slot + 1;
    net_release_slow(e);
}

#define NET_FEW_SLOTS 4          /* between hosts, connections with up to so many slots have ... */
#define NET_FAR_SLOTS 4          /* ... this many times as many */

/* ---- the control region of a rank (shared memory carriers) ------------------------------------------------- */
#define NET_CHANNELS 32          /* channels of a pair for collectives; published schedules use up to 32 */
#define NET_P2P_CHANNEL NET_CHANNELS    /* the pair's point-to-point messages: headers, small payloads, grants */
#define NET_P2P_BULK (NET_CHANNELS + 1) /* large point-to-point data */
#define NET_PAIR_ENDS (NET_CHANNELS + 2) /* rows a peer has in the tables */
#define NET_RING_ENTRIES 16
#define NET_LINE_PAYLOAD 56
#define NET_ENTRY_LINES 20
#define NET_LEDGER_EVENTS 1024

struct net_line {                /* a line of the small target's ring: payload, then the flag as one release store */
    _Alignas(CACHE_LINE) unsigned char payload[NET_LINE_PAYLOAD];
    _Atomic uint64_t flag;
};
struct net_entry { struct net_line line[NET_ENTRY_LINES]; };
#define NET_BLOCK_BYTES 4096
struct net_block {               /* an entry of its other ring, for what is longer: the payload in one piece, then the head's flag; its payload is unused */
    struct net_line head;
    unsigned char payload[NET_BLOCK_BYTES];
};

struct net_counter {
    _Alignas(CACHE_LINE) _Atomic uint32_t value;
    _Atomic uint32_t wish;       /* the receiver's, read by the sender: net_read_next */
    struct net_offer offer[NET_OFFERS]; /* of message number n: n % NET_OFFERS */
};
_Static_assert(offsetof(struct net_counter, offer[2]) <= CACHE_LINE, "credit and the first offers travel in one line");

struct net_place {               /* where an end's slots are now; writer's, one per (destination | group, channel) */
    _Alignas(CACHE_LINE) _Atomic uint32_t shape_no; /* release store, last; pairs with the acquire of the reader */
    uint32_t k, stride;
    uint32_t segment;            /* index in segments[] */
    uint64_t offset;             /* heads, then the room */
    uint64_t room;
};

/* Values of a region's goodbye: finalized or destroyed, or its process exits without that; then the exit status is in the low byte. */
#define NET_GOODBYE_FINALIZED 1u
#define NET_GOODBYE_EXIT 0x100u

#define NET_MAX_SEGMENTS 4096
struct net_region {
    uint64_t magic;              /* NET_REGION_MAGIC */
    uint64_t self;               /* where it is in its owner's memory */
    _Atomic uint32_t reads;      /* the owner may read the memory of all processes of its host; relaxed */
    uint32_t version, size;      /* ranks of the communicator */
    uint64_t bytes;
    /* Read by whoever wants to wake this rank; a writer makes a system call only when sleeping != 0. */
    _Alignas(CACHE_LINE) _Atomic uint32_t bell;  /* futex word */
    _Atomic uint32_t sleeping;
    _Atomic uint32_t goodbye;    /* not 0: this rank left in order (NET_GOODBYE_...); release store, read by whoever sees its process end */
    /* First cause of an abort. Written by any rank of the host: code by compare-and-swap from 0, then text, then ready. */
    _Alignas(CACHE_LINE) _Atomic uint32_t abort_code;
    _Atomic uint32_t abort_ready;
    int32_t abort_rank;
    int32_t abort_by;            /* who wrote it */
    uint64_t abort_ns;
    char abort_text[512];
    /* This rank's segments as peers open them; nsegments is a release store. */
    _Alignas(CACHE_LINE) _Atomic uint32_t nsegments;
    _Atomic uint32_t segments_gone; /* how often one of them was freed; release store, pairs with the acquire in forget_gone */
    uint32_t offset_segments, offset_ring, offset_blocks, offset_ledger, offset_p2p_ledger, offset_released, offset_places,
             offset_notes, offset_slate, offset_passed;
};
#define NET_REGION_MAGIC 0x6f6e6f73696e75ull

/* What a rank's steward says about shrinking its communicator (watch_shrink.c), and its new region afterwards (src/shrink.c). Its
 * owner writes it, but for `asked`; every rank of the host reads it. */
enum net_built { NET_BUILT_NOTHING = 0, NET_BUILT_REGION, NET_BUILT_MAPPED, NET_BUILT_FAILED };
struct net_slate {
    _Alignas(CACHE_LINE) _Atomic uint32_t version; /* odd while words are written; counts up */
    _Atomic uint32_t asked;      /* set by any rank of the host: look at the slates */
    _Atomic uint32_t left;       /* the owner answers no more and decides nothing any more; release store */
    _Atomic uint32_t built;      /* enum net_built of the new communicator; release store, after ref */
    struct net_segment_ref ref;  /* its new region */
    _Atomic uint64_t words[];    /* net_slate_bytes(size) of them */
};
size_t net_slate_bytes(int size); /* 64, and two bits a rank */
static inline struct net_slate *net_region_slate(struct net_region *r) { return (struct net_slate *)((char *)r + r->offset_slate); }

/* The counts per rank of this rank's newest v-form whose counts are equal everywhere. Written before its event; relaxed but for
 * number: 0 while they are written. */
struct net_passed {
    _Atomic uint32_t number;     /* of the operation; release store, pairs with the acquire in passed_read */
    _Atomic uint64_t counts[];
};
static inline struct net_passed *net_region_passed(struct net_region *r) { return (struct net_passed *)((char *)r + r->offset_passed); }

size_t net_region_bytes(int size);
void net_region_init(struct net_region *r, int size, uint32_t first); /* first: as in net_comm_options */
bool net_region_check(const struct net_region *r, int size); /* a peer's region, before it is believed */
static inline struct net_entry *net_region_ring(struct net_region *r) { return (struct net_entry *)((char *)r + r->offset_ring); }
static inline struct net_block *net_region_blocks(struct net_region *r) { return (struct net_block *)((char *)r + r->offset_blocks); }
static inline void *net_region_ledger(struct net_region *r) { return (char *)r + r->offset_ledger; }
static inline void *net_region_p2p_ledger(struct net_region *r) { return (char *)r + r->offset_p2p_ledger; }
/* Where its parts are, computed from its size alone, for readers that its owner may lie to now and later. false: no region of so many bytes. */
struct net_region_parts { int size; void *ledger, *p2p_ledger, *notes; int32_t *job_ranks; struct net_passed *passed; };
bool net_region_locate(struct net_region *r, uint64_t bytes, struct net_region_parts *parts);
/* NET_NOTES_BYTES for watch (struct ledger_notes), and behind them the job rank of every rank. */
#define NET_NOTES_BYTES 18432
static inline void *net_region_notes(const struct net_region *r) { return (char *)(uintptr_t)r + r->offset_notes; }
static inline int32_t *net_region_job_ranks(const struct net_region *r)
{
    return (int32_t *)((char *)net_region_notes(r) + NET_NOTES_BYTES);
}

/* ---- the communicator, seen by net ----------------------------------------------------------------------------- */
struct net_link;                 /* the sockets between two processes (net_tcp.c) */

struct net_peer {                /* filled by assemble.c, one per rank */
    enum net_carrier carrier;
    struct net_region *region;   /* mapped control region; NULL for TCP */
    struct net_link *link;       /* TCP; NULL otherwise */
    int host;                    /* host index */
    int32_t pid;                 /* of a process of this host, as seen here */
    int process;                 /* index of its process in the job: lowest rank in it */
};
struct net_counts { uint64_t messages[NET_CARRIER_COUNT], bytes[NET_CARRIER_COUNT], lent_bytes, placements; };

struct net_comm_options {
    uint64_t id;                 /* number of this communicator, equal on all ranks */
    int rank, size;
    const struct net_peer *peers;   /* copied */
    struct net_region *region;      /* own */
    bool lend;
    uint32_t first;              /* message and operation numbers begin behind it; 0 but in tests of the wrap-around */
};
uno_err net_comm_new(const struct net_comm_options *opt, struct net_comm **comm);
void net_comm_free(struct net_comm *comm);      /* gives slots back; never blocks */
void net_comm_count(const struct net_comm *comm, struct net_counts *counts); /* adds */
/* Has something been sent into slots of which no sign shows that the reader has mapped them? It cannot once we are gone. Readers
 * that said goodbye do not count, nor those of which gone(arg, rank) says so. */
bool net_comm_unseen(const struct net_comm *comm, bool (*gone)(void *arg, int rank), void *arg);
/* The rank to which this communicator has found no way (UNO_ERR_UNREACHABLE); -1 = none that its shared memory knows of. */
int net_comm_lost(const struct net_comm *comm);
/* A large operation begins, no loan is being read: memory that its owner freed since is unmapped and its place may be used anew. */
void net_comm_begin(struct net_comm *comm);
void net_forget_freed(struct net_end *end); /* the same of the peer's memory alone, before a message is taken that begins something */
/* Put lent memory into the head of the next slot if every reader can read it; false = copy instead. */
#define NET_LEND_MIN_BYTES 4096 /* below, a copy is cheaper than the wait for the release */
bool net_try_lend(struct net_end *e, struct net_slot *head, const void *ptr, uint64_t bytes);
/* Are loans of this sending end still being read? */
bool net_loans_out(struct net_end *e);
/* Error return: readers of loans that are out find them withdrawn and fail. Waits for threads of this process that read now. */
void net_withdraw_loans(struct net_end *e);
/* Reader, after reading lent memory and before publishing anything made from it. */
static inline bool net_loan_withdrawn(const struct net_slot *h)
{
    if (h->kind != NET_SLOT_LENT)
        return false;
    atomic_thread_fence(memory_order_acquire); /* our reads of the loan come before this look */
    return atomic_load_explicit(&h->withdrawn, memory_order_acquire) != 0;
}
uint64_t net_comm_slot_bytes(const struct net_comm *comm);
/* Receiver: let message `number` (one of the next NET_OFFERS) be written to [ptr, ptr + bytes), whole pages of memory that the
 * sender can map and that nobody else touches until that message is released. false = not possible, nothing happened. */
bool net_offer(struct net_end *e, uint32_t number, char *ptr, uint64_t bytes);
/* Sender: where to write the next message of `bytes`, if the receiver offers that; NULL = use the slot. After it, the message
 * must be posted with kind NET_SLOT_PLACED. */
char *net_take_offer(struct net_end *e, uint64_t bytes);
/* Sender: an offer was taken and the message will not be posted after all. */
void net_drop_claim(struct net_end *e);
/* Receiver, when the next message has arrived: true if it lies where it was offered. Ends the offer. */
bool net_offer_used(struct net_end *e, const struct net_slot *head);
/* Error return: nothing is written to offered memory after this. Offers that a sender may be using are detached: a private copy
 * takes the place of the shared pages. Never waits for another process. */
void net_detach_offers(struct net_end *e);
/* Sleeping on one's own region. begin announces it and orders it against every other process of the host; after begin the
 * caller looks once more at what it waits for, then dozes (at most timeout_ns), then ends. One sleeper a region. */
uint32_t net_doze_begin(struct net_region *own);
void net_doze(struct net_region *own, uint32_t bell, uint64_t timeout_ns);
void net_doze_end(struct net_region *own);
/* Once a process: lets other processes' net_doze_begin order their sleep against our stores. */
void net_doze_register(void);
void net_ring_sleeper(struct net_region *r);
/* Wake the sleeper of a region, if there is one (any thread). No fence between the store that is announced and this load: the
 * sleeper makes every process pass a barrier after it has said that it sleeps and before it looks once more (net_doze_begin). So
 * either this load sees it, or it sees the store. Only the compiler must keep the two in order. tests/models/doze.pml checks it. */
static inline void net_ring_region(struct net_region *r)
{
    atomic_signal_fence(memory_order_seq_cst);
    if (__builtin_expect(atomic_load_explicit(&r->sleeping, memory_order_relaxed) != 0, 0))
        net_ring_sleeper(r);
}

/* ---- the process, TCP (net_tcp*.c) ------------------------------------------------------------------------------- */
/* One net_proc per joined job and process: its listening socket and its links. */
struct net_proc;
enum net_down { NET_DOWN_LOST = 0,  /* nothing works any more */
                NET_DOWN_LEFT,      /* after its goodbye; the text is how its process exits, "" = not known */
                NET_DOWN_ENDED,     /* with FIN on all paths, without goodbye */
                NET_DOWN_BROKEN     /* closed for good: it broke the protocol, or says that we did */ };
struct net_proc_options {
    const struct config *cfg;
    struct auth_key key;
    uint64_t job;
    int self;                    /* this process's index (its lowest rank) */
    int ranks;                   /* of the job: indexes are below; 0 = not known */
    /* Called on the service thread. on_control: a control frame came from process `from`. on_down: the link to `from` is gone on
     * all paths. */
    void (*on_control)(void *arg, int from, const void *data, size_t bytes);
    void (*on_down)(void *arg, int from, enum net_down how, const char *text);
    void *arg;
};
uno_err net_proc_new(const struct net_proc_options *opt, struct net_proc **proc); /* binds; UNO_ERR_SYSTEM, UNO_ERR_UNREACHABLE */
void net_proc_address(const struct net_proc *proc, struct sock_address_book *book);
/* The link to a process; made once, sockets are opened when first used. */
uno_err net_link_get(struct net_proc *proc, int process, const struct sock_address_book *book, struct net_link **link);
/* Queue a control frame (<= 4096 bytes, copied). Never blocks. */
uno_err net_control_send(struct net_link *link, const void *data, size_t bytes);
int net_control_pending(struct net_link *link); /* control frames that are not acknowledged yet; any thread */
/* What is known of the way to a process. One socket, or attempt, speaks for all: that of the control frames. */
enum net_way { NET_WAY_OK = 0, NET_WAY_SILENT, NET_WAY_RESET, NET_WAY_REFUSED, NET_WAY_NO_ROUTE };
struct net_link_facts {
    int paths;                   /* sockets that are up */
    enum net_way state;
    bool answers;                /* the peer's kernel acknowledges: if its process says nothing, the process is the reason */
    bool interface_down;         /* the own one */
    char interface[16];          /* "" = not known */
    char from[SOCK_TEXT_BYTES], to[SOCK_TEXT_BYTES]; /* "" = not known */
    char text[160];              /* what is wrong, "" = nothing */
};
/* Any thread. false: another thread is at the sockets; ask again. */
bool net_link_facts(struct net_link *link, struct net_link_facts *facts);
struct net_moved {               /* over the sockets to one process */
    uint64_t bytes;              /* that its kernel has acknowledged so far */
    uint64_t busy_us;            /* so long something was on its way so far */
    bool more;                   /* just now more lies ready than the path takes, or is sent again */
};
/* Call `each` for every process with sockets that are up. Any thread; false: another thread is at the sockets. */
bool net_links_moved(struct net_proc *proc, void (*each)(void *arg, int process, const struct net_moved *moved), void *arg);
/* One round over all sockets: accept, handshake, read, write. Never blocks; returns whether anything moved. Any thread; a
 * second caller returns false at once. */
bool net_progress(struct net_proc *proc);
/* Sleep until a socket of this process has something, at most timeout_ns. */
void net_sleep(struct net_proc *proc, uint64_t timeout_ns);
/* For the service thread: an epoll descriptor to wait on, then call net_progress. Data sockets are left out while callers are
 * inside. Whoever called this last is the service thread: callbacks come to it, in its net_progress. */
int net_proc_fd(struct net_proc *proc);
void net_enter(struct net_proc *proc);  /* a caller begins to poll by itself */
void net_leave(struct net_proc *proc);
bool net_idle(struct net_proc *proc);   /* nothing unsent or unacknowledged */
/* The process is about to exit with this status: goodbyes will say so. */
void net_proc_exits(struct net_proc *proc, int status);
/* Say goodbye on all links and wait until sent bytes are acknowledged, at most max_ns. */
void net_proc_drain(struct net_proc *proc, uint64_t max_ns);
void net_proc_free(struct net_proc *proc);
void net_proc_forked(struct net_proc *proc); /* in a forked child: close everything, touch nothing shared */

#endif
