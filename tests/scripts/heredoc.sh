#!/bin/bash
# Text in heredocs: one for a file that nobody reads here, one for the arguments.
HIDDEN=320
mkdir -p out
cat <<CONFIG > out/ds.json
{
  "train_batch_size": 16,
  "hidden": $HIDDEN, "note": "torchrun pretrain_gpt.py --hidden-size 1"
}
CONFIG
ARGS=$(cat <<-ARGUMENTS
	--num-layers 5
	  --hidden-size $HIDDEN --num-attention-heads 5
	--seq-length 128 --micro-batch-size 1
	--global-batch-size 4
	ARGUMENTS
)
NOT_EXPANDED=$(cat << 'END'
--data-path $HIDDEN
END
)
: <<'COMMENT'
torchrun pretrain_gpt.py --num-layers 99
COMMENT
torchrun --nproc_per_node 2 pretrain_gpt.py $ARGS --train-iters 30 --lr 1e-3 \
  --data-path "d_text_document" --wandb-exp-name "$NOT_EXPANDED"
