# SPDX-License-Identifier: Apache-2.0
"""A Hugging Face Trainer with accelerate fine-tunes a tiny Llama with LoRA, on gloo and on unisono, and compares the losses. Weights and
data are made at random on the spot. Needs transformers, accelerate and peft.

  scripts/with-torch examples/torch/lora.py --ranks 2
"""
import argparse
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import unisono.torch  # noqa: F401 - registers the backend


class Sequences(torch.utils.data.Dataset):
    """Sequences that count up from a random number: there is something to learn."""

    def __init__(self, count):
        start = torch.randint(0, 96, (count, 1), generator=torch.Generator().manual_seed(7))
        self.rows = (start + torch.arange(32)) % 96

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {"input_ids": self.rows[i], "labels": self.rows[i]}


def tune(rank, size, backend, steps, folder, results):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT="29533", ACCELERATE_USE_CPU="1", CUDA_VISIBLE_DEVICES="")
    torch.set_num_threads(1)
    # accelerate takes the process group that it finds.
    dist.init_process_group(backend, store=dist.FileStore(os.path.join(folder, backend), size), rank=rank, world_size=size)
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed
    set_seed(1)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=96, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                                         num_key_value_heads=2, max_position_embeddings=64))
    model = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM"))
    arguments = TrainingArguments(output_dir=os.path.join(folder, f"out-{backend}"), max_steps=steps, per_device_train_batch_size=4,
                                  learning_rate=1e-2, logging_steps=1, save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True,
                                  ddp_find_unused_parameters=False)
    trainer = Trainer(model=model, args=arguments, train_dataset=Sequences(4096))
    assert trainer.accelerator.num_processes == size and dist.get_backend() == backend
    trainer.train()
    if rank == 0:
        results.put([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
    dist.destroy_process_group()


def curve(size, backend, steps):
    results = mp.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(tune, args=(size, backend, steps, folder, results), nprocs=size)
    return results.get()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, action="append", help="default: 2 and 4")
    parser.add_argument("--steps", type=int, default=50)
    options = parser.parse_args()
    good = True
    for size in options.ranks or [2, 4]:
        gloo, ours = curve(size, "gloo", options.steps), curve(size, "unisono", options.steps)
        apart = max(abs(float(a) - float(b)) for a, b in zip(gloo, ours))
        print(f"{size} ranks, {options.steps} steps: loss {float(gloo[0]):.4f} to {float(gloo[-1]):.4f} on gloo, "
              f"to {float(ours[-1]):.4f} on unisono; at most {apart:.1e} apart")
        good &= len(ours) == options.steps and apart < 1e-3
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
