/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_keep.c - a keeper looks at processes of this user that it has joined no job with: the launcher, to hold what they show of
 * themselves beyond their end; a tool that is asked about a process. Stewards hand boards over at their doors; those of processes that do
 * not answer soon (stopped, or in another network namespace) are found among the open files in /proc/<pid>/fd. One thread uses a keeper.
 */
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "watch/watch_inner.h"
#include "watch/watch_save.h"

#define PAGE 4096u             /* a segment's last page proves which one it is; net_segment.c's unit */
#define MOST_RANKS (1 << 16)   /* as many as can join; more makes no sense, whoever writes it */
#define GATHER_NS 3500000000ull
#define DOOR_WAIT_NS 50000000ull   /* for one steward ... */
#define DOOR_PATIENCE_NS 300000000ull /* ... and for all of them that do not answer, of a keeper, while /proc tells as well */
#define CLOSED_WAIT_NS 1000000000ull  /* ... if /proc does not */
#define BEATLESS_NS 1200000000ull /* a steward that runs shows it every 250 ms */

/* The processes of one job that are known here, as a watch that has no thread and no connections; rank `size` stands for us. */
struct kept {
    struct kept *next;
    uint64_t job;
    struct question *asked; /* by process, of a keeper_ask that has no answer yet */
    uint64_t until_ns;      /* ... which is not awaited any longer */
    struct watch w;
};
struct question { uint32_t number; bool posted; };
struct watch_keeper { struct kept *jobs; uint64_t waited_ns; /* in vain, at doors */ };

uno_err keeper_new(struct watch_keeper **keeper)
{
    *keeper = mem_zalloc(sizeof **keeper);
    return *keeper ? UNO_OK : UNO_ERR_MEMORY;
}

static void kept_free(struct kept *k)
{
    peers_free(&k->w);
    free(k->asked);
    free(k->w.members);
    free(k);
}

void keeper_free(struct watch_keeper *keeper)
{
    while (keeper && keeper->jobs) {
        struct kept *k = keeper->jobs;
        keeper->jobs = k->next;
        kept_free(k);
    }
    free(keeper);
}

/* ---- finding boards ------------------------------------------------------------------------------------------------------- */

/* Is descriptor fd of pid a board? Nothing of it is believed before net has mapped and checked it. */
static bool board_ref(int32_t pid, int32_t fd, struct net_segment_ref *ref)
{
    char path[64], link[64] = "";
    struct stat st;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, (int)fd);
    if (readlink(path, link, sizeof link - 1) < 0 || strncmp(link, "/memfd:unisono-board", 20) != 0)
        return false;
    int own = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    *ref = (struct net_segment_ref){.pid = pid, .fd = fd};
    bool ok = own >= 0 && fstat(own, &st) == 0 && st.st_size > (off_t)PAGE;
    ref->bytes = ok ? (uint64_t)st.st_size - PAGE : 0;
    ok = ok && pread(own, ref->token, sizeof ref->token, (off_t)ref->bytes) == (ssize_t)sizeof ref->token;
    if (own >= 0)
        close(own);
    return ok;
}

static struct kept *kept_of(struct watch_keeper *keeper, uint64_t job, int size)
{
    for (struct kept *k = keeper->jobs; k; k = k->next)
        if (k->job == job && k->w.opt.size == size + 1)
            return k;
    struct kept *k = mem_zalloc(sizeof *k);
    struct watch_member *m = mem_array((size_t)size + 1, sizeof *m);
    if (!k || !m) {
        free(k);
        free(m);
        return NULL;
    }
    for (int r = 0; r <= size; r++)
        m[r] = (struct watch_member){.process = r, .host = r < size}; /* not of this host until its board is seen */
    k->job = job;
    k->w = (struct watch){.opt = {.rank = size, .size = size + 1}, .members = m, .epoll = -1, .ledger_dir = ""};
    m[size].pid = getpid();
    if (peers_new(&k->w) != UNO_OK) {
        free(m);
        free(k);
        return NULL;
    }
    k->next = keeper->jobs;
    keeper->jobs = k;
    return k;
}

