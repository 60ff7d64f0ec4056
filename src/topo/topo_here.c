/* SPDX-License-Identifier: Apache-2.0 */
/* topo_here.c - what this process may use of its machine, without hwloc: processors, and a share of the last-level cache. */
#include "topo.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* "0-3,8,10-11" names 7. */
static int named_in(const char *list)
{
    int named = 0;
    for (char *end; *list >= '0' && *list <= '9'; list = end + (*end == ',')) {
        long from = strtol(list, &end, 10), to = *end == '-' ? strtol(end + 1, &end, 10) : from;
        named += to >= from ? (int)(to - from) + 1 : 0;
    }
    return named;
}

/* The highest level that the kernel tells of, and how many processors share it. Not sysconf's third level, which some C libraries
 * give as the sum over a socket. */
static uint64_t last_level(int *sharing)
{
    uint64_t bytes = 0;
    int cpu = sched_getcpu();
    for (int i = 0; i < 8; i++) {
        char path[96], line[4096];
        unsigned long kb;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cache/index%d/size", MAX(cpu, 0), i);
        if (!first_line(path, line, sizeof line))
            break;
        if (sscanf(line, "%luK", &kb) != 1 || (uint64_t)kb << 10 < bytes)
            continue;
        bytes = (uint64_t)kb << 10;
        strcpy(strrchr(path, '/'), "/shared_cpu_list");
        *sharing = first_line(path, line, sizeof line) ? named_in(line) : 1;
    }
    return bytes;
}

uint64_t topo_cache_share(int ranks)
{
    int sharing = 1;
    uint64_t bytes = last_level(&sharing);
    if (bytes)
        return bytes / (uint64_t)MAX(1, MIN(ranks, sharing));
    long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return l2 > 0 ? (uint64_t)l2 : 1u << 20;
}
