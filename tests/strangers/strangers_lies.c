/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strangers_lies.c - a member of the job who knows the secret, speaks the protocol and says wrong sizes. Each lie is told to a job of
 * its own. What is asked for: the honest ranks end by themselves, with right results or an error with a sentence, soon, and without
 * having taken memory for what was only announced.
 */
#include "strangers.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net/net_tcp_inner.h"
#include "soak/soak.h"

#define END_NS 60000000000ull
#define PEAK_KB 131072 /* also with a sanitizer */

/* ---- lies to the sockets of the data ------------------------------------------------------------------------------------- */

/* comm_id, source and destination are filled in: the job's first communicator, from rank 1 to rank 0. */
struct data_lie { const char *what; bool fatal; struct tcp_frame f; unsigned char payload[24]; };
static const struct data_lie data_lies[] = {
    {"a message of 2^40 bytes", true, {.magic = TCP_MAGIC, .type = TCP_DATA, .number = 1, .bytes = 1ull << 40, .length = TCP_SLICE}, {0}},
    {"a slice longer than slices are", true, {.magic = TCP_MAGIC, .type = TCP_DATA, .number = 1, .bytes = 1 << 20, .length = 1 << 20}, {0}},
    {"a slice behind the end", true, {.magic = TCP_MAGIC, .type = TCP_DATA, .number = 1, .bytes = 10, .offset = TCP_SLICE, .length = 10}, {0}},
    {"4 GB of control", true, {.magic = TCP_MAGIC, .type = TCP_CONTROL, .number = 1, .length = UINT32_MAX}, {0}},
    {"frames of no type", true, {.magic = TCP_MAGIC, .type = 200}, {0}},
    {"no magic", true, {.magic = 7, .type = TCP_DATA}, {0}},
    {"a message for nobody", false, {.magic = TCP_MAGIC, .type = TCP_DATA, .channel = 999, .number = 1, .bytes = 8, .length = 8, .shape_no = 1}, {0}},
    {"an answer to what was not sent", false, {.magic = TCP_MAGIC, .type = TCP_ACK, .number = 1u << 31}, {0}},
    {"a part of 4 GB between stewards", false, {.magic = TCP_MAGIC, .type = TCP_CONTROL, .number = 1, .length = 24},
     {0x55, 0x57, 1, 5, 1, 0, 0, 0, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 1, 2, 3, 4}},
};

static long peak_kb(void)
{
    char line[256];
    long kb = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %ld", &kb) == 1)
            break;
    if (f)
        fclose(f);
    return kb;
}

/* Small sums until one fails or the liar is done, which rank 0 tells the other. */
static uno_err sums(struct ground *g, uno_comm *comm)
{
    for (int32_t stop = 0; !stop;) {
        int32_t in[2048], out[2048];
        for (int i = 0; i < 2048; i++)
            in[i] = i;
        stop = atomic_load(&g->stop);
        TRY(uno_broadcast(&stop, &stop, 1, UNO_INT32, 0, comm, NULL));
        TRY(uno_all_reduce(in, out, 2048, UNO_INT32, UNO_SUM, comm, NULL));
        for (int i = 0; i < 2048; i++)
            if (out[i] != i * uno_comm_size(comm))
                _exit(3);
        atomic_store(&g->working, 1);
    }
    return UNO_OK;
}

