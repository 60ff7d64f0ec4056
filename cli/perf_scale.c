/* SPDX-License-Identifier: Apache-2.0 */
/* perf_scale.c - the runs of `unisono perf --sweep` (perf_scale.h): what they need, starting them, reading their JSON. */
#include "perf_scale.h"

#include <errno.h>
#include <jansson.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"
#include "output.h"
#include "perf_sweep.h"

/* ---- one run ------------------------------------------------------------------------------------------------------- */

/* In the child: become `unisono perf` of these ranks. */
static void become(const struct scale *s, const struct scale_series *r, int out)
{
    const struct perf_options *o = s->o;
    char ranks[16], least[24], most[24], factor[16], step[24], iters[16], warmup[16], split[32];
    snprintf(ranks, sizeof ranks, "%d", r->ranks * r->comms);
    snprintf(least, sizeof least, "%llu", (unsigned long long)o->min_bytes);
    snprintf(most, sizeof most, "%llu", (unsigned long long)o->max_bytes);
    snprintf(factor, sizeof factor, "%d", o->step_factor);
    snprintf(step, sizeof step, "%llu", (unsigned long long)o->step_bytes);
    snprintf(iters, sizeof iters, "%d", o->iters);
    snprintf(warmup, sizeof warmup, "%d", o->warmup);
    snprintf(split, sizeof split, "MOD %d", r->comms);
    unsetenv("NCCL_TESTS_SPLIT_MASK");
    unsetenv("NCCL_TESTS_SPLIT");
    if (r->comms > 1)
        setenv("NCCL_TESTS_SPLIT", split, 1);
    char *argv[] = {"unisono", "perf", (char *)(uintptr_t)o->coll->name, "--ranks", ranks, "-b", least, "-e", most, "-f", factor, "-i", step,
                    "-n", iters, "-w", warmup, "-c", "0", "-d", (char *)(uintptr_t)perf_type_word(o->type), "--bind", r->bound ? "core" : "none",
                    "--memory", o->shared_memory ? "shared" : "ordinary", "--json", "-", r->comms > 1 ? NULL : "--limit", NULL};
    dup2(out, 1);
    execv("/proc/self/exe", argv);
    _exit(out_error("perf", "--sweep cannot start a run: %s", strerror(errno)));
}

static char *read_whole(int fd)
{
    size_t n = 0, cap = 1 << 16;
    char *buf = malloc(cap + 1);
    for (ssize_t got; buf && (got = read(fd, buf + n, cap - n)) != 0;) {
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            break;
        n += (size_t)got;
        if (n == cap) {
            char *more = realloc(buf, (cap *= 2) + 1);
            if (!more)
                free(buf);
            buf = more;
        }
    }
    if (buf)
        buf[n] = 0;
    return buf;
}

static double real_of(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static void read_points(json_t *root, struct scale_series *r)
{
    json_t *line, *carriers = json_object_get(json_object_get(root, "unisono"), "carriers"), *carrier;
    const char *name;
    size_t i;
    double all = 0, net = 0;
    json_object_foreach(carriers, name, carrier) {
        all += real_of(carrier, "bytes");
        net += strcmp(name, "tcp") == 0 ? real_of(carrier, "bytes") : 0;
    }
    r->net_share = all > 0 ? net / all : 0;
    json_array_foreach(json_object_get(root, "results"), i, line) {
        const json_t *half = json_object_get(line, "out_of_place");
        if (r->count == SCALE_POINTS)
            break;
        r->points[r->count++] = (struct scale_point){.bytes = (uint64_t)real_of(line, "size"), .time_us = real_of(half, "time"),
                                                     .limit_us = real_of(line, "limit_us"), .gb_s = real_of(half, "bus_bw") * r->comms};
    }
}

/* false: the run has said why on standard error. */
static bool run_series(const struct scale *s, struct scale_series *r)
{
    int fds[2], status = 0;
    if (pipe(fds) != 0)
        return false;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        close(fds[0]);
        become(s, r, fds[1]);
    }
    close(fds[1]);
    char *text = child > 0 ? read_whole(fds[0]) : NULL;
    close(fds[0]);
    bool ok = child > 0 && waitpid(child, &status, 0) == child && status == 0 && text;
    json_t *root = ok ? json_loads(text, 0, NULL) : NULL;
    free(text);
    if (root)
        read_points(root, r);
    json_decref(root);
    return root && r->count > 0;
}

/* ---- what is run ------------------------------------------------------------------------------------------------------ */

static int node_count(void)
{
    int n = 0;
    char path[64];
    while (n < 1024 && (snprintf(path, sizeof path, "/sys/devices/system/node/node%d", n), access(path, F_OK) == 0))
        n++;
    return n > 0 ? n : 1;
}

