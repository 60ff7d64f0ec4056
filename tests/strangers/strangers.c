/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strangers.c - strangers [--seconds T] [--seed S]: three processes that take themselves for three hosts work over TCP, every result
 * compared, and now and then join a further communicator, while attackers go for all ports on which they listen; then a few small jobs
 * have a member who lies. Exit status 0: the job saw nothing of it, holds no more memory and descriptors than before, has counted whom
 * it refused, and each lie was an error or nothing.
 */
#include "strangers.h"

#include <getopt.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "soak/soak.h"

#define STEPS_BETWEEN 16
#define JOIN_EVERY_NS 1500000000ull
/* GROW_KB, from meson.build: slots of plans that are new; a sanitizer keeps what was freed */

static struct { double seconds; uint64_t seed; } opt = {.seconds = 10};

/* ---- the job ----------------------------------------------------------------------------------------------------------- */

/* A further communicator over the network, whose last rank is late, so that the port for joining is open for a while. */
static uno_err join_again(struct ground *g, struct soak *s)
{
    uno_comm *second, *world = s->places[0].comm;
    int32_t in = 1, sum = 0;
    uno_id id = {{0}};
    s->doing = "joining a further communicator";
    if (s->me == 0) {
        TRY(uno_get_id(&id));
        g->second_id = id;
        atomic_store(&g->has_second, 1);
    }
    TRY(uno_broadcast(&id, &id, sizeof id, UNO_UINT8, 0, world, NULL));
    if (s->me == s->ranks - 1)
        usleep(300000);
    TRY(uno_comm_init_rank(&second, s->ranks, &id, s->me, NULL));
    TRY(uno_all_reduce(&in, &sum, 1, UNO_INT32, UNO_SUM, second, NULL));
    TRY(uno_comm_destroy(second));
    atomic_fetch_add(&g->joined, s->me == 0);
    return sum == s->ranks ? UNO_OK : err_set(UNO_ERR_INTERNAL, "a sum in a further communicator is %d", sum);
}

enum word { GO_ON, JOIN, STOP };

static uno_err ask(struct soak *s, uint64_t begin_ns, uint64_t *join_ns, enum word *word)
{
    uint64_t now = clock_ns();
    int32_t said = now - begin_ns > (uint64_t)(opt.seconds * 1e9) ? STOP : now > *join_ns ? JOIN : GO_ON;
    if (said == JOIN)
        *join_ns = now + JOIN_EVERY_NS;
    s->doing = "looking at the clock";
    TRY(uno_broadcast(&said, &said, 1, UNO_INT32, 0, s->places[0].comm, NULL));
    *word = (enum word)said;
    return UNO_OK;
}

static uno_err work(struct ground *g, struct soak *s)
{
    struct soak_measure before, after;
    uint64_t begin_ns = clock_ns(), join_ns = begin_ns;
    TRY(soak_step(s));
    TRY(soak_measure(s, &before));
    for (enum word word = GO_ON; word != STOP;) {
        for (int i = 0; i < STEPS_BETWEEN; i++)
            TRY(soak_step(s));
        TRY(ask(s, begin_ns, &join_ns, &word));
        if (word == JOIN)
            TRY(join_again(g, s));
    }
    atomic_store(&g->stop, 1);
    usleep(2500000); /* what attackers left half open is closed within 2 s */
    atomic_store(&g->refused[s->me], (long)auth_refused());
    TRY(soak_measure(s, &after));
    printf("strangers: rank %d: %ld operations, memory %ld -> %ld KB, descriptors %ld -> %ld, %ld connections refused\n", s->me, s->operations,
           before.memory_kb, after.memory_kb, before.descriptors, after.descriptors, atomic_load(&g->refused[s->me]));
    if (after.memory_kb - before.memory_kb > GROW_KB || after.descriptors - before.descriptors > 16)
        return err_set(UNO_ERR_INTERNAL, "rank %d holds more than before", s->me);
    return UNO_OK;
}

