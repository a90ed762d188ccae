#!/bin/bash
# A commented line cuts the command above it: what follows never reaches the launch.
torchrun --nproc_per_node 2 pretrain_gpt.py \
  --num-layers 2 --hidden-size 64 --num-attention-heads 2 `# inline` \
  --seq-length 64 --micro-batch-size 1 --global-batch-size 4 --train-iters 10 \
  --lr 1e-3 --data-path d_text_document \
  # --lr 2e-3 \
  --bf16
