# SPDX-License-Identifier: Apache-2.0
"""Why an aim is not reached, where that is known: what report.py says below its table. A reason stays true only as long as the code
that it speaks of: look at it again when that changes. docs/tuning.md has what was tried."""
import re

REASONS = (
    (r"^send-recv, 2 ranks", "up to 4 KB the group of two calls counts: each is checked, noted in the ledger with an event of its own and matched, some 1 700 instructions "
     "together, where the other library has none of the first two; 64 KB and more are copied into a room and out of it by both sides at once, and the other's room is smaller "
     "and stays in its cache until the machine's slow minutes"),
    (r"^broadcast, 2 ranks", "8 and 512 bytes take 400 instructions a call (check, ledger, line) where the other library has fewer; 1 MB and 4 MB have two speeds, by whether "
     "the receiver reads them where they lie or out of slots, which it judges by what was measured last: this machine changes its mind within seconds"),
    (r"^broadcast, [48] ranks", "at 8 bytes a root is at most 15 calls ahead of who reads, and then its processor has to go to another rank, where the other library's queue "
     "is longer"),
    (r"^send-recv, [48] ranks", "as with 2 ranks; and each rank waits for a message of its own neighbour, so that every call of all is a turn of ranks on a processor, "
     "of which a wait here takes some polls and a yield"),
    (r"^(reduce-scatter|all-to-all), 8 ranks", "from 64 KB on the buffers and rooms of 8 ranks exceed the caches: four fifths of the time is copying into slots and out of them; "
     "to read every message where it lies took as long"),
    (r"^between 4 hosts", "four ranks share two processors and take themselves for alone there: each wait keeps its processor for some microseconds before it yields"),
    (r"^between 2 hosts, up to 4 KB", "a system call here takes 8 us and sets the time of all; in a broadcast nothing goes the other way, so every fourth release is a frame "
     "of its own"),
    (r"^(all-gather|all-reduce|send-recv) between 2 hosts", "the loop around one socket that it is compared with keeps its buffers in the cache and has no slots to copy into"),
    (r"^joining .* 8 processes", "the processes' own work counts, on two processors: some 5 ms of processor each, of which the secret's handshakes, "
     "mapping each other's memory and starting a thread are the most"),
    (r"^joining .* 64 processes", "as with 8 processes; 64 of them take turns on two processors"),
    (r"uno_mem_alloc.*mapped buffers", "the ledger and the two hand-overs of a tile count against a bare loop at 64 KB"),
    (r"against the best prototype", "the prototype has one fixed number of steps and no check; from 4 MB on both have two speeds on this machine, and not in the same rounds"),
)


def of(aim):
    """The sentence, or None."""
    return next((text for pattern, text in REASONS if re.search(pattern, aim)), None)
