/* SPDX-License-Identifier: Apache-2.0 */
/* Joining by id: real processes against the serving thread of this one, in order and in disorder. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/resource.h>

#include "boot/boot_server.h"
#include "processes.h"

static struct config cfg;
static uno_id id;

static int settings(void **state)
{
    clearenv();
    setenv("UNISONO_SOCKET_IFNAME", "lo", 1);
    setenv("UNISONO_JOIN_TIMEOUT", "5", 1);
    return config_load(&cfg, NULL) == UNO_OK ? 0 : -1;
}

static int setup(void **state)
{
    return settings(state) == 0 && boot_make_id(&cfg, &id) == UNO_OK ? 0 : -1;
}

static bool no_servers(void *arg)
{
    return boot_servers_running() == 0;
}

/* What one process of a scenario does. */
struct scenario {
    int n, size;              /* processes, and the size they say */
    double deadline_s;
    uint64_t deadline_ns;     /* instead of deadline_s if not 0: the same instant for all */
    int rounds;
    size_t bytes;
    int rank_of[64];          /* -1: does not come. Default: its index */
    int size_of_last;         /* if not 0, what the last process says instead of size */
    int odd;                  /* this rank does something odd after round 1 */
    enum { NOTHING, DIES, STOPS, CLOSES, OTHER_BYTES, CHANGES_SECRET, LATE } what;
};

static void pattern(unsigned char *p, size_t bytes, int rank, int round)
{
    for (size_t i = 0; i < bytes; i++)
        p[i] = (unsigned char)((size_t)rank * 31 + (size_t)round * 7 + i);
}

static uno_err exchange_round(struct boot *boot, const struct scenario *s, int rank, int size, int round)
{
    size_t bytes = round == 2 ? 0 : s->bytes + (s->what == OTHER_BYTES && rank == s->odd);
    unsigned char *mine = malloc(bytes + 1), *all = calloc((size_t)size, bytes + 1), *want = malloc(bytes + 1);
    pattern(mine, bytes, rank, round);
    uno_err err = boot_exchange(boot, mine, bytes, all);
    for (int r = 0; err == UNO_OK && r < size; r++) {
        pattern(want, bytes, r, round);
        if (memcmp(all + (size_t)r * bytes, want, bytes) != 0)
            err = err_set(UNO_ERR_INTERNAL, "round %d: block %d is wrong", round, r);
    }
    free(mine);
    free(all);
    free(want);
    return err;
}

static uno_err member(int index, void *arg)
{
    const struct scenario *s = arg;
    int rank = s->rank_of[index], size = s->size_of_last && index == s->n - 1 ? s->size_of_last : s->size;
    struct boot *boot;
    uno_id mine = id;
    if (rank < 0)
        return UNO_OK;
    bool odd = s->what != NOTHING && rank == s->odd;
    if (odd && s->what == CHANGES_SECRET)
        mine.bytes[offsetof(struct boot_id, secret)] ^= 1;
    if (odd && s->what == LATE)
        nanosleep(&(struct timespec){.tv_nsec = 600000000}, NULL); /* twice what the others wait before they say so */
    uno_err err = boot_open(&mine, rank, size, &cfg, s->deadline_ns ? s->deadline_ns : clock_after(s->deadline_s), &boot);
    if (err != UNO_OK)
        return err;
    for (int round = 0; err == UNO_OK && round < s->rounds; round++) {
        if (odd && round == 1 && s->what == DIES)
            raise(SIGKILL);
        if (odd && round == 1 && s->what == STOPS)
            raise(SIGSTOP);
        if (odd && round == 1 && s->what == CLOSES)
            break;
        err = exchange_round(boot, s, rank, size, round);
    }
    if (err != UNO_OK) { /* the first cause comes again, at once */
        char first[ERR_TEXT_BYTES], all[64 * 8];
        snprintf(first, sizeof first, "%s", err_text());
        if (size <= 64 && (boot_exchange(boot, "again", 5, all) != err || strcmp(first, err_text()) != 0))
            err = err_set(UNO_ERR_INTERNAL, "the second error is another: %s", err_text());
    }
    boot_close(boot);
    return err;
}

