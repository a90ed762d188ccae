#!/bin/bash
# Things that only running it could tell.
source ./cluster.env
GPUS=$(nvidia-smi -L | wc -l)
DATA_PATH=<path to the data>
if [ -f "$CHECKPOINT/latest" ]; then ITERS=10; else ITERS=20; fi
torchrun --nproc_per_node $GPUS pretrain_gpt.py --num-layers 2 --hidden-size 64 \
  --num-attention-heads 2 --seq-length 64 --micro-batch-size 1 --global-batch-size $((GPUS * 2)) \
  --train-iters $ITERS --lr $LEARNING_RATE --data-path $DATA_PATH --seed $1 --exit-interval $(date +%s)
