# SPDX-License-Identifier: Apache-2.0
"""What the examples share: the same training as ranks of this machine, on gloo and on unisono, and the two loss curves compared."""
import argparse
import os
import socket
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import unisono.torch  # noqa: F401 - registers the backend

BACKENDS = ("gloo", "unisono")


def _free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def _rank_main(rank, train, size, backend, steps, folder, port, results):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(size), LOCAL_SIZE=str(size),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group(backend, store=dist.FileStore(os.path.join(folder, "store"), size), rank=rank, world_size=size)
    told = train(rank, size, steps)
    if rank == 0:
        results.put(told)
    dist.destroy_process_group()


def curve(train, size, backend, steps):
    """What train(rank, size, steps) returns on rank 0 of `size` ranks, in a group of this backend that stands already."""
    results = mp.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_rank_main, args=(train, size, backend, steps, folder, _free_port(), results), nprocs=size)
    return results.get()


def apart(gloo, ours, steps):
    """The largest difference of a loss; infinite for curves that are not `steps` long, or do not fall."""
    if not len(gloo) == len(ours) == steps or not ours[-1] < ours[0]:
        return float("inf")
    return max(abs(a - b) for a, b in zip(gloo, ours))


def parser_of(description):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, action="append", help="default: 2 and 4")
    parser.add_argument("--steps", type=int, default=50)
    return parser


def compare(description, train, bound):
    """The whole program of an example with one curve: exit status 1 if it is further than `bound` from gloo's."""
    options = parser_of(description).parse_args()
    good = True
    for size in options.ranks or [2, 4]:
        gloo, ours = (curve(train, size, backend, options.steps) for backend in BACKENDS)
        far = apart(gloo, ours, options.steps)
        print(f"{size} ranks, {options.steps} steps: loss {gloo[0]:.4f} to {gloo[-1]:.4f} on gloo, to {ours[-1]:.4f} on unisono; "
              f"{'same bits' if gloo == ours else f'at most {far:.1e} apart'}", flush=True)
        good &= far <= bound
    sys.exit(0 if good else 1)
