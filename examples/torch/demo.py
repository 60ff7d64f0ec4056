# SPDX-License-Identifier: Apache-2.0
"""Trains the same small model with DistributedDataParallel on gloo and on unisono, on 2 and on 4 ranks, and prints loss, time of a step
and the share of it that communication takes. `make demo-torch` runs it.

The share: a step with gradients exchanged against a step of the same model under no_sync, both the median of those measured.
Blocks of steps alternate between the backends, so that what else the machine does hits both.
"""
import argparse
import os
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import unisono.torch  # noqa: F401 - registers the backend

BACKENDS = ("gloo", "unisono")


class Net(nn.Module):
    """A small transformer that learns to say which of its tokens was the largest."""

    def __init__(self, vocabulary=64, width=128, layers=2):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        layer = nn.TransformerEncoderLayer(width, nhead=4, dim_feedforward=4 * width, dropout=0.0, batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        return self.head(self.blocks(self.embed(tokens)).mean(dim=1))


class Side:
    """One backend's model, its data and what was measured of it."""

    def __init__(self, backend, rank):
        self.group = dist.new_group(backend=backend)
        torch.manual_seed(1)
        self.model = DistributedDataParallel(Net(), process_group=self.group)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.data = torch.Generator().manual_seed(100 + rank)
        self.losses, self.with_exchange, self.without = [], [], []

    def step(self, exchange):
        tokens = torch.randint(0, 64, (16, 16), generator=self.data)
        start = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        if exchange:
            loss = nn.functional.cross_entropy(self.model(tokens), tokens.amax(dim=1))
            loss.backward()
        else:
            with self.model.no_sync():
                nn.functional.cross_entropy(self.model(tokens), tokens.amax(dim=1)).backward()
            self.without.append(time.perf_counter() - start)
            return
        self.with_exchange.append(time.perf_counter() - start)
        self.optimizer.step()
        self.losses.append(loss.item())


def train(rank, size, steps, folder, results):
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // size))
    dist.init_process_group("unisono", store=dist.FileStore(os.path.join(folder, "store"), size), rank=rank, world_size=size)
    sides = [Side(backend, rank) for backend in BACKENDS]
    for begin in range(0, steps, 5):
        for side in sides:
            for number in range(begin, min(begin + 5, steps)):
                side.step(exchange=True)
                if number % 2:
                    side.step(exchange=False)
    if rank == 0:
        results.put([(s.losses, s.with_exchange, s.without) for s in sides])
    dist.destroy_process_group()


def show(size, steps):
    results = mp.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(train, args=(size, steps, folder, results), nprocs=size)
    measured = dict(zip(BACKENDS, results.get()))
    print(f"\n{size} ranks, {steps} steps\n{'':10}{'loss: first':>12}{'last':>8}{'step ms':>10}{'communication':>16}")
    for backend, (losses, exchange, without) in measured.items():
        step, alone = statistics.median(exchange[2:]), statistics.median(without[1:])
        print(f"{backend:10}{losses[0]:12.4f}{losses[-1]:8.4f}{step * 1000:10.2f}{max(0.0, 1 - alone / step):16.0%}")
    apart = max(abs(a - b) for a, b in zip(measured["gloo"][0], measured["unisono"][0]))
    print(f"losses differ by at most {apart:.2e}; a step on unisono takes "
          f"{statistics.median(measured['unisono'][1][2:]) / statistics.median(measured['gloo'][1][2:]):.2f} x that on gloo")
    return apart


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, action="append", help="default: 2 and 4")
    parser.add_argument("--steps", type=int, default=50)
    options = parser.parse_args()
    if max([show(n, options.steps) for n in options.ranks or [2, 4]]) > 1e-2:
        raise SystemExit("the loss curves are not the same")


if __name__ == "__main__":
    main()
