/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One suite, one row per source of rank, size and address: n processes get what that launcher sets and must join, twice, or fail
 * with the right error and sentence. The launchers that are installed are used themselves as well.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <sys/stat.h>

#include "boot/boot_internal.h"
#include "processes.h"

#define MAX_RANKS 8

struct run {
    const struct row *row;
    char dir[64];             /* private, removed afterwards */
    int port, fd;             /* fd: for hooks */
    pid_t pid[MAX_RANKS];
};

struct row {
    const char *name;
    int n;
    const char *env[14];      /* NAME=VALUE with {rank} {size} {port} {dir} */
    const char *source;       /* expected, if err is UNO_OK */
    uno_err err;
    const char *says;         /* in the sentence of every rank that failed */
    void (*prepare)(struct run *run);             /* in the test, before the start */
    void (*in_child)(struct run *run, int rank);  /* in the child, before exec */
    uno_err err_of_others;    /* ranks from 1 on, if they fail in another way than rank 0; 0 = alike */
};

static void write_file(const char *dir, const char *name, const char *text, mode_t mode)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, mode);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

/* ---- hooks --------------------------------------------------------------------------------------------------- */

static void own_memfd(struct run *run, int rank)
{
    int fd = memfd_create("secret", 0);
    char number[16];
    if (write(fd, "a secret from the launcher", 26) != 26 || lseek(fd, 0, SEEK_SET) != 0)
        _exit(99);
    snprintf(number, sizeof number, "%d", fd);
    setenv("UNISONO_SECRET_FD", number, 1);
}

static void own_pipe(struct run *run, int rank)
{
    int fd[2];
    char number[16];
    if (pipe(fd) != 0 || write(fd[1], "a secret from the launcher", 26) != 26)
        _exit(99);
    if (rank % 2) /* an open writer must not hold anybody up */
        close(fd[1]);
    snprintf(number, sizeof number, "%d", fd[0]);
    setenv("UNISONO_SECRET_FD", number, 1);
}

static void other_secret(struct run *run, int rank)
{
    if (rank == 1)
        setenv("UNISONO_SECRET_FILE", "", 1), own_memfd(run, rank);
}

static void keep_listening(struct run *run)
{
    uint16_t port;
    assert_int_equal(sock_listen(0, &run->fd, &port), UNO_OK);
    run->port = port;
}

static void inherit_listener(struct run *run, int rank)
{
    char number[16];
    own_memfd(run, rank);
    if (rank != 0)
        return;
    fcntl(run->fd, F_SETFD, 0);
    snprintf(number, sizeof number, "%d", run->fd);
    setenv("UNISONO_LISTEN_FD", number, 1);
}

/* Somebody who accepts and says nothing sits on the first of torchrun's ports. */
static void occupy_first_port(struct run *run)
{
    uint16_t port;
    assert_int_equal(sock_listen((uint16_t)(run->port + 1), &run->fd, &port), UNO_OK);
}

static void occupy_port(struct run *run)
{
    uint16_t port;
    assert_int_equal(sock_listen((uint16_t)run->port, &run->fd, &port), UNO_OK);
}

/* A file whose server has ended. */
static void stale_file(struct run *run)
{
    struct config cfg;
    struct boot_id id;
    char path[128];
    setenv("UNISONO_SOCKET_IFNAME", "lo", 1);
    assert_int_equal(config_load(&cfg, NULL), UNO_OK);
    assert_int_equal(boot_id_fresh(&cfg, &id), UNO_OK);
    assert_int_equal(boot_id_local_addresses(&cfg, &id), UNO_OK);
    id.port = (uint16_t)run->port;
    snprintf(path, sizeof path, "%s/meet", run->dir);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_int_equal(write(fd, &id, sizeof id), sizeof id);
    close(fd);
}

static void damaged_file(struct run *run)
{
    write_file(run->dir, "meet", "this is no id", 0600);
}