/* Who joined had another number. */
static uno_err other_number(int32_t pid, int32_t joined)
{
    if (process_own_pid(pid) == joined)
        return err_set(UNO_ERR_USAGE, "process %d is in another PID namespace, where it is process %d and its job is to be asked about, by root: "
                       "nsenter -t %d -p -m unisono why %d", (int)pid, (int)joined, (int)pid, (int)joined);
    return err_set(UNO_ERR_USAGE, "process %d is a forked child of process %d, which has joined; ask for that one", (int)pid, (int)joined);
}

/* Take up a mapped board; door: as in records. */
static uno_err keep_board(struct watch_keeper *keeper, const struct net_segment_ref *ref, struct board_page *page, int door)
{
    int size = page->size, rank = page->rank;
    if (page->pid != ref->pid)
        return other_number(ref->pid, page->pid);
    if (size < 1 || size > MOST_RANKS || rank < 0 || rank >= size)
        return err_set(UNO_ERR_UNSUPPORTED, "all ranks of process %d are its threads, and tools cannot look at such a job; it says itself on its standard "
                       "error when it stalls (UNISONO_STALL), and a debugger shows where its threads stand: gdb -p %d", (int)ref->pid, (int)ref->pid);
    struct kept *k = kept_of(keeper, page->job, size);
    if (!k)
        return UNO_ERR_MEMORY;
    struct peer *p = &k->w.peers[rank];
    struct watch_member *m = &k->w.members[rank];
    if (p->records.page) {
        net_segment_unmap(ref); /* known */
        return UNO_OK;
    }
    m->host = 0;
    m->pid = page->pid;
    m->start_ticks = page->start_ticks;
    memcpy(m->hostname, page->hostname, sizeof m->hostname);
    m->hostname[sizeof m->hostname - 1] = 0;
    p->eye = (struct process_eye){.pid = m->pid, .start_ticks = m->start_ticks, .pidfd = -1};
    (void)process_watch(&p->eye);
    p->records.board = m->board = *ref;
    p->records.door = door;
    p->records.page = page;
    p->records.oom_kills = page->oom_kills;
    return UNO_OK;
}

/* Known: only what is new of it. */
static bool refresh(struct watch_keeper *keeper, int32_t pid)
{
    bool known = false;
    for (struct kept *k = keeper->jobs; k; k = k->next)
        for (int r = 0; r < k->w.opt.size - 1; r++)
            if (k->w.members[r].pid == pid && k->w.peers[r].records.page) {
                records_refresh(&k->w.peers[r].records);
                known = true;
            }
    return known;
}

/* It was mapped: what is it? Unmaps it if it is not kept. */
static uno_err keep_mapped(struct watch_keeper *keeper, const struct net_segment_ref *ref, void *base, int door)
{
    uno_err err = board_page_check(base, ref->bytes) ? keep_board(keeper, ref, base, door)
                : err_set(UNO_ERR_UNSUPPORTED, "process %d uses another version of this library than this program, which is %d.%d.%d; ask with the "
                          "tool of that version", (int)ref->pid, UNO_VERSION_MAJOR, UNO_VERSION_MINOR, UNO_VERSION_PATCH);
    if (err != UNO_OK)
        net_segment_unmap(ref);
    return err;
}

/* What came of a process's doors. */
struct visit {
    uint32_t seen, boards; /* boards that were handed over, and how many it has */
    bool silent;           /* somebody is there and does not answer */
    uno_err err;           /* of the last board; its sentence is set */
};

static void visit_door(struct watch_keeper *keeper, int32_t pid, int name, uint64_t wait_ns, struct visit *v)
{
    struct door_call call;
    struct net_segment_ref ref;
    void *base;
    int fd;
    enum door_said said = door_call(&call, pid, name, wait_ns);
    if (said == DOOR_GIVEN)
        said = door_fetch(&call, NULL, wait_ns, &ref, &v->boards, &fd);
    door_hang_up(&call);
    v->silent = v->silent || said == DOOR_SILENT;
    if (said != DOOR_GIVEN)
        return;
    v->seen++;
    v->err = net_segment_map_given(&ref, fd, &base);
    if (v->err == UNO_OK)
        v->err = keep_mapped(keeper, &ref, base, name + 1);
}

