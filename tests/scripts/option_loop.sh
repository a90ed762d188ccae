#!/bin/bash
# The usual loop over options; what is left goes to Megatron.
MBS=1
GPUS=1
REST=()
while [[ $# -gt 0 ]]; do
  case "$1" in
    -m|--mbs) MBS="$2"; shift 2 ;;
    --gpus=*) GPUS="${1#*=}"; shift ;;
    --dry) DRY=1; shift ;;
    --) shift; break ;;
    -*) echo "unknown option $1"; exit 1 ;;
    *) REST+=("$1"); shift ;;
  esac
done
torchrun --nproc_per_node=$GPUS pretrain_gpt.py --num-layers 4 --hidden-size 256 \
  --num-attention-heads 4 --seq-length 128 --micro-batch-size $MBS --global-batch-size 16 \
  --train-iters 20 --lr 1e-3 --data-path "${REST[0]}" "$@"
