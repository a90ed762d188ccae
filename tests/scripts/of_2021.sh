#!/bin/bash
# A launch for Megatron-LM v2.6, as many still stand around.
DATA_PATH=data/corpus_text_document
python -m torch.distributed.launch --nproc_per_node 8 --nnodes 1 --node_rank 0 \
       --master_addr localhost --master_port 6000 \
       pretrain_gpt.py \
       --tensor-model-parallel-size 2 \
       --pipeline-model-parallel-size 1 \
       --num-layers 24 \
       --hidden-size 1024 \
       --num-attention-heads 16 \
       --micro-batch-size 4 \
       --global-batch-size 16 \
       --seq-length 1024 \
       --max-position-embeddings 1024 \
       --train-iters 500 \
       --lr-decay-iters 320 \
       --data-path $DATA_PATH \
       --vocab-file gpt2-vocab.json \
       --merge-file gpt2-merges.txt \
       --data-impl mmap \
       --split 949,50,1 \
       --distributed-backend nccl \
       --DDP-impl torch \
       --lr 0.00015 \
       --lr-decay-style cosine \
       --min-lr 1.0e-5 \
       --weight-decay 1e-2 \
       --clip-grad 1.0 \
       --lr-warmup-fraction .01 \
       --layernorm-epsilon 1e-6 \
       --activations-checkpoint-method uniform \
       --activations-checkpoint-num-layers 2 \
       --use-checkpoint-lr-scheduler \
       --no-query-key-layer-scaling \
       --log-interval 100 \
       --eval-interval 1000 \
       --eval-iters 10 \
       --fp16
