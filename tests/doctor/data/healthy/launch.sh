#!/bin/bash
#SBATCH --job-name=pretrain
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=96
export NCCL_DEBUG=INFO
export NCCL_IB_HCA==mlx5_0,mlx5_1
export NCCL_SOCKET_IFNAME=^docker,lo
export GLOO_SOCKET_IFNAME=eth0
export TORCH_NCCL_ASYNC_ERROR_HANDLING=1 TORCH_NCCL_DUMP_ON_TIMEOUT=true
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)
export MASTER_PORT=29500
srun --cpu-bind=none bash -c 'torchrun --nnodes $SLURM_JOB_NUM_NODES --nproc_per_node 8 \
  --node_rank $SLURM_NODEID --master_addr $MASTER_ADDR --master_port $MASTER_PORT \
  pretrain.py --config big.yaml'
