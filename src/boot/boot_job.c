/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot_job.c - what the serving thread knows of a job: who has joined, what each contributed to the round that collects, and the
 * first fault. A fault that concerns the job (two processes with one rank, a rank that ended, a passed deadline) goes to every
 * rank that is there or still comes.
 */
#include "boot_server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- faults of the job -------------------------------------------------------------------------------------- */

/* Who was told, or has ended, is not waited for; when that is everyone the server ends. */
static void mark_left(struct server *s, const struct conn *c)
{
    int rank = c->state == MEMBER ? c->rank : c->who.rank;
    if (!s->members || rank < 0 || rank >= s->size || s->members[rank].left)
        return;
    s->members[rank].joined = s->members[rank].left = true;
    s->left++;
}

static void conn_say(struct server *s, struct conn *c)
{
    c->deadline_ns = clock_ns() + BOOT_LINGER_NS;
    conn_send(s, c, BOOT_ERROR, s->failed, 0, s->failure, strlen(s->failure), -1);
}

static void conn_tell(struct server *s, struct conn *c)
{
    if (c->state == MEMBER)
        s->members[c->rank].conn = NULL;
    s->half_open -= conn_half_open(c);
    mark_left(s, c);
    c->state = CLOSING;
    if (!c->own_process) {
        conn_say(s, c);
        return;
    }
    c->error_due = true;
    c->deadline_ns = UINT64_MAX;
    s->tell_own_ns = clock_ns() + BOOT_LINGER_NS;
}

static bool others_listen(const struct server *s)
{
    for (const struct conn *c = s->conns; c; c = c->next)
        if (c->state == EXPECT_JOIN || (c->state == CLOSING && !c->error_due))
            return true;
    return false;
}

void job_tell_own(struct server *s, uint64_t now)
{
    if (!s->tell_own_ns || (now < s->tell_own_ns && others_listen(s)))
        return;
    s->tell_own_ns = 0;
    for (struct conn *c = s->conns; c; c = c->next)
        if (c->state == CLOSING && c->error_due) {
            c->error_due = false;
            conn_say(s, c);
        }
}

static void job_failed(struct server *s, uno_err code, const char *fmt, ...) UNO_PRINTF(3, 4);
static void job_failed(struct server *s, uno_err code, const char *fmt, ...)
{
    if (s->failed)
        return; /* the first cause is the one that counts */
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(s->failure, sizeof s->failure, fmt, ap);
    va_end(ap);
    s->failed = code;
    LOG(LOG_INFO, LOG_BOOT, "joining failed: %s", s->failure);
    for (struct conn *c = s->conns; c; c = c->next)
        if (c->state == MEMBER)
            conn_tell(s, c);
}

struct absent { const struct server *s; uint64_t round; };

static bool not_joined(const void *arg, int rank)
{
    return !((const struct absent *)arg)->s->members[rank].joined;
}

static bool joined_without_data(const void *arg, int rank)
{
    const struct absent *a = arg;
    return a->s->members[rank].joined && a->s->members[rank].rounds <= a->round;
}

static bool does_not_read(const void *arg, int rank)
{
    const struct conn *c = ((const struct absent *)arg)->s->members[rank].conn;
    return c && c->outs > 0;
}

struct absent_here { const struct absent *absent; int first, n; bool (*pick)(const void *arg, int rank); };

static bool absent_here(const void *arg, int rank)
{
    const struct absent_here *h = arg;
    return rank >= h->first && rank < h->first + h->n && h->pick(h->absent, rank);
}