/* patience: so long is waited for those who do not answer, and no longer. */
static struct visit visit_doors(struct watch_keeper *keeper, int32_t pid, uint64_t wait_ns, uint64_t patience_ns)
{
    struct visit v = {.err = UNO_ERR_IN_PROGRESS};
    char state = proc_state(pid, pid);
    if (state == 'T' || state == 't')
        wait_ns = 0; /* stopped: nobody comes to the door */
    for (int name = 0; name < DOOR_NAMES && !v.silent; name++) {
        uint64_t begin = clock_ns(), left = keeper->waited_ns < patience_ns ? patience_ns - keeper->waited_ns : 0;
        visit_door(keeper, pid, name, MIN(wait_ns, left), &v);
        if (v.silent)
            keeper->waited_ns += clock_ns() - begin;
    }
    return v;
}

static uno_err look_into_proc(struct watch_keeper *keeper, int32_t pid)
{
    char path[40];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *d = opendir(path);
    if (!d)
        return access("/proc/self/fd", F_OK) != 0 ? err_sys("nothing is known of process %d: /proc is not there", (int)pid)
                                                  : err_sys("nothing is known of process %d: %s", (int)pid, path);
    uno_err err = err_set(UNO_ERR_IN_PROGRESS, "process %d has not joined a job of this library, or has left it", (int)pid);
    for (struct dirent *e; (e = readdir(d));) {
        struct net_segment_ref ref;
        void *base;
        if (!isdigit((unsigned char)e->d_name[0]) || !board_ref(pid, (int32_t)strtol(e->d_name, NULL, 10), &ref))
            continue;
        err = net_segment_map(&ref, &base);
        if (err == UNO_OK)
            err = keep_mapped(keeper, &ref, base, 0);
    }
    closedir(d);
    return err;
}

/* Other users' doors are not for us; who /proc hides may be ours. */
static bool may_be_ours(int32_t pid)
{
    uint32_t uid;
    return !proc_owner(pid, &uid) || uid == (uint32_t)geteuid();
}

static uno_err look(struct watch_keeper *keeper, int32_t pid)
{
    struct visit v = {.err = UNO_ERR_IN_PROGRESS};
    bool ours = may_be_ours(pid);
    if (ours)
        v = visit_doors(keeper, pid, DOOR_WAIT_NS, DOOR_PATIENCE_NS);
    if (v.seen && v.seen >= v.boards)
        return v.err;
    uno_err err = look_into_proc(keeper, pid); /* also what has no door */
    if (err != UNO_ERR_SYSTEM || v.err == UNO_OK)
        return v.err == UNO_OK ? UNO_OK : err;
    char closed[ERR_TEXT_BYTES];
    snprintf(closed, sizeof closed, "%s", err_text());
    if (v.silent) {
        v = visit_doors(keeper, pid, CLOSED_WAIT_NS, CLOSED_WAIT_NS);
        if (v.seen)
            return v.err;
        return err_set(UNO_ERR_SYSTEM, "%s, and its steward does not answer tools", closed);
    }
    return err_set(UNO_ERR_SYSTEM, "%s", closed);
}

uno_err keeper_look(struct watch_keeper *keeper, int32_t pid)
{
    if (refresh(keeper, pid))
        return UNO_OK;
    uno_err err = look(keeper, pid);
    (void)refresh(keeper, pid);
    return err;
}

size_t keeper_pids(int32_t *pids, size_t most)
{
    return door_pids(pids, most);
}

uno_err keeper_look_around(struct watch_keeper *keeper, int32_t pid)
{
    TRY(keeper_look(keeper, pid));
    DIR *d = opendir("/proc");
    for (struct dirent *e; d && (e = readdir(d));) {
        int32_t other = (int32_t)strtol(e->d_name, NULL, 10);
        if (isdigit((unsigned char)e->d_name[0]) && other != pid && other != getpid())
            (void)keeper_look(keeper, other);
    }
    if (d)
        closedir(d);
    struct kept **at = &keeper->jobs; /* only the jobs of that process were asked for */
    while (*at) {
        struct kept *k = *at;
        bool in = false;
        for (int r = 0; r < k->w.opt.size - 1; r++)
            in = in || (k->w.peers[r].records.page && k->w.members[r].pid == pid);
        if (in) {
            at = &k->next;
            continue;
        }
        *at = k->next;
        kept_free(k);
    }
    return UNO_OK;
}

