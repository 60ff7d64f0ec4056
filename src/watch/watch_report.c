/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_report.c - the processes of this host as facts for the verdict (watch_report.h): their boards and regions are kept mapped, so
 * that they can be read after a kill -9; a look takes samples and stacks of all of them at once.
 */
#include "watch/watch_report.h"

#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "watch/watch_inner.h"
#include "watch/watch_stack.h"
#include "watch/watch_stacks.h"

#define TICK_NS 1000000000ull
#define LOOK_NS 2000000000ull  /* an older look says nothing about the present */
#define TWICE_NS 1000000ull     /* at least so far apart are the two looks at a thread before it is asked for its stack */
#define DOOR_WAIT_NS 100000000ull /* for a steward that has answered before */
#define NOTED_NS 1000000000ull
#define STACKS_WAIT_NS 150000000ull /* after a look began, once for all of its stacks */
#define STACKS_END_NS 100000000ull /* longer than answers are waited for */
#define MOST_DESTROYED 16      /* communicators of a process that are remembered after they were destroyed */

/* ---- what is mapped ----------------------------------------------------------------------------------------------------- */

void records_open(struct watch *w)
{
    w->boards_open = true;
    for (int i = 0; i < w->npeers; i++) {
        struct peer *p = &w->peers[i];
        struct records *rec = &p->records;
        void *base;
        if (!peer_is_local(w, p) || w->members[p->process].board.bytes == 0)
            continue;
        rec->board = w->members[p->process].board;
        if (net_segment_map(&rec->board, &base) != UNO_OK) {
            LOG(LOG_INFO, LOG_WATCH, "verdicts will tell less of rank %d: %s", p->process, err_text());
        } else if (!board_page_check(base, rec->board.bytes)) {
            net_segment_unmap(&rec->board);
        } else {
            rec->page = base;
            rec->oom_kills = rec->page->oom_kills;
        }
    }
}

static void comm_drop(struct record_comm *c)
{
    if (c->region)
        net_segment_unmap(&c->ref);
    c->region = NULL;
    free(c->last.members);
    free(c->last.events);
    free(c->last.p2p);
    free(c->last.calls);
    free(c->last.passed);
    c->last = (struct verdict_comm){0};
}

void records_close(struct watch *w)
{
    bool unread = stacks_end(w->stacks, STACKS_END_NS);
    w->stacks = NULL;
    for (int i = 0; i < w->npeers; i++) {
        struct records *rec = &w->peers[i].records;
        for (size_t k = 0; k < rec->ncomms; k++)
            comm_drop(&rec->comms[k]);
        free(rec->comms);
        if (rec->page && unread)
            net_segment_unmap(&rec->board);
        *rec = (struct records){0};
    }
}

static struct record_comm *find_comm(const struct records *rec, uint64_t id, int32_t rank)
{
    for (size_t i = 0; i < rec->ncomms; i++)
        if (rec->comms[i].id == id && rec->comms[i].rank == rank)
            return &rec->comms[i];
    return NULL;
}

/* The owner has destroyed it: its newest event is kept, its memory is not. */
static void note_destroyed(const struct records *rec, struct record_comm *c)
{
    if (report_comm(c, rec->page, 1, &c->last) != UNO_OK)
        c->last = (struct verdict_comm){.id = c->id, .rank = c->rank};
    c->last.destroyed = true;
    net_segment_unmap(&c->ref);
    c->region = NULL;
}

static void forget_oldest_destroyed(struct records *rec)
{
    size_t n = 0;
    for (size_t i = 0; i < rec->ncomms; i++)
        n += rec->comms[i].region == NULL;
    for (size_t i = 0; n > MOST_DESTROYED && i < rec->ncomms;) {
        if (rec->comms[i].region) {
            i++;
            continue;
        }
        comm_drop(&rec->comms[i]);
        memmove(&rec->comms[i], &rec->comms[i + 1], (--rec->ncomms - i) * sizeof rec->comms[0]);
        n--;
    }
}

