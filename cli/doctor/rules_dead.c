/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules_dead.c - a rank that ended, and how: by the kernel, by an error of its own, in its last words. What others print about it (broken
 * pipe, store errors, their own abort) is never the cause.
 */
#include <stdlib.h>
#include <string.h>

#include "scene.h"

static void tell_victims(struct judge *j, struct finding *f)
{
    EACH_FACT(j->m, F_CONNECT, c)
        if (same_text(c->extra, "receive") || same_text(c->extra, "send")) {
            consequence(j, f, "%s lost its connection to %s (%s): secondary", who_says(j->m, c), c->value, c->name);
            evidence(f, c);
            break;
        }
    EACH_FACT(j->m, F_PEER_CLOSED, p) {
        consequence(j, f, "%s saw its connection to %s closed: secondary", who_says(j->m, p), p->value);
        evidence(f, p);
        break;
    }
    EACH_FACT(j->m, F_WATCHDOG, w) {
        consequence(j, f, "rank %d waited for it until its time-out", w->rank);
        break;
    }
}

/* ---- memory ----------------------------------------------------------------------------------------------------------------------- */

void rule_killed_for_memory(struct judge *j)
{
    const struct fact *k = first_of(j->m, F_KILLED);
    if (!k)
        return;
    int rank = rank_of(j->m, k->host, k->pid, NOBODY);
    const char *cgroup = NULL;
    EACH_FACT(j->m, F_KILLED, f)
        if (f->pid == k->pid && same_text(f->value, "cgroup"))
            cgroup = f->value;
    const char *process = k->pid == NOBODY ? "a process of the job" : model_say(j->m, "process %lld", (long long)k->pid);
    bool ray = same_text(k->value, "Ray");
    struct finding *f = find(j, CAUSE + 10, 0.95, "%s killed %s%s%s%s%s because memory ran out", ray ? "Ray's memory monitor" : "The kernel", process, rank != NOBODY ? model_say(j->m, " (rank %d)", rank) : *k->name ? model_say(j->m, " (%s)", k->name) : "",
                             *k->host ? " on " : "", k->host, cgroup ? " in its cgroup" : "");
    if (ray)
        explain(j, f, "It ends workers when the memory of a node is used beyond its threshold (0.95 of it), before the kernel would; that is host memory, not that of the GPU.");
    else
        explain(j, f, "The out-of-memory killer acts on host memory%s, not on that of the GPU: data loaders, pinned buffers, a checkpoint in memory.", cgroup ? ", and on the limit of a container or job" : "");
    evidence_all(j, f, F_KILLED);
    tell_victims(j, f);
    if (ray)
        remedy(j, f, "give each task less to hold or fewer tasks a node (num_cpus=, memory= of ray.remote), or set where it acts: `RAY_memory_usage_threshold=0.98 ray start --address=HEAD:6379`; who takes it: `ps -eo pid,rss,args --sort=-rss | head`");
    else if (cgroup)
        remedy(j, f, "raise the memory limit of the job or pod (`sbatch --mem=0 ...` is all of a node; `kubectl set resources deployment NAME --limits=memory=64Gi`; what it took: `sacct -j JOB --format=JobID,ReqMem,MaxRSS`), or use less: fewer data-loader workers, no second copy of the weights");
    else
        remedy(j, f, "use less host memory a node: fewer data-loader workers, offload less, fewer ranks; who takes it: `free -g`, `ps -eo pid,rss,args --sort=-rss | head`");
}

/* ---- a GPU call fails while others wait in the same initialisation ------------------------------------------------------------------ */

static void who_waits_in_init(struct judge *j, struct finding *f, int rank)
{
    struct ranks waiting = {0};
    EACH_FACT(j->m, F_INIT, s) {
        if (s->b || s->rank == rank)
            continue;
        bool done = false;
        EACH_FACT(j->m, F_INIT, e)
            done = done || (e->b && e->rank == s->rank && same_text(e->name, s->name));
        if (!done)
            ranks_add(j->m, &waiting, s->rank);
    }
    if (waiting.n)
        consequence(j, f, "%s printed Init START and no COMPLETE: %s for it, without a limit", ranks_say(j->m, &waiting), waiting.n == 1 ? "it waits" : "they wait");
}

