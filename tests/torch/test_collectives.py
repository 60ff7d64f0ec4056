# SPDX-License-Identifier: Apache-2.0
"""Every collective of torch.distributed, on every type, with tensors that lie otherwise than in one piece, on 1 to 4 ranks."""
import pytest
import torch
import torch.distributed as dist

from ranks import run

SUMMED = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64,
          torch.uint16, torch.uint32, torch.uint64, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64, torch.complex128]
MOVED = SUMMED + [getattr(torch, name) for name in ("complex32", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu") if hasattr(torch, name)]
LAYOUTS = ["plain", "strided", "transposed", "empty", "scalar"]


def value(rank, dtype, layout="plain", salt=0):
    """Small whole numbers that differ from rank to rank and survive every type."""
    shape = {"plain": (6, 4), "strided": (6, 4), "transposed": (4, 6), "empty": (0, 4), "scalar": ()}[layout]
    count = torch.Size(shape).numel()
    base = ((torch.arange(count, dtype=torch.int64) + rank + salt) % 3).reshape(shape)
    tensor = base.to(torch.float32).to(dtype) if dtype not in (torch.bool,) else base == 0
    if layout == "strided":
        wide = torch.zeros(6, 8, dtype=torch.float32).to(dtype)
        wide[:, ::2] = tensor
        tensor = wide[:, ::2]
    return tensor.t() if layout == "transposed" else tensor


def same(got, want):
    assert got.dtype == want.dtype and got.shape == want.shape, (got.dtype, got.shape, want.dtype, want.shape)
    as_bytes = [t.contiguous().reshape(-1).view(torch.uint8) for t in (got, want) if t.numel()]
    assert not as_bytes or torch.equal(*as_bytes), f"got {got}, want {want}"


def in_wide(dtype):
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else torch.int64


def expected(op, parts):
    dtype, wide = parts[0].dtype, [p.to(in_wide(parts[0].dtype)) for p in parts]
    if dtype == torch.bool:
        stack = torch.stack(parts)
        return stack.any(0) if op in ("SUM", "MAX", "BOR") else stack.all(0) if op in ("PRODUCT", "MIN", "BAND") else stack.sum(0) % 2 == 1
    stack = torch.stack(wide)
    if op == "SUM":
        out = stack.sum(0)
    elif op == "AVG":
        out = stack.sum(0) / len(parts) if dtype.is_floating_point or dtype.is_complex else stack.sum(0) // len(parts)
    elif op == "PRODUCT":
        out = stack.prod(0)
    elif op == "MAX":
        out = stack.amax(0)
    elif op == "MIN":
        out = stack.amin(0)
    else:
        out = wide[0].clone()
        for other in wide[1:]:
            out = out & other if op == "BAND" else out | other if op == "BOR" else out ^ other
    return out.to(torch.float32).to(dtype) if dtype.is_floating_point and dtype.itemsize == 1 else out.to(dtype)


def ops_of(dtype):
    if dtype == torch.bool:
        return ["SUM", "PRODUCT", "MAX", "MIN", "BAND", "BOR", "BXOR"]
    if dtype.is_complex:
        return ["SUM", "AVG"]
    return ["SUM", "AVG", "PRODUCT", "MAX", "MIN"] + ([] if dtype.is_floating_point else ["BAND", "BOR", "BXOR"])


def reductions(rank, size):
    for dtype in SUMMED:
        for name in ops_of(dtype):
            op = getattr(dist.ReduceOp, name)
            for layout in LAYOUTS:
                parts = [value(r, dtype, layout) for r in range(size)]
                want = expected(name, parts)
                tensor = parts[rank].clone() if layout != "strided" else value(rank, dtype, layout)
                dist.all_reduce(tensor, op)
                same(tensor, want)
                tensor = value(rank, dtype, layout)
                dist.reduce(tensor, size - 1, op)
                if rank == size - 1:
                    same(tensor, want)
            inputs = [value(rank, dtype, "strided", salt=q) for q in range(size)]
            output = torch.empty_like(inputs[0])
            dist.reduce_scatter(output, inputs, op)
            same(output, expected(name, [value(r, dtype, "strided", salt=rank) for r in range(size)]))


def test_reductions():
    for size in (1, 2, 3):
        run(size, reductions)


def premul(rank, size):
    for dtype, factor in ((torch.float32, 0.5), (torch.float64, 0.25), (torch.int32, 3)):
        for given in (float(factor), torch.tensor(factor, dtype=dtype)):
            tensor = torch.arange(5).to(dtype) + rank
            dist.all_reduce(tensor, dist._make_nccl_premul_sum(given))
            same(tensor, sum((torch.arange(5).to(dtype) + r) * factor for r in range(size)).to(dtype))


def test_premul_sum():
    run(3, premul)


def movements(rank, size):
    for dtype in MOVED:
        for layout in LAYOUTS:
            mine, all_values = value(rank, dtype, layout), [value(r, dtype, layout) for r in range(size)]
            root = size - 1
            tensor = value(rank, dtype, layout)
            dist.broadcast(tensor, root)
            same(tensor, all_values[root])
            outputs = [torch.empty_like(mine) for _ in range(size)]
            dist.all_gather(outputs, mine)
            for got, want in zip(outputs, all_values):
                same(got, want)
            outputs = [torch.empty_like(mine) for _ in range(size)] if rank == root else None
            dist.gather(mine, outputs, root)
            for got, want in zip(outputs or [], all_values):
                same(got, want)
            output = torch.empty_like(mine)
            dist.scatter(output, [value(q, dtype, layout, salt=1) for q in range(size)] if rank == root else None, root)
            same(output, value(rank, dtype, layout, salt=1))
            inputs = [value(rank, dtype, layout, salt=q) for q in range(size)]
            outputs = [torch.empty_like(mine) for _ in range(size)]
            dist.all_to_all(outputs, inputs)
            for q, got in enumerate(outputs):
                same(got, value(q, dtype, layout, salt=rank))
            if layout == "scalar":
                continue
            flat = torch.empty((size * mine.shape[0],) + tuple(mine.shape[1:]), dtype=dtype)
            dist.all_gather_into_tensor(flat, mine)
            for q, got in enumerate(flat.chunk(size)):
                same(got, all_values[q])


def test_movements():
    for size in (1, 2, 3):
        run(size, movements)


def uneven(rank, size):
    def block(q, salt=0):
        return torch.arange(q * 3 + salt).float() + q
    outputs = [torch.empty_like(block(q)) for q in range(size)]
    dist.all_gather(outputs, block(rank))
    for q in range(size):
        same(outputs[q], block(q))
    output = torch.empty(rank * 3)
    dist.reduce_scatter(output, [block(q) for q in range(size)])
    same(output, block(rank) * size)
    inputs = [torch.full((rank + 2 * q,), float(rank)) for q in range(size)]
    outputs = [torch.empty(q + 2 * rank) for q in range(size)]
    dist.all_to_all(outputs, inputs)
    for q in range(size):
        same(outputs[q], torch.full((q + 2 * rank,), float(q)))
    sent, received = [rank + 2 * q for q in range(size)], [q + 2 * rank for q in range(size)]
    output = torch.empty(sum(received), 2)
    dist.all_to_all_single(output, torch.full((sum(sent), 2), float(rank)), received, sent)
    same(output, torch.cat([torch.full((n, 2), float(q)) for q, n in enumerate(received)]))
    output = torch.empty(size * 2)
    dist.all_to_all_single(output, torch.arange(size * 2).float() + 10 * rank)
    same(output, torch.cat([torch.arange(2 * rank, 2 * rank + 2).float() + 10 * q for q in range(size)]))


def scattered(rank, size):
    """Lists whose tensors lie anywhere: between each other, in one another's place, empty, not in one piece."""
    rows = torch.empty(2 * size, 300)
    inputs, outputs = [rows[2 * q] for q in range(size)], [rows[2 * q + 1] for q in reversed(range(size))]
    for q in range(size):
        inputs[q].fill_(10.0 * rank + q)
    dist.all_to_all(outputs, inputs)
    for q in range(size):
        same(outputs[q], torch.full((300,), 10.0 * q + rank))
        same(inputs[q], torch.full((300,), 10.0 * rank + q))
    dist.all_to_all(inputs, inputs)
    for q in range(size):
        same(inputs[q], torch.full((300,), 10.0 * q + rank))
    columns = torch.zeros(300, size)
    outputs = [columns[:, 0]] + [torch.empty(300 if q != size - 1 else 0) for q in range(1, size)]
    inputs = [torch.full((300 if rank != size - 1 else 0,), 10.0 * rank + q) for q in range(size)]
    dist.all_to_all(outputs, inputs)
    for q in range(size):
        same(outputs[q], torch.full((outputs[q].numel(),), 10.0 * q + rank))


def test_lists_that_lie_anywhere():
    for size in (2, 3):
        run(size, scattered)


def test_uneven():
    for size in (2, 3, 4):
        run(size, uneven)


def in_place_and_adjacent(rank, size):
    flat = torch.zeros(size * 4)
    flat[rank * 4:rank * 4 + 4] = rank + 1.0
    dist.all_gather_into_tensor(flat, flat[rank * 4:rank * 4 + 4])
    same(flat, torch.arange(size).repeat_interleave(4).float() + 1)
    dist.reduce_scatter_tensor(flat[rank * 4:rank * 4 + 4], flat)
    same(flat[rank * 4:rank * 4 + 4], torch.full((4,), (rank + 1.0) * size))
    flat = torch.empty(size * 4)
    dist.all_gather(list(flat.chunk(size)), torch.full((4,), float(rank)))
    same(flat, torch.arange(size).repeat_interleave(4).float())


def test_in_place_and_adjacent():
    run(3, in_place_and_adjacent)


def coalesced(rank, size):
    with dist._coalescing_manager(async_ops=True) as manager:
        tensors = [torch.full((n,), float(rank)) for n in (1, 7, 4096)]
        for t in tensors:
            dist.all_reduce(t)
    manager.wait()
    for t in tensors:
        same(t, torch.full_like(t, sum(range(size))))
    outputs = [torch.empty(size * n) for n in (2, 5)]
    with dist._coalescing_manager():
        for out in outputs:
            dist.all_gather_into_tensor(out, torch.full((len(out) // size,), float(rank)))
    for out in outputs:
        same(out, torch.arange(size).repeat_interleave(len(out) // size).float())
    outputs = [torch.empty(n) for n in (2, 5)]
    with dist._coalescing_manager():
        for out in outputs:
            dist.reduce_scatter_tensor(out, torch.ones(size * len(out)))
    for out in outputs:
        same(out, torch.full_like(out, size))
    group = dist.group.WORLD
    group._start_coalescing(torch.device("cpu"))
    a, b = torch.ones(3), torch.ones(4)
    dist.all_reduce(a, async_op=True)
    dist.all_reduce(b, async_op=True)
    group._end_coalescing(torch.device("cpu")).wait()
    same(a, torch.full((3,), float(size)))
    same(b, torch.full((4,), float(size)))


def test_coalesced():
    run(3, coalesced)


def sparse(rank, size):
    def part(r):
        return torch.sparse_coo_tensor([[r, r + 1]], torch.tensor([[1.0, 2.0], [3.0, 4.0]]) * (r + 1), (size + 2, 2))
    tensor = part(rank)
    dist.all_reduce(tensor)
    same(tensor.to_dense(), sum(part(r).to_dense() for r in range(size)))
    empty = torch.sparse_coo_tensor(torch.empty(1, 0, dtype=torch.long), torch.empty(0), (5,)) if rank else \
        torch.sparse_coo_tensor([[2]], [7.0], (5,))
    dist.all_reduce(empty)
    same(empty.to_dense(), torch.tensor([0, 0, 7.0, 0, 0]))


def test_sparse():
    run(3, sparse)


def objects(rank, size):
    gathered = [None] * size
    dist.all_gather_object(gathered, {"rank": rank, "pad": "x" * rank * 100})
    assert [g["rank"] for g in gathered] == list(range(size))
    told = [{"from": rank}]
    dist.broadcast_object_list(told, src=size - 1)
    assert told == [{"from": size - 1}]
    out = [None]
    dist.scatter_object_list(out, [f"for {q}" for q in range(size)] if rank == 0 else None, src=0)
    assert out == [f"for {rank}"]
    gathered = [None] * size if rank == 1 else None
    dist.gather_object(rank * rank, gathered, dst=1)
    assert rank != 1 or gathered == [r * r for r in range(size)]


def test_objects():
    run(3, objects)


def large(rank, size):
    n = 3 * (1 << 20) + 5
    tensor = torch.arange(n, dtype=torch.float32) % 1000 + rank
    dist.all_reduce(tensor)
    same(tensor, (torch.arange(n, dtype=torch.float32) % 1000) * size + sum(range(size)))
    outputs = [torch.empty(n) for _ in range(size)]
    dist.all_gather(outputs, torch.full((n,), float(rank)))
    for q, got in enumerate(outputs):
        same(got, torch.full((n,), float(q)))


def test_large():
    run(2, large)


def cpu_backend():
    return dist.group.WORLD._get_backend(torch.device("cpu"))


BAD = [
    # torch itself sends tensors of other devices elsewhere; who calls the backend comes here
    ("tensor on another device", lambda r, n: cpu_backend().allreduce([torch.empty(2, device="meta")]), ValueError, "is on meta"),
    ("mixed devices", lambda r, n: cpu_backend().allgather([[torch.empty(2, device="meta")] * n], [torch.empty(2)]), ValueError, "is on meta"),
    ("several tensors", lambda r, n: cpu_backend().allreduce([torch.empty(2)] * 2), ValueError, "one tensor, not 2"),
    ("mixed types", lambda r, n: dist.all_gather([torch.empty(2), torch.empty(2).double()], torch.empty(2)), ValueError, "types|dtype"),
    ("too few outputs", lambda r, n: dist.all_gather([torch.empty(2)], torch.empty(2)), ValueError, "1 tensors for 2 ranks"),
    ("wrong own size", lambda r, n: dist.all_gather([torch.empty(3)] * n, torch.empty(2)), ValueError, "2 elements"),
    ("AVG of bool", lambda r, n: dist.all_reduce(torch.ones(2, dtype=torch.bool), dist.ReduceOp.AVG), TypeError, "AVG is not defined"),
    ("BAND of float", lambda r, n: dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND), TypeError, "BAND is not defined"),
    ("root out of range", lambda r, n: dist.broadcast(torch.ones(2), 7), ValueError, "7"),
    ("wrong block", lambda r, n: dist.all_gather_into_tensor(torch.empty(5), torch.empty(2)), ValueError, "5 elements"),
    ("wrong splits", lambda r, n: dist.all_to_all_single(torch.empty(4), torch.empty(4), [1, 3], [1, 1]), ValueError, "add up to 2"),
    ("indivisible", lambda r, n: dist.all_to_all_single(torch.empty(3), torch.empty(3)), ValueError, "divide equally"),
    ("negative tag", lambda r, n: dist.send(torch.ones(1), 1 - r, tag=-5), ValueError, "negative"),
    ("sparse product", lambda r, n: dist.all_reduce(torch.ones(2).to_sparse(), dist.ReduceOp.PRODUCT), ValueError, "SUM only"),
]


def bad(rank, size):
    for name, call, error, pattern in BAD:
        with pytest.raises(error, match=pattern):
            call(rank, size)
            raise AssertionError(f"{name}: nothing was said")
    tensor = torch.ones(2)
    dist.all_reduce(tensor)  # the group goes on
    same(tensor, torch.full((2,), 2.0))


def test_bad_calls():
    run(2, bad)
