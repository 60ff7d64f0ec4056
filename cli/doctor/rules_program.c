/* SPDX-License-Identifier: Apache-2.0 */
/* rules_program.c - what a program says of itself: that nobody launched it, that it has no such GPU, that its model is another, or nothing but a code of
 * the library. */
#include <string.h>

#include "rule.h"

/* "environment variable MASTER_ADDR expected, but not set" */
void rule_not_launched(struct judge *j)
{
    EACH_FACT(j->m, F_EXCEPTION, e) {
        struct span name;
        if (!scan(e->value, "environment variable %w expected, but not set", &name))
            continue;
        struct finding *f = find(j, CAUSE - 8, 0.9, "%s was started without %.*s: by no launcher, or by one that does not set it", Who_says(j->m, e), (int)name.n, name.p);
        explain(j, f, "init_process_group(init_method='env://') reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. torchrun sets all four; srun and mpirun set names of their own.");
        evidence(f, e);
        remedy(j, f, "`torchrun --nproc_per_node=8 train.py`; or under srun in the task itself: `export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -1) MASTER_PORT=29500`");
        return;
    }
}

static bool no_such_gpu(const char *words)
{
    return has(words, "invalid device ordinal") || has(words, "no GPUs found") || has(words, "no CUDA-capable device") || has(words, "No HIP GPUs are available") || has(words, "No CUDA GPUs are available");
}

void rule_no_gpu(struct judge *j)
{
    const struct fact *one = NULL;
    EACH_FACT(j->m, F_GPU_FAILURE, g)
        one = !one && no_such_gpu(g->name) ? g : one;
    EACH_FACT(j->m, F_EXCEPTION, e)
        one = !one && no_such_gpu(e->value) ? e : one;
    if (!one)
        return;
    bool ordinal = has(one->name, "ordinal") || has(one->value, "ordinal");
    struct finding *f = find(j, CAUSE + 3, 0.85, ordinal ? "%s asks for a GPU that it does not see" : "%s sees no GPU", Who_says(j->m, one));
    explain(j, f, ordinal ? "Its number (LOCAL_RANK, as a rule) is beyond those that are visible: more ranks on the host than GPUs, or a launcher that shows each rank one GPU, which then is number 0."
                          : "The container or job was given none, CUDA_VISIBLE_DEVICES (ROCR_VISIBLE_DEVICES) is empty, or driver and program do not fit.");
    evidence(f, one);
    EACH_FACT(j->m, F_SETTING, s)
        if (has(s->name, "VISIBLE_DEVICES"))
            evidence(f, s);
    remedy(j, f, "what each rank sees: `srun --label bash -c 'echo $SLURM_LOCALID $CUDA_VISIBLE_DEVICES; nvidia-smi -L'`; then as many ranks a host as GPUs (`--nproc_per_node`), or `--gpus-per-node=8` and not `--gpus-per-task=1` with LOCAL_RANK; `docker run --gpus all ...`");
}

/* DDP compares the number of parameters when it is made. */
void rule_params_differ(struct judge *j)
{
    EACH_FACT(j->m, F_EXCEPTION, e) {
        int64_t a, b, of_a, of_b;
        if (!scan(e->value, "Rank %d has %d params, while rank %d has inconsistent %d params", &a, &of_a, &b, &of_b))
            continue;
        struct finding *f = find(j, CAUSE - 5, 0.9, "The models differ: rank %lld has %lld parameters, rank %lld has %lld", (long long)a, (long long)of_a, (long long)b, (long long)of_b);
        explain(j, f, "DistributedDataParallel reduces parameters by their order, so all ranks must build the same ones: a layer that only some ranks add, frozen parameters, other versions of code or configuration on one host.");
        evidence(f, e);
        remedy(j, f, "print them on two ranks and compare: `python3 -c 'import model; print([n for n, p in model.build().named_parameters() if p.requires_grad])'`; the same code on all hosts: `git rev-parse HEAD`");
        return;
    }
}

/* ---- when nothing nearer is found ------------------------------------------------------------------------------------------------------------- */

static const struct { const char *words, *means; } codes[] = {
    {"unhandled cuda error", "a call to a GPU failed on that rank"}, {"unhandled system error", "a call to the system failed: a connection, shared memory, an RDMA card, a limit"},
    {"internal error", "something that the library did not expect, often an earlier failure of another rank"}, {"invalid usage", "the call does not fit: two ranks on one GPU, a setting that leaves no algorithm, a communicator that failed before"},
    {"invalid argument", "an argument of the call is not legal"}, {"remote process exited", "another rank ended, or the way to it"}};

void rule_only_code(struct judge *j)
{
    if (anything_found(j))
        return;
    EACH_FACT(j->m, F_EXCEPTION, e) {
        const char *means = NULL, *words = NULL;
        for (size_t i = 0; i < sizeof codes / sizeof *codes && !words; i++)
            if ((has(e->value, "NCCL error") || has(e->value, "NCCL Error")) && has(e->value, codes[i].words))
                words = codes[i].words, means = codes[i].means;
        if (!words)
            continue;
        struct finding *f = find(j, SYMPTOM, 0.4, "NCCL failed on %s with '%s', and what it says of the cause is not here", who_says(j->m, e), words);
        explain(j, f, "The code means: %s. The line that says which stands before it in the output of one rank, and is printed only with NCCL_DEBUG=WARN or more; other ranks report what follows.", means);
        evidence(f, e);
        remedy(j, f, "run it again with `export NCCL_DEBUG=WARN` on all ranks (`NCCL_DEBUG=INFO` for the first one), and give the output of all: `unisono doctor LOGS`");
        return;
    }
}
