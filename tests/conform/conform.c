/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conform.c - starts the ranks and walks the table: conform --ranks 3 --carrier threads|shm|tcp --set types|pairwise|sizes|all
 * [--seed S] [--journal FILE]. One launch per (ranks, carrier); with --journal it goes on where it was stopped. Without --carrier the
 * environment's launcher decides (mpirun, unisono run, ...), and --expect-ranks and --expect-hosts say what it must have made of it.
 * Ends with one line "conform: N passed, N failed"; exit status 1 on any failure.
 */
#include "conform.h"
#include "share.h"
#include "unisono_watch.h"

#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct {
    int ranks;
    const char *carrier;
    enum conform_set set;
    uint64_t seed;
    bool verbose;
    int expect_ranks, expect_hosts;
    const char *journal;
} opt = {.ranks = 2, .set = CONFORM_PAIRWISE};
static struct journal journal; /* read before there are ranks; then rank 0's */
static struct { size_t next; long passed, failed; } begin; /* of this start, from the journal */
static _Atomic long *failures; /* of any rank in this start: shared memory; relaxed, it is only a count */

struct rank_result { long passed, failed; };

/* Did the bytes go where the carrier says? A silent fall-back would make the test worthless. */
static bool right_carrier(uno_comm *comm)
{
    uno_counts k;
    if (!opt.carrier || opt.ranks == 1 || uno_comm_counts(comm, &k) != UNO_OK)
        return true;
    bool tcp = strcmp(opt.carrier, "tcp") == 0, threads = strcmp(opt.carrier, "threads") == 0;
    uno_carrier want = tcp ? UNO_CARRIER_TCP : threads ? UNO_CARRIER_THREAD : UNO_CARRIER_SHM;
    for (int i = 0; i < UNO_CARRIER_COUNT; i++)
        if ((k.bytes[i] != 0) != (i == (int)want)) {
            fprintf(stderr, "conform: %llu bytes went over %s\n", (unsigned long long)k.bytes[i], uno_carrier_name((uno_carrier)i));
            return false;
        }
    return !tcp || k.small_operations == 0;
}

/* Under a launcher: ranks of different hosts share no memory, ranks of one host do. */
static bool right_hosts(uno_comm *comm)
{
    uno_counts k;
    int hosts = uno_comm_hosts(comm), size = uno_comm_size(comm), beside = -1; /* ranks of my host besides me */
    if ((opt.expect_ranks && size != opt.expect_ranks) || (opt.expect_hosts && hosts != opt.expect_hosts)) {
        fprintf(stderr, "conform: %d ranks on %d hosts, expected %d on %d\n", size, hosts, opt.expect_ranks, opt.expect_hosts);
        return false;
    }
    if (!opt.expect_hosts || uno_comm_counts(comm, &k) != UNO_OK)
        return true;
    for (int r = 0; r < size; r++)
        beside += uno_comm_host_of(comm, r) == uno_comm_host_of(comm, uno_comm_rank(comm));
    bool tcp = k.bytes[UNO_CARRIER_TCP] != 0, memory = k.bytes[UNO_CARRIER_SHM] + k.bytes[UNO_CARRIER_THREAD] != 0;
    if (tcp != (hosts > 1) || memory != (beside > 0)) {
        fprintf(stderr, "conform: rank %d: %d hosts, %d other ranks on this one, %llu bytes over TCP, %llu through shared memory\n",
                uno_comm_rank(comm), hosts, beside, (unsigned long long)k.bytes[UNO_CARRIER_TCP],
                (unsigned long long)k.bytes[UNO_CARRIER_SHM]);
        return false;
    }
    return true;
}

static void note(uno_comm *comm, const struct rank_result *result, size_t next)
{
    if (!opt.journal || uno_comm_rank(comm) != 0)
        return;
    journal.next = next;
    journal.passed = result->passed;
    journal.failed = begin.failed + atomic_load_explicit(failures, memory_order_relaxed);
    journal_note(&journal, next == journal.cases);
}

/* False: the communicator is gone. */
static bool walk_case(uno_comm *comm, struct conform_room *room, const struct conform_case *c, size_t i, struct rank_result *result)
{
    uno_err err = conform_run(comm, room, c, opt.seed + i);
    if (err == UNO_OK) {
        result->passed++;
        return true;
    }
    char name[160];
    conform_name(c, name, sizeof name);
    fprintf(stderr, "conform: case %zu (%s): rank %d: %s: %s\n", i, name, uno_comm_rank(comm), uno_err_name(err), err_text());
    result->failed++;
    if (failures)
        atomic_fetch_add_explicit(failures, 1, memory_order_relaxed);
    return err == UNO_ERR_INTERNAL;
}

