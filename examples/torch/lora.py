# SPDX-License-Identifier: Apache-2.0
"""A Hugging Face Trainer with accelerate fine-tunes a tiny Llama with LoRA, on gloo and on unisono, and compares the losses. Weights and
data are made at random on the spot. Needs transformers, accelerate and peft.

  scripts/with-torch examples/torch/lora.py --ranks 2
"""
import os
import tempfile

import torch
import torch.distributed as dist

from beside_gloo import compare


class Sequences(torch.utils.data.Dataset):
    """Sequences that count up from a random number: there is something to learn."""

    def __init__(self, count):
        start = torch.randint(0, 96, (count, 1), generator=torch.Generator().manual_seed(7))
        self.rows = (start + torch.arange(32)) % 96

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {"input_ids": self.rows[i], "labels": self.rows[i]}


def tune(rank, size, steps):
    os.environ.update(ACCELERATE_USE_CPU="1", CUDA_VISIBLE_DEVICES="")
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed
    set_seed(1)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=96, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                                         num_key_value_heads=2, max_position_embeddings=64))
    model = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM"))
    backend = dist.get_backend()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(output_dir=folder, max_steps=steps, per_device_train_batch_size=4, learning_rate=1e-2, logging_steps=1,
                                      save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True, ddp_find_unused_parameters=False)
        trainer = Trainer(model=model, args=arguments, train_dataset=Sequences(4096))
        # accelerate takes the process group that it finds.
        assert trainer.accelerator.num_processes == size and dist.get_backend() == backend
        trainer.train()
    return [float(entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]


if __name__ == "__main__":
    compare(__doc__, tune, bound=1e-3)