/* Exit status: 0 = all right, 1 = an error with a sentence, 3 = without one, or a wrong sum. */
static int honest(struct ground *g, int rank, int size)
{
    uno_comm *comm = NULL;
    char host[32];
    snprintf(host, sizeof host, "lies-%d", rank);
    setenv("UNISONO_HOST", host, 1);
    setenv("UNISONO_JOIN_TIMEOUT", "3", 1);
    setenv("UNISONO_SUSPECT", "1", 1);
    setenv("UNISONO_SUSPECT_TIMEOUT", "1.5", 1);
    setenv("UNISONO_TIMEOUT", "15", 1);
    uno_err err = UNO_OK;
    if (rank == 0) {
        err = uno_get_id(&g->id);
        atomic_store(&g->has_id, 1);
    }
    while (!atomic_load(&g->has_id))
        usleep(1000);
    if (err == UNO_OK)
        err = uno_comm_init_rank(&comm, size, &g->id, rank, NULL);
    if (err == UNO_OK)
        err = sums(g, comm);
    const char *said = err == UNO_OK ? "" : comm ? uno_last_error(comm) : uno_last_error(NULL);
    snprintf(g->said[rank], sizeof g->said[rank], "%s", said);
    if (err != UNO_OK)
        printf("    rank %d: %s: %.600s\n", rank, uno_err_name(err), said);
    bool silent = err != UNO_OK && !uno_last_error(comm)[0] && !uno_last_error(NULL)[0];
    (void)uno_comm_destroy(comm);
    atomic_store(&g->peak_kb[rank], peak_kb());
    fflush(stdout);
    return silent ? 3 : err != UNO_OK;
}

static void begin(struct ground *g, int ranks, int size)
{
    memset(g, 0, sizeof *g);
    fflush(NULL);
    for (int r = 0; r < ranks; r++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(honest(g, r, size));
        g->ranks[r] = pid;
    }
    while (!atomic_load(&g->has_id))
        usleep(1000);
}

/* Wait for the honest ones. *failed: how many had an error. false: it went wrong. */
static bool finish(struct ground *g, int ranks, int *failed)
{
    uint64_t end_ns = clock_ns() + END_NS;
    bool good = true;
    *failed = 0;
    for (int r = 0; r < ranks; r++) {
        int status = 0;
        while (waitpid(g->ranks[r], &status, WNOHANG) == 0) {
            usleep(5000);
            if (clock_ns() < end_ns)
                continue;
            printf("    rank %d does not end\n", r);
            kill(g->ranks[r], SIGKILL);
            good = false;
            end_ns = UINT64_MAX;
        }
        if (good && (!WIFEXITED(status) || WEXITSTATUS(status) > 1)) {
            printf("    rank %d ended with status 0x%x\n", r, status);
            good = false;
        }
        *failed += WIFEXITED(status) && WEXITSTATUS(status) == 1;
        if (atomic_load(&g->peak_kb[r]) > PEAK_KB) {
            printf("    rank %d had %ld KB\n", r, atomic_load(&g->peak_kb[r]));
            good = false;
        }
    }
    return good;
}

static bool verdict(const char *what, bool good, int failed, bool fatal)
{
    good = good && (!fatal || failed > 0);
    printf("  %s: %s, %d ranks had an error\n", what, good ? "survived" : "WENT WRONG", failed);
    fflush(stdout);
    return good;
}

static bool tell_data(struct ground *g, const struct data_lie *lie)
{
    struct auth_key key;
    uint64_t job, end_ns = clock_ns() + END_NS;
    uint16_t ports[PORTS];
    int failed, fd = -1;
    begin(g, 2, 2);
    while ((!atomic_load(&g->working) || listening_ports(g->ranks, 1, ports, PORTS) != 1) && clock_ns() < end_ns)
        usleep(1000); /* the port at which they met closes a little after */
    boot_id_key(&g->id, &key, &job);
    struct auth_hello h = {.role = AUTH_DATA, .job = job, .from = 1, .to = 0, .connection = 1};
    struct tcp_frame f = lie->f;
    f.comm_id = hash_mix(job, 1);
    f.source = 1;
    bool told = listening_ports(g->ranks, 1, ports, PORTS) == 1 && (fd = attack_enter(ports[0], &key, &h)) >= 0 &&
                send(fd, &f, sizeof f, MSG_NOSIGNAL) == (ssize_t)sizeof f;
    size_t more = f.type == TCP_CONTROL || f.type == TCP_DATA ? MIN(f.length, sizeof lie->payload) : 0;
    told = told && send(fd, lie->payload, more, MSG_NOSIGNAL) == (ssize_t)more;
    usleep(300000);
    if (fd >= 0)
        close(fd);
    atomic_store(&g->stop, 1);
    bool good = finish(g, 2, &failed) && told;
    if (!told)
        printf("    the lie could not be told: %s\n", err_text());
    for (int r = 0; good && lie->fatal && r < 2; r++)
        if (!strstr(g->said[r], "the process of rank 0 a frame that breaks the protocol: type ")) {
            printf("    rank %d does not say what was wrong\n", r);
            good = false;
        }
    return verdict(lie->what, good, failed, lie->fatal);
}

