#!/bin/bash
torchrun --nproc_per_node 2 pretrain_bert.py --num-layers 2 --hidden-size 64 --num-attention-heads 2
