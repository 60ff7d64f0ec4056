/* SPDX-License-Identifier: Apache-2.0 */
/*
 * faults_join.c - joining that cannot succeed, and strangers at the ports while it does and while a job runs.
 */
#include "faults.h"

#include "boot/boot_internal.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

/* Two of five come. */
static void missing_rank(int rank)
{
    atomic_store(&sh->mark_ns, clock_ns());
    uno_config config = UNO_CONFIG_INIT;
    config.join_timeout_s = 3; /* both must have come by then, on a busy machine too */
    uno_comm *comm = NULL;
    get_id(rank);
    note(rank, uno_comm_init_rank(&comm, 5, &sh->id, rank == 0 ? 0 : 3, &config), NULL);
    CHECK(comm == NULL, "a communicator");
}

static void missing_judge(const int *statuses)
{
    expect_all_zero(statuses);
    for (int r = 0; r < 2; r++) {
        expect(r, UNO_ERR_TIMEOUT, "1", 5);
        expect(r, UNO_ERR_TIMEOUT, "2", 5);
        expect(r, UNO_ERR_TIMEOUT, "4", 5);
    }
}

enum { SAME_RANK, OTHER_SIZE, OTHER_SECRET, OTHER_SETTING };

static void unlike_rank(int rank)
{
    uno_config config = UNO_CONFIG_INIT;
    config.join_timeout_s = 2.5;
    int as = rank, size = now_case->ranks;
    uno_comm *comm = NULL;
    get_id(rank);
    uno_id id = sh->id;
    atomic_store(&sh->mark_ns, clock_ns());
    if (now_case->arg == SAME_RANK && rank == 2)
        as = 1;
    if (now_case->arg == OTHER_SIZE && rank == 2)
        size++;
    if (now_case->arg == OTHER_SETTING && rank == 1)
        setenv("UNISONO_ALGO", "ring", 1);
    if (now_case->arg == OTHER_SECRET && rank == 2) {
        struct boot_id inside; /* same address and job, another secret */
        CHECK(boot_id_read(&id, &inside) == UNO_OK, "%s", err_text());
        inside.secret[3] ^= 0x55;
        boot_id_write(&inside, &id);
    }
    note(rank, uno_comm_init_rank(&comm, size, &id, as, &config), NULL);
    CHECK((sh->outcome[rank].err == UNO_OK) == (comm != NULL), "%s and a communicator", uno_err_name(sh->outcome[rank].err));
    if (comm)
        (void)uno_comm_destroy(comm);
}

static void same_rank_judge(const int *statuses)
{
    expect_all_zero(statuses);
    int bad = 0, said = 0;
    for (int r = 0; r < 3; r++) {
        bad += sh->outcome[r].err != UNO_OK;
        said += strstr(sh->outcome[r].text, "rank 1") != NULL || strstr(sh->outcome[r].text, ": 2") != NULL;
    }
    CHECK(bad == 3 && said == 3, "%d ranks failed, %d of them name rank 1 or the missing rank 2", bad, said);
}

static void other_size_judge(const int *statuses)
{
    expect_all_zero(statuses);
    bool named = false;
    for (int r = 0; r < 3; r++) {
        CHECK(sh->outcome[r].err != UNO_OK, "rank %d joined", r);
        named = named || (strstr(sh->outcome[r].text, "3") && strstr(sh->outcome[r].text, "4"));
    }
    CHECK(named, "nobody names both sizes");
}

static void other_secret_judge(const int *statuses)
{
    expect_all_zero(statuses);
    expect(2, UNO_ERR_AUTH, "secret", 4);
    expect(0, UNO_ERR_TIMEOUT, "2", 4);
    expect(1, UNO_ERR_TIMEOUT, "2", 4);
}

static void other_setting_judge(const int *statuses)
{
    expect_all_zero(statuses);
    for (int r = 0; r < 3; r++) {
        expect(r, UNO_ERR_CONFIG, "ALGO", 4);
        expect(r, UNO_ERR_CONFIG, "rank 1", 4);
    }
}

/* ---- strangers ------------------------------------------------------------------------------------------------------ */

