# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed ZeRO-3 on CPU trains a small model on gloo and on unisono, and the losses are compared. Needs deepspeed.

  scripts/with-torch examples/torch/zero3.py --ranks 2
"""
import os

import torch
import torch.distributed as dist
from torch import nn

from beside_gloo import compare

WIDTH = 64


def train(rank, size, steps):
    os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed
    deepspeed.init_distributed(dist_backend=dist.get_backend())
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
    return losses


if __name__ == "__main__":
    compare(__doc__, train, bound=1e-4)