static void open_file(struct run *run)
{
    char path[128];
    stale_file(run);
    snprintf(path, sizeof path, "%s/meet", run->dir);
    assert_int_equal(chmod(path, 0644), 0);
}

static void late_rank_0(struct run *run, int rank)
{
    if (rank == 0)
        usleep(150000);
}

static void no_rank_0(struct run *run, int rank)
{
    if (rank == 0)
        _exit(0);
}

static void no_rank_2(struct run *run, int rank)
{
    if (rank == 2)
        _exit(0);
}

/* ---- the table ------------------------------------------------------------------------------------------------ */

#define SECRET "UNISONO_SECRET_FILE={dir}/secret"
#define SHORT "UNISONO_JOIN_TIMEOUT=2s"
#define OURS "UNISONO_RANK={rank}", "UNISONO_SIZE={size}"
#define TORCH "RANK={rank}", "WORLD_SIZE={size}", "LOCAL_RANK={rank}", "MASTER_ADDR=localhost", "MASTER_PORT={port}"
#define SLURM "SLURM_PROCID={rank}", "SLURM_NTASKS={size}", "SLURM_LOCALID={rank}", "SLURM_JOB_ID={port}", "SLURM_STEP_ID=0"
#define OMPI "OMPI_COMM_WORLD_RANK={rank}", "OMPI_COMM_WORLD_SIZE={size}", "OMPI_COMM_WORLD_LOCAL_RANK={rank}"

