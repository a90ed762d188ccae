#!/bin/bash
# bash key_value.sh MBS=2 GBS=8 LR=3e-4
for ARGUMENT in "$@"; do
  KEY=$(echo $ARGUMENT | cut -f1 -d=)
  KEY_LENGTH=${#KEY}
  VALUE="${ARGUMENT:$KEY_LENGTH+1}"
  export "$KEY"="$VALUE"
done
MBS="${MBS:-1}"
GBS="${GBS:-4}"
NAME=$(basename "/data/corpora/books.jsonl" .jsonl)
DIR=$(dirname "/data/corpora/books.jsonl")
STEPS=$(echo "$GBS * 10" | bc)
python3 pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 2 --seq-length 64 \
  --micro-batch-size $MBS --global-batch-size $GBS --lr ${LR:-1e-3} --train-iters $(expr $GBS + 16) \
  --data-path ${DIR}/${NAME}_text_document --exit-interval $(printf '%d' 30)
