"""The flags that the stand-in knows: those that dpbench has keys for, or passes by itself."""

WITH_VALUE = """
num-layers hidden-size num-attention-heads seq-length max-position-embeddings init-method-std
attention-dropout hidden-dropout micro-batch-size global-batch-size train-iters train-samples
rampup-batch-size log-interval eval-interval eval-iters lr min-lr lr-decay-style lr-decay-iters
lr-decay-samples lr-warmup-iters lr-warmup-samples weight-decay clip-grad seed
tensor-model-parallel-size pipeline-model-parallel-size context-parallel-size data-path
data-cache-path split tokenizer-type tokenizer-model transformer-impl
""".split()
SWITCHES = """
fp16 bf16 log-throughput no-masked-softmax-fusion no-persist-layer-norm no-rope-fusion
no-gradient-accumulation-fusion
""".split()


def add_megatron_arguments(parser):
    """Add all flags, as the function of this name in Megatron-LM does."""
    for name in WITH_VALUE:
        parser.add_argument(f"--{name}")
    for name in SWITCHES:
        parser.add_argument(f"--{name}", action="store_true")
    return parser