static struct rank_result walk(uno_comm *comm)
{
    struct rank_result result = {.passed = begin.passed, .failed = begin.failed};
    struct conform_room room = {.keep = opt.set == CONFORM_ALL};
    struct conform_case *cases = NULL;
    size_t count = 0;
    if (conform_cases(opt.set, uno_comm_size(comm), opt.seed, &cases, &count) != UNO_OK) {
        fprintf(stderr, "conform: %s\n", err_text());
        return (struct rank_result){0, 1};
    }
    for (size_t i = begin.next; i < count; i++) {
        if (!walk_case(comm, &room, &cases[i], i, &result))
            break;
        note(comm, &result, i + 1);
    }
    conform_room_free(&room);
    int more = 0;
    if (result.failed == 0 && !opt.journal) {
        uno_err err = conform_rest(comm, opt.seed, &more);
        if (err != UNO_OK) {
            fprintf(stderr, "conform: rank %d: %s: %s\n", uno_comm_rank(comm), uno_err_name(err), err_text());
            result.failed++;
        }
        result.passed += more;
    }
    if (!right_carrier(comm) || !right_hosts(comm))
        result.failed++;
    free(cases);
    return result;
}

/* ---- ranks as threads --------------------------------------------------------------------------------------------- */

struct thread_rank { uno_comm *comm; struct rank_result result; pthread_t thread; };

static void *thread_main(void *arg)
{
    struct thread_rank *t = arg;
    t->result = walk(t->comm);
    return NULL;
}

static struct rank_result run_threads(void)
{
    uno_comm *comms[64];
    struct thread_rank ranks[64];
    struct rank_result worst = {0};
    if (uno_comm_init_all(comms, opt.ranks, NULL) != UNO_OK) {
        fprintf(stderr, "conform: %s\n", uno_last_error(NULL));
        return (struct rank_result){0, 1};
    }
    for (int r = 0; r < opt.ranks; r++) {
        ranks[r].comm = comms[r];
        pthread_create(&ranks[r].thread, NULL, thread_main, &ranks[r]);
    }
    for (int r = 0; r < opt.ranks; r++) {
        pthread_join(ranks[r].thread, NULL);
        worst.failed = MAX(worst.failed, ranks[r].result.failed);
        worst.passed = r == 0 ? ranks[r].result.passed : MIN(worst.passed, ranks[r].result.passed);
    }
    for (int r = 0; r < opt.ranks; r++)
        (void)uno_comm_destroy(comms[r]);
    return worst;
}

/* ---- ranks as processes --------------------------------------------------------------------------------------------- */

static int run_process(uno_comm *comm)
{
    int rank = uno_comm_rank(comm);
    struct rank_result r = walk(comm);
    (void)uno_comm_destroy(comm);
    if (r.failed == 0 && opt.verbose)
        printf("conform: rank %d: %ld passed\n", rank, r.passed);
    return r.failed ? 1 : 0;
}

static int child(int rank, const int id_pipes[2], int out)
{
    uno_comm *comm;
    uno_id id;
    if (!share_id(rank, opt.ranks, id_pipes, &id) || uno_comm_init_rank(&comm, opt.ranks, &id, rank, NULL) != UNO_OK) {
        fprintf(stderr, "conform: %s\n", uno_last_error(NULL));
        return 1;
    }
    struct rank_result r = walk(comm);
    (void)uno_comm_destroy(comm);
    if (write(out, &r, sizeof r) != (ssize_t)sizeof r)
        return 1;
    return r.failed != 0;
}

static struct rank_result run_processes(void)
{
    struct rank_result worst = {0};
    int pipes[2], id_pipes[2];
    pid_t pids[64];
    if (strcmp(opt.carrier, "tcp") == 0) {
        setenv("UNISONO_SHM_DISABLE", "1", 1);
        setenv("UNISONO_SOCKET_IFNAME", "lo", 1);
    }
    if (pipe(pipes) != 0 || pipe(id_pipes) != 0)
        return (struct rank_result){0, 1};
    fflush(NULL);
    for (int r = 0; r < opt.ranks; r++) {
        pids[r] = fork();
        if (pids[r] == 0)
            _exit(child(r, id_pipes, pipes[1]));
    }
    close(pipes[1]);
    close(id_pipes[0]);
    close(id_pipes[1]);
    for (int r = 0; r < opt.ranks; r++) {
        int status;
        waitpid(pids[r], &status, 0);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            worst.failed++;
    }
    struct rank_result r;
    bool first = true;
    while (read(pipes[0], &r, sizeof r) == (ssize_t)sizeof r) {
        worst.passed = first ? r.passed : MIN(worst.passed, r.passed);
        first = false;
    }
    return worst;
}

