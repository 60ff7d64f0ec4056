# SPDX-License-Identifier: Apache-2.0
"""Sends and receives, work handles and futures, groups and their ends, errors and what they say."""
import builtins
import datetime
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch
import torch.distributed as dist

import unisono.torch
from ranks import dying, run


def same(got, want):
    assert torch.equal(got, want), f"got {got}, want {want}"


# ---- point to point

def tagged(rank, size):
    if rank == 0:
        for tag in range(5):
            dist.send(torch.full((tag + 1,), float(tag)), 1, tag=tag)
    elif rank == 1:
        for tag in reversed(range(5)):
            tensor = torch.empty(tag + 1)
            assert dist.recv(tensor, 0, tag=tag) == 0
            same(tensor, torch.full((tag + 1,), float(tag)))
    works = [dist.isend(torch.full((3,), float(rank)), q) for q in range(size) if q != rank]
    got = {}
    for _ in range(size - 1):
        tensor = torch.empty(3)
        source = dist.recv(tensor)
        got[source] = tensor
    for work in works:
        work.wait()
    assert sorted(got) == [q for q in range(size) if q != rank]
    for q, tensor in got.items():
        same(tensor, torch.full((3,), float(q)))
    dist.barrier()  # a receive from anybody would take what comes next
    right, left = (rank + 1) % size, (rank - 1) % size
    for count in (1, 100000):  # a ring of exchanges, received into a column
        column = torch.zeros(count, 2)
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.full((count,), float(rank)), right),
                                        dist.P2POp(dist.irecv, column[:, 1], left)])
        for work in works:
            work.wait()
        same(column[:, 1], torch.full((count,), float(left)))
        same(column[:, 0], torch.zeros(count))


def test_send_and_receive():
    run(3, tagged)


def beside(rank, size):
    """A receive that is not served yet keeps no collective from going on."""
    tensor = torch.empty(4)
    if rank == 0:
        work = dist.irecv(tensor, 1)
        assert not work.is_completed()
    dist.barrier()
    total = torch.ones(2)
    dist.all_reduce(total)
    same(total, torch.full((2,), float(size)))
    if rank == 1:
        dist.send(torch.arange(4).float(), 0)
    if rank == 0:
        work.wait()
        assert work.is_completed()
        same(tensor, torch.arange(4).float())


def test_receive_beside_collectives():
    run(2, beside)


# ---- work handles

