/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot_file.c - joining through a file that all ranks can see. Rank 0 publishes its id: written aside, synced, renamed, mode 0600.
 * A file that an earlier job left behind is not believed: its server does not answer, so the others wait for rank 0's new one.
 */
#include "boot_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static uno_err path_of(const char *path, char *out, size_t out_bytes)
{
    unsigned g = boot_generation();
    int n = g > 1 ? snprintf(out, out_bytes, "%s.%u", path, g) : snprintf(out, out_bytes, "%s", path);
    return n > 0 && (size_t)n < out_bytes ? UNO_OK : err_set(UNO_ERR_CONFIG, "UNISONO_FILE: the path is too long");
}

static uno_err write_aside(const char *aside, const uno_id *id)
{
    int fd = fd_above_standard(open(aside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (fd < 0)
        return err_sys("cannot write %s, through which the ranks join", aside);
    struct fd_hold hold;
    fd_hold_signal(&hold);
    ssize_t n = write(fd, id->bytes, sizeof id->bytes);
    fd_release_signal(&hold);
    if (n != (ssize_t)sizeof id->bytes || fsync(fd) != 0) {
        if (n >= 0 && n != (ssize_t)sizeof id->bytes)
            errno = ENOSPC;
        uno_err err = err_sys("cannot write %s, through which the ranks join", aside);
        close(fd);
        unlink(aside);
        return err;
    }
    close(fd);
    return UNO_OK;
}

static uno_err publish(const struct config *cfg, const char *path, struct boot_place *place)
{
    char aside[4200];
    struct boot_id id;
    unlink(path); /* what is there belongs to an earlier job */
    TRY(boot_id_fresh(cfg, &id));
    TRY(boot_id_local_addresses(cfg, &id));
    TRY(boot_serve(cfg, &id, path, -1));
    boot_id_write(&id, &place->id);
    place->serve = true;
    snprintf(aside, sizeof aside, "%s.%d-%llx", path, (int)getpid(), (unsigned long long)id.job);
    TRY(write_aside(aside, &place->id));
    if (rename(aside, path) == 0)
        return UNO_OK;
    uno_err err = err_sys("cannot rename %s to %s, through which the ranks join", aside, path);
    unlink(aside);
    return err;
}

/* UNO_ERR_IN_PROGRESS: not there, or not whole yet. */
static uno_err read_file(const char *path, uno_id *id)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno == ENOENT || errno == ESTALE ? UNO_ERR_IN_PROGRESS
                                                  : err_sys("cannot read %s, through which the ranks join", path);
    uno_err err = UNO_ERR_IN_PROGRESS;
    if (fstat(fd, &st) == 0 && (st.st_uid != geteuid() || (st.st_mode & 077) || !S_ISREG(st.st_mode)))
        err = err_set(UNO_ERR_AUTH, "%s, through which the ranks join, belongs to somebody else or can be read by others; rank 0 makes "
                      "it with mode 0600: remove it", path);
    else if (read(fd, id->bytes, sizeof id->bytes) == (ssize_t)sizeof id->bytes)
        err = UNO_OK;
    close(fd);
    return err;
}

static uno_err await(const struct config *cfg, const char *path, struct boot_place *place)
{
    uint64_t deadline = clock_after(cfg->join_timeout);
    long pause_ns = 1000000;
    bool seen = false;
    for (;;) {
        struct boot_id id;
        uno_err err = read_file(path, &place->id);
        if (err == UNO_OK && boot_id_read(&place->id, &id) == UNO_OK) {
            seen = true;
            /* Long enough for another host, short enough to notice that rank 0 has replaced a stale file meanwhile. */
            if (boot_probe(&id, MIN(deadline, clock_after(0.5))) == UNO_OK)
                return UNO_OK;
        } else if (err != UNO_OK && err != UNO_ERR_IN_PROGRESS) {
            return err;
        }
        if (clock_ns() + (uint64_t)pause_ns >= deadline)
            return err_set(UNO_ERR_TIMEOUT, seen ? "%s is there, but the rank 0 it names does not answer within %g s; the file is from an "
                           "earlier job, or rank 0 of this one has ended" : "rank 0 has not written %s within %g s; it is missing, or the "
                           "path is not shared", path, cfg->join_timeout);
        nanosleep(&(struct timespec){.tv_nsec = pause_ns}, NULL);
        pause_ns = MIN(pause_ns * 2, 50000000);
    }
}

uno_err boot_file_find(const struct config *cfg, const char *path, struct boot_place *place)
{
    char own[4160];
    TRY(path_of(path, own, sizeof own));
    return place->rank == 0 ? publish(cfg, own, place) : await(cfg, own, place);
}
