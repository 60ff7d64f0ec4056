mpirun -np 16 -H n1:8,n2:8 --bind-to none -map-by slot -x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH -x PATH -mca pml ob1 -mca btl ^openib ./build/all_reduce_perf -b 8 -e 8G -f 2 -g 1
horovodrun -np 16 -H server1:8,server2:8 python train.py
deepspeed --hostfile=hosts --num_gpus 8 train.py --deepspeed ds.json
accelerate launch --multi_gpu --num_machines 2 --machine_rank $NODE_RANK --main_process_ip $MASTER_ADDR --main_process_port 29500 train.py
ray start --head --port=6379
vllm serve meta/llama --tensor-parallel-size 8 --distributed-executor-backend ray
python -m torch.distributed.launch --nproc_per_node=8 train.py
