#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""root_test.py UNISONO - `unisono doctor --root DIR` on a made machine: nothing bad as it is, and each thing that is made worse is told."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fake_root  # noqa: E402

UNISONO = sys.argv.pop(1)


class Machine(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp()
        self.folders = fake_root.machine(self.root)

    def tearDown(self):
        shutil.rmtree(self.root)

    def put(self, path, text):
        fake_root.put(self.root, path, text)

    def look(self, **env):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "UNISONO_", "GLOO_"))}
        p = subprocess.run([UNISONO, "doctor", "--root", self.root, "--json"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False, env=dict(clean, **env))
        answer = json.loads(p.stdout)
        return p.returncode, answer["checks"], answer["findings"]

    def one(self, name, word="", **env):
        """The check of that name whose value has the word."""
        rc, checks, _ = self.look(**env)
        found = [c for c in checks if c["name"] == name and word in c["value"]]
        self.assertEqual(len(found), 1, checks)
        self.assertEqual(rc == 1, any(c["state"] == "bad" for c in checks))
        return found[0]

    def test_nothing_is_bad_as_it_is(self):
        rc, checks, findings = self.look()
        self.assertEqual((rc, findings), (0, []), checks)
        self.assertEqual([c for c in checks if c["state"] == "bad"], [])
        values = [(c["name"], c["value"]) for c in checks]
        self.assertEqual(sum(n == "GPU" for n, _ in values), 4)
        self.assertIn(("RDMA card", "mlx5_1 port 1: InfiniBand, 4: ACTIVE, 400 Gb/sec (4X NDR), NUMA node 1"), values)
        self.assertIn(("NUMA", "2 nodes (node 0: 0-15; node 1: 16-31); this process: processors of 0,1, memory of 0-1"), values)
        self.assertIn(("IOMMU", "on, passes GPUs and cards through, iommu=pt"), values)
        self.assertFalse(any("collective" in n for n, _ in values))

    def test_few_lanes(self):
        self.put(self.folders["0000:13:00.0"] + "/current_link_width", "8")
        c = self.one("GPU", "0000:13:00.0")
        self.assertEqual(c["state"], "bad")
        self.assertIn("x8 of 32.0 GT/s PCIe x16", c["value"])

    def test_an_idle_link_is_no_fault(self):
        self.put(self.folders["0000:13:00.0"] + "/current_link_speed", "2.5 GT/s PCIe")
        c = self.one("GPU", "0000:13:00.0")
        self.assertEqual(c["state"], "good")
        self.assertIn("idle", c["advice"])

    def test_iommu_translates(self):
        for folder in list(self.folders.values()):
            if os.path.exists(os.path.join(self.root, folder, "iommu_group/type")):
                self.put(folder + "/iommu_group/type", "DMA-FQ")
        c = self.one("IOMMU")
        self.assertEqual(c["state"], "bad")
        self.assertIn("iommu=pt", c["advice"])

    def test_acs_redirects(self):
        self.put(self.folders["0000:12:00.0"] + "/config", fake_root.acs(0x1d))
        rc, checks, findings = self.look()
        self.assertEqual(rc, 1)
        self.assertIn(("PCIe ACS", "bad"), [(c["name"], c["state"]) for c in checks])
        self.assertEqual(findings[0]["kind"], "peer-access")
        self.assertIn("12:00.0", findings[0]["headline"])

    def test_a_port_that_is_down(self):
        self.put(self.folders["0000:15:00.0"] + "/infiniband/mlx5_0/ports/1/state", "1: DOWN")
        self.assertEqual(self.one("RDMA card", "mlx5_0")["state"], "note")

    def test_roce_without_a_gid_that_is_routed(self):
        port = self.folders["0000:15:00.0"] + "/infiniband/mlx5_0/ports/1/"
        self.put(port + "link_layer", "Ethernet")
        self.put(port + "gids/0", "fe80:0000:0000:0000:966d:aeff:fe03:0000")
        self.put(port + "gid_attrs/types/0", "RoCE v2")
        self.assertIn("no RoCE v2 GID", self.one("RDMA card", "mlx5_0")["value"])
        self.put(port + "gids/1", "0000:0000:0000:0000:0000:ffff:0a00:0001")
        self.put(port + "gid_attrs/types/1", "RoCE v2")
        self.assertEqual(self.one("RDMA card", "mlx5_0")["state"], "good")

    def test_the_smallest_limit_of_the_groups_above_acts(self):
        self.put("sys/fs/cgroup/system.slice/cpu.max", "150000 100000")
        self.put("sys/fs/cgroup/system.slice/job.scope/cpu.max", "max 100000")
        self.put("sys/fs/cgroup/system.slice/job.scope/memory.max", str(8 << 30))
        self.put("sys/fs/cgroup/system.slice/job.scope/memory.events", "low 0\noom_kill 3")
        self.assertEqual(self.one("cgroup cpu quota")["value"], "1.5 processors")
        c = self.one("cgroup memory limit")
        self.assertEqual((c["state"], c["value"]), ("bad", "8.0 GiB"))
        self.assertIn("3 processes", c["advice"])

    def test_groups_of_the_first_version(self):
        self.put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000")
        self.put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000")
        self.put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712")
        self.assertEqual(self.one("cgroup cpu quota")["value"], "4.0 processors")
        self.assertNotIn("cgroup memory limit", [c["name"] for c in self.look()[1]])

    def test_locked_memory_matters_with_cards(self):
        self.put("proc/self/limits", "Max locked memory         65536                65536                bytes\nMax open files            1024                 4096                 files")
        rc, checks, _ = self.look()
        self.assertEqual(rc, 1)
        self.assertEqual({c["name"]: c["state"] for c in checks if c["name"] in ("locked memory", "open files")}, {"locked memory": "bad", "open files": "note"})

    def test_memory_of_the_other_socket(self):
        self.put("proc/self/status", "Cpus_allowed_list:\t0-15\nMems_allowed_list:\t1")
        self.assertEqual(self.one("NUMA")["state"], "bad")
        self.put("proc/self/status", "Cpus_allowed_list:\t3\nMems_allowed_list:\t0-1")
        self.assertEqual(self.one("processors")["value"], "1 of 32 may be used by this process")

    def test_kernel(self):
        self.put("proc/sys/kernel/numa_balancing", "1")
        self.put("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet")
        self.put("proc/1/cgroup", "0::/kubepods/besteffort/pod1")
        self.assertEqual(self.one("NUMA balancing")["state"], "note")
        self.assertEqual(self.one("clock source")["state"], "note")
        self.assertEqual(self.one("kind of machine")["value"], "bare metal, in a container")
        self.assertEqual(self.one("kernel command line")["value"], "iommu=pt")

    def test_what_each_library_takes(self):
        """Unisono the fastest, NCCL the first by the kernel's order; RCCL knows no virbr*."""
        self.assertEqual(self.one("interface for Unisono")["value"], "enp5s0, eno1")
        c = self.one("interface for NCCL")
        self.assertEqual((c["state"], c["value"]), ("note", "eno1, enp5s0"))
        self.assertIn("NCCL_SOCKET_IFNAME==enp5s0", c["advice"])
        self.put("sys/class/net/virbr0/ifindex", "0")
        self.assertEqual(self.one("interface for NCCL")["value"], "eno1, enp5s0")
        self.assertEqual(self.one("interface for RCCL")["value"], "virbr0, eno1, enp5s0")
        self.put("sys/class/net/ib0/ifindex", "9")
        self.assertEqual(self.one("interface for RCCL")["value"], "ib0")

    def test_interfaces_that_variables_name(self):
        self.assertEqual(self.one("interface for NCCL", NCCL_SOCKET_IFNAME="enp,eno")["value"], "eno1, enp5s0 (NCCL_SOCKET_IFNAME)")
        self.assertEqual(self.one("interface for Unisono", NCCL_SOCKET_IFNAME="eno,enp")["value"], "eno1, enp5s0 (NCCL_SOCKET_IFNAME)")
        self.assertEqual(self.one("interface for NCCL", NCCL_SOCKET_IFNAME="^eno1")["value"], "lo, enp5s0 (NCCL_SOCKET_IFNAME)")
        c = self.one("interface for NCCL", NCCL_SOCKET_IFNAME="=enp5")
        self.assertEqual(c["state"], "bad")
        self.assertIn("NCCL_SOCKET_IFNAME==enp5", c["value"])

    def test_small_packets_on_a_fast_interface(self):
        self.put("sys/class/net/enp5s0/mtu", "1500")
        self.assertEqual(self.one("interface", "enp5s0")["state"], "note")

    def test_a_folder_that_is_none(self):
        p = subprocess.run([UNISONO, "doctor", "--root", self.root + "/sys"], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(p.returncode, 2)
        self.assertIn("has neither sys nor proc", p.stderr)


if __name__ == "__main__":
    unittest.main()
