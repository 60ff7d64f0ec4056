/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_board.c - the board of a process as its owner writes it (watch_board.h). Written at joining, splitting and destroying, and
 * when a report is asked for; never on the way of an operation.
 */
#include "watch/watch_board.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "watch/watch_proc.h"
#include "watch/watch_stack.h"

/* ---- where the program is, in its own words --------------------------------------------------------------------------- */

/* Set by the binding, asked by stewards. The lock is held while the callback runs, so that it works until it is replaced. */
static struct { pthread_mutex_t lock; watch_position_fn ask; void *arg; } position = {.lock = PTHREAD_MUTEX_INITIALIZER};

void watch_set_position(watch_position_fn ask, void *arg)
{
    pthread_mutex_lock(&position.lock);
    position.ask = ask;
    position.arg = arg;
    pthread_mutex_unlock(&position.lock);
}

void board_position(struct watch_board *b)
{
    char text[BOARD_POSITION_BYTES] = "";
    pthread_mutex_lock(&position.lock);
    bool asked = position.ask != NULL;
    size_t n = asked ? position.ask(position.arg, text, sizeof text) : 0;
    pthread_mutex_unlock(&position.lock);
    if (!asked)
        return;
    text[MIN(n, sizeof text - 1)] = 0;
    pthread_mutex_lock(&b->lock);
    notes_begin(&b->page->position_seq);
    memcpy(b->page->position, text, sizeof text);
    b->page->position_ns = clock_ns();
    notes_end(&b->page->position_seq);
    pthread_mutex_unlock(&b->lock);
}

static _Atomic uint32_t made; /* boards that there are now; relaxed: a number for tools that look for more */

uint32_t watch_boards(void)
{
    return atomic_load_explicit(&made, memory_order_relaxed);
}

/* ---- modules ---------------------------------------------------------------------------------------------------------- */

static void write_modules(struct board_page *p)
{
    struct proc_map maps[BOARD_MODULES];
    size_t n = proc_maps("self", maps, BOARD_MODULES);
    notes_begin(&p->modules_seq);
    p->nmodules = 0;
    for (size_t i = 0; i < n; i++) {
        struct board_module *m = &p->modules[p->nmodules++];
        const char *slash = strrchr(maps[i].path, '/');
        *m = (struct board_module){.start = maps[i].start, .end = maps[i].end, .offset = maps[i].offset};
        snprintf(m->name, sizeof m->name, "%.39s", slash ? slash + 1 : maps[i].path);
    }
    notes_end(&p->modules_seq);
}

/* true: some module holds it. */
SEQLOCK_READER static bool find_module(const struct board_page *p, uint64_t address, struct board_module *found)
{
    uint32_t n = MIN(p->nmodules, (uint32_t)BOARD_MODULES);
    for (uint32_t i = 0; i < n; i++) {
        const struct board_module *m = &p->modules[i];
        if (address < m->start || address >= m->end)
            continue;
        found->start = m->start;
        found->offset = m->offset;
        for (size_t b = 0; b < sizeof found->name; b++)
            found->name[b] = ((const volatile char *)m->name)[b];
        found->name[sizeof found->name - 1] = 0;
        return true;
    }
    return false;
}

char *board_site(const struct board_page *p, uint64_t address, char *buf, size_t buf_bytes)
{
    enum { TRIES = 100 };
    snprintf(buf, buf_bytes, "0x%llx", (unsigned long long)address);
    for (int i = 0; i < TRIES; i++) {
        uint32_t before = atomic_load_explicit(&p->modules_seq, memory_order_acquire); /* pairs with the release in notes_end */
        struct board_module m;
        if (before & 1)
            continue;
        bool found = find_module(p, address, &m);
        atomic_thread_fence(memory_order_acquire); /* pairs with the release fence in notes_begin */
        if (atomic_load_explicit(&p->modules_seq, memory_order_relaxed) != before)
            continue;
        if (found)
            snprintf(buf, buf_bytes, "%s+0x%llx", m.name, (unsigned long long)(address - m.start + m.offset));
        break;
    }
    return buf;
}

/* ---- the page ----------------------------------------------------------------------------------------------------------- */

uno_err watch_board_new(uint64_t job, int rank, int size, bool stacks, struct watch_board **board)
{
    struct watch_board *b = mem_zalloc(sizeof *b);
    void *base;
    if (!b)
        return UNO_ERR_MEMORY;
    uno_err err = net_segment_new(sizeof *b->page, "unisono-board", &b->segment, &base);
    if (err != UNO_OK) {
        free(b);
        return err_wrap(err, "the board that tells others of this process's communicators");
    }
    pthread_mutex_init(&b->lock, NULL);
    struct board_page *p = b->page = base;
    p->version = UNO_VERSION;
    p->bytes = sizeof *p;
    p->job = job;
    p->rank = rank;
    p->size = size;
    p->pid = getpid();
    p->uid = (uint32_t)getuid();
    p->start_ticks = watch_start_ticks(p->pid);
    p->start_stack = proc_start_stack(p->pid);
    p->made_ns = clock_ns();
    gethostname(p->hostname, sizeof p->hostname - 1);
    proc_program(p->pid, p->program, sizeof p->program);
    proc_cgroup("self", p->cgroup, sizeof p->cgroup);
    p->oom_kills = proc_oom_kills(p->cgroup);
    write_modules(p);
    if (stacks)
        stack_serve(p);
    else
        atomic_store_explicit(&p->stack_signal, BOARD_STACKS_OFF, memory_order_relaxed); /* nobody has this page yet */
    p->magic = BOARD_MAGIC;
    struct net_segment_ref ref;
    net_segment_ref(b->segment, &ref);
    net_segment_show(&ref);
    atomic_fetch_add_explicit(&made, 1, memory_order_relaxed);
    *board = b;
    return UNO_OK;
}

