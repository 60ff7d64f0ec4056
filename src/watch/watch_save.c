/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch_save.c - files of records (watch_save.h). Everything is done relative to the open folder, so that who may write beside it
 * cannot lead us elsewhere.
 */
#include "watch/watch_save.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TEMP_SECONDS 3600 /* what somebody left half written is removed after that */

/* The folder, open; made when it is not there. */
static uno_err open_folder(const char *dir, char *path, size_t path_bytes, int *folder)
{
    struct stat st;
    snprintf(path, path_bytes, "%.900s/unisono-%u", dir, (unsigned)getuid());
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return err_sys("ledgers cannot be saved: %s cannot be made (UNISONO_LEDGER_DIR)", path);
    *folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*folder < 0)
        return err_sys("ledgers cannot be saved: %s cannot be opened as a folder (UNISONO_LEDGER_DIR)", path);
    if (fstat(*folder, &st) != 0 || st.st_uid != getuid() || (st.st_mode & 077)) {
        close(*folder);
        return err_set(UNO_ERR_USAGE, "ledgers cannot be saved: %s is not a folder of this user alone (mode 0700); remove it, or "
                       "name another UNISONO_LEDGER_DIR", path);
    }
    return UNO_OK;
}

static bool write_all(int fd, const char *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = write(fd, data + done, bytes - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            errno = n == 0 ? ENOSPC : errno;
            return false;
        }
        done += (size_t)n;
    }
    return true;
}

static uno_err write_file(int folder, const char *path, const char *name, const void *data, size_t bytes)
{
    char temp[300];
    snprintf(temp, sizeof temp, ".%.200s.%d", name, (int)getpid());
    int fd = fd_above_standard(openat(folder, temp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (fd < 0)
        return err_sys("ledgers cannot be saved in %s", path);
    bool ok = !fault_hit("save") ? write_all(fd, data, bytes) : (errno = ENOSPC, false);
    int why = errno;
    if (close(fd) != 0 && ok) { /* some file systems tell of a full disk only here */
        ok = false;
        why = errno;
    }
    if (ok && renameat(folder, temp, folder, name) == 0)
        return UNO_OK;
    why = ok ? errno : why;
    unlinkat(folder, temp, 0);
    errno = why;
    return err_sys("ledgers cannot be saved: %zu bytes to %s/%s; the job goes on without", bytes, path, name);
}

struct saved { char name[256]; struct timespec when; uint64_t bytes; };

static int newest_first(const void *a, const void *b)
{
    const struct saved *x = a, *y = b;
    if (x->when.tv_sec != y->when.tv_sec)
        return x->when.tv_sec < y->when.tv_sec ? 1 : -1;
    return (x->when.tv_nsec < y->when.tv_nsec) - (x->when.tv_nsec > y->when.tv_nsec);
}

/* Only files that we name so: "*.facts", and our old temporary ones. */
static bool is_ours(const char *name)
{
    const char *end = strrchr(name, '.');
    return (end && strcmp(end, ".facts") == 0) || (name[0] == '.' && strstr(name, ".facts.") != NULL);
}

static void remove_oldest(int folder, const char *keep)
{
    struct saved *all = NULL;
    size_t n = 0, cap = 0;
    uint64_t sum = 0;
    time_t now = time(NULL);
    int again = dup(folder);
    DIR *d = again >= 0 ? fdopendir(again) : NULL;
    if (!d) {
        if (again >= 0)
            close(again);
        return;
    }
    rewinddir(d);
    for (struct dirent *e; (e = readdir(d));) {
        struct stat st;
        if (!is_ours(e->d_name) || fstatat(folder, e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
            continue;
        if (e->d_name[0] == '.') {
            if (now - st.st_mtime > TEMP_SECONDS)
                unlinkat(folder, e->d_name, 0);
            continue;
        }
        if (strcmp(e->d_name, keep) == 0) {
            sum += (uint64_t)st.st_size;
            continue;
        }
        if (mem_grow(&all, &cap, n + 1, sizeof *all) != UNO_OK)
            break;
        all[n] = (struct saved){.when = st.st_mtim, .bytes = (uint64_t)st.st_size};
        snprintf(all[n++].name, sizeof all[0].name, "%s", e->d_name);
    }
    closedir(d);
    if (n)
        qsort(all, n, sizeof *all, newest_first);
    for (size_t i = 0; i < n; i++) {
        sum += all[i].bytes;
        if (i + 2 > SAVE_MOST_FILES || sum > SAVE_MOST_BYTES) /* the one just written counts */
            unlinkat(folder, all[i].name, 0);
    }
    free(all);
}

uno_err save_file(const char *dir, const char *name, const void *data, size_t bytes, char *path, size_t path_bytes)
{
    char folder_path[1024];
    int folder = -1;
    TRY(open_folder(dir, folder_path, sizeof folder_path, &folder));
    uno_err err = write_file(folder, folder_path, name, data, bytes);
    if (err == UNO_OK)
        remove_oldest(folder, name);
    close(folder);
    snprintf(path, path_bytes, "%s/%s", folder_path, name);
    return err;
}
