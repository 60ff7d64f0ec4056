#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""commands_test.py UNISONO DATA SOURCES - what the doctor tells people to paste. Every remedy has a command between back quotes, or is a change of the
program or of hardware and stands in PROGRAM; every command is one that a shell can read, of a program that is meant; and names that a log carries,
however odd, never become part of what the shell runs."""
import glob
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases_test import diagnose, inputs  # noqa: E402
from rules_test import run, sections  # noqa: E402

UNISONO, DATA, SOURCES = sys.argv.pop(1), sys.argv.pop(1), sys.argv.pop(1)

# Nothing to paste: what helps is another program, other data, or a hand at the machine.
PROGRAM = ("keep what isend returns", "correct what raises it", "compare what the two sides pass", "compare the order of calls", "make that dimension the same",
           "take %s out of the job", "do that work before the group", "let all ranks call new_group", "issue the operations of these groups")

PROGRAMS = set("""bash cat chronyc curl dcgmi lsof sinfo dmesg docker echo env ethtool export fi_info fi_pingpong firewall-cmd free gdb getent grep gdb ibv_devinfo ib_write_bw ip iptables
 kill kubectl ldconfig ls lspci make mlxlink mpirun nc ncclras nft nmcli numactl nvidia-smi perfquery pgrep ping ps py-spy python3 ray rocm-smi amd-smi sacct sbatch scontrol sed show_gids sminfo
 srun ss ssh ssh-copy-id sudo systemctl timedatectl torchrun mlxconfig sysctl modprobe setpci grubby mount install python deepspeed ucx_info ulimit unisono git unset vllm compute-sanitizer ./install.sh iperf3""".split())


def calls(text):
    """The arguments of each remedy(j, f, ...) of a source."""
    for m in re.finditer(r"\bremedy\(j, f, ", text):
        i, depth, quoted = m.end(), 1, False
        while depth:
            if quoted and text[i] == "\\":
                i += 1
            elif text[i] == '"':
                quoted = not quoted
            elif not quoted:
                depth += {"(": 1, ")": -1}.get(text[i], 0)
            i += 1
        yield text[m.end():i - 1]


def commands(findings):
    for f in findings:
        for r in f["remedies"]:
            for command in re.findall(r"`([^`]*)`", r):
                yield r, command


def every_finding():
    with open(os.path.join(DATA, "rules.txt"), encoding="utf-8") as f:
        for rule, way, _, files, number in sections(f.read()):
            if way == "fires":
                yield "%s, line %d" % (rule, number), run(UNISONO, files)
    folder = os.path.join(DATA, "cases")
    for case in sorted({os.path.basename(p).split(".")[0] for p in glob.glob(os.path.join(folder, "[BHS]*"))}):
        yield case, diagnose(UNISONO, inputs(folder, case))


def first_word(command):
    """Behind sudo and variables that are set for it; None for a line of Python, an option, a setting alone."""
    words = command.split()
    while words and (words[0] == "sudo" or re.match(r"^[A-Za-z_]\w*=", words[0])):
        words.pop(0)
    return None if not words or words[0].startswith(("-", "#")) or re.match(r"[\w.]+(\[|\(|=)|torch\.|speed=|nchannels=|samechannels=", words[0]) else words[0]


class Commands(unittest.TestCase):
    def test_every_remedy_has_one(self):
        wrong, used = [], set()
        for path in sorted(glob.glob(os.path.join(SOURCES, "rules_*.c"))):
            with open(path, encoding="utf-8") as f:
                for call in calls(f.read()):
                    for text in re.findall(r'"((?:[^"\\]|\\.)*)"', call):
                        listed = [p for p in PROGRAM if text.startswith(p)]
                        used.update(listed)
                        if len(text) > 24 and "`" not in text and not listed:
                            wrong.append("%s: %s" % (os.path.basename(path), text))
        self.assertEqual(wrong, [])
        self.assertEqual(set(PROGRAM) - used, set(), "no remedy begins so any more")

    def test_a_shell_reads_them(self):
        wrong, seen = [], set()
        for where, findings in every_finding():
            for remedy, command in commands(findings):
                if remedy.count("`") % 2:
                    wrong.append("%s: back quotes do not fit: %s" % (where, remedy))
                word = first_word(command)
                if word is None or command in seen:
                    continue
                seen.add(command)
                if word not in PROGRAMS:
                    wrong.append("%s: what is %s? %s" % (where, word, command))
                p = subprocess.run(["bash", "-n", "-c", command], capture_output=True, text=True, timeout=20, check=False)
                if p.returncode:
                    wrong.append("%s: %s: %s" % (where, command, p.stderr))
        self.assertGreater(len(seen), 100)
        self.assertEqual(wrong, [], "\n".join(wrong))

    def test_names_of_a_log_are_not_run(self):
        bad = "$(echo>PWNED)"
        hostile = {
            "a host that is lost": {"h.json": '{"unisono_hosts": 1, "hosts": [{"host": "a%s", "lost": "no"}, {"host": "-oProxyCommand=x`y", "lost": "no"}], "pairs": []}' % bad},
            "a port": {"p.log": "CA 'mlx%s'\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: Down\n\t\tPhysical state: Disabled\n\t\tRate: 10\n\t\tLink layer: InfiniBand\n" % bad},
            "a variable": {"job.sh": "export NCCL_IB_HCAS=mlx5_0;echo>PWNED\nexport NCCL_DEBG='x`echo>PWNED`'\nexport NCCL_BUFFSIZE='4M;%s'\n" % bad},
            "a bridge": {"l.log": "00:03.1%s PCI bridge: x\n ACSCtl: SrcValid+ ReqRedir+ CmpltRedir+\n" % bad},
            "an address": {"n.log": "n1:1:2 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\nn1:1:2 [0] misc/socket.cc:1 NCCL WARN Net : Connect to 10.0.0.2|echo>PWNED<5> failed : No route to host\n"},
            "a file": {"x%s.sh" % bad.replace(">", "\\076"): "#SBATCH -N 2\nexport N=$SLURM_JOB_NUMNODES\n", "y';echo PWNED;'.sh": "export N=$SLURM_JOB_NUMNODES\n"},
            "an interface": {"s.log": "n1:1:2 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\n$ cat /sys/class/net/eth0/speed /sys/class/net/ib%s/speed\n1000\n100000\n" % bad},
        }
        odd = 0
        for what, files in hostile.items():
            findings = run(UNISONO, files)
            self.assertTrue(findings, what)
            for remedy, command in commands(findings):
                self.assertEqual(remedy.count("`") % 2, 0, remedy)
                self.assertNotRegex(command, r" -oProxy")
                odd += "PWNED" in command
                with tempfile.TemporaryDirectory() as folder:
                    subprocess.run(["bash", "-c", "PATH=/nonexistent\n" + command], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=False)
                    self.assertEqual(os.listdir(folder), [], "%s: %s" % (what, command))
        self.assertGreater(odd, 3, "no odd name came into any command, so this shows nothing")


if __name__ == "__main__":
    unittest.main()
