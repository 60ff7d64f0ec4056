import os, datetime, torch, torch.distributed as dist
os.environ.setdefault("NCCL_DEBUG", "WARN")
os.environ["TORCH_NCCL_BLOCKING_WAIT"] = "0"
dist.init_process_group("nccl", timeout=datetime.timedelta(minutes=30))
local = int(os.environ["LOCAL_RANK"]); torch.cuda.set_device(local)
for rank in range(dist.get_world_size()):
    if rank == dist.get_rank():
        print("rank %d: ready" % rank)
    dist.barrier()
