#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""here_test.py UNISONO - `unisono doctor` without arguments on this machine, whole and made worse in one way each; and bad input."""
import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import random
import shutil
import resource
import subprocess
import sys
import tarfile
import tempfile
import unittest

UNISONO = sys.argv.pop(1)
FOREIGN = ("NCCL_", "RCCL_", "GLOO_", "TORCH_", "UNISONO_")


def doctor(*args, before=None, text=None, **env):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
    p = subprocess.run([UNISONO, "doctor", *args], input=text, stdin=None if text is not None else subprocess.DEVNULL, capture_output=True, text=True,
                       timeout=60, check=False, preexec_fn=before, env=dict(clean, **env))
    return p


def here(**kw):
    p = doctor("--json", **kw)
    answer = json.loads(p.stdout)
    return p.returncode, {c["name"]: c for c in answer["checks"]}, answer["findings"]


class Here(unittest.TestCase):
    def test_probes_work(self):
        rc, checks, _ = here()
        for name in ("processors", "shared memory", "loopback connection", "a collective of 4 ranks", "/dev/shm", "open files", "own host name"):
            self.assertIn(name, checks)
        self.assertEqual(checks["a collective of 4 ranks"]["state"], "good", checks)
        self.assertEqual(checks["loopback connection"]["state"], "good", checks)
        self.assertEqual(rc == 1, any(c["state"] == "bad" for c in checks.values()))

    def test_one_processor_is_told(self):
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("there is only one")
        rc, checks, _ = here(before=lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}))
        self.assertEqual((rc, checks["processors"]["state"]), (1, "bad"))
        self.assertIn("bind-to", checks["processors"]["advice"])

    def test_few_files_are_told(self):
        _, checks, _ = here(before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (500, 500)))
        self.assertEqual(checks["open files"]["state"], "note")

    def test_the_environment_is_judged(self):
        rc, _, findings = here(NCCL_IB_DISABLE="true", NCCL_SOCKET_IFNAM="eth0")
        self.assertEqual((rc, findings[0]["kind"]), (1, "setting-invalid"))
        self.assertIn("NCCL_IB_DISABLE=true", findings[0]["explanation"])
        self.assertIn("did you mean NCCL_SOCKET_IFNAME", findings[0]["explanation"])

    def test_people_see_lines(self):
        p = doctor()
        self.assertIn("a collective of 4 ranks", p.stdout)
        self.assertNotIn("\033", p.stdout)


class Advice(unittest.TestCase):
    def advice(self, job):
        p = doctor("--advise", job, "--json")
        self.assertEqual(p.returncode, 0, p.stderr)
        return json.loads(p.stdout)["advice"]

    def test_time_outs_stand_where_they_are_read(self):
        for framework, words in (("megatron", "--distributed-timeout-minutes"), ("verl", "actor_rollout_ref.nccl_timeout"), ("torch", "init_process_group"), ("deepspeed", "init_distributed"), ("FSDP", "init_process_group"),
                                 ("trl", "ddp_timeout"), ("ray", "timeout_s"), ("torchtitan", "train_timeout_seconds"), ("horovod", "HOROVOD_STALL_SHUTDOWN"), ("sglang", "--dist-timeout"), ("lightning", "DDPStrategy"), ("accelerate", "InitProcessGroupKwargs")):
            said = " ".join(a["what"] for a in self.advice("gpus=64 gpu=H100 net=ib framework=" + framework))
            self.assertIn(words, said)
            self.assertNotIn("NCCL_TIMEOUT", said)

    def test_it_fits_the_job(self):
        amd, nvidia, one = (self.advice(j) for j in ("gpus=64 gpu=MI300X net=RoCE model=70B framework=deepspeed", "gpus=512 gpu=H100 net=IB", "gpus=4 gpu=A100 net=none"))
        self.assertTrue(any("iommu=pt" in a["what"] for a in amd) and not any("peermem" in a["what"] for a in amd))
        self.assertTrue(any("peermem" in a["what"] for a in nvidia) and not any("GID" in a["what"] for a in nvidia))
        self.assertFalse(any("launcher" in a["what"] for a in one))
        loads = "above what loading and saving take"
        for job, there in (("gpus=64 model=70B framework=torch", True), ("gpus=64 model=8x22B", True), ("gpus=8 model=7B framework=torch", False), ("gpus=8 framework=torch", False), ("gpus=16 model=405B framework=vllm", False)):
            self.assertEqual(any(loads in a["what"] for a in self.advice(job)), there, job)
        self.assertTrue(all(a["why"] and a["verify"] and a["source"] for a in amd + nvidia + one))

    def test_horovod_is_told_nothing_of_pytorch(self):
        said = json.dumps(self.advice("gpus=64 model=70B framework=horovod"))
        self.assertIn("HOROVOD_STALL_SHUTDOWN", said)
        self.assertNotIn("TORCH_", said)
        self.assertNotIn("above what loading", said)
        for framework in ("trainer", "torch", "none"):
            said = json.dumps(self.advice("gpus=64 model=70B framework=" + framework))
            self.assertIn("TORCH_FR_BUFFER_SIZE", said)
            self.assertNotIn("10 minutes", said)

    def test_what_it_sets_is_read_by_somebody(self):
        for net in ("roce", "ib", "efa", "tcp"):
            for a in self.advice("gpus=1024 gpu=MI300X framework=torch net=" + net):
                for word in a["what"].replace(",", " ").replace(";", " ").split():
                    if "=" in word and word.startswith(FOREIGN):
                        p = doctor("-", text="export %s\n" % word)
                        self.assertEqual(p.returncode, 0, p.stdout)

    def test_what_is_not_understood_is_said(self):
        for job, words in (("gpu:8", "keys are"), ("net=token-ring", "legal are"), ("colour=red", "keys are")):
            p = doctor("--advise", job)
            self.assertEqual(p.returncode, 2)
            self.assertIn(words, p.stderr)


