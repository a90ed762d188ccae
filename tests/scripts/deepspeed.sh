#!/bin/bash
# The launcher of DeepSpeed, around Megatron's own script.
options=" \
	--num-layers 6 --hidden-size 384 --num-attention-heads 6 \
	--seq-length 512 --max-position-embeddings 512 \
	--micro-batch-size 4 --global-batch-size 32 --train-iters 120 \
	--lr 2e-4 --min-lr 0 --lr-decay-style cosine --bf16 \
	--data-path d_text_document"
options="${options} --seed 7"
run_cmd="deepspeed --num_gpus 4 --num_nodes 1 pretrain_gpt.py $@ ${options}"
echo ${run_cmd}
eval ${run_cmd}
set +x