uno_err records_map(const struct records *rec, struct door_call *call, const struct net_segment_ref *ref, void **base)
{
    struct net_segment_ref given;
    uint32_t boards;
    int fd;
    if (rec->door && call->name != rec->door - 1) {
        (void)door_call(call, rec->board.pid, rec->door - 1, DOOR_WAIT_NS);
        call->name = rec->door - 1; /* who does not answer is not waited for once more */
    }
    if (call->fd < 0)
        return net_segment_map(ref, base);
    enum door_said said = door_fetch(call, ref->token, DOOR_WAIT_NS, &given, &boards, &fd);
    if (said == DOOR_GIVEN)
        return net_segment_map_given(ref, fd, base);
    if (said == DOOR_SILENT) {
        door_hang_up(call);
        call->name = rec->door - 1;
    }
    return net_segment_map(ref, base);
}

/* false: its owner has ended, or does not answer, or memory has ended: the rest is told. */
static bool map_comm(struct records *rec, struct door_call *call, uint64_t id, int32_t rank, const struct net_segment_ref *ref)
{
    void *base;
    if (mem_grow(&rec->comms, &rec->cap, rec->ncomms + 1, sizeof *rec->comms) != UNO_OK || records_map(rec, call, ref, &base) != UNO_OK)
        return false;
    struct net_region_parts parts;
    if (!net_region_locate(base, ref->bytes, &parts)) {
        net_segment_unmap(ref);
        return true;
    }
    rec->comms[rec->ncomms++] = (struct record_comm){.id = id, .rank = rank, .ref = *ref, .region = base, .parts = parts, .notes = parts.notes};
    return true;
}

/* Take over what the board says now. */
void records_refresh(struct records *rec)
{
    if (!rec->page)
        return;
    uint32_t changes = atomic_load_explicit(&rec->page->changes, memory_order_acquire); /* pairs with the release of its owner */
    if (rec->filled && changes == rec->changes)
        return;
    struct door_call call = DOOR_NO_CALL;
    bool whole = true;
    for (int i = 0; i < BOARD_COMMS; i++) {
        struct board_comm *b = &rec->page->comms[i];
        uint32_t state = atomic_load_explicit(&b->state, memory_order_acquire);
        if (state == BOARD_FREE)
            continue;
        uint64_t id = b->id;
        int32_t rank = b->rank;
        struct net_segment_ref ref = b->region;
        atomic_thread_fence(memory_order_acquire);
        if (atomic_load_explicit(&b->state, memory_order_relaxed) != state)
            continue; /* it changes just now, and so will `changes` */
        struct record_comm *c = find_comm(rec, id, rank);
        if (state == BOARD_LIVE && !c)
            whole = map_comm(rec, &call, id, rank, &ref) && whole;
        else if (state == BOARD_DESTROYED && c && c->region)
            note_destroyed(rec, c);
    }
    forget_oldest_destroyed(rec);
    door_hang_up(&call);
    rec->changes = changes;
    rec->filled = whole || !rec->door; /* a door is tried again: its steward may only have been late */
}

/* ---- as time goes by ------------------------------------------------------------------------------------------------------ */

static void see_state(struct peer *p, char state, uint64_t now)
{
    struct records *rec = &p->records;
    if (state != rec->state) {
        rec->state = state;
        rec->state_since_ns = now;
    }
}

void records_tick(struct watch *w, uint64_t now)
{
    if (now < w->records_ns)
        return;
    w->records_ns = now + TICK_NS;
    if (w->opt.board)
        stack_check(w->opt.board->page);
    if (!hosts_is_hub(w))
        return;
    for (int i = 0; i < w->npeers; i++) {
        struct peer *p = &w->peers[i];
        if (!p->records.page || p->state != PEER_ALIVE)
            continue;
        records_refresh(&p->records);
        if (i != w->self)
            see_state(p, proc_state(p->eye.pid, p->eye.pid), now);
    }
}

void records_begin(struct watch *w)
{
    if (w->opt.board)
        atomic_store_explicit(&w->opt.board->page->steward_tid, gettid(), memory_order_release); /* pairs with want_position */
}

