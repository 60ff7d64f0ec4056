# SPDX-License-Identifier: Apache-2.0
"""Slurm's words for rank, size and meeting point in those that torch's env:// reads, so that `srun python train.py` needs no wrapper."""
import re
import zlib


def first_host(nodes):
    """The first host of a node list: "n[07-09,12],m3" -> "n07"; "" if it names none."""
    found = re.match(r"(?:[^,\[\]\s]|\[[^\]]*\])+", nodes)
    return re.sub(r"\[([^\],-]+)[^\]]*\]", r"\1", found[0]) if found else ""


def _port(environ, step):
    """The last of the step's reserved ports (libunisono takes the first ones), else one that the job's number gives."""
    reserved = re.fullmatch(r"(\d+)-(\d+)", environ.get("SLURM_STEP_RESV_PORTS", ""))
    if reserved:
        return int(reserved[2])
    return 20000 + zlib.crc32(f"torch {environ.get('SLURM_JOB_ID', '0')}.{step}".encode()) % 12000


def words(environ):
    """What is missing in `environ` of torch's variables, as a dict; empty outside a step, and where a launcher has set RANK itself."""
    step = environ.get("SLURM_STEP_ID") or environ.get("SLURM_STEPID")
    size = environ.get("SLURM_STEP_NUM_TASKS") or environ.get("SLURM_NTASKS")
    rank, nodes = environ.get("SLURM_PROCID"), environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST", "")
    if not (step and size and rank) or "RANK" in environ or "WORLD_SIZE" in environ:
        return {}  # in a batch script SLURM_PROCID is 0, too, but no step is running
    told = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": environ.get("SLURM_LOCALID"), "MASTER_ADDR": first_host(nodes),
            "MASTER_PORT": str(_port(environ, step))}
    return {name: value for name, value in told.items() if value and not environ.get(name)}
