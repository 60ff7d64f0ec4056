#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""topo_test.py UNISONO TOPOLOGIES CASES - `unisono doctor --check-nccl`: every topology file against a second, plain reading of the same tree; made
machines; tables of nvidia-smi, rocm-smi and amd-smi; logs."""
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ET

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fake_root  # noqa: E402

UNISONO, TOPOLOGIES, CASES = sys.argv[1:4]
LANE = {"2.5": 15, "5": 30, "5.0": 30, "8": 60, "8.0": 60, "16": 120, "16.0": 120, "32": 240, "32.0": 240, "64.0": 480}
SOCKET = {("GenuineIntel", "85"): 10, ("GenuineIntel", "143"): 22}
XGMI = {"906": 24, "908": 24, "910": 36, "940": 48, "gfx942": 48}


def check(*args, text=None):
    p = subprocess.run([UNISONO, "doctor", "--check-nccl", "--json", *args], input=text, stdin=None if text is not None else subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    assert p.returncode in (0, 1), p.stderr
    answer = json.loads(p.stdout)
    return answer["topologies"], answer["findings"]


class Tree:
    """A topology file as a tree: the way up from each device to its NUMA node, and what each step could carry."""

    def __init__(self, path):
        self.up, self.gpus, self.nets, self.links = {}, [], [], {}
        root = ET.parse(path).getroot()
        for cpu in root:
            self.amd_rome = (cpu.get("vendor"), cpu.get("familyid"), cpu.get("modelid")) == ("AuthenticAMD", "143", "49")
            self.socket = 16 if cpu.get("vendor") == "AuthenticAMD" else SOCKET[cpu.get("vendor"), cpu.get("modelid")]
            self.walk(cpu, [("cpu", cpu.get("numaid"), None)])

    def walk(self, element, above):
        for e in element:
            if e.tag == "pci":
                lanes = LANE[e.get("link_speed").split()[0]] if e.get("link_speed") else 60
                self.walk(e, above + [("pci", e.get("busid"), int(e.get("link_width") or 16) * lanes / 80)])
            elif e.tag == "gpu":
                self.gpus.append((int(e.get("dev")), above, e.get("gdr") == "1"))
                for link in e.findall("xgmi"):
                    self.links[above[-1][1], link.get("target")] = int(link.get("count")) * XGMI[e.get("gcn")]
            elif e.tag == "nic":
                for net in e.findall("net"):
                    self.nets.append((net.get("name"), above, int(net.get("speed")), net.get("gdr") == "1"))

    def way(self, a, b):
        """(kind, GB/s, steps) over PCIe between the ends of two ways down from the top."""
        if a[0] != b[0]:
            return "SYS", min([x[2] for x in a[1:] + b[1:]] + [self.socket]), len(a) + len(b) - 1
        same = 0
        while same < min(len(a), len(b)) and a[same] == b[same]:
            same += 1
        rest = a[same:] + b[same:]
        rate = min(x[2] for x in rest) if rest else 5000
        if same == 1:
            return "PHB", rate, len(rest)
        return ("PIX" if len(a) - same <= 1 and len(b) - same <= 1 else "PXB"), rate, len(rest)

    def pair(self, a, b):
        direct = self.links.get((a[-1][1], b[-1][1]))
        if direct:
            return "XGMI", direct
        kind, rate, steps = self.way(a, b)
        through = [min(self.links[a[-1][1], c[1][-1][1]], self.links[c[1][-1][1], b[-1][1]]) for c in self.gpus
                   if (a[-1][1], c[1][-1][1]) in self.links and (c[1][-1][1], b[-1][1]) in self.links]
        if through and (steps > 2 or max(through) > rate):
            return "NVB", max(through)
        return kind, rate


class Files(unittest.TestCase):
    def test_each_file(self):
        for path in sorted(glob.glob(os.path.join(TOPOLOGIES, "rccl", "*.xml"))):
            tree, (reports, _) = Tree(path), check(path)
            self.assertEqual(len(reports), 1, path)
            r = reports[0]
            self.assertEqual(len(r["gpus"]), len(tree.gpus))
            self.assertEqual(len(r["pairs"]), len(tree.gpus) * (len(tree.gpus) - 1) // 2)
            self.assertEqual(len(r["cards"]), len(tree.gpus) * len(tree.nets))
            told = {(p["a"], p["b"]): p for p in r["pairs"]}
            for i, (dev, a, _) in enumerate(tree.gpus):
                for other, b, _ in tree.gpus[i + 1:]:
                    p = told["GPU%d" % dev, "GPU%d" % other]
                    kind, rate = tree.pair(a, b)
                    self.assertEqual((p["path"], round(p["gbs"], 3)), (kind, round(rate, 3)), (path, dev, other))
                    self.assertTrue(p["direct"])
            self.cards(path, tree, r)

    def cards(self, path, tree, r):
        told = {(c["gpu"], c["card"]): c for c in r["cards"]}
        for dev, a, gdr in tree.gpus:
            takes = [c for c in r["cards"] if c["gpu"] == "GPU%d" % dev and c["takes"]]
            self.assertTrue(takes, (path, dev))
            for name, b, speed, card_gdr in tree.nets:
                kind, rate, _ = tree.way(a, b)
                c = told["GPU%d" % dev, name]
                if [n[0] for n in tree.nets].count(name) > 1:
                    continue
                if b[-1][0] == "pci":
                    self.assertEqual((c["path"], round(c["gbs"], 3)), (kind, round(min(rate, speed / 8000), 3)), (path, dev, name))
                    self.assertEqual(c["gpudirect"], gdr and card_gdr and (kind in ("PIX", "PXB") or (kind == "PHB" and tree.amd_rome)), (path, dev, name))
                self.assertFalse(c["gbs"] > takes[0]["gbs"])

    def test_several_files_do_not_mix(self):
        reports, _ = check(os.path.join(TOPOLOGIES, "rccl", "topo_4p1h.xml"), os.path.join(TOPOLOGIES, "rccl", "topo_4p2h.xml"))
        self.assertEqual([len(r["gpus"]) for r in reports], [4, 8])

    def test_people_see_tables(self):
        p = subprocess.run([UNISONO, "doctor", "--check-nccl", os.path.join(TOPOLOGIES, "rccl", "topo_8p1h.xml")], capture_output=True, text=True, timeout=60, check=False)
        self.assertIn("XGMI: 4 pairs over 4 xGMI links, about 144 GB/s, direct", p.stdout)
        self.assertIn("mlx5_0     PXB", p.stdout)
        self.assertNotIn("\033", p.stdout)

    def test_a_file_of_a_cloud_has_only_its_tree(self):
        xml = """<system version="1"><cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
