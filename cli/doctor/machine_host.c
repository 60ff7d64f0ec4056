/* SPDX-License-Identifier: Apache-2.0 */
/* machine_host.c - what of this machine is for a process: processors and NUMA nodes, cgroup, limits, shared memory; and its kernel. */
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/utsname.h>

#include "machine.h"

/* ---- processors and NUMA nodes ------------------------------------------------------------------------------------------------------------ */

/* The next range of a list such as "0-3,8", and *list behind it; false: there is none. */
static bool next_range(const char **list, long *from, long *to)
{
    char *end;
    *from = *to = strtol(*list, &end, 10);
    if (end == *list)
        return false;
    if (*end == '-')
        *to = strtol(end + 1, &end, 10);
    *list = *end == ',' ? end + 1 : "";
    return true;
}

/* "0-3,8" -> 5 */
static int count_list(const char *list)
{
    int n = 0;
    for (long from, to; next_range(&list, &from, &to);)
        n += to >= from && to - from < 1 << 20 ? (int)(to - from) + 1 : 0;
    return n;
}

static bool in_list(const char *list, long wanted)
{
    for (long from, to; next_range(&list, &from, &to);)
        if (wanted >= from && wanted <= to)
            return true;
    return false;
}

static bool lists_meet(const char *a, const char *b)
{
    for (long from, to; next_range(&a, &from, &to);)
        for (long k = from; k <= to && k - from < 1 << 16; k++)
            if (in_list(b, k))
                return true;
    return false;
}

static void processors(struct machine *m)
{
    char mine[2048], online[2048];
    if (!kernel_field(m->root, "/proc/self/status", "Cpus_allowed_list", mine, sizeof mine) || !kernel_line(m->root, online, sizeof online, "/sys/devices/system/cpu/online"))
        return;
    int have = count_list(mine), all = count_list(online);
    struct check *c = machine_check(m, have < 2 && all > 1 ? CHECK_BAD : CHECK_GOOD, "processors", "%d of %d may be used by this process", have < all ? have : all, all);
    if (c->state != CHECK_GOOD)
        machine_advise(c, "a rank needs two and more: its library has threads of its own; `mpirun --bind-to none ...`, `srun --cpu-bind=none ...`");
}

/* Which nodes have processors that this process may use, and which its memory may come from. */
static void numa(struct machine *m)
{
    char nodes[64][KERNEL_NAME], mine[2048], mems[256], cpus[2048], said[160] = "", used[64] = "";
    int n = kernel_names(m->root, nodes, 64, "/sys/devices/system/node"), count = 0, of_mine = 0, memory_of_mine = 0;
    if (!kernel_field(m->root, "/proc/self/status", "Cpus_allowed_list", mine, sizeof mine))
        return;
    kernel_field(m->root, "/proc/self/status", "Mems_allowed_list", mems, sizeof mems);
    for (int i = 0; i < n; i++) {
        long id = strncmp(nodes[i], "node", 4) == 0 && nodes[i][4] >= '0' && nodes[i][4] <= '9' ? atol(nodes[i] + 4) : -1;
        if (id < 0 || !kernel_line(m->root, cpus, sizeof cpus, "/sys/devices/system/node/%s/cpulist", nodes[i]))
            continue;
        size_t at = strlen(said);
        count++;
        snprintf(said + at, sizeof said - at, "%snode %ld: %.40s", *said ? "; " : "", id, cpus);
        if (!lists_meet(mine, cpus))
            continue;
        of_mine++;
        memory_of_mine += !*mems || in_list(mems, id);
        at = strlen(used);
        snprintf(used + at, sizeof used - at, "%s%ld", *used ? "," : "", id);
    }
    if (count == 0)
        return;
    bool far = of_mine > 0 && memory_of_mine == 0;
    struct check *c = machine_check(m, far ? CHECK_BAD : CHECK_GOOD, "NUMA", "%d node%s%s%s%s; this process: processors of %s, memory of %s", count, count == 1 ? "" : "s", count > 1 ? " (" : "", count > 1 ? said : "",
                                    count > 1 ? ")" : "", *used ? used : "?", *mems ? mems : "all");
    if (far)
        machine_advise(c, "all memory is at another socket than the processors: cpuset.mems of the cgroup, or `numactl --cpunodebind=N --membind=N PROGRAM`");
}

