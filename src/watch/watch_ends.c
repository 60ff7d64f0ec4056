/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_ends.c - how processes ended, told by who started them. The launcher's process of a host makes the table and is its only
 * writer; ranks map it for reading and each notes one thing with a write of its own, its cgroup. Whoever has the descriptor was given it by the
 * launcher, as the secret. What stands there is checked before it is believed, for the descriptor may by now be another file's.
 */
#include "watch/watch_ends.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "watch/watch.h"
#include "watch/watch_proc.h"
#include "watch/watch_process.h"

#define ENDS_MAGIC 0x73646e656f6e7531ull
#define MOST_RANKS (1 << 20)
#define SHOW_NS 50000000ull /* so long a launcher has to look */
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

struct ends_noted { uint64_t oom_kills; char cgroup[sizeof((uno_end *)0)->cgroup]; }; /* cgroup: "" = nothing was noted */
struct ends_entry {
    _Atomic uint32_t there;      /* release, after end; pairs with the acquire in ends_find */
    _Atomic uint32_t looked;     /* the launcher has seen what the process shows of itself. Relaxed: nothing is passed through it */
    uno_end end;
    struct ends_noted noted;     /* by the rank */
};
struct ends_page {
    uint64_t magic;
    uint32_t version;
    int32_t size;
    int32_t pid, ask;            /* of the launcher's process, and the signal that wakes it; 0 = it does not ask */
    _Atomic uint32_t changes;    /* release, after what changed */
    _Atomic uint32_t begun;      /* 0 = no; 1 + signal. Relaxed: it stands before the signals that follow from it */
    struct ends_entry entry[];
};
struct ends {
    int fd;
    size_t bytes;
    struct ends_page *page;      /* ends_open: for reading only */
};

static size_t page_bytes(int size)
{
    return sizeof(struct ends_page) + (size_t)size * sizeof(struct ends_entry);
}

/* ---- the launcher's side ------------------------------------------------------------------------------------------------ */