static int processor_count(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

/* 2, 4, 8, ... to twice the processors: where ranks begin to share them is part of the answer. */
static int default_ranks(int processors, int *numbers)
{
    int n = 0;
    for (int ranks = 2; n < SCALE_NUMBERS && (ranks <= 2 * processors || n == 0); ranks *= 2)
        numbers[n++] = ranks;
    return n;
}

static bool add_series(struct scale *s, int ranks, int comms)
{
    bool both = s->nodes > 1 || s->o->bind_both;
    for (int bound = 1; bound >= 0; bound--) {
        if (!both && bound != (int)s->o->bind)
            continue;
        if (s->count == SCALE_SERIES) {
            out_error("perf", "--sweep: more than %d runs; give fewer numbers of ranks or communicators", SCALE_SERIES);
            return false;
        }
        s->series[s->count++] = (struct scale_series){.ranks = ranks, .comms = comms, .bound = bound};
    }
    return true;
}

/* Two buffers a rank, and as much again where the limit is measured beside them. */
static bool fits_memory(const struct scale *s)
{
    double have = 1024.0 * (double)sweep_status_kb("/proc/meminfo", "MemAvailable:"), most = 0;
    const struct scale_series *largest = NULL;
    for (int i = 0; i < s->count; i++) {
        const struct scale_series *r = &s->series[i];
        double need = (double)s->o->max_bytes * 2 * r->ranks * r->comms * (r->comms > 1 ? 1 : 2);
        if (need > most) {
            most = need;
            largest = r;
        }
    }
    if (!largest || have <= 0 || most <= 0.9 * have)
        return true;
    char size[32], need[32], available[32], smaller[32];
    out_error("perf", "--sweep up to %s with %d ranks in %d communicator%s needs %s of memory for buffers, and this machine has %s available; "
                      "give -e %s or less, or fewer ranks",
              out_bytes(size, sizeof size, s->o->max_bytes), largest->ranks * largest->comms, largest->comms, largest->comms == 1 ? "" : "s",
              out_bytes(need, sizeof need, most < 1.8e19 ? (uint64_t)most : UINT64_MAX), out_bytes(available, sizeof available, (uint64_t)have),
              out_bytes(smaller, sizeof smaller, (uint64_t)((double)s->o->max_bytes * 0.9 * have / most)));
    return false;
}

static bool plan_runs(struct scale *s)
{
    int numbers[SCALE_NUMBERS], n = s->o->sweep_ranks_count;
    memcpy(numbers, s->o->sweep_ranks, sizeof numbers);
    if (n == 0)
        n = default_ranks(s->processors, numbers);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < s->o->sweep_comms_count; k++)
            if (!add_series(s, numbers[i], s->o->sweep_comms[k]))
                return false;
    return fits_memory(s);
}

static int write_results(const struct scale *s)
{
    const struct perf_options *o = s->o;
    bool json_only = o->json_file && strcmp(o->json_file, "-") == 0;
    FILE *json = json_only ? stdout : o->json_file ? fopen(o->json_file, "we") : NULL;
    if (o->json_file && !json)
        return out_error("perf", "--json %s: %s", o->json_file, strerror(errno));
    if (!json_only)
        scale_print(s, stdout);
    if (json)
        scale_json(s, json);
    if (json && !json_only && fclose(json) != 0)
        return out_error("perf", "--json %s: %s", o->json_file, strerror(errno));
    if (o->plot_file && !scale_plot(s, o->plot_file))
        return out_error("perf", "--plot %s: %s", o->plot_file, strerror(errno));
    return CLI_GOOD;
}

int perf_scale(const struct perf_options *o)
{
    if (perf_has_launcher())
        return out_error("perf", "--sweep starts its ranks itself, several times; call it without a launcher");
    struct scale *s = calloc(1, sizeof *s);
    if (!s)
        return out_error("perf", "no memory for --sweep");
    s->o = o;
    s->processors = processor_count();
    s->nodes = node_count();
    int status = plan_runs(s) ? CLI_GOOD : CLI_ERROR;
    for (int i = 0; i < s->count && status == CLI_GOOD; i++) {
        char name[64];
        scale_name(s, &s->series[i], name, sizeof name);
        if (isatty(2))
            fprintf(stderr, "\r%d of %d: %s\033[K\r", i + 1, s->count, name);
        if (!run_series(s, &s->series[i]))
            status = out_error("perf", "--sweep: the run with %s did not come to its end", name);
    }
    if (isatty(2))
        fprintf(stderr, "\033[K");
    if (status == CLI_GOOD)
        status = write_results(s);
    free(s);
    return status;
}
