/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steward's door: what it hands over and to whom, guests that harm, and, the other way round, doors that harm who comes.
 */
#include "live.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unisono_watch.h"

#define NOBODY 65534
#define WAIT_NS 10000000000ull
#define SOON_NS 2000000000ull /* a busy machine may need a while to wake somebody up */

enum doing { IDLE = LIVE_IDLE, REDUCES, ALLOCATES, COUNTS, FORKS, STOPS };

/* ---- the ranks --------------------------------------------------------------------------------------------------------------- */

static long descriptors(void)
{
    DIR *d = opendir("/proc/self/fd");
    long n = 0;
    while (d && readdir(d))
        n++;
    closedir(d);
    return n;
}

static void act(int what, uno_comm *comm, int rank)
{
    struct net_segment_ref ref;
    uint64_t offset;
    void *p;
    switch ((enum doing)what) {
    case REDUCES: live_reduces(comm); break;
    case ALLOCATES: /* memory of its user: the tokens of it are told */
        if (uno_mem_alloc(&p, 1 << 16) != UNO_OK || !net_segment_find(p, 1 << 16, &ref, &offset))
            _exit(9);
        atomic_store(&live.shared->told[0], ref.token[0]);
        atomic_store(&live.shared->told[1], ref.token[1]);
        break;
    case COUNTS: atomic_store(&live.shared->told[rank], (uint64_t)descriptors()); break;
    case FORKS: live_forks(); break;
    case STOPS: raise(SIGSTOP); break;
    default: break;
    }
}

/* Stewards open their doors when they run, which may be after joining. */
static bool doors_are_open(void *arg)
{
    struct door_call call;
    (void)arg;
    for (int r = 0; r < RANKS; r++) {
        enum door_said said = door_call(&call, live.pids[r], 0, 0);
        door_hang_up(&call);
        if (said != DOOR_GIVEN)
            return false;
    }
    return true;
}

static int setup(void **state)
{
    static const struct live_play play = {.name = "world", .position = "step", .act = act};
    (void)state;
    return live_start(&play) || !live_soon(doors_are_open, NULL);
}

static int teardown(void **state)
{
    (void)state;
    live_end();
    return 0;
}

static struct board_page *page_of(int rank)
{
    return live.watch.peers[rank].records.page;
}

static uint64_t refused(int rank)
{
    return atomic_load(&page_of(rank)->steward.refused);
}

static bool has_refused(void *more)
{
    return refused(0) >= *(const uint64_t *)more;
}

/* The job works, and that takes no more than a moment. */
static void job_works(void)
{
    int done[RANKS];
    for (int r = 0; r < RANKS; r++)
        done[r] = atomic_load(&live.shared->done[r]);
    live_order_all(REDUCES);
    for (int r = 0; r < RANKS; r++)
        live_await(r, done[r] + 1);
}

static long count_of(int rank)
{
    int done = atomic_load(&live.shared->done[rank]);
    live_order(rank, COUNTS);
    live_await(rank, done + 1);
    return (long)atomic_load(&live.shared->told[rank]);
}

/* The last guest may just be going. */
static bool is_left_as_before(void *arg)
{
    return count_of(0) <= *(const long *)arg;
}

/* ---- guests ------------------------------------------------------------------------------------------------------------------- */

static int knock(int rank)
{
    struct sockaddr_un a;
    socklen_t len = door_address(&a, (uint32_t)geteuid(), live.pids[rank], 0);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    for (uint64_t until = clock_ns() + WAIT_NS; fd >= 0 && connect(fd, (struct sockaddr *)&a, len) != 0; usleep(500))
        if (errno != EAGAIN || clock_ns() > until) {
            close(fd);
            return -1;
        }
    return fd;
}

/* Has the steward hung up? */
static bool is_over(void *arg)
{
    char c[128];
    ssize_t n = recv(*(int *)arg, c, sizeof c, MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN);
}

static bool may_get(int rank, const uint64_t token[2], struct net_segment_ref *ref)
{
    struct door_call call;
    uint32_t boards = 0;
    int fd = -1;
    assert_int_equal(door_call(&call, live.pids[rank], 0, WAIT_NS), DOOR_GIVEN);
    enum door_said said = door_fetch(&call, token, WAIT_NS, ref, &boards, &fd);
    door_hang_up(&call);
    assert_int_equal(boards, 1);
    if (said != DOOR_GIVEN) {
        assert_int_equal(said, DOOR_REFUSED);
        return false;
    }
    uint64_t there[2];
    assert_int_equal(pread(fd, there, sizeof there, (off_t)ref->bytes), sizeof there);
    assert_memory_equal(there, ref->token, sizeof there);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    close(fd);
    return true;
}