static struct scenario scenario_of(int n)
{
    struct scenario s = {.n = n, .size = n, .deadline_s = 10, .rounds = 4, .bytes = 100};
    for (int i = 0; i < 64; i++)
        s.rank_of[i] = i;
    return s;
}

/* Everyone who came must have `err` and a sentence with all of `says` (NULL-terminated). */
static void expect(const struct processes *p, const struct scenario *s, uno_err err, const char *const *says, int except)
{
    for (int i = 0; i < p->n; i++) {
        const struct result *r = &p->results[i];
        if (s->rank_of[i] < 0 || i == except)
            continue;
        if (!r->ended || r->err != err)
            fail_msg("process %d: ended %d, %s: %s", i, r->ended, uno_err_name(r->err), r->text);
        for (int j = 0; says[j]; j++)
            if (!strstr(r->text, says[j]))
                fail_msg("process %d does not say \"%s\": %s", i, says[j], r->text);
        assert_true(r->seconds < (s->deadline_ns ? 14 : 8));
    }
}

static void all_sizes_exchange(void **state)
{
    static const int sizes[] = {1, 2, 3, 8, 64};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct scenario s = scenario_of(sizes[i]);
        s.bytes = sizes[i] == 8 ? 100000 : 1000;
        if (i > 0)
            assert_int_equal(boot_make_id(&cfg, &id), UNO_OK);
        struct processes p = processes_start(s.n, member, &s);
        processes_wait(&p);
        expect(&p, &s, UNO_OK, (const char *[]){NULL}, -1);
        processes_free(&p);
        assert_true(wait_until(no_servers, NULL, 3));
    }
}

static void ranks_of_one_process_exchange(void **state)
{
    /* Two ranks driven by one thread: both must be able to open before either exchanges. */
    struct boot *a, *b;
    assert_int_equal(boot_open(&id, 0, 2, &cfg, clock_after(5), &a), UNO_OK);
    assert_int_equal(boot_open(&id, 1, 2, &cfg, clock_after(5), &b), UNO_OK);
    boot_close(a);
    boot_close(b);
    assert_true(wait_until(no_servers, NULL, 3));
}

static void missing_ranks_are_listed(void **state)
{
    struct scenario s = scenario_of(8);
    s.deadline_s = 2; /* which all that come must keep on a busy machine */
    s.rank_of[3] = s.rank_of[5] = s.rank_of[6] = -1;
    struct processes p = processes_start(s.n, member, &s);
    processes_wait(&p);
    expect(&p, &s, UNO_ERR_TIMEOUT, (const char *[]){"3 of 8 ranks", "3, 5-6", NULL}, -1);
    processes_free(&p);
}

/* What the serving thread logs while a scenario runs, for who waits for longer than the stall limit. */
static struct processes logged(struct scenario *s, char *log, size_t log_bytes)
{
    FILE *f = tmpfile();
    assert_non_null(f);
    cfg.stall = 0.3;
    assert_int_equal(boot_make_id(&cfg, &id), UNO_OK);
    log_configure(LOG_WARN, LOG_ALL_TOPICS, NULL, f);
    struct processes p = processes_start(s->n, member, s);
    for (int i = 0; i < s->n; i++)
        if (i != s->odd)
            waitpid(p.results[i].pid, NULL, 0);
    kill(p.results[s->odd].pid, SIGKILL);
    waitpid(p.results[s->odd].pid, NULL, 0);
    assert_true(wait_until(no_servers, NULL, 10));
    log_configure(LOG_WARN, LOG_ALL_TOPICS, NULL, NULL);
    ssize_t n = pread(fileno(f), log, log_bytes - 1, 0);
    log[n > 0 ? n : 0] = 0;
    fclose(f);
    return p;
}

