#!/bin/bash
# positional.sh CHECKPOINTS DATA [MORE FLAGS]
if [ $# -lt 2 ]; then
  echo "usage: $0 CHECKPOINTS DATA [MORE FLAGS]"
  exit 1
fi
CHECKPOINT_PATH=$1
DATA_PATH=$2
shift 2
torchrun --nproc_per_node 2 pretrain_gpt.py \
  --num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 1024 \
  --max-position-embeddings 1024 --micro-batch-size 4 --global-batch-size 64 --train-iters 1000 \
  --lr 2.5e-4 --bf16 --data-path $DATA_PATH \
  --save "$CHECKPOINT_PATH/gpt" --save-interval 500 "$@"
