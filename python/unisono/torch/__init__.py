# SPDX-License-Identifier: Apache-2.0
"""The PyTorch backend: after `import unisono.torch`, init_process_group("unisono") and "cpu:unisono,cuda:nccl" work."""
import contextlib
import datetime
import os
import sys

import torch
import torch.distributed as dist

if not dist.is_available():
    raise ImportError("unisono.torch: this torch was built without torch.distributed")

try:
    from . import _C
except ImportError as error:
    raise ImportError(f"unisono.torch: the extension cannot be loaded: {error}. If it was built for another torch than {torch.__version__}, "
                      "build it again: pip install --no-build-isolation --force-reinstall ./python") from error


def _series(version):
    return version.split("+")[0].split(".")[:2]


if _series(_C.built_for) != _series(torch.__version__):
    raise ImportError(f"unisono.torch was built for torch {_C.built_for} and this is torch {torch.__version__}; build it again: "
                      "pip install --no-build-isolation --force-reinstall ./python")

from .errors import (AbortedError, ArgumentError, BY_CODE, ExcludedError, MismatchError, PeerDeadError,  # noqa: E402
                     TimeoutError, UnisonoError)
from .slurm import words as _slurm_words  # noqa: E402

__all__ = ["AbortedError", "ArgumentError", "ExcludedError", "MismatchError", "PeerDeadError", "TimeoutError", "UnisonoError",
           "counts", "monitored_barrier", "shared_allocator"]

os.environ.update(_slurm_words(os.environ))
_C.set_error_classes(BY_CODE)
# What is not the program's: torch, this package, and Python's own library.
_C.tell_positions(":".join(os.path.dirname(os.path.dirname(f)) + "/" if f is __file__ else os.path.dirname(f) + "/"
                           for f in (torch.__file__, __file__, os.__file__)))


def _tell_of_exceptions():
    """Who ends in an exception has not left in order: the others hear of the exit status, not of a group that was taken down."""
    told = sys.excepthook

    def hook(kind, value, trace):
        _C.program_failed()
        told(kind, value, trace)
    sys.excepthook = hook


_tell_of_exceptions()


def _description():
    """The group_desc of the group that torch is making now, "" if it has none: torch tells a backend only afterwards."""
    frame = sys._getframe(1)
    while frame and frame.f_code.co_name != "_new_process_group_helper":
        frame = frame.f_back
    told = frame.f_locals.get("group_desc") if frame else None
    return told if isinstance(told, str) and told != "undefined" else ""


def _create(options, _backend_options):
    parent = None  # of groups of the default group's ranks: one job, so that a stall is told across all of them
    if options.global_ranks_in_group and dist.is_initialized():
        with contextlib.suppress(ValueError):
            parent = _backend_of(None)
    return _C.create(options, _description(), parent)


def _backend_of(group):
    """The unisono backend behind a process group; ValueError if it has none."""
    group = group or dist.distributed_c10d._get_default_group()
    backend = group._get_backend(torch.device("cpu"))
    while isinstance(backend, dist.ProcessGroup) and hasattr(backend, "wrapped_pg"):
        backend = backend.wrapped_pg  # TORCH_DISTRIBUTED_DEBUG=DETAIL
    backend = getattr(backend, "wrapped_pg", backend)
    if not isinstance(backend, _C.Backend):
        raise ValueError(f"this group's backend for cpu is {dist.get_backend(group)}, not unisono")
    return backend


@contextlib.contextmanager
def shared_allocator():
    """Within it, tensors from 64 KB on are made in memory that the other ranks of the host can map, in all threads of the process.

    Collectives on them need no copies. For what is made once and communicated often: parameters, gradients, the buckets of
    DistributedDataParallel and FSDP; each tensor takes pages and a file descriptor of its own.
    """
    _C.push_shared_allocator()
    try:
        yield
    finally:
        _C.pop_shared_allocator()


def counts(group=None):
    """What has moved the bytes of a group on this rank so far, as a dict: bytes by carrier, bytes read in place, operations."""
    return _backend_of(group).counts()


def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    """A barrier that says which ranks did not come within `timeout` (a timedelta or seconds; None = the group's).

    On every rank that came it raises TimeoutError with the missing ranks: the first one, or with wait_all_ranks all of them.
    """
    if timeout is not None and not isinstance(timeout, datetime.timedelta):
        timeout = datetime.timedelta(seconds=timeout)
    given = {} if timeout is None else {"timeout": timeout}
    _backend_of(group).monitored_barrier(wait_all_ranks=wait_all_ranks, **given)


if "unisono" not in dist.Backend.backend_list:
    dist.Backend.register_backend("unisono", _create, extended_api=True, devices=["cpu"])
