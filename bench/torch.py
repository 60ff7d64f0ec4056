# SPDX-License-Identifier: Apache-2.0
"""torch.distributed on gloo and on unisono, in turn in one run: what a call costs from Python, 8 B to 256 MB, on 2, 4 and 8 ranks.

Every size is measured in rounds; in each round both backends do the same number of calls, and which one begins alternates.
The table shows medians over the rounds of rank 0's time for a call, and the median and quartiles of the rounds' ratios.
`make bench-torch` runs it; BENCH="--quick" in a few minutes.
"""
import argparse
import json
import os
import statistics
import sys
import tempfile
import time

# A folder with a file torch.py must not stand before the real one.
sys.path = [p for p in sys.path if os.path.abspath(p or ".") != os.path.dirname(os.path.abspath(__file__))]

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402

import unisono.torch  # noqa: E402, F401 - registers the backend

BACKENDS = ("gloo", "unisono")
gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)  # torch 2.13's words for them
scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)

# name: (elements of the input for a size of n float32, of the output, the call); size is that of the larger tensor
CALLS = {
    "all_reduce": (lambda n, k: n, lambda n, k: 0, lambda g, i, o: dist.all_reduce(i, group=g)),
    "broadcast": (lambda n, k: n, lambda n, k: 0, lambda g, i, o: dist.broadcast(i, 0, group=g)),
    "reduce": (lambda n, k: n, lambda n, k: 0, lambda g, i, o: dist.reduce(i, 0, group=g)),
    "all_gather": (lambda n, k: max(1, n // k), lambda n, k: max(1, n // k) * k, lambda g, i, o: gather(o, i, group=g)),
    "reduce_scatter": (lambda n, k: max(1, n // k) * k, lambda n, k: max(1, n // k), lambda g, i, o: scatter(o, i, group=g)),
    "all_to_all": (lambda n, k: max(1, n // k) * k, lambda n, k: max(1, n // k) * k, lambda g, i, o: dist.all_to_all_single(o, i, group=g)),
}


def one_round(group, call, given, out, count):
    dist.barrier(group=group)
    start = time.perf_counter()
    for _ in range(count):
        call(group, given, out)
    return (time.perf_counter() - start) / count


def measure(groups, name, size_bytes, ranks, rounds, budget_s):
    elements_in, elements_out, call = CALLS[name]
    n = size_bytes // 4
    given, out = torch.zeros(elements_in(n, ranks)), torch.zeros(elements_out(n, ranks))
    times = {b: [] for b in BACKENDS}
    slowest = max(one_round(groups[b], call, given, out, 2) for b in BACKENDS)
    count = torch.tensor([max(1.0, min(2000.0, budget_s / rounds / len(BACKENDS) / slowest))])
    dist.broadcast(count, 0)
    for number in range(rounds):
        for backend in BACKENDS if number % 2 else BACKENDS[::-1]:
            times[backend].append(one_round(groups[backend], call, given, out, int(count)))
    return times


def rank_main(rank, ranks, folder, options, results):
    torch.set_num_threads(1)
    dist.init_process_group("unisono", store=dist.FileStore(os.path.join(folder, "store"), ranks), rank=rank, world_size=ranks)
    groups = {b: dist.new_group(backend=b) for b in BACKENDS}
    for name in options.only or list(CALLS):
        for size_bytes in options.sizes:
            times = measure(groups, name, size_bytes, ranks, options.rounds, options.seconds)
            if rank == 0:
                results.put({"ranks": ranks, "call": name, "bytes": size_bytes, "times": times})
    if rank == 0:
        results.put(None)
    dist.destroy_process_group()


def line(row):
    gloo, ours = (statistics.median(row["times"][b]) for b in BACKENDS)
    ratios = sorted(a / b for a, b in zip(row["times"]["gloo"], row["times"]["unisono"]))
    quarter = len(ratios) // 4
    bandwidth = row["bytes"] / ours / 1e9
    return (f"{row['ranks']:5} {row['call']:15}{row['bytes']:11} {gloo * 1e6:12.1f} {ours * 1e6:12.1f} {bandwidth:8.2f} "
            f"{statistics.median(ratios):8.2f}  {ratios[quarter]:.2f}-{ratios[-1 - quarter]:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, action="append", help="default: 2, 4, 8")
    parser.add_argument("--sizes", type=lambda s: [int(x) for x in s.split(",")],
                        default=[8, 64, 512, 4096, 16384, 65536, 262144, 1 << 20, 4 << 20, 32 << 20, 256 << 20])
    parser.add_argument("--only", action="append", choices=list(CALLS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=2.0, help="time for one size of one call")
    parser.add_argument("--quick", action="store_true", help="2 ranks, 6 sizes up to 32 MB, half a second each")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    if options.quick:
        options.ranks, options.sizes, options.seconds = options.ranks or [2], [8, 1024, 65536, 1 << 20, 8 << 20, 32 << 20], 0.5
    rows = []
    print(f"torch {torch.__version__}, float32, {os.cpu_count()} processors\n"
          f"{'ranks':>5} {'call':15}{'bytes':>11} {'gloo us':>12} {'unisono us':>12} {'GB/s':>8} {'gloo/uno':>8}  quartiles")
    for ranks in options.ranks or [2, 4, 8]:
        results = mp.get_context("spawn").SimpleQueue()
        with tempfile.TemporaryDirectory() as folder:
            running = mp.spawn(rank_main, args=(ranks, folder, options, results), nprocs=ranks, join=False)
            while (row := results.get()) is not None:
                rows.append(row)
                print(line(row), flush=True)
            running.join()
    if options.json:
        with open(options.json, "w", encoding="utf-8") as f:
            json.dump(rows, f, indent=1)


if __name__ == "__main__":
    main()
