# SPDX-License-Identifier: Apache-2.0
"""Steps of whole programs, timed on several backends in turn: training with DDP and FSDP2, decoding. Called by bench/torch.py."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from calls import alternate, one_round

DECODER_WIDTH, SUMS_A_TOKEN = 4096, 100
BUCKET_BYTES = 25 << 20  # DDP's own


def transformer(width, layers):
    """12 * width^2 parameters a layer."""
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(width, nhead=8, dim_feedforward=4 * width, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


# name: (width, layers, length of the sequence)
MODELS = {"25M": (512, 8, 64), "125M": (1024, 10, 32)}


def parameters(model):
    width, layers, _ = MODELS[model]
    return 12 * width * width * layers


def memory_needed(model, ranks, backends):
    """Parameters, and gradients that lie in the buckets, of a model for each backend; a fifth for what else a step needs."""
    return int(ranks * backends * 2 * 4 * parameters(model) * 1.2)


def memory_there():
    with open("/proc/meminfo", encoding="utf-8") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("MemAvailable"))


def trainer(model, x):
    def step():
        model.zero_grad(set_to_none=False)
        model(x).square().mean().backward()
        with torch.no_grad():
            for p in model.parameters():
                p.add_(p.grad, alpha=-1e-6)
    return step


def without_exchange(model, step):
    def run():
        with model.no_sync():
            step()
    return run


def exchange_alone(group, count):
    """What DDP sends in a step, and nothing else."""
    buckets = [torch.zeros(min(BUCKET_BYTES // 4, count - at)) for at in range(0, count, BUCKET_BYTES // 4)]

    def run():
        for work in [dist.all_reduce(b, group=group, async_op=True) for b in buckets]:
            work.wait()
    return run


def ddp(groups, options, ranks, model, tell):
    width, layers, length = MODELS[model]
    x = torch.randn(1, length, width)
    models = {b: DistributedDataParallel(transformer(width, layers), process_group=g, gradient_as_bucket_view=True) for b, g in groups.items()}
    sides = {b: trainer(m, x) for b, m in models.items()}
    for side in sides.values():
        side()  # buckets are made anew after the first
    times = alternate(groups, sides, options.rounds, options.step_seconds, most=50)
    rounds = max(3, options.rounds // 3)
    compute = [one_round(groups[b], without_exchange(models[b], sides[b]), 1) for b in groups for _ in range(rounds)]
    alone = {b: exchange_alone(g, parameters(model)) for b, g in groups.items()}
    exchange = {b: sorted(one_round(groups[b], alone[b], 1) for _ in range(rounds))[rounds // 2] for b in groups}
    tell({"what": "step", "ranks": ranks, "name": f"DDP {model}", "times": times, "compute": sorted(compute)[len(compute) // 2],
          "exchange": exchange})


def fsdp2(groups, options, ranks, model, tell):
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard
    width, layers, length = MODELS[model]
    x = torch.randn(1, length, width)
    sides = {}
    for b, g in groups.items():
        whole, mesh = transformer(width, layers), DeviceMesh.from_group(g, "cpu")
        for layer in whole.layers:
            fully_shard(layer, mesh=mesh)
        sides[b] = trainer(fully_shard(whole, mesh=mesh), x)
        sides[b]()
    tell({"what": "step", "ranks": ranks, "name": f"FSDP2 {model}", "times": alternate(groups, sides, options.rounds, options.step_seconds, most=50)})


def decoder(group, up, down, x):
    """A token: each of the halves of the layers multiplies with this rank's part of the weights, and all add up."""
    def token():
        y = x
        for _ in range(SUMS_A_TOKEN):
            part = nn.functional.gelu(y @ up) @ down
            dist.all_reduce(part, group=group)
            y = nn.functional.layer_norm(y + part, (DECODER_WIDTH,))
    return token


def decoding(groups, options, ranks, tell):
    torch.manual_seed(2)
    inner = max(8, 256 // ranks)
    up, down = torch.randn(DECODER_WIDTH, inner) / 64, torch.randn(inner, DECODER_WIDTH) / 16
    for rows in (1, 2, 4):
        x = torch.randn(rows, DECODER_WIDTH)
        with torch.no_grad():
            times = alternate(groups, {b: decoder(g, up, down, x) for b, g in groups.items()}, options.rounds, options.step_seconds, most=200)
        kilobytes = rows * DECODER_WIDTH * 4 // 1024
        tell({"what": "step", "ranks": ranks, "name": f"a token, {SUMS_A_TOKEN} all-reduces of {kilobytes} KB", "times": times})


def measure(groups, options, ranks, tell):
    for kind, run in (("DDP", ddp), ("FSDP2", fsdp2)):
        for model in options.models:
            if kind == "FSDP2" and model != "25M":
                continue
            need, there = memory_needed(model, ranks, len(groups)), memory_there()
            dist.broadcast(enough := torch.tensor([float(need < 0.8 * there)]), 0)
            if enough.item():
                run(groups, options, ranks, model, tell)
            else:
                tell({"what": "left out", "ranks": ranks, "name": f"{kind} {model}",
                      "why": f"needs {need / 1e9:.0f} GB and {there / 1e9:.0f} GB are there"})
    decoding(groups, options, ranks, tell)
