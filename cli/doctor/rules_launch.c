/* SPDX-License-Identifier: Apache-2.0 */
/* rules_launch.c - too many or too few processes, ports that are taken, several ranks on one GPU. */
#include <stdlib.h>
#include <string.h>

#include "rule.h"

/* ---- scripts ------------------------------------------------------------------------------------------------------------------------------ */

static const struct fact *option_of(const struct model *m, int64_t command, const char *file, const char *const *names)
{
    EACH_FACT(m, F_LAUNCH_OPTION, o)
        for (int i = 0; names[i]; i++)
            if (o->a == command && o->file == file && same_text(o->name, names[i]))
                return o;
    return NULL;
}

static const char *const NPROC[] = {"nproc_per_node", "nproc-per-node", NULL};
static const char *const NODE_RANK[] = {"node_rank", "node-rank", "machine_rank", NULL};
static const char *const TASKS[] = {"ntasks-per-node", "tasks-per-node", NULL};

static const struct fact *launcher_number(const struct model *m, int64_t number, const char *file)
{
    EACH_FACT(m, F_LAUNCHER, l)
        if (l->a == number && l->file == file)
            return l;
    return NULL;
}

/* Tasks that srun starts on a node: its own option, else the script's. */
static const struct fact *tasks_of(const struct model *m, const struct fact *srun, const char *file)
{
    const struct fact *o = srun ? option_of(m, srun->a, file, TASKS) : NULL;
    if (o)
        return o;
    EACH_FACT(m, F_BATCH, b)
        if (b->file == file && (same_text(b->name, TASKS[0]) || same_text(b->name, TASKS[1])))
            return b;
    return NULL;
}

static bool expanded_too_early(const struct fact *rank, const struct fact *srun)
{
    return rank && srun && !rank->b && strchr(rank->value, '$') && (has(rank->value, "SLURM_PROCID") || has(rank->value, "SLURM_NODEID") || has(rank->value, "SLURM_LOCALID"));
}

void rule_launchers_multiply(struct judge *j)
{
    EACH_FACT(j->m, F_LAUNCHER, t) {
        const struct fact *srun = same_text(t->name, "torchrun") && t->b != NOBODY ? launcher_number(j->m, t->b, t->file) : NULL;
        if (!srun || !same_text(srun->name, "srun"))
            continue;
        const struct fact *tasks = tasks_of(j->m, srun, t->file), *nproc = option_of(j->m, t->a, t->file, NPROC), *rank = option_of(j->m, t->a, t->file, NODE_RANK);
        long launchers = tasks ? strtol(tasks->value, NULL, 10) : 1, workers = nproc ? strtol(nproc->value, NULL, 10) : 1;
        bool many = launchers > 1 && workers > 1, early = expanded_too_early(rank, srun), wrong = rank && has(rank->value, "SLURM_PROCID");
        if (!many && !early)
            continue;
        struct finding *f = many ? find(j, CAUSE + 10, 0.95, "srun starts %ld launchers on each node (ntasks-per-node=%ld), and each starts %ld workers: %ld where %ld are wanted", launchers, launchers, workers, launchers * workers, workers)
                                 : find(j, CAUSE + 5, 0.85, "%s=%s is expanded by the batch script, not by the tasks: it is the same on every node", rank->name, rank->value);
        explain(j, f, "torchrun is itself a launcher: one of it belongs on each node, --ntasks-per-node=1.");
        if (early && many)
            explain(j, f, "%s=%s is expanded by the batch script, not by the tasks, so it is the same everywhere.", rank->name, rank->value);
        if (wrong)
            explain(j, f, "SLURM_PROCID counts tasks, not nodes; node_rank is SLURM_NODEID.");
        const struct fact *taken = first_of(j->m, F_PORT_TAKEN);
        if (taken) {
            consequence(j, f, "port %lld is 'already in use': by the other launchers of the same node; another port cannot help", (long long)taken->a);
            evidence(f, taken);
        }
        evidence(f, tasks);
        evidence(f, nproc);
        evidence(f, rank);
        remedy(j, f, "`#SBATCH --ntasks-per-node=1`, and: `srun bash -c 'torchrun --nproc_per_node %ld --nnodes $SLURM_JOB_NUM_NODES --node_rank $SLURM_NODEID --master_addr '\"$MASTER_ADDR\"' ...'`", workers);
        remedy(j, f, "or without node_rank: `--rdzv_backend c10d --rdzv_endpoint $MASTER_ADDR:$MASTER_PORT`");
        return;
    }
}

