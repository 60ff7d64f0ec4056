#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""broken_test.py UNISONO DATA - jobs that were really broken (break_jobs.py), by what PyTorch's own recorder has of them on Gloo, and by what
`unisono why --export-flight-recorder` says of ours: the doctor names the kind, the ranks, the group and the call."""
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


def truth():
    with open(os.path.join(DATA, "broken.tsv"), encoding="utf-8") as f:
        for line in f:
            if line.strip() and not line.startswith("#"):
                folder, kind, facts = line.rstrip("\n").split("\t")
                yield folder, kind, [fact.strip() for fact in facts.split(";")]


def doctor(*paths):
    p = subprocess.run([UNISONO, "doctor", "--json", *paths], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    return json.loads(p.stdout)["findings"]


class Broken(unittest.TestCase):
    def named(self, folder, kind, facts, path):
        findings = doctor(path)
        self.assertTrue(findings, folder)
        self.assertEqual(findings[0]["kind"], kind, (folder, findings[0]["headline"]))
        said = findings[0]["headline"] + " " + findings[0]["explanation"]
        for fact in facts:
            self.assertTrue(re.search(fact, said), (folder, fact, said))

    def test_each_is_named_fully(self):
        told = 0
        for folder, kind, facts in truth():
            with self.subTest(folder):
                self.named(folder, kind, facts, os.path.join(DATA, folder))
            told += 1
        self.assertGreater(told, 12)

    def test_the_json_that_torch_writes(self):
        """_dump_fr_trace_json: numbers as text in pg_status, 0 for a time that is not known, no frames."""
        with tempfile.TemporaryDirectory() as copy:
            for folder, kind, facts in truth():
                if not folder.startswith("gloo/") or folder == "gloo/sizes":
                    continue
                for rank in range(4):
                    with open(os.path.join(DATA, folder, "rank_%d" % rank), "rb") as f:
                        dump = pickle.load(f)
                    dump["pg_status"] = {k: {name: str(n) for name, n in v.items()} for k, v in dump["pg_status"].items()}
                    for entry in dump["entries"]:
                        del entry["frames"]
                        entry.update(time_discovered_started_ns=0, time_discovered_completed_ns=0)
                    with open(os.path.join(copy, "rank_%d.json" % rank), "w", encoding="utf-8") as f:
                        json.dump(dump, f)
                with self.subTest(folder):
                    self.named(folder, kind, [fact for fact in facts if "break_jobs" not in fact], copy)

    def test_every_folder_has_its_truth(self):
        told = {folder for folder, _, _ in truth()}
        there = {"%s/%s" % (source, leaf) for source in ("gloo", "unisono") for leaf in os.listdir(os.path.join(DATA, source))}
        self.assertEqual(told, there)

    def test_a_job_that_goes_on_is_not_broken(self):
        """The same records as of before the fault: nothing is open, so nothing is wrong."""
        with tempfile.TemporaryDirectory() as copy:
            for rank in range(4):
                shutil.copy(os.path.join(DATA, "gloo", "absent", "rank_2"), os.path.join(copy, "rank_%d" % rank))
            self.assertEqual(doctor(copy), [])


if __name__ == "__main__":
    unittest.main()