/* ---- lies while joining: rank 2 of 3 ---------------------------------------------------------------------------------------- */

struct boot_lie { const char *what; struct boot_frame join; int32_t size; struct boot_frame put; size_t payload; };
#define HONEST_JOIN {.type = BOOT_JOIN, .bytes = sizeof(struct boot_who)}
static const struct boot_lie boot_lies[] = {
    {"joins a job of 65536", HONEST_JOIN, 65536, {0}, 0},
    {"joins a job of 2^31", HONEST_JOIN, INT32_MAX, {0}, 0},
    {"joins with 2^63 bytes", {.type = BOOT_JOIN, .bytes = 1ull << 63}, 3, {0}, 0},
    {"joins with a frame of no type", {.type = 99, .bytes = 4}, 3, {0}, 0},
    {"puts 2^63 bytes", HONEST_JOIN, 3, {.type = BOOT_PUT, .bytes = 1ull << 63}, 0},
    {"puts a megabyte", HONEST_JOIN, 3, {.type = BOOT_PUT, .bytes = 1u << 20}, 1u << 20},
    {"puts nothing", HONEST_JOIN, 3, {.type = BOOT_PUT}, 0},
    {"puts into a later round", HONEST_JOIN, 3, {.type = BOOT_PUT, .round = 77, .bytes = 8}, 8},
    {"announces bytes and sends none", HONEST_JOIN, 3, {.type = BOOT_PUT, .bytes = 4096}, 0},
};

static bool tell_boot(struct ground *g, const struct boot_lie *lie)
{
    static unsigned char payload[1 << 20];
    struct auth_key key;
    uint64_t job;
    uint16_t ports[PORTS];
    struct boot_id id;
    int failed, fd = -1;
    struct boot_who who = {.rank = 2, .size = lie->size, .pid = (int32_t)getpid(), .host = "liar"};
    begin(g, 2, 3);
    boot_id_key(&g->id, &key, &job);
    bool told = boot_id_read(&g->id, &id) == UNO_OK;
    ports[0] = id.port;
    usleep(200000); /* the others first */
    struct auth_hello h = {.role = AUTH_BOOT, .job = job, .from = 2, .to = 0, .extra = 3};
    told = told && (fd = attack_enter(ports[0], &key, &h)) >= 0 &&
           sock_send_all(fd, &lie->join, sizeof lie->join, clock_after(2)) == UNO_OK;
    if (told && lie->join.bytes == sizeof who)
        told = sock_send_all(fd, &who, sizeof who, clock_after(2)) == UNO_OK;
    if (told && lie->put.type) {
        told = sock_send_all(fd, &lie->put, sizeof lie->put, clock_after(2)) == UNO_OK;
        (void)sock_send_all(fd, payload, lie->payload, clock_after(2)); /* may be refused in the middle */
    }
    if (!told)
        printf("    the lie could not be told: %s\n", err_text());
    usleep(100000);
    atomic_store(&g->stop, 1);
    bool good = finish(g, 2, &failed) && told;
    if (fd >= 0)
        close(fd);
    return verdict(lie->what, good, failed, true);
}

