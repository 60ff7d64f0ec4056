#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hosts_test.py UNISONO - `unisono doctor --hosts` with agents that are this program, and with made ones that say something else; no root needed.
Run as `hosts_test.py agent NAME` it is a made one."""
import json
import os
import subprocess
import sys
import time
import unittest

MAGIC = "unisono-doctor-agent-1 "


def made_agent(name):
    """What --launcher starts instead of ssh: the rest of the command line is the real agent's."""
    real = sys.argv[3:]
    if name.startswith("real"):
        os.execvp(real[0], real)
    if name == "denied":
        sys.stderr.write("Warning: something else\nPermission denied (publickey).\n")
        sys.exit(255)
    print("Welcome to a shell that greets", flush=True)
    sys.stdin.readline()
    hello = {"name": name, "port": 1, "versions": {"Unisono": "0.1.0"}, "settings": {}, "limits": {"memlock": -1, "nofile": 65536, "nproc": -1}, "cards": [],
             "addresses": [{"interface": "eth0", "address": "10.9.0." + name[-1], "mtu": 1500, "mbit": 10000}]}
    if name == "old4":
        hello["versions"]["Unisono"] = "0.0.9"
    if name == "tight5":
        hello["limits"]["memlock"] = 64
    print(MAGIC + json.dumps(hello), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        if name == "dies6":
            sys.exit(1)
        if order["do"] == "clock":
            print(json.dumps({"ns": time.time_ns() + (3_250_000_000 if name == "ahead3" else 0)}), flush=True)
        else:
            print(json.dumps({"connected": True, "error": "", "ms": 0.1, "gbs": 1.0, "stuck": -1, "mtu": 1500, "retransmits": 0}), flush=True)


class Hosts(unittest.TestCase):
    def ask(self, hosts, launcher=None):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "UNISONO_", "GLOO_"))}
        launcher = launcher or "%s %s agent {host}" % (sys.executable, os.path.abspath(__file__))
        p = subprocess.run([UNISONO, "doctor", "--hosts", hosts, "--launcher", launcher, "--json"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100, check=False, env=clean)
        self.assertIn(p.returncode, (0, 1), p.stderr)
        return json.loads(p.stdout)

    def first(self, hosts, kind):
        found = self.ask(hosts)["findings"]
        self.assertTrue(found)
        self.assertEqual(found[0]["kind"], kind, found)
        self.assertTrue(found[0]["evidence"] and found[0]["remedies"])
        return found[0]["headline"] + " " + found[0]["explanation"]

    def test_all_alike(self):
        a = self.ask("a1,b2,c3")
        self.assertEqual(a["findings"], [])
        self.assertEqual(len(a["hosts"]["pairs"]), 6)
        self.assertEqual({(p["from"], p["to"]) for p in a["hosts"]["pairs"]}, {(x, y) for x in ("a1", "b2", "c3") for y in ("a1", "b2", "c3") if x != y})
        self.assertTrue(all(abs(h["clock_ms"]) <= h["clock_error_ms"] + 1 for h in a["hosts"]["hosts"]))

    def test_real_agents(self):
        a = self.ask("real1,real2")
        self.assertEqual([f["kind"] for f in a["findings"] if f["kind"] != "slow"], [], a["findings"])
        self.assertTrue(all(p["connected"] and p["error"] == "" and p["gbs"] > 0 and p["ms"] > 0 for p in a["hosts"]["pairs"]), a["hosts"]["pairs"])
        self.assertTrue(all(h["versions"]["Unisono"] and h["addresses"] for h in a["hosts"]["hosts"]))

    def test_secrets_stay(self):
        os.environ["NCCL_DEBUG"] = "WARN"
        try:
            p = subprocess.run([UNISONO, "doctor", "--hosts", "x", "--launcher", "env UNISONO_SECRET=abc UNISONO_SECRET_FILE=/x OTHER_TOKEN=1 NCCL_ALGO=Ring X={host}", "--json"], stdin=subprocess.DEVNULL,
                               capture_output=True, text=True, timeout=100, check=False)
        finally:
            del os.environ["NCCL_DEBUG"]
        settings = json.loads(p.stdout)["hosts"]["hosts"][0]["settings"]
        self.assertEqual(settings["NCCL_ALGO"], "Ring")
        self.assertFalse([k for k in settings if "SECRET" in k or "TOKEN" in k])

    def test_a_clock_that_is_ahead(self):
        said = self.first("a1,b2,ahead3", "settings-differ")
        self.assertIn("The clock of ahead3 is 3.2", said)

    def test_another_version(self):
        self.assertIn("old4 runs Unisono 0.0.9", self.first("a1,b2,old4", "version-skew"))

    def test_a_tight_limit(self):
        self.assertIn("(memlock) on tight5 is 64 KiB", self.first("a1,tight5", "limits"))

    def test_a_host_that_is_not_reached(self):
        said = self.first("a1,denied,b2", "launch")
        self.assertIn("denied cannot be asked", said)
        self.assertIn("Permission denied (publickey).", said)

    def test_an_agent_that_dies(self):
        said = self.first("a1,dies6,b2", "launch")
        self.assertIn("dies6 cannot be asked", said)

    def test_no_command(self):
        a = self.ask("a1", launcher="/no/such/program {host}")
        self.assertIn("No such file", a["findings"][0]["headline"])

    def test_no_names(self):
        p = subprocess.run([UNISONO, "doctor", "--hosts", ",,"], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(p.returncode, 2)
        self.assertIn("it names no host", p.stderr)

    def test_an_agent_alone(self):
        p = subprocess.run([UNISONO, "doctor", "--agent"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(p.returncode, 2)
        self.assertIn("started by", p.stderr)


if __name__ == "__main__":
    if sys.argv[1] == "agent":
        made_agent(sys.argv[2])
    else:
        UNISONO = sys.argv.pop(1)
        unittest.main()
