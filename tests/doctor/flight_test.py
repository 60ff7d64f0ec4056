#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""flight_test.py UNISONO DATA - flight-recorder dumps as pickles: both sets of injected faults are named fully, in any protocol, with files
missing or empty; a pickle that would run code is refused and nothing of it is run."""
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

UNISONO, DATA = sys.argv.pop(1), sys.argv.pop(1)


def doctor(*paths):
    p = subprocess.run([UNISONO, "doctor", "--json", *paths], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    return p.returncode, json.loads(p.stdout)


def truth(name):
    with open(os.path.join(DATA, name, "fault_injection.log"), encoding="utf-8") as f:
        return re.search(r"Fault ranks: \[(.*)\]", f.read()).group(1).split(", ")


def dumps(name):
    folder = os.path.join(DATA, name)
    for leaf in sorted(os.listdir(folder)):
        if leaf.startswith("_dump_"):
            with open(os.path.join(folder, leaf), "rb") as f:
                yield leaf, pickle.load(f)


class Flight(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def write(self, leaf, data):
        with open(os.path.join(self.folder, leaf), "wb") as f:
            f.write(data)

    def named(self, name, kind, *paths):
        rc, answer = doctor(*paths)
        first = answer["findings"][0]
        self.assertEqual(rc, 1)
        self.assertEqual(first["kind"], kind, first)
        numbers = re.search(r"ranks? ([\d, and-]+)", first["headline"], re.I).group(1)
        self.assertEqual(re.findall(r"\d+", numbers), truth(name), first["headline"])

    def test_both_sets_are_named_fully(self):
        self.named("gpu_error_1st", "device-stalled", os.path.join(DATA, "gpu_error_1st"))
        self.named("lock_gil_1st", "rank-absent", os.path.join(DATA, "lock_gil_1st"))

    def test_groups_of_any_size(self):
        """Members are not cut, in either form, also when they stand backwards; nor are groups beyond the first hundreds."""
        for ranks in (list(range(99999, -1, -1)), json.dumps(list(range(100000)))):
            entry = {"pg_id": 700, "process_group": ["700", "default_pg"], "collective_seq_id": 8, "profiling_name": "nccl:all_reduce", "input_sizes": [[4]], "state": "scheduled", "is_p2p": False}
            self.write("rank_0.json", json.dumps({"version": "2.6", "rank": 0, "pg_config": {"700": {"name": "700", "desc": "default_pg", "ranks": ranks}},
                                                  "pg_status": {"700": {"last_enqueued_collective": 8, "last_completed_collective": 7}}, "entries": [entry]}).encode())
            _, answer = doctor(self.folder)
            self.assertRegex(answer["findings"][0]["headline"], "^Ranks 1-99999 wrote no dump, while rank 0 waits in operation 8")
            os.unlink(os.path.join(self.folder, "rank_0.json"))

    def test_every_protocol_and_json(self):
        for how in [0, 1, 2, 3, 4, 5, "json"]:
            for leaf, value in dumps("gpu_error_1st"):
                self.write(leaf, json.dumps(value).encode() if how == "json" else pickle.dumps(value, protocol=how) if how > 1 else pickle.dumps(value, protocol=2))
            self.named("gpu_error_1st", "device-stalled", self.folder)

    def test_names_do_not_matter(self):
        for leaf, value in dumps("lock_gil_1st"):
            rank = int(leaf.rsplit("_", 1)[1])
            self.write("host-7_nccl_trace_rank_%d.2031" % rank if rank % 2 else "fr-%d.pickle" % rank, pickle.dumps(value, protocol=4))
        self.named("lock_gil_1st", "rank-absent", self.folder)

    def test_an_empty_or_missing_dump_is_evidence(self):
        for leaf, value in dumps("lock_gil_1st"):
            if leaf == "_dump_9":
                continue
            self.write(leaf, b"" if leaf == "_dump_14" else pickle.dumps(value, protocol=2))
        rc, answer = doctor(self.folder)
        dead = [f for f in answer["findings"] if f["kind"] == "rank-dead"]
        self.assertTrue(dead and re.search(r"ranks 9 and 14", dead[0]["headline"], re.I), answer)
        self.assertTrue(any("_dump_14" in n and "empty" in n for n in answer["notes"]), answer["notes"])

    def test_code_is_never_run(self):
        class Trap:
            def __reduce__(self):
                return os.mkdir, (trap,)
        trap = os.path.join(self.folder, "sprung")
        for protocol in range(2, 6):
            self.write("rank_%d" % protocol, pickle.dumps({"version": "2.9", "entries": [], "x": Trap()}, protocol=protocol))
        rc, answer = doctor(self.folder)
        self.assertFalse(os.path.exists(trap))
        self.assertTrue(any("would call Python code" in n for n in answer["notes"]), answer["notes"])

    def test_nested_shared_and_circular_values(self):
        """What is shared is read, what contains itself or is nested beyond reason is refused: no file may end the doctor."""
        leaf, value = next(dumps("gpu_error_1st"))
        frames = [{"name": "step", "line": 1}]
        value = dict(value, shared=[frames, frames, (frames, frames)])
        self.write(leaf, pickle.dumps(value, protocol=4))
        rc, answer = doctor(os.path.join(self.folder, leaf))
        self.assertEqual((rc, [n for n in answer["notes"] if leaf in n]), (1, []))
        circle = []
        circle.append(circle)
        deep = b"\x80\x02" + b"]q\x00" + b"".join(b"]r" + (i + 1).to_bytes(4, "little") + b"j" + i.to_bytes(4, "little") + b"a0" for i in range(100000))
        for data, says in ((pickle.dumps(circle, protocol=2), "a value contains itself"), (deep + b"j\x05\x00\x00\x00.", "nested too deeply"),
                           (b"\x80\x02" + b"(" * 3000 + b".", "a value is missing"), (b"\x80\x02]" + b"]a" * 3 + b"]" * 9000 + b".", "nested too deeply"),
                           (b"\x80\x02]q\x00h\x00}q\x00", "its memo is wrong")):
            self.write(leaf, data)
            rc, answer = doctor(os.path.join(self.folder, leaf))
            self.assertIn(rc, (0, 2), (says, answer))
            self.assertTrue(any(says in n for n in answer["notes"]), (says, answer["notes"]))

    def test_cut_pickles_say_so(self):
        leaf, value = next(dumps("gpu_error_1st"))
        whole = pickle.dumps(value, protocol=2)
        for bytes_kept in (3, 10, len(whole) // 2, len(whole) - 1):
            self.write(leaf, whole[:bytes_kept])
            rc, answer = doctor(os.path.join(self.folder, leaf))
            self.assertTrue(answer["notes"], bytes_kept)


if __name__ == "__main__":
    unittest.main()