static bool is_memory(const char *words)
{
    return has_nocase(words, "out of memory") || has(words, "hipErrorOutOfMemory");
}

/* The library registers a segment of /dev/shm with the GPU; what cannot be backed is an invalid argument. */
bool is_of_shared_memory(const struct fact *g)
{
    return has(g->extra, "shm") && has(g->name, "invalid argument");
}

void rule_gpu_call_failed(struct judge *j)
{
    EACH_FACT(j->m, F_GPU_FAILURE, g) {
        if (has(g->name, "not yet initialized") || has(g->name, "system not ready") || has(g->name, "peer mapping resources") || has(g->name, "peer access is not supported") || has(g->name, "device ordinal") || is_of_shared_memory(g)) /* other rules know these */
            continue;
        bool memory = is_memory(g->name);
        struct finding *f = find(j, CAUSE, memory ? 0.9 : 0.7, "%s failed: %s", Who_says(j->m, g),
                                 memory ? "its GPU is out of memory" : model_say(j->m, "a call to its GPU returned '%s'", g->name));
        explain(j, f, "The message is '%s'%s%s.", g->name, *g->extra ? ", at " : "", g->extra);
        if (memory)
            explain(j, f, "The library allocates its own buffers (some hundred MB a communicator) after the program has taken what it wants.");
        evidence(f, g);
        int64_t pid = g->pid;
        EACH_FACT(j->m, F_UNWOUND, u)
            if (u->pid == pid && pid != NOBODY)
                evidence(f, u);
        who_waits_in_init(j, f, rank_of(j->m, g->host, g->pid, g->dev));
        tell_victims(j, f);
        if (memory) {
            remedy(j, f, "leave the GPU some memory: a smaller batch, `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`, vLLM --gpu-memory-utilization lower; look for other processes: `nvidia-smi --query-compute-apps=pid,used_memory,name --format=csv`");
            remedy(j, f, "less a communicator, on all ranks alike: `export NCCL_BUFFSIZE=1048576 NCCL_MAX_NCHANNELS=8`");
        } else {
            remedy(j, f, "run that program alone on that GPU (`CUDA_LAUNCH_BLOCKING=1`), and look at `sudo dmesg -T | grep -iE 'xid|amdgpu'`");
        }
        return;
    }
}

void rule_exception_memory(struct judge *j)
{
    EACH_FACT(j->m, F_EXCEPTION, e)
        if (is_memory(e->value) || has(e->name, "OutOfMemory")) {
            struct finding *f = find(j, CAUSE, 0.9, "%s%s ran out of GPU memory in the program itself", *e->host || e->rank != NOBODY || e->pid != NOBODY ? Who_says(j->m, e) : "A rank", *e->extra ? model_say(j->m, " (at %s)", e->extra) : "");
            explain(j, f, "It raised %s; the others wait for a rank that is no longer there.", e->name);
            evidence(f, e);
            tell_victims(j, f);
            remedy(j, f, "a smaller batch or sequence, activation checkpointing, or sharding; `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` against fragments");
            return;
        }
}

/* ---- exits -------------------------------------------------------------------------------------------------------------------------- */

static const char *signal_says(int64_t code)
{
    switch (code) {
    case -9: case 137: return "killed (SIGKILL: the out-of-memory killer, or the batch system)";
    case -11: case 139: return "crashed (SIGSEGV)";
    case -7: case 135: return "crashed (SIGBUS: often a full /dev/shm)";
    case -4: case 132: return "crashed (SIGILL: built for another processor)";
    default: return NULL;
    }
}