/* The ranks, and where the launcher has started them. */
static int list_absent(const struct server *s, bool (*pick)(const void *arg, int rank), const struct absent *a, struct text *out)
{
    enum { MOST = 8 };
    int n = boot_ranges(s->size, pick, a, out), shown = 0, named = 0;
    struct absent_here here = {.absent = a, .pick = pick};
    for (const char *at = s->hosts; n && at && *at && here.first < s->size; here.first += here.n) {
        int name = (int)strcspn(at, ","), digits = name;
        while (digits > 0 && at[digits - 1] != ':')
            digits--;
        here.n = digits > 0 ? atoi(at + digits) : 0;
        struct text ranks = {0};
        int missing = here.n > 0 ? boot_ranges(s->size, absent_here, &here, &ranks) : 0;
        if (missing && named++ < MOST) {
            text_add(out, "%shost %.*s", shown ? "; " : " (", digits - 1, at);
            if (missing < n)
                text_add(out, ": %s", ranks.s ? ranks.s : "?");
            shown += missing;
        }
        text_free(&ranks);
        at += name + (at[name] == ',');
    }
    if (n && s->by_place)
        text_add(out, " (counted from 0 in the list of uno_comm_create_group)");
    if (shown)
        text_add(out, named > MOST ? "; and %d more hosts)" : ")", named - MOST);
    return n;
}

/* Rank `who` gave up in `round`: say for whom it waited. For nobody, when its question and the answer have crossed. */
void job_late(struct server *s, int who, uint64_t round)
{
    struct absent a = {s, round};
    struct text missing = {0}, silent = {0}, stuck = {0};
    int n = list_absent(s, not_joined, &a, &missing), m = boot_ranges(s->size, joined_without_data, &a, &silent);
    int k = boot_ranges(s->size, does_not_read, &a, &stuck);
    if (n)
        job_failed(s, UNO_ERR_TIMEOUT,
                   "%d of %d ranks have not joined when the deadline of rank %d passed: %.600s; start them or look at their output",
                   n, s->size, who, missing.s ? missing.s : "?");
    else if (m)
        job_failed(s, UNO_ERR_TIMEOUT,
                   "%d of %d ranks joined and then fell silent when the deadline of rank %d passed: %.400s", m, s->size, who,
                   silent.s ? silent.s : "?");
    else if (k)
        job_failed(s, UNO_ERR_TIMEOUT, "the deadline of rank %d passed while ranks did not read their answer: %.400s", who,
                   stuck.s ? stuck.s : "?");
    text_free(&missing);
    text_free(&silent);
    text_free(&stuck);
}

/* A member's connection has ended. */
void job_member_ended(struct server *s, struct conn *c)
{
    const struct member *m = &s->members[c->rank];
    mark_left(s, c);
    job_failed(s, UNO_ERR_PEER_DEAD, "rank %d (host %s, pid %d) ended while the ranks were joining; look at its output", c->rank,
               m->host, m->pid);
}

void job_gave_up(struct server *s, struct conn *c)
{
    const struct member *m = &s->members[c->rank];
    mark_left(s, c);
    job_failed(s, UNO_ERR_PEER_DEAD, "rank %d (host %s, pid %d) gave up while the ranks were joining; its own error says why", c->rank, m->host,
               m->pid);
}

/* Remove the shared file unless a later job has put its own there. Nobody needs it once all have joined. */
void job_remove_file(struct server *s)
{
    uno_id in_file;
    FILE *f = s->unlink_path ? fopen(s->unlink_path, "re") : NULL;
    if (!f)
        return;
    size_t n = fread(in_file.bytes, 1, sizeof in_file.bytes, f);
    fclose(f);
    if (n == sizeof in_file.bytes && memcmp(in_file.bytes, &s->id, n) == 0)
        unlink(s->unlink_path);
    free(s->unlink_path);
    s->unlink_path = NULL;
}

static void waits(struct server *s, bool somebody)
{
    s->waits_ns = somebody ? clock_ns() : 0;
    s->say_absent_ns = somebody ? s->waits_ns + s->stall_ns : UINT64_MAX;
}

/* Again when ten and a hundred times as long has passed. */
void job_say_absent(struct server *s, uint64_t now)
{
    if (now < s->say_absent_ns)
        return;
    struct absent a = {s, s->done};
    struct text missing = {0};
    uint64_t age = now - s->waits_ns;
    bool silent = s->joined == s->size;
    int n = s->failed ? 0 : list_absent(s, silent ? joined_without_data : not_joined, &a, &missing);
    s->say_absent_ns = s->waits_ns + 10 * age;
    if (n)
        LOG(LOG_WARN, LOG_BOOT, "%d of %d ranks %s though others wait for %.1f s: %.600s; %s", n, s->size,
            silent ? "joined and then fell silent" : "have not joined", (double)age / 1e9, missing.s ? missing.s : "?",
            silent ? "look whether they are stopped" : "start them or look at their output");
    s->said_absent = s->said_absent || n;
    text_free(&missing);
}

