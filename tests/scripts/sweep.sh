#!/bin/bash
# Several launches in one file: a sweep.
BASE="--num-layers 4 --hidden-size 256 --num-attention-heads 4 --seq-length 128 --train-iters 40"
for mbs in 1 2 4; do
  torchrun --nproc_per_node 2 pretrain_gpt.py $BASE --micro-batch-size $mbs --global-batch-size 8 \
    --lr 1e-3 --data-path d_text_document
done
for ((i = 3; i < 5; i++)); do
  torchrun --nproc_per_node $i pretrain_gpt.py $BASE --micro-batch-size 1 --global-batch-size 12 \
    --lr ${i}e-4 --data-path d_text_document
done