/* What a rank's own end is worth: a signal of its own, then torchrun's root cause, then any exit code that is not the watchdog's abort. */
static int worth(const struct fact *e)
{
    if (signal_says(e->a))
        return 3;
    if (same_text(e->extra, "root"))
        return 2;
    return e->a != 0 && e->a != -6 && e->a != 134 && e->a != -15 && e->a != 143;
}

void rule_rank_exited(struct judge *j)
{
    const struct fact *best = NULL;
    EACH_FACT(j->m, F_EXIT, e)
        if (worth(e) && (!best || worth(e) > worth(best)))
            best = e;
    if (!best)
        return;
    const char *words = signal_says(best->a);
    struct finding *f = find(j, words ? CAUSE - 5 : LIKELY - 5, words ? 0.85 : 0.6, "%s %s", Who_says(j->m, best), words ? words : model_say(j->m, "ended with exit code %lld", (long long)best->a));
    if (same_text(best->extra, "root"))
        explain(j, f, "torchrun calls it the first failure; the others were ended because of it.");
    EACH_FACT(j->m, F_EXCEPTION, x)
        if (best->rank == NOBODY || x->rank == best->rank) {
            explain(j, f, "Its last words: %s: %s%s%s", x->name, x->value, *x->extra ? ", at " : "", x->extra);
            evidence(f, x);
            break;
        }
    evidence(f, best);
    tell_victims(j, f);
    remedy(j, f, best->a == -9 || best->a == 137 ? "on its host: `dmesg -T | grep -i -E 'killed process|oom'`; `sacct -j JOB --format=JobID,State,ExitCode,MaxRSS`" : "read that rank's own log, the other logs only follow: `grep -nE -m9 'Traceback|Error|NCCL WARN' FILE`");
}

/* Whoever gave the machine takes it back, and every rank's last words are about that. */
void rule_batch_ended(struct judge *j)
{
    static const struct { const char *reason, *says, *explain, *remedy; } kinds[] = {
        {"time limit", "its time limit was reached", "No rank failed: the job ran as long as it may. What ranks print after that is their end.", "ask for more, or write checkpoints in time: `sbatch --time=24:00:00 --signal=B:USR1@600 job.sh`; what it had: `sacct -j JOB --format=JobID,Timelimit,Elapsed,State`"},
        {"node failure", "a node failed", "The node stopped answering the batch system: power, network, kernel, or its own daemon; the other ranks lost theirs there.", "leave the node out, and see why: `sbatch --exclude=NODE job.sh`, `scontrol show node NODE | grep -E 'State|Reason'`"},
        {"preemption", "another job had the right to the nodes", "No rank failed: it was ended, or put back into the queue, for a job of higher priority.", "write checkpoints on the signal that comes before: `sbatch --requeue --signal=B:USR1@120 job.sh`"},
        {"eviction", "its node ran low on a resource", "Kubernetes evicts pods when memory or disk of the node run out, those above their requests first.", "request what it uses, and look at what was low: `kubectl describe pod POD | grep -A3 -i -E 'reason|message'`"},
        {"cancelled", "somebody cancelled it", "A user, an administrator or a dependency ended it; what ranks print after that is their end.", "who and when: `sacct -j JOB --format=JobID,State%30,End,User`"}};
    const struct fact *b = NULL;
    EACH_FACT(j->m, F_BATCH_ENDED, k)
        b = !b || (same_text(b->value, "cancelled") && !same_text(k->value, "cancelled")) ? k : b; /* a reason says more than none */
    if (!b)
        return;
    size_t k = 0;
    while (k + 1 < sizeof kinds / sizeof *kinds && !same_text(kinds[k].reason, b->value))
        k++;
    bool cancelled = same_text(b->value, "cancelled"); /* often since it hung already */
    struct finding *f = find(j, cancelled ? SYMPTOM + 1 : CAUSE + 8, cancelled ? 0.5 : 0.95, "The batch system ended %s%s%s: %s", *b->name ? b->name : "the job", *b->host ? " on " : "", b->host, kinds[k].says);
    explain(j, f, "%s", kinds[k].explain);
    if (same_text(b->value, "time limit") && fact_seen(j->m, F_WATCHDOG))
        explain(j, f, "Ranks had waited for each other before; whether the job stood until the limit came is for the other findings to say.");
    evidence_all(j, f, F_BATCH_ENDED);
    tell_victims(j, f);
    remedy_made(f, kinds[k].remedy);
}