/* A loop that starts servers in the background, each of which wants all the GPUs. */
void rule_servers_multiply(struct judge *j)
{
    static const char *const WIDTH[] = {"tensor-parallel-size", "tensor_parallel_size", "tp", "tp-size", "nproc_per_node", "nproc-per-node", NULL}, *const PORT[] = {"port", "master_port", "master-port", "rdzv_endpoint", NULL};
    EACH_FACT(j->m, F_LAUNCHER, l) {
        const struct fact *loop = NULL, *width = option_of(j->m, l->a, l->file, WIDTH);
        EACH_FACT(j->m, F_LOOP, p)
            if (l->d && p->file == l->file && p->a == l->d)
                loop = p;
        long each = width ? strtol(width->value, NULL, 10) : 0;
        if (!loop || !l->c || loop->b < 2 || each < 2)
            continue;
        const struct fact *port = option_of(j->m, l->a, l->file, PORT);
        struct finding *f = find(j, CAUSE + 10, 0.9, "%lld servers are started, and each asks for %ld GPUs (%s): %lld workers for %ld GPUs", (long long)loop->b, each, width->name, (long long)loop->b * each, each);
        explain(j, f, "%s %s starts its own workers, so one server is enough.", width->name, width->value);
        if (!port)
            explain(j, f, "None is given a port, so all want the same default port, and only the first gets it.");
        evidence(f, loop);
        evidence(f, l);
        evidence(f, width);
        remedy(j, f, "start one server, with `--%s %ld`; bind its workers, if at all, with the server's own options", width->name, each);
        remedy(j, f, "or %lld servers of one GPU each: `CUDA_VISIBLE_DEVICES=$%s %s ... --%s 1 --port $((8000+%s))`", (long long)loop->b, loop->name, l->name, width->name, loop->name);
        return;
    }
}

/* ---- how many have come --------------------------------------------------------------------------------------------------------------------- */

void rule_store_count(struct judge *j)
{
    const struct fact *s = NULL;
    struct ranks joined = {0}, missing = {0};
    EACH_FACT(j->m, F_STORE_JOIN, k)
        if (k->b != k->a && (!s || same_text(k->extra, "timed out") || (!same_text(s->extra, "timed out") && k->b > s->b)))
            s = k;
    if (!s)
        return;
    EACH_FACT(j->m, F_STORE_JOIN, k)
        if (k->b == k->a)
            return; /* later all had come */
    bool too_many = s->b > s->a;
    EACH_FACT(j->m, F_STORE_JOIN, k)
        ranks_add(j->m, &joined, k->rank);
    for (int r = 0; joined.n == s->b && r < s->a && r < 1 << 16; r++)
        if (!ranks_has(&joined, r))
            ranks_add(j->m, &missing, r);
    struct finding *f = too_many ? find(j, CAUSE, 0.9, "%lld processes joined a group of %lld ranks: every task starts workers of its own", (long long)s->b, (long long)s->a)
                                 : find(j, CAUSE - 5, 0.85, "Only %lld of %lld ranks have joined%s%s", (long long)s->b, (long long)s->a, missing.n ? model_say(j->m, " (%s): %s", ranks_numbers(j->m, &joined), ranks_say(j->m, &missing)) : "", missing.n ? " never came" : "");
    if (too_many)
        explain(j, f, "The launcher starts the tasks and the program starts (spawns) processes again inside each: tasks times GPUs, and ranks are taken twice.");
    else
        explain(j, f, "%s never started, or cannot reach the store. The others wait in a barrier of the store, before any GPU is used.", missing.n ? "They" : "The missing ones");
    evidence_all(j, f, F_STORE_JOIN);
    EACH_FACT(j->m, F_LAUNCHER, l) {
        evidence(f, l);
        break;
    }
    if (too_many) {
        remedy(j, f, "start one task a node if the program spawns (`srun --ntasks-per-node=1`), or one task a GPU and do not spawn");
    } else {
        remedy(j, f, "count the tasks of each host (`srun hostname | sort | uniq -c`), and read the first lines of those that are missing");
        remedy(j, f, "from a missing host: `nc -zv $MASTER_ADDR $MASTER_PORT`");
    }
}

