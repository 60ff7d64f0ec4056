/* SPDX-License-Identifier: Apache-2.0 */
/* rules_meet.c - ranks that do not come together: other numbers of ranks, an address that is nobody's or everybody's, an id that was never given, strangers. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "rule.h"

/* ---- how many there are, and who gives the id ------------------------------------------------------------------------------------------------ */

void rule_world_differs(struct judge *j)
{
    const struct fact *w = first_of(j->m, F_WORLD_DIFFERS);
    if (!w)
        return;
    struct finding *f = find(j, CAUSE, 0.9, "Processes of one job disagree on how many ranks there are: %lld and %lld", (long long)w->a, (long long)w->b);
    explain(j, f, "Whoever collects the ranks waits for its own number of them. WORLD_SIZE (or nranks) is another on some hosts, or two jobs meet at one address and port.");
    evidence(f, w);
    EACH_FACT(j->m, F_SETTING, s)
        if (same_text(s->name, "WORLD_SIZE"))
            evidence(f, s);
    remedy(j, f, "print it where the ranks run: `srun --label bash -c 'echo $(hostname) $RANK of $WORLD_SIZE, $MASTER_ADDR:$MASTER_PORT'`");
    remedy(j, f, "is an earlier job still there? `pgrep -af torchrun` on every host");
}

void rule_id_not_given(struct judge *j)
{
    const struct fact *n = first_of(j->m, F_NO_ID);
    struct ranks waiting = {0};
    if (!n)
        return;
    EACH_FACT(j->m, F_NO_ID, k)
        ranks_add(j->m, &waiting, k->rank);
    bool gone = has_nocase(n->name, "reset") || has_nocase(n->name, "refused") || has_nocase(n->name, "closed") || has_nocase(n->name, "broken pipe");
    struct finding *f = find(j, SYMPTOM + 9, 0.7, "Rank %d never gave the id of a communicator for which %s %s", n->peer, ranks_say(j->m, &waiting), ranks_verb(&waiting, "waits", "wait"));
    explain(j, f, gone ? "The store itself ended while they waited (%s), so the process that kept it, rank 0 or the launcher, went first." : "It did not come to the first operation of that group (%s): it is in user code, failed before, or uses another group first.", n->name);
    evidence_all(j, f, F_NO_ID);
    remedy(j, f, "look at rank %d: its own log, and `py-spy dump --pid PID` on its host", n->peer);
}

/* ---- NCCL_COMM_ID ------------------------------------------------------------------------------------------------------------------------------- */

void rule_comm_id(struct judge *j)
{
    const struct fact *b = first_of(j->m, F_BIND_FAILED), *set = setting_of(j->m, "NCCL_COMM_ID");
    if (!b || (!set && !same_text(b->name, "format") && !has(b->name, "Cannot assign")))
        return;
    bool format = same_text(b->name, "format");
    struct finding *f = format ? find(j, CAUSE, 0.9, "NCCL_COMM_ID%s%s is no address and port", set ? "=" : "", set ? set->value : "")
                               : find(j, CAUSE - 5, set ? 0.85 : 0.6, "%s cannot listen at %s: %s", Who_says(j->m, b), set ? model_say(j->m, "NCCL_COMM_ID=%s", set->value) : "the address that it was given", b->name);
    explain(j, f, "NCCL_COMM_ID is the address at which rank 0 listens and which all others connect to: it must be an address of rank 0's own host (in a container: of that container), and the same on every rank. Frameworks make the id themselves and need none.");
    evidence(f, b);
    evidence(f, set);
    remedy(j, f, "`unset NCCL_COMM_ID`, or one that `ip -br addr` lists where rank 0 runs: `export NCCL_COMM_ID=ADDRESS:PORT`");
}

/* ---- addresses ------------------------------------------------------------------------------------------------------------------------------------ */