/* Ports on which a process listens: its socket inodes, looked up in the tables of its network namespace. */
static int listening_ports(pid_t pid, int *ports, int cap)
{
    char path[64], link[64], line[512];
    int n = 0;
    for (int v6 = 0; v6 < 2; v6++) {
        snprintf(path, sizeof path, "/proc/%d/net/tcp%s", pid, v6 ? "6" : "");
        FILE *f = fopen(path, "re");
        while (f && fgets(line, sizeof line, f) && n < cap) {
            unsigned port, state;
            unsigned long inode;
            if (sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*x:%*x %*x:%*x %*x %*u %*u %lu", &port, &state, &inode) != 3 ||
                state != 10)
                continue;
            snprintf(path, sizeof path, "/proc/%d/fd", pid);
            DIR *d = opendir(path);
            for (struct dirent *e; d && (e = readdir(d));) {
                char name[320], want[40];
                snprintf(name, sizeof name, "%s/%s", path, e->d_name);
                ssize_t len = readlink(name, link, sizeof link - 1);
                snprintf(want, sizeof want, "socket:[%lu]", inode);
                if (len > 0 && (link[len] = 0, strcmp(link, want) == 0)) {
                    ports[n++] = (int)port;
                    break;
                }
            }
            if (d)
                closedir(d);
        }
        if (f)
            fclose(f);
    }
    return n;
}

/* Garbage, silence, and half a greeting. Sockets that are kept open go into kept. */
static void annoy(int port, struct rng *rng, int *kept, int *nkept, int cap)
{
    for (int kind = 0; kind < 3; kind++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) != 0) {
            if (fd >= 0)
                close(fd);
            continue;
        }
        unsigned char junk[700];
        size_t bytes = kind == 0 ? sizeof junk : kind == 1 ? 0 : 1 + rng_below(rng, 60);
        for (size_t i = 0; i < bytes; i++)
            junk[i] = (unsigned char)rng_next(rng);
        (void)!send(fd, junk, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (kind && *nkept < cap)
            kept[(*nkept)++] = fd;
        else
            close(fd);
    }
}

static bool all_ports_open(void *arg)
{
    int ports[16];
    for (int r = 0; r < now_case->ranks - 1; r++)
        if (listening_ports(((const pid_t *)arg)[r], ports, 16) == 0)
            return false;
    return true;
}

static void stranger_during(const pid_t *pids)
{
    int kept[400], nkept = 0;
    struct rng rng;
    rng_seed(&rng, 99);
    CHECK(wait_for(all_ports_open, (void *)(uintptr_t)pids, 5), "no ports are open while joining");
    for (int when = 0; when < 2; when++) { /* while they join, and while they run */
        int found = 0;
        for (int r = 0; r < now_case->ranks; r++) {
            int ports[16], n = listening_ports(pids[r], ports, 16);
            found += n;
            for (int i = 0; i < n; i++)
                for (int k = 0; k < 12; k++)
                    annoy(ports[i], &rng, kept, &nkept, (int)ARRAY_LEN(kept));
        }
        CHECK(found > 0 || (when == 1 && now_carrier == SHM), "no listening port was found, round %d", when);
        atomic_store(&sh->go, when + 1);
        if (when == 0)
            wait_all_stages(-1, 1);
    }
    wait_all_stages(-1, 2);
    while (nkept)
        close(kept[--nkept]);
}

static bool may_go(void *arg)
{
    return atomic_load(&sh->go) >= *(int *)arg;
}

/* The last rank comes when the strangers have been at the ports of the others. */
static void stranger_rank(int rank)
{
    static float in[60000], out[60000];
    int first = 1, second = 2;
    if (rank == now_case->ranks - 1)
        CHECK(wait_for(may_go, &first, 15), "no strangers came");
    uno_comm *comm = join_as(rank, now_case->ranks, NULL);
    uno_err err = uno_all_reduce(in, out, 10, UNO_FLOAT32, UNO_SUM, comm, NULL);
    set_stage(rank, 1);
    for (int i = 0; err == UNO_OK; i = (i + 1) % 1000) {
        in[59999] = (float)i;
        err = uno_all_reduce(in, out, 60000, UNO_FLOAT32, UNO_SUM, comm, NULL);
        CHECK(err != UNO_OK || out[59999] == (float)(i * now_case->ranks), "wrong sum");
        float stop = may_go(&second); /* all stop in the same round: rank 0 says which one is the last */
        err = err == UNO_OK ? uno_broadcast(&stop, &stop, 1, UNO_FLOAT32, 0, comm, NULL) : err;
        if (err == UNO_OK && stop != 0)
            break;
    }
    CHECK(err == UNO_OK, "%s", uno_last_error(comm));
    set_stage(rank, 2);
    CHECK(uno_comm_destroy(comm) == UNO_OK, "%s", uno_last_error(NULL));
}

