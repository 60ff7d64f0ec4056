/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net_read.c - private memory of the sender as lent memory: the receiver reads it with process_vm_readv. Whether the kernel lets a
 * rank do that is tried when a communicator is made. Whether it pays depends on where the two processors are, and that changes
 * while a job runs: each receiver measures what a byte costs it either way and tells its senders which way it wants messages of
 * each length. Once in a while it asks for two messages the other way, so that it goes on knowing. A sender follows or not; a message
 * is right either way.
 *
 * A process number may be given anew, and a process may become another program by exec, while a reader is stopped just before it reads.
 * Each read therefore begins with the token of the lender's region: one call reads from one address space, and only the lender's has
 * that token at that place.
 */
#include "net_private.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#define WARM 4194304u /* bytes by slots before the first look: new memory is slow until it has been touched */
#define TRY_FIRST 32  /* messages of a length before the second look at the other way; the next one comes after twice as many ... */
#define TRY_MOST 256  /* ... at most this many, but after TRY_FIRST when what messages cost has changed by half */
#define LOOKS 2       /* messages of a look: the first finds cold caches, and memory that was never touched */

/* The kernel copies with `rep movsb`, and on AMD's Zen 3 that takes five times as long (1 MB: 0.7 ms instead of 0.13) when the
 * destination lies less than a line after the source, modulo the page. */
#define PAGE 4096u
#define SHADOW 64u    /* found: from 1 to 31 bytes */
#define CLEAR_OF 128u /* after the source is well; 0 is 20 % slower */
#define DETOUR 65536u /* bytes of a piece that is read clear of the shadow and copied from there, still in the cache */

static int length_class(uint64_t bytes)
{
    int c = 63 - __builtin_clzll(bytes | 1) - NET_READ_MIN_SHIFT;
    return MIN(c, NET_READ_CLASSES - 1); /* below 0: never read */
}

void net_read_probe(struct net_comm *c)
{
    struct net_region *own = c->opt.region;
    long warm = fault_value("warm");
    c->warm = warm > 0 ? (uint64_t)warm : WARM;
    c->read_on = warm > 0;
    bool all = c->opt.lend && !fault_hit("read");
    for (int i = 0; i < c->ngroup && all; i++) {
        const struct net_peer *p = &c->peers[c->group[i]];
        uint64_t magic = 0;
        struct iovec here = {&magic, sizeof magic}, there = {(void *)(uintptr_t)p->region->self, sizeof magic};
        if (p->carrier != NET_SHM)
            continue;
        all = process_vm_readv(p->pid, &here, 1, &there, 1, 0) == (ssize_t)sizeof magic && magic == NET_REGION_MAGIC;
        if (!all && errno != ESRCH)
            LOG(LOG_INFO, LOG_MEM, "rank %d may not read the memory of rank %d (%s; kernel.yama.ptrace_scope, or a container): messages "
                "are copied", c->opt.rank, c->group[i], strerror(errno));
    }
    /* relaxed: whoever sees it late copies */
    atomic_store_explicit(&own->reads, all && c->ngroup > 0, memory_order_relaxed);
}

/* A word of wishes: a bit per length class, "read", and above them a bit per class that changes when the other way is to be looked at. */
static uint32_t wants_read(int class)
{
    return 1u << class;
}

static uint32_t look_bit(int class)
{
    return 1u << (NET_READ_CLASSES + class);
}
_Static_assert(2 * NET_READ_CLASSES <= 32, "all wishes are one word");

bool net_read_next(struct net_end *e, uint64_t bytes)
{
    int class = length_class(bytes);
    if (class < 0 || e->group || e->carrier != NET_SHM || !atomic_load_explicit(&e->readers[0]->reads, memory_order_relaxed))
        return false;
    uint32_t wish = atomic_load_explicit(e->wish, memory_order_relaxed);
    bool look = (wish ^ e->looked) & look_bit(class), want = wish & wants_read(class);
    if (look && ++e->looks[class] == LOOKS) {
        e->looked ^= look_bit(class);
        e->looks[class] = 0;
    }
    return want != look;
}

/* Who is the cause? A lender whose operation failed, or whose process ended, is explained by whoever learns why; only what is left
 * is a matter of this read. */
static uno_err not_read(struct net_end *e, const struct net_slot *head, int32_t pid, int error)
{
    if (net_loan_withdrawn(head))
        return e->failed = err_set(UNO_ERR_ABORTED, "rank %d took back memory that it had lent", e->peer);
    if (error == ENOMEM)
        return e->failed = err_set(UNO_ERR_MEMORY, "the kernel has no memory to read what rank %d lends", e->peer);
    const char *why = error == EFAULT ? "it is not mapped there any more: were the buffers freed during the call?"
                      : error == EPERM ? "the kernel forbids it since the communicator was made; UNISONO_LEND=0 copies instead"
                      : error == ESRCH ? "its process has ended"
                      : error == ESTALE ? "another program, or another process, has that number now" : strerror(error);
    return e->failed = err_set(UNO_ERR_UNREACHABLE, "memory that rank %d (pid %d) lends cannot be read: %s", e->peer, pid, why);
}

