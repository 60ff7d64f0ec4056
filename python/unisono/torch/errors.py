# SPDX-License-Identifier: Apache-2.0
"""Errors of the library as Python exceptions. All are torch's DistBackendError; those that Python has a word for are that, too."""
import builtins

from torch.distributed import DistBackendError


class UnisonoError(DistBackendError):
    """An operation failed; the sentence says who, what, where and what next."""


class TimeoutError(UnisonoError, builtins.TimeoutError):  # noqa: A001 - the word that users look for
    """A deadline passed; the sentence says who was waited for."""


class PeerDeadError(UnisonoError, builtins.ConnectionError):
    """A rank ended while others needed it, or cannot be reached."""


class MismatchError(UnisonoError):
    """Ranks made calls that do not fit together."""


class AbortedError(UnisonoError):
    """The process group was aborted, here or on another rank."""


class ArgumentError(UnisonoError, builtins.ValueError):
    """An argument is not legal; nothing was sent."""


class ExcludedError(UnisonoError):
    """The others went on without this rank."""


# Numbers of uno_err in unisono.h; 0 stands for all others.
BY_CODE = {
    0: UnisonoError, 1: ArgumentError, 2: ArgumentError, 20: PeerDeadError, 21: PeerDeadError, 22: MismatchError, 23: TimeoutError,
    30: AbortedError, 31: ExcludedError,
}