void records_end(struct watch *w)
{
    if (w->opt.board)
        atomic_store_explicit(&w->opt.board->page->steward_tid, 0, memory_order_release);
}

const sigset_t *records_mask(struct watch *w, sigset_t *mask)
{
    int sig = w->opt.board ? atomic_load_explicit(&w->opt.board->page->stack_signal, memory_order_relaxed) : 0;
    sigfillset(mask);
    if (sig >= SIGRTMIN && sig <= SIGRTMAX)
        sigdelset(mask, sig);
    return mask;
}

void records_serve(struct watch *w)
{
    struct board_page *page = w->opt.board ? w->opt.board->page : NULL;
    if (!page)
        return;
    uint32_t wanted = atomic_load_explicit(&page->position_wanted, memory_order_acquire); /* pairs with the increment in want_position */
    if (wanted == w->position_served)
        return;
    w->position_served = wanted;
    board_position(w->opt.board);
}

/* ---- a look ------------------------------------------------------------------------------------------------------------------ */

SEQLOCK_READER int32_t records_caller(const struct records *rec)
{
    int32_t tid = 0;
    uint64_t newest = 0;
    for (size_t i = 0; i < rec->ncomms; i++) {
        if (!rec->comms[i].region)
            continue;
        struct ledger_notes *n = rec->comms[i].notes;
        if (n->tid != 0 && n->tid != INT32_MIN && (tid == 0 || n->noted_ns > newest)) { /* one word; a wrong one only costs the answer */
            tid = abs(n->tid);
            newest = n->noted_ns;
        }
    }
    return tid;
}

void records_wake(struct peer *p)
{
    struct board_page *page = p->records.page;
    int sig = atomic_load_explicit(&page->stack_signal, memory_order_acquire);
    int32_t tid = atomic_load_explicit(&page->steward_tid, memory_order_acquire); /* pairs with the release in steward */
    if (sig > 0 && tid > 0 && proc_handles(p->eye.pid, tid, sig))
        (void)syscall(SYS_tgkill, p->eye.pid, tid, sig);
}

static void want_position(struct watch *w, struct peer *p)
{
    struct board_page *page = p->records.page;
    p->records.position_wanted = atomic_fetch_add_explicit(&page->position_wanted, 1, memory_order_release) + 1;
    if (p == &w->peers[w->self])
        records_serve(w);
    else
        records_wake(p);
}

/* Its steward never ended, and is not there, nor is its memory. */
static bool is_replaced(const struct records *rec, int32_t pid)
{
    int32_t tid = rec->page ? atomic_load_explicit(&rec->page->steward_tid, memory_order_acquire) : 0; /* pairs with records_begin */
    return tid > 0 && proc_replaced(pid, tid, rec->page->start_stack);
}

static void look_at(struct watch *w, struct peer *p)
{
    struct records *rec = &p->records;
    records_refresh(rec);
    int32_t tid = rec->page ? records_caller(rec) : 0;
    for (size_t i = 0; i < rec->ncomms; i++)
        if (rec->comms[i].region)
            rec->comms[i].moves = atomic_load_explicit(&rec->comms[i].notes->moves, memory_order_relaxed);
    proc_look_begin(&rec->look, p->eye.pid, tid);
    see_state(p, proc_state(p->eye.pid, p->eye.pid), clock_ns());
    rec->replaced = is_replaced(rec, p->eye.pid);
    if (!rec->page || rec->replaced)
        return;
    want_position(w, p);
    (void)proc_spot(p->eye.pid, rec->look.tid, &rec->spot[0]);
    (void)proc_spot(p->eye.pid, p->eye.pid, &rec->spot[1]);
}

