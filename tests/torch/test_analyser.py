# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own analyser of flight-recorder dumps reads what `unisono why --export-flight-recorder` writes: it names who is missing in a job that
stands, and complains of nothing in one that runs."""
import os
import re
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("torch.distributed.flight_recorder.fr_trace", reason="this torch comes without the analyser of its dumps")
BUILD = os.environ.get("BUILD_DIR", "build")
UNISONO, RANK = os.path.join(BUILD, "cli", "unisono"), os.path.join(BUILD, "tests", "cli", "why_rank")
RANKS, LIMIT_S = 3, 60


def wait_for(condition, what):
    until = time.monotonic() + LIMIT_S
    while not (got := condition()):
        assert time.monotonic() < until, "waited in vain for " + what
        time.sleep(0.1)
    return got


def analysed(mode, tmp_path, ready):
    """What the analyser says of a job of ours, exported once `ready` is in what `unisono why` says of it."""
    folder = str(tmp_path / "dumps")
    job = subprocess.Popen([UNISONO, "run", "-n", str(RANKS), "--", RANK, mode], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        pids = [job.stdout.readline().split()[1] for _ in range(RANKS)]

        def exported():
            why = subprocess.run([UNISONO, "why", pids[0], "--export-flight-recorder", folder], capture_output=True, text=True, timeout=LIMIT_S, check=False)
            return re.search(ready, why.stdout)
        wait_for(exported, ready)
    finally:
        job.send_signal(signal.SIGINT)
        job.wait(timeout=LIMIT_S)
    tool = subprocess.run([sys.executable, "-W", "ignore", "-m", "torch.distributed.flight_recorder.fr_trace", folder, "-o", str(tmp_path / "db")],
                          capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert tool.returncode == 0, tool.stderr
    return tool.stdout + tool.stderr


def test_names_who_is_missing(tmp_path):
    said = analysed("absent", tmp_path, r"never called")
    assert "Not all ranks joining collective, sequence number: 3" in said
    assert "missing ranks: {1}" in said
    assert re.search(r"group info: [0-9a-f]+-0:world", said)
    assert "collective: gloo:all_reduce" in said


def test_has_nothing_to_say_of_a_healthy_job(tmp_path):
    """Its ranks have made the same two calls, and wait for nothing."""
    said = analysed("idle", tmp_path, r"3 of 3 ranks")
    assert "Not all ranks" not in said and "has errors" not in said
