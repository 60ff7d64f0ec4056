/* SPDX-License-Identifier: Apache-2.0 */
/* rules_process.c - processes: which copies of the library are in one, whether its ranks may use as many processors as their like, and whether two are
 * containers of one machine. */
#include <stdio.h>
#include <string.h>

#include "rule.h"

/* ---- copies of the library --------------------------------------------------------------------------------------------------------------------- */

static size_t folder_bytes(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) : 0;
}

/* A link and what it leads to, libnccl.so.2 and libnccl.so.2.28.3 of one folder, are one file. */
static bool same_file(const char *a, const char *b)
{
    size_t n = folder_bytes(a), na = strlen(a), nb = strlen(b);
    return n == folder_bytes(b) && memcmp(a, b, n) == 0 && strncmp(a, b, na < nb ? na : nb) == 0;
}

static bool same_process(const struct fact *a, const struct fact *b)
{
    return a->pid == b->pid && same_text(a->host, b->host) && (a->pid != NOBODY || a->file == b->file);
}

void rule_two_libraries(struct judge *j)
{
    enum { COMPARED = 4096 };
    if (j->m->counted[F_LIBRARY] > COMPARED) /* each with each */
        return;
    EACH_FACT(j->m, F_LIBRARY, a)
        for (const struct fact *b = a->next; b; b = b->next) {
            if (!same_process(a, b) || same_file(a->value, b->value))
                continue;
            bool kinds = !same_text(a->name, b->name);
            struct finding *f = find(j, LIKELY, a->pid != NOBODY ? 0.85 : 0.7, "%s has two copies of the library in it: %s and %s",
                                     a->pid != NOBODY ? model_say(j->m, "Process %lld%s%s", (long long)a->pid, *a->host ? " on " : "", a->host) : model_say(j->m, "A process%s%s", *a->host ? " on " : "", a->host), a->value, b->value);
            explain(j, f, kinds ? "NCCL and RCCL have the same names inside; calls of one land in the other." : "Which of them a call lands in depends on the order of loading: what a program asks for its version, what pip lists and what runs can be three things, and what one of them made the other does not know.");
            if (a->pid == NOBODY)
                explain(j, f, "Where this is a list of several processes, it may be that each has one.");
            evidence(f, a);
            evidence(f, b);
            EACH_FACT(j->m, F_VERSION, v)
                if (!*v->host || !*a->host || same_text(v->host, a->host))
                    evidence(f, v);
            remedy(j, f, "leave one where the loader looks: `ldconfig -p | grep -E 'lib(n|r)ccl[.]so'`, `echo $LD_LIBRARY_PATH $LD_PRELOAD`, `python3 -m pip list | grep -i nccl`; a program that was linked with its own copy has to be linked again without it");
            remedy(j, f, "then there is one line a process: `grep -HoE '/.*lib(n|r)ccl[.]so.*' /proc/PID/maps | sort -u`");
            return;
        }
}

/* Of versions the first three numbers count: 2.21.5.post1 is 2.21.5. */
static bool same_version(const char *a, const char *b)
{
    int v[3] = {0}, w[3] = {0};
    return sscanf(a, "%d.%d.%d", &v[0], &v[1], &v[2]) == 3 && sscanf(b, "%d.%d.%d", &w[0], &w[1], &w[2]) == 3 ? memcmp(v, w, sizeof v) == 0 : true;
}

void rule_other_library(struct judge *j)
{
    EACH_FACT(j->m, F_PACKAGE, p) {
        const struct fact *other = NULL;
        bool runs = false;
        EACH_FACT(j->m, F_VERSION, v) {
            if (!same_text(v->name, "NCCL") || (*v->host && *p->host && !same_text(v->host, p->host)))
                continue;
            runs = runs || same_version(v->value, p->value);
            other = same_version(v->value, p->value) ? other : v;
        }
        if (!other || runs)
            continue;
        struct finding *f = find(j, LIKELY - 10, 0.75, "NCCL %s runs%s%s, and the package that is installed is %s %s: another copy is loaded", other->value, *other->host ? " on " : "", other->host, p->name, p->value);
        explain(j, f, "A copy of the system, of a module or of LD_LIBRARY_PATH comes before that of the package; upgrading the package changes nothing.");
        evidence(f, other);
        evidence(f, p);
        remedy(j, f, "which file it is: `grep -HoE '/.*lib(n|r)ccl[.]so.*' /proc/PID/maps | sort -u`; what else there is: `ldconfig -p | grep libnccl`, `echo $LD_LIBRARY_PATH $LD_PRELOAD`");
        return;
    }
}

/* ---- where ranks may run ------------------------------------------------------------------------------------------------------------------------ */

/* Processes that the input knows as ranks: by their communicators, or by what a benchmark says. */
static struct names rank_processes(struct model *m)
{
    static const enum fact_kind kinds[] = {F_INIT, F_BENCH_RANK};
    struct names known = {0};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        EACH_FACT(m, kinds[k], f)
            if (f->pid != NOBODY) {
                names_add(m, &known, model_say(m, "%lld", (long long)f->pid));
                names_add(m, &known, model_say(m, "%lld@%s", (long long)f->pid, f->host));
            }
    return known;
}

