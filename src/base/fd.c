/* SPDX-License-Identifier: Apache-2.0 */
/* fd.c - descriptors that a library holds in a process that is not its own: out of the way of stdin, stdout and stderr, and no signal
 * where the program's limit of file sizes forbids one. */
#include "base.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

int fd_above_standard(int fd)
{
    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    int up = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), why = errno;
    close(fd);
    errno = why;
    return up;
}

void fd_hold_signal(struct fd_hold *h)
{
    sigset_t pending;
    sigemptyset(&h->xfsz);
    sigaddset(&h->xfsz, SIGXFSZ);
    sigpending(&pending);
    h->was_there = sigismember(&pending, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &h->xfsz, &h->old);
}

void fd_release_signal(const struct fd_hold *h)
{
    const struct timespec now = {0};
    int why = errno;
    if (!h->was_there)
        sigtimedwait(&h->xfsz, NULL, &now);
    pthread_sigmask(SIG_SETMASK, &h->old, NULL);
    errno = why;
}

uno_err fd_resize(int fd, size_t bytes)
{
    struct rlimit most;
    struct fd_hold hold;
    fd_hold_signal(&hold);
    int rc = ftruncate(fd, (off_t)bytes);
    fd_release_signal(&hold);
    if (rc == 0)
        return UNO_OK;
    if (errno == EFBIG && getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur < bytes)
        return err_set(UNO_ERR_SYSTEM, "shared memory counts as a file, and files may have %llu bytes here: raise `ulimit -f`",
                       (unsigned long long)most.rlim_cur);
    return err_sys("ftruncate");
}