/* Does that thread sleep inside a wait of ours? The wait notes itself every 20 ms and says in the region that it sleeps. */
SEQLOCK_READER static bool sleeps_inside(const struct records *rec, int32_t tid, uint64_t now)
{
    for (size_t i = 0; i < rec->ncomms; i++) {
        const struct net_region *r = rec->comms[i].region;
        if (r && atomic_load_explicit(&r->sleeping, memory_order_relaxed) && rec->comms[i].notes->tid == tid &&
            rec->comms[i].notes->noted_ns + NOTED_NS > now)
            return true;
    }
    return false;
}

static bool ask(struct records *rec, int place, int32_t tid)
{
    return stack_ask(rec->page, place, tid, sleeps_inside(rec, tid, clock_ns()) ? NULL : &rec->spot[place]);
}

/* Which threads are asked by a signal; where the others wait is looked at from outside. */
static struct stacks_of ask_stacks(struct peer *p)
{
    struct records *rec = &p->records;
    struct stacks_of of = {.pid = p->eye.pid, .tid = rec->look.tid, .page = rec->page};
    of.outside = atomic_load_explicit(&rec->page->stack_signal, memory_order_relaxed) != BOARD_STACKS_OFF;
    of.asked[0] = rec->look.tid != p->eye.pid && ask(rec, 0, rec->look.tid);
    of.asked[1] = ask(rec, 1, p->eye.pid);
    return of;
}

static bool looked_at(const struct watch *w, const struct peer *p)
{
    return peer_is_local(w, p) && p->state == PEER_ALIVE && !p->ended_ns;
}

/* A look whose predecessor still stands, for a file or memory that does not answer, is one without stacks. */
static void take_stacks(struct watch *w)
{
    for (int i = 0; i < w->npeers; i++)
        w->peers[i].records.stack_place = -1;
    if (w->stacks && !stacks_done(w->stacks))
        return;
    (void)stacks_end(w->stacks, 0);
    w->stacks = NULL;
    struct stacks_of *of = mem_array((size_t)w->npeers, sizeof *of);
    int n = 0;
    for (int i = 0; of && i < w->npeers; i++) {
        struct records *rec = &w->peers[i].records;
        if (!looked_at(w, &w->peers[i]) || !rec->page || rec->replaced)
            continue;
        rec->stack_place = n;
        of[n++] = ask_stacks(&w->peers[i]);
    }
    if (n > 0)
        w->stacks = stacks_begin(of, n);
    free(of);
}

void report_begin(struct watch *w)
{
    uint64_t began = clock_ns(), now;
    for (int i = 0; i < w->npeers; i++)
        if (looked_at(w, &w->peers[i]))
            look_at(w, &w->peers[i]);
    if ((now = clock_ns()) < began + TWICE_NS) /* stacks are asked for after a second look */
        usleep((useconds_t)((began + TWICE_NS - now) / 1000 + 1));
    take_stacks(w);
    w->look_ns = w->stacks_look_ns = clock_ns();
}

uint64_t report_ready_ns(const struct watch *w)
{
    return w->look_ns ? w->look_ns + REPORT_SAMPLE_NS : 0;
}

/* ---- one rank ---------------------------------------------------------------------------------------------------------------- */

/* The look was a moment ago; where processors are wanted by many, its stacks take a little longer. */
static void fill_stack(struct watch *w, const struct records *rec, struct verdict_process *v)
{
    bool inside = false;
    if (!w->stacks || w->stacks_look_ns != w->look_ns || rec->stack_place < 0)
        return;
    while (!stacks_told(w->stacks, rec->stack_place, v->stack, sizeof v->stack, &inside) && !stacks_done(w->stacks) &&
           clock_ns() < w->look_ns + STACKS_WAIT_NS)
        usleep(500);
    v->in_library = v->in_library || inside;
}

/* Does one of its operations run, and is it the thread looked at that waits in it? */
static bool waits_inside(const struct records *rec)
{
    for (size_t i = 0; i < rec->ncomms; i++) {
        struct ledger_notes n;
        struct ledger_event e;
        if (!rec->comms[i].region || !ledger_newest(rec->comms[i].parts.ledger, &e) || e.state != LEDGER_RUNNING)
            continue;
        notes_read(rec->comms[i].notes, &n);
        if (n.tid == rec->look.tid && n.wait_number == atomic_load_explicit(&e.number, memory_order_relaxed))
            return true;
    }
    return false;
}

