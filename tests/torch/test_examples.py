# SPDX-License-Identifier: Apache-2.0
"""The examples: every way of training over 50 steps on 2 and on 4 ranks, with the loss of every step beside gloo's."""
import importlib.util
import pathlib
import re
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "torch"
STEPS = 50
WAYS = ["ddp", "ddp-static", "ddp-unused", "ddp-accumulate", "ddp-bf16", "ddp-fp16", "zero", "fsdp2", "tensor", "pipeline"]


def finish(name, *arguments, limit_s=1500):
    done = subprocess.run([sys.executable, str(EXAMPLES / name), *arguments], capture_output=True, text=True, timeout=limit_s, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_demo():
    assert "losses differ by at most" in finish("demo.py", "--ranks", "2", "--steps", "10")


@pytest.mark.parametrize("ranks", [2, 4])
def test_parallel(ranks):
    """The example itself fails where a curve is too short, does not fall or is further from gloo's than its bound."""
    text = finish("parallel.py", "--ranks", str(ranks), "--steps", str(STEPS))
    told = dict(re.findall(rf"^ +{ranks} (\S+) .*? (same bits|\S+)$", text, re.M))
    assert sorted(told) == sorted(WAYS), text
    if ranks == 2:  # a sum of two has one order
        assert set(told.values()) == {"same bits"}, text


@pytest.mark.parametrize("name, needs", [("lora.py", ["transformers", "accelerate", "peft"]), ("zero3.py", ["deepspeed"])])
def test_of_other_packages(name, needs):
    missing = [package for package in needs if importlib.util.find_spec(package) is None]
    if missing:
        pytest.skip(f"{name} needs {', '.join(missing)}")
    text = finish(name, "--steps", str(STEPS))
    assert f"2 ranks, {STEPS} steps: " in text and f"4 ranks, {STEPS} steps: " in text, text
    assert "same bits" in next(line for line in text.splitlines() if line.startswith("2 ranks")), text