/* Long before a deadline passes. */
static void who_waits_is_told_for_whom(void **state)
{
    char log[4096];
    struct scenario s = scenario_of(4);
    s.deadline_s = 1.5;
    s.rank_of[2] = -1;
    s.odd = 2;
    struct processes p = logged(&s, log, sizeof log);
    if (!strstr(log, "1 of 4 ranks have not joined though others wait for 0.") || !strstr(log, " s: 2; ") || strstr(log, "silent"))
        fail_msg("%s", log);
    processes_free(&p);
    s.rank_of[2] = 2;
    s.what = STOPS;
    p = logged(&s, log, sizeof log);
    if (!strstr(log, "1 of 4 ranks joined and then fell silent though others wait for 0.") || !strstr(log, " s: 2; "))
        fail_msg("%s", log);
    processes_free(&p);
    s.what = LATE;
    s.deadline_s = 10;
    p = logged(&s, log, sizeof log);
    if (!strstr(log, "1 of 4 ranks have not joined though others wait for 0.") || !strstr(log, "all 4 ranks have joined, after 0."))
        fail_msg("%s", log);
    expect(&p, &s, UNO_OK, (const char *[]){NULL}, 2);
    processes_free(&p);
}

static void two_processes_with_one_rank(void **state)
{
    struct scenario s = scenario_of(4);
    s.rank_of[3] = 1; /* and rank 3 is missing, so that nobody is done before */
    struct processes p = processes_start(s.n, member, &s);
    processes_wait(&p);
    char a[32], b[32];
    snprintf(a, sizeof a, "pid %d", (int)p.results[1].pid);
    snprintf(b, sizeof b, "pid %d", (int)p.results[3].pid);
    expect(&p, &s, UNO_ERR_MISMATCH, (const char *[]){"rank 1 of 4", a, b, "host", NULL}, -1);
    processes_free(&p);
}

static void different_sizes(void **state)
{
    struct scenario s = scenario_of(4);
    s.size_of_last = 5;
    struct processes p = processes_start(s.n, member, &s);
    processes_wait(&p);
    char b[32];
    snprintf(b, sizeof b, "pid %d", (int)p.results[3].pid);
    expect(&p, &s, UNO_ERR_MISMATCH, (const char *[]){"of 4", "of 5", b, NULL}, -1);
    processes_free(&p);
}

static void a_rank_that_dies_is_named(void **state)
{
    struct scenario s = scenario_of(5);
    s.what = DIES;
    s.odd = 2;
    struct processes p = processes_start(s.n, member, &s);
    processes_wait(&p);
    char pid[32];
    snprintf(pid, sizeof pid, "pid %d", (int)p.results[2].pid);
    expect(&p, &s, UNO_ERR_PEER_DEAD, (const char *[]){"rank 2", pid, NULL}, 2);
    for (int i = 0; i < 5; i++)
        assert_true(p.results[i].seconds < 5.0); /* the deadline is 10 */
    processes_free(&p);
}

static void a_rank_that_stops_is_listed(void **state)
{
    struct scenario s = scenario_of(4);
    s.what = STOPS;
    s.odd = 3;
    s.deadline_s = 0.5;
    struct processes p = processes_start(s.n, member, &s);
    for (int i = 0; i < 3; i++)
        waitpid(p.results[i].pid, NULL, 0);
    expect(&p, &s, UNO_ERR_TIMEOUT, (const char *[]){"fell silent", ": 3", NULL}, 3);
    kill(p.results[3].pid, SIGKILL);
    waitpid(p.results[3].pid, NULL, 0);
    processes_free(&p);
}

static void a_rank_that_leaves_early_is_named(void **state)
{
    struct scenario s = scenario_of(4);
    s.what = CLOSES;
    s.odd = 1;
    struct processes p = processes_start(s.n, member, &s);
    processes_wait(&p);
    expect(&p, &s, UNO_ERR_PEER_DEAD, (const char *[]){"rank 1", "left", NULL}, 1);
    processes_free(&p);
}

static void different_byte_counts(void **state)
{
    struct scenario s = scenario_of(3);
    s.what = OTHER_BYTES;
    s.odd = 1;
    struct processes p = processes_start(s.n, member, &s);
    processes_wait(&p);
    expect(&p, &s, UNO_ERR_MISMATCH, (const char *[]){"100", "101", NULL}, -1);
    processes_free(&p);
}

