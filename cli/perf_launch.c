/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perf_launch.c - where the ranks of a benchmark come from: the launcher's environment, processes started here, or threads.
 * Also how crews talk to each other besides what they measure, and how an error is said once and not by every rank.
 */
#include "perf.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "output.h"

struct launch_page {
    _Atomic int id_state; /* 1: id is there, -1: it will not come. Release by the maker, pairs with acquire in wait_id. */
    _Atomic int failed;   /* somebody has said what went wrong; relaxed, it guards nothing else */
    uno_id id;
};

double perf_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void pause_ms(int ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&t, NULL);
}

/* ---- saying what went wrong ------------------------------------------------------------------------------------ */

int perf_fail_text(struct crew *c, const char *fmt, ...)
{
    if (atomic_exchange_explicit(&c->page->failed, 1, memory_order_relaxed))
        return CLI_ERROR;
    char text[1536];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return out_error("perf", "%s", text);
}

int perf_fail(struct crew *c, uno_err err, const char *during)
{
    const char *sentence = uno_last_error(NULL);
    for (int i = 0; !*sentence && i < 2 * c->mine; i++) {
        uno_comm *comm = i < c->mine ? c->comms[i] : c->all[i - c->mine];
        sentence = comm ? uno_last_error(comm) : "";
    }
    return perf_fail_text(c, "rank %d: %s: %s (%s)", c->place, during, sentence, uno_err_name(err));
}

/* ---- small talk -------------------------------------------------------------------------------------------------- */

uno_err perf_barrier(struct crew *c)
{
    if (c->mine == 1)
        return uno_barrier(c->all[0], NULL);
    uno_err err = uno_group_start();
    for (int i = 0; i < c->mine && err == UNO_OK; i++)
        err = uno_barrier(c->all[i], NULL);
    uno_err end = uno_group_end();
    return err != UNO_OK ? err : end;
}

uno_err perf_gather(struct crew *c, const void *mine, size_t bytes, void *out)
{
    size_t all = bytes * (size_t)c->world;
    char *copies = malloc(all * (size_t)c->mine); /* each rank receives for itself */
    if (!copies)
        return UNO_ERR_MEMORY;
    uno_err err = uno_group_start();
    for (int i = 0; i < c->mine && err == UNO_OK; i++)
        err = uno_all_gather((const char *)mine + bytes * (size_t)i, copies + all * (size_t)i, bytes, UNO_UINT8, c->all[i],
                             NULL);
    uno_err end = uno_group_end();
    err = err != UNO_OK ? err : end;
    if (err == UNO_OK)
        memcpy(out, copies, all);
    free(copies);
    return err;
}

uno_err perf_max(struct crew *c, double *values, size_t n)
{
    double *copies = malloc(n * sizeof(double) * (size_t)c->mine);
    if (!copies)
        return UNO_ERR_MEMORY;
    uno_err err = uno_group_start();
    for (int i = 0; i < c->mine && err == UNO_OK; i++)
        err = uno_all_reduce(values, copies + n * (size_t)i, n, UNO_FLOAT64, UNO_MAX, c->all[i], NULL);
    uno_err end = uno_group_end();
    err = err != UNO_OK ? err : end;
    if (err == UNO_OK)
        memcpy(values, copies, n * sizeof(double));
    free(copies);
    return err;
}

/* ---- processors ---------------------------------------------------------------------------------------------------- */

static int processors(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

/* Put the calling thread on the index-th processor it may use. */
static void bind_to(int index)
{
    cpu_set_t set, one;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set) && index-- == 0) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            sched_setaffinity(0, sizeof one, &one); /* a refusal only costs speed; the header shows where ranks are */
            return;
        }
}

/* ---- crews ---------------------------------------------------------------------------------------------------------- */

struct hand { /* one thread of this process */
    struct crew crew;
    int (*work)(struct crew *);
    int status, bind_index; /* bind_index -1: not bound */
    int ranks_a_process;
    bool joins;             /* makes its own communicators (-p 1) */
    pthread_t thread;
};

static uno_config config_of(const struct perf_options *o)
{
    uno_config config = UNO_CONFIG_INIT;
    if (o->timeout_s > 0)
        config.timeout_s = o->timeout_s;
    config.name = "perf";
    return config;
}

