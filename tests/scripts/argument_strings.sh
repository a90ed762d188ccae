#!/usr/bin/env bash
# Strings that grow, and a command that is put together and evaluated.
GPT_ARGS="--num-layers 12 \
--hidden-size 768 \
--num-attention-heads 12"
OPTS=" --seq-length 512"
OPTS="$OPTS --max-position-embeddings 512"
OPTS+=" --init-method-std 0.01"

CMD="python -m torch.distributed.run --nproc_per_node=4 --nnodes=1 pretrain_gpt.py"
CMD+=" $GPT_ARGS"
CMD="${CMD} ${OPTS}"
CMD+=" --micro-batch-size 2 --global-batch-size 32 --train-iters 100 --lr 0.00015"
CMD+=" --lr-decay-style linear --fp16 --loss-scale 4096 --log-interval 1"
CMD+=" --data-path 'data/wiki text_document' --eval-interval 50 --eval-iters 1"
echo $CMD
eval $CMD