void rule_mpi_address(struct judge *j)
{
    const struct fact *u = NULL;
    EACH_FACT(j->m, F_UNEXPECTED_PEER, k)
        u = !u || (!*u->value && *k->value) ? k : u;
    if (!u)
        return;
    struct finding *f = find(j, LIKELY + 3, 0.85, "Open MPI was called from an address%s%s that it does not know as one of the job's: hosts share a private network", *u->value ? ", " : "", u->value);
    explain(j, f, "A bridge of libvirt or Docker has the same address on every host, so MPI takes it for a way between them; messages go to the own host, and the job stops at the first one.");
    evidence_all(j, f, F_UNEXPECTED_PEER);
    remedy(j, f, "leave it out: `mpirun --mca btl_tcp_if_exclude lo,docker0,virbr0 --mca oob_tcp_if_exclude lo,docker0,virbr0 ...`, or name the network: `mpirun --mca btl_tcp_if_include 10.0.0.0/24 ...`");
}

void rule_one_address(struct judge *j)
{
    const struct fact *a = first_of(j->m, F_ONE_ADDRESS);
    if (!a)
        return;
    struct finding *f = find(j, CAUSE, 0.9, "%lld nodes have %lld address%s between them: each must offer its own", (long long)a->a, (long long)a->b, a->b == 1 ? "" : "es");
    explain(j, f, "The server asks each node for its address by the route to the internet (or takes VLLM_HOST_IP), Ray knows another; containers on one bridge, or one variable for all nodes, give the same to several.");
    evidence(f, a);
    EACH_FACT(j->m, F_SETTING, s)
        if (same_text(s->name, "VLLM_HOST_IP"))
            evidence(f, s);
    remedy(j, f, "on each node its own: `export VLLM_HOST_IP=ADDRESS NCCL_SOCKET_IFNAME==NAME GLOO_SOCKET_IFNAME=NAME` before `ray start`; `ip -br addr` lists them");
}

void rule_families(struct judge *j)
{
    const struct fact *x = first_of(j->m, F_FAMILIES);
    if (!x)
        return;
    struct finding *f = find(j, CAUSE, 0.9, "One rank offers an %s address to Gloo, another an %s one", x->a == 10 ? "IPv6" : "IPv4", x->b == 10 ? "IPv6" : "IPv4");
    explain(j, f, "Each takes the first address that its own host's name leads to, and name services order IPv4 and IPv6 differently.");
    evidence(f, x);
    remedy(j, f, "name the interface on all hosts: `export GLOO_SOCKET_IFNAME=NAME`; `getent ahosts $(hostname)` shows what the name leads to there");
}

void rule_unconnected(struct judge *j)
{
    struct ranks alone = {0}, missed = {0};
    const struct fact *one = first_of(j->m, F_UNCONNECTED);
    if (!one)
        return;
    EACH_FACT(j->m, F_UNCONNECTED, u) {
        ranks_add(j->m, &alone, u->rank);
        ranks_add_list(j->m, &missed, u->name);
    }
    struct finding *f = find(j, LIKELY - 10, 0.7, "Gloo's connections between %s and %s are not made", ranks_say(j->m, &alone), ranks_say(j->m, &missed));
    explain(j, f, "Every rank connects to every other; those that are listed have not come, or their address is not reached from there.");
    evidence_all(j, f, F_UNCONNECTED);
    remedy(j, f, "are they running, and do the two hosts reach each other? `unisono doctor --hosts HOST,HOST`; `nc -zv HOST PORT` tries one port");
}

/* The host's name up to its first dot. */
static bool same_host(const char *a, const char *b)
{
    size_t n = strcspn(a, ".");
    return n && n == strcspn(b, ".") && strncasecmp(a, b, n) == 0;
}

