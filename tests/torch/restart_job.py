# SPDX-License-Identifier: Apache-2.0
"""A job for torchrun: counts steps with an all-reduce each, saves them, and the first time rank 1 is killed in step 3."""
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

import unisono.torch

folder = sys.argv[1]
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun ends the others when one has died, and may be quicker than a busy machine lets us write
dist.init_process_group("unisono")
rank, checkpoint = dist.get_rank(), os.path.join(folder, "checkpoint")
state = torch.load(checkpoint) if os.path.exists(checkpoint) else {"step": 0, "sum": torch.zeros(1)}
print(f"rank {rank} begins at step {state['step']}", flush=True)
for step in range(state["step"], 6):
    if rank == 1 and step == 3 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        with open(os.path.join(folder, "killed"), "w", encoding="utf-8") as f:
            f.write(str(time.time()))
        os.kill(os.getpid(), signal.SIGKILL)
    value = torch.ones(1)
    try:
        dist.all_reduce(value)
    except unisono.torch.PeerDeadError as error:
        with open(os.path.join(folder, f"told{rank}"), "w", encoding="utf-8") as f:
            f.write(f"{time.time()} {error}")
        raise
    state = {"step": step + 1, "sum": state["sum"] + value}
    if rank == 0:
        torch.save(state, checkpoint + ".new")
        os.replace(checkpoint + ".new", checkpoint)
    dist.barrier()
print(f"rank {rank} ends with {state['sum'].item()}", flush=True)
dist.destroy_process_group()
