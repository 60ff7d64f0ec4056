# SPDX-License-Identifier: Apache-2.0
"""Calls of torch.distributed, timed on several backends in turn. Called by bench/torch.py on every rank."""
import time

import torch
import torch.distributed as dist

gather_all = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)  # torch 2.13's words for them
scatter_sum = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)


def chunks(tensor, ranks, wanted):
    return list(tensor.chunk(ranks)) if wanted else None


def exchange(group, given, out):
    """There and back between ranks 0 and 1; the others pass by."""
    rank = dist.get_rank()
    for sender in (0, 1):
        if rank == sender:
            dist.send(given, 1 - sender, group=group)
        elif rank < 2:
            dist.recv(out, sender, group=group)


# name: (elements of the input for a size of n float32 on k ranks, of the output, the call); a size is that of the larger tensor
CALLS = {
    "all_reduce": (lambda n, k: n, lambda n, k: 0, lambda g, i, o: dist.all_reduce(i, group=g)),
    "broadcast": (lambda n, k: n, lambda n, k: 0, lambda g, i, o: dist.broadcast(i, 0, group=g)),
    "reduce": (lambda n, k: n, lambda n, k: 0, lambda g, i, o: dist.reduce(i, 0, group=g)),
    "all_gather": (lambda n, k: max(1, n // k), lambda n, k: max(1, n // k) * k, lambda g, i, o: gather_all(o, i, group=g)),
    "reduce_scatter": (lambda n, k: max(1, n // k) * k, lambda n, k: max(1, n // k), lambda g, i, o: scatter_sum(o, i, group=g)),
    "all_to_all": (lambda n, k: max(1, n // k) * k, lambda n, k: max(1, n // k) * k, lambda g, i, o: dist.all_to_all_single(o, i, group=g)),
    "gather": (lambda n, k: max(1, n // k), lambda n, k: max(1, n // k) * k,
               lambda g, i, o: dist.gather(i, chunks(o, dist.get_world_size(), dist.get_rank() == 0), 0, group=g)),
    "scatter": (lambda n, k: max(1, n // k) * k, lambda n, k: max(1, n // k),
                lambda g, i, o: dist.scatter(o, chunks(i, dist.get_world_size(), dist.get_rank() == 0), 0, group=g)),
    "send_recv": (lambda n, k: n, lambda n, k: n, exchange),
    "barrier": (lambda n, k: 0, lambda n, k: 0, lambda g, i, o: dist.barrier(group=g)),
}


def one_round(group, side, count):
    dist.barrier(group=group)
    start = time.perf_counter()
    for _ in range(count):
        side()
    return (time.perf_counter() - start) / count


def alternate(groups, sides, rounds, budget_s, most=2000):
    """{backend: seconds a call, one a round}. Each round does the same number of calls on every backend; who begins alternates."""
    names = list(sides)
    slowest = max(one_round(groups[b], sides[b], 2) for b in names)
    count = torch.tensor([max(1.0, min(float(most), budget_s / rounds / len(names) / slowest))])
    dist.broadcast(count, 0)
    times = {b: [] for b in names}
    for number in range(rounds):
        for b in names if number % 2 else names[::-1]:
            times[b].append(one_round(groups[b], sides[b], int(count)))
    return times


def measure(groups, options, ranks, tell):
    for name in options.only or list(CALLS):
        elements_in, elements_out, call = CALLS[name]
        for size_bytes in options.sizes if name != "barrier" else [0]:
            n = size_bytes // 4
            given, out = torch.zeros(elements_in(n, ranks)), torch.zeros(elements_out(n, ranks))
            sides = {b: (lambda g=g: call(g, given, out)) for b, g in groups.items()}
            tell({"what": "call", "ranks": ranks, "name": name, "bytes": size_bytes,
                  "times": alternate(groups, sides, options.rounds, options.seconds)})
