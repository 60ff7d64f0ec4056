# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed ZeRO-3 on CPU trains a small model on gloo and on unisono, and the losses are compared. Needs deepspeed.

  scripts/with-torch examples/torch/zero3.py --ranks 2
"""
import argparse
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

import unisono.torch  # noqa: F401 - registers the backend

WIDTH = 64


def train(rank, size, backend, steps, folder, results):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), LOCAL_SIZE=str(size), DS_ACCELERATOR="cpu",
                      MASTER_ADDR="127.0.0.1", MASTER_PORT="29534")
    torch.set_num_threads(1)
    dist.init_process_group(backend, store=dist.FileStore(os.path.join(folder, backend), size), rank=rank, world_size=size)
    import deepspeed
    deepspeed.init_distributed(dist_backend=backend)
    torch.manual_seed(1)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)) for _ in range(3)])
    engine, *_ = deepspeed.initialize(
        model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3),
        config={"train_micro_batch_size_per_gpu": 8, "zero_optimization": {"stage": 3}, "zero_allow_untested_optimizer": True,
                "zero_force_ds_cpu_optimizer": False})
    losses = []
    for step in range(steps):
        x = torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(1000 * step + rank))
        loss = nn.functional.mse_loss(engine(x), x.roll(1, dims=1))
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    if rank == 0:
        results.put(losses)
    dist.destroy_process_group()


def curve(size, backend, steps):
    results = mp.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(train, args=(size, backend, steps, folder, results), nprocs=size)
    return results.get()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, action="append", help="default: 2 and 4")
    parser.add_argument("--steps", type=int, default=50)
    options = parser.parse_args()
    good = True
    for size in options.ranks or [2, 4]:
        gloo, ours = curve(size, "gloo", options.steps), curve(size, "unisono", options.steps)
        apart = max(abs(a - b) for a, b in zip(gloo, ours))
        print(f"{size} ranks, {options.steps} steps: loss {gloo[0]:.4f} to {gloo[-1]:.4f} on gloo, to {ours[-1]:.4f} on unisono; "
              f"at most {apart:.1e} apart")
        good &= len(ours) == options.steps and apart < 1e-4
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
