#!/bin/bash
# A container, a shell in it, associative arrays, pattern replacement, indirection.
declare -A HEADS=([small]=12 [medium]=16)
SIZE=medium
export TRAIN_ITERS=25
PREFIX_medium=1024
REF="PREFIX_${SIZE}"
LIST="1,2,4"
NUMBERS=(${LIST//,/ })
FILE=/data/sets/pile.jsonl.gz
STEM=${FILE##*/}; STEM=${STEM%%.*}
docker run --rm --gpus all megatron:latest bash -c "cd . && exec torchrun --nproc_per_node ${NUMBERS[1]} \
  pretrain_gpt.py --num-layers ${#NUMBERS[@]} --hidden-size ${!REF} --num-attention-heads ${HEADS[$SIZE]} \
  --seq-length 512 --micro-batch-size ${NUMBERS[-1]} --global-batch-size 32 --train-iters \$TRAIN_ITERS \
  --lr 1e-4 --data-path ${FILE%/*}/${STEM^}_text_document ${NUMBERS[@]:1:0}"