<pci busid="ffff:ff:01.0" class="0x060400" link_speed="8 GT/s" link_width="16"><pci busid="0000:10:1c.0" class="0x030200" link_speed="8 GT/s" link_width="16"/>
<pci busid="0000:10:1d.0" class="0x030200" link_speed="8 GT/s" link_width="16"/><pci busid="0000:10:1b.0" class="0x020000" link_speed="8 GT/s" link_width="16"/></pci></cpu></system>"""
        reports, findings = check("-", text=xml)
        self.assertEqual((reports[0]["pairs"][0]["path"], reports[0]["pairs"][0]["gbs"]), ("PIX", 12.0))
        self.assertEqual([(c["path"], c["gpudirect"]) for c in reports[0]["cards"]], [("PIX", None)] * 2)
        self.assertIn("no NVLinks in it", reports[0]["what"])
        self.assertEqual(findings, [])

    def test_a_machine_that_is_too_large_is_said(self):
        gpus = "".join('<pci busid="00%02x:01:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16"><gpu dev="%d" sm="90" rank="%d" gdr="1"/></pci>' % (k, k, k) for k in range(80))
        p = subprocess.run([UNISONO, "doctor", "--check-nccl", "-"], input='<system version="1"><cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">%s</cpu></system>' % gpus,
                           capture_output=True, text=True, timeout=60, check=False)
        self.assertIn("more than 72 GPUs", p.stdout)

    def test_nvswitches(self):
        def gpu(k):
            links = "".join('<nvlink target="0000:%02x:00.0" count="3" tclass="0x068000"/>' % (0xc0 + s) for s in range(6))
            return ('<pci busid="0000:%02x:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16"><gpu dev="%d" sm="90" rank="%d" gdr="1">%s</gpu></pci>' % (0x10 + k, k, k, links))
        xml = '<system version="1"><cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">%s</cpu></system>' % "".join(gpu(k) for k in range(4))
        reports, _ = check("-", text=xml)
        self.assertEqual({(p["path"], p["over"], p["gbs"]) for p in reports[0]["pairs"]}, {("NVL", "18 NVLinks through NVSwitches", 370.8)})


class Machines(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp()

    def tearDown(self):
        shutil.rmtree(self.root)

    def report(self, **kw):
        self.folders = fake_root.machine(self.root, **kw)
        return check("--root", self.root)

    def test_nvidia(self):
        reports, findings = self.report()
        self.assertEqual(findings, [])
        r = reports[0]
        self.assertEqual({(p["a"], p["b"]): (p["path"], p["gbs"], p["direct"]) for p in r["pairs"]}[("GPU0", "GPU1")], ("PIX", 48.0, True))
        self.assertEqual({(p["a"], p["b"]): (p["path"], p["gbs"], p["direct"]) for p in r["pairs"]}[("GPU0", "GPU2")], ("SYS", 22.0, False))
        self.assertEqual([(c["gpu"], c["card"], c["path"], c["gpudirect"], c["port_gbs"]) for c in r["cards"] if c["takes"]],
                         [("GPU0", "mlx5_0", "PIX", True, 50.0), ("GPU1", "mlx5_0", "PIX", True, 50.0), ("GPU2", "mlx5_1", "PIX", True, 50.0), ("GPU3", "mlx5_1", "PIX", True, 50.0)])

    def test_amd_links_are_in_sysfs(self):
        for node, (at, version) in enumerate([(0, 0), (0x1300, 90402), (0x1400, 90402), (0xa300, 90402)]):
            base = "sys/class/kfd/kfd/topology/nodes/%d/" % node
            fake_root.put(self.root, base + "properties", "cpu_cores_count 32\nsimd_count %d\nlocation_id %d\ndomain 0\ngfx_target_version %d" % (1216 if at else 0, at, version))
        for a, b in ((1, 2), (2, 1), (1, 3), (3, 1)):
            fake_root.put(self.root, "sys/class/kfd/kfd/topology/nodes/%d/io_links/%d/properties" % (a, b), "type 11\nnode_from %d\nnode_to %d\nweight 15\nmin_bandwidth 50000\nmax_bandwidth %d" % (a, b, 100000 if b + a == 3 else 50000))
        reports, _ = self.report(vendor="0x1002", gpu_class="0x120000")
        pairs = {(p["a"], p["b"]): (p["path"], p["gbs"]) for p in reports[0]["pairs"]}
        self.assertEqual(pairs[("GPU0", "GPU1")], ("XGMI", 96.0))
        self.assertEqual(pairs[("GPU0", "GPU2")], ("XGMI", 48.0))
        self.assertEqual(pairs[("GPU1", "GPU2")], ("NVB", 48.0))
        self.assertIn("gfx942", reports[0]["gpus"][0]["what"])

    def test_no_gpu(self):
        p = subprocess.run([UNISONO, "doctor", "--check-nccl", "--root", self.root], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(p.returncode, 0)
        self.assertIn("No communication topology", p.stdout)


class Tables(unittest.TestCase):
    def case(self, name):
        return check(os.path.join(CASES, name + ".txt"))

    def test_nvidia_smi(self):
        reports, _ = self.case("B100")
        self.assertEqual(len(reports), 2)  # a host each
        self.assertEqual((reports[0]["pairs"][0]["path"], reports[0]["pairs"][0]["over"]), ("NVL", "12 NVLinks"))
        self.assertEqual([(c["gpu"], c["card"], c["path"]) for c in reports[0]["cards"] if c["takes"]], [("GPU0", "mlx5_0", "PXB"), ("GPU1", "mlx5_1", "PXB")])

    def test_cards_have_the_names_of_the_legend(self):
        reports, findings = check(os.path.join(CASES, "..", "healthy", "machine.txt"))
        self.assertEqual([(c["gpu"], c["card"], c["path"]) for c in reports[0]["cards"] if c["takes"]],
                         [("GPU0", "mlx5_0", "PIX"), ("GPU1", "mlx5_0", "PIX"), ("GPU2", "mlx5_1", "PIX"), ("GPU3", "mlx5_1", "PIX")])
        self.assertEqual(({p["over"] for p in reports[0]["pairs"]}, findings), ({"18 NVLinks"}, []))

    def test_amd_smi(self):
        ids = ["0000:0c:00.0", "0000:22:00.0", "0000:38:00.0"]

        def table(title, cell):
            return "%s TABLE:\n             %s\n" % (title, " ".join(ids)) + "".join("%s %s\n" % (a, " ".join("%-12s" % cell(i, k) for k in range(3))) for i, a in enumerate(ids)) + "\n"
        text = (table("ACCESS", lambda i, k: "ENABLED") + table("WEIGHT", lambda i, k: 0 if i == k else 15) + table("HOPS", lambda i, k: int(i != k)) +
                table("LINK TYPE", lambda i, k: "SELF" if i == k else "XGMI") + table("NUMA BW", lambda i, k: "N/A" if i == k else "50000-50000") + table("CACHE COHERANCY", lambda i, k: "C") + "Legend:\n")
        reports, findings = check("-", text=text)
        self.assertEqual({(p["path"], p["over"], p["gbs"], p["direct"]) for p in reports[0]["pairs"]}, {("XGMI", "one xGMI link", 50.0, True)})
        self.assertEqual((len(reports[0]["pairs"]), findings), (3, []))

    def test_logs(self):
        text = "".join("h:%d:1 [%d] NCCL INFO Channel 00/0 : %d[%d] -> %d[%d] %s\n" % (k, k % 2, k, k % 2, (k + 1) % 4, (k + 1) % 2, "via P2P/CUMEM" if k % 2 == 0 else "[send] via NET/IB/%d/GDRDMA" % (k // 2)) for k in range(4))
        reports, _ = check("-", text=text)
        self.assertEqual([(p["a"], p["b"], p["path"], p["direct"]) for p in reports[0]["pairs"]],
                         [("rank 0", "rank 1", "P2P", True), ("rank 1", "rank 2", "NET", True), ("rank 2", "rank 3", "P2P", True), ("rank 3", "rank 0", "NET", True)])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
