/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_agent.c - the agent of one host: takes the job from the launcher, says where rank 0 can be met or finds a way there, then
 * hands over to the team. On the launcher's own host it is a fork, elsewhere `unisono run --agent` behind a remote shell.
 */
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct agent {
    struct run_wire wire;
    struct run_job job;
    char secret[RUN_SECRET_CHARS + 1];
    int listen_fd, master_port;
    char *go;             /* FRAME_GO's body */
    size_t ngo;
};

/* Wait for the next frame of the launcher; false when it is gone. */
static bool next_frame(struct run_wire *w, enum run_frame *type, const char **body, size_t *bytes)
{
    while (!wire_next(w, type, body, bytes)) {
        struct pollfd p[2] = {{.fd = w->in, .events = POLLIN}, {.fd = wire_pending(w) ? w->out : -1, .events = POLLOUT}};
        if (w->broken)
            return false;
        if (poll(p, 2, -1) < 0 && errno != EINTR)
            return false;
        wire_flush(w);
        if (p[0].revents && !wire_fill(w))
            return false;
    }
    return true;
}

static void give_up(struct agent *a, const char *text)
{
    wire_send(&a->wire, FRAME_ERROR, text, strlen(text), NULL, 0);
    struct pollfd p = {.fd = a->wire.out, .events = POLLOUT};
    while (wire_pending(&a->wire) && !a->wire.broken && poll(&p, 1, 1000) > 0)
        wire_flush(&a->wire);
}

/* Serve as meeting point: listen, and say under which addresses. */
static bool offer_meeting(struct agent *a)
{
    char err[300];
    int port = 0;
    size_t bytes = 0;
    a->listen_fd = meet_listen(a->job.port, &port, err, sizeof err);
    if (a->listen_fd < 0) {
        give_up(a, err);
        return false;
    }
    a->master_port = meet_free_port();
    char *list = meet_addresses(port, a->job.nhosts == 1, &bytes);
    uint32_t master = (uint32_t)a->master_port;
    wire_send(&a->wire, FRAME_ADDRESSES, &master, sizeof master, list, bytes);
    free(list);
    return true;
}

static bool receive_job(struct agent *a)
{
    enum run_frame type;
    const char *body;
    size_t bytes;
    while (!a->go && next_frame(&a->wire, &type, &body, &bytes)) {
        if (type == FRAME_SECRET && bytes == RUN_SECRET_CHARS) {
            memcpy(a->secret, body, bytes);
        } else if (type == FRAME_JOB) {
            if (!run_job_decode(&a->job, body, bytes)) {
                give_up(a, "the job description is not one this version understands; install the same unisono on all hosts");
                return false;
            }
            if (a->job.first == 0 && !offer_meeting(a))
                return false;
        } else if (type == FRAME_GO && bytes > sizeof(uint32_t) && body[bytes - 1] == 0) {
            uint32_t master;
            memcpy(&master, body, sizeof master);
            a->master_port = (int)master;
            a->ngo = bytes - sizeof master;
            a->go = malloc(a->ngo);
            if (!a->go)
                return false;
            memcpy(a->go, body + sizeof master, a->ngo);
        } else if (type == FRAME_SIGNAL) {
            return false; /* ended before it began */
        }
    }
    memcpy(a->job.secret, a->secret, sizeof a->secret);
    return a->go != NULL && a->secret[0];
}

static void show_binding(struct agent *a, const struct run_binding *b)
{
    char text[500];
    for (int i = 0; i < a->job.n; i++) {
        uint32_t rank = (uint32_t)(a->job.first + i);
        binding_text(b, i, text, sizeof text);
        wire_send(&a->wire, FRAME_BOUND, &rank, sizeof rank, text, strlen(text));
    }
}

static void work(struct agent *a)
{
    char err[600];
    const char *addr = meet_choose(a->go, a->ngo, a->job.nhosts == 1, err, sizeof err);
    if (!addr) {
        give_up(a, err);
        return;
    }
    struct run_binding *binding = binding_new(a->job.bind, a->job.n);
    if (a->job.show_bind)
        show_binding(a, binding);
    struct run_team *team = team_start(&a->wire, &a->job, addr, a->listen_fd, a->master_port, binding);
    if (team) {
        if (a->listen_fd >= 0) { /* rank 0's alone: when it ends, nobody must queue at a dead door */
            close(a->listen_fd);
            a->listen_fd = -1;
        }
        team_walk(team);
        team_free(team);
    } else {
        give_up(a, "no memory");
    }
    binding_free(binding);
}

int agent_run(int in, int out)
{
    struct agent a = {.listen_fd = -1};
    signal(SIGPIPE, SIG_IGN);
    procs_adopt();
    wire_init(&a.wire, in, out);
    if (receive_job(&a))
        work(&a);
    if (a.listen_fd >= 0)
        close(a.listen_fd);
    free(a.go);
    run_job_free(&a.job);
    wire_close(&a.wire);
    return 0;
}

int agent_remote(void)
{
    if (write(1, RUN_MAGIC, sizeof RUN_MAGIC - 1) < 0)
        return 2;
    /* The ranks' own descriptors 0 and 1 must not be the wire. */
    int in = fcntl(0, F_DUPFD_CLOEXEC, 10), out = fcntl(1, F_DUPFD_CLOEXEC, 10), null = open("/dev/null", O_RDWR);
    dup2(null, 0);
    dup2(null, 1);
    procs_adopt();
    pid_t worker = fork();
    if (worker == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        setpgid(0, 0);
        return agent_run(in, out);
    }
    close(in);
    close(out);
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    int status = 0;
    waitpid(worker, &status, 0);
    procs_end_descendants(0, NULL, 0); /* nothing, unless the worker was killed */
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); /* as a shell: it passes through remote ones */
}
