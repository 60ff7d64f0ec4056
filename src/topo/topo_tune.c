/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topo_tune.c - the calibration file: costs that `unisono tune` measured on this machine, as lines "name value" between a first line
 * that says the version and a last one with a checksum. Read at join by rank 0 alone, whose costs are everyone's. A file that is not
 * this machine's, or not whole, or not the user's, is not followed, and why is said in a sentence.
 */
#include "topo.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unisono.h"

#define FIRST_LINE "unisono costs 1\n"
#define MOST_BYTES 8192

const struct topo_cost_row topo_cost_rows[] = {
#define COST(id, built_in, least, most, help) {#id, help, built_in, least, most},
#include "costs.def"
#undef COST
};
_Static_assert(ARRAY_LEN(topo_cost_rows) == TOPO_COST_ROWS, "a row for each cost");

/* ---- which machine --------------------------------------------------------------------------------------------- */

/* Of /proc/cpuinfo the first value of `field`. */
static void cpu_model(char *model, size_t bytes)
{
    FILE *f = fopen("/proc/cpuinfo", "re");
    char line[512];
    snprintf(model, bytes, "unknown processor");
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (!colon || (strncmp(line, "model name", 10) != 0 && strncmp(line, "CPU part", 8) != 0))
            continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(model, bytes, "%.100s", colon + 1 + (colon[1] == ' '));
        break;
    }
    if (f)
        fclose(f);
}

static int numa_nodes(void)
{
    int n = 0;
    char path[64];
    while (n < 1024 && (snprintf(path, sizeof path, "/sys/devices/system/node/node%d", n), access(path, F_OK) == 0))
        n++;
    return MAX(n, 1);
}

void topo_tune_machine(struct text *machine)
{
    char model[128];
    int nodes = numa_nodes();
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    cpu_model(model, sizeof model);
    text_add(machine, "%s, %ld processor%s, %d NUMA node%s, unisono %d.%d.%d", model, processors, processors == 1 ? "" : "s", nodes,
             nodes == 1 ? "" : "s", UNO_VERSION_MAJOR, UNO_VERSION_MINOR, UNO_VERSION_PATCH);
}

/* Home directories are shared by machines: each kind has a file of its own. */
uno_err topo_tune_path(const char *setting, char *path, size_t path_bytes)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    struct text machine = {0};
    if (setting && *setting) {
        if ((size_t)snprintf(path, path_bytes, "%s", setting) >= path_bytes)
            return err_set(UNO_ERR_CONFIG, "UNISONO_COSTS=%.80s... is too long for a path", setting);
        return UNO_OK;
    }
    bool xdg = cache && cache[0] == '/';
    if (!xdg && (!home || home[0] != '/'))
        return err_set(UNO_ERR_CONFIG, "there is no place for costs: neither UNISONO_COSTS nor XDG_CACHE_HOME nor HOME is set");
    topo_tune_machine(&machine);
    id128 h = hash128(machine.s ? machine.s : "", machine.len, 11);
    int n = snprintf(path, path_bytes, "%s%s/unisono/costs-%016llx", xdg ? cache : home, xdg ? "" : "/.cache", (unsigned long long)(h.lo ^ h.hi));
    bool failed = machine.failed;
    text_free(&machine);
    if (failed)
        return UNO_ERR_MEMORY;
    return n > 0 && (size_t)n < path_bytes ? UNO_OK : err_set(UNO_ERR_CONFIG, "the path of the cache directory is too long");
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

static uint64_t checksum(const char *s, size_t bytes)
{
    id128 h = hash128(s, bytes, 12);
    return h.lo ^ h.hi;
}

static void write_text(const struct topo_costs *costs, struct text *out)
{
    struct topo_costs c = *costs;
    text_add(out, FIRST_LINE "machine ");
    topo_tune_machine(out);
    text_add(out, "\n");
    for (size_t i = 0; i < TOPO_COST_ROWS; i++)
        text_add(out, "%s %llu\n", topo_cost_rows[i].name, (unsigned long long)*topo_cost_of(&c, i));
    text_add(out, "check %016llx\n", (unsigned long long)checksum(out->s ? out->s : "", out->len));
}

/* The directories of a path, only for the user. */
static void make_directories(const char *path)
{
    char dir[4096];
    snprintf(dir, sizeof dir, "%s", path);
    for (char *s = strchr(dir + 1, '/'); s; s = strchr(s + 1, '/')) {
        *s = 0;
        (void)mkdir(dir, 0700); /* what fails shows when the file is opened */
        *s = '/';
    }
}

