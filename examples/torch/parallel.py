# SPDX-License-Identifier: Apache-2.0
"""Ways of training in parallel that PyTorch offers, each on gloo and on unisono in one run, with their loss curves compared:

  ddp            DistributedDataParallel           ddp-static     with static_graph
  ddp-unused     with find_unused_parameters       ddp-accumulate gradients of two batches a step, no_sync
  ddp-bf16       gradients sent as bfloat16        ddp-fp16       with the fp16_compress_hook
  zero           ZeroRedundancyOptimizer           fsdp2          fully_shard
  tensor         DTensor tensor parallel           pipeline       torch.distributed.pipelining (1F1B)

  scripts/with-torch examples/torch/parallel.py --ranks 2 --ranks 4 fsdp2 tensor
Exit status 1 if a curve differs by more than its bound: the order of a reduction is each backend's own.
"""
import contextlib
import functools
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from beside_gloo import BACKENDS, apart, curve, parser_of

WIDTH, BATCH = 64, 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def net(blocks=4):
    torch.manual_seed(1)
    return nn.Sequential(*[Block() for _ in range(blocks)], nn.Linear(WIDTH, WIDTH))


class WithUnused(nn.Module):
    """Every other step a part of it is not used."""

    def __init__(self):
        super().__init__()
        self.body, self.extra, self.turn = net(), Block(), 0

    def forward(self, x):
        self.turn += 1
        x = self.body(x)
        return self.extra(x) if self.turn % 2 else x


def batch(step, rank):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(BATCH, WIDTH, generator=generator)
    return x, x.roll(1, dims=1)


def optimizer_of(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3)


def data_parallel(rank, size, steps, make=net, accumulate=1, hook=None, optimizer=optimizer_of, **options):
    model = DistributedDataParallel(make(), **options)
    if hook:
        model.register_comm_hook(None, hook)
    opt, losses = optimizer(model), []
    for step in range(steps):
        opt.zero_grad(set_to_none=True)
        for part in range(accumulate):
            x, y = batch(step * accumulate + part, rank)
            with model.no_sync() if part + 1 < accumulate else contextlib.nullcontext():
                loss = nn.functional.mse_loss(model(x), y) / accumulate
                loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses


def zero(rank, size, steps):
    from torch.distributed.optim import ZeroRedundancyOptimizer
    return data_parallel(rank, size, steps,
                         optimizer=lambda m: ZeroRedundancyOptimizer(m.parameters(), optimizer_class=torch.optim.AdamW, lr=1e-3))


def bf16_compress(_, bucket):
    """What torch's bf16_compress_hook does, which torch refuses without CUDA or XPU."""
    small = bucket.buffer().to(torch.bfloat16).div_(dist.get_world_size())
    future = dist.all_reduce(small, async_op=True).get_future()
    return future.then(lambda f: bucket.buffer().copy_(f.value()[0]))


def fp16(rank, size, steps):
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
    return data_parallel(rank, size, steps, hook=fp16_compress_hook)


def train(model, opt, steps, rank):
    losses = []
    for step in range(steps):
        x, y = batch(step, rank)
        opt.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses


def fsdp2(rank, size, steps):
    from torch.distributed.fsdp import fully_shard
    mesh, model = init_device_mesh("cpu", (size,)), net()
    for block in model[:-1]:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return train(model, optimizer_of(model), steps, rank)


def tensor(rank, size, steps):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    mesh, model = init_device_mesh("cpu", (size,)), net()
    for block in model[:-1]:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return train(model, optimizer_of(model), steps, 0)  # every rank sees the same batch


def pipeline(rank, size, steps):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
    whole, share = net(blocks=2 * size - 1), 2
    part = nn.Sequential(*list(whole)[rank * share:(rank + 1) * share])
    stage = PipelineStage(part, rank, size, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
    opt, losses = optimizer_of(part), []
    for step in range(steps):
        x, y = batch(step, 0)
        opt.zero_grad(set_to_none=True)
        parts = []
        if rank == 0:
            schedule.step(x, target=y, losses=parts) if size == 1 else schedule.step(x)
        elif rank == size - 1:
            schedule.step(target=y, losses=parts)
        else:
            schedule.step()
        opt.step()
        told = torch.stack(parts).mean().detach() if parts else torch.zeros(())
        dist.broadcast(told, size - 1)
        losses.append(told.item())
    return losses


# name: (how, largest difference of a loss between the backends)
WAYS = {
    "ddp": (data_parallel, 1e-4),
    "ddp-static": (lambda *a: data_parallel(*a, static_graph=True), 1e-4),
    "ddp-unused": (lambda *a: data_parallel(*a, make=WithUnused, find_unused_parameters=True), 1e-4),
    "ddp-accumulate": (lambda *a: data_parallel(*a, accumulate=2), 1e-4),
    "ddp-bf16": (lambda *a: data_parallel(*a, hook=bf16_compress), 5e-2),
    "ddp-fp16": (fp16, 2e-2),
    "zero": (zero, 1e-4),
    "fsdp2": (fsdp2, 1e-4),
    "tensor": (tensor, 1e-4),
    "pipeline": (pipeline, 1e-4),
}


def all_ways(ways, rank, size, steps):
    return {way: WAYS[way][0](rank, size, steps) for way in ways}


def main():
    parser = parser_of(__doc__)
    parser.add_argument("ways", nargs="*", metavar="way", help="default: all")
    options = parser.parse_args()
    ways = options.ways or list(WAYS)
    if unknown := [w for w in ways if w not in WAYS]:
        parser.error(f"{', '.join(unknown)}: not known; legal are {', '.join(WAYS)}")
    good = True
    print(f"{'ranks':>5} {'way':16}{'first':>9}{'gloo last':>11}{'unisono':>9}{'apart':>10}")
    for size in options.ranks or [2, 4]:
        told = {b: curve(functools.partial(all_ways, ways), size, b, options.steps) for b in BACKENDS}
        for way in ways:
            a, b = told["gloo"][way], told["unisono"][way]
            far = apart(a, b, options.steps)
            fine = far <= WAYS[way][1]
            good &= fine
            print(f"{size:5} {way:16}{a[0]:9.4f}{a[-1]:11.4f}{b[-1]:9.4f}{'same bits' if a == b else f'{far:.1e}':>10}{'' if fine else '  too far'}",
                  flush=True)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
