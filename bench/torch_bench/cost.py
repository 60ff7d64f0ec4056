# SPDX-License-Identifier: Apache-2.0
"""Instructions of an all_reduce of 8 bytes within the backend, from its entry until wait returns, and of those the library's own: counted
by valgrind's callgrind in a group of one rank, where nothing is waited for. Takes minutes, most of them for the import of torch.

  scripts/with-torch bench/torch_bench/cost.py
"""
import os
import re
import subprocess
import sys
import tempfile

CALLS = 300
LOOP = f"""
import os, torch, torch.distributed as dist, unisono.torch
torch.set_num_threads(1)
dist.init_process_group("unisono", store=dist.HashStore(), rank=0, world_size=1)
backend, tensor, options = dist.group.WORLD._get_backend(torch.device("cpu")), torch.zeros(2), dist.AllreduceOptions()
options.asyncOp = False
for _ in range({CALLS}):
    backend.allreduce([tensor], options).wait()
os._exit(0)
"""


def main():
    with tempfile.TemporaryDirectory() as folder:
        counts = os.path.join(folder, "counts")
        subprocess.run(["valgrind", "-q", "--tool=callgrind", "--collect-atstart=no", "--toggle-collect=unisono::Backend::allreduce*",
                        "--toggle-collect=unisono::QueuedWork::wait*", f"--callgrind-out-file={counts}", sys.executable, "-c", LOOP],
                       check=True, env=dict(os.environ, PYTHONMALLOC="malloc"))
        told = subprocess.run(["callgrind_annotate", "--inclusive=yes", counts], check=True, capture_output=True, text=True).stdout

    def of(pattern):
        return int(re.search(rf"^ *([\d,]+) .*{pattern}", told, re.M)[1].replace(",", "")) // CALLS
    whole, library = of("PROGRAM TOTALS"), of(r":uno_all_reduce\b")
    print(f"{whole} instructions a call, {library} of them in uno_all_reduce, {whole - library} in the backend")


if __name__ == "__main__":
    main()