static void hands_over_what_is_shown(void **state)
{
    (void)state;
    struct net_segment_ref ref;
    job_works();
    for (int r = 0; r < RANKS; r++) {
        assert_true(may_get(r, NULL, &ref));
        assert_memory_equal(ref.token, live.shared->board[r].token, sizeof ref.token);
        assert_int_equal(ref.bytes, live.shared->board[r].bytes);
    }
    struct net_segment_ref region = page_of(1)->comms[0].region;
    assert_true(may_get(1, region.token, &ref));
    assert_memory_equal(ref.token, region.token, sizeof ref.token);
    assert_false(may_get(2, region.token, &ref)); /* another's */
    assert_false(may_get(1, (uint64_t[]){1, 2}, &ref));
    live_order(0, ALLOCATES);
    live_await(0, 2);
    assert_false(may_get(0, (uint64_t[]){atomic_load(&live.shared->told[0]), atomic_load(&live.shared->told[1])}, &ref)); /* the user's */
}

/* As somebody else; 0 = got nothing, and no sign that anybody had heard. */
static int somebody_else(int rank, uint32_t uid)
{
    struct sockaddr_un a;
    socklen_t len = door_address(&a, uid, live.pids[rank], 0);
    struct door_ask ask = {.magic = DOOR_MAGIC, .version = DOOR_VERSION};
    char room[256], control[256];
    struct iovec io = {room, sizeof room};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    if (setgroups(0, NULL) != 0 || setgid(NOBODY) != 0 || setuid(NOBODY) != 0)
        return 2;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&a, len) != 0)
        return 3;
    (void)!send(fd, &ask, sizeof ask, MSG_NOSIGNAL);
    return recvmsg(fd, &m, 0) > 0 || (m.msg_controllen > 0 && m.msg_controllen < sizeof control);
}

static void another_user_gets_nothing(void **state)
{
    (void)state;
    enum { TIMES = 100 }; /* more than the door lets in without a pause */
    if (geteuid() != 0)
        skip();
    uint64_t wanted = refused(0) + TIMES;
    struct net_segment_ref ref;
    for (int i = 0; i < TIMES; i++) {
        int status;
        pid_t pid = fork();
        if (pid == 0)
            _exit(somebody_else(0, 0));
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
    assert_true(live_soon(has_refused, &wanted));
    assert_true(may_get(0, NULL, &ref));
    job_works();
}

static void silent_guests_go(void **state)
{
    (void)state;
    enum { MANY = DOOR_GUESTS * 3 };
    struct net_segment_ref ref;
    int fds[MANY];
    long before = count_of(0);
    for (int i = 0; i < MANY; i++)
        assert_true((fds[i] = knock(0)) >= 0);
    uint64_t begin = clock_ns();
    assert_true(may_get(0, NULL, &ref)); /* behind them all */
    assert_true(clock_ns() - begin < SOON_NS);
    assert_true(count_of(0) <= before + DOOR_GUESTS);
    job_works();
    for (int i = 0; i < MANY; i++) {
        assert_true(live_soon(is_over, &fds[i]));
        close(fds[i]);
    }
    assert_true(live_soon(is_left_as_before, &before)); /* what joining held open may have gone meanwhile */
    assert_true(refused(0) < MANY); /* who says nothing was not refused; joining may have refused one that came twice */
}

static void send_with_descriptor(int to, const void *data, size_t bytes)
{
    union { struct cmsghdr head; char room[CMSG_SPACE(sizeof(int))]; } control = {0};
    struct iovec io = {(void *)(uintptr_t)data, bytes};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof control.room};
    int fd = STDERR_FILENO;
    control.head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
    (void)!sendmsg(to, &m, MSG_NOSIGNAL);
}