class Input(unittest.TestCase):
    def test_unreadable_is_never_silent(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkfifo(os.path.join(folder, "a.pipe"))
            with open(os.path.join(folder, "packed.gz"), "wb") as f:
                f.write(b"\x1f\x8b\x08\x00" + bytes(64))
            for paths in ([os.path.join(folder, "none")], [folder], [os.path.join(folder, "packed.gz")], ["/root-of-nothing/x", folder]):
                p = doctor("--json", *paths)
                self.assertEqual(p.returncode, 2, (paths, p.stdout))
                self.assertTrue(json.loads(p.stdout)["notes"])

    def test_what_is_no_text_is_named(self):
        def told(data, name="input"):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, name)
                with open(path, "wb") as f:
                    f.write(data)
                p = doctor("--json", path)
                return p.returncode, " ".join(json.loads(p.stdout)["notes"])
        rng = random.Random(5)
        log = b"h:1:1 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n" * 20
        tar = io.BytesIO()
        with tarfile.open(fileobj=tar, mode="w") as t:
            t.addfile(tarfile.TarInfo("x.log"), io.BytesIO())
        for data, words in ((gzip.compress(log)[:10], "gave nothing"), (b"\x1f\x8b" + bytes(40), "gave nothing"), (log.decode().encode("utf-16"), "UTF-16"), (b"%PDF-1.4\n%\xe2\xe3\n1 0 obj\n", "PDF"),
                            (rng.randbytes(5000), "binary"), (tar.getvalue(), "tar archive"), (b"", "it is empty"), (b"{\"a\":" * 100000, "maximum parsing depth"), (b'{"hello": 1}', "none of the kinds"),
                            (pickle.dumps(os.system, protocol=2), "never done here"), (pickle.dumps({"version": "2.4", "entries": [{"pg_id": 0}] * 50}, protocol=2)[:60], "ends in the middle"),
                            (b'<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]><system version="1">&b;</system>', "parsing aborted")):
            rc, notes = told(data)
            self.assertEqual(rc, 2, (words, notes))
            self.assertIn(words, notes)
        self.assertEqual(told(b"\xef\xbb\xbf" + log), (0, ""))
        self.assertEqual(told(log.replace(b"\n", b"\x1b[0m\r\n")), (0, ""))

    def test_packed_files_are_read(self):
        log = b"".join(b"r%d:1:1 [0] NCCL INFO NCCL_DEBUG set by environment to INFO\n" % i for i in range(3000)) + b"NCCL_BUFFSIZE=8M\n"
        packed = [("gzip", gzip.compress(log)), ("bzip2", bz2.compress(log)), ("xz", lzma.compress(log))]
        for program, data in packed:
            if not shutil.which(program):
                continue
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "rank0.log." + program)
                with open(path, "wb") as f:
                    f.write(data)
                p = doctor("--json", path)
                found = json.loads(p.stdout)
                self.assertEqual((p.returncode, found["notes"], found["read"]["lines"]), (1, [], 3001), program)
                self.assertEqual((found["findings"][0]["evidence"][0]["file"], found["findings"][0]["evidence"][0]["line"]), (path, 3001))
                with open(path, "wb") as f: # what is there of a copy that was not finished
                    f.write(data[:len(data) * 2 // 3])
                p = doctor("--json", path)
                self.assertTrue(json.loads(p.stdout)["notes"], program)
                env = dict(os.environ, PATH=folder)
                p = subprocess.run([UNISONO, "doctor", "--json", path], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False, env=env)
                self.assertEqual(p.returncode, 2)
                self.assertIn("%s, which is not installed here" % program, p.stdout)

    def test_packed_standard_input_is_read(self):
        """From a pipe and from a file alike, whole and cut."""
        log = b"".join(b"r%d:1:1 [0] NCCL INFO NCCL_DEBUG set by environment to INFO\n" % i for i in range(3000)) + b"NCCL_BUFFSIZE=8M\n"
        data = gzip.compress(log)

        def told(how):
            p = subprocess.run([UNISONO, "doctor", "--json", "-"], capture_output=True, timeout=60, check=False, **how)
            return p.returncode, json.loads(p.stdout)
        if not shutil.which("gzip"):
            self.skipTest("there is no gzip")
        with tempfile.TemporaryFile() as file:
            file.write(data)
            file.seek(0)
            for rc, found in (told({"input": data}), told({"stdin": file})):
                self.assertEqual((rc, found["notes"], found["read"]["lines"]), (1, [], 3001))
                self.assertEqual((found["findings"][0]["evidence"][0]["file"], found["findings"][0]["evidence"][0]["line"]), ("standard input", 3001))
        # Nothing of it is kept in a file: no room and no folder are needed, however much it is.
        for how in ({"env": dict(os.environ, TMPDIR="/nothing/here")}, {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))}):
            rc, found = told({"input": data, **how})
            self.assertEqual((rc, found["notes"], found["read"]["lines"]), (1, [], 3001))
        folder = os.open("/", os.O_RDONLY)
        rc, found = told({"stdin": folder})
        os.close(folder)
        self.assertEqual((rc, "directory" in found["notes"][0]), (2, True))
        rc, found = told({"input": data[:len(data) * 2 // 3]})
        self.assertIn("cut or damaged", found["notes"][0])
        self.assertGreater(found["read"]["lines"], 100)
        rc, found = told({"input": b"\x1f\x8b" + bytes(40)})
        self.assertEqual((rc, "gave nothing" in found["notes"][0]), (2, True))
        rc, found = told({"input": data, "env": dict(os.environ, PATH="/nothing/here")})
        self.assertEqual((rc, "not installed here" in found["notes"][0]), (2, True))

    def test_exit_statuses(self):
        bad, good = "NCCL_DEBUG=WARNING\n", "NCCL_DEBUG=WARN\n"
        for text, paths, status in ((bad, ["-"], 1), (good, ["-"], 0), (bad, ["-", "/nothing/here"], 1), (good, ["-", "/nothing/here"], 2)):
            self.assertEqual(doctor(*paths, text=text).returncode, status, (text, paths))

    def test_standard_input_and_env_file(self):
        p = doctor("-", "--json", text="NCCL_DEBUG=WARNING\n")
        self.assertEqual((p.returncode, json.loads(p.stdout)["findings"][0]["kind"]), (1, "setting-invalid"))
        with tempfile.NamedTemporaryFile("w", suffix=".env") as f:
            f.write("NCCL_BUFFSIZE=8M\n")
            f.flush()
            p = doctor("--env", f.name)
            self.assertEqual(p.returncode, 1)
            self.assertIn("is read as 8", p.stdout)

    def test_variables_are_found_wherever_people_set_them(self):
        """One wrong value a way; NCCL_DEBUG_SUBSYS beside it is right, and says nothing."""
        for text in ("runtime_env:\n  env_vars:\n    NCCL_DEBUG: WARNING\n", "env:\n- name: NCCL_DEBUG\n  value: \"WARNING\"\n", "        - {name: NCCL_DEBUG, value: WARNING}\n",
                     "ray job submit --runtime-env-json '{\"env_vars\": {\"NCCL_DEBUG\": \"WARNING\"}}' -- python x.py\n", "ray.init(runtime_env={\"env_vars\": {\"NCCL_DEBUG\": \"WARNING\"}})\n",
                     "os.environ.setdefault(\"NCCL_DEBUG\", \"WARNING\")\n", "os.environ['NCCL_DEBUG'] = 'WARNING'\n", "subprocess.run(cmd, env={**os.environ, 'NCCL_DEBUG': 'WARNING'})\n",
                     "environment:\n  - NCCL_DEBUG=WARNING\n", "#SBATCH --export=ALL,NCCL_DEBUG=WARNING\n", "srun --export=ALL,NCCL_DEBUG=WARNING,NCCL_IB_HCA=mlx5_0 python t.py\n",
                     "docker run --gpus all -e NCCL_DEBUG=WARNING -e NCCL_DEBUG_SUBSYS=INIT image\n", "docker run \\\n  --env=NCCL_DEBUG=WARNING \\\n  image\n", "kubectl set env deploy/x NCCL_DEBUG=WARNING\n",
                     "Environment=\"NCCL_DEBUG=WARNING\" \"NCCL_DEBUG_SUBSYS=INIT\"\n", "set -gx NCCL_DEBUG WARNING\n", "horovodrun -x NCCL_DEBUG=WARNING -np 8 python t.py\n",
                     "mpirun -x NCCL_DEBUG=WARNING app\n", "ENV NCCL_DEBUG=WARNING\n", "ENV NCCL_DEBUG WARNING\n", "setenv NCCL_DEBUG WARNING\n", "env NCCL_DEBUG=WARNING srun python t.py\n"):
            findings = json.loads(doctor("-", "--json", text=text).stdout)["findings"]
            self.assertTrue(findings and "NCCL_DEBUG=WARNING" in findings[0]["explanation"], (text, findings))
            healthy = doctor("-", "--json", text=text.replace("WARNING", "WARN"))
            self.assertEqual(json.loads(healthy.stdout)["findings"], [], text)

    def test_bad_option(self):
        p = doctor("--no-such")
        self.assertEqual(p.returncode, 2)
        self.assertIn("there is no option --no-such", p.stderr)

    def test_long_lines_are_cut_and_said(self):
        p = doctor("-", "--json", text="x" * 300000 + "\nNCCL_DEBUG=WARNING\n")
        answer = json.loads(p.stdout)
        self.assertEqual(answer["findings"][0]["evidence"][0]["line"], 2)
        self.assertTrue(any("longer than" in n for n in answer["notes"]))

    def test_memory_is_bounded(self):
        """Lines that are all different, of kinds that are kept: more than could be kept."""
        def lines():
            for i in range(250000):
                yield "h%d:%d:%d [0] NCCL INFO Channel 00/0 : %d[0] -> %d[0] [send] via NET/IB/%d/GDRDMA\n" % (i % 9973, i, i, i, i + 1, i % 8)
                yield "[rank%d]:[E514 03:12:09.1 P.cpp:1] [PG ID 0 PG GUID %d(group_%d) Rank %d] last enqueued work: %d, last completed work: %d\n" % (i % 999, i, i, i % 999, i, i)
                yield "host%d: NCCL version 2.%d.%d+cuda12.4 of no library, ncclCommInitRank NCCL_X%d=%d\n" % (i, i, i, i, i)
        with tempfile.NamedTemporaryFile("w", suffix=".log") as f:
            f.writelines(lines())
            f.flush()
            code = "import resource, subprocess, sys; p = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL); print(p.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
            p = subprocess.run([sys.executable, "-c", code, UNISONO, "doctor", "--json", f.name], capture_output=True, text=True, timeout=120, check=True)
        rc, kib = (int(x) for x in p.stdout.split())
        self.assertIn(rc, (0, 1))
        with open(UNISONO, "rb") as f:
            program = f.read()
        sanitized = b"__asan_init" in program or b"__tsan_init" in program  # these keep memory of their own
        self.assertLess(kib, (800 if sanitized else 200) << 10)

    def test_rules_are_listed(self):
        p = doctor("--rules", "--json")
        listed = json.loads(p.stdout)["rules"]
        self.assertEqual(p.returncode, 0)
        self.assertTrue(all(r["what"] and r["source"] and r["kind"] for r in listed) and len(listed) > 60)


if __name__ == "__main__":
    unittest.main()