/* A shell may run where it likes; ranks, and tasks of a launcher, are compared. */
static bool is_rank(struct model *m, const struct names *known, const struct fact *a)
{
    if (!same_text(a->value, "process") || a->rank != NOBODY || begins(a->host, "task "))
        return true;
    return a->pid != NOBODY && (names_has(known, model_say(m, *a->host ? "%lld@%s" : "%lld", (long long)a->pid, a->host)) || names_has(known, model_say(m, "%lld@", (long long)a->pid)));
}

static const struct fact *widest_beside(const struct model *m, const struct fact *a, const bool *ranks)
{
    const struct fact *best = NULL;
    int i = 0;
    EACH_FACT(m, F_AFFINITY, b) {
        if (!ranks[i++])
            continue;
        bool here = same_text(a->host, b->host);
        /* Hosts with and without hyperthreads differ by two; what differs by more, on one host or for one GPU, does not by itself. */
        bool like = here || (a->dev == b->dev && b->a > 2 * a->a);
        if (b != a && like && same_text(a->value, b->value) && b->a >= 2 * a->a && (!best || b->a > best->a))
            best = b;
    }
    return best;
}

void rule_masks_differ(struct judge *j)
{
    enum { COMPARED = 4096, ONE_CORE = 2 };
    if (j->m->counted[F_AFFINITY] > COMPARED) /* each with each */
        return;
    const struct fact *narrow = NULL, *wide = NULL;
    struct names all = {0}, known = rank_processes(j->m);
    bool ranks[COMPARED];
    int n = 0, i = 0;
    EACH_FACT(j->m, F_AFFINITY, a)
        ranks[n++] = is_rank(j->m, &known, a);
    EACH_FACT(j->m, F_AFFINITY, a) {
        const struct fact *w = ranks[i++] && a->a > ONE_CORE ? widest_beside(j->m, a, ranks) : NULL; /* a core or less is another finding's */
        if (!w)
            continue;
        names_add(j->m, &all, who_says(j->m, a));
        if (!narrow || a->a < narrow->a)
            narrow = a, wide = w;
    }
    if (!narrow)
        return;
    struct finding *f = find(j, LIKELY - 12, 0.65, "%s may run on %lld processors, its like %s on %lld", Who_says(j->m, narrow), (long long)narrow->a, who_says(j->m, wide), (long long)wide->a);
    explain(j, f, "The library's threads inherit what the launcher bound the process to, and of that only what is near its GPU; with another launcher, or on another host, it was more. The slowest rank sets the pace of all.");
    if (all.n > 1)
        explain(j, f, "So it is for %s.", all.n > 8 ? model_say(j->m, "%d in all", all.n) : names_say(j->m, &all));
    evidence(f, narrow);
    evidence(f, wide);
    EACH_FACT(j->m, F_BINDING, b)
        evidence(f, b);
    remedy(j, f, "one binding for all: `srun --cpu-bind=none ...`, or `srun --cpus-per-task=8 --cpu-bind=cores ...`; `mpirun --bind-to none ...`; what each has: `srun --label bash -c 'grep Cpus_allowed_list /proc/self/status'`");
    remedy(j, f, "`export NCCL_IGNORE_CPU_AFFINITY=1` takes all processors near the GPU, whatever the launcher says");
}

/* ---- containers of one machine ------------------------------------------------------------------------------------------------------------------ */

static const struct fact *boot_id_of(const struct model *m, const char *host)
{
    EACH_FACT(m, F_BOOT_ID, b)
        if (same_text(b->host, host))
            return b;
    return NULL;
}

/* The two ends of a channel over the network, in two containers of one machine. */
void rule_one_machine(struct judge *j)
{
    enum { COMPARED = 4096 };
    if (j->m->counted[F_PATH] > COMPARED || j->m->counted[F_BOOT_ID] < 2)
        return;
    EACH_FACT(j->m, F_PATH, p) {
        const struct fact *here = begins(p->value, "NET/") && same_text(p->name, "send") ? boot_id_of(j->m, p->host) : NULL, *there = NULL, *end = NULL;
        if (!here)
            continue;
        EACH_FACT(j->m, F_PATH, q)
            if (same_text(q->name, "receive") && q->rank == p->rank && q->peer == p->peer && !same_text(q->host, p->host))
                end = q, there = boot_id_of(j->m, q->host);
        if (!there || !same_text(here->name, there->name))
            continue;
        struct finding *f = find(j, LIKELY - 12, 0.75, "%s and %s are one machine (they have one boot id), and ranks %d and %d talk over %s", p->host, end->host, p->rank, p->peer, p->value);
        explain(j, f, "The library tells machines apart by host name and boot id, and a container has a name of its own; what is more, it sees only its own GPUs. So neither NVLink nor shared memory is used between the two.");
        evidence(f, p);
        evidence(f, end);
        evidence(f, here);
        evidence(f, there);
        remedy(j, f, "one pod (container) a machine, with all its GPUs; or, with all GPUs visible in each and one /dev/shm for both (`docker run --ipc=host --gpus all ...`), one name: `export NCCL_HOSTID=NAME`, the same in both and another on each machine");
        return;
    }
}
