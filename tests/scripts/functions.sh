#!/bin/bash
# Functions with local variables, results in globals, and one that launches.
function set_model {
  local layers=$1 hidden=$2
  LAYERS=$layers
  local ratio=64
  HEADS=$((hidden / ratio))
  MODEL_ARGS="--num-layers $layers --hidden-size $hidden --num-attention-heads $HEADS"
  return 0
  LAYERS=99
}
batch() {
  echo "--micro-batch-size $1 --global-batch-size $2"
}
layers=7
set_model 8 512
launch() {
  local name="$1"; shift
  echo "launching $name on $# words"
  torchrun --nproc_per_node 4 "$@"
}
launch "first try" pretrain_gpt.py $MODEL_ARGS $(batch 2 16) --seq-length 512 --train-iters 60 \
  --lr 1e-3 --data-path d_text_document --exit-interval $layers --num-workers ${LAYERS}
