# SPDX-License-Identifier: Apache-2.0
"""Ways to start a job: torch's stores, torchrun, torch.multiprocessing, plain variables, Slurm's, `unisono run`; fork and spawn."""
import datetime
import os
import pathlib
import socket
import subprocess
import sys
import threading

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import unisono.torch
from ranks import run
from unisono.torch import slurm

BUILD = pathlib.Path(os.environ.get("BUILD_DIR") or pathlib.Path(__file__).resolve().parents[2] / "build")

ONE_SUM = """
import os, sys, torch, torch.distributed as dist, unisono.torch
dist.init_process_group(%s)
t = torch.ones(3) * (dist.get_rank() + 1)
dist.all_reduce(t)
group = dist.new_group([1, 0])
dist.all_reduce(t, group=group)
os.write(1, f"sum {t[0].item()} {dist.get_backend()}\\n".encode())
dist.destroy_process_group()
"""
LAUNCHERS = ("UNISONO_", "SLURM_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_")


def bare():
    """The environment without what a launcher says."""
    return {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHERS)}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture(name="program")
def one_sum(tmp_path):
    def write(arguments='"unisono"'):
        path = tmp_path / "program.py"
        path.write_text(ONE_SUM % arguments, encoding="utf-8")
        return str(path)
    return write


def check_two(commands):
    """Starts them at once; each must end well and say the sum of two ranks."""
    running = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for command, env in commands]
    try:
        texts = [p.communicate(timeout=100)[0] for p in running]
    finally:
        for p in running:
            p.kill()
    for p, text in zip(running, texts):
        assert p.returncode == 0, "\n".join(texts)
    assert "".join(texts).count("sum 6.0 unisono") == 2, "\n".join(texts)


# ---- torch's stores

def with_store(rank, size, kind, where):
    if kind == "tcp":
        store = dist.TCPStore("127.0.0.1", where, size, rank == 0)
    else:
        store = dist.FileStore(where, size)
    dist.init_process_group("unisono", store=store, rank=rank, world_size=size)
    tensor = torch.full((3,), float(rank))
    dist.all_reduce(tensor)
    assert tensor[0] == sum(range(size))
    dist.destroy_process_group()


@pytest.mark.parametrize("kind", ["tcp", "file"])
def test_store(kind, tmp_path):
    run(3, with_store, kind, free_port() if kind == "tcp" else str(tmp_path / "store"), init=False)


def with_url(rank, size, url):
    dist.init_process_group("unisono", init_method=url, rank=rank, world_size=size)
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    assert tensor[0] == size
    dist.destroy_process_group()


@pytest.mark.parametrize("kind", ["tcp", "file"])
def test_init_method(kind, tmp_path):
    run(2, with_url, f"tcp://127.0.0.1:{free_port()}" if kind == "tcp" else f"file://{tmp_path}/meet", init=False)


def threads_as_ranks(_rank, _size):
    """A HashStore belongs to one process: its ranks are threads of it, each with a backend of its own."""
    store, size, sums, problems = dist.HashStore(), 3, {}, []

    def drive(rank):
        try:
            options = dist.distributed_c10d._DistributedBackendOptions()
            options.store, options.group_rank, options.group_size = store, rank, size
            options.timeout, options.group_id = datetime.timedelta(seconds=20), "threads"
            backend = unisono.torch._C.create(options)
            tensor = torch.full((1000,), float(rank))
            for _ in range(10):
                backend.allreduce([tensor]).wait()
            sums[rank] = tensor[7].item()
            backend.shutdown()
        except BaseException as error:  # noqa: BLE001
            problems.append(repr(error))
    threads = [threading.Thread(target=drive, args=(r,)) for r in range(size)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not problems, problems
    assert sums == {r: 3.0 * size ** 9 for r in range(size)}


def test_hash_store():
    run(1, threads_as_ranks, init=False)


# ---- launchers

@pytest.mark.parametrize("arguments", ['"unisono"', '"cpu:unisono"', '"cpu:unisono,cuda:gloo"'])
def test_torchrun(program, arguments):
    text = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", program(arguments)],
                          env=bare(), capture_output=True, text=True, timeout=200, check=False)
    assert text.returncode == 0 and text.stdout.count("sum 6.0") == 2, text.stdout + text.stderr


def test_debug_detail(program):
    """torch's own checks, which this backend does not need, wrap it."""
    port = str(free_port())
    check_two([([sys.executable, program()], dict(bare(), RANK=str(r), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
                                                  TORCH_DISTRIBUTED_DEBUG="DETAIL")) for r in range(2)])


def spawned(rank, size, url, results):
    dist.init_process_group("unisono", init_method=url, rank=rank, world_size=size)
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    results.put(tensor[0].item())
    dist.destroy_process_group()


@pytest.mark.parametrize("start", ["spawn", "fork", "forkserver"])
def test_multiprocessing(start):
    results = mp.get_context(start).SimpleQueue()
    mp.start_processes(spawned, args=(2, f"tcp://127.0.0.1:{free_port()}", results), nprocs=2, start_method=start)
    assert [results.get(), results.get()] == [2.0, 2.0]


def test_plain_variables(program):
    port = str(free_port())
    check_two([([sys.executable, program()], dict(bare(), RANK=str(r), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port))
               for r in range(2)])


def slurm_environment(rank, **more):
    return dict(bare(), SLURM_PROCID=str(rank), SLURM_LOCALID=str(rank), SLURM_NTASKS="2", SLURM_STEP_NUM_TASKS="2", SLURM_STEP_ID="0",
                SLURM_JOB_ID=str(os.getpid()), SLURM_STEP_NODELIST="localhost", SLURM_JOB_NODELIST="localhost", SLURM_NODEID="0", **more)


@pytest.mark.parametrize("reserved", [False, True])
def test_slurm(program, reserved):
    port = free_port()
    more = {"SLURM_STEP_RESV_PORTS": f"{port - 1}-{port}"} if reserved else {}
    check_two([([sys.executable, program()], slurm_environment(r, **more)) for r in range(2)])


def test_words_of_slurm():
    assert [slurm.first_host(nodes) for nodes in ("n[07-09,12],m3", "m3,n1", "a[1,3]b[2-4]", "one", "")] == ["n07", "m3", "a1b2", "one", ""]
    step = {"SLURM_PROCID": "3", "SLURM_NTASKS": "8", "SLURM_STEP_ID": "0", "SLURM_LOCALID": "1", "SLURM_JOB_NODELIST": "n[3-4]"}
    told = slurm.words(step)
    assert (told["RANK"], told["WORLD_SIZE"], told["LOCAL_RANK"], told["MASTER_ADDR"]) == ("3", "8", "1", "n3")
    assert 20000 <= int(told["MASTER_PORT"]) < 32000
    assert "MASTER_PORT" not in slurm.words(dict(step, MASTER_PORT="29500"))
    assert slurm.words(dict(step, RANK="0", WORLD_SIZE="2")) == {}  # torchrun under srun
    assert slurm.words({k: v for k, v in step.items() if k != "SLURM_STEP_ID"}) == {}  # a batch script


def test_unisono_run(program):
    tool = BUILD / "cli" / "unisono"
    done = subprocess.run([str(tool), "run", "-n", "2", "--", sys.executable, program()], env=bare(), capture_output=True, text=True, timeout=200,
                          check=False)
    assert done.returncode == 0 and done.stdout.count("sum 6.0 unisono") == 2, done.stdout + done.stderr