static void all_have_joined(struct server *s)
{
    if (s->said_absent)
        LOG(LOG_WARN, LOG_BOOT, "all %d ranks have joined, after %.1f s", s->size, (double)(clock_ns() - s->waits_ns) / 1e9);
    job_remove_file(s);
}

void job_cannot_accept(struct server *s, int why)
{
    struct rlimit most = {0};
    char hint[100] = "";
    if (why == EMFILE && getrlimit(RLIMIT_NOFILE, &most) == 0)
        snprintf(hint, sizeof hint, "; it may have %llu descriptors open, allow more with ulimit -n", (unsigned long long)most.rlim_cur);
    job_failed(s, UNO_ERR_SYSTEM, "rank 0's process cannot accept the connections of ranks that join: %s%s", strerror(why), hint);
}

/* ---- joining -------------------------------------------------------------------------------------------------- */

static uno_err first_member(struct server *s, const struct boot_who *who)
{
    s->members = mem_array((size_t)who->size, sizeof *s->members);
    if (!s->members)
        return UNO_ERR_MEMORY;
    s->size = who->size;
    s->first_rank = who->rank;
    s->by_place = who->by_place != 0;
    return UNO_OK;
}

/* UNO_OK, or the job has failed. */
static uno_err check_member(struct server *s, const struct boot_who *who)
{
    if (s->size == 0 && first_member(s, who) != UNO_OK) {
        job_failed(s, UNO_ERR_MEMORY, "rank 0's process has no memory for a job of %d ranks", who->size);
        return UNO_ERR_MEMORY;
    }
    if (who->size != s->size) {
        const struct member *f = &s->members[s->first_rank];
        job_failed(s, UNO_ERR_MISMATCH,
                   "rank %d (host %s, pid %d) joined a job of %d ranks, and rank %d (host %s, pid %d) one of %d; start all with "
                   "one size", s->first_rank, f->host, f->pid, s->size, who->rank, who->host, who->pid, who->size);
        return UNO_ERR_MISMATCH;
    }
    const struct member *m = &s->members[who->rank];
    if (m->joined) {
        job_failed(s, UNO_ERR_MISMATCH,
                   "two processes joined as rank %d of %d: host %s, pid %d, and host %s, pid %d; give each process its own rank",
                   who->rank, s->size, m->host, m->pid, who->host, who->pid);
        return UNO_ERR_MISMATCH;
    }
    return UNO_OK;
}

void job_join(struct server *s, struct conn *c)
{
    struct boot_who *who = &c->who;
    who->host[sizeof who->host - 1] = 0;
    if (who->size < 1 || who->size > BOOT_MAX_RANKS || who->rank < 0 || who->rank >= who->size) {
        conn_kill(s, c);
        return;
    }
    if (s->failed || check_member(s, who) != UNO_OK) {
        conn_tell(s, c);
        return;
    }
    struct member *m = &s->members[who->rank];
    m->joined = true;
    m->conn = c;
    m->pid = who->pid;
    memcpy(m->host, who->host, sizeof m->host);
    if (++s->joined == s->size)
        all_have_joined(s);
    if (s->joined == 1 || s->joined == s->size)
        waits(s, true);
    s->half_open--;
    c->state = MEMBER;
    c->rank = who->rank;
    boot_who_am_i(&c->who, 0, s->size);
    c->own_process = m->pid == c->who.pid && strcmp(m->host, c->who.host) == 0;
    conn_send(s, c, BOOT_WELCOME, UNO_OK, 0, &c->who, sizeof c->who, -1);
}

/* ---- rounds --------------------------------------------------------------------------------------------------- */

