#!/bin/bash
# Arguments only, for another script to read.
GPT_ARGS="--num-layers 2 --hidden-size 64"
echo "python pretrain_gpt.py $GPT_ARGS"
python tools/preprocess_data.py --input wiki.jsonl --output-prefix wiki --workers 4
