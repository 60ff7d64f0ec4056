# SPDX-License-Identifier: Apache-2.0
"""torch.distributed on gloo and on unisono, in turn in one run, on 2, 4 and 8 ranks: each call from 8 B to 256 MB, steps of DDP (25 M and 125 M
parameters) and FSDP2, and decoding with 100 all-reduces a token. `make bench-torch` runs it all, which takes hours; BENCH="--quick" takes a
few minutes. What was measured is printed as it comes and stands in --page in the end.
"""
import argparse
import json
import os
import sys
import tempfile

# A folder with a file torch.py must not stand before the real one.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path = [os.path.join(HERE, "torch_bench")] + [p for p in sys.path if os.path.abspath(p or ".") not in (HERE, os.path.join(HERE, "torch_bench"))]

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402

import calls  # noqa: E402
import page  # noqa: E402
import steps  # noqa: E402
import unisono.torch  # noqa: E402, F401 - registers the backend

BACKENDS = ("gloo", "unisono")
ALL_SIZES = [8, 64, 512, 4096, 16384, 65536, 262144, 1 << 20, 4 << 20, 32 << 20, 256 << 20]


def rank_main(rank, ranks, folder, options, results):
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // ranks))
    dist.init_process_group("unisono", store=dist.FileStore(os.path.join(folder, "store"), ranks), rank=rank, world_size=ranks)
    groups = {b: dist.new_group(backend=b) for b in BACKENDS}
    for part in (calls, steps):
        if part.__name__ in options.parts:
            part.measure(groups, options, ranks, results.put if rank == 0 else lambda row: None)
    dist.destroy_process_group()


def measure(ranks, options, rows):
    results = mp.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        running = mp.spawn(rank_main, args=(ranks, folder, options, results), nprocs=ranks, join=False)
        ended = False
        while not ended:
            ended = running.join(timeout=0.1)  # raises what a rank raised
            while not results.empty():
                rows.append(results.get())
                print(page.line(rows[-1]), flush=True)


def options_of_command():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, action="append", help="default: 2, 4 and 8")
    parser.add_argument("--sizes", type=lambda s: [int(x) for x in s.split(",")], help="bytes")
    parser.add_argument("--only", action="append", choices=list(calls.CALLS))
    parser.add_argument("--parts", nargs="+", choices=["calls", "steps"], default=["calls", "steps"])
    parser.add_argument("--models", nargs="*", choices=list(steps.MODELS), help="parameters of the transformer; default: all")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="time for one size of one call")
    parser.add_argument("--step-seconds", type=float, help="time for one kind of step")
    parser.add_argument("--quick", action="store_true", help="four sizes up to 32 MB (8 ranks: 1 MB), the smaller model, short times")
    parser.add_argument("--page", metavar="FILE", default="build/torch-results.md")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    for name, quick, whole in (("sizes", [8, 65536, 1 << 20, 32 << 20], ALL_SIZES), ("rounds", 5, 9), ("seconds", 0.3, 2.0),
                               ("step_seconds", 4.0, 60.0), ("models", ["25M"], list(steps.MODELS)), ("ranks", [2, 4, 8], [2, 4, 8])):
        if getattr(options, name) is None:
            setattr(options, name, quick if options.quick else whole)
    return options


def main():
    options, rows = options_of_command(), []
    print(f"{page.machine()}\n{'ranks':>5} {'what':42}{'gloo us':>14}{'unisono us':>14}{'ratio':>9}  quartiles")
    sizes = options.sizes
    for ranks in options.ranks:
        options.sizes = [s for s in sizes if not (options.quick and ranks > 4 and s > 1 << 20)]
        measure(ranks, options, rows)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as f:
            json.dump(rows, f, indent=1)
    os.makedirs(os.path.dirname(os.path.abspath(options.page)), exist_ok=True)
    page.write(options.page, rows, "bench/torch.py " + " ".join(sys.argv[1:]))
    print(f"written: {options.page}")


if __name__ == "__main__":
    main()