static int usage(const char *what)
{
    fprintf(stderr, "conform: %s; usage: conform --ranks 1..64 --carrier threads|shm|tcp --set types|pairwise|sizes|all [--seed S]\n"
            "               [--journal FILE]\n"
            "       LAUNCHER conform [--expect-ranks N] [--expect-hosts N] [--verbose] --set ... --seed S\n", what);
    return 2;
}

static int under_launcher(bool seeded)
{
    uno_comm *comm;
    if (!seeded) /* every process must walk the same table */
        opt.seed = 1;
    if (uno_comm_init_env(&comm, NULL) != UNO_OK) {
        fprintf(stderr, "conform: %s\n", uno_last_error(NULL));
        return 1;
    }
    return run_process(comm);
}

/* How far did an earlier start come? */
static uno_err open_journal(void)
{
    struct conform_case *cases;
    size_t count;
    TRY(conform_cases(opt.set, opt.ranks, opt.seed, &cases, &count));
    free(cases);
    TRY(journal_read(&journal, opt.journal, opt.carrier, opt.ranks, opt.seed, count));
    begin.next = journal.next;
    begin.passed = journal.passed;
    begin.failed = journal.failed;
    void *p = mmap(NULL, sizeof *failures, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    failures = p;
    return p == MAP_FAILED ? err_sys("mmap") : UNO_OK;
}

static const char *const sets[] = {"types", "pairwise", "sizes", "all"};

static int start_ranks(void)
{
    bool threads = strcmp(opt.carrier, "threads") == 0;
    if (!threads && strcmp(opt.carrier, "shm") != 0 && strcmp(opt.carrier, "tcp") != 0)
        return usage("unknown carrier");
    if (opt.journal && open_journal() != UNO_OK)
        return usage(err_text());
    if (!opt.journal)
        printf("conform: %d ranks, %s, set %s, seed %llu\n", opt.ranks, opt.carrier, sets[opt.set], (unsigned long long)opt.seed);
    struct rank_result r = {begin.passed, begin.failed};
    if (!opt.journal || begin.next < journal.cases)
        r = threads ? run_threads() : run_processes();
    if (opt.journal)
        r.failed = MAX(r.failed, begin.failed + *failures);
    if (opt.journal)
        printf("conform: %d ranks, %s, set %s, seed %llu: %ld of %zu cases passed, %ld failed\n", opt.ranks, opt.carrier,
               sets[opt.set], (unsigned long long)opt.seed, r.passed, journal.cases, r.failed);
    else
        printf("conform: %ld passed, %ld failed\n", r.passed, r.failed);
    return r.failed != 0;
}

int main(int argc, char **argv)
{
    static const struct option longs[] = {{"ranks", 1, 0, 'n'}, {"carrier", 1, 0, 'c'}, {"set", 1, 0, 's'}, {"seed", 1, 0, 'S'},
                                          {"verbose", 0, 0, 'v'}, {"expect-ranks", 1, 0, 'R'}, {"expect-hosts", 1, 0, 'H'},
                                          {"journal", 1, 0, 'j'}, {0}};
    opt.seed = (uint64_t)time(NULL);
    bool seeded = false;
    int o;
    while ((o = getopt_long(argc, argv, "n:c:s:S:v", longs, NULL)) != -1) {
        int64_t v = 0;
        switch (o) {
        case 'n':
            if (text_parse_int(optarg, 1, 64, &v) != UNO_OK)
                return usage(err_text());
            opt.ranks = (int)v;
            break;
        case 'R': case 'H':
            if (text_parse_int(optarg, 1, 65536, &v) != UNO_OK)
                return usage(err_text());
            *(o == 'R' ? &opt.expect_ranks : &opt.expect_hosts) = (int)v;
            break;
        case 'c': opt.carrier = optarg; break;
        case 's': {
            size_t i = 0;
            while (i < ARRAY_LEN(sets) && strcmp(sets[i], optarg) != 0)
                i++;
            if (i == ARRAY_LEN(sets))
                return usage("unknown set");
            opt.set = (enum conform_set)i;
            break;
        }
        case 'S':
            opt.seed = strtoull(optarg, NULL, 0);
            seeded = true;
            break;
        case 'v': opt.verbose = true; break;
        case 'j': opt.journal = optarg; break;
        default: return usage("unknown option");
        }
    }
    if (opt.journal && (!seeded || !opt.carrier))
        return usage("--journal needs --carrier and --seed");
    return opt.carrier ? start_ranks() : under_launcher(seeded);
}