static const struct row rows[] = {
    {"nothing", 1, {0}, .err = UNO_ERR_USAGE, .says = "no launcher"},
    {"address", 4, {OURS, "UNISONO_ADDR=127.0.0.1:{port}", SECRET}, "address"},
    {"address, one rank", 1, {OURS, "UNISONO_ADDR=127.0.0.1:{port}"}, "address"},
    {"address, IPv6", 3, {OURS, "UNISONO_ADDR=[::1]:{port}", SECRET}, "address"},
    {"address, name", 3, {OURS, "UNISONO_ADDR=localhost:{port}", SECRET}, "address"},
    {"address, secret in memory", 3, {OURS, "UNISONO_ADDR=localhost:{port}"}, "address", .in_child = own_memfd},
    {"address, secret in a pipe", 3, {OURS, "UNISONO_ADDR=localhost:{port}"}, "address", .in_child = own_pipe},
    {"address, listener from the launcher", 4, {OURS, "UNISONO_ADDR=127.0.0.1:{port}", "UNISONO_LOCAL_RANK={rank}"}, "address",
     .prepare = keep_listening, .in_child = inherit_listener},
    {"address, late rank 0", 3, {OURS, "UNISONO_ADDR=localhost:{port}", SECRET}, "address", .in_child = late_rank_0},
    {"address, rank of another launcher", 3, {SLURM, "UNISONO_ADDR=localhost:{port}", SECRET}, "address"},
    {"address, no secret", 2, {OURS, "UNISONO_ADDR=localhost:{port}"}, .err = UNO_ERR_AUTH, .says = "UNISONO_SECRET_FILE"},
    {"address, other secret", 2, {OURS, "UNISONO_ADDR=localhost:{port}", SECRET, "UNISONO_JOIN_TIMEOUT=3s"},
     .err = UNO_ERR_TIMEOUT, .in_child = other_secret, .err_of_others = UNO_ERR_AUTH},
    {"address, one side without", 2, {OURS, "UNISONO_ADDR=localhost:{port}", SECRET, "UNISONO_AUTH=none"}, "address"},
    {"address, unknown host", 2, {OURS, "UNISONO_ADDR=no-such-host.invalid:{port}", SECRET, SHORT}, .err = UNO_ERR_TIMEOUT,
     .err_of_others = UNO_ERR_UNREACHABLE},
    {"address, no port", 2, {OURS, "UNISONO_ADDR=localhost", SECRET}, .err = UNO_ERR_CONFIG, .says = "host:port"},
    {"address, port in use", 1 + 1, {OURS, "UNISONO_ADDR=127.0.0.1:{port}", SECRET, SHORT}, .err = UNO_ERR_SYSTEM,
     .prepare = occupy_port, .err_of_others = UNO_ERR_TIMEOUT},
    {"address, rank too large", 2, {"UNISONO_RANK=2", "UNISONO_SIZE=2", "UNISONO_ADDR=localhost:{port}", SECRET},
     .err = UNO_ERR_CONFIG, .says = "UNISONO_RANK"},
    {"address, no rank 0", 3, {OURS, "UNISONO_ADDR=localhost:{port}", SECRET, SHORT}, .err = UNO_ERR_TIMEOUT,
     .says = "rank 0 was not reached", .in_child = no_rank_0},
    {"variables, one rank", 1, {OURS}, "variables"},
    {"variables without a place", 2, {OURS}, .err = UNO_ERR_CONFIG, .says = "UNISONO_ADDR"},
    {"variables, no size", 1, {"UNISONO_RANK=0"}, .err = UNO_ERR_CONFIG, .says = "UNISONO_SIZE"},
    {"variables, words", 1, {"UNISONO_RANK=zero", "UNISONO_SIZE=1"}, .err = UNO_ERR_CONFIG, .says = "zero"},
    {"file", 4, {OURS, "UNISONO_FILE={dir}/meet"}, "file"},
    {"file, stale", 4, {OURS, "UNISONO_FILE={dir}/meet"}, "file", .prepare = stale_file, .in_child = late_rank_0},
    {"file, damaged", 3, {OURS, "UNISONO_FILE={dir}/meet"}, "file", .prepare = damaged_file, .in_child = late_rank_0},
    {"file, rank of another launcher", 3, {TORCH, "UNISONO_FILE={dir}/meet"}, "file"},
    {"file, no rank 0", 3, {OURS, "UNISONO_FILE={dir}/meet", SHORT}, .err = UNO_ERR_TIMEOUT, .says = "rank 0 has not written",
     .in_child = no_rank_0},
    {"file, stale and no rank 0", 3, {OURS, "UNISONO_FILE={dir}/meet", SHORT}, .err = UNO_ERR_TIMEOUT, .says = "earlier job",
     .prepare = stale_file, .in_child = no_rank_0},
    {"file, open to others", 2, {OURS, "UNISONO_FILE={dir}/meet", SHORT}, .err = UNO_ERR_AUTH, .says = "0600",
     .prepare = open_file, .in_child = no_rank_0},
    {"file, no directory", 2, {OURS, "UNISONO_FILE={dir}/no/meet", SHORT}, .err = UNO_ERR_SYSTEM, .err_of_others = UNO_ERR_TIMEOUT},
    {"torchrun", 4, {TORCH, SECRET}, "torchrun"},
    {"torchrun, no authentication", 4, {TORCH, "UNISONO_AUTH=none"}, "torchrun"},
    {"torchrun, a stranger on the port", 4, {TORCH, SECRET}, "torchrun", .prepare = occupy_first_port},
    {"torchrun, high port", 3, {"RANK={rank}", "WORLD_SIZE={size}", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=65535", SECRET}, "torchrun"},
    {"torchrun, one rank", 1, {TORCH}, "torchrun"},
    {"torchrun, no secret", 2, {TORCH}, .err = UNO_ERR_AUTH, .says = "UNISONO_SECRET_FILE"},
    {"torchrun, no rank 2", 4, {TORCH, SECRET, "UNISONO_JOIN_TIMEOUT=4s"}, .err = UNO_ERR_TIMEOUT, .says = "1 of 4 ranks have not joined", .in_child = no_rank_2},
    {"Slurm", 4, {SLURM, "SLURM_STEP_NODELIST=localhost", SECRET}, "Slurm"},
    {"Slurm, reserved ports", 2, {SLURM, "SLURM_STEP_NODELIST=127.0.0.[1-4]", "SLURM_STEP_RESV_PORTS={port}-{port}", SECRET}, "Slurm"},
    {"Slurm, no secret", 2, {SLURM, "SLURM_STEP_NODELIST=localhost"}, .err = UNO_ERR_AUTH, .says = "Slurm"},
    {"Slurm, no nodes", 2, {SLURM, SECRET}, .err = UNO_ERR_CONFIG, .says = "SLURM_STEP_NODELIST"},
    {"Slurm, a batch script", 1, {"SLURM_PROCID=0", "SLURM_NTASKS=8", "SLURM_JOB_ID=5"}, .err = UNO_ERR_USAGE, .says = "no launcher"},
    {"Open MPI, one host", 4, {OMPI, "OMPI_COMM_WORLD_LOCAL_SIZE={size}", "PMIX_SERVER_TMPDIR={dir}"}, "Open MPI"},
    {"Open MPI, two hosts without PMIx", 2, {OMPI, "OMPI_COMM_WORLD_LOCAL_SIZE=1", "PMIX_SERVER_TMPDIR={dir}"},
     .err = UNO_ERR_UNSUPPORTED, .says = "UNISONO_FILE"},
};

/* ---- running a row -------------------------------------------------------------------------------------------- */

static void expand(const char *pattern, const struct run *run, int rank, char *out, size_t out_bytes)
{
    struct text t = {0};
    for (const char *p = pattern; *p;) {
        if (strncmp(p, "{rank}", 6) == 0)
            text_add(&t, "%d", rank), p += 6;
        else if (strncmp(p, "{size}", 6) == 0)
            text_add(&t, "%d", run->row->n), p += 6;
        else if (strncmp(p, "{port}", 6) == 0)
            text_add(&t, "%d", run->port), p += 6;
        else if (strncmp(p, "{dir}", 5) == 0)
            text_add(&t, "%s", run->dir), p += 5;
        else
            text_add(&t, "%c", *p++);
    }
    snprintf(out, out_bytes, "%s", t.s ? t.s : "");
    text_free(&t);
}

static void child(struct run *run, int rank, const char *program)
{
    char pair[256], path[128];
    clearenv();
    setenv("UNISONO_SOCKET_IFNAME", "lo", 1);
    setenv("UNISONO_JOIN_TIMEOUT", "10", 1);
    for (int i = 0; run->row->env[i]; i++) {
        expand(run->row->env[i], run, rank, pair, sizeof pair);
        char *eq = strchr(pair, '=');
        *eq = 0;
        setenv(pair, eq + 1, 1);
    }
    if (run->row->in_child)
        run->row->in_child(run, rank);
    snprintf(path, sizeof path, "%s/out.%d", run->dir, rank);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(fd, STDOUT_FILENO);
    alarm(30);
    execl(program, program, (char *)NULL);
    _exit(98);
}

static void check(const struct run *run, int rank)
{
    char path[128], line[1500] = "", want[100];
    const struct row *row = run->row;
    snprintf(path, sizeof path, "%s/out.%d", run->dir, rank);
    FILE *f = fopen(path, "r");
    if (!f && row->in_child) /* a hook took this rank away */
        return;
    assert_non_null(f);
    (void)!fgets(line, sizeof line, f);
    fclose(f);
    uno_err err = rank > 0 && row->err_of_others ? row->err_of_others : row->err;
    if (err == UNO_OK) {
        snprintf(want, sizeof want, "joined %d %d ", rank, row->n);
        if (strncmp(line, want, strlen(want)) != 0 || !strstr(line, row->source))
            fail_msg("%s, rank %d: \"%s\" is not \"%s... %s\"", row->name, rank, line, want, row->source);
        return;
    }
    snprintf(want, sizeof want, "%s ", uno_err_name(err));
    if (strncmp(line, want, strlen(want)) != 0 || (row->says && !strstr(line, row->says)))
        fail_msg("%s, rank %d: \"%s\" is not %s with \"%s\"", row->name, rank, line, want, row->says ? row->says : "");
}

/* A port whose next one is free, too, below those that the kernel gives to connections. */
static int free_port(void)
{
    struct rng rng;
    rng_seed(&rng, clock_ns() ^ (uint64_t)getpid());
    for (;;) {
        int fds[2];
        uint16_t port = (uint16_t)(20000 + rng_below(&rng, 12000)), got;
        bool first = sock_listen(port, &fds[0], &got) == UNO_OK;
        bool second = first && sock_listen((uint16_t)(port + 1), &fds[1], &got) == UNO_OK;
        if (first)
            close(fds[0]);
        if (second)
            close(fds[1]);
        if (second)
            return port;
    }
}

static bool nothing_left(const struct run *run)
{
    char first[128], second[128];
    snprintf(first, sizeof first, "%s/meet", run->dir);
    snprintf(second, sizeof second, "%s/meet.2", run->dir);
    return access(first, F_OK) != 0 && access(second, F_OK) != 0;
}

static bool have_ipv6(void)
{
    struct sock_addr a;
    int s = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool yes = s >= 0 && sock_parse("[::1]:0", &a) == UNO_OK && bind(s, &a.u.sa, a.len) == 0;
    if (s >= 0)
        close(s);
    return yes;
}

static void run_row(const struct row *row)
{
    const char *program = getenv("UNISONO_TEST_JOIN");
    struct run run = {.row = row, .fd = -1};
    char command[128], keep[256];
    assert_non_null(program);
    snprintf(keep, sizeof keep, "%s", program);
    snprintf(run.dir, sizeof run.dir, "/tmp/unisono-boot-XXXXXX");
    assert_non_null(mkdtemp(run.dir));
    write_file(run.dir, "secret", "a long random text\n", 0600);
    run.port = free_port();
    if (row->prepare)
        row->prepare(&run);
    for (int r = 0; r < row->n; r++) {
        run.pid[r] = fork();
        if (run.pid[r] == 0)
            child(&run, r, keep);
    }
    for (int r = 0; r < row->n; r++)
        waitpid(run.pid[r], NULL, 0);
    if (run.fd >= 0)
        close(run.fd);
    for (int r = 0; r < row->n; r++)
        check(&run, r);
    if (row->err == UNO_OK && !nothing_left(&run))
        fail_msg("%s: the file is still there", row->name);
    snprintf(command, sizeof command, "rm -rf %s", run.dir);
    assert_int_equal(system(command), 0);
}

static void every_source_joins_or_says_why_not(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (strstr(rows[i].name, "IPv6") && !have_ipv6()) {
            print_message("skipped: %s: this host has no IPv6\n", rows[i].name);
            continue;
        }
        print_message("%s\n", rows[i].name);
        run_row(&rows[i]);
    }
}

/* ---- real launchers ------------------------------------------------------------------------------------------------ */

static const struct { const char *program, *command, *source; } launchers[] = {
    {"mpirun.openmpi", "mpirun.openmpi --allow-run-as-root --oversubscribe -n 4", "PMIx"},
    {"mpirun.openmpi", "mpirun.openmpi --allow-run-as-root --oversubscribe -n 1", "PMIx"},
    {"mpirun.openmpi", "mpirun.openmpi --allow-run-as-root --oversubscribe -n 4 env -u PMIX_RANK", "Open MPI"},
    {"mpiexec.hydra", "mpiexec.hydra -n 4", "PMI"},
    {"mpiexec.hydra", "mpiexec.hydra -n 1", "PMI"}};

static bool installed(const char *program)
{
    char command[128];
    snprintf(command, sizeof command, "command -v %s >/dev/null 2>&1", program);
    return system(command) == 0;
}

static void real_launchers(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(launchers); i++) {
        if (!installed(launchers[i].program)) {
            print_message("skipped: %s is not installed\n", launchers[i].program);
            continue;
        }
        print_message("%s\n", launchers[i].command);
        char command[512], line[1500];
        int ranks = strstr(launchers[i].command, "-n 4") ? 4 : 1, seen = 0;
        snprintf(command, sizeof command, "timeout 60 %s %s 2>&1", launchers[i].command, getenv("UNISONO_TEST_JOIN"));
        FILE *f = popen(command, "r");
        assert_non_null(f);
        while (fgets(line, sizeof line, f)) {
            int rank, size;
            char source[64];
            if (sscanf(line, "joined %d %d %*d %63[^\n]", &rank, &size, source) != 3)
                fail_msg("%s says: %s", launchers[i].command, line);
            assert_int_equal(size, ranks);
            bool without_pmix = strcmp(source, "Open MPI") == 0; /* the feature is off, or the library is not installed */
            if (strcmp(source, launchers[i].source) != 0 && !without_pmix)
                fail_msg("%s: joined through %s", launchers[i].command, source);
            seen |= 1 << rank;
        }
        assert_int_equal(pclose(f), 0);
        assert_int_equal(seen, (1 << ranks) - 1);
    }
}

