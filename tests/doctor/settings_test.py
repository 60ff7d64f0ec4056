#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""settings_test.py UNISONO KNOWN_ENV.DEF - every variable that is known: `doctor --env FILE` says who reads it, and what that library's own parser
makes of a number, a word, a unit and a 0 in front; and what one library reads and the other does not, where a log says which of them runs."""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

UNISONO, TABLE = sys.argv.pop(1), sys.argv.pop(1)

READERS = {"BOTH": "NCCL and RCCL", "NCCL": "NCCL", "RCCL": "RCCL", "UNUSED": "nobody, though it is declared", "CONTRIB": "code that comes beside NCCL", "PLUGIN": "a plugin of NCCL",
           "SHARP": "the HPC-X/SHARP plugin", "TESTS": "nccl-tests", "PYTORCH": "PyTorch"}
TYPED = {"NCCL_SET_THREAD_NAME", "NCCL_WARN_ENABLE_DEBUG_INFO", "NCCL_PARAM_DUMP_ALL"}


def table():
    with open(TABLE, encoding="utf-8") as f:
        return re.findall(r'^KNOWN\("(\w+)", (\w+), (\w+), "([^"]*)"', f.read(), re.M)


def variables(lines, *options):
    """name -> what is said of it; and the findings."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "job.env")
        with open(path, "w", encoding="utf-8") as f:
            f.write("".join(line + "\n" for line in lines))
        p = subprocess.run([UNISONO, "doctor", "--env", path, "--json", *options], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    answer = json.loads(p.stdout)
    return {v["name"]: v for v in answer["variables"]}, answer["findings"]


class Settings(unittest.TestCase):
    def test_every_one_is_known_and_says_who_reads_it(self):
        rows = table()
        self.assertGreater(len(rows), 380)
        said, _ = variables("%s=1" % name for name, *_ in rows)
        wrong = ["%s: %s" % (name, said.get(name)) for name, reader, _, _ in rows if name not in said or said[name]["read_by"] != READERS[reader] or not said[name]["meaning"]]
        wrong += ["%s: %s" % (name, said[name]["text"]) for name, *_ in rows if "read by nobody" in said[name]["text"]]
        self.assertEqual(wrong, [])

    def test_values_become_what_its_parser_makes_of_them(self):
        rows = [(name, reader, kind) for name, reader, kind, _ in table() if kind in ("BOOL", "INT")]
        ours = [(n, r, k) for n, r, k in rows if r != "PYTORCH" and n not in TYPED]
        self.assertGreater(len(ours), 250)
        own_words = {"NCCL_LAUNCH_MODE"}
        for value, words in (("true", "is no number, and is read as 0"), ("4M", "is read as 4: suffixes are not understood"), ("010", "is read as octal, that is 8"), ("0x1", None), ("1", None)):
            said, _ = variables("%s=%s" % (n, value) for n, _, _ in ours)
            for name, _, _ in ours:
                if name in own_words:
                    continue
                text = said[name]["text"]
                self.assertTrue(words in text if words else "is read as" not in text, (name, value, text))
        torch = [(n, k) for n, r, k in rows if r == "PYTORCH"]
        self.assertGreater(len(torch), 30)
        for value, kind, words in (("maybe", "BOOL", "PyTorch raises"), ("yes", "BOOL", None), ("T", "BOOL", None), ("ten", "INT", "PyTorch raises"), ("480s", "INT", "is read as 480"), ("2", "INT", None)):
            named = [n for n, k in torch if k == kind and n.startswith("TORCH_")]
            said, _ = variables("%s=%s" % (n, value) for n in named)
            for name in named:
                self.assertTrue(words in said[name]["text"] if words else said[name]["state"] != "bad", (name, value, said[name]["text"]))

    def test_the_newer_parser_takes_words(self):
        nccl, rccl = "h:1:1 [0] NCCL INFO NCCL version 2.30.7+cuda13.0", "RCCL version : 2.21.5-HEAD:8d4ca71"
        for log, value, state in ((nccl, "TRUE", "good"), (nccl, "t", "good"), (nccl, "yes", "bad"), (nccl, "0", "good"), (rccl, "TRUE", "bad"), (rccl, "1", "good")):
            said, _ = variables([log, "NCCL_SET_THREAD_NAME=" + value])
            self.assertEqual(said["NCCL_SET_THREAD_NAME"]["state"], state, (log, value, said))

    def test_what_one_library_reads_and_the_other_does_not(self):
        nccl, rccl = "h:1:1 [0] NCCL INFO NCCL version 2.30.7+cuda13.0", "RCCL version : 2.21.5-HEAD:8d4ca71"
        for log, line, state, words in ((rccl, "NCCL_P2P_LEVEL=NVL", "bad", "no level of RCCL"), (nccl, "NCCL_P2P_LEVEL=NVL", "good", ""), (nccl, "NCCL_P2P_LEVEL=XGMI", "bad", "no level of NCCL"),
                                        (rccl, "NCCL_P2P_LEVEL=XGMI", "good", ""), (rccl, "NCCL_ALGO=allreduce:tree", "bad", "no form function:list"), (nccl, "NCCL_ALGO=allreduce:tree", "good", ""),
                                        (rccl, "NCCL_CTA_POLICY=1", "note", "this job runs RCCL"), (nccl, "NCCL_CTA_POLICY=1", "good", ""), (nccl, "NCCL_SHM_USE_CUDA_MEMCPY=1", "note", "this job runs NCCL")):
            name = line.split("=")[0]
            said, _ = variables([log, line])
            self.assertEqual(said[name]["state"], state, (log, line, said))
            self.assertIn(words, said[name]["text"])

    def test_rccl_that_calls_itself_nccl(self):
        hip, cuda = "m1:10:20 [0] NCCL INFO NCCL version 2.18.3+hip6.0", "m1:10:20 [0] NCCL INFO NCCL version 2.18.3+cuda12.2"
        for log, line, state in ((hip, "NCCL_P2P_LEVEL=XGMI", "good"), (cuda, "NCCL_P2P_LEVEL=XGMI", "bad"), (hip, "NCCL_PROTO=Simple,", "good"), (cuda, "NCCL_PROTO=Simple,", "bad"), (hip, "NCCL_PROTO=Simpel", "bad")):
            said, _ = variables([log, line])
            self.assertEqual([v["state"] for v in said.values()], [state], (log, line, said))

    def test_the_environment_is_taken_as_it_is(self):
        for env, words in (({"NCCL_DEBUG": '"INFO"'}, "the quotes are a part of the value"), ({"NCCL_SOCKET_IFNAME": "'eth0'"}, "the quotes are a part of the value"), ({"NCCL_PROTO": "simple "}, "no protocol"),
                           ({"NCCL_DEBUG": "INFO"}, None), ({"NCCL_DEBUG_FILE": "/tmp/a b.%h"}, None)):
            p = subprocess.run([UNISONO, "doctor", "--env", "--json"], capture_output=True, text=True, timeout=60, check=False, env={"PATH": os.environ["PATH"], **env})
            told = json.loads(p.stdout)
            self.assertEqual(told["version"], 1)
            self.assertEqual({v["name"]: v["value"] for v in told["variables"]}, env)
            self.assertEqual((p.returncode, told["complaints"]), (1, 1) if words else (0, 0), (env, told["variables"]))
            self.assertIn(words or "", told["variables"][0]["text"])

    def test_both_forms_of_output_agree(self):
        for env, count in (({"GLOO_SOCKET_IFNAME": "^lo"}, 1), ({"NCCL_TIMEOUT": "30", "NCCL_BUFFSIZE": "8M"}, 2), ({"NCCL_DEBUG": "WARN"}, 0), ({"UNISONO_STALLL": "1", "NCCL_IB_DISABLE": "true"}, 2)):
            env = {"PATH": os.environ["PATH"], **env}
            p = subprocess.run([UNISONO, "doctor", "--env"], capture_output=True, text=True, timeout=60, check=False, env=env)
            q = subprocess.run([UNISONO, "doctor", "--env", "--json"], capture_output=True, text=True, timeout=60, check=False, env=env)
            self.assertEqual((p.returncode, q.returncode, json.loads(q.stdout)["complaints"]), (count > 0, count > 0, count), env)
            self.assertEqual(p.stdout.strip().split("\n")[-1], "%d finding%s." % (count, "" if count == 1 else "s") if count else "Nothing to complain about.")

    def test_names_of_images_and_of_other_plugins(self):
        said, findings = variables(["NCCL_VERSION=2.26.2-1", "NCCL_HOME=/opt/nccl", "NCCL_INCLUDE_DIR=/opt/nccl/include", "RCCL_PATH=/opt/rccl", "NCCL_FASTRAK_NUM_FLOWS=2", "NCCL_GPUDIRECTTCPX_CTRL_DEV=eth0"])
        self.assertEqual(findings, [])
        self.assertEqual([(said[n]["read_by"], said[n]["state"]) for n in ("NCCL_VERSION", "NCCL_FASTRAK_NUM_FLOWS")], [("builds and images, not the library", "good"), ("Google's plugin FasTrak", "good")])
        env = {"PATH": os.environ["PATH"], "NCCL_VERSION": "2.26.2-1", "NCCL_DEBUG": "WARN"}
        p = subprocess.run([UNISONO, "doctor", "--env"], capture_output=True, text=True, timeout=60, check=False, env=env)
        self.assertEqual(p.returncode, 0, p.stdout)
        said, _ = variables(["NCCL_VERSIONS=1"])
        self.assertEqual(said["NCCL_VERSIONS"]["state"], "bad")

    def test_what_people_write(self):
        """Rows of what NCCL's and RCCL's parsers really do with values that stand in scripts."""
        for line, state, words in (("NCCL_ALGO=allredcue:tree", "bad", "'allredcue' is no function"), ("NCCL_ALGO=allreduce:tree,ring;allgather:ring", "good", ""), ("NCCL_PROTO='simple;'", "bad", "empty word"),
                                   ("NCCL_ALGO=CollNet", "bad", "is no algorithm"), ("NCCL_ALGO=Tree", "note", "allreduce:Tree"), ("NCCL_ALGO=^NVLS", "good", ""), ("NCCL_PROTO=LL128", "note", "order"),
                                   ("NCCL_BUFFSIZE=0", "bad", "buffer of 0 bytes"), ("NCCL_BUFFSIZE=-1", "bad", "buffer of -1 bytes"), ("NCCL_BUFFSIZE=8388608", "good", ""), ("NCCL_BUFFSIZE=-2", "good", ""),
                                   ("NCCL_MAX_NCHANNELS=512", "bad", "64 channels"), ("NCCL_MAX_NCHANNELS=32", "good", ""), ("NCCL_DEBUG=ERROR", "bad", "no level"), ("NCCL_DEBUG=1", "bad", "no level"), ("NCCL_DEBUG=info", "good", ""),
                                   ("NCCL_DEBUG_SUBSYS=INIT,NETWORK", "bad", "ignores the whole value"), ("NCCL_DEBUG_SUBSYS=^NET", "good", ""), ("NCCL_P2P_LEVEL=NODE", "bad", "no level"), ("NCCL_NET_GDR_LEVEL=pix", "bad", "no level"),
                                   ("NCCL_NET_GDR_LEVEL=3", "note", "means PHB"), ("NCCL_P2P_DISABLE=2", "bad", "only 1 acts"), ("NCCL_SHM_DISABLE=yes", "bad", "is read as 0"), ("NCCL_SOCKET_IFNAME=e", "bad", "two characters"),
                                   ("NCCL_IB_TIMEOUT=0", "bad", "waits for ever"), ("NCCL_IB_TIMEOUT=22", "good", ""), ("NCCL_IB_RETRY_CNT=20", "bad", "three bits"), ("NCCL_IB_TC=300", "bad", "one byte"), ("NCCL_IB_TC=106", "good", ""),
                                   ("NCCL_IB_HCA=mlx5_1", "good", ""), ("NCCL_IB_HCA=mlx5_", "note", "prefix"), ("NCCL_MAX_RINGS=4", "bad", "NCCL_MAX_NCHANNELS was meant"), ("NCCL_MAX_NRINGS=4", "note", "NCCL_MAX_NCHANNELS"),
                                   ("NCCL_BLOCKING_WAIT=1", "bad", "TORCH_NCCL_BLOCKING_WAIT"), ("NCCL_IBEXT_DISABLE=1", "note", "SHARP"), ("NCCL_TREE_THRESHOLD=0", "bad", "removed"), ("NCCL_DEBUG_FILE=~/nccl.%h", "note", "does not expand ~"),
                                   ("NCCL_IB_MTU=9000", "bad", "active_mtu"), ("RCCL_ENABLE_XGMI=1", "bad", "whenever it is there"), ("NCCL_SOCKET_TIMEOUT=60", "bad", "NCCL_SOCKET_RETRY_CNT"), ("NCCL_NVLS_ENABLE=1", "note", "forces"),
                                   ("NCCL_IB_HCAS=mlx5_0", "bad", "did you mean NCCL_IB_HCA"), ("TORCH_NCCL_TRACE_BUFFER_SIZE=2000", "note", "TORCH_FR_BUFFER_SIZE"), ("GLOO_SOCKET_IFNAME=eth0", "good", "")):
            name = line.split("=")[0]
            said, _ = variables([line])
            self.assertEqual(said[name]["state"], state, (line, said))
            self.assertIn(words, said[name]["text"], line)

    def test_ours_are_judged_as_a_rank_would(self):
        said, findings = variables(["UNISONO_STALLL=5", "UNISONO_STALL=often", "UNISONO_TIMEOUT=30", "GLOO_SOCKET_IFNAME==eth0", "GLOO_NONE=1", "PATH=/bin"])
        self.assertEqual({n: (v["read_by"], v["state"]) for n, v in said.items()}, {
            "UNISONO_STALLL": ("nobody", "bad"), "UNISONO_STALL": ("Unisono", "bad"), "UNISONO_TIMEOUT": ("Unisono", "good"), "GLOO_SOCKET_IFNAME": ("Gloo", "bad"), "GLOO_NONE": ("nobody", "bad")})
        self.assertIn("did you mean UNISONO_STALL", said["UNISONO_STALLL"]["text"])
        self.assertIn("UNISONO_STALL", findings[0]["headline"])

    def test_the_environment_of_this_process(self):
        env = {"PATH": os.environ["PATH"], "NCCL_IB_DISABLE": "true", "GLOO_SOCKET_IFNAME": "^lo", "TORCH_NCCL_DUMP_ON_TIMEOUT": "1"}
        p = subprocess.run([UNISONO, "doctor", "--env", "--all"], capture_output=True, text=True, timeout=60, check=False, env=env)
        self.assertEqual(p.returncode, 1)
        for words in ("NCCL_IB_DISABLE=true  (read by NCCL and RCCL)", "is no number, and is read as 0", "exact interface names", "TORCH_NCCL_DUMP_ON_TIMEOUT=1  (read by PyTorch)", "Default: 1"):
            self.assertIn(words, p.stdout)
        p = subprocess.run([UNISONO, "doctor", "--env", "--json"], capture_output=True, text=True, timeout=60, check=False, env=env)
        self.assertEqual([v["state"] for v in json.loads(p.stdout)["variables"] if v["name"] == "TORCH_NCCL_DUMP_ON_TIMEOUT"], ["good"])


if __name__ == "__main__":
    unittest.main()