static void numa_balancing(struct machine *m)
{
    long on = kernel_number(m->root, -1, "/proc/sys/kernel/numa_balancing");
    if (on < 0)
        return;
    struct check *c = machine_check(m, on ? CHECK_NOTE : CHECK_GOOD, "NUMA balancing", "%s", on ? "on" : "off");
    if (on)
        machine_advise(c, "`sudo sysctl -w kernel.numa_balancing=0`: it moves pages that cards and GPUs use");
}

/* ---- cgroup ----------------------------------------------------------------------------------------------------------------------------- */

/* What acts is the smallest of a group and those above it. */
struct quota {
    double cpus, memory; /* 0 = no limit */
    long pids, throttled, killed;
};

static void smaller(double *kept, double v)
{
    if (v > 0 && (*kept == 0 || v < *kept))
        *kept = v;
}

static void group_at(struct machine *m, const char *path, struct quota *q)
{
    char line[128];
    long long limit, period;
    double pids = (double)q->pids;
    if (kernel_line(m->root, line, sizeof line, "/sys/fs/cgroup%s/cpu.max", path) && sscanf(line, "%lld %lld", &limit, &period) == 2 && period > 0)
        smaller(&q->cpus, (double)limit / (double)period);
    if (kernel_line(m->root, line, sizeof line, "/sys/fs/cgroup%s/memory.max", path) && strcmp(line, "max") != 0)
        smaller(&q->memory, strtod(line, NULL));
    smaller(&pids, (double)kernel_number(m->root, 0, "/sys/fs/cgroup%s/pids.max", path));
    q->pids = (long)pids;
    char file[600];
    snprintf(file, sizeof file, "/sys/fs/cgroup%s/cpu.stat", path);
    if (kernel_field(m->root, file, "nr_throttled", line, sizeof line) && atol(line) > q->throttled)
        q->throttled = atol(line);
    snprintf(file, sizeof file, "/sys/fs/cgroup%s/memory.events", path);
    if (kernel_field(m->root, file, "oom_kill", line, sizeof line) && atol(line) > q->killed)
        q->killed = atol(line);
}

static void first_version(struct machine *m, struct quota *q)
{
    long quota = kernel_number(m->root, -1, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), period = kernel_number(m->root, 0, "/sys/fs/cgroup/cpu/cpu.cfs_period_us");
    double memory = (double)kernel_number(m->root, 0, "/sys/fs/cgroup/memory/memory.limit_in_bytes");
    if (quota > 0 && period > 0)
        smaller(&q->cpus, (double)quota / (double)period);
    if (memory < 0x1p62) /* what the kernel shows for none is near 2^63 */
        smaller(&q->memory, memory);
    q->pids = q->pids ? q->pids : kernel_number(m->root, 0, "/sys/fs/cgroup/pids/pids.max");
}

static struct quota quota_of(struct machine *m)
{
    struct quota q = {0};
    char path[512];
    if (!kernel_field(m->root, "/proc/self/cgroup", "0:", path, sizeof path) || path[0] != '/' || strlen(path) == 1)
        path[0] = 0;
    for (;;) {
        group_at(m, path, &q);
        char *slash = strrchr(path, '/');
        if (!slash)
            break;
        *slash = 0;
    }
    first_version(m, &q);
    return q;
}

static void cgroup(struct machine *m)
{
    struct quota q = quota_of(m);
    struct check *c;
    if (q.cpus > 0) {
        c = machine_check(m, q.cpus < 2 || q.throttled ? CHECK_NOTE : CHECK_GOOD, "cgroup cpu quota", "%.1f processors%s", q.cpus, q.throttled ? "; it was reached before" : "");
        if (c->state != CHECK_GOOD)
            machine_advise(c, "threads that wait in a loop use up a quota, and all ranks then stand still for the rest of the period: no limit (Kubernetes: no limits.cpu), or more than threads");
    }
    if (q.memory > 0) {
        c = machine_check(m, q.killed ? CHECK_BAD : CHECK_GOOD, "cgroup memory limit", "%.1f GiB", q.memory / 0x1p30);
        if (q.killed)
            machine_advise(c, "%ld process%s of this group were killed for it: a higher limit, or fewer loader workers (pinned memory and /dev/shm count, too)", q.killed, q.killed == 1 ? "" : "es");
    }
    if (q.pids > 0) {
        c = machine_check(m, q.pids < 1024 ? CHECK_NOTE : CHECK_GOOD, "cgroup process limit", "%ld", q.pids);
        if (c->state != CHECK_GOOD)
            machine_advise(c, "threads count, and each rank has tens of them: `docker run --pids-limit=-1 ...`");
    }
}