static void noise_is_refused(void **state)
{
    (void)state;
    static char noise[60000];
    struct door_ask ask = {.magic = DOOR_MAGIC, .version = DOOR_VERSION};
    size_t lengths[] = {1, sizeof ask - 1, sizeof ask + 1, 4096, sizeof noise};
    long before = count_of(0);
    uint64_t wanted = 0;
    struct net_segment_ref ref;
    struct rng r;
    rng_seed(&r, 7);
    for (size_t i = 0; i < 200; i++) {
        size_t n = i < 5 ? lengths[i] : i == 5 ? sizeof ask : 1 + rng_below(&r, 2 * sizeof ask);
        for (size_t b = 0; b < n; b++)
            noise[b] = (char)rng_next(&r);
        if (i < 5)
            memcpy(noise, &ask, MIN(n, sizeof ask)); /* right, but for its length */
        int fd = knock(0);
        assert_true(fd >= 0);
        if (i % 3)
            (void)!send(fd, noise, n, MSG_NOSIGNAL);
        else
            send_with_descriptor(fd, noise, n);
        assert_true(live_soon(is_over, &fd));
        close(fd);
        wanted++;
    }
    assert_true(live_soon(has_refused, &wanted));
    ask.version++; /* another version is no noise: it learns ours */
    int fd = knock(0);
    struct door_reply reply = {0};
    assert_int_equal(send(fd, &ask, sizeof ask, 0), sizeof ask);
    for (uint64_t until = clock_ns() + WAIT_NS; recv(fd, &reply, sizeof reply, MSG_DONTWAIT) < 0 && clock_ns() < until;)
        usleep(500);
    assert_int_equal(reply.version, DOOR_VERSION);
    assert_int_equal(reply.bytes, 0);
    close(fd);
    assert_true(may_get(0, NULL, &ref));
    assert_true(live_soon(is_left_as_before, &before));
    job_works();
}