/* ---- lies of the one who serves the joining ------------------------------------------------------------------------------------ */

struct server_lie { const char *what; struct boot_frame welcome, all; };
#define HONEST_WELCOME {.type = BOOT_WELCOME, .bytes = sizeof(struct boot_who)}
static const struct server_lie server_lies[] = {
    {"welcomes with 2^40 bytes", {.type = BOOT_WELCOME, .bytes = 1ull << 40}, {0}},
    {"welcomes with an error of 2^30 bytes", {.type = BOOT_ERROR, .code = 99, .bytes = 1u << 30}, {0}},
    {"answers with 2^30 bytes", HONEST_WELCOME, {.type = BOOT_ALL, .bytes = 1u << 30}},
    {"answers with no type", HONEST_WELCOME, {.type = 77}},
    {"answers nothing", HONEST_WELCOME, {0}},
};

/* Serves one connection after the other until the honest one has ended. */
static void serve_lies(int listener, const struct auth_key *key, const struct server_lie *lie, pid_t honest_one)
{
    struct boot_who who = {.size = 2, .host = "liar"};
    unsigned char bin[4096];
    siginfo_t info = {0};
    while (waitid(P_PID, (id_t)honest_one, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0) {
        struct pollfd p = {.fd = listener, .events = POLLIN};
        int fd = poll(&p, 1, 50) == 1 ? accept(listener, NULL, NULL) : -1;
        struct auth_session s;
        auth_start(&s, key, false);
        if (fd < 0 || sock_tune(fd) != UNO_OK || auth_run(&s, fd, clock_after(2)) != UNO_OK) {
            if (fd >= 0)
                close(fd);
            continue;
        }
        (void)sock_send_all(fd, &lie->welcome, sizeof lie->welcome, clock_after(1));
        (void)sock_send_all(fd, &who, sizeof who, clock_after(1));
        if (lie->all.type)
            (void)sock_send_all(fd, &lie->all, sizeof lie->all, clock_after(1));
        usleep(200000);
        while (recv(fd, bin, sizeof bin, MSG_DONTWAIT) > 0)
            ;
        if (lie->all.type || lie->welcome.bytes != sizeof who)
            close(fd); /* else it stays open and silent */
    }
}

static bool tell_as_server(struct ground *g, const struct server_lie *lie)
{
    struct boot_id id = {.magic = BOOT_ID_MAGIC, .count4 = 1, .ports = 1, .v4 = {{127, 0, 0, 1}}, .job = 5, .secret = {1, 2, 3}};
    struct auth_key key;
    uint64_t job;
    int listener, status = 0;
    memset(g, 0, sizeof *g);
    if (sock_listen(0, &listener, &id.port) != UNO_OK)
        return verdict(lie->what, false, 0, true);
    boot_id_write(&id, &g->id);
    boot_id_key(&g->id, &key, &job);
    atomic_store(&g->has_id, 1);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(honest(g, 1, 2));
    serve_lies(listener, &key, lie, pid);
    waitpid(pid, &status, 0);
    close(listener);
    bool good = WIFEXITED(status) && WEXITSTATUS(status) == 1 && atomic_load(&g->peak_kb[1]) < PEAK_KB;
    return verdict(lie->what, good, 1, true);
}

int lies_run(struct ground *g)
{
    int wrong = 0;
    printf("strangers: a member lies to another one\n");
    for (size_t i = 0; i < ARRAY_LEN(data_lies); i++)
        wrong += !tell_data(g, &data_lies[i]);
    printf("strangers: a member lies while it joins\n");
    for (size_t i = 0; i < ARRAY_LEN(boot_lies); i++)
        wrong += !tell_boot(g, &boot_lies[i]);
    printf("strangers: the server of the joining lies\n");
    for (size_t i = 0; i < ARRAY_LEN(server_lies); i++)
        wrong += !tell_as_server(g, &server_lies[i]);
    return wrong;
}
