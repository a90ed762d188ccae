#!/bin/bash
# Arrays with comments, expanded quoted and unquoted, and a rendezvous that needs the machine.
set -euo pipefail
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=2
NUM_NODES=1
MASTER_ADDR=$(hostname -i)
WORLD_SIZE=$(($GPUS_PER_NODE*$NUM_NODES))

DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NUM_NODES
    --master_addr $MASTER_ADDR   # asks the machine, but only torchrun needs it
    --master_port "6000"
)
MODEL_ARGS=(
    --num-layers 24 # medium
    # --num-layers 48
    --hidden-size 1024 --num-attention-heads 16
    --seq-length 1024
    --max-position-embeddings 1024
    "--swiglu"
)
TRAINING_ARGS=(
    --micro-batch-size 8
    --global-batch-size $((8 * WORLD_SIZE * 4))
    --train-iters 500
    --lr 6.0e-4
    --min-lr 6.0e-5
    --lr-decay-style cosine
    --lr-decay-iters 430
    --lr-warmup-iters 20
    --weight-decay .1
    --adam-beta2 0.95
    --clip-grad 1.0
    --bf16
)
TRAINING_ARGS+=(--log-interval 5 --eval-interval 100 --eval-iters 10)
DATA_ARGS=(--data-path "data/my books/all_text_document" --split '98, 2, 0')

torchrun "${DISTRIBUTED_ARGS[@]}" pretrain_gpt.py \
    ${MODEL_ARGS[@]} \
    "${TRAINING_ARGS[@]}" \
    "${DATA_ARGS[@]}" --tokenizer-type HuggingFaceTokenizer --tokenizer-model data/tok \
    --timing-log-level 2 2>&1 | tee run.log