/* Who asks and never reads is shown out, and the steward waits for nobody. */
static void deaf_guests_go(void **state)
{
    (void)state;
    struct door_ask ask = {.magic = DOOR_MAGIC, .version = DOOR_VERSION};
    struct net_segment_ref ref;
    long before = count_of(0);
    for (int i = 0; i < 30; i++) {
        int fd = knock(0), asked = 0;
        assert_true(fd >= 0);
        for (uint64_t until = clock_ns() + WAIT_NS; clock_ns() < until; asked++)
            if (send(fd, &ask, sizeof ask, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EAGAIN)
                break;
        assert_true(errno == EPIPE || errno == ECONNRESET);
        close(fd);
    }
    assert_true(may_get(0, NULL, &ref));
    assert_true(live_soon(is_left_as_before, &before));
    job_works();
}

static bool is_stopped(void *arg)
{
    return proc_state(*(pid_t *)arg, *(pid_t *)arg) == 'T';
}

/* Nobody comes to the door of a stopped process: /proc tells, and at once. */
static void who_is_stopped_is_not_waited_for(void **state)
{
    (void)state;
    struct door_call call;
    struct net_segment_ref ref;
    uint32_t boards;
    int fd;
    uno_keeper *k;
    live_order(1, STOPS);
    assert_true(live_soon(is_stopped, &live.pids[1]));
    uint64_t begin = clock_ns();
    assert_int_equal(door_call(&call, live.pids[1], 0, 1000000), DOOR_GIVEN); /* the kernel takes the call */
    assert_int_equal(door_fetch(&call, NULL, 20000000, &ref, &boards, &fd), DOOR_SILENT);
    door_hang_up(&call);
    assert_int_equal(uno_keeper_new(&k), UNO_OK);
    assert_int_equal(uno_keeper_look(k, live.pids[1]), UNO_OK);
    assert_true(clock_ns() - begin < SOON_NS);
    uno_keeper_free(k);
}

static void nothing_is_left_of_a_door(void **state)
{
    (void)state;
    struct door_call call;
    struct net_segment_ref ref;
    pid_t pid = live.pids[0];
    int32_t pids[64];
    live_order(0, FORKS); /* a child holds nothing of it */
    live_await(0, 1);
    assert_true(may_get(0, NULL, &ref));
    size_t n = door_pids(pids, ARRAY_LEN(pids)), found = 0;
    for (size_t i = 0; i < n; i++)
        for (int r = 0; r < RANKS; r++)
            found += pids[i] == live.pids[r];
    assert_int_equal(found, RANKS);
    live_end_rank(0);
    assert_int_equal(door_call(&call, pid, 0, 0), DOOR_NOBODY);
}

/* ---- doors that harm ------------------------------------------------------------------------------------------------------------- */

enum harm { SAYS_NOTHING, HANGS_UP, SAYS_NOISE, SAYS_TOO_MUCH, GIVES_NO_MEMORY, GIVES_TOO_LITTLE, GIVES_UNSEALED, GIVES_WRONG, GIVES_TWO, GIVES_NONE, HARMS };

static int segment(size_t bytes, bool sealed)
{
    int fd = memfd_create("unisono-board", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    if (ftruncate(fd, (off_t)bytes) != 0 || (sealed && fcntl(fd, 1033 /* F_ADD_SEALS */, 0x0006) != 0))
        _exit(9);
    return fd;
}

static void harm(int guest, enum harm how)
{
    size_t bytes = (sizeof(struct board_page) + 4095) / 4096 * 4096;
    struct door_reply reply = {.magic = DOOR_MAGIC, .version = DOOR_VERSION, .boards = 1, .bytes = bytes, .token = {5, 6}};
    union { struct cmsghdr head; char room[CMSG_SPACE(2 * sizeof(int))]; } control = {0};
    char more[sizeof reply + 100];
    memset(more, how == SAYS_NOISE ? 0x5a : 0, sizeof more);
    memcpy(more, &reply, how == SAYS_NOISE ? 0 : sizeof reply);
    struct iovec io = {more, how == SAYS_TOO_MUCH ? sizeof more : sizeof reply};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};
    int fds[2] = {-1, -1}, n = how == GIVES_TWO ? 2 : how >= GIVES_NO_MEMORY && how != GIVES_NONE;
    if (how == SAYS_NOTHING || how == HANGS_UP)
        return;
    for (int i = 0; i < n; i++)
        fds[i] = how == GIVES_NO_MEMORY ? open("/dev/zero", O_RDWR) : segment(how == GIVES_TOO_LITTLE ? 8192 : bytes + 4096, how != GIVES_UNSEALED);
    if (n) {
        m.msg_control = control.room;
        m.msg_controllen = CMSG_SPACE((size_t)n * sizeof(int));
        control.head = (struct cmsghdr){.cmsg_len = CMSG_LEN((size_t)n * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.head), fds, (size_t)n * sizeof(int));
    }
    (void)!sendmsg(guest, &m, MSG_NOSIGNAL);
    for (int i = 0; i < n; i++)
        close(fds[i]);
}

/* A process whose door, or that of process `of`, does harm. */
static pid_t bad_door(enum harm how, pid_t of, uint32_t uid)
{
    int ready[2];
    char c = 0;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct sockaddr_un a;
        struct door_ask ask;
        int door = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        socklen_t len = door_address(&a, 0, of ? of : getpid(), 0);
        alarm(60);
        if (uid != geteuid() && setuid(uid) != 0)
            _exit(9);
        if (geteuid() != 0 && uid == geteuid())
            len = door_address(&a, uid, of ? of : getpid(), 0);
        if (bind(door, (struct sockaddr *)&a, len) != 0 || listen(door, 8) != 0)
            _exit(9);
        (void)!write(ready[1], "", 1);
        for (;;) {
            int guest = accept(door, NULL, NULL);
            (void)!recv(guest, &ask, sizeof ask, 0);
            harm(guest, how);
            if (how != SAYS_NOTHING)
                close(guest);
        }
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &c, 1), 1);
    close(ready[0]);
    return pid;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void bad_doors_do_no_harm(void **state)
{
    (void)state;
    long before = descriptors();
    for (enum harm how = 0; how < HARMS; how++) {
        uno_keeper *k;
        pid_t pid = bad_door(how, 0, (uint32_t)geteuid());
        assert_int_equal(uno_keeper_new(&k), UNO_OK);
        uint64_t begin = clock_ns();
        uno_err err = uno_keeper_look(k, pid);
        assert_int_not_equal(err, UNO_OK);
        assert_true(uno_last_error(NULL)[0]);
        assert_true(clock_ns() - begin < SOON_NS);
        uno_keeper_free(k);
        end(pid);
        assert_int_equal(descriptors(), before);
    }
}

/* Names are free to all; who listens is not taken at its word. */
static void names_that_others_took(void **state)
{
    (void)state;
    struct door_call call;
    pid_t idle = fork();
    if (idle == 0)
        for (alarm(60);;)
            pause();
    pid_t thief = bad_door(GIVES_WRONG, idle, (uint32_t)geteuid());
    assert_int_equal(door_call(&call, idle, 0, 0), DOOR_NOBODY);
    end(thief);
    if (geteuid() == 0) {
        thief = bad_door(GIVES_WRONG, 0, NOBODY);
        assert_int_equal(door_call(&call, thief, 0, 0), DOOR_NOBODY);
        end(thief);
    }
    end(idle);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(hands_over_what_is_shown, setup, teardown),
        cmocka_unit_test_setup_teardown(another_user_gets_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(silent_guests_go, setup, teardown),
        cmocka_unit_test_setup_teardown(noise_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(deaf_guests_go, setup, teardown),
        cmocka_unit_test_setup_teardown(who_is_stopped_is_not_waited_for, setup, teardown),
        cmocka_unit_test_setup_teardown(nothing_is_left_of_a_door, setup, teardown),
        cmocka_unit_test(bad_doors_do_no_harm),
        cmocka_unit_test(names_that_others_took),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
