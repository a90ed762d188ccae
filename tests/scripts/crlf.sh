#!/bin/bash
# saved on Windows
LAYERS=2
ARGS="--hidden-size 64 \
  --num-attention-heads 2"
if [ "$LAYERS" = "2" ]; then
  MBS=1
fi
torchrun --nproc_per_node 2 pretrain_gpt.py --num-layers $LAYERS $ARGS \
  --seq-length 64 --micro-batch-size $MBS --global-batch-size 4 --train-iters 10 \
  --lr 1e-3 --data-path d_text_document
