/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net_segment.c - memory that other processes of this host can map: sealed memfds, opened by peers through
 * /proc/<pid>/fd/<fd>; some are also handed to tools as descriptors. Nothing has a name in a file system, so nothing is left
 * behind, whatever ends the process. Called by net_region, net_comm (slots), watch (boards) and by uno_mem_alloc.
 */
#include "net_private.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#define PAGE 4096u /* a unit of ours, the same for whoever maps a segment; the kernel's pages may be larger */

struct net_segment {
    struct net_segment *next;
    char *base;
    struct net_segment_ref ref;
    bool lendable; /* made by uno_mem_alloc: users' addresses may lie in it */
    bool retired;  /* part of it was detached after a failure: never lent or offered again */
    bool shown;    /* tools of the same user may have it */
    int users;     /* the owner, and other ranks of this process that mapped it */
};

/* A peer's segment that this process has mapped. */
struct mapping {
    struct mapping *next;
    struct net_segment_ref ref;
    char *base;
    int users;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct net_segment *own;
static struct mapping *mapped;
/* How many lendable segments there are: lets net_segment_find say no without the lock. Relaxed: a thread that lends memory has
 * itself seen uno_mem_alloc return. */
static _Atomic int lendable_count;
static _Atomic uint32_t freed; /* relaxed: who lends memory anew has itself seen uno_mem_free return */

void net_segments_forked(void)
{
    pthread_mutex_init(&lock, NULL); /* another thread may have held it */
}

size_t net_segment_rounded(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

/* The kernel gives any size, and ends the process when it is used. */
static bool beyond_memory(size_t bytes)
{
    struct sysinfo s;
    return sysinfo(&s) == 0 && (double)bytes > ((double)s.totalram + (double)s.totalswap) * s.mem_unit;
}

/* The last page of the memfd proves which segment it is; users never see it. */
static uno_err make_memfd(struct net_segment *s, size_t bytes, const char *name)
{
    size_t total = net_segment_rounded(bytes) + PAGE;
    if (beyond_memory(total))
        return err_set(UNO_ERR_MEMORY, "no shared memory of %zu bytes: they are more than this host's memory and swap", bytes);
    int fd = fault_hit("memfd") ? (errno = EMFILE, -1) : fd_above_standard(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (fd < 0)
        return err_sys("no shared memory of %zu bytes: memfd_create", bytes);
    void *p = MAP_FAILED;
    uno_err err = fd_resize(fd, total);
    if (err != UNO_OK) {
        close(fd);
        return err_wrap(err, "no shared memory of %zu bytes", bytes);
    }
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        p = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
        err = err_sys("no shared memory of %zu bytes: seals or mmap", bytes);
        close(fd);
        return err;
    }
    s->base = p;
    s->ref = (struct net_segment_ref){.pid = getpid(), .fd = fd, .bytes = net_segment_rounded(bytes)};
    if (getrandom(s->ref.token, sizeof s->ref.token, 0) != (ssize_t)sizeof s->ref.token) {
        err = err_sys("getrandom");
        munmap(p, total);
        close(fd);
        return err;
    }
    memcpy(s->base + s->ref.bytes, s->ref.token, sizeof s->ref.token);
    return UNO_OK;
}

uno_err net_segment_new(size_t bytes, const char *name, struct net_segment **seg, void **base)
{
    if (bytes > SIZE_MAX / 2)
        return err_set(UNO_ERR_MEMORY, "no shared memory of %zu bytes", bytes);
    struct net_segment *s = mem_zalloc(sizeof *s);
    if (!s)
        return UNO_ERR_MEMORY;
    uno_err err = make_memfd(s, bytes ? bytes : 1, name);
    if (err != UNO_OK) {
        free(s);
        return err;
    }
    pthread_mutex_lock(&lock);
    s->users = 1;
    s->next = own;
    own = s;
    pthread_mutex_unlock(&lock);
    *seg = s;
    *base = s->base;
    return UNO_OK;
}

/* Lock held. Ranks of this process share one mapping, so the last of them unmaps. */
static void drop_own(struct net_segment *seg)
{
    if (--seg->users > 0)
        return;
    for (struct net_segment **p = &own; *p; p = &(*p)->next)
        if (*p == seg) {
            *p = seg->next;
            break;
        }
    munmap(seg->base, seg->ref.bytes + PAGE);
    close(seg->ref.fd);
    free(seg);
}

void net_segment_free(struct net_segment *seg)
{
    if (!seg)
        return;
    pthread_mutex_lock(&lock);
    seg->lendable = false;
    drop_own(seg);
    pthread_mutex_unlock(&lock);
}

void net_segment_ref(const struct net_segment *seg, struct net_segment_ref *ref)
{
    *ref = seg->ref;
}

static bool same_segment(const struct net_segment_ref *a, const struct net_segment_ref *b)
{
    return a->token[0] == b->token[0] && a->token[1] == b->token[1];
}

/* Check and map a descriptor of another process, which stays open. Nothing read from it is believed before the checks are done. */
static uno_err map_checked(const struct net_segment_ref *ref, int fd, const char *what, char **base)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    if (fstat(fd, &st) != 0 || (uint64_t)st.st_size != ref->bytes + PAGE || seals < 0 ||
        (seals & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW))
        return err_set(UNO_ERR_UNREACHABLE, "%s has another size or lacks seals", what);
    char *p = mmap(NULL, ref->bytes + PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return err_sys("mapping %s", what);
    if (memcmp(p + ref->bytes, ref->token, sizeof ref->token) != 0) {
        munmap(p, ref->bytes + PAGE);
        return err_set(UNO_ERR_UNREACHABLE, "%s is memory of another job", what);
    }
    *base = p;
    return UNO_OK;
}

static uno_err open_peer(const struct net_segment_ref *ref, char **base)
{
    char path[64], link[64] = "";
    snprintf(path, sizeof path, "/proc/%d/fd/%d", ref->pid, ref->fd);
    if (fault_hit("map"))
        return err_set(UNO_ERR_UNREACHABLE, "%s: refused by a test", path);
    ssize_t n = readlink(path, link, sizeof link - 1);
    if (n < 0)
        return err_set(UNO_ERR_UNREACHABLE, "memory of process %d cannot be opened (%s: %s)", ref->pid, path, strerror(errno));
    if (strncmp(link, "/memfd:unisono", 14) != 0)
        return err_set(UNO_ERR_UNREACHABLE, "%s is not memory of this job (another process namespace?)", path);
    int fd = fd_above_standard(open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (fd < 0)
        return err_set(UNO_ERR_UNREACHABLE, "memory of process %d cannot be opened (%s: %s)", ref->pid, path, strerror(errno));
    uno_err err = map_checked(ref, fd, path, base);
    close(fd);
    return err;
}

/* fd: it was handed over; -1 = to be opened. */
static uno_err map_new(const struct net_segment_ref *ref, int fd, void **base)
{
    char what[40];
    if (ref->bytes == 0 || ref->bytes % PAGE || ref->bytes > (uint64_t)1 << 46)
        return err_set(UNO_ERR_UNREACHABLE, "a peer offers a segment of impossible size %llu", (unsigned long long)ref->bytes);
    struct mapping *m = mem_zalloc(sizeof *m);
    if (!m)
        return UNO_ERR_MEMORY;
    snprintf(what, sizeof what, "memory of process %d", ref->pid);
    uno_err err = fd < 0 ? open_peer(ref, &m->base) : map_checked(ref, fd, what, &m->base);
    if (err != UNO_OK) {
        free(m);
        return err;
    }
    m->ref = *ref;
    m->users = 1;
    m->next = mapped;
    mapped = m;
    *base = m->base;
    return UNO_OK;
}

static struct net_segment *own_of(const uint64_t token[2])
{
    for (struct net_segment *s = own; s; s = s->next)
        if (s->ref.token[0] == token[0] && s->ref.token[1] == token[1])
            return s;
    return NULL;
}

static uno_err map_locked(const struct net_segment_ref *ref, int fd, void **base)
{
    struct net_segment *s = ref->pid == getpid() ? own_of(ref->token) : NULL;
    if (s && s->ref.bytes == ref->bytes) {
        s->users++;
        *base = s->base;
        return UNO_OK;
    }
    for (struct mapping *m = mapped; m; m = m->next)
        if (same_segment(&m->ref, ref)) {
            if (m->ref.bytes != ref->bytes)
                return err_set(UNO_ERR_UNREACHABLE, "process %d gives a segment two sizes", ref->pid);
            m->users++;
            *base = m->base;
            return UNO_OK;
        }
    return map_new(ref, fd, base);
}

uno_err net_segment_map(const struct net_segment_ref *ref, void **base)
{
    pthread_mutex_lock(&lock);
    uno_err err = map_locked(ref, -1, base);
    pthread_mutex_unlock(&lock);
    return err;
}

uno_err net_segment_map_given(const struct net_segment_ref *ref, int fd, void **base)
{
    pthread_mutex_lock(&lock);
    uno_err err = map_locked(ref, fd, base);
    pthread_mutex_unlock(&lock);
    close(fd);
    return err;
}

void net_segment_show(const struct net_segment_ref *ref)
{
    pthread_mutex_lock(&lock);
    struct net_segment *s = own_of(ref->token);
    if (s)
        s->shown = true;
    pthread_mutex_unlock(&lock);
}

int net_segment_give(const uint64_t token[2], struct net_segment_ref *ref)
{
    pthread_mutex_lock(&lock); /* its owner closes it under the same lock */
    const struct net_segment *s = own_of(token);
    int fd = s && s->shown ? fcntl(s->ref.fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1) : -1;
    if (fd >= 0)
        *ref = s->ref;
    pthread_mutex_unlock(&lock);
    return fd;
}

void net_segment_unmap(const struct net_segment_ref *ref)
{
    pthread_mutex_lock(&lock);
    for (struct net_segment *s = own; s && ref->pid == getpid(); s = s->next)
        if (same_segment(&s->ref, ref)) {
            drop_own(s);
            break;
        }
    for (struct mapping **p = &mapped; *p; p = &(*p)->next) {
        struct mapping *m = *p;
        if (!same_segment(&m->ref, ref))
            continue;
        if (--m->users == 0) {
            *p = m->next;
            munmap(m->base, m->ref.bytes + PAGE);
            free(m);
        }
        break;
    }
    pthread_mutex_unlock(&lock);
}

bool net_segment_find(const void *ptr, size_t bytes, struct net_segment_ref *ref, uint64_t *offset)
{
    if (atomic_load_explicit(&lendable_count, memory_order_relaxed) == 0)
        return false;
    bool found = false;
    const char *p = ptr;
    pthread_mutex_lock(&lock);
    for (struct net_segment *s = own; s && !found; s = s->next)
        if (s->lendable && !s->retired && p >= s->base && bytes <= s->ref.bytes && (size_t)(p - s->base) <= s->ref.bytes - bytes) {
            *ref = s->ref;
            *offset = (uint64_t)(p - s->base);
            found = true;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

bool net_segment_lendable(const struct net_segment_ref *ref)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (const struct net_segment *s = own; s && !found; s = s->next)
        found = s->lendable && same_segment(&s->ref, ref);
    pthread_mutex_unlock(&lock);
    return found;
}

uint32_t net_mem_freed(void)
{
    return atomic_load_explicit(&freed, memory_order_relaxed);
}

void net_segment_retire(const void *ptr)
{
    const char *p = ptr;
    pthread_mutex_lock(&lock);
    for (struct net_segment *s = own; s; s = s->next)
        if (s->lendable && p >= s->base && p < s->base + s->ref.bytes)
            s->retired = true;
    pthread_mutex_unlock(&lock);
}

uno_err net_mem_alloc(void **ptr, size_t bytes)
{
    struct net_segment *s = NULL;
    TRY(net_segment_new(bytes, "unisono-user", &s, ptr));
    pthread_mutex_lock(&lock);
    s->lendable = true;
    pthread_mutex_unlock(&lock);
    atomic_fetch_add_explicit(&lendable_count, 1, memory_order_relaxed);
    return UNO_OK;
}

uno_err net_mem_free(void *ptr)
{
    struct net_segment *s;
    pthread_mutex_lock(&lock);
    for (s = own; s; s = s->next)
        if (s->lendable && s->base == ptr)
            break;
    if (s)
        s->lendable = false;
    pthread_mutex_unlock(&lock);
    if (!s)
        return err_set(UNO_ERR_ARG, "uno_mem_free: %p was not returned by uno_mem_alloc", ptr);
    atomic_fetch_sub_explicit(&lendable_count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&freed, 1, memory_order_relaxed);
    net_segment_free(s);
    return UNO_OK;
}