static void a_wrong_secret_is_refused_at_once(void **state)
{
    struct scenario s = scenario_of(2);
    s.what = CHANGES_SECRET;
    s.odd = 1;
    s.deadline_s = 4;
    struct processes p = processes_start(s.n, member, &s);
    processes_wait(&p);
    assert_int_equal(p.results[1].err, UNO_ERR_AUTH);
    assert_non_null(strstr(p.results[1].text, "127.0.0.1:"));
    assert_non_null(strstr(p.results[1].text, "secret"));
    assert_true(p.results[1].seconds < 3.5);
    assert_int_equal(p.results[0].err, UNO_ERR_TIMEOUT); /* for it, rank 1 never came */
    assert_non_null(strstr(p.results[0].text, "1 of 2 ranks"));
    processes_free(&p);
}

/* As rank 1 of 2: knows the secret, says who it is or not even that, and then nothing for ever. */
static int silent_member(bool says_who)
{
    struct { struct boot_frame head; struct boot_who who; } join = {.head = {.type = BOOT_JOIN, .bytes = sizeof join.who}};
    struct auth_session a;
    struct auth_key key;
    struct boot_id in;
    uint64_t job;
    int fd;
    assert_int_equal(boot_id_read(&id, &in), UNO_OK);
    boot_id_key(&id, &key, &job);
    struct sock_addr to = {.len = sizeof to.u.in};
    to.u.in.sin_family = AF_INET;
    to.u.in.sin_port = htons(in.port);
    to.u.in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(sock_connect(&to, clock_after(5), &fd), UNO_OK);
    auth_start(&a, &key, true);
    a.hello = (struct auth_hello){.role = AUTH_BOOT, .job = job, .from = 1, .to = 0, .extra = 2};
    assert_int_equal(auth_run(&a, fd, clock_after(5)), UNO_OK);
    boot_who_am_i(&join.who, 1, 2);
    if (says_who)
        assert_int_equal(sock_send_all(fd, &join, sizeof join, clock_after(5)), UNO_OK);
    return fd;
}

static void who_says_nothing_for_ever_is_named(void **state)
{
    for (int says_who = 0; says_who < 2; says_who++) {
        struct boot *b;
        char mine = 7, all[2];
        assert_int_equal(setup(state), 0);
        int fd = silent_member(says_who);
        assert_int_equal(boot_open(&id, 0, 2, &cfg, clock_after(1), &b), UNO_OK);
        assert_int_equal(boot_exchange(b, &mine, 1, all), UNO_ERR_TIMEOUT);
        print_message("%s\n", err_text());
        assert_non_null(strstr(err_text(), "1 of 2 ranks"));
        assert_non_null(strstr(err_text(), ": 1"));
        boot_close(b);
        close(fd);
    }
}

/* A rank tries all addresses of the server, and its connections lie there before the server runs: it goes on with the one that answers first. */
static void *join_by_many_addresses(void *rank)
{
    struct boot *b = NULL;
    char mine = 7, all[2];
    uno_err err = boot_open(&id, *(int *)rank, 2, &cfg, clock_after(20), &b);
    if (err == UNO_OK)
        err = boot_exchange(b, &mine, 1, all);
    if (err != UNO_OK)
        print_message("%s\n", err_text());
    if (b)
        boot_close(b);
    return err == UNO_OK ? rank : NULL;
}

static bool connections_lie_there(void *arg)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof info;
    assert_int_equal(getsockopt(*(int *)arg, IPPROTO_TCP, TCP_INFO, &info, &len), 0);
    return info.tcpi_unacked >= BOOT_ID_V4; /* of a listening socket: so many wait to be accepted */
}

static void the_other_addresses_are_no_strangers(void **state)
{
    (void)state;
    struct boot_id in;
    pthread_t thread;
    void *joined;
    int fd, first = 0, second = 1;
    uint64_t before = auth_refused();
    assert_int_equal(boot_id_fresh(&cfg, &in), UNO_OK);
    assert_int_equal(sock_listen(0, &fd, &in.port), UNO_OK);
    in.count4 = BOOT_ID_V4;
    for (int i = 0; i < BOOT_ID_V4; i++)
        memcpy(in.v4[i], (uint8_t[]){127, 0, 0, (uint8_t)(i + 1)}, 4);
    boot_id_write(&in, &id);
    assert_int_equal(pthread_create(&thread, NULL, join_by_many_addresses, &first), 0);
    assert_true(wait_until(connections_lie_there, &fd, 20));
    assert_int_equal(boot_serve(&cfg, &in, NULL, fd), UNO_OK);
    assert_non_null(join_by_many_addresses(&second));
    assert_int_equal(pthread_join(thread, &joined), 0);
    assert_non_null(joined);
    close(fd);
    assert_true(wait_until(no_servers, NULL, 20));
    assert_int_equal(auth_refused(), before);
}