uno_err topo_tune_save(const char *path, const struct topo_costs *costs)
{
    struct text t = {0}, fresh = {0};
    write_text(costs, &t);
    text_add(&fresh, "%s.%d", path, (int)getpid());
    if (t.failed || fresh.failed) {
        text_free(&t);
        text_free(&fresh);
        return err_set(UNO_ERR_MEMORY, "no memory for the costs");
    }
    make_directories(path);
    int fd = open(fresh.s, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool ok = fd >= 0 && write(fd, t.s, t.len) == (ssize_t)t.len && fsync(fd) == 0;
    int error = errno;
    if (fd >= 0 && close(fd) != 0 && ok) {
        ok = false;
        error = errno;
    }
    if (ok && rename(fresh.s, path) != 0) {
        ok = false;
        error = errno;
    }
    if (!ok && fd >= 0)
        unlink(fresh.s);
    text_free(&t);
    text_free(&fresh);
    return ok ? UNO_OK : err_set(UNO_ERR_SYSTEM, "the costs cannot be written to %.200s: %s", path, strerror(error));
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

bool topo_costs_sane(const struct topo_costs *costs)
{
    struct topo_costs c = *costs;
    for (size_t i = 0; i < TOPO_COST_ROWS; i++)
        if (*topo_cost_of(&c, i) < topo_cost_rows[i].least || *topo_cost_of(&c, i) > topo_cost_rows[i].most)
            return false;
    return true;
}

/* The whole file, if it is one that only the user or root could have written. false: *why, or nothing when there is none. */
static bool read_file(const char *path, char *buf, size_t *bytes, struct text *why)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        if (errno != ENOENT && errno != ENOTDIR)
            text_add(why, "it cannot be read (%s)", strerror(errno));
        return false;
    }
    ssize_t n = -1;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        text_add(why, "it is not a file");
    else if ((st.st_uid != geteuid() && st.st_uid != 0) || (st.st_mode & (S_IWGRP | S_IWOTH)))
        text_add(why, "others than its user can write it");
    else if (st.st_size >= MOST_BYTES || (n = read(fd, buf, MOST_BYTES - 1)) < 0)
        text_add(why, "it is no calibration (%lld bytes)", (long long)st.st_size);
    close(fd);
    if (n < 0)
        return false;
    buf[n] = 0;
    *bytes = (size_t)n;
    return true;
}

/* Cut off the last line if it is the checksum of all before. */
static bool checked(char *buf, size_t bytes)
{
    const size_t last = strlen("check 0123456789abcdef\n");
    char line[32];
    if (bytes < last || strlen(buf) != bytes)
        return false;
    snprintf(line, sizeof line, "check %016llx\n", (unsigned long long)checksum(buf, bytes - last));
    if (strcmp(buf + bytes - last, line) != 0)
        return false;
    buf[bytes - last] = 0;
    return true;
}

static bool set_cost(struct topo_costs *c, const char *name, size_t length, uint64_t value, uint64_t *seen)
{
    for (size_t i = 0; i < TOPO_COST_ROWS; i++)
        if (strlen(topo_cost_rows[i].name) == length && memcmp(topo_cost_rows[i].name, name, length) == 0) {
            *topo_cost_of(c, i) = value;
            *seen |= 1ull << i;
            return true;
        }
    return false;
}

static bool parse_costs(const char *s, struct topo_costs *c)
{
    uint64_t seen = 0;
    while (*s) {
        size_t name = strcspn(s, " \n"), line = strcspn(s, "\n");
        char *end;
        unsigned long long value = s[name] == ' ' && s[name + 1] >= '0' && s[name + 1] <= '9' ? strtoull(s + name + 1, &end, 10) : (end = NULL, 0);
        if (end != s + line || s[line] != '\n' || !set_cost(c, s, name, value, &seen))
            return false;
        s += line + 1;
    }
    return seen == (1ull << TOPO_COST_ROWS) - 1 && topo_costs_sane(c);
}

/* Why a text is not followed; NULL: it is. */
static const char *follow(char *buf, size_t bytes, const char *machine, struct topo_costs *c)
{
    static const char first[] = FIRST_LINE;
    if (bytes < sizeof first - 1 || memcmp(buf, first, sizeof first - 1) != 0)
        return "it is no calibration of this version";
    if (!checked(buf, bytes))
        return "it is cut off or was changed";
    char *s = buf + sizeof first - 1, *end = strchr(s, '\n');
    if (strncmp(s, "machine ", 8) != 0 || !end)
        return "it does not say of which machine it is";
    *end = 0;
    if (strcmp(s + 8, machine) != 0)
        return "it is of another machine or version of unisono";
    return parse_costs(end + 1, c) ? NULL : "it has costs that cannot be";
}

struct topo_costs topo_tune_load(const char *setting, bool *found, struct text *why)
{
    struct topo_costs costs = topo_costs_default, read = costs;
    struct text machine = {0};
    char path[4096], buf[MOST_BYTES];
    size_t bytes = 0;
    *found = false;
    if ((setting && strcmp(setting, "none") == 0) || topo_tune_path(setting, path, sizeof path) != UNO_OK)
        return costs;
    struct text reason = {0};
    if (read_file(path, buf, &bytes, &reason)) {
        topo_tune_machine(&machine);
        const char *refused = machine.failed ? "there is no memory to read it" : follow(buf, bytes, machine.s, &read);
        *found = refused == NULL;
        if (refused)
            text_add(&reason, "%s", refused);
    } else if (!reason.s && setting && *setting) {
        text_add(&reason, "there is no such file");
    }
    if (reason.s)
        text_add(why, "the costs of %.300s are not followed: %s; built-in ones count, and `unisono tune` measures again", path, reason.s);
    text_free(&reason);
    text_free(&machine);
    return *found ? read : costs;
}
