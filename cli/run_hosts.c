/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_hosts.c - starting agents: a fork on this host, the launcher command (ssh, or what --launcher says) for others. The secret
 * travels inside the agent's standard input, never on a command line.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "cli.h"
#include "output.h"
#include "remote.h"
#include "run_launch.h"

extern char **environ;

/* ---- the job description --------------------------------------------------------------------------------- */

static bool travels(const char *entry)
{
    static const char *const begin[] = {"UNISONO_", "NCCL_", "RCCL_", "OMP_", "MKL_", "TORCH_", "PATH=", "LD_LIBRARY_PATH=",
                                        "PYTHONPATH=", "VIRTUAL_ENV="};
    for (size_t i = 0; i < sizeof begin / sizeof *begin; i++)
        if (strncmp(entry, begin[i], strlen(begin[i])) == 0)
            return true;
    return false;
}

static bool add_env(struct run_job *job, const char *entry)
{
    char **p = realloc(job->env, ((size_t)job->nenv + 2) * sizeof *p);
    if (!p)
        return false;
    job->env = p;
    p[job->nenv] = strdup(entry);
    p[job->nenv + 1] = NULL;
    return p[job->nenv++] != NULL;
}

static bool fill_env(const struct launcher *l, struct run_job *job, bool local)
{
    bool ok = true;
    for (char **e = environ; !local && *e; e++)
        if (travels(*e))
            ok = ok && add_env(job, *e);
    for (int i = 0; i < l->opt->nenv; i++) {
        const char *name = l->opt->env[i], *value = strchr(name, '=') ? NULL : getenv(name);
        char *entry = NULL;
        if (value && asprintf(&entry, "%s=%s", name, value) < 0)
            return false;
        if (entry || strchr(name, '='))
            ok = ok && add_env(job, entry ? entry : name);
        free(entry);
    }
    return ok;
}

/* Rank 0's process says where ranks are that do not join. Of a very large job it does not. */
static bool add_hosts(const struct launcher *l, struct run_job *job)
{
    enum { MOST_BYTES = 60000 };
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    if (!f)
        return false;
    fputs("UNISONO_RUN_HOSTS=", f);
    for (int i = 0; i < l->opt->nhosts; i++)
        fprintf(f, "%s%s:%d", i ? "," : "", l->opt->hosts[i].name, l->opt->hosts[i].n);
    bool ok = fclose(f) == 0 && (bytes > MOST_BYTES || add_env(job, text));
    free(text);
    return ok;
}

static bool send_job(struct launcher *l, struct link *link, bool local)
{
    const struct run_options *opt = l->opt;
    struct run_job job = {.size = opt->nranks, .first = link->host->first, .n = link->host->n, .nhosts = opt->nhosts,
                          .bind = opt->bind, .show_bind = opt->show_bind, .port = opt->port, .host = link->host->name,
                          .args = opt->args};
    /* On a terminal a program should find a terminal; tagged or piped, whole lines matter more. */
    job.direct_stdout = local && !opt->tag && isatty(1);
    job.direct_stdin = local && !isatty(0);
    while (opt->args[job.nargs])
        job.nargs++;
    job.cwd = local ? NULL : getcwd(NULL, 0);
    size_t bytes = 0;
    char *text = fill_env(l, &job, local) && (job.first > 0 || add_hosts(l, &job)) ? run_job_encode(&job, &bytes) : NULL;
    if (text) {
        wire_send(&link->wire, FRAME_SECRET, l->secret, RUN_SECRET_CHARS, NULL, 0);
        wire_send(&link->wire, FRAME_JOB, text, bytes, NULL, 0);
    }
    for (int i = 0; i < job.nenv; i++)
        free(job.env[i]);
    free(job.env);
    free(job.cwd);
    free(text);
    return text != NULL;
}

/* ---- processes ------------------------------------------------------------------------------------------------ */

static _Noreturn void become_agent(struct launcher *l, int i, int in, int out)
{
    setpgid(0, 0);
    /* The launcher's ends of all pipes: an agent that held one would keep another from seeing the launcher's death. */
    for (int k = 0; k < i; k++) {
        close(l->links[k].wire.in);
        close(l->links[k].wire.out);
        if (l->links[k].err_fd >= 0)
            close(l->links[k].err_fd);
    }
    close(l->signal_fd);
    int status = agent_run(in, out);
    _exit(status);
}

static bool is_here(const struct launcher *l, const char *host)
{
    char name[256] = "";
    if (!l->opt->remote)
        return true;
    gethostname(name, sizeof name - 1);
    return !l->opt->launcher && (strcmp(host, "localhost") == 0 || strcmp(host, name) == 0);
}

static void close_pair(int pair[2])
{
    if (pair[0] >= 0)
        close(pair[0]);
    if (pair[1] >= 0)
        close(pair[1]);
}

int link_start(struct launcher *l, int i)
{
    struct link *link = &l->links[i];
    struct remote_command remote = {0};
    bool local = is_here(l, link->host->name);
    int down[2] = {-1, -1}, up[2] = {-1, -1}, err[2] = {-1, -1};
    if (!local && !remote_make(&remote, l->opt->launcher, l->opt->agent_program, link->host->name, "run", "--agent")) {
        remote_free(&remote);
        return out_error("run", "cannot make the command for host %s: no memory, or a quote in the path of unisono", link->host->name);
    }
    if (pipe2(down, O_CLOEXEC) != 0 || pipe2(up, O_CLOEXEC) != 0 || (!local && pipe2(err, O_CLOEXEC) != 0))
        link->pid = -1;
    else
        link->pid = fork();
    if (link->pid == 0) {
        if (!local)
            remote_become(remote.word, down[0], up[1], err[1]);
        close(down[1]);
        close(up[0]);
        become_agent(l, i, down[0], up[1]);
    }
    link->command = remote.shown;
    remote.shown = NULL;
    remote_free(&remote);
    if (link->pid < 0) {
        int saved = errno;
        close_pair(down);
        close_pair(up);
        close_pair(err);
        return out_error("run", "cannot start a process for host %s: %s%s", link->host->name, strerror(saved), out_start_hint(saved));
    }
    close(down[0]);
    close(up[1]);
    if (!local) {
        close(err[1]);
        link->err_fd = err[0];
        fcntl(err[0], F_SETFL, O_NONBLOCK);
    }
    link->synced = local;
    wire_init(&link->wire, up[0], down[1]);
    return send_job(l, link, local) ? 0 : out_error("run", "no memory for the job description");
}

void link_free(struct link *link)
{
    wire_close(&link->wire);
    if (link->err_fd >= 0)
        close(link->err_fd);
    free(link->err_lines.part);
    free(link->command);
}