uno_err ends_new(int size, struct ends **ends)
{
    if (size < 1 || size > MOST_RANKS)
        return err_set(UNO_ERR_ARG, "uno_ends_new: %d processes; 1 to %d are possible", size, MOST_RANKS);
    struct ends *e = mem_zalloc(sizeof *e);
    if (!e)
        return UNO_ERR_MEMORY;
    e->bytes = page_bytes(size);
    e->fd = fd_above_standard(memfd_create("unisono-ends", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    void *base = MAP_FAILED;
    uno_err err = e->fd < 0 ? err_sys("memfd_create") : fd_resize(e->fd, e->bytes);
    if (err == UNO_OK && fcntl(e->fd, F_ADD_SEALS, SEALS | F_SEAL_SEAL) == 0)
        base = mmap(NULL, e->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, e->fd, 0);
    if (base == MAP_FAILED) {
        err = err_wrap(err != UNO_OK ? err : err_sys("seals or mmap"), "no memory for the table of how %d processes end", size);
        if (e->fd >= 0)
            close(e->fd);
        free(e);
        return err;
    }
    e->page = base;
    e->page->version = UNO_VERSION;
    e->page->size = size;
    e->page->magic = ENDS_MAGIC;
    *ends = e;
    return UNO_OK;
}

int ends_fd(const struct ends *e)
{
    return e->fd;
}

void ends_ask(struct ends *e, int signal)
{
    e->page->pid = getpid();
    e->page->ask = signal;
}

void ends_looked(struct ends *e, int rank)
{
    if (rank >= 0 && rank < e->page->size)
        atomic_store_explicit(&e->page->entry[rank].looked, 1, memory_order_relaxed);
}

static void changed(struct ends *e)
{
    atomic_fetch_add_explicit(&e->page->changes, 1, memory_order_release); /* pairs with the acquire in ends_changes */
}

void ends_begin(struct ends *e, int signal)
{
    atomic_store_explicit(&e->page->begun, 1 + (uint32_t)signal, memory_order_relaxed);
    changed(e);
}

/* What is told of a process once is final. */
static void put(struct ends *e, const uno_end *end)
{
    struct ends_entry *at = &e->page->entry[end->rank];
    if (atomic_load_explicit(&at->there, memory_order_relaxed))
        return;
    at->end = *end;
    atomic_store_explicit(&at->there, 1, memory_order_release); /* pairs with the acquire in ends_find */
    changed(e);
}

/* One kill explains one death: the count it was noticed with is the new start for the others of that cgroup. */
static void look_for_oom(struct ends *e, uno_end *end)
{
    struct ends_noted *noted = &e->page->entry[end->rank].noted;
    noted->cgroup[sizeof noted->cgroup - 1] = 0;
    uint64_t kills = end->status == SIGKILL ? proc_oom_kills(noted->cgroup) : 0;
    if (kills <= noted->oom_kills)
        return;
    end->oom_kill = 1;
    memcpy(end->cgroup, noted->cgroup, sizeof end->cgroup);
    for (int r = 0; r < e->page->size; r++) {
        struct ends_noted *other = &e->page->entry[r].noted;
        if (strncmp(other->cgroup, end->cgroup, sizeof other->cgroup) == 0)
            other->oom_kills = MIN(kills, other->oom_kills + 1);
    }
}

void ends_seen(struct ends *e, int rank, int pid, int status, uno_end *end)
{
    uint32_t begun = e ? atomic_load_explicit(&e->page->begun, memory_order_relaxed) : 0;
    *end = (uno_end){.kind = UNO_END_SEEN, .rank = rank, .pid = pid, .status = status};
    if (!e || rank < 0 || rank >= e->page->size)
        return;
    look_for_oom(e, end);
    if (begun && status == SIGKILL && !end->oom_kill) {
        end->kind = UNO_END_ENDED;
        end->signal = (int)begun - 1;
    }
    put(e, end);
}

uno_err ends_put(struct ends *e, const uno_end *end)
{
    uno_end own = *end;
    own.cgroup[sizeof own.cgroup - 1] = 0;
    text_clean(own.cgroup, strlen(own.cgroup), false);
    if (own.kind < UNO_END_SEEN || own.kind > UNO_END_LOST || own.rank < 0 || own.rank >= e->page->size || own.signal < 0 || own.signal >= NSIG)
        return err_set(UNO_ERR_PARSE, "the end of process %d of %d, of kind %d", own.rank, e->page->size, own.kind);
    put(e, &own);
    return UNO_OK;
}

/* ---- the ranks' side ------------------------------------------------------------------------------------------------------ */

static bool page_check(const struct ends_page *p, size_t bytes)
{
    return p->magic == ENDS_MAGIC && p->version == UNO_VERSION && p->size > 0 && p->size <= MOST_RANKS && page_bytes(p->size) == bytes;
}

static uno_err map(struct ends *e)
{
    struct stat st;
    int seals = fcntl(e->fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS || fstat(e->fd, &st) != 0 || st.st_size < (off_t)page_bytes(1) || st.st_size > (off_t)page_bytes(MOST_RANKS))
        return err_set(UNO_ERR_CONFIG, "it is not a launcher's table; only a launcher should set it");
    e->bytes = (size_t)st.st_size;
    void *base = mmap(NULL, e->bytes, PROT_READ, MAP_SHARED, e->fd, 0);
    if (base == MAP_FAILED)
        return err_sys("it cannot be mapped");
    e->page = base;
    if (page_check(base, e->bytes))
        return UNO_OK;
    munmap(base, e->bytes);
    return err_set(UNO_ERR_UNSUPPORTED, "it was made by another version of this library, or is another file");
}

struct ends *ends_open(const char *descriptor)
{
    int64_t fd;
    if (!descriptor || !descriptor[0])
        return NULL;
    struct ends *e = mem_zalloc(sizeof *e);
    uno_err err = e ? text_parse_int(descriptor, 0, 1 << 20, &fd) : UNO_ERR_MEMORY;
    if (err == UNO_OK) {
        e->fd = (int)fd;
        err = map(e);
    }
    if (err == UNO_OK) {
        fcntl(e->fd, F_SETFD, FD_CLOEXEC); /* stays open: a process may join several times */
        return e;
    }
    LOG(LOG_INFO, LOG_WATCH, "UNISONO_ENDS_FD=%s: %s; how processes of other hosts end may not be known here", descriptor, err_text());
    free(e);
    return NULL;
}

void ends_free(struct ends *e)
{
    if (e)
        close(e->fd);
    ends_close(e);
}

void ends_close(struct ends *e)
{
    if (e)
        munmap(e->page, e->bytes);
    free(e);
}

void ends_note(const struct ends *e, int launched, const char *cgroup, uint64_t oom_kills)
{
    struct ends_noted noted = {.oom_kills = oom_kills};
    if (!e || launched < 0 || launched >= e->page->size || strlen(cgroup) >= sizeof noted.cgroup)
        return;
    snprintf(noted.cgroup, sizeof noted.cgroup, "%s", cgroup);
    off_t at = (off_t)((const char *)&e->page->entry[launched].noted - (const char *)e->page);
    struct fd_hold hold;
    fd_hold_signal(&hold);
    ssize_t n = pwrite(e->fd, &noted, sizeof noted, at);
    fd_release_signal(&hold);
    if (n != (ssize_t)sizeof noted)
        LOG(LOG_INFO, LOG_WATCH, "the launcher will not know whether memory was the reason when this process is killed: %s", strerror(errno));
}

/* Only the parent is signalled: in another pid namespace the number is somebody else's. */
void ends_show(const struct ends *e, int launched)
{
    int ask = e && launched >= 0 && launched < e->page->size ? e->page->ask : 0;
    if (ask <= 0 || ask >= NSIG || getppid() != e->page->pid || kill(e->page->pid, ask) != 0)
        return;
    const struct ends_entry *own = &e->page->entry[launched];
    for (uint64_t until = clock_ns() + SHOW_NS; !atomic_load_explicit(&own->looked, memory_order_relaxed) && clock_ns() < until;)
        usleep(100);
}

uint32_t ends_changes(const struct ends *e)
{
    return e ? atomic_load_explicit(&e->page->changes, memory_order_acquire) : 0; /* pairs with the release in changed */
}

bool ends_find(const struct ends *e, int launched, int32_t pid, uno_end *end)
{
    if (!e || launched < 0 || launched >= e->page->size || !atomic_load_explicit(&e->page->entry[launched].there, memory_order_acquire))
        return false; /* pairs with the release in put */
    *end = e->page->entry[launched].end;
    end->cgroup[sizeof end->cgroup - 1] = 0;
    return end->pid == pid;
}

bool ends_begun(const struct ends *e, int *signal)
{
    uint32_t begun = e ? atomic_load_explicit(&e->page->begun, memory_order_relaxed) : 0;
    *signal = begun ? (int)(begun - 1) : 0;
    return begun != 0;
}

#define AGENT "the agent of unisono run on its host"
char *ends_text(const uno_end *end, char *buf, size_t buf_bytes)
{
    char how[96];
    const char *name = end->signal > 0 ? sigabbrev_np(end->signal) : NULL;
    process_status_text(end->status, how, sizeof how);
    if (end->kind == UNO_END_LOST)
        snprintf(buf, buf_bytes, "has ended without leaving the job; " AGENT ", which would know how, %s, and ranks end with it", how);
    else if (end->kind == UNO_END_ENDED && end->signal > 0)
        snprintf(buf, buf_bytes, "was ended by " AGENT ", which was itself ended by signal %d (%s%s)", end->signal,
                 name ? "SIG" : "no name", name ? name : "");
    else if (end->kind == UNO_END_ENDED)
        snprintf(buf, buf_bytes, "was ended by " AGENT ", which had lost its launcher");
    else if (end->oom_kill)
        snprintf(buf, buf_bytes, "%s, for the kernel was out of memory (oom_kill in memory.events of %.120s)", how, end->cgroup);
    else
        snprintf(buf, buf_bytes, "%s", how);
    return buf;
}
