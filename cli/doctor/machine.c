/* SPDX-License-Identifier: Apache-2.0 */
/* machine.c - what the kernel shows of this machine: processors, limits, memory, names, interfaces, RDMA cards, GPUs, PCIe. Probes are in probe.c. */
#include "machine.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "probe.h"

extern char **environ;

struct check *machine_check(struct machine *m, enum check_state state, const char *name, const char *fmt, ...)
{
    struct check *c = &m->checks[m->count < 63 ? m->count++ : 63];
    va_list ap;
    *c = (struct check){.state = state};
    snprintf(c->name, sizeof c->name, "%s", name);
    va_start(ap, fmt);
    vsnprintf(c->value, sizeof c->value, fmt, ap);
    va_end(ap);
    return c;
}

static void advise(struct check *c, const char *advice)
{
    snprintf(c->advice, sizeof c->advice, "%s", advice);
}

static void tell(FILE *text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void tell(FILE *text, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vfprintf(text, fmt, ap);
    va_end(ap);
}

/* The first line of a small file of the kernel's; false if it cannot be read. */
static bool read_line_of(const char *path, char *to, size_t bytes)
{
    FILE *f = fopen(path, "r");
    bool good = f && fgets(to, (int)bytes, f);
    if (f)
        fclose(f);
    if (good)
        to[strcspn(to, "\n")] = 0;
    return good;
}

/* ---- processors and memory --------------------------------------------------------------------------------------------------------- */

static void processors(struct machine *m)
{
    cpu_set_t set;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    int mine = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)online;
    struct check *c = machine_check(m, mine < 2 && online > 1 ? CHECK_BAD : CHECK_GOOD, "processors", "%d of %ld may be used by this process", mine, online);
    if (c->state != CHECK_GOOD)
        advise(c, "a rank needs two and more: its library has threads of its own; --bind-to none, --cpu-bind=none");
    char quota[128];
    long long limit, period;
    if (read_line_of("/sys/fs/cgroup/cpu.max", quota, sizeof quota) && sscanf(quota, "%lld %lld", &limit, &period) == 2 && period > 0) {
        c = machine_check(m, limit < 2 * period ? CHECK_NOTE : CHECK_GOOD, "cgroup cpu quota", "%.1f processors", (double)limit / (double)period);
        if (c->state != CHECK_GOOD)
            advise(c, "threads that wait in a loop use up a small quota, and all ranks then stand still for the rest of the period");
    }
    if (read_line_of("/sys/fs/cgroup/memory.max", quota, sizeof quota) && strcmp(quota, "max") != 0)
        machine_check(m, CHECK_GOOD, "cgroup memory limit", "%.1f GiB", strtod(quota, NULL) / (1 << 30));
    if (read_line_of("/proc/sys/kernel/numa_balancing", quota, sizeof quota)) {
        bool on = atoi(quota) != 0;
        c = machine_check(m, on ? CHECK_NOTE : CHECK_GOOD, "NUMA balancing", "%s", on ? "on" : "off");
        if (on)
            advise(c, "sudo sysctl kernel.numa_balancing=0: it moves pages that cards and GPUs use");
    }
}

static void limits(struct machine *m, FILE *text, bool rdma)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_MEMLOCK, &l) == 0) {
        bool all = l.rlim_cur == RLIM_INFINITY;
        char value[64] = "unlimited";
        if (!all)
            snprintf(value, sizeof value, "%llu KiB", (unsigned long long)l.rlim_cur >> 10);
        struct check *c = machine_check(m, !all && rdma && l.rlim_cur < (1u << 30) ? CHECK_BAD : CHECK_GOOD, "locked memory", "%s%s", value, all || rdma ? "" : " (matters for RDMA, and there is no card)");
        if (c->state != CHECK_GOOD)
            advise(c, "ulimit -l unlimited where ranks are started (limits.conf, LimitMEMLOCK=infinity, docker --ulimit memlock=-1)");
        tell(text, "max locked memory (kbytes, -l) %s\n", all ? "unlimited" : value);
    }
    if (getrlimit(RLIMIT_NOFILE, &l) == 0) {
        struct check *c = machine_check(m, l.rlim_cur < 4096 ? CHECK_NOTE : CHECK_GOOD, "open files", "%llu", (unsigned long long)l.rlim_cur);
        if (c->state != CHECK_GOOD)
            advise(c, "large jobs need a file for each connection: ulimit -n 65536");
    }
    struct statvfs fs;
    if (statvfs("/dev/shm", &fs) != 0) {
        machine_check(m, CHECK_NOTE, "/dev/shm", "not there");
        return;
    }
    double mib = (double)fs.f_blocks * (double)fs.f_frsize / (1 << 20), left = (double)fs.f_bavail * (double)fs.f_frsize / (1 << 20);
    struct check *c = machine_check(m, left < 256 ? CHECK_BAD : CHECK_GOOD, "/dev/shm", "%.0f MiB, %.0f free", mib, left);
    if (c->state != CHECK_GOOD)
        advise(c, "NCCL and data loaders need more (Unisono does not): docker --shm-size=8g or --ipc=host; remove stale nccl-* files");
}