/* ---- ends ------------------------------------------------------------------------------------------------------------------- */

void keeper_ended(struct watch_keeper *keeper, int32_t pid, int status)
{
    for (struct kept *k = keeper->jobs; k; k = k->next)
        for (int r = 0; r < k->w.opt.size - 1; r++) {
            struct peer *p = &k->w.peers[r];
            if (!p->records.page || k->w.members[r].pid != pid || p->state != PEER_ALIVE)
                continue;
            p->records.status_known = true;
            p->records.status = status;
            records_ended(&k->w, p);
            p->state = records_goodbye(&p->records) == GOODBYE_SAID ? PEER_LEFT : PEER_DEAD;
        }
}

static void look_for_ends(struct kept *k)
{
    for (int r = 0; r < k->w.opt.size - 1; r++) {
        struct peer *p = &k->w.peers[r];
        if (!p->records.page || p->state != PEER_ALIVE || !process_ended(&p->eye))
            continue;
        records_ended(&k->w, p);
        p->state = records_goodbye(&p->records) == GOODBYE_SAID ? PEER_LEFT : PEER_DEAD;
    }
}

/* ---- facts -------------------------------------------------------------------------------------------------------------------- */

static uno_err add_fact(struct kept *k, int rank, unsigned char **data, size_t *bytes)
{
    struct verdict_rank r;
    size_t one = 0;
    TRY(report_rank(&k->w, rank, REPORT_EVENTS_SAVED, &r));
    r.host_index = -1; /* hosts are numbered by those who joined */
    r.reporter = -1;
    r.size = k->w.opt.size - 1;
    r.clock = (struct verdict_offset){.known = true}; /* this host's */
    unsigned char *more = realloc(*data, *bytes + VERDICT_RECORD_LIMIT);
    uno_err err = more ? UNO_OK : UNO_ERR_MEMORY;
    if (more)
        *data = more;
    if (err == UNO_OK)
        err = verdict_encode(&r, *data + *bytes, VERDICT_RECORD_LIMIT, &one);
    *bytes += one;
    verdict_rank_free(&r);
    return err;
}

static uno_err job_facts(struct kept *k, bool look, unsigned char **data, size_t *bytes)
{
    look_for_ends(k);
    if (look) {
        report_begin(&k->w);
        while (clock_ns() < report_ready_ns(&k->w))
            usleep(2000);
    }
    for (int r = 0; r < k->w.opt.size - 1; r++)
        if (k->w.peers[r].records.page)
            TRY(add_fact(k, r, data, bytes));
    return UNO_OK;
}

uno_err keeper_facts(struct watch_keeper *keeper, bool look, void **data, size_t *bytes)
{
    unsigned char *all = NULL;
    *data = NULL;
    *bytes = 0;
    for (struct kept *k = keeper->jobs; k; k = k->next) {
        uno_err err = job_facts(k, look, &all, bytes);
        if (err != UNO_OK) {
            free(all);
            *bytes = 0;
            return err;
        }
    }
    *data = all;
    return UNO_OK;
}

/* ---- facts of other hosts ------------------------------------------------------------------------------------------------------- */

/* Post it on all boards, for any of them may be, or become, its host's hub. Without a look nobody is interrupted, not even a steward,
 * which sees it when it next wakes up. false: nobody is there to answer. */
static bool ask_stewards(struct kept *k, struct question *asked, bool look)
{
    bool posted = false;
    for (int r = 0; r < k->w.opt.size - 1; r++) {
        struct peer *p = &k->w.peers[r];
        if (!p->records.page || p->state != PEER_ALIVE)
            continue;
        if (look)
            atomic_fetch_add_explicit(&p->records.page->steward.looks, 1, memory_order_relaxed);
        /* release: pairs with the acquire in answer_timers */
        asked[r].number = atomic_fetch_add_explicit(&p->records.page->steward.questions, 1, memory_order_release) + 1;
        asked[r].posted = posted = true;
        if (look)
            records_wake(p);
    }
    return posted;
}

