# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.checkpoint of a model in shards: saved by three ranks, read by two."""
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from ranks import run


def sharded(size, seed):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(8, 13), torch.nn.Linear(13, 5))
    mesh = init_device_mesh("cpu", (size,))
    for part in model:
        fully_shard(part, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def save(rank, size, folder):
    model = sharded(size, seed=1)
    dcp.save(get_model_state_dict(model), checkpoint_id=folder)
    return model(torch.ones(1, 8)).tolist()


def load(rank, size, folder):
    model = sharded(size, seed=2)
    before = model(torch.ones(1, 8)).tolist()
    state = get_model_state_dict(model)
    dcp.load(state, checkpoint_id=folder)
    set_model_state_dict(model, state)
    return before, model(torch.ones(1, 8)).tolist()


def test_saved_by_three_read_by_two():
    with tempfile.TemporaryDirectory() as folder:
        saved = run(3, save, folder)
        for before, after in run(2, load, folder):
            assert torch.allclose(torch.tensor(after), torch.tensor(saved[0])), (after, saved[0])
            assert not torch.allclose(torch.tensor(before), torch.tensor(saved[0])), before