static void fill_position(const struct records *rec, struct verdict_process *v, uint64_t look_ns)
{
    char text[BOARD_POSITION_BYTES];
    uint64_t since;
    board_position_read(rec->page, text, sizeof text, &since);
    if (text[0] && since + LOOK_NS > look_ns) {
        snprintf(v->python, sizeof v->python, "%.95s", text);
        text_clean(v->python, strlen(v->python), false);
        return;
    }
    uint64_t newest = 0; /* the last call is the best that is known */
    for (size_t i = 0; i < rec->ncomms; i++) {
        const struct ledger_notes *n = rec->comms[i].notes;
        char site[LEDGER_SITE_BYTES];
        struct ledger_event e;
        if (!rec->comms[i].region || !ledger_newest(rec->comms[i].parts.ledger, &e) || e.start_ns < newest ||
            !ledger_site(n, atomic_load_explicit(&n->site, memory_order_relaxed), site)[0])
            continue;
        newest = e.start_ns;
        snprintf(v->python, sizeof v->python, "last seen at %.80s", site);
    }
}

/* It was first seen to stand then, but a steward that stands with it had ceased before. Who has just come has only that. */
static uint64_t stands_since(const struct records *rec)
{
    uint64_t beat_ns = rec->page ? atomic_load_explicit(&rec->page->steward.beat_at_ns, memory_order_relaxed) : 0;
    return beat_ns ? MIN(rec->state_since_ns, beat_ns + STEWARD_TICK_NS) : rec->state_since_ns;
}

static void read_process(struct watch *w, struct peer *p, struct verdict_process *v)
{
    struct records *rec = &p->records;
    proc_look_end(&rec->look, v);
    times_fill(rec, p->eye.pid, clock_ns(), v);
    see_state(p, proc_state(p->eye.pid, p->eye.pid), clock_ns());
    if (v->run == VERDICT_RUN_DISK && p->mute) /* all its threads at once: what stands for all, though its cgroup cannot be read from here */
        v->run = VERDICT_RUN_FROZEN;
    if (v->run == VERDICT_RUN_STOPPED || v->run == VERDICT_RUN_TRACED || v->run == VERDICT_RUN_FROZEN)
        v->run_since_ns = stands_since(rec);
    if (!rec->page)
        return;
    v->in_library = waits_inside(rec) || sleeps_inside(rec, rec->look.tid, clock_ns());
    fill_stack(w, rec, v);
    fill_position(rec, v, w->look_ns);
    if (!rec->replaced || !is_replaced(rec, p->eye.pid)) /* looked at twice, as an end may look like it for a moment */
        return;
    v->run = VERDICT_RUN_REPLACED;
    v->in_library = false;
    v->syscall[0] = v->wchan[0] = v->stack[0] = 0;
    proc_command(p->eye.pid, v->successor, sizeof v->successor);
}

/* A look gives one answer, whoever asks for it: a stack is handed over once. */
static void fill_process(struct watch *w, struct peer *p, struct verdict_process *v)
{
    struct records *rec = &p->records;
    if (rec->process_look_ns != w->look_ns) {
        rec->process = (struct verdict_process){0};
        read_process(w, p, &rec->process);
        rec->process_look_ns = w->look_ns;
    }
    *v = rec->process;
}

static uno_err copy_last(const struct verdict_comm *from, struct verdict_comm *to)
{
    *to = *from;
    to->p2p = NULL;
    to->calls = NULL;
    to->passed = NULL;
    to->np2p = to->ncalls = to->npassed = 0;
    to->members = from->members ? mem_array((size_t)from->size, sizeof *to->members) : NULL;
    to->events = from->nevents ? mem_array(from->nevents, sizeof *to->events) : NULL;
    if ((from->members && !to->members) || (from->nevents && !to->events)) {
        free(to->members);
        free(to->events);
        *to = (struct verdict_comm){0};
        return UNO_ERR_MEMORY;
    }
    if (from->members)
        memcpy(to->members, from->members, (size_t)from->size * sizeof *to->members);
    if (from->nevents)
        memcpy(to->events, from->events, from->nevents * sizeof *to->events);
    return UNO_OK;
}