/* Who has answered; -1 = nobody. *beats changes while any steward runs. */
static int who_answered(struct kept *k, const struct question *asked, uint32_t *beats)
{
    *beats = 0;
    for (int r = 0; r < k->w.opt.size - 1; r++) {
        if (!asked[r].posted)
            continue;
        struct steward_page *page = &k->w.peers[r].records.page->steward;
        *beats += atomic_load_explicit(&page->beat, memory_order_relaxed);
        /* acquire: pairs with the release in answer_timers */
        if ((int32_t)(atomic_load_explicit(&page->answers, memory_order_acquire) - asked[r].number) >= 0)
            return r;
    }
    return -1;
}

static bool nobody_has_joined(const struct kept *k)
{
    for (int r = 0; r < k->w.opt.size - 1; r++) {
        const struct board_page *page = k->w.peers[r].records.page;
        if (page && atomic_load_explicit(&page->changes, memory_order_acquire) != 0) /* of its communicators; pairs with watch_board_add */
            return false;
    }
    return true;
}

/* A hub that is stopped is replaced within a good second; then other hosts have a second to answer. */
static uno_err await_answer(struct kept *k, const struct question *asked, void **data, size_t *bytes)
{
    uint32_t beats = 0, last = 0;
    uint64_t now = clock_ns(), until = now + GATHER_NS, beat_ns = now;
    for (; now < until && now - beat_ns < BEATLESS_NS; now = clock_ns()) {
        int r = who_answered(k, asked, &beats);
        if (r >= 0)
            return answer_copy(&k->w.peers[r], data, bytes);
        if (beats != last)
            beat_ns = now;
        last = beats;
        usleep(2000);
    }
    if (nobody_has_joined(k))
        return err_set(UNO_ERR_UNREACHABLE, "its processes on this host are still joining, and ask other hosts only when they have joined");
    return err_set(UNO_ERR_UNREACHABLE, now - beat_ns < BEATLESS_NS ? "no process of the job on this host has answered within %.1f s"
                   : "no process of the job on this host answers: all are stopped, frozen or starved", (double)GATHER_NS / 1e9);
}

static bool all_are_here(const struct kept *k)
{
    for (int r = 0; r < k->w.opt.size - 1; r++)
        if (!k->w.peers[r].records.page)
            return false;
    return true;
}

/* Namespaces are hosts to the job though their processes are all seen from here: how the paths between them are only its stewards know. */
static bool share_a_network(const struct kept *k)
{
    struct stat first = {0}, st;
    char path[40];
    for (int r = 0; r < k->w.opt.size - 1; r++) {
        snprintf(path, sizeof path, "/proc/%d/ns/net", (int)k->w.members[r].pid);
        if (stat(path, &st) != 0)
            continue; /* it has ended */
        if (first.st_ino && (st.st_ino != first.st_ino || st.st_dev != first.st_dev))
            return false;
        first = st;
    }
    return true;
}

static uno_err one_job(struct watch_keeper *keeper, struct kept **kept)
{
    struct kept *k = *kept = keeper->jobs;
    if (!k || k->next)
        return err_set(UNO_ERR_USAGE, "processes of %s are kept; one job can be asked", k ? "several jobs" : "no job");
    look_for_ends(k);
    return UNO_OK;
}

static uno_err ask(struct kept *k, bool look, struct question **asked)
{
    *asked = mem_array((size_t)k->w.opt.size, sizeof **asked);
    if (!*asked)
        return UNO_ERR_MEMORY;
    if (ask_stewards(k, *asked, look))
        return UNO_OK;
    free(*asked);
    *asked = NULL;
    return err_set(UNO_ERR_UNREACHABLE, "all processes of the job on this host have ended");
}