/* ---- Gloo: who ended normally with something still to send --------------------------------------------------------------------------- */

void rule_closed_normally(struct judge *j)
{
    const struct fact *closed = NULL;
    EACH_FACT(j->m, F_PEER_CLOSED, p)
        if (!closed && same_text(p->more, "gloo"))
            closed = p;
    if (!closed)
        return;
    EACH_FACT(j->m, F_EXIT, e)
        if (e->a == 0 && e->rank != NOBODY && e->rank != closed->rank) {
            struct finding *f = find(j, CAUSE, 0.85, "Rank %d ended normally (exit 0) while rank %d still expected something from it: a send that was not waited for", e->rank, closed->rank);
            explain(j, f, "isend returns before the data are gone; when the process ends its sockets close, and the receiver reads 'connection closed by peer', which looks like a crash and is none.");
            evidence(f, e);
            evidence(f, closed);
            consequence(j, f, "rank %d: connection closed by peer %s", closed->rank, closed->value);
            remedy(j, f, "keep what isend returns and call wait() on it; end with a barrier and destroy_process_group()");
            return;
        }
}

/* ---- an exception of the program's own ------------------------------------------------------------------------------------------------ */

/* What a rank raises because another is gone, or what other rules read, is not its own. */
static bool is_secondary(const struct fact *e)
{
    static const char *const words[] = {"NCCL", "nccl", "gloo", "Gloo", "Detected mismatch", "store", "Store", "Timed out", "timed out", "timeout", "Connection", "connection", "EADDRINUSE", "socket", "memory", "barrier", "rendezvous",
                                        "Broken pipe", "process group", "root cause above", "not yet initialized"};
    static const char *const names[] = {"DistBackendError", "DistNetworkError", "DistStoreError", "DistError", "ChildFailedError", "OutOfMemory", "RendezvousError", "SignalException", "KeyboardInterrupt", "ProcessExitedException",
                                        "ray.exceptions.", "RayActorError", "RayTaskError", "TimeoutError", "BrokenPipeError", "ConnectionError"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (has(e->value, words[i]))
            return true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (has(e->name, names[i]))
            return true;
    return false;
}

void rule_exception(struct judge *j)
{
    const struct fact *first = NULL;
    struct ranks raised = {0};
    EACH_FACT(j->m, F_EXCEPTION, e)
        if (!is_secondary(e)) {
            first = !first || (e->time_s > 0 && first->time_s > 0 && e->time_s < first->time_s) ? e : first;
            ranks_add(j->m, &raised, e->rank);
        }
    if (!first)
        return;
    bool waited = fact_seen(j->m, F_WATCHDOG) || fact_seen(j->m, F_PEER_CLOSED) || fact_seen(j->m, F_CONNECT) || fact_seen(j->m, F_EXIT) || fact_seen(j->m, F_OP);
    const char *who = raised.n ? Ranks_say(j->m, &raised) : "A rank";
    struct finding *f = find(j, waited ? CAUSE - 10 : LIKELY - 5, waited ? 0.8 : 0.65, "%s ended with %s%s%s", who, first->name, *first->extra ? " at " : "", first->extra);
    explain(j, f, "It says: %s. What the others report comes after it: they wait for a rank that is no longer there.", first->value);
    evidence(f, first);
    tell_victims(j, f);
    remedy(j, f, "correct what raises it%s%s; let the process end at once (no handler that goes on), so that the others are told", *first->more ? " in " : "", first->more);
}

/* ---- a warning of the library that no rule knows ------------------------------------------------------------------------------------------ */

void rule_call_failed(struct judge *j)
{
    EACH_FACT(j->m, F_WARNED, w)
        EACH_FACT(j->m, F_UNWOUND, u) {
            if (u->pid != w->pid || !same_text(u->host, w->host) || u->order < w->order)
                continue;
            static const char *const codes[] = {"success", "a CUDA or HIP call failed", "a system call failed", "internal error", "invalid argument", "invalid usage", "a remote process or the network failed", "in progress", "time-out"};
            struct finding *f = find(j, SYMPTOM + 2, 0.5, "%s failed (%s) after the warning: %s", Who_says(j->m, w), codes[u->a < 9 ? u->a : 3], w->name);
            explain(j, f, "The first warning above lines of the form 'file:line -> %lld' is the cause, these lines are only its way up.", (long long)u->a);
            evidence(f, w);
            evidence(f, u);
            remedy(j, f, "run it again with `NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,ENV` and read what that process prints before this line");
            return;
        }
}

/* Somebody's connection broke, and nothing in the input says why. */
void rule_connection_lost(struct judge *j)
{
    const struct fact *first = NULL;
    EACH_FACT(j->m, F_CONNECT, c)
        if (!same_text(c->extra, "connect") && !same_text(c->extra, "choose") && (!first || (c->time_s > 0 && c->time_s < first->time_s)))
            first = c;
    EACH_FACT(j->m, F_PEER_CLOSED, p)
        if (!first)
            first = p;
    if (!first)
        return;
    bool store = same_text(first->more, "c10d");
    struct finding *f = find(j, SYMPTOM, store ? 0.4 : 0.5, "The process at %s is gone%s: %s read '%s' from it", first->value, store ? " (it kept the store, so it is rank 0 or the launcher)" : "", who_says(j->m, first), first->name);
    explain(j, f, "This line is written by a survivor. The cause is in the log of the process at %s, which says it earlier, or in its host's kernel log.", first->value);
    evidence(f, first);
    remedy(j, f, "read the log of the rank at %s, and there: `dmesg -T | tail -50`", first->value);
}

/* ---- the host thread, the GPU's own messages -------------------------------------------------------------------------------------------- */

void rule_host_blocked(struct judge *j)
{
    struct ranks stuck = {0};
    EACH_FACT(j->m, F_HEARTBEAT, h)
        ranks_add(j->m, &stuck, h->rank);
    if (!stuck.n)
        return;
    const struct fact *h = first_of(j->m, F_HEARTBEAT);
    struct ranks waiting = {0};
    EACH_FACT(j->m, F_WATCHDOG, w)
        if (!ranks_has(&stuck, w->rank))
            ranks_add(j->m, &waiting, w->rank);
    bool few = waiting.n > stuck.n; /* then they are who the others wait for, and this says why they never came */
    struct finding *f = find(j, few ? LIKELY + 12 : LIKELY + 5, few ? 0.85 : 0.75, "%s: the process itself stood still for %lld s; its watchdog thread could not run", Ranks_say(j->m, &stuck), (long long)h->a);
    explain(j, f, "That is no slow collective: a thread holds Python's GIL, or a CUDA call or the driver does not return.");
    evidence_all(j, f, F_HEARTBEAT);
    if (few)
        consequence(j, f, "%s %s for %s until their time-out", ranks_say(j->m, &waiting), ranks_verb(&waiting, "waited", "waited"), ranks_say(j->m, &stuck));
    remedy(j, f, "`py-spy dump --native --pid PID` on that rank's host; `TORCH_INCLUDE_STACK_TRACE=0` if the dump itself needs the GIL; look for D-state processes and dmesg");
}

void rule_process_stopped(struct judge *j)
{
    static const struct { const char *name, *says[2], *remedy[4]; } kinds[] = {
        {"stopped", {"is stopped: it was sent SIGSTOP or SIGTSTP", "are stopped: they were sent SIGSTOP or SIGTSTP"}, {"let it go on: ", "kill -CONT ", "", " on its host"}},
        {"traced", {"is held by a debugger", "are held by a debugger"}, {"detach or end the debugger; this shows its pid: ", "grep TracerPid /proc/", "/status", " on its host"}},
        {"frozen", {"is frozen: its cgroup's freezer holds it (a paused container, a suspended job)", "are frozen: their cgroup's freezer holds them (a paused container, a suspended job)"}, {"let it go on (docker unpause, scontrol resume); this names its cgroup: ", "ps -o cgroup= -p ", "", " on its host"}},
        {"zombie", {"has ended, and its parent has not collected it", "have ended, and their parents have not collected them"}, {"read its own log; this names its parent: ", "ps -o ppid= -p ", "", " on its host"}}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct ranks held = {0};
        const struct fact *one = NULL;
        EACH_FACT(j->m, F_PROCESS, p)
            if (same_text(p->name, kinds[k].name)) {
                ranks_add(j->m, &held, p->rank);
                one = one ? one : p;
            }
        if (!one)
            continue;
        struct finding *f = find(j, CAUSE + 5, 0.9, "%s %s", held.n > 1 ? Ranks_say(j->m, &held) : Who_says(j->m, one), kinds[k].says[held.n > 1]);
        explain(j, f, "It cannot take part in anything until it runs again, and whoever needs it waits.");
        if (*one->value)
            explain(j, f, "It was at %s.", one->value);
        EACH_FACT(j->m, F_PROCESS, p)
            if (same_text(p->name, kinds[k].name))
                evidence(f, p);
        tell_victims(j, f);
        remedy_made(f, model_say(j->m, "%s`%s%lld%s`%s", kinds[k].remedy[0], kinds[k].remedy[1], (long long)one->pid, kinds[k].remedy[2], kinds[k].remedy[3]));
        return;
    }
}

static const char *xid_says(int64_t xid)
{
    static const struct { int from, to; const char *words; } known[] = {{13, 13, "an illegal access or bad instruction of a kernel, or a bad GPU"}, {31, 31, "a memory page fault: usually the program's own"},
        {43, 43, "a channel stopped by an earlier error"}, {45, 45, "work removed after an earlier error: secondary"}, {48, 48, "a double-bit ECC error: the memory is bad"}, {61, 62, "an internal error of the GPU's micro-controller"},
        {63, 64, "a page of memory was retired"}, {74, 74, "an NVLink error"}, {79, 79, "the GPU has fallen off the bus: power, heat or a bad slot"}, {92, 92, "many single-bit ECC errors"}, {94, 95, "an ECC error that killed a program"},
        {109, 109, "a context switch that timed out"}, {119, 120, "the GPU's system processor does not answer"}, {143, 145, "an NVLink or fabric error"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (xid >= known[i].from && xid <= known[i].to)
            return known[i].words;
    return "an error of the GPU or its driver";
}

void rule_gpu_error_logged(struct judge *j)
{
    const struct fact *first = NULL;
    EACH_FACT(j->m, F_XID, x)
        if (x->a != 45 && x->a != 43 && x->a != 74 && x->a != 63 && x->a != 92 && (!first || (x->time_s > 0 && x->time_s < first->time_s)))
            first = x;
    if (!first)
        return;
    bool off = first->a == 79;
    struct finding *f = find(j, CAUSE + 5, 0.85, "The GPU at %s%s%s reported Xid %lld: %s", first->name, *first->host ? " of " : "", first->host, (long long)first->a, xid_says(first->a));
    evidence_all(j, f, F_XID);
    tell_victims(j, f);
    remedy(j, f, off || first->a == 48 || first->a >= 94 ? "take the GPU out of service: drain the host (`scontrol update nodename=NODE state=drain reason=xid`), reset or reboot it, run `dcgmi diag -r 3`; replace it if it happens again" : "run the job on another GPU (`CUDA_VISIBLE_DEVICES=1`); if the Xid follows the program, debug that (`compute-sanitizer ./program`), if it stays with the GPU, replace it");
}