static void node_lists(void **state)
{
    static const struct { const char *list, *first; } cases[] = {
        {"node1", "node1"}, {"node1,node2", "node1"}, {"node[1-3]", "node1"}, {"gpu[07-09,12],login", "gpu07"},
        {"r[3,5]n[01-02]", "r3n01"}, {"a.b.c", "a.b.c"}, {"n[1", NULL}, {"", NULL}, {"n[]", NULL}, {",x", NULL}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char host[32];
        bool ok = boot_slurm_first_host(cases[i].list, host, sizeof host);
        assert_int_equal(ok, cases[i].first != NULL);
        if (ok)
            assert_string_equal(host, cases[i].first);
    }
    char tiny[4];
    assert_false(boot_slurm_first_host("node1", tiny, sizeof tiny));
}

/* A rank that works alone because one variable is missing must not go unnoticed. */
static void what_is_half_told_is_said(void **state)
{
    static const struct { const char *env[4], *says; } halves[] = {
        {{"RANK=0", "WORLD_SIZE=2"}, "RANK=0 and WORLD_SIZE=2 have no effect: MASTER_ADDR is not set"},
        {{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=localhost"}, "MASTER_PORT is not set"},
        {{"PMI_RANK=0", "PMI_SIZE=3"}, "PMI_FD is not set"},
        {{"RANK=0", "WORLD_SIZE=1"}, NULL},
        {{"RANK=0", "WORLD_SIZE=x"}, NULL},
        {{"WORLD_SIZE=4"}, NULL},
        {{"SLURM_PROCID=0", "SLURM_NTASKS=8"}, NULL},
        {{NULL}, NULL}};
    struct config cfg;
    char text[200];
    for (size_t i = 0; i < ARRAY_LEN(halves); i++) {
        clearenv();
        for (int v = 0; v < 4 && halves[i].env[v]; v++)
            assert_int_equal(putenv((char *)(uintptr_t)halves[i].env[v]), 0);
        assert_int_equal(config_load(&cfg, NULL), UNO_OK);
        for (int b = 0; b < boot_source_count; b++)
            assert_false(boot_sources[b].detect(&cfg));
        assert_int_equal(boot_half_told(text, sizeof text), halves[i].says != NULL);
        if (halves[i].says)
            assert_non_null(strstr(text, halves[i].says));
    }
    clearenv();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(node_lists),
        cmocka_unit_test(every_source_joins_or_says_why_not),
        cmocka_unit_test(real_launchers),
        cmocka_unit_test(what_is_half_told_is_said), /* last: it clears the environment */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