static uno_err join_ranks(struct crew *c, const uno_id *id)
{
    uno_config config = config_of(c->o);
    uno_err err = UNO_OK, end = UNO_OK;
    if (c->mine > 1)
        err = uno_group_start();
    for (int i = 0; i < c->mine && err == UNO_OK; i++)
        err = uno_comm_init_rank(&c->comms[i], c->ranks, id, c->first + i, &config);
    if (c->mine > 1)
        end = uno_group_end();
    return err != UNO_OK ? err : end;
}

static int work_with_streams(struct hand *h)
{
    struct crew *c = &h->crew;
    for (int i = 0; c->o->use_stream && i < c->mine; i++) {
        uno_err err = uno_stream_create(&c->streams[i]);
        if (err != UNO_OK)
            return perf_fail(c, err, "making a stream");
    }
    int status = h->work(c);
    for (int i = 0; c->o->use_stream && i < c->mine; i++)
        if (uno_stream_destroy(c->streams[i]) != UNO_OK && status == CLI_GOOD)
            status = perf_fail(c, UNO_ERR_INTERNAL, "ending a stream");
    return status;
}

static void *hand_main(void *arg)
{
    struct hand *h = arg;
    uno_err err = UNO_OK;
    if (h->bind_index >= 0)
        bind_to(h->bind_index);
    if (h->joins)
        err = join_ranks(&h->crew, &h->crew.page->id);
    if (err == UNO_OK)
        err = perf_split(&h->crew, h->crew.place / h->ranks_a_process);
    h->status = err == UNO_OK ? work_with_streams(h) : perf_fail(&h->crew, err, "joining");
    for (int i = 0; h->status == CLI_ERROR && i < h->crew.mine; i++) { /* others may wait for us: let them go */
        if (h->crew.comms[i])
            uno_comm_abort(h->crew.comms[i]);
        if (h->crew.all != h->crew.comms && h->crew.all[i])
            uno_comm_abort(h->crew.all[i]);
    }
    perf_split_end(&h->crew);
    return NULL;
}

/* Run `threads` crews of `per_thread` ranks each over comms; the first one on this thread. */
static int run_hands(struct hand *hands, int threads)
{
    int started = 1, status = CLI_GOOD;
    for (; started < threads; started++)
        if (pthread_create(&hands[started].thread, NULL, hand_main, &hands[started]) != 0) {
            status = perf_fail_text(&hands[0].crew, "cannot start thread %d of %d: %s", started, threads, strerror(errno));
            for (int i = 0; i < hands[0].crew.mine * threads; i++)
                if (hands[0].crew.comms[i])
                    uno_comm_abort(hands[0].crew.comms[i]);
            break;
        }
    if (status == CLI_GOOD)
        hand_main(&hands[0]);
    for (int i = 0; i < started; i++) {
        if (i > 0)
            pthread_join(hands[i].thread, NULL);
        status = hands[i].status > status ? hands[i].status : status;
    }
    return status;
}

static int threads_of(const struct perf_options *o)
{
    return o->threads ? o->threads : 1;
}

static int per_thread_of(const struct perf_options *o)
{
    return o->per_thread ? o->per_thread : 1;
}

/* This process's ranks are first .. first + t*g - 1 of `ranks`. comms: t*g, given ready unless joins. */
static int run_process(const struct perf_options *o, struct launch_page *page, int ranks, int first, uno_comm **comms,
                       bool joins, bool bind, const char *how, int (*work)(struct crew *))
{
    int threads = threads_of(o), each = per_thread_of(o), mine = threads * each;
    struct hand *hands = calloc((size_t)threads, sizeof *hands);
    uno_stream **streams = calloc((size_t)mine, sizeof *streams);
    int status;
    if (hands && streams) {
        for (int t = 0; t < threads; t++)
            hands[t] = (struct hand){.crew = {.o = o, .page = page, .ranks = ranks, .first = first + t * each, .mine = each,
                                              .comms = comms + t * each, .streams = streams + t * each, .how = how,
                                              .world = ranks, .place = first + t * each, .all = comms + t * each},
                                     .work = work, .joins = joins, .ranks_a_process = mine, .bind_index = bind ? t : -1};
        status = run_hands(hands, threads);
    } else {
        status = out_error("perf", "no memory for %d threads", threads);
    }
    for (int i = 0; i < mine; i++)
        uno_comm_destroy(comms[i]);
    free(streams);
    free(hands);
    return status;
}

/* ---- ranks as threads of this process -------------------------------------------------------------------------------- */

