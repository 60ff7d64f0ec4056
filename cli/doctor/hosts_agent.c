/* SPDX-License-Identifier: Apache-2.0 */
/* hosts_agent.c - `unisono doctor --agent`: tells what this host is, then does what the other side asks, a line at a time. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "hosts.h"
#include "interfaces.h"
#include "machine.h"
#include "unisono.h"

extern char **environ;

static void say(json_t *v)
{
    json_dumpf(v, stdout, JSON_COMPACT);
    fputc('\n', stdout);
    fflush(stdout);
    json_decref(v);
}

/* ---- what this host is -------------------------------------------------------------------------------------------------------------------- */

/* Variables of the libraries alone; an environment has secrets, too. */
static json_t *settings(void)
{
    static const char *const begin[] = {"UNISONO_", "NCCL_", "RCCL_", "GLOO_", "TORCH_NCCL_", "TORCH_FR_", "TORCH_DISTRIBUTED_", "TORCH_GLOO_", "UCX_", "FI_", "OFI_NCCL_", "HSA_", "CUDA_", "HIP_", "OMP_"};
    json_t *o = json_object();
    for (char **e = environ; *e; e++) {
        const char *equal = strchr(*e, '=');
        bool ours = false, secret = strncmp(*e, "UNISONO_SECRET", 14) == 0;
        for (size_t i = 0; i < sizeof begin / sizeof *begin; i++)
            ours = ours || strncmp(*e, begin[i], strlen(begin[i])) == 0;
        if (!equal || !ours || secret)
            continue;
        char name[128];
        snprintf(name, sizeof name, "%.*s", (int)(equal - *e), *e);
        json_object_set_new(o, name, json_string(equal + 1));
    }
    return o;
}

/* libnccl.so.2.21.5: what a library's file is called tells its version. */
static void library_version(json_t *o, const char *key, const char *folder, const char *stem)
{
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));)
        if (strncmp(e->d_name, stem, strlen(stem)) == 0 && strchr(e->d_name + strlen(stem), '.') && !json_object_get(o, key))
            json_object_set_new(o, key, json_string(e->d_name + strlen(stem)));
    if (d)
        closedir(d);
}

static void first_word(json_t *o, const char *key, const char *path)
{
    char line[128];
    if (kernel_line("", line, sizeof line, "%s", path))
        json_object_set_new(o, key, json_string(line));
}

static json_t *versions(void)
{
    static const char *const folders[] = {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/lib", "/usr/local/cuda/lib64", "/opt/rocm/lib"};
    json_t *o = json_object();
    char line[256];
    int v = uno_version();
    json_object_set_new(o, "Unisono", json_sprintf("%d.%d.%d", v / 10000, v / 100 % 100, v % 100));
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        library_version(o, "NCCL", folders[i], "libnccl.so.");
        library_version(o, "RCCL", folders[i], "librccl.so.");
    }
    const char *driver = kernel_line("", line, sizeof line, "/proc/driver/nvidia/version") ? strstr(line, "Module") : NULL;
    if (driver) {
        driver += strcspn(driver, "0123456789");
        line[(size_t)(driver - line) + strcspn(driver, " ")] = 0;
        json_object_set_new(o, "the NVIDIA driver", json_string(driver));
    }
    first_word(o, "amdgpu", "/sys/module/amdgpu/version");
    first_word(o, "mlx5_core", "/sys/module/mlx5_core/version");
    return o;
}

static json_t *limits(void)
{
    static const struct { const char *name; int which, shift; } all[] = {{"memlock", RLIMIT_MEMLOCK, 10}, {"nofile", RLIMIT_NOFILE, 0}, {"nproc", RLIMIT_NPROC, 0}};
    json_t *o = json_object();
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct rlimit l;
        if (getrlimit((__rlimit_resource_t)all[i].which, &l) == 0)
            json_object_set_new(o, all[i].name, json_integer(l.rlim_cur == RLIM_INFINITY ? -1 : (json_int_t)(l.rlim_cur >> all[i].shift)));
    }
    return o;
}

static json_t *addresses(void)
{
    struct interface v[INTERFACES];
    int n = interfaces_of("", v);
    struct choice c = interface_choice(LIBRARY_UNISONO, v, n);
    json_t *list = json_array();
    for (int i = 0; i < c.n && i < 4; i++) {
        const struct interface *k = &v[c.chosen[i]];
        json_array_append_new(list, json_pack("{s:s, s:s, s:I, s:I}", "interface", k->name, "address", k->address, "mtu", (json_int_t)k->mtu, "mbit", (json_int_t)k->mbit));
    }
    return list;
}

static json_t *cards(void)
{
    char names[64][KERNEL_NAME];
    int n = kernel_names("", names, 64, "/sys/class/infiniband");
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_string(names[i]));
    return list;
}

static void hello(int port)
{
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    fputs(HOSTS_MAGIC, stdout);
    say(json_pack("{s:s, s:i, s:o, s:o, s:o, s:o, s:o}", "name", name, "port", port, "versions", versions(), "settings", settings(), "limits", limits(), "addresses", addresses(), "cards", cards()));
}

/* ---- what it is asked ------------------------------------------------------------------------------------------------------------------------ */

static int64_t real_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static json_t *obey(json_t *order, const char *token)
{
    const char *what = json_string_value(json_object_get(order, "do")), *address = json_string_value(json_object_get(order, "address"));
    if (what && strcmp(what, "clock") == 0)
        return json_pack("{s:I}", "ns", (json_int_t)real_ns());
    if (what && strcmp(what, "pair") == 0 && address)
        return pair_measure(address, (int)json_integer_value(json_object_get(order, "port")), token);
    return json_pack("{s:s}", "error", "an order that this version does not know");
}

int hosts_agent(void)
{
    char token[HOSTS_TOKEN + 2], *line = NULL;
    size_t cap = 0;
    signal(SIGPIPE, SIG_IGN);
    if (!fgets(token, sizeof token, stdin) || strlen(token) != HOSTS_TOKEN + 1) {
        fprintf(stderr, "unisono doctor --agent is started by `unisono doctor --hosts`, which tells it a token first\n");
        return 2;
    }
    int port = pair_serve(token);
    hello(port);
    while (getline(&line, &cap, stdin) > 0) {
        json_t *order = json_loads(line, 0, NULL), *answer = order ? obey(order, token) : json_pack("{s:s}", "error", "no JSON");
        say(answer);
        json_decref(order);
    }
    free(line);
    return 0;
}
