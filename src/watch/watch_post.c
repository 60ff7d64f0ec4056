/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_post.c - after a death or a verdict the hub of a host saves what is known of the host's ranks (watch_save.h). The records are
 * made on the steward's thread; a thread of its own writes them, since a file system may hang and the steward must not.
 */
#include "watch/watch_post.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "watch/watch_inner.h"
#include "watch/watch_save.h"

#define SOON_NS 30000000ull    /* how others took it is of interest, but the program may end now */
#define LATER_NS 1000000000ull /* by then most is known */
#define LEAVE_NS 1000000000ull /* so long a steward that ends waits for what is being written */

struct writing {
    char dir[900], name[200];
    unsigned char *data;
    size_t bytes;
};
static _Atomic int writes;     /* that run now, in this process; release when one ends, pairs with post_end */
static _Atomic bool said;      /* a failure is said once a process; relaxed */

static void write_now(struct writing *job)
{
    char path[1300];
    if (save_file(job->dir, job->name, job->data, job->bytes, path, sizeof path) == UNO_OK)
        LOG(LOG_INFO, LOG_WATCH, "what is known of this host's ranks is in %s", path);
    else if (!atomic_exchange_explicit(&said, true, memory_order_relaxed))
        LOG(LOG_WARN, LOG_WATCH, "%s", err_text());
    free(job->data);
    free(job);
}

static void *writer(void *arg)
{
    write_now(arg);
    atomic_fetch_sub_explicit(&writes, 1, memory_order_release);
    return NULL;
}

static void start_writing(struct writing *job)
{
    pthread_t thread;
    pthread_attr_t attr;
    atomic_fetch_add_explicit(&writes, 1, memory_order_relaxed);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &attr, writer, job) != 0) /* signals are blocked here, and so in it */
        (void)writer(job);
    pthread_attr_destroy(&attr);
}

/* Append the record of one rank. */
static uno_err add_record(struct watch *w, int rank, struct writing *job)
{
    struct verdict_rank r;
    TRY(report_rank(w, rank, REPORT_EVENTS_SAVED, &r));
    unsigned char *more = realloc(job->data, job->bytes + VERDICT_RECORD_LIMIT);
    size_t bytes = 0;
    uno_err err = more ? UNO_OK : UNO_ERR_MEMORY;
    if (more)
        job->data = more;
    if (err == UNO_OK)
        err = verdict_encode(&r, job->data + job->bytes, VERDICT_RECORD_LIMIT, &bytes);
    job->bytes += bytes;
    verdict_rank_free(&r);
    return err;
}

static void file_name(const struct watch *w, char *name, size_t name_bytes)
{
    const struct watch_member *m = &w->members[w->opt.rank];
    char host[64];
    snprintf(host, sizeof host, "%s", m->hostname);
    for (char *c = host; *c; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-", *c))
            *c = '_';
    snprintf(name, name_bytes, "job-%016llx-host%d-%s.facts",
             (unsigned long long)(w->opt.board ? w->opt.board->page->job : 0), m->host, host);
}

static void save_host(struct watch *w)
{
    struct writing *job = mem_zalloc(sizeof *job);
    if (!job)
        return;
    snprintf(job->dir, sizeof job->dir, "%s", w->ledger_dir);
    file_name(w, job->name, sizeof job->name);
    for (int r = 0; r < w->opt.size; r++) {
        const struct peer *p = peer_find(w, w->members[r].process);
        if (p && peer_is_local(w, p) && add_record(w, r, job) != UNO_OK)
            LOG(LOG_INFO, LOG_WATCH, "rank %d is missing in the saved ledgers: %s", r, err_text());
    }
    start_writing(job);
}

void post_soon(struct watch *w)
{
    if (!w->ledger_dir[0] || !hosts_is_hub(w))
        return;
    w->post_ns = clock_ns() + SOON_NS;
    w->post_again = true;
    atomic_store_explicit(&w->post_due, true, memory_order_relaxed);
}

void post_timer(struct watch *w, uint64_t now)
{
    if (w->post_ns == 0 || now < w->post_ns)
        return;
    save_host(w);
    w->post_ns = w->post_again ? now + LATER_NS : 0;
    w->post_again = false;
    atomic_store_explicit(&w->post_due, w->post_ns != 0, memory_order_relaxed);
}

uint64_t post_next_ns(const struct watch *w)
{
    return w->post_ns ? w->post_ns : UINT64_MAX;
}

void post_end(struct watch *w)
{
    if (w->post_ns)
        save_host(w);
    w->post_ns = 0;
    uint64_t until = clock_ns() + LEAVE_NS; /* acquire: pairs with the release in writer */
    while (atomic_load_explicit(&writes, memory_order_acquire) != 0 && clock_ns() < until)
        usleep(1000);
    atomic_store_explicit(&w->post_due, false, memory_order_relaxed);
}
