# SPDX-License-Identifier: Apache-2.0
"""Tensors in memory that ranks of a host share: read in place, outliving the group, and only where asked for."""
import ctypes
import gc
import os

import torch
import torch.distributed as dist

import unisono.torch
from ranks import run


def mappings():
    with open("/proc/self/maps", encoding="utf-8") as f:
        return [line for line in f if "memfd:unisono" in line]


def is_shared(tensor):
    address = tensor.data_ptr()
    for line in mappings():
        first, last = (int(x, 16) for x in line.split()[0].split("-"))
        if first <= address < last:
            return True
    return False


def lent(tensor):
    """Bytes that were read in place when everybody gathered this tensor."""
    before = unisono.torch.counts()["lent_bytes"]
    tensor = tensor.reshape(-1)
    out = torch.empty(tensor.numel() * dist.get_world_size())
    dist.all_gather_into_tensor(out, tensor)
    for part in out.chunk(dist.get_world_size()):
        assert part.numel() == tensor.numel()
    assert torch.equal(out.chunk(dist.get_world_size())[dist.get_rank()], tensor)
    return unisono.torch.counts()["lent_bytes"] - before


def shared(rank, size):
    n = 1 << 20
    assert not is_shared(torch.full((n,), float(rank)))
    with unisono.torch.shared_allocator():
        with unisono.torch.shared_allocator():
            inner = torch.full((n,), float(rank))
        model = torch.nn.Linear(1024, 1024)
        few = torch.ones(10)
    after = torch.full((n,), float(rank))
    assert not is_shared(after) and not is_shared(few)
    for tensor in (inner, model.weight.data):
        assert is_shared(tensor) and lent(tensor) > 0
    dist.all_reduce(inner)
    assert torch.equal(inner, torch.full((n,), float(sum(range(size)))))
    assert few.sum() == 10
    own = len(mappings())
    del inner
    gc.collect()
    assert len(mappings()) < own
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    ddp(torch.ones(2, 1024)).sum().backward()
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert backend.supports_tensor_alloc(torch.device("cpu"))
    made = backend.allocate_tensor(n, dtype=torch.float32, device=torch.device("cpu"))
    assert made.shape == (n,) and is_shared(made) and lent(made.fill_(1.0)) > 0
    dist.destroy_process_group()
    made += 1
    model.weight.data.mul_(2)


def test_shared_allocator():
    run(2, shared)


def then_another(rank, size):
    """An allocator that a program sets after the block is taken as one before it: torch's priorities are what they were."""
    c10 = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so"))
    get, put = c10._ZN3c1015GetCPUAllocatorEv, c10._ZN3c1015SetCPUAllocatorEPNS_9AllocatorEh
    get.restype, other = ctypes.c_void_p, c10._ZN3c1028GetDefaultMobileCPUAllocatorEv
    other.restype = ctypes.c_void_p
    first = get()
    with unisono.torch.shared_allocator():
        assert get() not in (first, other())
    assert get() == first != other()
    put(ctypes.c_void_p(other()), 0)
    assert get() == other()
    put(ctypes.c_void_p(first), 0)
    with unisono.torch.shared_allocator():
        put(ctypes.c_void_p(other()), 0)
    assert get() == other()


def test_allocator_after_the_block():
    run(1, then_another, init=False)
