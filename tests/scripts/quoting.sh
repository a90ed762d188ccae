#!/bin/bash
# Quotes in quotes, values with blanks, = between flag and value, underscores, repetitions.
SPLIT="90,5,5"
NAME='it'"'"'s "quoted"'
ARGS="--wandb-project my\ project"
torchrun --nproc_per_node 1 pretrain_gpt.py --num_layers=3 --hidden_size=192 \
  --num-attention-heads=3 --seq-length="256" --micro_batch_size 2 --global-batch-size=8 \
  --train-iters 1_000 --lr=5e-4 --lr=4e-4 --split "$SPLIT" --split "98, 2, 0" \
  --data-path='d x/all_text_document' --wandb-exp-name "$NAME" --wandb-project a\ b \
  --wandb-save-dir "tab	and 'single'" --seed 1 --seed 2 --tensorboard-dir $'tb\tx' --loss-scale 12_8 \
  --exit-duration-in-mins -1 --bf16