/* What moved while we looked moves now. */
static void see_motion(const struct record_comm *c, struct verdict_comm *v, uint64_t look_ns)
{
    if (v->nevents && v->events[v->nevents - 1].state == VERDICT_RUNNING && look_ns &&
        atomic_load_explicit(&c->notes->moves, memory_order_relaxed) != c->moves)
        v->events[v->nevents - 1].moved_ns = clock_ns();
}

/* Ranks may be threads of one process, which has the communicators of all of them. */
static bool belongs_to(const struct record_comm *c, int32_t job_rank)
{
    if (c->region)
        return c->notes->job_rank == job_rank;
    return (c->last.members && c->rank < c->last.size ? c->last.members[c->rank] : c->rank) == job_rank;
}

static uno_err fill_comms(struct peer *p, uint32_t events, uint64_t look_ns, struct verdict_rank *out)
{
    struct records *rec = &p->records;
    out->comms = rec->ncomms ? mem_array(rec->ncomms, sizeof *out->comms) : NULL;
    if (rec->ncomms && !out->comms)
        return UNO_ERR_MEMORY;
    for (size_t i = 0; i < rec->ncomms; i++) {
        struct record_comm *c = &rec->comms[i];
        struct verdict_comm *v = &out->comms[out->ncomms];
        if (!belongs_to(c, out->rank))
            continue;
        out->ncomms++; /* also on failure: what hangs on it is freed with *out */
        TRY(c->region ? report_comm(c, rec->page, events, v) : copy_last(&c->last, v));
        if (v->size == 0)
            *v = out->comms[--out->ncomms]; /* nothing is known of it */
        else if (c->region)
            see_motion(c, v, look_ns);
    }
    return UNO_OK;
}

static uint64_t real_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uno_err report_rank(struct watch *w, int rank, uint32_t events, struct verdict_rank *out)
{
    memset(out, 0, sizeof *out);
    if (rank < 0 || rank >= w->opt.size)
        return err_set(UNO_ERR_ARG, "no rank %d in a job of %d", rank, w->opt.size);
    const struct watch_member *m = &w->members[rank];
    struct peer *p = peer_find(w, m->process);
    if (!p || !peer_is_local(w, p))
        return err_set(UNO_ERR_ARG, "rank %d is on another host (%.60s)", rank, m->hostname);
    struct records *rec = &p->records;
    uint64_t now = clock_ns();
    bool looked = w->look_ns && now - w->look_ns < LOOK_NS;
    out->rank = rank;
    out->host_index = m->host;
    out->pid = m->pid;
    out->reporter = w->opt.rank;
    out->taken_ns = now;
    out->taken_real_ns = real_ns();
    out->size = w->opt.size;
    snprintf(out->host, sizeof out->host, "%.63s", m->hostname);
    if (rec->page) {
        out->job = rec->page->job;
        snprintf(out->program, sizeof out->program, "%.63s", rec->page->program);
        out->refused = atomic_load_explicit(&rec->page->steward.refused, memory_order_relaxed);
    }
    if (p->state == PEER_ALIVE && p->ended_ns == 0) {
        records_refresh(rec);
        out->status = VERDICT_REPORTED;
        if (rec->page && atomic_load_explicit(&rec->page->changes, memory_order_acquire) == 0) /* it has had no communicator */
            out->status_since_ns = rec->page->made_ns;
        if (looked && rec->look.there)
            fill_process(w, p, &out->process);
        out->process.state = (uint8_t)proc_used(p->eye.pid, &out->process.cpu_ns);
    } else {
        report_end(p, out);
    }
    uno_err err = fill_comms(p, events, looked ? w->look_ns : 0, out);
    if (err != UNO_OK)
        verdict_rank_free(out);
    return err;
}