/* ---- addresses ---------------------------------------------------------------------------------------------------------- */

static void address_rank(int rank)
{
    struct { const char *name, *addr, *says; } t[] = {
        {"no port", "127.0.0.1", "127.0.0.1"},
        {"bad port", "127.0.0.1:99999", "99999"},
        {"no such host", "no-such-host.invalid:4711", rank ? "no-such-host.invalid" : "have not joined"}, /* rank 0 only listens there */
    };
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        setenv("UNISONO_RANK", rank ? "1" : "0", 1);
        setenv("UNISONO_SIZE", "2", 1);
        setenv("UNISONO_AUTH", "none", 1);
        setenv("UNISONO_ADDR", t[i].addr, 1);
        uno_config config = UNO_CONFIG_INIT;
        config.join_timeout_s = 0.5;
        uno_comm *comm = NULL;
        uno_err err = uno_comm_init_env(&comm, &config);
        CHECK(err != UNO_OK && comm == NULL && strstr(uno_last_error(NULL), t[i].says), "%s: %s: %s", t[i].name, uno_err_name(err),
              uno_last_error(NULL));
    }
}

static void no_such_rank(int rank)
{
    (void)rank;
    uno_id id;
    uno_comm *comm = NULL;
    CHECK(uno_get_id(&id) == UNO_OK, "%s", uno_last_error(NULL));
    struct { const char *what; uno_err got; } t[] = {
        {"rank 2 of 2", uno_comm_init_rank(&comm, 2, &id, 2, NULL)}, {"rank -1 of 2", uno_comm_init_rank(&comm, 2, &id, -1, NULL)},
        {"rank 0 of 0", uno_comm_init_rank(&comm, 0, &id, 0, NULL)}, {"no id", uno_comm_init_rank(&comm, 2, NULL, 0, NULL)},
        {"nowhere to put it", uno_comm_init_rank(NULL, 1, &id, 0, NULL)}, {"-1 threads", uno_comm_init_all(&comm, -1, NULL)},
    };
    for (size_t i = 0; i < ARRAY_LEN(t); i++)
        CHECK(t[i].got == UNO_ERR_ARG && comm == NULL, "%s gave %s", t[i].what, uno_err_name(t[i].got));
    setenv("UNISONO_RANK", "2", 1);
    setenv("UNISONO_SIZE", "2", 1);
    setenv("UNISONO_ADDR", "127.0.0.1:4711", 1);
    setenv("UNISONO_AUTH", "none", 1);
    uno_err err = uno_comm_init_env(&comm, NULL);
    CHECK(err != UNO_OK && comm == NULL && strstr(uno_last_error(NULL), "outside 0 to 1"), "rank 2 of 2 from the environment: %s: %s",
          uno_err_name(err), uno_last_error(NULL));
}

static void port_in_use_rank(int rank)
{
    (void)rank;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    CHECK(bind(fd, (struct sockaddr *)&a, len) == 0 && listen(fd, 1) == 0 && getsockname(fd, (struct sockaddr *)&a, &len) == 0, "a port");
    char addr[40], port[10];
    snprintf(addr, sizeof addr, "127.0.0.1:%d", ntohs(a.sin_port));
    snprintf(port, sizeof port, "%d", ntohs(a.sin_port));
    setenv("UNISONO_RANK", "0", 1);
    setenv("UNISONO_SIZE", "2", 1);
    setenv("UNISONO_AUTH", "none", 1);
    setenv("UNISONO_ADDR", addr, 1);
    uno_config config = UNO_CONFIG_INIT;
    config.join_timeout_s = 1;
    uno_comm *comm = NULL;
    uno_err err = uno_comm_init_env(&comm, &config);
    CHECK(err == UNO_ERR_SYSTEM && strstr(uno_last_error(NULL), port), "%s: %s", uno_err_name(err), uno_last_error(NULL));
    close(fd);
}

