/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topo_costs.c - what moving and reducing bytes costs where nothing was measured, and how many processors this process may
 * use. Called at join and by the tools; opens only a few files under /proc and /sys.
 */
#include "topo.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* Round numbers of a current server core and a 10 Gbit/s link; order of magnitude is what matters for choosing. */
const struct topo_costs topo_costs_default = {
#define COST(id, built_in, least, most, help) .id = (built_in),
#include "costs.def"
#undef COST
    .processors = 64, /* enough for one a rank */
};

enum { CLASSES = 4 };
static const uint64_t class_most[CLASSES] = {128u << 10, 2u << 20, 16u << 20, UINT64_MAX};

/* Of `rates`, one a class, that of `class`; 0: as the class before. */
static uint64_t rate_at(const uint64_t *rates, int class)
{
    while (class > 0 && rates[class] == 0)
        class--;
    return rates[class];
}

struct topo_costs topo_costs_at(const struct topo_costs *costs, uint64_t bytes, bool lent)
{
    struct topo_costs at = *costs;
    const struct topo_costs *c = costs;
    const uint64_t shm[CLASSES] = {c->shm_ps_per_kb, c->shm_2m_ps_per_kb, c->shm_16m_ps_per_kb, c->shm_large_ps_per_kb};
    const uint64_t sum[CLASSES] = {c->reduce_ps_per_kb, c->reduce_2m_ps_per_kb, c->reduce_16m_ps_per_kb, c->reduce_large_ps_per_kb};
    const uint64_t read[CLASSES] = {c->read_ps_per_kb, c->read_2m_ps_per_kb, c->read_16m_ps_per_kb, c->read_large_ps_per_kb};
    const uint64_t map[CLASSES] = {c->map_ps_per_kb, c->map_2m_ps_per_kb, c->map_16m_ps_per_kb, c->map_large_ps_per_kb};
    int class = 0;
    while (bytes > class_most[class])
        class++;
    uint64_t direct = rate_at(lent ? map : read, class); /* instead of into a slot and out of it */
    at.shm_ps_per_kb = rate_at(shm, class);
    at.reduce_ps_per_kb = rate_at(sum, class);
    if (direct && direct < at.shm_ps_per_kb && class > 0)
        at.shm_ps_per_kb = direct;
    return at;
}

/* Processors in the affinity mask, whatever the kernel's mask size; 1 when it cannot be read. */
static int affinity_processors(void)
{
    for (int bits = 1024; bits <= 1 << 20; bits *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)bits);
        if (!set)
            return 1;
        size_t bytes = CPU_ALLOC_SIZE((size_t)bits);
        int rc = sched_getaffinity(0, bytes, set);
        int count = rc == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (rc == 0)
            return MAX(1, count);
        if (errno != EINVAL)
            return 1;
    }
    return 1;
}

/* The first line of a small file; false when it cannot be read. */
static bool first_line(const char *path, char *line, size_t bytes)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    bool got = fgets(line, (int)bytes, f) != NULL;
    fclose(f);
    return got;
}

/* Quota rounded up to whole processors; 0 when there is none. */
static long whole(long long quota, long long period)
{
    return quota > 0 && period > 0 ? (long)((quota + period - 1) / period) : 0;
}

/* Quota set at one cgroup directory: version 2's cpu.max, or version 1's pair. */
static long directory_quota(const char *dir)
{
    char path[4400], line[128];
    long long quota = 0, period = 0;
    snprintf(path, sizeof path, "%s/cpu.max", dir);
    if (first_line(path, line, sizeof line))
        return sscanf(line, "%lld %lld", &quota, &period) == 2 ? whole(quota, period) : 0; /* "max 100000": none */
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", dir);
    if (!first_line(path, line, sizeof line))
        return 0;
    quota = atoll(line);
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", dir);
    return first_line(path, line, sizeof line) ? whole(quota, atoll(line)) : 0;
}

/* The least quota from `group` up to the mount `root`. */
static long hierarchy_quota(const char *root, const char *group)
{
    char dir[4200];
    long least = 0;
    snprintf(dir, sizeof dir, "%s%s", root, group);
    for (;;) {
        long quota = directory_quota(dir);
        if (quota > 0 && (least == 0 || quota < least))
            least = quota;
        char *slash = strrchr(dir, '/');
        if (!slash || (size_t)(slash - dir) < strlen(root))
            return least;
        *slash = 0;
    }
}

/* A line is "0::/path" (version 2) or "4:cpu,cpuacct:/path" (version 1). */
static long cgroup_quota(void)
{
    FILE *f = fopen("/proc/self/cgroup", "re");
    char line[4096];
    long least = 0;
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = 0;
        names++;
        const char *root = NULL;
        if (*names == 0)
            root = "/sys/fs/cgroup";
        else if (strcmp(names, "cpu") == 0 || strncmp(names, "cpu,", 4) == 0 || strstr(names, ",cpu,") ||
                 (strlen(names) > 4 && strcmp(names + strlen(names) - 4, ",cpu") == 0))
            root = "/sys/fs/cgroup/cpu";
        long quota = root ? hierarchy_quota(root, strcmp(group, "/") == 0 ? "" : group) : 0;
        if (quota > 0 && (least == 0 || quota < least))
            least = quota;
    }
    if (f)
        fclose(f);
    return least;
}

int topo_processors(void)
{
    int mask = affinity_processors();
    long quota = cgroup_quota();
    return quota > 0 && quota < mask ? (int)quota : mask;
}
