# SPDX-License-Identifier: Apache-2.0
"""Ranks as real processes, for the tests of the PyTorch backend."""
import ctypes
import datetime
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback

import pytest
import torch
import torch.distributed as dist

import unisono.torch


def _enter_host(name):
    """Puts this process, which has one thread, into a network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{name}", "rb") as namespace:
        if libc.setns(namespace.fileno(), 0x40000000) != 0:  # CLONE_NEWNET
            raise OSError(ctypes.get_errno(), f"setns {name}")


def _rank_main(function, rank, size, store_path, pipe, options, arguments):
    torch.set_num_threads(1)
    try:
        if options["hosts"]:
            _enter_host(options["hosts"][rank % len(options["hosts"])])
        if options["init"]:
            dist.init_process_group(options["backend"], store=dist.FileStore(store_path, size), rank=rank, world_size=size,
                                    timeout=datetime.timedelta(seconds=options["timeout_s"]))
        result = function(rank, size, *arguments)
        if options["init"] and dist.is_initialized():
            dist.destroy_process_group()
        pipe.send(("ok", result))
    except BaseException as error:  # noqa: BLE001 - whatever it was, the parent tells it
        pipe.send(("error", f"{type(error).__name__}: {error}\n{traceback.format_exc()}"))
    finally:
        pipe.close()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def run(size, function, *arguments, backend="unisono", timeout_s=30, limit_s=100, init=True, may_die=(), hosts=()):
    """Run function(rank, size, *arguments) on `size` forked ranks of an initialised group; return the results by rank.

    A rank that fails fails the test with its traceback; ranks in may_die may end without a word and give None. hosts: network namespaces,
    which the ranks are dealt to in turn.
    """
    context = multiprocessing.get_context("fork")
    options = {"backend": backend, "timeout_s": timeout_s, "init": init, "hosts": hosts}
    with tempfile.TemporaryDirectory() as folder:
        pipes, processes = [], []
        for rank in range(size):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_rank_main,
                                      args=(function, rank, size, os.path.join(folder, "store"), theirs, options, arguments))
            process.start()
            theirs.close()
            pipes.append(ours)
            processes.append(process)
        results, problems = [None] * size, []
        end = time.monotonic() + limit_s
        for rank, pipe in enumerate(pipes):
            try:
                if not pipe.poll(max(0.0, end - time.monotonic())):
                    problems.append(f"rank {rank} did not end within {limit_s} s")
                    continue
                word, value = pipe.recv()
                results[rank] = value
                if word == "error":
                    problems.append(f"rank {rank}: {value}")
            except EOFError:
                if rank not in may_die:
                    problems.append(f"rank {rank} ended without a word")
        for process in processes:
            if problems and process.is_alive():
                os.kill(process.pid, signal.SIGKILL)
            process.join(10)
            if process.is_alive():
                problems.append(f"process {process.pid} stays after its last word")
                process.kill()
    assert not problems, "\n".join(problems)
    return results


def line_here(offset=0):
    """The line of the caller, for tests of what is said of a call."""
    return sys._getframe(1).f_lineno + offset


def dying(rank, size):
    """Rank 1 is killed, and the others are told so."""
    dist.all_reduce(torch.ones(1))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    start = time.monotonic()
    with pytest.raises(unisono.torch.PeerDeadError, match="rank 1"):
        dist.all_reduce(torch.ones(1))
    assert time.monotonic() - start < 5