/* Who listens at MASTER_ADDR is rank 0. */
void rule_master_elsewhere(struct judge *j)
{
    const struct fact *master = setting_of(j->m, "MASTER_ADDR"), *first = NULL, *there = NULL;
    EACH_FACT(j->m, F_SETTING, s) {
        if (!same_text(s->name, "RANK") || !*s->host || !master)
            continue;
        if (same_text(s->value, "0"))
            first = first ? first : s;
        else if (same_host(master->value, s->host) && isdigit((unsigned char)s->value[0]))
            there = there ? there : s;
    }
    EACH_FACT(j->m, F_SETTING, s) /* several ranks a host: rank 0 is among those of MASTER_ADDR */
        if (first && same_text(s->name, "RANK") && same_text(s->value, "0") && same_host(master->value, s->host))
            return;
    if (!first || !there)
        return;
    struct finding *f = find(j, LIKELY + 5, 0.85, "MASTER_ADDR names %s, and rank 0 runs on %s", master->value, first->host);
    explain(j, f, "The store is made by rank 0, so nobody listens where all others connect. A rendezvous gives out ranks in the order of coming, and a short name and a full one are two hosts to it.");
    evidence(f, master);
    evidence(f, first);
    evidence(f, there);
    remedy(j, f, "let the ranks follow the list of hosts: `torchrun --node_rank=$SLURM_NODEID --master_addr=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -1) ...` in the task itself");
}

/* ---- others --------------------------------------------------------------------------------------------------------------------------------------------- */

/* Whoever connects without the job's word is told apart and sent away; the job goes on, unless it was one of its own. */
void rule_stranger(struct judge *j)
{
    const struct fact *s = first_of(j->m, F_MAGIC), *own = NULL;
    if (!s)
        return;
    EACH_FACT(j->m, F_BOOTSTRAP, b)
        if (*s->value && same_text(b->value, s->value))
            own = own ? own : b;
    struct finding *f = find(j, own ? SYMPTOM + 4 : ADVICE + 4, own ? 0.65 : 0.5, "Somebody at %s who is no rank of this communicator connected to a rank%s", *s->value ? s->value : "an unknown address", own ? ", from a host of this job" : "");
    explain(j, f, own ? "Ranks of another job, or of an earlier run that did not end, go to the same address and port." : "A port scanner of the site does that, and the library sends it away: then it means nothing. So do ranks of another job with the same address and port.");
    evidence(f, s);
    evidence(f, own);
    remedy(j, f, "on that host: `pgrep -af 'python|torchrun'` for what is left of an earlier run; another MASTER_PORT for each job");
}

void rule_no_slots(struct judge *j)
{
    const struct fact *n = first_of(j->m, F_NO_SLOTS);
    if (!n)
        return;
    if (*n->value) {
        struct finding *f = find(j, CAUSE, 0.9, "%s cannot give what the job asks for: %s", n->value, has(n->text, "node configuration") ? "no node of the partition is like that" : "more tasks or processors than were allocated");
        explain(j, f, "A step may ask for no more than its job was given: tasks times processors of a task, GPUs a node, hyperthreads counted or not.");
        evidence(f, n);
        remedy(j, f, "what there is: `sinfo -N -o '%%N %%c %%m %%G'`; what the job was given: `scontrol show job $SLURM_JOB_ID | grep -E 'NumTasks|TRES|CPUs/Task'`; then fit `#SBATCH --ntasks-per-node=1 --cpus-per-task=64 --gpus-per-node=8` to it");
        return;
    }
    struct finding *f = find(j, CAUSE, 0.95, "mpirun has no room for %s%s", n->a ? model_say(j->m, "%lld", (long long)n->a) : "the", n->a ? " ranks" : " ranks that were asked for");
    explain(j, f, "Slots are what the list of hosts or the batch system gives, else the cores of each host (not its hardware threads, and not its GPUs).");
    evidence(f, n);
    remedy(j, f, "say how many each host takes: `mpirun --host n1:8,n2:8 -np 16 ...`, or `#SBATCH --ntasks-per-node=8`; `--map-by :OVERSUBSCRIBE` where more than cores are meant");
}