/* ---- limits and shared memory --------------------------------------------------------------------------------------------------------------- */

/* -1 = unlimited, -2 = not known. Second column of /proc/self/limits: what acts. */
static long long limit_of(struct machine *m, const char *name)
{
    char line[256];
    if (!kernel_field(m->root, "/proc/self/limits", name, line, sizeof line))
        return -2;
    return strncmp(line, "unlimited", 9) == 0 ? -1 : strtoll(line, NULL, 10);
}

static void memlock(struct machine *m)
{
    long long bytes = limit_of(m, "Max locked memory");
    char value[64] = "unlimited";
    if (bytes == -2)
        return;
    if (bytes >= 0)
        snprintf(value, sizeof value, "%lld KiB", bytes >> 10);
    bool rdma = m->cards > 0;
    struct check *c = machine_check(m, bytes >= 0 && rdma && bytes < 1 << 30 ? CHECK_BAD : CHECK_GOOD, "locked memory", "%s%s", value, bytes < 0 || rdma ? "" : " (matters for RDMA, and there is no card)");
    if (c->state != CHECK_GOOD)
        machine_advise(c, "`ulimit -l unlimited` where ranks are started (limits.conf, LimitMEMLOCK=infinity, `docker run --ulimit memlock=-1 ...`)");
    machine_tell(m, "max locked memory (kbytes, -l) %s\n", value);
}

static void limits(struct machine *m)
{
    memlock(m);
    long long files = limit_of(m, "Max open files"), processes = limit_of(m, "Max processes");
    if (files != -2) {
        struct check *c = machine_check(m, files >= 0 && files < 4096 ? CHECK_NOTE : CHECK_GOOD, "open files", files < 0 ? "unlimited" : "%lld", files);
        if (c->state != CHECK_GOOD)
            machine_advise(c, "large jobs need a file for each connection: `ulimit -n 65536`");
        machine_tell(m, "open files (-n) %lld\n", files);
    }
    if (processes != -2) {
        struct check *c = machine_check(m, processes >= 0 && processes < 1024 ? CHECK_NOTE : CHECK_GOOD, "processes and threads", processes < 0 ? "unlimited" : "%lld", processes);
        if (c->state != CHECK_GOOD)
            machine_advise(c, "each rank has tens of threads: `ulimit -u 16384`");
    }
}

static void shared_memory(struct machine *m)
{
    struct statvfs fs;
    char names[64][KERNEL_NAME];
    if (!machine_is_here(m))
        return;
    if (statvfs("/dev/shm", &fs) != 0) {
        machine_check(m, CHECK_NOTE, "/dev/shm", "not there");
        return;
    }
    int stale = 0, n = kernel_names("", names, 64, "/dev/shm");
    for (int i = 0; i < n; i++)
        stale += strncmp(names[i], "nccl-", 5) == 0;
    double mib = (double)fs.f_blocks * (double)fs.f_frsize / (1 << 20), left = (double)fs.f_bavail * (double)fs.f_frsize / (1 << 20);
    struct check *c = machine_check(m, left < 256 ? CHECK_BAD : stale ? CHECK_NOTE : CHECK_GOOD, "/dev/shm", "%.0f MiB, %.0f free%s", mib, left, stale ? "; nccl-* files are there" : "");
    if (left < 256)
        machine_advise(c, "NCCL and data loaders need more (Unisono does not): `docker run --shm-size=8g ...` or `docker run --ipc=host ...`; remove stale nccl-* files");
    else if (stale)
        machine_advise(c, "%d nccl-* file%s: of a job that runs, or left by one that was killed: `fuser -v /dev/shm/nccl-*`", stale, stale == 1 ? "" : "s");
}

