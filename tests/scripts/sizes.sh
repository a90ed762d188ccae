#!/bin/bash
# One script for several sizes: case and if on what is known.
SIZE=${SIZE:-small}
case "$SIZE" in
  tiny) LAYERS=2; HIDDEN=128; HEADS=2 ;;
  small|125M)
    LAYERS=12
    HIDDEN=768; HEADS=12
    ;;
  medium*) LAYERS=24; HIDDEN=1024; HEADS=16 ;;
  *) echo "unknown size $SIZE" >&2; exit 1 ;;
esac
PRECISION=bf16
if [ "$PRECISION" = "fp16" ]; then
  PRECISION_ARGS="--fp16 --initial-loss-scale 65536"
elif [[ $PRECISION == bf* && -n "$SIZE" ]]; then
  PRECISION_ARGS="--bf16"
else
  PRECISION_ARGS=""
fi
SEQ=1024
if (( SEQ > 512 )) && [[ $LAYERS -ge 12 ]]; then
  RECOMPUTE="--recompute-activations"
fi
[ -z "$EXTRA" ] && EXTRA="--no-bias-gelu-fusion"
test $HEADS -eq 12 || HEADS=1
if [ ! -d "checkpoints" ]; then
  mkdir -p checkpoints
fi
torchrun --standalone --nproc_per_node 1 pretrain_gpt.py --num-layers $LAYERS --hidden-size $HIDDEN \
  --num-attention-heads $HEADS --seq-length $SEQ --micro-batch-size 1 --global-batch-size 8 \
  --train-iters 50 --lr 1e-4 $PRECISION_ARGS $RECOMPUTE $EXTRA --data-path d_text_document