static void answer(struct server *s, struct conn *c, struct collect *k)
{
    conn_send(s, c, BOOT_ALL, UNO_OK, k->number, k->all, k->bytes * (uint64_t)s->size, (int)(k - s->rounds));
}

static void answer_own_process(struct server *s, struct collect *k)
{
    if (k->unsent > 0 || k->have < s->size)
        return;
    for (int r = 0; r < s->size; r++) {
        struct conn *c = s->members[r].conn;
        if (c && c->answer_due) {
            c->answer_due = false;
            k->unsent++;
            answer(s, c, k);
        }
    }
}

static void round_complete(struct server *s, struct collect *k)
{
    s->done++;
    k->unsent = 1; /* held here until every answer is queued */
    for (int r = 0; r < s->size; r++) {
        struct conn *c = s->members[r].conn;
        if (!c)
            continue;
        if (c->own_process) {
            c->answer_due = true;
        } else {
            k->unsent++;
            answer(s, c, k);
        }
    }
    k->unsent--;
    answer_own_process(s, k);
}

/* The place for rank's contribution, or NULL after failing the job or the connection. */
char *job_round_place(struct server *s, struct conn *c)
{
    struct member *m = &s->members[c->rank];
    struct collect *k = &s->rounds[c->head.round & 1];
    uint64_t bytes = c->head.bytes;
    bool unread = c->outs > 0 || c->answer_due; /* its answer to the round before, whose memory a later round takes */
    if (unread || c->head.round != s->done || m->rounds != s->done || bytes > BOOT_MAX_BYTES || bytes * (uint64_t)s->size > BOOT_MAX_REPLY) {
        job_failed(s, UNO_ERR_INTERNAL, "rank %d sent %llu bytes for round %llu of joining, %s", c->rank,
                   (unsigned long long)bytes, (unsigned long long)c->head.round,
                   unread ? "before it has read the answer to the one before" : "out of order or too much");
        return NULL;
    }
    if (k->number != c->head.round || !k->all) { /* who contributes to a round has read the one before, so all have read the one before that */
        free(k->all);
        *k = (struct collect){.number = c->head.round, .bytes = bytes};
        k->all = mem_array((size_t)s->size, bytes ? bytes : 1);
        if (!k->all) {
            job_failed(s, UNO_ERR_MEMORY, "rank 0's process has no memory for %llu bytes of %d ranks", (unsigned long long)bytes, s->size);
            return NULL;
        }
    }
    if (k->bytes != bytes) {
        job_failed(s, UNO_ERR_MISMATCH, "rank %d (host %s, pid %d) exchanges %llu bytes in round %llu of joining, others %llu; "
                   "install one version of unisono everywhere", c->rank, m->host, m->pid, (unsigned long long)bytes,
                   (unsigned long long)k->number, (unsigned long long)k->bytes);
        return NULL;
    }
    return k->all + bytes * (uint64_t)c->rank;
}

void job_answer_sent(struct server *s, int slot)
{
    s->rounds[slot].unsent--;
    answer_own_process(s, &s->rounds[slot]);
}

/* A rank that has said goodbye will not contribute to a round that others have begun. */
static void check_leavers(struct server *s)
{
    const struct collect *k = &s->rounds[s->done & 1];
    if (!k->all || k->number != s->done || k->have == 0)
        return;
    for (int r = 0; r < s->size; r++)
        if (s->members[r].left && s->members[r].rounds <= s->done)
            job_failed(s, UNO_ERR_PEER_DEAD, "rank %d (host %s, pid %d) left the joining while others still need it", r,
                       s->members[r].host, s->members[r].pid);
}

void job_contribution(struct server *s, struct conn *c)
{
    struct collect *k = &s->rounds[c->head.round & 1];
    s->members[c->rank].rounds++;
    if (++k->have == s->size) {
        waits(s, false);
        round_complete(s, k);
        return;
    }
    if (!s->waits_ns)
        waits(s, true);
    check_leavers(s);
}

void job_left(struct server *s, struct conn *c)
{
    mark_left(s, c);
    conn_kill(s, c);
    check_leavers(s);
}