static int rank_main(struct ground *g, int rank)
{
    uno_comm *world;
    struct soak s = {.seed = opt.seed, .doing = "beginning"};
    char host[32];
    snprintf(host, sizeof host, "strangers-%d", rank);
    setenv("UNISONO_HOST", host, 1);
    if (rank == 0) {
        if (uno_get_id(&g->id) != UNO_OK)
            return 1;
        atomic_store(&g->has_id, 1);
    }
    while (!atomic_load(&g->has_id))
        usleep(1000);
    uno_err err = uno_comm_init_rank(&world, RANKS, &g->id, rank, NULL);
    if (err == UNO_OK)
        err = soak_begin(&s, world);
    if (err == UNO_OK)
        err = work(g, &s);
    if (err != UNO_OK) {
        fprintf(stderr, "strangers: seed %llu, step %llu, %s (%s): rank %d: %s: %s\n", (unsigned long long)opt.seed, (unsigned long long)s.step,
                s.doing, s.last_case, rank, uno_err_name(err), err_text());
        return 1;
    }
    soak_end(&s);
    (void)uno_comm_destroy(world);
    return 0;
}

/* ---- who watches ---------------------------------------------------------------------------------------------------------- */

static pid_t begin(struct ground *g, int rank, enum attack attack)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0 && rank >= 0)
        _exit(rank_main(g, rank) + (fflush(stdout) != 0));
    if (pid == 0) {
        attack_run(g, attack, opt.seed);
        _exit(0);
    }
    return pid;
}

/* Until all ranks have ended; false: one has failed, or they do not end. */
static bool watch(struct ground *g)
{
    uint64_t end_ns = clock_ns() + (uint64_t)(opt.seconds * 3e9) + 120000000000ull;
    bool good = true;
    for (int left = RANKS, status; left > 0;) {
        uint16_t ports[PORTS];
        int n = listening_ports(g->ranks, RANKS, ports, PORTS);
        for (int i = 0; i < n; i++)
            atomic_store(&g->ports[i], ports[i]);
        atomic_store(&g->nports, n);
        usleep(20000);
        for (int r = 0; r < RANKS; r++)
            if (g->ranks[r] > 0 && waitpid(g->ranks[r], &status, WNOHANG) == g->ranks[r]) {
                good = good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
                g->ranks[r] = -1;
                left--;
            }
        if (clock_ns() > end_ns) {
            fprintf(stderr, "strangers: the job does not end\n");
            for (int r = 0; r < RANKS; r++)
                if (g->ranks[r] > 0)
                    kill(g->ranks[r], SIGKILL);
            good = false;
            end_ns = UINT64_MAX;
        }
    }
    atomic_store(&g->stop, 1);
    return good;
}

static bool under_attack(struct ground *g)
{
    pid_t attackers[ATTACKS];
    for (int r = 0; r < RANKS; r++)
        g->ranks[r] = begin(g, r, ATTACKS);
    for (int a = 0; a < ATTACKS; a++)
        attackers[a] = begin(g, -1, (enum attack)a);
    bool good = watch(g);
    for (int a = 0; a < ATTACKS; a++) {
        int status;
        waitpid(attackers[a], &status, 0);
        good = good && WIFEXITED(status);
        printf("strangers: %s: %ld connections\n", attack_name((enum attack)a), atomic_load(&g->tried[a]));
        good = good && atomic_load(&g->tried[a]) > 0;
    }
    printf("strangers: %d communicators joined under attack\n", atomic_load(&g->joined));
    for (int r = 0; r < RANKS; r++)
        good = good && atomic_load(&g->refused[r]) > 0;
    return good && atomic_load(&g->joined) > 0;
}

int main(int argc, char **argv)
{
    static const struct option longs[] = {{"seconds", 1, 0, 't'}, {"seed", 1, 0, 'S'}, {0}};
    opt.seed = (uint64_t)time(NULL);
    for (int o; (o = getopt_long(argc, argv, "", longs, NULL)) != -1;) {
        if (o == 'S')
            opt.seed = strtoull(optarg, NULL, 0);
        if (o == '?' || (o == 't' && text_parse_seconds(optarg, &opt.seconds) != UNO_OK)) {
            fprintf(stderr, "usage: strangers [--seconds T] [--seed S]\n");
            return 2;
        }
    }
    struct ground *g = mmap(NULL, sizeof *g, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (g == MAP_FAILED)
        return 1;
    mallopt(M_ARENA_MAX, 1);
    setenv("UNISONO_SOCKET_IFNAME", "lo", 1);
    signal(SIGPIPE, SIG_IGN);
    bool good = under_attack(g);
    int wrong = lies_run(g);
    printf("strangers: seed %llu, %.0f s: the job %s, %d lies went wrong\n", (unsigned long long)opt.seed, opt.seconds,
           good ? "was not harmed" : "WAS HARMED", wrong);
    return !good || wrong;
}
