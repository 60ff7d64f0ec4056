# SPDX-License-Identifier: Apache-2.0
"""Errors say where in whose Python program it happened, without the help of the rank that is missing."""
import builtins
import ctypes
import datetime
import os
import pathlib
import re
import subprocess
import sys
import time

import pytest
import torch
import torch.distributed as dist

import unisono.torch
from ranks import line_here, run


def reduces(tensor):
    dist.all_reduce(tensor)


def differing(rank, size):
    if rank == 0:
        here = line_here(2)
        with pytest.raises(unisono.torch.MismatchError) as told:
            dist.all_reduce(torch.ones(4))
    else:
        here = line_here(2)
        with pytest.raises(unisono.torch.MismatchError) as told:
            dist.broadcast(torch.ones(4), 0)
    return here, str(told.value)


def test_mismatch_names_both_call_sites():
    results = run(2, differing)
    for _, text in results:
        for rank, (here, _) in enumerate(results):
            assert f"rank {rank} at test_tells.py:{here} in differing" in text, text


def asynchronous(rank, size):
    """A call that runs later, on another thread, is told with the place where it was issued."""
    first = torch.ones(1 << 20)
    works = [dist.all_reduce(first, async_op=True) for _ in range(3)]
    here = line_here(1)
    works.append(dist.all_reduce(torch.ones(2 + rank), async_op=True))
    dist_after = torch.ones(1)
    with pytest.raises(unisono.torch.MismatchError) as told:
        works[-1].wait()
        dist.all_reduce(dist_after)
    assert f"rank {rank} at test_tells.py:{here} in asynchronous" in str(told.value), told.value


def test_asynchronous_call_site():
    run(2, asynchronous)


def sleeps_in_python(seconds):
    time.sleep(seconds)


def sleeps_in_c_with_the_lock(seconds):
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))  # PyDLL keeps the interpreter's lock


