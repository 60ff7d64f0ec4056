# SPDX-License-Identifier: Apache-2.0
"""What a rank's threads do while it waits: other Python threads go on, Ctrl-C is heard soon, and communication goes on beside computing."""
import os
import signal
import statistics
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import unisono.torch
from ranks import run


def until(condition, limit_s=20):
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "not within the limit"
        time.sleep(0.001)


# ---- the interpreter's lock

class Ticks:
    """How often another Python thread has run meanwhile."""

    def __init__(self):
        self.count, self.ended = 0, False
        self.thread = threading.Thread(target=self.tick)

    def tick(self):
        while not self.ended:
            self.count += 1
            time.sleep(0.005)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended = True
        self.thread.join()


WAITS = {
    "all_reduce": lambda r: dist.all_reduce(torch.ones(2)),
    "large all_reduce": lambda r: dist.all_reduce(torch.ones(1 << 18)),
    "barrier": lambda r: dist.barrier(),
    "wait": lambda r: dist.all_reduce(torch.ones(2), async_op=True).wait(),
    "future": lambda r: dist.all_reduce(torch.ones(2), async_op=True).get_future().wait(),
    "recv": lambda r: dist.recv(torch.ones(2), 1) if r == 0 else dist.send(torch.ones(2), 0),
    "irecv": lambda r: dist.irecv(torch.ones(2), 1).wait() if r == 0 else dist.isend(torch.ones(2), 0).wait(),
    "monitored_barrier": lambda r: unisono.torch.monitored_barrier(),
    "new_group": lambda r: dist.new_group([0, 1]),
}


def waits(rank, size):
    found = {}
    for name, wait in WAITS.items():
        dist.barrier()
        if rank == 1:
            time.sleep(0.5)
            wait(rank)
            continue
        with Ticks() as ticks:
            wait(rank)
        found[name] = ticks.count
    return found


def test_other_python_threads_run():
    found = run(2, waits)[0]
    assert min(found.values()) >= 5, found


# ---- signals

def interrupted(rank, size):
    if rank == 1:
        dist.barrier()
        dist.send(torch.ones(1), 0)
        return None
    signal.signal(signal.SIGINT, signal.default_int_handler)
    tensor, after = torch.zeros(1), []
    work = dist.irecv(tensor, 1)
    for _ in range(7):
        sent = []

        def send(sent=sent):
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)
        timer = threading.Timer(0.15, send)
        timer.start()
        try:
            work.wait()
            raise AssertionError("nothing was sent, and something came")
        except KeyboardInterrupt:
            after.append(time.monotonic() - sent[0])
        timer.join()
    dist.barrier()
    work.wait()
    assert tensor.item() == 1
    return after


def test_ctrl_c_is_heard_soon():
    """Waits look at signals every 100 ms; what is more here is the machine's."""
    after = run(2, interrupted)[0]
    assert statistics.median(after) < 0.3, after


# ---- threads

def threads_now():
    return len(os.listdir("/proc/self/task"))


def in_the_caller(rank, size):
    tensors = [torch.ones(2), torch.ones(1 << 20)]
    for tensor in tensors:
        dist.all_reduce(tensor)
    before = threads_now()
    for tensor in tensors:
        dist.all_reduce(tensor)
        dist.broadcast(tensor, 0)
        dist.all_gather([torch.empty_like(tensor) for _ in range(size)], tensor)
    dist.barrier()
    assert threads_now() == before, "a call that is not asynchronous was given to another thread"
    dist.all_reduce(tensors[1], async_op=True).wait()
    return threads_now() - before


def test_calls_run_in_the_calling_thread():
    assert min(run(2, in_the_caller)) > 0, "an asynchronous call needs a thread, else this test tells nothing"


def goes_on(rank, size):
    """Nobody waits for it: it is done while the program does something else."""
    tensor = torch.ones(1 << 20)
    work = dist.all_reduce(tensor, async_op=True)
    until(work.is_completed)
    assert torch.equal(tensor, torch.full((1 << 20,), float(size)))
    future = dist.all_reduce(tensor, async_op=True).get_future()
    until(future.done)


def test_asynchronous_calls_go_on_alone():
    run(2, goes_on)


def overlapping(rank, size):
    """The first bucket has arrived before the backward pass, which waits for that, has come to the first layer."""
    torch.manual_seed(rank)
    model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(4)])
    ddp, futures, overlapped = DistributedDataParallel(model, bucket_cap_mb=1), [], []

    def hook(_, bucket):
        work = dist.all_reduce(bucket.buffer().div_(size), async_op=True)
        futures.append(work.get_future())
        return futures[-1].then(lambda f: f.value()[0])
    ddp.register_comm_hook(None, hook)

    def first_layer_comes(_):
        until(lambda: futures and futures[0].done())
        overlapped.append(len(futures))
    ddp(torch.randn(4, 512)).square().sum().backward()  # in the first step all are one bucket
    model[0].weight.register_hook(first_layer_comes)
    for _ in range(3):
        futures.clear()
        ddp(torch.randn(4, 512)).square().sum().backward()
    assert len(overlapped) == 3 and len(futures) > overlapped[-1], (overlapped, len(futures))
    gathered = [torch.empty_like(model[0].weight) for _ in range(size)]
    dist.all_gather(gathered, model[0].weight.grad)
    assert all(torch.equal(g, gathered[0]) for g in gathered)


def test_backward_and_communication_overlap():
    run(2, overlapping)
