#!/bin/sh
# mpirun, and python in the place of a launcher.
NP=8
COMMON="--num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 1024"
mpirun -np $NP --allow-run-as-root -x PATH \
  python -u pretrain_gpt.py $COMMON --micro-batch-size 2 --global-batch-size 20 \
  --train-iters 100 --lr 1e-4 --data-path d_text_document --fp16