static void bad_arguments(void **state)
{
    struct boot *b;
    uno_id junk = {{0}}, damaged = id;
    assert_int_equal(boot_open(&junk, 0, 1, &cfg, clock_after(1), &b), UNO_ERR_ARG);
    ((struct boot_id *)&damaged)->count4 = 200;
    assert_int_equal(boot_open(&damaged, 0, 1, &cfg, clock_after(1), &b), UNO_ERR_ARG);
    assert_non_null(strstr(err_text(), "damaged"));
    assert_int_equal(boot_open(&id, 2, 2, &cfg, clock_after(1), &b), UNO_ERR_ARG);
    assert_non_null(strstr(err_text(), "rank 2"));
    assert_int_equal(boot_open(&id, -1, 2, &cfg, clock_after(1), &b), UNO_ERR_ARG);
    assert_int_equal(boot_open(&id, 0, 0, &cfg, clock_after(1), &b), UNO_ERR_ARG);
    assert_int_equal(boot_open(&id, 0, 1 << 30, &cfg, clock_after(1), &b), UNO_ERR_ARG);
}

/* The answer to a round is sent from memory that the round after the next one takes. */
static void who_does_not_read_an_answer_gives_nothing(void **state)
{
    static const struct { int outs; bool due; } unread[] = {{0, false}, {1, false}, {0, true}};
    for (size_t i = 0; i < ARRAY_LEN(unread); i++) {
        struct member members[2] = {{.joined = true, .rounds = 1}, {.joined = true, .rounds = 1}};
        struct server s = {.size = 2, .joined = 2, .members = members, .done = 1};
        struct conn c = {.state = MEMBER, .rank = 1, .head = {.type = BOOT_PUT, .round = 1, .bytes = 8}, .outs = unread[i].outs,
                         .answer_due = unread[i].due};
        assert_int_equal(job_round_place(&s, &c) != NULL, i == 0);
        assert_int_equal(s.failed, i == 0 ? UNO_OK : UNO_ERR_INTERNAL);
        assert_int_equal(strstr(s.failure, "before it has read the answer") != NULL, i != 0);
        free(s.rounds[1].all);
    }
}

static void nobody_serves(void **state)
{
    struct boot_id in;
    struct boot *b;
    uno_id other;
    int fd;
    assert_int_equal(boot_id_read(&id, &in), UNO_OK);
    assert_int_equal(sock_listen(0, &fd, &in.port), UNO_OK);
    close(fd);
    boot_id_write(&in, &other);
    uint64_t start = clock_ns();
    assert_int_equal(boot_open(&other, 1, 2, &cfg, clock_after(0.3), &b), UNO_ERR_TIMEOUT);
    assert_in_range(clock_ns() - start, 290000000u, 3000000000u);
    assert_non_null(strstr(err_text(), "rank 0 was not reached"));
    assert_non_null(strstr(err_text(), "refused"));
}

/* The process of index 0 serves, and its server ends with it. */
static struct { _Atomic int made; uno_id id; } *shared;
static uno_err member_and_server(int index, void *arg)
{
    if (index == 0) {
        TRY(boot_make_id(&cfg, &shared->id));
        shared->made = 1;
    }
    while (!shared->made)
        usleep(1000);
    id = shared->id;
    return member(index, arg);
}

static struct processes run_with_server(struct scenario *s)
{
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct processes p = processes_start(s->n, member_and_server, s);
    processes_wait(&p);
    munmap(shared, sizeof *shared);
    return p;
}

static void a_server_that_dies_is_named(void **state)
{
    struct scenario s = scenario_of(3);
    s.what = DIES;
    s.odd = 0;
    struct processes p = run_with_server(&s);
    expect(&p, &s, UNO_ERR_PEER_DEAD, (const char *[]){"rank 0", "ended", NULL}, 0);
    processes_free(&p);
}