/* ---- kernel ------------------------------------------------------------------------------------------------------------------------------------ */

static bool matters(const char *word)
{
    static const char *const words[] = {"iommu", "intel_iommu", "amd_iommu", "pci=", "pcie_", "numa_balancing", "isolcpus", "nohz_full", "transparent_hugepage", "mitigations", "hugepages", "nosmt", "maxcpus", "mem=", "intel_idle", "processor.max_cstate", "default_hugepagesz", "cgroup"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strncmp(word, words[i], strlen(words[i])) == 0)
            return true;
    return false;
}

static void command_line(struct machine *m)
{
    char line[4096], said[200] = "", *save = NULL;
    if (!kernel_line(m->root, line, sizeof line, "/proc/cmdline"))
        return;
    for (char *w = strtok_r(line, " ", &save); w; w = strtok_r(NULL, " ", &save))
        if (matters(w)) {
            size_t at = strlen(said);
            snprintf(said + at, sizeof said - at, "%s%s", at ? " " : "", w);
        }
    machine_check(m, CHECK_GOOD, "kernel command line", "%s", *said ? said : "nothing that matters for a job");
}

static const char *container_of(struct machine *m)
{
    char line[256];
    if (kernel_has(m->root, "/.dockerenv"))
        return ", in a container of Docker";
    if (kernel_has(m->root, "/run/.containerenv"))
        return ", in a container of Podman";
    if (machine_is_here(m) && getenv("KUBERNETES_SERVICE_HOST"))
        return ", in a pod of Kubernetes";
    if (kernel_line(m->root, line, sizeof line, "/proc/1/cgroup") && (strstr(line, "docker") || strstr(line, "kubepods") || strstr(line, "containerd") || strstr(line, "lxc")))
        return ", in a container";
    return "";
}

static void kind(struct machine *m)
{
    char flags[4096], maker[80], product[80];
    struct utsname u;
    bool virtual = kernel_has(m->root, "/sys/hypervisor/type") || (kernel_field(m->root, "/proc/cpuinfo", "flags", flags, sizeof flags) && strstr(flags, " hypervisor"));
    kernel_line(m->root, maker, sizeof maker, "/sys/class/dmi/id/sys_vendor");
    kernel_line(m->root, product, sizeof product, "/sys/class/dmi/id/product_name");
    const char *release = machine_is_here(m) && uname(&u) == 0 ? u.release : "";
    machine_check(m, CHECK_GOOD, "kind of machine", "%s%s%s%s%s%s%s%s%s", virtual ? "virtual machine" : "bare metal", *maker ? " (" : "", maker, *maker && *product ? " " : "", product, *maker ? ")" : "", container_of(m), *release ? ", kernel " : "",
                  release);
}

static void clock_state(struct machine *m)
{
    char source[64];
    if (kernel_line(m->root, source, sizeof source, "/sys/devices/system/clocksource/clocksource0/current_clocksource")) {
        bool slow = strcmp(source, "hpet") == 0 || strcmp(source, "acpi_pm") == 0 || strcmp(source, "jiffies") == 0;
        struct check *c = machine_check(m, slow ? CHECK_NOTE : CHECK_GOOD, "clock source", "%s", source);
        if (slow)
            machine_advise(c, "each look at the clock is a slow access to a device: `sudo dmesg | grep -i tsc` says why the processor's own was given up");
    }
    struct timex t = {0};
    if (!machine_is_here(m))
        return;
    bool unsure = adjtimex(&t) == TIME_ERROR || t.status & STA_UNSYNC;
    struct check *c = machine_check(m, unsure ? CHECK_NOTE : CHECK_GOOD, "clock", "%s", unsure ? "not kept in step by NTP or PTP" : "kept in step");
    if (unsure)
        machine_advise(c, "times in logs of several hosts cannot be compared: `sudo systemctl enable --now chronyd` or systemd-timesyncd; `unisono doctor --hosts a,b` measures how far apart they are");
}

void machine_host(struct machine *m)
{
    processors(m);
    numa(m);
    cgroup(m);
    numa_balancing(m);
    limits(m);
    shared_memory(m);
    kind(m);
    command_line(m);
    clock_state(m);
}
