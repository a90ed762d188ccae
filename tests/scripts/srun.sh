#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
# The way of large clusters: the launch is evaluated by a shell on each node.
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
GPUS_PER_NODE=4
export LAUNCHER="python -u -m torch.distributed.run --nproc_per_node $GPUS_PER_NODE --nnodes 1 \
  --rdzv_endpoint $MASTER_ADDR:6000 --max_restarts 0"
GPT_ARGS=" \
  --num-layers 12 --hidden-size 768 --num-attention-heads 12 \
  --seq-length 2048 --max-position-embeddings 2048 \
  --micro-batch-size 4 --global-batch-size 256 --train-samples 220_000_000 \
  --lr-decay-samples 126_953_125 --lr-warmup-samples 183_105 \
  --lr 6e-4 --min-lr 6e-5 --lr-decay-style cosine --bf16"
DATA_ARGS="--data-path data/oscar_text_document --split 949,50,1"
export CMD=" pretrain_gpt.py \
  $GPT_ARGS \
  --log-interval 10 --eval-interval 1000 --eval-iters 1 \
  $DATA_ARGS \
  "
echo $CMD
srun --jobid $SLURM_JOBID bash -c '$LAUNCHER --node_rank $SLURM_PROCID $CMD' 2>&1 | tee -a main_log.txt