void rule_port_taken(struct judge *j)
{
    const struct fact *p = first_of(j->m, F_PORT_TAKEN);
    if (!p)
        return;
    struct finding *f = find(j, LIKELY - 5, 0.7, "Port %lld is taken%s%s: another job or a process left behind holds it, or two launchers of this job run on one host", (long long)p->a, *p->host ? " on " : "", p->host);
    if (*p->name)
        explain(j, f, "%s cannot listen there, so a process of the program (an engine, a worker) ends before it has begun; what the store reports then is that this one is gone.", p->name);
    else
        explain(j, f, "The store of rank 0 cannot listen, so nobody can join.");
    evidence(f, p);
    if (*p->name)
        remedy(j, f, "`ss -ltnp 'sport = :%lld'` says who holds it; end that, or let the program choose another port", (long long)p->a);
    else
        remedy(j, f, "`ss -ltnp 'sport = :%lld'` says who holds it; end that, or choose another MASTER_PORT (0 with --rdzv_backend c10d takes a free one)", (long long)p->a);
    remedy(j, f, "if it is the same with every port: count the launchers on a node: `pgrep -fc torchrun`");
}

void rule_rank_twice(struct judge *j)
{
    const struct fact *s = first_of(j->m, F_SAME_RANK);
    if (!s)
        return;
    struct finding *f = find(j, CAUSE, 0.9, "Two processes claim rank %d of %lld", s->rank, (long long)s->a);
    explain(j, f, "RANK (or what it is computed from) is the same in both: node_rank is not passed on, or two copies of the job use one id.");
    evidence(f, s);
    remedy(j, f, "print them where the ranks run: `srun --label bash -c 'echo $(hostname) RANK=$RANK LOCAL_RANK=$LOCAL_RANK NODE_RANK=$NODE_RANK'`");
}

/* A benchmark without MPI: every process is a rank 0 of its own. */
void rule_bench_alone(struct judge *j)
{
    int zero = 0, other = 0;
    const struct fact *one = NULL;
    EACH_FACT(j->m, F_BENCH_RANK, r) {
        zero += r->rank == 0;
        other += r->rank != 0;
        one = one ? one : r;
    }
    if (zero < 2 || other)
        return;
    struct finding *f = find(j, CAUSE, 0.9, "%d processes each measure alone: all say 'Rank 0'", zero);
    explain(j, f, "The program was built without MPI, so mpirun only starts it several times.");
    evidence(f, one);
    remedy(j, f, "`make MPI=1 MPI_HOME=...` in nccl-tests (rccl-tests: `./install.sh --mpi`), or one process with -g %d", zero);
}

/* ---- several ranks on one GPU ------------------------------------------------------------------------------------------------------------------ */

static int visible_devices(const struct model *m, const struct fact **said)
{
    static const char *const names[] = {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"};
    for (int i = 0; i < 3; i++) {
        const struct fact *s = setting_of(m, names[i]);
        if (!s || !*s->value)
            continue;
        int n = 1;
        for (const char *p = s->value; *p; p++)
            n += *p == ',';
        *said = s;
        return n;
    }
    return 0;
}

void rule_same_gpu(struct judge *j)
{
    const struct fact *g = first_of(j->m, F_SAME_GPU), *visible = NULL;
    if (!g)
        return;
    struct ranks on = {0};
    EACH_FACT(j->m, F_SAME_GPU, k)
        if (same_text(k->name, g->name)) {
            ranks_add(j->m, &on, k->rank);
            ranks_add(j->m, &on, k->peer);
        }
    int devices = visible_devices(j->m, &visible);
    const struct fact *local = setting_of(j->m, "LOCAL_RANK");
    bool enough = devices > 1 && devices >= on.n;
    struct finding *f = find(j, CAUSE + 5, 0.9, "%s%s use one GPU%s%s", on.n ? Ranks_say(j->m, &on) : "Several ranks", on.n ? " all" : "", *g->name ? ", at bus " : "", g->name);
    if (enough)
        explain(j, f, "%d GPUs are visible to each, so it is no shortage: the program never called set_device(LOCAL_RANK) and stays on device 0.", devices);
    else
        explain(j, f, "Either the program never called set_device(LOCAL_RANK), so all stay on device 0, or there are more ranks on the host than GPUs, or the launcher shows every rank the same single GPU.");
    evidence_all(j, f, F_SAME_GPU);
    evidence(f, visible);
    evidence(f, local);
    remedy(j, f, "`torch.cuda.set_device(int(os.environ['LOCAL_RANK']))` before the group is made (init_process_group(device_id=...) from 2.3 on)");
    if (!enough)
        remedy(j, f, "count: processes on the host against `nvidia-smi -L`; Slurm: `--gpus-per-task=1` with `--gpu-bind=none`, or --gpus-per-node");
}
