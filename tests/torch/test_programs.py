# SPDX-License-Identifier: Apache-2.0
"""Whole programs: ways to start one, a death under torchrun, and the examples, which compare their losses with gloo's."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import pytest

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = HERE.parent.parent / "examples" / "torch"

ONE_SUM = """
import torch, torch.distributed as dist, unisono.torch
dist.init_process_group({arguments})
t = torch.ones(3) * dist.get_rank()
dist.all_reduce(t)
import os
os.write(1, f"sum {{t[0].item()}} {{dist.get_backend()}}\\n".encode())
dist.destroy_process_group()
"""


def program(folder, arguments='"unisono"'):
    path = os.path.join(folder, "program.py")
    with open(path, "w", encoding="utf-8") as f:
        f.write(ONE_SUM.format(arguments=arguments))
    return path


def finish(command, limit_s=200, **more):
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False, **more)
    return done.returncode, done.stdout + done.stderr


def torchrun(*arguments):
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *arguments]


@pytest.mark.parametrize("arguments", ['"unisono"', '"cpu:unisono"', '"cpu:unisono,cuda:gloo"'])
def test_torchrun(arguments):
    with tempfile.TemporaryDirectory() as folder:
        status, text = finish(torchrun(program(folder, arguments)))
    assert status == 0 and text.count("sum 1.0") == 2, text


def test_plain_environment():
    with tempfile.TemporaryDirectory() as folder:
        path, running = program(folder), []
        for rank in range(2):
            env = dict(os.environ, RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="29417")
            running.append(subprocess.Popen([sys.executable, path], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        for process in running:
            text = process.communicate(timeout=200)[0]
            assert process.returncode == 0 and "sum 1.0 unisono" in text, text


def test_debug_detail():
    with tempfile.TemporaryDirectory() as folder:
        status, text = finish(torchrun(program(folder)), env=dict(os.environ, TORCH_DISTRIBUTED_DEBUG="DETAIL"))
    assert status == 0 and text.count("sum 1.0") == 2, text


def test_death_under_torchrun():
    """The others are told within a second, with the cause; torchrun starts anew and the job goes on from its checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        status, text = finish(torchrun("--max-restarts", "1", str(HERE / "restart_job.py"), folder))
        assert status == 0, text
        killed = float(pathlib.Path(folder, "killed").read_text(encoding="utf-8"))
        told = pathlib.Path(folder, "told0").read_text(encoding="utf-8")
    assert "rank 1" in told, told
    assert float(told.split()[0]) - killed < 1.0, told
    assert text.count("begins at step 0") == 2 and text.count("begins at step 3") == 2, text
    assert text.count("ends with 12.0") == 2, text


def test_another_torch():
    """An extension that was built for another series of torch says so."""
    code = ("import torch; torch.__version__ = '2.99.1'\n"
            "import unisono.torch")
    status, text = finish([sys.executable, "-c", code])
    assert status != 0 and re.search(r"ImportError: unisono.torch was built for torch 2\.\d+.* and this is torch 2\.99\.1; build it again", text), text


def test_examples():
    status, text = finish([sys.executable, str(EXAMPLES / "parallel.py"), "--ranks", "2", "--steps", "6"], limit_s=400)
    assert status == 0 and text.count("same bits") >= 5, text
    status, text = finish([sys.executable, str(EXAMPLES / "demo.py"), "--ranks", "2", "--steps", "10"], limit_s=400)
    assert status == 0 and "losses differ by at most" in text, text