static void no_interface_rank(int rank)
{
    setenv("UNISONO_SHM_DISABLE", "1", 1);
    setenv("UNISONO_SOCKET_IFNAME", "=nosuchif0", 1);
    uno_id id;
    uno_comm *comm = NULL;
    uno_config config = UNO_CONFIG_INIT;
    config.join_timeout_s = 1;
    uno_err err = uno_get_id(&id);
    if (err == UNO_OK)
        err = uno_comm_init_rank(&comm, 2, &id, rank, &config);
    CHECK(err != UNO_OK && strstr(uno_last_error(NULL), "nosuchif0"), "%s: %s", uno_err_name(err), uno_last_error(NULL));
}

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        (void)!write(fd, text, strlen(text));
        close(fd);
    }
}

/* A network of its own that knows ::1 only. Skipped where user namespaces are refused. */
static void ipv6_rank(int rank)
{
    (void)rank;
    char map[40];
    unsigned uid = getuid(), gid = getgid();
    if (unshare((uid ? CLONE_NEWUSER : 0) | CLONE_NEWNET) != 0)
        return;
    snprintf(map, sizeof map, "0 %u 1", uid);
    if (uid) {
        write_file("/proc/self/setgroups", "deny");
        write_file("/proc/self/uid_map", map);
        snprintf(map, sizeof map, "0 %u 1", gid);
        write_file("/proc/self/gid_map", map);
    }
    struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &lo) == 0, "lo cannot be brought up: %s", strerror(errno));
    ((struct sockaddr_in *)&lo.ifr_addr)->sin_family = AF_INET; /* no IPv4 address left */
    ((struct sockaddr_in *)&lo.ifr_addr)->sin_addr.s_addr = 0;
    CHECK(ioctl(fd, SIOCSIFADDR, &lo) == 0, "IPv4 stays: %s", strerror(errno));
    close(fd);
    setenv("UNISONO_SOCKET_IFNAME", "lo", 1);
    setenv("UNISONO_SHM_DISABLE", now_case->arg ? "1" : "0", 1);
    pid_t pid[2];
    for (int r = 0; r < 2; r++)
        if ((pid[r] = fork()) == 0) {
            alarm(15);
            float x = 1, y = 0;
            uno_comm *comm = join_as(r, 2, NULL);
            CHECK(uno_all_reduce(&x, &y, 1, UNO_FLOAT32, UNO_SUM, comm, NULL) == UNO_OK && y == 2, "%s", uno_last_error(comm));
            CHECK(uno_comm_destroy(comm) == UNO_OK, "%s", uno_last_error(NULL));
            exit(0);
        }
    for (int r = 0; r < 2; r++) {
        int status = -1;
        CHECK(waitpid(pid[r], &status, 0) == pid[r] && status == 0, "rank %d ended with 0x%x", r, (unsigned)status);
    }
}

const struct fault_case fault_cases_join[] = {
    {"join_missing", 2, ONCE, 20, missing_rank, missing_judge, NULL, 0, 0},
    {"join_same_rank", 3, ONCE, 20, unlike_rank, same_rank_judge, NULL, 0, SAME_RANK},
    {"join_other_size", 3, ONCE, 20, unlike_rank, other_size_judge, NULL, 0, OTHER_SIZE},
    {"join_other_secret", 3, ONCE, 20, unlike_rank, other_secret_judge, NULL, 0, OTHER_SECRET},
    {"join_other_setting", 3, ANY, 20, unlike_rank, other_setting_judge, NULL, 0, OTHER_SETTING},
    {"join_strangers", 3, ANY, 40, stranger_rank, NULL, stranger_during, 0, 0},
    {"join_address", 2, ONCE, 20, address_rank, NULL, NULL, 0, 0},
    {"join_no_such_rank", 1, ONCE, 20, no_such_rank, NULL, NULL, 0, 0},
    {"join_port_in_use", 1, ONCE, 20, port_in_use_rank, NULL, NULL, 0, 0},
    {"join_no_interface", 1, ONCE, 20, no_interface_rank, NULL, NULL, 0, 0},
    {"join_ipv6_only", 1, ONCE, 40, ipv6_rank, NULL, NULL, 0, 0},
    {"join_ipv6_only_tcp", 1, ONCE, 40, ipv6_rank, NULL, NULL, 0, 1},
    {0},
};