/* Some of it; -1 with errno. ESTALE: this is not the address space that lent it. */
static ssize_t read_some(const struct net_peer *p, int size, void *dst, uint64_t address, uint64_t bytes)
{
    uint64_t at = net_segment_rounded(net_region_bytes(size));
    struct net_segment_ref proof;
    const size_t own = sizeof proof.token;
    struct iovec here[2] = {{proof.token, own}, {dst, bytes}};
    struct iovec there[2] = {{(void *)(uintptr_t)(p->region->self + at), own}, {(void *)(uintptr_t)address, bytes}};
    if (fault_hit("read_late"))
        raise(SIGSTOP);
    ssize_t n = process_vm_readv(p->pid, here, 2, there, 2, 0);
    bool lent = n >= (ssize_t)own && memcmp(proof.token, (const char *)p->region + at, own) == 0;
    if (lent && n > (ssize_t)own)
        return n - (ssize_t)own;
    if (n >= 0 || errno == EFAULT)
        errno = lent ? EFAULT : ESTALE;
    return -1;
}

static uno_err read_all(struct net_end *e, const struct net_slot *head, void *dst, uint64_t address, uint64_t bytes)
{
    const struct net_peer *p = &e->comm->peers[e->peer];
    for (uint64_t done = 0; done < bytes;) {
        ssize_t n = read_some(p, e->comm->opt.size, (char *)dst + done, address + done, bytes - done);
        if (n < 0)
            return not_read(e, head, p->pid, errno);
        done += (uint64_t)n;
    }
    return UNO_OK;
}

/* A place for `bytes` from `address`, as well aligned as they are (to CLEAR_OF bytes), and out of the shadow. */
static char *place_aside(struct net_end *e, uint64_t address, uint64_t bytes)
{
    if (bytes > e->aside_bytes) {
        char *fresh = mem_zalloc(bytes + PAGE);
        if (!fresh) {
            e->failed = UNO_ERR_MEMORY;
            return NULL;
        }
        free(e->aside);
        e->aside = fresh;
        e->aside_bytes = bytes;
    }
    return e->aside + (address + CLEAR_OF - (uintptr_t)e->aside) % PAGE;
}

uno_err net_read(struct net_end *e, const struct net_slot *head, void *dst, uint64_t bytes)
{
    uint64_t address = head->address, ahead = ((uintptr_t)dst - address) % PAGE;
    bool shadow = ahead > 0 && ahead < SHADOW;
    for (uint64_t done = 0, piece; done < bytes; done += piece) {
        piece = shadow ? MIN(bytes - done, DETOUR) : bytes;
        char *to = (char *)dst + done, *place = shadow ? place_aside(e, address + done, piece) : to;
        if (!place)
            return UNO_ERR_MEMORY;
        TRY(read_all(e, head, place, address + done, piece));
        if (shadow)
            memcpy(to, place, piece);
    }
    e->lent_bytes += bytes;
    return UNO_OK;
}

const void *net_read_aside(struct net_end *e, const struct net_slot *head, uint64_t bytes)
{
    uint64_t address = head->address; /* read once: it is the peer's */
    char *place = place_aside(e, address, bytes);
    if (!place || read_all(e, head, place, address, bytes) != UNO_OK)
        return NULL;
    e->lent_bytes += bytes;
    return place;
}

/* Down at once, up slowly: what disturbed one measurement is forgotten, what lasts is believed. */
static void learn(uint32_t *known, uint64_t ns)
{
    uint32_t up = *known + *known / 8 + 1, seen = (uint32_t)MIN(ns, UINT32_MAX / 2);
    *known = *known == 0 ? MAX(seen, 1) : MIN(seen, up);
}

void net_note_copied(struct net_end *e, uint64_t bytes, uint64_t ns)
{
    learn(&e->comm->copy_ns[length_class(bytes)], ns);
}

static void tell(struct net_end *e, int class, bool want, bool look)
{
    uint32_t wish = atomic_load_explicit(e->wish, memory_order_relaxed);
    uint32_t fresh = (want ? wish | wants_read(class) : wish & ~wants_read(class)) ^ (look ? look_bit(class) : 0);
    if (fresh != wish)
        atomic_store_explicit(e->wish, fresh, memory_order_relaxed); /* one writer; a sender that sees it late does the other thing */
}

void net_note_received(struct net_end *e, bool read, uint64_t bytes, uint64_t ns, bool sends)
{
    if (!e->taste && !(e->taste = mem_array(NET_READ_CLASSES, sizeof *e->taste)))
        return; /* nothing is learned */
    int class = length_class(bytes);
    struct net_taste *t = &e->taste[class];
    learn(read ? &t->read_ns : &t->slot_ns, ns);
    t->by_slots += read ? 0 : bytes;
    if (t->by_slots < e->comm->warm)
        return;
    uint32_t copy_ns = e->comm->copy_ns[class], slots_ns = sends ? t->slot_ns + copy_ns : MAX(t->slot_ns, copy_ns);
    bool reading = t->read_ns > 0 && (e->comm->read_on || t->read_ns < slots_ns);
    uint32_t cost = reading ? t->read_ns : t->slot_ns;
    if (2 * (uint64_t)cost > 3 * (uint64_t)t->cost_then || 3 * (uint64_t)cost < 2 * (uint64_t)t->cost_then) {
        t->cost_then = cost;
        t->interval = TRY_FIRST;
        t->wait = MIN(t->wait, TRY_FIRST);
    }
    bool look = t->wait == 0;
    t->wait = look ? t->interval : t->wait - 1;
    if (look)
        t->interval = MIN(t->interval * 2, TRY_MOST);
    tell(e, class, reading, look);
}
