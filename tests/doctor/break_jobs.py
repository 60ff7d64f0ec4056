#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""break_jobs.py BACKEND OUT SECONDS [FAULT...] - jobs of four ranks that are broken in known ways, and what PyTorch's flight recorder has of each:
OUT/FAULT/rank_N, pickles as torch writes them. With backend unisono also OUT/FAULT.why/, what `unisono why --export-flight-recorder` says (UNISONO = the
program). SECONDS: how long a job is left alone before it is ended. data/flight-recorder/gloo and unisono are made with it (see README.md there)."""
import datetime
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time

os.environ.update(TORCH_FR_BUFFER_SIZE="2000", GLOO_SOCKET_IFNAME="lo", UNISONO_AUTH="none")
import torch  # noqa: E402
import torch._C._distributed_c10d as c10d  # noqa: E402
import torch.distributed as dist  # noqa: E402

RANKS = 4


def load_batch():
    time.sleep(3600)


def absent(rank, tp, dp):
    if rank == 2:
        load_batch()
    dist.all_reduce(torch.ones(2048))


def absent_in_group(rank, tp, dp):
    if rank == 3:
        load_batch()
    dist.all_reduce(torch.ones(256), group=dp)
    dist.all_reduce(torch.ones(256))


def behind(rank, tp, dp):
    for step in range(8):
        if rank == 3 and step == 2:
            load_batch()
        dist.broadcast(torch.ones(16), src=0)
    dist.barrier()


def sizes(rank, tp, dp):
    n = 1000 if rank == 1 else 1024
    dist.all_gather([torch.empty(n) for _ in range(RANKS)], torch.ones(n))


def shorter(rank, tp, dp):
    dist.all_reduce(torch.ones(1000 if rank == 1 else 2000))


def collectives(rank, tp, dp):
    if rank == 1:
        dist.all_gather([torch.empty(1024) for _ in range(RANKS)], torch.ones(1024))
    else:
        dist.all_reduce(torch.ones(1024))


def crossed(rank, tp, dp):
    first, second = (tp, dp) if rank in (0, 3) else (dp, tp)
    dist.all_reduce(torch.ones(128), group=first)
    dist.all_reduce(torch.ones(128), group=second)


def no_sender(rank, tp, dp):
    if rank == 3:
        load_batch()
    if rank == 0:
        dist.recv(torch.empty(64), src=3)
    dist.barrier()


def stopped(rank, tp, dp):
    while True:
        dist.all_reduce(torch.ones(4096))
        time.sleep(0.5)


FAULTS = {f.__name__: f for f in (absent, absent_in_group, behind, sizes, shorter, collectives, crossed, no_sender, stopped)}


def keep_dump(path):
    """As torch wrote it, but for the paths of this machine."""
    data = c10d._dump_fr_trace()
    homes = ((os.path.dirname(os.path.abspath(__file__)), "/app"), (os.path.dirname(os.path.dirname(torch.__file__)), "/usr/lib/python3/site-packages"),
             (os.path.dirname(os.__file__), "/usr/lib/python3"))
    out, at = b"", 0
    for match in re.finditer(rb"X(..)\0\0(?=/)", data, re.S): # BINUNICODE: four bytes of length, then the text
        end = match.end() + int.from_bytes(match.group(1), "little")
        text = data[match.end():end].decode()
        for home, name in homes:
            text = text.replace(home, name)
        out += data[at:match.start()] + b"X" + len(text).to_bytes(4, "little") + text.encode()
        at = end
    data = out + data[at:]
    with open(path + ".new", "wb") as f:
        f.write(data)
    os.rename(path + ".new", path)


def main(rank, backend, fault, folder, store, end):
    torch.set_num_threads(1)
    path = os.path.join(folder, "rank_%d" % rank)

    def dumps(): # as PyTorch's debug server would at any time; a dump that failed would only be missing
        while time.time() < end:
            time.sleep(1)
            keep_dump(path)
    dist.init_process_group(backend, store=dist.FileStore(store, RANKS), rank=rank, world_size=RANKS, timeout=datetime.timedelta(seconds=900))
    pairs = {name: [dist.new_group(ranks, group_desc=name) for ranks in lists]
             for name, lists in (("TENSOR_PARALLEL", ([0, 1], [2, 3])), ("DATA_PARALLEL", ([0, 2], [1, 3])))}
    tp, dp = pairs["TENSOR_PARALLEL"][rank // 2], pairs["DATA_PARALLEL"][rank % 2]
    for _ in range(3):
        dist.all_reduce(torch.ones(1024))
        dist.all_reduce(torch.ones(64), group=tp)
        dist.all_reduce(torch.ones(32), group=dp)
    keep_dump(path)
    threading.Thread(target=dumps, daemon=True).start()
    try:
        FAULTS[fault](rank, tp, dp)
    except Exception as error:  # noqa: BLE001 - it is what a broken job says
        print("[rank%d]: %s: %s" % (rank, type(error).__name__, error), file=sys.stderr, flush=True)
    time.sleep(3600)


def export(pid, folder):
    """What our own tool says of the default group: each group is a job of its own there."""
    which = [str(pid)]
    tried = subprocess.run([os.environ["UNISONO"], "why", *which], capture_output=True, text=True, check=False, timeout=60)
    for job, ranks, pids in re.findall(r"--job (\w+)  .*, (\d+) ranks, pids (.*)", tried.stderr):
        if int(ranks) == RANKS and str(pid) in pids.split():
            which = ["--job", job]
    subprocess.run([os.environ["UNISONO"], "why", *which, "--stall", "1", "--export-flight-recorder", folder], check=False, timeout=60)


def run(backend, out, seconds, fault):
    folder, store = os.path.join(out, fault), os.path.join(out, fault + ".store")
    os.makedirs(folder, exist_ok=True)
    end = time.time() + seconds
    processes = [multiprocessing.get_context("fork").Process(target=main, args=(r, backend, fault, folder, store, end)) for r in range(RANKS)]
    for p in processes:
        p.start()
    if fault == "stopped":
        time.sleep(max(0, end - time.time() - 10))
        os.kill(processes[2].pid, signal.SIGSTOP)
    if backend == "unisono":
        time.sleep(max(0, end - time.time() - 5))
        export(processes[0].pid, folder + ".why")
    time.sleep(max(0, end - time.time()))
    for p in processes:
        os.kill(p.pid, signal.SIGKILL)
    for p in processes:
        p.join()
    os.unlink(store)


if __name__ == "__main__":
    if sys.argv[1] == "unisono":
        import unisono.torch  # noqa: F401 - registers the backend
    for each in sys.argv[4:] or FAULTS:
        run(sys.argv[1], sys.argv[2], float(sys.argv[3]), each)
