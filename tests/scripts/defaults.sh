#!/bin/bash
# Every kind of default. Nothing has to be given; each may be.
: "${MBS:=4}"
: ${DP:=2}
DTYPE=${DTYPE:-bf16}
SAVE_DIR=${SAVE_DIR-}
TENSORBOARD="runs/tb"
GBS=$((MBS * DP * 2))
LAYERS=$[ 6 + 6 ]
LR=${LR:=3e-4}
NAME=${RUN_NAME:-"gpt-${LAYERS}L"}

torchrun --nproc-per-node=${DP} pretrain_gpt.py --num-layers $LAYERS --hidden-size 512 \
  --num-attention-heads 8 --seq-length 256 --max-position-embeddings ${POSITIONS:-256} \
  --micro-batch-size ${MBS} --global-batch-size ${GBS} --train-iters ${STEPS:-${DEFAULT_STEPS:-300}} \
  --lr ${LR} --lr-decay-style constant --${DTYPE} --log-interval 10 --eval-iters 0 --eval-interval 1000 \
  --data-path ${DATA:-data/wikitext2} ${SAVE_DIR:+--save "$SAVE_DIR" --save-interval 100} \
  ${TENSORBOARD:+--tensorboard-dir "$TENSORBOARD" --wandb-exp-name "${NAME^^}"} ${NOTHING:+--profile}
