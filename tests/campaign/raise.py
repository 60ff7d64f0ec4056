#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""raise.py - a rank of the faults campaign that is a Python program: all_reduce after all_reduce, until the rank CAMPAIGN_RANK, at
operation CAMPAIGN_AT, ends in an exception that nobody catches. Loads the library CAMPAIGN_LIBRARY as it is, without a binding; says
what worker.c says."""
import ctypes
import os
import sys
import time

INT64, SUM, ENDED_WELL = 4, 0, 0


def say(*words):
    print(*words, flush=True)


def main():
    uno = ctypes.CDLL(os.environ["CAMPAIGN_LIBRARY"])
    uno.uno_last_error.restype = uno.uno_err_name.restype = ctypes.c_char_p
    comm = ctypes.c_void_p()
    if uno.uno_comm_init_env(ctypes.byref(comm), None) != ENDED_WELL:
        say("error %.6f %s" % (time.monotonic(), uno.uno_last_error(None).decode()))
        return 3
    rank, at = uno.uno_comm_rank(comm), int(os.environ["CAMPAIGN_AT"])
    given, got = (ctypes.c_int64 * 16)(*range(16)), (ctypes.c_int64 * 16)()
    for n in range(1000000):
        if n == 5:
            say("ready %.6f" % time.monotonic())
        if n == at and rank == int(os.environ["CAMPAIGN_RANK"]):
            say("cause %.6f" % time.monotonic())
            raise ValueError("the loss is not a number")
        err = uno.uno_all_reduce(given, got, ctypes.c_size_t(16), INT64, SUM, comm, None)
        if err != ENDED_WELL:
            say("error %.6f %s: %s" % (time.monotonic(), uno.uno_err_name(err).decode(), uno.uno_last_error(comm).decode()))
            return 4
    return 0


if __name__ == "__main__":
    sys.exit(main())