def handles(rank, size):
    tensors = [torch.full((1000,), float(rank + i)) for i in range(20)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    for work in reversed(works):
        work.wait()
        assert work.is_completed() and work.is_success() and work.exception() is None
    for i, t in enumerate(tensors):
        same(t, torch.full((1000,), float(sum(range(size)) + i * size)))
    seen = []
    work = dist.all_reduce(torch.ones(3), async_op=True)
    future = work.get_future().then(lambda f: seen.append(f.value()[0].clone()) or f.value()[0] * 2)
    same(future.wait(), torch.full((3,), 2.0 * size))
    same(seen[0], torch.full((3,), float(size)))
    assert work.get_future().done()

    def nested(f):  # operations issued and waited for inside a callback, as PowerSGD does
        inner = dist.all_reduce(f.value()[0], async_op=True).get_future().wait()[0]
        return dist.all_reduce(inner, async_op=True).get_future().wait()[0]
    same(dist.all_reduce(torch.ones(2), async_op=True).get_future().then(nested).wait(), torch.full((2,), float(size ** 3)))
    outputs = [torch.empty(2) for _ in range(size)]
    work = dist.all_gather(outputs, torch.full((2,), float(rank)), async_op=True)
    assert len(work.get_future().wait()) == size
    work = dist.barrier(async_op=True)
    work.wait()


def test_work_handles():
    run(3, handles)


def late(rank, size):
    if rank == 1:
        time.sleep(1.0)
    work = dist.all_reduce(torch.ones(3), async_op=True)
    if rank == 0:
        with pytest.raises(builtins.TimeoutError, match="has not ended after 200 ms"):
            work.wait(datetime.timedelta(milliseconds=200))
    work.wait()


def test_wait_with_timeout():
    run(2, late)


def waited_for_twice(rank, size):
    """Who waits for a receive for which another thread waits already hears of its own deadline, and of signals."""
    tensor = torch.empty(1)
    if rank == 1:
        dist.recv(tensor, 0)
        dist.send(torch.ones(1), 0)
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    work = dist.irecv(tensor, 1)
    other = threading.Thread(target=work.wait)
    other.start()
    time.sleep(0.2)
    with pytest.raises(builtins.TimeoutError, match="not finished"):
        work.wait(datetime.timedelta(milliseconds=300))
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        work.wait()
    dist.send(torch.ones(1), 1)
    other.join()
    work.wait()
    same(tensor, torch.ones(1))


def test_two_threads_wait_for_one_receive():
    run(2, waited_for_twice, limit_s=30)


# ---- groups

def groups(rank, size):
    even, odd = dist.new_group([0, 2]), dist.new_group([1, 3])
    mine, members = (even, [0, 2]) if rank % 2 == 0 else (odd, [1, 3])
    pair = dist.new_group([3, 0])
    for _ in range(5):
        tensor = torch.full((10,), float(rank))
        dist.all_reduce(tensor, group=mine)
        same(tensor, torch.full((10,), float(sum(members))))
        if rank in (0, 3):
            tensor = torch.full((10,), float(rank))
            dist.broadcast(tensor, 3, group=pair)
            same(tensor, torch.full((10,), 3.0))
    subgroup, _ = dist.new_subgroups(2)
    tensor = torch.full((1,), float(rank))
    dist.all_reduce(tensor, group=subgroup)
    same(tensor, torch.full((1,), float(rank // 2 * 4 + 1)))
    failures = []

    def drive(group, rounds, want):
        try:
            for _ in range(rounds):
                t = torch.ones(2000)
                dist.all_reduce(t, group=group)
                same(t, torch.full((2000,), float(want)))
        except BaseException as error:  # noqa: BLE001
            failures.append(error)
    threads = [threading.Thread(target=drive, args=(mine, 100, 2)), threading.Thread(target=drive, args=(subgroup, 50, 2))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures, failures
    with pytest.raises(ValueError, match="Invalid|not part|not registered"):
        dist.all_reduce(torch.ones(1), group=odd if rank % 2 == 0 else even)
        raise ValueError("not part of it: nothing was done, which torch itself decides")
    dist.destroy_process_group(pair)
    dist.barrier()


def test_groups():
    run(4, groups)


def works(group, members):
    tensor = torch.ones(5)
    dist.all_reduce(tensor, group=group)
    same(tensor, torch.full((5,), float(members)))


def neighbours(rank, size):
    """What befalls one group does not befall the others of its job, but the death of a rank that is in several of them."""
    pairs = [dist.new_group(ranks) for ranks in ([1, 2], [0, 2], [0, 1])]  # without rank 0, 1, 2
    doomed = dist.new_group([2, 1, 0], group_desc="doomed")
    works(doomed, 3)
    if rank == 1:
        doomed._get_backend(torch.device("cpu")).abort()
    else:
        with pytest.raises(unisono.torch.AbortedError, match="rank 1"):  # rank 1 of both
            dist.all_reduce(torch.ones(1), group=doomed)
    dist.destroy_process_group(doomed)
    doomed = dist.new_group([2, 1, 0], group_desc="doomed")
    for group, members in [(doomed, 3), (None, 3)] + [(pairs[q], 2) for q in range(3) if q != rank]:
        works(group, members)
    dist.destroy_process_group(doomed)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.monotonic()
    with pytest.raises(unisono.torch.PeerDeadError, match="rank 1 .*was killed by signal 9"):
        dist.all_reduce(torch.ones(1), group=pairs[2 - rank])
    works(pairs[1], 2)
    works(dist.new_group([2, 0], use_local_synchronization=True), 2)
    if rank == 0:
        with pytest.raises(unisono.torch.PeerDeadError, match="rank 1 .*is one of the 2 members"):
            dist.new_group([0, 1], use_local_synchronization=True)
    assert time.monotonic() - start < 20


def test_neighbours():
    run(3, neighbours, may_die=(1,))


def again(rank, size):
    store = dist.distributed_c10d._get_default_store()
    for _ in range(3):
        tensor = torch.ones(4)
        dist.all_reduce(tensor)
        same(tensor, torch.full((4,), float(size)))
        group = dist.group.WORLD
        backend = group._get_backend(torch.device("cpu"))
        dist.destroy_process_group()
        with pytest.raises(unisono.torch.UnisonoError, match="was destroyed"):
            backend.allreduce([torch.ones(1)])
        dist.init_process_group("unisono", store=store, rank=rank, world_size=size)


def test_destroy_and_again():
    run(2, again, limit_s=40)


def shapes(rank, size):
    """split, merge and shrink of the backend class."""
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert backend.name() == "unisono" and dist.get_backend() == "unisono"
    store = dist.distributed_c10d._get_default_store()
    ranks = [2, 1] if rank else [0]
    part = backend.split(dist.PrefixStore(f"part{bool(rank)}", store), ranks)
    tensor = torch.full((2,), float(rank))
    part.allreduce([tensor]).wait()
    same(tensor, torch.full((2,), float(sum(ranks))))
    assert part.rank() == ranks.index(rank) and part.size() == len(ranks)
    if rank != 1:
        smaller = backend.shrink([1])
        tensor = torch.full((2,), float(rank))
        smaller.allreduce([tensor]).wait()
        same(tensor, torch.full((2,), 2.0))
    else:
        with pytest.raises(unisono.torch.UnisonoError):
            for _ in range(100):
                backend.allreduce([torch.ones(1)]).wait()
                time.sleep(0.1)
    part.shutdown()


def test_split_and_shrink():
    run(3, shapes)


def fewer(rank, size):
    """torch's own shrink_group: the group of those that go on is the default group then."""
    dist.all_reduce(torch.ones(1))
    if rank == 1:
        os._exit(0)
    dist.shrink_group([1])
    tensor = torch.full((2,), float(rank))
    dist.all_reduce(tensor)
    same(tensor, torch.full((2,), 2.0))
    assert dist.get_world_size() == 2 and dist.get_rank() == rank // 2 and dist.get_backend() == "unisono"
    dist.barrier()


@pytest.mark.skipif(not hasattr(dist, "shrink_group"), reason="this torch has no shrink_group")
def test_shrink_group():
    run(3, fewer, may_die=(1,))


# ---- errors

def monitored(rank, size):
    unisono.torch.monitored_barrier()
    unisono.torch.monitored_barrier(timeout=5)
    if rank in (0, 2):
        with pytest.raises(unisono.torch.TimeoutError, match="Ranks 1, 3 failed to pass monitoredBarrier in 500 ms"):
            unisono.torch.monitored_barrier(timeout=0.5, wait_all_ranks=True)
    dist.barrier()
    if rank in (0, 2):
        with pytest.raises(dist.DistBackendError, match="Rank 1 failed to pass monitoredBarrier"):
            unisono.torch.monitored_barrier(timeout=datetime.timedelta(seconds=0.5))
    else:
        with pytest.raises(unisono.torch.TimeoutError):  # the second one of ranks 1 and 3 is the first one of the others
            unisono.torch.monitored_barrier(timeout=0.1)
    dist.barrier()


def test_monitored_barrier():
    run(4, monitored)


def differing(rank, size):
    with pytest.raises(unisono.torch.MismatchError, match="all_reduce") as told:
        dist.all_reduce(torch.ones(4 + rank))
    assert isinstance(told.value, dist.DistBackendError)
    assert "4" in str(told.value) and "5" in str(told.value)
    with pytest.raises(dist.DistBackendError):  # the first cause again, and at once
        dist.all_reduce(torch.ones(4))


def test_mismatch():
    run(2, differing)


def thrown(rank, size):
    """A call with a deadline of its own that torch refuses, after it was done, leaves the group its deadline."""
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    options = dist.AllreduceOptions()
    options.timeout = datetime.timedelta(seconds=0.5)
    with pytest.raises(RuntimeError, match="single memory location"):
        backend.allreduce([torch.ones(1).expand(4)], options).wait()
    time.sleep(1.5 * rank)
    total = torch.ones(1)
    dist.all_reduce(total)
    same(total, torch.full((1,), float(size)))


def test_own_deadline_of_a_call_that_throws():
    run(2, thrown)


def by_environment(rank, size):
    """After a call with a deadline of its own a group that torch gave its default has again what NCCL_TIMEOUT says."""
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    options = dist.AllreduceOptions()
    options.timeout = datetime.timedelta(seconds=20)
    backend.allreduce([torch.ones(1)], options).wait()
    if rank == 0:
        with pytest.raises(builtins.TimeoutError):
            dist.all_reduce(torch.ones(1))
    else:
        time.sleep(4)


def test_default_deadline_after_a_call_with_its_own(monkeypatch):
    monkeypatch.setenv("NCCL_TIMEOUT", "1")
    run(2, by_environment, timeout_s=1800, limit_s=30)


def alone(rank, size):
    """What rank 0 left in the store for the others does not stay there when they do not come."""
    store = dist.HashStore()
    with pytest.raises(builtins.TimeoutError):
        dist.init_process_group("unisono", store=store, rank=0, world_size=2, timeout=datetime.timedelta(seconds=1))
    ids = [key for key in store.list_keys() if "unisono_id/" in key]
    assert len(ids) == 1 and store.get(ids[0]) == bytes(1)


def test_id_of_a_group_that_nobody_joins():
    run(1, alone, init=False)


def missing(rank, size):
    if rank == 0:
        start = time.monotonic()
        with pytest.raises(builtins.TimeoutError, match="rank 1") as told:
            dist.all_reduce(torch.ones(4))
        assert 1.5 < time.monotonic() - start < 8, told.value
        assert isinstance(told.value, dist.DistBackendError)
    else:
        time.sleep(4)


def test_timeout_names_the_missing_rank():
    run(2, missing, timeout_s=2)


def test_death_is_told():
    run(3, dying, may_die=(1,))


def interrupted(rank, size):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if rank == 1:
        dist.recv(torch.empty(1), 0)
        time.sleep(0.5)
        with pytest.raises(unisono.torch.AbortedError, match="rank 0 was interrupted by a signal in all_reduce"):
            dist.all_reduce(torch.ones(1))
            dist.all_reduce(torch.ones(1))
        return
    for wait in (lambda: dist.recv(torch.empty(1), 1, tag=9), lambda: dist.all_reduce(torch.ones(1))):
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            wait()
            time.sleep(0.3)
        assert time.monotonic() - start < 2
        if "recv" in wait.__code__.co_names:
            dist.send(torch.ones(1), 1)


def test_ctrl_c():
    run(2, interrupted)


def test_ctrl_c_where_another_thread_has_imported():
    program = '''
import datetime, os, signal, threading, time
def load():
    import unisono.torch
first = threading.Thread(target=load)
first.start()
first.join()
import torch.distributed as dist
signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
start = time.monotonic()
try:
    dist.init_process_group("unisono", store=dist.HashStore(), rank=0, world_size=2, timeout=datetime.timedelta(seconds=6))
except KeyboardInterrupt:
    print("interrupted" if time.monotonic() - start < 3 else "interrupted late", flush=True)
os._exit(0)
'''
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "interrupted\n", done.stdout + done.stderr


def handled(rank, size):
    """A signal handler that calls what its own thread waits in hears so, and can end the group."""
    told, pending = [], dist.irecv(torch.empty(1), 1 - rank, tag=7)

    def handler(*_):
        for call in (lambda: dist.all_reduce(torch.ones(1)), lambda: dist.all_reduce(torch.ones(1), async_op=True),
                     lambda: dist.isend(torch.ones(1), 1 - rank), pending.wait):
            with pytest.raises(unisono.torch.UnisonoError, match="called in a signal handler") as error:
                call()
            told.append(error)
        assert not pending.is_completed()
        dist.destroy_process_group()
        told.append("destroyed")

    signal.signal(signal.SIGUSR1, handler)
    if rank == 0:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    else:
        time.sleep(1)
    with pytest.raises(unisono.torch.AbortedError):
        dist.all_reduce(torch.ones(1))
    assert rank == 1 or told[4:] == ["destroyed"]


def test_calls_in_a_signal_handler():
    run(2, handled)


def aborted(rank, size):
    if rank == 0:
        threading.Timer(0.3, lambda: dist.group.WORLD._get_backend(torch.device("cpu")).abort()).start()
    else:
        time.sleep(1)
    with pytest.raises(unisono.torch.UnisonoError):
        dist.all_reduce(torch.ones(1))


def test_abort():
    run(2, aborted)
