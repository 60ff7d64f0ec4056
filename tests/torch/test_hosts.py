# SPDX-License-Identifier: Apache-2.0
"""Ranks on two hosts, which are network namespaces: the same results over TCP, and errors that name the other host's program.

Needs root; skipped otherwise.
"""
import os
import re
import subprocess
import time

import pytest
import torch
import torch.distributed as dist

import unisono.torch
from ranks import dying, line_here, run


def ip(*arguments, check=True):
    subprocess.run(["ip", *arguments], check=check, capture_output=not check)


@pytest.fixture(scope="module", name="hosts")
def two_hosts():
    names = [f"uno-torch-{os.getpid()}-{i}" for i in range(2)]
    if os.getuid() != 0 or subprocess.run(["ip", "netns", "add", names[0]], capture_output=True, check=False).returncode:
        pytest.skip("making network namespaces needs root")
    try:
        ip("netns", "add", names[1])
        ip("link", "add", "host", "netns", names[0], "type", "veth", "peer", "name", "host", "netns", names[1])
        for i, name in enumerate(names):
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "addr", "add", f"10.83.7.{i + 1}/24", "dev", "host")
            ip("-n", name, "link", "set", "host", "up")
        yield names
    finally:
        for name in names:
            ip("netns", "del", name, check=False)


def moved(rank, size):
    for n in (1, 1000, 1 << 20):
        tensor = torch.full((n,), float(rank))
        dist.all_reduce(tensor)
        assert torch.equal(tensor, torch.full((n,), float(sum(range(size)))))
        outputs = [torch.empty(n) for _ in range(size)]
        dist.all_gather(outputs, torch.full((n,), float(rank)))
        for q, got in enumerate(outputs):
            assert torch.equal(got, torch.full((n,), float(q)))
    return unisono.torch.counts()["tcp_bytes"]


def test_collectives(hosts):
    assert min(run(4, moved, hosts=hosts)) > 0


def differing(rank, size):
    dist.barrier()
    if rank == 0:
        here = line_here(2)
        with pytest.raises(unisono.torch.MismatchError) as told:
            dist.all_reduce(torch.ones(4))
    else:
        here = line_here(2)
        with pytest.raises(unisono.torch.MismatchError) as told:
            dist.all_reduce(torch.ones(5))
    return here, str(told.value)


def test_mismatch_names_both_call_sites(hosts):
    results = run(2, differing, hosts=hosts)
    for _, text in results:
        for rank, (here, _) in enumerate(results):
            assert f"rank {rank} at test_hosts.py:{here} in differing" in text, text


def passed_by(rank, size):
    """Nobody waits for anybody in the call that differs: its place is told though both have gone on."""
    dist.barrier()
    here = line_here(1)
    dist.broadcast(torch.ones(1), rank)
    with pytest.raises(unisono.torch.MismatchError) as told:
        dist.barrier()
        dist.barrier()
    return here, str(told.value)


def test_mismatch_of_an_earlier_call(hosts):
    for here, text in run(2, passed_by, hosts=hosts):
        for rank in (0, 1):
            assert f"rank {rank} at test_hosts.py:{here} in passed_by" in text, text


def sleeps_in_python(seconds):
    time.sleep(seconds)


def stalled(rank, size):
    dist.barrier()
    if rank == 1:
        sleeps_in_python(6.5)
        return None
    with pytest.raises(unisono.torch.TimeoutError) as told:
        dist.all_reduce(torch.ones(3))
    return str(told.value)


def test_missing_rank_is_found_in_its_program(hosts, monkeypatch):
    monkeypatch.setenv("UNISONO_STALL", "1")
    text = run(2, stalled, hosts=hosts, timeout_s=4)[0]
    assert re.search(r"rank 1\b.* in sleeps_in_python at test_hosts.py:\d+|rank 1\b.*test_hosts.py:\d+ in sleeps_in_python", text), text


def test_death_is_told(hosts):
    run(3, dying, may_die=(1,), hosts=hosts)