static int launch_threads(const struct perf_options *o, struct launch_page *page, int (*work)(struct crew *))
{
    int threads = threads_of(o), each = per_thread_of(o), ranks = threads * each;
    uno_comm **comms = calloc((size_t)ranks, sizeof *comms);
    if (!comms)
        return out_error("perf", "no memory for %d ranks", ranks);
    char how[160];
    bool bind = o->bind && threads > 1 && threads <= processors();
    snprintf(how, sizeof how, "%d thread%s of one process, %d rank%s each%s", threads, threads == 1 ? "" : "s", each,
             each == 1 ? "" : "s", bind ? ", each bound to a processor" : "");
    uno_config config = config_of(o);
    uno_err err = o->parallel_init ? uno_get_id(&page->id) : uno_comm_init_all(comms, ranks, &config);
    int status;
    if (err == UNO_OK)
        status = run_process(o, page, ranks, 0, comms, o->parallel_init, bind, how, work);
    else
        status = out_error("perf", "making %d ranks: %s (%s)", ranks, uno_last_error(NULL), uno_err_name(err));
    free(comms);
    return status;
}

/* ---- processes started here ------------------------------------------------------------------------------------------- */

static bool wait_id(struct launch_page *page)
{
    for (;;) {
        int state = atomic_load_explicit(&page->id_state, memory_order_acquire);
        if (state != 0)
            return state > 0;
        pause_ms(1);
    }
}

static int child_main(const struct perf_options *o, struct launch_page *page, int ranks, int rank, bool bind, const char *how,
                      int (*work)(struct crew *))
{
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* nothing stays behind when the starter is killed */
    if (bind)
        bind_to(rank);
    if (rank == 0) {
        uno_err err = uno_get_id(&page->id);
        atomic_store_explicit(&page->id_state, err == UNO_OK ? 1 : -1, memory_order_release);
        if (err != UNO_OK)
            return out_error("perf", "making the job's id: %s (%s)", uno_last_error(NULL), uno_err_name(err));
    } else if (!wait_id(page)) {
        return CLI_ERROR; /* rank 0 has said why */
    }
    uno_comm *comm = NULL;
    return run_process(o, page, ranks, rank, &comm, true, false, how, work);
}

/* Wait for all; when one is ended by a signal say so, and give the others ten seconds to say what they saw. */
static int wait_children(struct launch_page *page, const pid_t *pids, int n)
{
    int status = CLI_GOOD, left = n;
    bool hurry = false;
    double since = 0;
    char gone[1024] = {0};
    while (left > 0) {
        int how;
        pid_t pid = waitpid(-1, &how, hurry ? WNOHANG : 0);
        if (pid == 0 || (pid < 0 && errno == EINTR)) {
            for (int r = 0; hurry && perf_now() - since > 10 && r < n; r++)
                if (!gone[r])
                    kill(pids[r], SIGKILL);
            pause_ms(5);
            continue;
        }
        if (pid < 0)
            break;
        left--;
        int rank = 0;
        while (rank < n && pids[rank] != pid)
            rank++;
        if (rank < n)
            gone[rank] = 1;
        int this = WIFEXITED(how) ? WEXITSTATUS(how) : CLI_ERROR;
        status = this > status ? this : status;
        if (WIFSIGNALED(how) && !(hurry && WTERMSIG(how) == SIGKILL)) {
            atomic_store_explicit(&page->failed, 1, memory_order_relaxed); /* the others' errors follow from this one */
            out_error("perf", "rank %d (process %d) was ended by signal %d (%s)", rank, (int)pid, WTERMSIG(how),
                      strsignal(WTERMSIG(how)));
        }
        if (this != CLI_GOOD && this != CLI_BAD && !hurry) {
            hurry = true;
            since = perf_now();
        }
    }
    return status;
}

static int launch_processes(const struct perf_options *o, struct launch_page *page, int ranks, int (*work)(struct crew *))
{
    int cpus = processors();
    bool bind = o->bind && ranks <= cpus;
    char how[200], crowd[64] = "";
    if (ranks > cpus)
        snprintf(crowd, sizeof crowd, ", taking turns on %d processor%s", cpus, cpus == 1 ? "" : "s");
    snprintf(how, sizeof how, "%d process%s started here%s%s", ranks, ranks == 1 ? "" : "es",
             bind ? ", each bound to a processor" : crowd,
             o->ranks ? "" : " (no launcher found; --ranks N starts N, -t or -g makes threads)");
    pid_t pids[1024];
    fflush(NULL);
    for (int r = 0; r < ranks; r++) {
        pids[r] = fork();
        if (pids[r] == 0) {
            int status = child_main(o, page, ranks, r, bind, how, work);
            fflush(NULL);
            exit(status);
        }
        if (pids[r] < 0) {
            out_error("perf", "cannot start process %d of %d: %s%s", r, ranks, strerror(errno), out_start_hint(errno));
            for (int i = 0; i < r; i++)
                kill(pids[i], SIGKILL);
            while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
                ;
            return CLI_ERROR;
        }
    }
    return wait_children(page, pids, ranks);
}