/* The first who asks makes the server tell all; then rank 0's process ends while others are about to ask. */
static void all_learn_who_is_missing_though_rank_0_ends(void **state)
{
    struct scenario s = scenario_of(32);
    s.rank_of[7] = -1;
    s.deadline_ns = clock_after(10); /* 31 processes come at once, and all start slowly with sanitizers */
    struct processes p = run_with_server(&s);
    expect(&p, &s, UNO_ERR_TIMEOUT, (const char *[]){"1 of 32 ranks have not joined", ": 7;", NULL}, -1);
    processes_free(&p);
}

/* Strangers on the port: silence, trickles, noise, floods. */
static uno_err stranger(int index, void *arg)
{
    struct boot_id in;
    struct sock_addr to[BOOT_ID_TARGETS];
    struct rng rng;
    int fds[100];
    rng_seed(&rng, (uint64_t)index + 1);
    TRY(boot_id_read(&id, &in));
    boot_id_targets(&in, to);
    for (int i = 0; i < 100; i++) {
        char noise[300];
        for (size_t j = 0; j < sizeof noise; j++)
            noise[j] = (char)rng_next(&rng);
        if (sock_connect(&to[0], clock_after(0.5), &fds[i]) != UNO_OK) {
            fds[i] = -1;
            continue;
        }
        size_t bytes = rng_below(&rng, sizeof noise);
        if (index == 1) /* looks right at first */
            memcpy(noise, &(uint32_t){AUTH_MAGIC}, 4);
        if (index == 2) { /* a trickle */
            bytes = 1;
            noise[0] = 'U';
        }
        (void)!sock_send_all(fds[i], noise, index == 0 ? 0 : bytes, clock_after(0.1));
        if (i % 3 == 2 && index != 2) {
            close(fds[i]);
            fds[i] = -1;
        }
    }
    usleep(600000);
    for (int i = 0; i < 100; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return UNO_OK;
}

static uno_err member_with_descriptors(int index, void *arg)
{
    struct rlimit most;
    getrlimit(RLIMIT_NOFILE, &most);
    most.rlim_cur = most.rlim_max;
    setrlimit(RLIMIT_NOFILE, &most);
    return member(index, arg);
}

static bool one_server(void *arg)
{
    return boot_servers_running() == 1;
}

/* Who serves can accept n connections, and the ranks, unless they help themselves, can open as many. */
static void run_with_descriptors(int n, struct scenario *s, uno_err (*run)(int index, void *arg), const char *const *says)
{
    struct rlimit most, few;
    int taken[256], count = 0;
    assert_true(wait_until(one_server, NULL, 10)); /* those of other tests would close some */
    getrlimit(RLIMIT_NOFILE, &most);
    few = most;
    few.rlim_cur = 128;
    setrlimit(RLIMIT_NOFILE, &few);
    while (count < 256 && (taken[count] = dup(0)) >= 0)
        count++;
    for (int i = 0; i < n; i++)
        close(taken[--count]);
    struct processes p = processes_start(s->n, run, s);
    processes_wait(&p);
    setrlimit(RLIMIT_NOFILE, &most);
    while (count > 0)
        close(taken[--count]);
    expect(&p, s, UNO_ERR_SYSTEM, says, -1);
    processes_free(&p);
}

static void a_server_without_descriptors_says_so(void **state)
{
    struct scenario s = scenario_of(3);
    run_with_descriptors(1, &s, member_with_descriptors,
                         (const char *const[]){"rank 0's process cannot accept the connections of ranks that join", "Too many open files",
                                               "ulimit -n", NULL});
}

static void a_rank_without_descriptors_says_so(void **state)
{
    struct scenario s = scenario_of(2);
    run_with_descriptors(0, &s, member, (const char *const[]){"cannot open a socket to ", "Too many open files", NULL});
}

static void strangers_do_not_stop_the_joining(void **state)
{
    struct scenario s = scenario_of(16);
    struct processes strangers = processes_start(4, stranger, NULL);
    usleep(20000);
    struct processes p = processes_start(s.n, member, &s);
    processes_wait(&p);
    expect(&p, &s, UNO_OK, (const char *[]){NULL}, -1);
    processes_wait(&strangers);
    processes_free(&p);
    processes_free(&strangers);
}

static void without_a_secret(void **state)
{
    assert_int_equal(setenv("UNISONO_AUTH", "none", 1), 0);
    assert_int_equal(config_load(&cfg, NULL), UNO_OK);
    assert_int_equal(boot_make_id(&cfg, &id), UNO_OK);
    struct auth_key key;
    uint64_t job;
    boot_id_key(&id, &key, &job);
    assert_true(key.none);
    struct scenario s = scenario_of(3);
    struct processes p = processes_start(s.n, member, &s);
    processes_wait(&p);
    expect(&p, &s, UNO_OK, (const char *[]){NULL}, -1);
    processes_free(&p);
}

static void every_failing_allocation_is_an_error_and_nothing_leaks(void **state)
{
    bool done = false;
    for (long nth = 1; !done && nth < 40; nth++) {
        uno_id mine;
        struct boot *b;
        char all[4];
        fault_arm("alloc", nth);
        uno_err err = boot_make_id(&cfg, &mine);
        if (err == UNO_OK)
            err = boot_open(&mine, 0, 1, &cfg, clock_after(0.3), &b);
        if (err == UNO_OK) {
            err = boot_exchange(b, "abcd", 4, all);
            boot_close(b);
            done = err == UNO_OK && nth > 8;
        }
        /* An allocation of the server for a connection that fails shows as a rank that is not answered. */
        if (err != UNO_OK && err != UNO_ERR_MEMORY && err != UNO_ERR_TIMEOUT)
            fail_msg("allocation %ld: %s: %s", nth, uno_err_name(err), err_text());
    }
    fault_arm("thread", 1);
    uno_id mine;
    assert_int_equal(boot_make_id(&cfg, &mine), UNO_ERR_SYSTEM);
    assert_non_null(strstr(err_text(), "thread"));
    fault_arm(NULL, 0);
    assert_true(done);
}

static bool is_x(const void *arg, int rank)
{
    return ((const char *)arg)[rank] == 'x';
}

static void ranges_are_short(void **state)
{
    struct text t = {0};
    assert_int_equal(boot_ranges(12, is_x, "..x.xxx....x", &t), 5);
    assert_string_equal(t.s, "2, 4-6, 11");
    text_free(&t);
    char many[100];
    for (int i = 0; i < 100; i++)
        many[i] = i % 2 ? '.' : 'x';
    assert_int_equal(boot_ranges(100, is_x, many, &t), 50);
    assert_non_null(strstr(t.s, "and 26 more"));
    text_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_are_short),
        cmocka_unit_test_setup(all_sizes_exchange, setup),
        cmocka_unit_test_setup(ranks_of_one_process_exchange, setup),
        cmocka_unit_test_setup(missing_ranks_are_listed, setup),
        cmocka_unit_test_setup(who_waits_is_told_for_whom, settings),
        cmocka_unit_test_setup(two_processes_with_one_rank, setup),
        cmocka_unit_test_setup(different_sizes, setup),
        cmocka_unit_test_setup(a_rank_that_dies_is_named, setup),
        cmocka_unit_test_setup(a_rank_that_stops_is_listed, setup),
        cmocka_unit_test_setup(a_rank_that_leaves_early_is_named, setup),
        cmocka_unit_test_setup(different_byte_counts, setup),
        cmocka_unit_test_setup(a_wrong_secret_is_refused_at_once, setup),
        cmocka_unit_test(who_says_nothing_for_ever_is_named),
        cmocka_unit_test_setup(the_other_addresses_are_no_strangers, setup),
        cmocka_unit_test_setup(bad_arguments, setup),
        cmocka_unit_test(who_does_not_read_an_answer_gives_nothing),
        cmocka_unit_test_setup(nobody_serves, setup),
        cmocka_unit_test_setup(a_server_that_dies_is_named, setup),
        cmocka_unit_test_setup(all_learn_who_is_missing_though_rank_0_ends, setup),
        cmocka_unit_test_setup(a_server_without_descriptors_says_so, setup),
        cmocka_unit_test_setup(a_rank_without_descriptors_says_so, setup),
        cmocka_unit_test_setup(strangers_do_not_stop_the_joining, setup),
        cmocka_unit_test_setup(without_a_secret, setup),
        cmocka_unit_test_setup(every_failing_allocation_is_an_error_and_nothing_leaks, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
