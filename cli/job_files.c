/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_files.c - records that a job left behind (UNISONO_LEDGER_DIR): a file, or all of a folder. A file that is damaged is told and
 * left out, as long as another one can be read.
 */
#include "job.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "output.h"

#define MOST_BYTES (256ll << 20)
#define MOST_FILES 4096

struct reading {
    const char *command;
    uno_jobs *jobs;
    int good, bad;
};

static void complain(struct reading *r, const char *path, const char *why)
{
    r->bad++;
    out_error(r->command, "%s: %s", path, why);
}

static void read_open(struct reading *r, const char *path, int fd, off_t bytes)
{
    unsigned char *data = malloc((size_t)bytes + 1);
    size_t have = 0;
    ssize_t n = 1;
    while (data && have < (size_t)bytes && ((n = read(fd, data + have, (size_t)bytes - have)) > 0 || (n < 0 && errno == EINTR)))
        have += n > 0 ? (size_t)n : 0;
    if (!data)
        complain(r, path, "no memory");
    else if (n < 0)
        complain(r, path, strerror(errno));
    else if (have == 0)
        complain(r, path, "the file is empty; it holds no records");
    else if (uno_jobs_add(r->jobs, data, have) != UNO_OK)
        complain(r, path, uno_last_error(NULL));
    else
        r->good++;
    free(data);
}

static void read_one(struct reading *r, const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) != 0)
        complain(r, path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        complain(r, path, "it is no file of records");
    else if (st.st_size > MOST_BYTES)
        complain(r, path, "it is larger than any file of records (256 MB)");
    else
        read_open(r, path, fd, st.st_size);
    if (fd >= 0)
        close(fd);
}

static bool is_records(const char *name)
{
    size_t n = strlen(name);
    return name[0] != '.' && n > 6 && strcmp(name + n - 6, ".facts") == 0;
}

static int read_folder(struct reading *r, const char *path)
{
    DIR *d = opendir(path);
    int found = 0;
    if (!d)
        return -1;
    for (struct dirent *e; (e = readdir(d));) {
        char file[4200];
        if (!is_records(e->d_name) || ++found > MOST_FILES)
            continue;
        snprintf(file, sizeof file, "%s/%s", path, e->d_name);
        read_one(r, file);
    }
    closedir(d);
    if (found > MOST_FILES)
        out_error(r->command, "%d files of records in %s were left out: %d of a folder are read, in no order; put those of one job into a folder of their own", found - MOST_FILES, path, MOST_FILES);
    return found;
}

/* The user whose jobs left records in path, if that is not this one; -1 = nobody. */
static int64_t other_user(const char *path)
{
    DIR *d = opendir(path);
    int64_t found = -1, uid;
    for (struct dirent *e; d && found < 0 && (e = readdir(d));)
        if (strncmp(e->d_name, "unisono-", 8) == 0 && out_parse_int(e->d_name + 8, 0, UINT32_MAX, &uid) && uid != (int64_t)geteuid())
            found = uid;
    if (d)
        closedir(d);
    return found;
}

static int none_in(const char *command, const char *path, const char *below)
{
    long other = (long)other_user(path);
    if (other >= 0)
        return out_error(command, "%s holds no records (*.facts) of this user, only of others; that user and root can read those of user %ld: "
                         "sudo unisono %s %s/unisono-%ld", path, other, command, path, other);
    return out_error(command, "%s holds no records (*.facts), and neither does %s: no job has ended badly there with UNISONO_LEDGER_DIR set "
                     "to it", path, below);
}

int job_read_files(const char *command, const char *path, uno_jobs *jobs)
{
    struct reading r = {.command = command, .jobs = jobs};
    struct stat st;
    if (stat(path, &st) != 0)
        return out_error(command, "%s: %s; legal is a process id, a file of records, or a folder of them (UNISONO_LEDGER_DIR)", path, strerror(errno));
    if (!S_ISDIR(st.st_mode)) {
        read_one(&r, path);
        return r.good ? CLI_GOOD : CLI_ERROR;
    }
    char below[4200];
    snprintf(below, sizeof below, "%s/unisono-%u", path, (unsigned)geteuid());
    int found = read_folder(&r, path);
    if (found < 0)
        return out_error(command, "%s cannot be read: %s", path, strerror(errno));
    if (read_folder(&r, below) <= 0 && found == 0)
        return none_in(command, path, below);
    return r.good ? CLI_GOOD : out_error(command, "none of the %d files in %s can be read", r.bad, path);
}