def spins(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def stalled(rank, size, how):
    dist.barrier()
    if rank == 1:
        how(6.5)
        return None
    with pytest.raises(unisono.torch.TimeoutError) as told:
        reduces(torch.ones(3))
    return str(told.value)


@pytest.mark.parametrize("how", [sleeps_in_python, sleeps_in_c_with_the_lock, spins])
def test_missing_rank_is_found_in_its_program(how, monkeypatch):
    monkeypatch.setenv("UNISONO_STALL", "1")
    text = run(2, stalled, how, timeout_s=4)[0]
    found = re.search(rf"rank 1\b.* in {how.__name__} at test_tells.py:(\d+)", text)
    assert found, text
    number = int(found[1])
    assert 0 <= number - how.__code__.co_firstlineno <= 3, text


def test_classes_of_errors():
    """Each code of the header has its class; all are torch's error, and Python's own where it has a word for it."""
    header = (pathlib.Path(__file__).resolve().parents[2] / "include" / "unisono.h").read_text(encoding="utf-8")
    codes = {name: int(number) for name, number in re.findall(r"UNO_ERR_(\w+) = (\d+)", header)}
    errors = unisono.torch
    special = {"ARG": errors.ArgumentError, "TYPE": errors.ArgumentError, "PEER_DEAD": errors.PeerDeadError, "UNREACHABLE": errors.PeerDeadError,
               "MISMATCH": errors.MismatchError, "TIMEOUT": errors.TimeoutError, "ABORTED": errors.AbortedError, "EXCLUDED": errors.ExcludedError}
    assert errors.errors.BY_CODE == {0: errors.UnisonoError, **{codes[name]: kind for name, kind in special.items()}}
    for kind, also in ((errors.ArgumentError, ValueError), (errors.PeerDeadError, ConnectionError), (errors.TimeoutError, builtins.TimeoutError),
                       (errors.MismatchError, RuntimeError), (errors.AbortedError, RuntimeError), (errors.ExcludedError, RuntimeError)):
        assert issubclass(kind, (errors.UnisonoError,)) and issubclass(kind, dist.DistBackendError) and issubclass(kind, also), kind


# ---- groups: one job, so that waits across them are seen

def all_told(rank, ranks):
    """Until these ranks have heard what they waited for: who leaves first would be the others' cause."""
    store = dist.distributed_c10d._get_default_store()
    store.set(f"told {rank}", "")
    store.wait([f"told {r}" for r in ranks])


def in_opposite_order(rank, size):
    limit = datetime.timedelta(seconds=4)
    dp, tp = dist.new_group([0, 1], timeout=limit, group_desc="data parallel"), dist.new_group([1, 0], timeout=limit)
    first, second = (dp, tp) if rank == 0 else (tp, dp)
    dist.barrier()
    here = line_here(2)
    with pytest.raises(unisono.torch.TimeoutError) as told:
        dist.all_reduce(torch.ones(3), group=first)
        dist.all_reduce(torch.ones(4), group=second)
    all_told(rank, range(2))
    return here, tp.group_name, str(told.value)


def test_groups_in_opposite_order(monkeypatch):
    """One sentence: the circle, both groups by their names, and where both ranks stand."""
    monkeypatch.setenv("UNISONO_STALL", "1")
    results = run(2, in_opposite_order)
    line, tp, _ = results[0]
    for _, _, text in results:
        assert "communicators are used in different order" in text, text
        for rank, group in ((0, "data parallel"), (1, tp)):
            assert re.search(rf'rank {rank} .*waits in all_reduce #1 of comm "{group}" at test_tells.py:{line} in in_opposite_order', text), text


def waits_in_another_group(rank, size):
    """Rank 2 stands in a collective of a group that rank 3 never calls; the others need rank 2 in theirs."""
    limit = datetime.timedelta(seconds=4)
    pair = dist.new_group([2, 3], timeout=limit, group_desc="pair")
    three = dist.new_group([0, 1, 2], timeout=limit, group_desc="three")
    dist.barrier()
    if rank == 3:
        time.sleep(6.5)
        return None
    here = line_here(2)
    with pytest.raises(unisono.torch.TimeoutError) as told:
        dist.all_reduce(torch.ones(3), group=pair if rank == 2 else three)
    all_told(rank, range(3))
    return here, str(told.value)


def test_rank_that_waits_in_another_group(monkeypatch):
    monkeypatch.setenv("UNISONO_STALL", "1")
    results = run(4, waits_in_another_group)
    for here, text in results[:3]:
        assert 'comm "pair"' in text and re.search(r"rank 3\b.* in waits_in_another_group at test_tells.py:\d+", text), text
        assert 'ranks 0-2 wait for it: ranks 0, 1 in all_reduce #1 of comm "three" for rank 2' in text, text


FAILS = """
import sys, torch, torch.distributed as dist, unisono.torch
dist.init_process_group("unisono")
for i in range(20):
    dist.all_reduce(torch.ones(4))
    if dist.get_rank() == 1 and i == 9:
        raise ValueError("no such file")
"""


def test_an_exception_is_told_by_its_status(tmp_path):
    """Who ends in an exception takes its groups down with the interpreter: that is no leave in order."""
    program = tmp_path / "fails.py"
    program.write_text(FAILS)
    ran = subprocess.run([os.path.join(os.environ["BUILD_DIR"], "cli", "unisono"), "run", "-n", "3", "--keep-going", "--", sys.executable, str(program)], capture_output=True,
                         text=True, timeout=60, check=False)
    assert ran.returncode == 1, ran.stderr
    told = re.findall(r"(?m)^\[rank[02]\]: .*PeerDeadError: (.*)", ran.stderr)
    assert len(told) == 2, ran.stderr
    for text in told:
        assert re.search(r"rank 1 \(pid \d+ on .*\) exited with status 1", text), text
        assert "off by one" not in text, text
