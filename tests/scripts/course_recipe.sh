#!/bin/bash
# Data-parallel GPT-2 on WikiText-2, as the course page prints it.

MODEL_ARGS="
  --num-layers 12
  --hidden-size 768
  --num-attention-heads 12
  --seq-length 512
  --max-position-embeddings 1024
  --init-method-std 0.02
  --attention-dropout 0.1
  --hidden-dropout 0.1
"

TRAINING_ARGS="
  --micro-batch-size 4
  --global-batch-size 16
  --rampup-batch-size 4-16-1000
  --train-iters 200
  --log-interval 10
  --lr 0.0001
  --lr-decay-style cosine
  --lr-warmup-iters 50
  --weight-decay 0.1
  --clip-grad 1.0
  --optimizer adam
  --seed 42
  --fp16
"

DATA_ARGS="
  --data-path data/wikitext2_tokenized
  --tokenizer-type GPT2BPETokenizer
  --vocab-file gpt2-vocab.json
  --merge-file gpt2-merges.txt
  --split 98,2,0
"

OTHER_ARGS="
  --tensor-model-parallel-size 1
  --pipeline-model-parallel-size 1
  --distributed-backend nccl
  --DDP-impl local
  --use-checkpoint-opt_param-sync
  --log-throughput
"

# one GPU
python pretrain_gpt.py $MODEL_ARGS $TRAINING_ARGS $DATA_ARGS $OTHER_ARGS

# two GPUs
torchrun --nproc-per-node 2 pretrain_gpt.py $MODEL_ARGS $TRAINING_ARGS $DATA_ARGS $OTHER_ARGS \
  --nproc-per-node 2
