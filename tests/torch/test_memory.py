# SPDX-License-Identifier: Apache-2.0
"""Tensors in memory that ranks of a host share: read in place, outliving the group, and only where asked for."""
import ctypes
import gc
import os
import platform
import struct

import pytest
import torch
import torch.distributed as dist

import unisono.torch
from ranks import run

WIDTH = 2048  # a layer of 16 MB: an all-reduce in place of less than about 8 MB runs a plan that copies, wherever tensors lie
PROCESS_VM_READV = {"x86_64": 310, "aarch64": 270}.get(platform.machine())


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


# ---- what of a training step is read in place

def refuse_reading():
    """process_vm_readv is refused to this process from now on: what is lent then lies in memory that is shared."""
    load, jump_equal, give = 0x20, 0x15, 0x06
    filters = b"".join(struct.pack("HBBI", *f) for f in ((load, 0, 0, 0), (jump_equal, 0, 1, PROCESS_VM_READV), (give, 0, 0, 0x50001),
                                                         (give, 0, 0, 0x7FFF0000)))
    buffer = ctypes.create_string_buffer(filters)
    program = struct.pack("HxxxxxxP", len(filters) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()


def layer():
    return torch.nn.Linear(WIDTH, WIDTH)


def moved(of):
    """Bytes (in all, read in place) that of() moves."""
    before = unisono.torch.counts()
    of()
    after = unisono.torch.counts()
    return tuple(after[name] - before[name] for name in ("shm_bytes", "lent_bytes"))


def steps_of(model, count=3):
    def run_them():
        for _ in range(count):
            model.zero_grad()
            model(torch.ones(2, WIDTH)).square().sum().backward()
    run_them()  # buckets are made anew after the first step
    return run_them


def sharded(rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    return fully_shard(layer(), mesh=init_device_mesh("cpu", (dist.get_world_size(),)))


def train(rank, size, store):
    refuse_reading()
    dist.init_process_group("unisono", store=dist.FileStore(store, size), rank=rank, world_size=size)
    found, allocator = {}, unisono.torch.shared_allocator
    private = torch.ones(WIDTH * WIDTH)
    found["private tensor"] = moved(lambda: dist.all_reduce(private))
    with allocator():
        tensor = torch.ones(WIDTH * WIDTH)
    found["tensor"] = moved(lambda: dist.all_reduce(tensor))
    found["private DDP"] = moved(steps_of(torch.nn.parallel.DistributedDataParallel(layer())))
    with allocator():
        model = torch.nn.parallel.DistributedDataParallel(layer())
    found["private DDP after the first step"] = moved(steps_of(model))
    with allocator():
        begun = steps_of(torch.nn.parallel.DistributedDataParallel(layer()))
    found["DDP whose first steps were within it"] = moved(begun)
    found["private FSDP2"] = moved(steps_of(sharded(rank)))
    with allocator():
        found["FSDP2 within it"] = moved(steps_of(sharded(rank)))
    model = sharded(rank)
    if hasattr(model, "set_allocate_memory_from_process_group_for_comm"):
        model.set_allocate_memory_from_process_group_for_comm(True)
        found["FSDP2"] = moved(steps_of(model))
    return found


@pytest.mark.skipif(not PROCESS_VM_READV, reason="the number of a system call is known for x86-64 and ARM64")
def test_buckets_are_read_in_place(tmp_path):
    for found in run(2, train, str(tmp_path / "store"), init=False):
        for name, (in_all, lent) in found.items():
            assert in_all > 1 << 20, (name, found)
            if name.startswith("private"):
                assert lent == 0, (name, found)
            else:
                assert lent >= 0.9 * in_all, (name, found)


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
