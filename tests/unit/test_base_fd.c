/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that has closed its standard streams, and one that may not make files of any size: a job's ranks take no descriptor that
 * the program prints to, over memory, sockets and threads, and a limit of file sizes is an error, not a signal.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"

enum { N = 5000, GOOD = 0, FAILED = 10, TAKEN = 20 };

/* GOOD, or TAKEN + the number that somebody holds. */
static int streams_free(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            return TAKEN + fd;
    return GOOD;
}

static int reduce(uno_comm *comm, uno_stream *stream)
{
    static float in[N], out[N];
    for (int i = 0; i < N; i++)
        in[i] = 1;
    uno_err err = uno_all_reduce(in, out, N, UNO_FLOAT32, UNO_SUM, comm, stream);
    if (err == UNO_OK && stream)
        err = uno_stream_synchronize(stream);
    return err == UNO_OK && out[N - 1] == 2 ? streams_free() : FAILED;
}

static int rank_without_streams(const uno_id *id, int rank)
{
    uno_comm *comm;
    uno_stream *stream;
    void *memory;
    uno_config config = UNO_CONFIG_INIT;
    config.timeout_s = config.join_timeout_s = 60;
    if (uno_comm_init_rank(&comm, 2, id, rank, &config) != UNO_OK || uno_mem_alloc(&memory, 100) != UNO_OK ||
        uno_stream_create(&stream) != UNO_OK)
        return FAILED;
    int bad = reduce(comm, NULL);
    if (bad == GOOD)
        bad = reduce(comm, stream);
    if (uno_stream_destroy(stream) != UNO_OK || uno_comm_destroy(comm) != UNO_OK || uno_mem_free(memory) != UNO_OK)
        return FAILED;
    return bad != GOOD ? bad : streams_free();
}

/* What a child has to say comes as its exit status. */
static int status_of(pid_t pid)
{
    int how = -1;
    while (waitpid(pid, &how, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(how) ? WEXITSTATUS(how) : 100 + WTERMSIG(how);
}

static void job_without_streams(void)
{
    int id_pipe[2];
    pid_t pids[2];
    assert_int_equal(pipe(id_pipe), 0);
    for (int rank = 0; rank < 2; rank++) {
        pids[rank] = fork();
        if (pids[rank] != 0)
            continue;
        uno_id id;
        for (int fd = 0; fd <= 2; fd++)
            close(fd);
        bool ok = rank == 0 ? uno_get_id(&id) == UNO_OK && write(id_pipe[1], &id, sizeof id) == (ssize_t)sizeof id
                            : read(id_pipe[0], &id, sizeof id) == (ssize_t)sizeof id;
        _exit(ok ? rank_without_streams(&id, rank) : FAILED);
    }
    for (int rank = 0; rank < 2; rank++)
        assert_int_equal(status_of(pids[rank]), GOOD);
    close(id_pipe[0]);
    close(id_pipe[1]);
}

static void no_descriptor_becomes_a_standard_stream(void **state)
{
    (void)state;
    setenv("UNISONO_SHM_DISABLE", "0", 1);
    job_without_streams();
    setenv("UNISONO_SHM_DISABLE", "1", 1);
    job_without_streams();
    unsetenv("UNISONO_SHM_DISABLE");
}

static void a_standard_number_is_exchanged(void **state)
{
    (void)state;
    assert_int_equal(fd_above_standard(-1), -1);
    int high = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(high > 2);
    assert_int_equal(fd_above_standard(high), high);
    close(high);
    int kept = dup(0);
    close(0);
    int low = open("/dev/null", O_RDONLY), up = fd_above_standard(low);
    bool free_again = fcntl(0, F_GETFD) < 0;
    int flags = fcntl(up, F_GETFD);
    dup2(kept, 0);
    close(kept);
    close(up);
    assert_int_equal(low, 0);
    assert_true(up > 2 && free_again);
    assert_true(flags & FD_CLOEXEC);
}

static int with_no_file_size(void)
{
    struct rlimit none = {0};
    void *memory;
    if (setrlimit(RLIMIT_FSIZE, &none) != 0 || uno_mem_alloc(&memory, 100) != UNO_ERR_SYSTEM || !strstr(uno_last_error(NULL), "ulimit -f"))
        return FAILED;
    sigset_t pending, mask;
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    return sigismember(&pending, SIGXFSZ) || sigismember(&mask, SIGXFSZ) ? FAILED + 1 : GOOD;
}

static void a_limit_of_file_sizes_is_an_error(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0)
        _exit(with_no_file_size());
    assert_int_equal(status_of(pid), GOOD);
}

/* A signal that the program itself holds back is still there afterwards. */
static void a_held_signal_stays(void **state)
{
    (void)state;
    sigset_t xfsz, old, pending;
    struct fd_hold hold;
    sigemptyset(&xfsz);
    sigaddset(&xfsz, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &xfsz, &old);
    raise(SIGXFSZ);
    fd_hold_signal(&hold);
    fd_release_signal(&hold);
    sigpending(&pending);
    int got = 0;
    if (sigismember(&pending, SIGXFSZ))
        sigwait(&xfsz, &got);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    assert_int_equal(got, SIGXFSZ);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_descriptor_becomes_a_standard_stream),
        cmocka_unit_test(a_standard_number_is_exchanged),
        cmocka_unit_test(a_limit_of_file_sizes_is_an_error),
        cmocka_unit_test(a_held_signal_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