uno_err keeper_gather(struct watch_keeper *keeper, void **data, size_t *bytes)
{
    struct kept *k;
    struct question *asked;
    *data = NULL;
    *bytes = 0;
    TRY(one_job(keeper, &k));
    if (all_are_here(k) && share_a_network(k))
        return UNO_OK;
    TRY(ask(k, true, &asked));
    uno_err err = await_answer(k, asked, data, bytes);
    free(asked);
    return err;
}

static void ask_no_more(struct kept *k)
{
    free(k->asked);
    k->asked = NULL;
}

uno_err keeper_ask(struct watch_keeper *keeper)
{
    struct kept *k;
    TRY(one_job(keeper, &k));
    ask_no_more(k);
    if (all_are_here(k))
        return UNO_OK;
    k->until_ns = clock_ns() + GATHER_NS;
    return ask(k, false, &k->asked);
}

uno_err keeper_answer(struct watch_keeper *keeper, void **data, size_t *bytes)
{
    struct kept *k;
    uint32_t beats;
    *data = NULL;
    *bytes = 0;
    TRY(one_job(keeper, &k));
    if (!k->asked)
        return UNO_OK;
    int r = who_answered(k, k->asked, &beats);
    if (r < 0 && clock_ns() < k->until_ns)
        return err_set(UNO_ERR_IN_PROGRESS, "nobody has answered yet");
    ask_no_more(k);
    return r >= 0 ? answer_copy(&k->w.peers[r], data, bytes)
                  : err_set(UNO_ERR_UNREACHABLE, "no process of the job on this host has answered within %.1f s", (double)GATHER_NS / 1e9);
}

uno_err keeper_save(struct watch_keeper *keeper, const char *dir, char *path, size_t path_bytes)
{
    uno_err err = err_set(UNO_ERR_IN_PROGRESS, "no process that is kept has joined a job");
    for (struct kept *k = keeper->jobs; k; k = k->next) {
        unsigned char *data = NULL;
        size_t bytes = 0;
        char name[160], host[64] = "";
        gethostname(host, sizeof host - 1);
        for (char *c = host; *c; c++)
            if (!isalnum((unsigned char)*c) && *c != '-')
                *c = '_';
        snprintf(name, sizeof name, "job-%016llx-launcher-%s.facts", (unsigned long long)k->job, host);
        err = job_facts(k, false, &data, &bytes);
        if (err == UNO_OK)
            err = save_file(dir, name, data, bytes, path, path_bytes);
        free(data);
        if (err != UNO_OK)
            return err;
    }
    return err;
}

uno_err keeper_said(struct watch_keeper *keeper, char *text, size_t text_bytes)
{
    const struct steward_page *hub = NULL;
    uint32_t best = 0;
    struct notice n;
    for (struct kept *k = keeper->jobs; k; k = k->next)
        for (int r = 0; r < k->w.opt.size - 1; r++) {
            const struct board_page *page = k->w.peers[r].records.page;
            uint32_t generation = page ? atomic_load_explicit(&page->steward.generation, memory_order_relaxed) : 0;
            if (page && (!hub || generation > best)) { /* the hub that took over last, or the lowest rank */
                best = generation;
                hub = &page->steward;
            }
        }
    /* acquire: pairs with the release in notice_post */
    uint32_t newest = hub ? atomic_load_explicit(&hub->notices, memory_order_acquire) : 0;
    for (uint32_t i = 0; i < STEWARD_NOTICES && i < newest; i++) {
        if (!notice_read(hub, newest - i, &n) || n.kind == NOTICE_UNREACHABLE || n.kind == NOTICE_SAID || n.kind == NOTICE_AHEAD)
            continue;
        if (n.kind == NOTICE_GOES_ON)
            break; /* things went on */
        n.text[sizeof n.text - 1] = 0;
        for (char *c = n.text; *c; c++)
            if ((unsigned char)*c < 0x20 || *c == 0x7f)
                *c = '?';
        snprintf(text, text_bytes, "%s", n.text);
        return UNO_OK;
    }
    return err_set(UNO_ERR_IN_PROGRESS, "no verdict was said on this host, or things went on after it");
}
