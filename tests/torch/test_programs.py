# SPDX-License-Identifier: Apache-2.0
"""Whole programs: a death under torchrun, and another torch than the extension was built for."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import unisono

HERE = pathlib.Path(__file__).resolve().parent


def finish(command, limit_s=200, **more):
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False, **more)
    return done.returncode, done.stdout + done.stderr


def torchrun(*arguments):
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *arguments]


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


def test_missing_library(tmp_path):
    shutil.copytree(pathlib.Path(unisono.__file__).parent, tmp_path / "unisono")
    shutil.rmtree(tmp_path / "unisono" / "lib")
    env = dict(os.environ, PYTHONPATH=str(tmp_path))
    env.pop("LD_LIBRARY_PATH", None)  # or it is found in the build directory
    status, text = finish([sys.executable, "-c", "import unisono.torch"], env=env)
    assert status != 0 and "ImportError: unisono.torch: the extension cannot be loaded: libunisono.so.0: cannot open shared object file" in text, text


def test_another_torch():
    """An extension that was built for another series of torch says so."""
    code = ("import torch; torch.__version__ = '2.99.1'\n"
            "import unisono.torch")
    status, text = finish([sys.executable, "-c", code])
    assert status != 0 and re.search(r"ImportError: unisono.torch was built for torch 2\.\d+.* and this is torch 2\.99\.1; build it again", text), text