void watch_board_ref(const struct watch_board *b, struct net_segment_ref *ref)
{
    net_segment_ref(b->segment, ref);
}

/* A free place, or the one that was destroyed first. */
static struct board_comm *place_for(struct board_page *p)
{
    struct board_comm *oldest = NULL;
    for (int i = 0; i < BOARD_COMMS; i++) {
        struct board_comm *c = &p->comms[i];
        uint32_t state = atomic_load_explicit(&c->state, memory_order_relaxed); /* only owners write it */
        if (state == BOARD_FREE)
            return c;
        if (state == BOARD_DESTROYED && (!oldest || c->gone_ns < oldest->gone_ns))
            oldest = c;
    }
    return oldest;
}

void watch_board_add(struct watch_board *b, uint64_t comm_id, int rank, const struct net_segment_ref *region)
{
    struct board_page *p = b->page;
    net_segment_show(region);
    pthread_mutex_lock(&b->lock);
    struct board_comm *c = place_for(p);
    if (c) {
        atomic_store_explicit(&c->state, BOARD_FREE, memory_order_relaxed);
        atomic_thread_fence(memory_order_release); /* FREE before the fields, for who looks twice */
        c->id = comm_id;
        c->rank = rank;
        c->region = *region;
        c->gone_ns = 0;
        atomic_store_explicit(&c->state, BOARD_LIVE, memory_order_release);
    } else {
        atomic_fetch_add_explicit(&p->unlisted, 1, memory_order_relaxed);
    }
    write_modules(p); /* what was loaded since joining may call from now on */
    atomic_fetch_add_explicit(&p->changes, 1, memory_order_release);
    pthread_mutex_unlock(&b->lock);
}

void watch_board_remove(struct watch_board *b, uint64_t comm_id, int rank)
{
    struct board_page *p = b->page;
    pthread_mutex_lock(&b->lock);
    for (int i = 0; i < BOARD_COMMS; i++) {
        struct board_comm *c = &p->comms[i];
        if (atomic_load_explicit(&c->state, memory_order_relaxed) != BOARD_LIVE || c->id != comm_id || c->rank != rank)
            continue;
        c->gone_ns = clock_ns();
        atomic_store_explicit(&c->state, BOARD_DESTROYED, memory_order_release);
        atomic_fetch_add_explicit(&p->changes, 1, memory_order_release);
        break;
    }
    pthread_mutex_unlock(&b->lock);
}

void watch_board_free(struct watch_board *b)
{
    if (!b)
        return;
    stack_forget(b->page);
    atomic_fetch_sub_explicit(&made, 1, memory_order_relaxed);
    net_segment_free(b->segment);
    pthread_mutex_destroy(&b->lock);
    free(b);
}

void watch_boards_forked(void)
{
    stack_forked();
    atomic_store_explicit(&made, 0, memory_order_relaxed);
    pthread_mutex_init(&position.lock, NULL); /* a steward of the parent may have held it */
    position.ask = NULL;
}

/* ---- as others read it ------------------------------------------------------------------------------------------------------ */

bool board_page_check(const struct board_page *p, uint64_t bytes)
{
    return bytes >= sizeof *p && p->magic == BOARD_MAGIC && p->version == UNO_VERSION && p->bytes == sizeof *p;
}

SEQLOCK_READER void board_position_read(const struct board_page *p, char *buf, size_t buf_bytes, uint64_t *since_ns)
{
    enum { TRIES = 100 };
    for (int i = 0; i < TRIES; i++) {
        uint32_t before = atomic_load_explicit(&p->position_seq, memory_order_acquire); /* pairs with the release in notes_end */
        if (before & 1)
            continue;
        char copy[BOARD_POSITION_BYTES];
        for (size_t b = 0; b < sizeof copy; b++)
            copy[b] = ((const volatile char *)p->position)[b];
        *since_ns = p->position_ns;
        atomic_thread_fence(memory_order_acquire);
        if (atomic_load_explicit(&p->position_seq, memory_order_relaxed) != before)
            continue;
        copy[sizeof copy - 1] = 0;
        snprintf(buf, buf_bytes, "%s", copy);
        return;
    }
    buf[0] = 0;
    *since_ns = 0;
}

static bool holds(int32_t pid, const struct net_segment_ref *board)
{
    char path[64], link[64] = "";
    uint64_t token[2] = {0};
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, (int)board->fd);
    if (readlink(path, link, sizeof link - 1) < 0 || strncmp(link, "/memfd:unisono-board", 20) != 0)
        return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd >= 0 ? pread(fd, token, sizeof token, (off_t)board->bytes) : -1;
    if (fd >= 0)
        close(fd);
    return n == (ssize_t)sizeof token && memcmp(token, board->token, sizeof token) == 0;
}

static int compare_pids(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

uint32_t board_holders(const struct net_segment_ref *board, int32_t *pids, uint32_t most)
{
    int32_t *all = NULL;
    size_t n = 0, cap = 0;
    DIR *d = board->bytes ? opendir("/proc") : NULL;
    for (struct dirent *e; d && (e = readdir(d));) {
        int32_t pid = (int32_t)strtol(e->d_name, NULL, 10);
        if (pid > 0 && pid != board->pid && holds(pid, board) && mem_grow(&all, &cap, n + 1, sizeof *all) == UNO_OK)
            all[n++] = pid;
    }
    if (d)
        closedir(d);
    if (n)
        qsort(all, n, sizeof *all, compare_pids);
    for (uint32_t i = 0; i < most && i < n; i++)
        pids[i] = all[i];
    free(all);
    return (uint32_t)n;
}