/* ---- ranks of a launcher ------------------------------------------------------------------------------------------------- */

bool perf_has_launcher(void)
{
    static const char *const names[] = {"UNISONO_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (getenv(names[i]))
            return true;
    return (getenv("RANK") && getenv("WORLD_SIZE")) || (getenv("SLURM_PROCID") && getenv("SLURM_STEP_ID"));
}

/* Several ranks in each process of the launcher: an id travels over a communicator of the processes. */
static int launch_many_each(const struct perf_options *o, struct launch_page *page, uno_comm *boot, int (*work)(struct crew *))
{
    int processes = uno_comm_size(boot), mine = threads_of(o) * per_thread_of(o), process = uno_comm_rank(boot);
    uno_comm **comms = calloc((size_t)mine, sizeof *comms);
    if (!comms)
        return out_error("perf", "no memory for %d ranks", mine);
    uno_err err = process == 0 ? uno_get_id(&page->id) : UNO_OK;
    if (err == UNO_OK)
        err = uno_broadcast(&page->id, &page->id, sizeof page->id, UNO_UINT8, 0, boot, NULL);
    int status;
    if (err == UNO_OK) {
        char how[160];
        snprintf(how, sizeof how, "%d processes of the launcher, %d threads of %d ranks each", processes, threads_of(o),
                 per_thread_of(o));
        status = run_process(o, page, processes * mine, process * mine, comms, true, false, how, work);
    } else {
        status = out_error("perf", "process %d: spreading the id: %s (%s)", process, uno_last_error(boot), uno_err_name(err));
        uno_comm_abort(boot);
    }
    free(comms);
    return status;
}

static int launch_from_environment(const struct perf_options *o, struct launch_page *page, int (*work)(struct crew *))
{
    uno_comm *comm = NULL;
    uno_config config = config_of(o);
    uno_err err = uno_comm_init_env(&comm, &config);
    if (err != UNO_OK)
        return out_error("perf", "joining: %s (%s)", uno_last_error(NULL), uno_err_name(err));
    if (threads_of(o) * per_thread_of(o) == 1)
        return run_process(o, page, uno_comm_size(comm), uno_comm_rank(comm), &comm, false, false, "processes of the launcher",
                           work);
    int status = launch_many_each(o, page, comm, work);
    uno_comm_destroy(comm);
    return status;
}

/*
 * Other programs that compete for the processors make times longer and shares of the limit random: say so. The mean of the last
 * minute alone would count a build that has just ended, and those that run now alone would count a passing moment: both must be high.
 */
static void note_busy(struct perf_options *o)
{
    double mean = 0;
    int running = 0, cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
    FILE *f = fopen("/proc/loadavg", "re");
    bool known = f && fscanf(f, "%lf %*f %*f %d/", &mean, &running) == 2;
    if (f)
        fclose(f);
    int others = known ? running - 1 : 0; /* we run too */
    if (mean < others)
        others = (int)(mean + 0.5);
    size_t n = strlen(o->notes);
    if (2 * others >= cpus && others > 0)
        snprintf(o->notes + n, sizeof o->notes - n, "# busy: %d other %s on this machine's %d processor%s: times and shares say less than "
                 "on a quiet machine\n", others, others == 1 ? "thread runs" : "threads run", cpus, cpus == 1 ? "" : "s");
}

int perf_launch(struct perf_options *o, int (*work)(struct crew *))
{
    struct launch_page *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return out_error("perf", "cannot map a page: %s", strerror(errno));
    int status, cpus = processors();
    bool launched = o->ranks == 0 && perf_has_launcher();
    if (!launched) /* a launcher's ranks cannot be told from others' */
        note_busy(o);
    if (launched)
        status = launch_from_environment(o, page, work);
    else if (o->threads || o->per_thread)
        status = launch_threads(o, page, work);
    else
        status = launch_processes(o, page, o->ranks ? o->ranks : cpus < 2 ? 2 : cpus > 4 ? 4 : cpus, work);
    munmap(page, sizeof *page);
    return status;
}