/* ---- names and interfaces --------------------------------------------------------------------------------------------------------------- */

static void own_name(struct machine *m, FILE *text)
{
    char name[256] = "", at[64];
    gethostname(name, sizeof name - 1);
    struct addrinfo *list = NULL, hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    int rc = getaddrinfo(name, NULL, &hints, &list);
    if (rc != 0) {
        advise(machine_check(m, CHECK_BAD, "own host name", "%s does not resolve: %s", name, gai_strerror(rc)), "Gloo looks it up; put it into /etc/hosts, or name the interface: GLOO_SOCKET_IFNAME");
        return;
    }
    inet_ntop(AF_INET, &((struct sockaddr_in *)(void *)list->ai_addr)->sin_addr, at, sizeof at);
    freeaddrinfo(list);
    bool loop = strncmp(at, "127.", 4) == 0;
    struct check *c = machine_check(m, loop ? CHECK_NOTE : CHECK_GOOD, "own host name", "%s is %s", name, at);
    if (loop)
        advise(c, "with several hosts Gloo would offer this loopback address to the others: correct /etc/hosts, or set GLOO_SOCKET_IFNAME");
    tell(text, "$ getent hosts %s\n%s %s\n", name, at, name);
}

static bool is_virtual(const char *name)
{
    static const char *const prefixes[] = {"lo", "docker", "veth", "virbr", "br-", "cni", "flannel", "tun", "tap"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

/* NCCL takes names that begin with ib first, then what is not docker, lo or virbr, in the kernel's order. */
static void interfaces(struct machine *m, FILE *text)
{
    struct ifaddrs *list = NULL;
    char chosen[IF_NAMESIZE] = "";
    if (getifaddrs(&list) != 0)
        return;
    for (struct ifaddrs *i = list; i; i = i->ifa_next) {
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || !(i->ifa_flags & IFF_UP))
            continue;
        char at[64], path[128], speed[32] = "", mtu[32] = "?";
        inet_ntop(AF_INET, &((struct sockaddr_in *)(void *)i->ifa_addr)->sin_addr, at, sizeof at);
        snprintf(path, sizeof path, "/sys/class/net/%s/mtu", i->ifa_name);
        read_line_of(path, mtu, sizeof mtu);
        snprintf(path, sizeof path, "/sys/class/net/%s/speed", i->ifa_name);
        bool known = read_line_of(path, speed, sizeof speed) && atoi(speed) > 0;
        machine_check(m, CHECK_GOOD, "interface", "%s %s, %s%s, MTU %s%s", i->ifa_name, at, known ? speed : "speed not told", known ? " Mbit/s" : "", mtu, is_virtual(i->ifa_name) ? ", not for a job's data" : "");
        tell(text, "%s UP %s/24\n", i->ifa_name, at);
        if (known)
            tell(text, "$ cat /sys/class/net/%s/speed\n%s\n", i->ifa_name, speed);
        if (!is_virtual(i->ifa_name) && (!*chosen || (strncmp(i->ifa_name, "ib", 2) == 0 && strncmp(chosen, "ib", 2) != 0)))
            snprintf(chosen, sizeof chosen, "%s", i->ifa_name);
    }
    freeifaddrs(list);
    struct check *c = machine_check(m, *chosen ? CHECK_GOOD : CHECK_NOTE, "interface for NCCL", "%s%s", *chosen ? chosen : "none but loopback", *chosen ? ", unless NCCL_SOCKET_IFNAME says otherwise" : "");
    if (!*chosen)
        advise(c, "only jobs on this host can run");
}

/* ---- cards, GPUs, PCIe ---------------------------------------------------------------------------------------------------------------------- */

static int entries_of(const char *path, char names[][64], int most)
{
    DIR *d = opendir(path);
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.' && n < most)
            snprintf(names[n++], 64, "%.63s", e->d_name);
    if (d)
        closedir(d);
    return n;
}

static int rdma_cards(struct machine *m)
{
    char names[64][64], path[200], state[64], layer[64];
    int n = entries_of("/sys/class/infiniband", names, 64);
    for (int i = 0; i < n && i < 16; i++) {
        snprintf(path, sizeof path, "/sys/class/infiniband/%.63s/ports/1/state", names[i]);
        bool known = read_line_of(path, state, sizeof state);
        snprintf(path, sizeof path, "/sys/class/infiniband/%.63s/ports/1/link_layer", names[i]);
        known = read_line_of(path, layer, sizeof layer) && known;
        struct check *c = machine_check(m, known && !strstr(state, "ACTIVE") ? CHECK_NOTE : CHECK_GOOD, "RDMA card", "%s: %s, %s", names[i], known ? layer : "?", known ? state : "?");
        if (c->state != CHECK_GOOD)
            advise(c, "a port that is down is not used; cable, switch, subnet manager");
    }
    if (n == 0)
        machine_check(m, CHECK_GOOD, "RDMA cards", "none");
    return n;
}

static void gpus(struct machine *m)
{
    char names[64][64];
    int nvidia = entries_of("/proc/driver/nvidia/gpus", names, 64), kfd = entries_of("/sys/class/kfd/kfd/topology/nodes", names, 64);
    bool peermem = access("/sys/module/nvidia_peermem", F_OK) == 0 || access("/sys/kernel/mm/memory_peers", F_OK) == 0;
    if (nvidia)
        machine_check(m, CHECK_GOOD, "NVIDIA GPUs", "%d; peer-memory module %s", nvidia, peermem ? "loaded" : "not loaded (DMA-BUF may do instead)");
    else if (kfd > 1)
        machine_check(m, CHECK_GOOD, "AMD compute nodes", "%d, processors among them", kfd);
    else
        machine_check(m, CHECK_GOOD, "GPUs", "none");
}

/* The control word of ACS, from the extended capabilities, which only root may read. */
static int acs_control(const char *device)
{
    char path[200];
    unsigned char c[4096];
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%.63s/config", device);
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(c, 1, sizeof c, f) : 0;
    if (f)
        fclose(f);
    for (size_t at = 0x100, hops = 0; n == sizeof c && at >= 0x100 && at + 8 <= n && hops < 96; hops++) {
        unsigned id = c[at] | c[at + 1] << 8, next = (c[at + 2] | c[at + 3] << 8) >> 4;
        if (id == 0x000d)
            return c[at + 6] | c[at + 7] << 8;
        at = next;
    }
    return -1;
}

static void pcie(struct machine *m, FILE *text, bool devices)
{
    char names[512][64], line[2048] = "", path[200], class[32];
    int n = entries_of("/sys/bus/pci/devices", names, 512), seen = 0, redirect = 0;
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "/sys/bus/pci/devices/%.63s/class", names[i]);
        int control = read_line_of(path, class, sizeof class) && strncmp(class, "0x0604", 6) == 0 ? acs_control(names[i]) : -1;
        seen += control >= 0;
        if (control > 0 && control & 0xc) {
            redirect++;
            if (devices)
                tell(text, "%s PCI bridge: of this machine\n ACSCtl: ReqRedir%c CmpltRedir%c\n", strlen(names[i]) > 5 ? names[i] + 5 : names[i], control & 4 ? '+' : '-', control & 8 ? '+' : '-');
        }
    }
    if (seen)
        machine_check(m, redirect && devices ? CHECK_BAD : CHECK_GOOD, "PCIe ACS", "redirects at %d of %d bridges%s", redirect, seen, redirect && !devices ? ", which matters only with GPUs or RDMA cards" : "");
    if (read_line_of("/proc/cmdline", line, sizeof line)) {
        bool virtual = access("/sys/hypervisor/type", F_OK) == 0;
        FILE *f = fopen("/proc/cpuinfo", "r");
        for (char l[4096]; f && fgets(l, sizeof l, f);)
            if (strncmp(l, "flags", 5) == 0) {
                virtual = virtual || strstr(l, " hypervisor");
                break;
            }
        if (f)
            fclose(f);
        bool container = access("/.dockerenv", F_OK) == 0 || access("/run/.containerenv", F_OK) == 0 || getenv("KUBERNETES_SERVICE_HOST");
        machine_check(m, CHECK_GOOD, "kind of machine", "%s%s, iommu=%s", virtual ? "virtual machine" : "bare metal", container ? ", in a container" : "", strstr(line, "iommu=pt") ? "pt" : "not set to pt");
    }
}

static void environment(FILE *text)
{
    for (char **e = environ; *e; e++)
        if (!strchr(*e, '\n'))
            tell(text, "%s\n", *e);
}

void machine_look(struct machine *m)
{
    *m = (struct machine){0};
    FILE *text = open_memstream(&m->text, &m->text_bytes);
    if (!text)
        return;
    processors(m);
    int cards = rdma_cards(m);
    limits(m, text, cards > 0);
    own_name(m, text);
    interfaces(m, text);
    gpus(m);
    pcie(m, text, cards > 0 || access("/proc/driver/nvidia/gpus", F_OK) == 0);
    environment(text);
    fclose(text);
    probe_all(m);
}

void machine_free(struct machine *m)
{
    free(m->text);
    m->text = NULL;
}
