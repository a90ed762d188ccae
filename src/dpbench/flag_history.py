"""Flags of Megatron that came, went or changed their spelling, and what to write instead.

Observed in the parsers of 24 releases, v2.5 to core_v0.19.0 (core_v is left out below).
"""

from __future__ import annotations

from typing import NamedTuple

RELEASES = (
    *("v2.5", "v2.6", "23.04", "23.06", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9"),
    *("0.10", "0.11", "0.12", "0.13", "0.14", "0.15", "0.16", "0.17", "0.18", "0.19"),
)
VALUES = "{}"
"""Stands in `Change.becomes` for the values that were given to the flag."""


class Change(NamedTuple):
    """The fate of one flag."""

    flag: str
    """Without the dashes in front."""
    first: str | None
    """First release whose parser has it; None when none ever had."""
    last: str | None
    """Last release whose parser has it; RELEASES[-1] when it is still parsed."""
    values: int
    """How many values it took."""
    becomes: tuple[str, ...] | None
    """What says the same today: () when nothing has to be said, None when nothing can say it."""
    since: str
    """First release that takes `becomes`; may be later than `last` by one release."""
    why: str

    @property
    def removed_in(self) -> str | None:
        """The first release without the flag; None while it is still parsed."""
        if self.last is None or self.last == RELEASES[-1]:
            return None
        return RELEASES[RELEASES.index(self.last) + 1]

    def rewrite(self, values: list[str]) -> list[str] | None:
        """Return the arguments of today for the flag with these values; None when there are none.

        >>> Change("epsilon", "v2.5", "23.06", 1, ("--norm", VALUES), "0.4", "").rewrite(["1e-5"])
        ['--norm', '1e-5']
        """
        if self.becomes is None:
            return None
        today: list[str] = []
        for part in self.becomes:
            today += values if part == VALUES else [part]
        return today


def find_change(flag: str) -> Change | None:
    """Return the history of a flag, with or without dashes in front; None when it has none."""
    return HISTORY.get(flag.lstrip("-").replace("_", "-").lower())


def renamed(flag: str, first: str, last: str, new: str, why: str, *, values: int = 1) -> Change:
    """Return the change of a flag that goes on under another name, from the next release on."""
    since = RELEASES[RELEASES.index(last) + 1]
    becomes = (f"--{new}", VALUES) if values else (f"--{new}",)
    return Change(flag, first, last, values, becomes, since, why)


def gone(flags: str, first: str, last: str, why: str, *, values: int = 0) -> list[Change]:
    """Return flags that nothing replaces, though leaving them out changes what is trained."""
    return [Change(flag, first, last, values, None, last, why) for flag in flags.split()]


def needless(flags: str, first: str, last: str, why: str, *, values: int = 0) -> list[Change]:
    """Return flags that can be left out without changing what is trained."""
    return [Change(flag, first, last, values, (), last, why) for flag in flags.split()]


RECOMPUTE_ALL = ("--recompute-granularity", "full", "--recompute-method")
REDUCE = "the all-reduce follows the other flags"
RETRO = "RETRO models are no longer part of Megatron"

CHANGES: list[Change] = [
    # Never Megatron's
    Change(
        "use-checkpoint-opt_param-sync",
        None,
        None,
        0,
        (),
        "v2.5",
        "no version of Megatron ever had it",
    ),
    Change("nproc-per-node", None, None, 1, (), "v2.5", "it is torchrun's, not the script's"),
    # Refused by the parser's own check although it is parsed
    Change(
        *("batch-size", "v2.5", "0.19", 1, ("--micro-batch-size", VALUES), "v2.5"),
        "its name has been micro-batch-size since v2",
    ),
    Change(
        *("model-parallel-size", "v2.5", "0.19", 1, ("--tensor-model-parallel-size", VALUES)),
        *("v2.5", "its name has been tensor-model-parallel-size since v2"),
    ),
    Change(
        *("warmup", "v2.5", "0.19", 1, ("--lr-warmup-fraction", VALUES), "v2.5"),
        "its name has been lr-warmup-fraction since v2",
    ),
    Change(
        *("checkpoint-activations", "v2.5", "0.19", 0),
        *((*RECOMPUTE_ALL, "uniform", "--recompute-num-layers", "1"), "23.04"),
        "it meant recomputing every layer; today Megatron ends at once, with status 0",
    ),
    # Recomputation, 2022
    renamed(
        *("checkpoint-num-layers", "v2.5", "v2.5", "recompute-num-layers"),
        "checkpointing of activations is called recomputation",
    )._replace(since="23.04"),
    Change(
        *("activations-checkpoint-method", "v2.6", "v2.6", 1, (*RECOMPUTE_ALL, VALUES), "23.04"),
        "checkpointing of activations is called recomputation",
    ),
    renamed(
        *("activations-checkpoint-num-layers", "v2.6", "v2.6", "recompute-num-layers"),
        "checkpointing of activations is called recomputation",
    ),
    renamed(
        *("distribute-checkpointed-activations", "v2.5", "v2.6", "distribute-saved-activations"),
        *("checkpointing of activations is called recomputation",),
        values=0,
    ),
    renamed(
        *("override-lr-scheduler", "v2.5", "v2.6", "override-opt_param-scheduler"),
        *("the scheduler also drives weight decay",),
        values=0,
    ),
    renamed(
        *("use-checkpoint-lr-scheduler", "v2.5", "v2.6", "use-checkpoint-opt_param-scheduler"),
        *("the scheduler also drives weight decay",),
        values=0,
    ),
    # core_v0.4
    *needless("DDP-impl", "v2.5", "23.06", "there is one data-parallel implementation", values=1),
    *needless(
        "use-contiguous-buffers-in-ddp", "v2.5", "v2.5", "gradient buffers are always contiguous"
    ),
    *needless(
        "no-contiguous-buffers-in-local-ddp",
        "v2.6",
        "23.06",
        "gradient buffers are always contiguous",
    ),
    *needless("data-impl", "v2.5", "23.06", "datasets are always memory-mapped", values=1),
    *needless("mmap-warmup", "v2.5", "23.06", "the files are no longer read through at start"),
    *gone("embedding-weights-in-fp32", "23.06", "23.06", "embeddings follow the model's precision"),
    renamed("layernorm-epsilon", "v2.5", "23.06", "norm-epsilon", "it also serves RMSNorm"),
    Change(
        *("fp8-e4m3", "23.04", "23.06", 0, ("--fp8-format", "e4m3"), "0.4"),
        "the format is one flag with a value",
    ),
    Change(
        *("fp8-hybrid", "23.04", "23.06", 0, ("--fp8-format", "hybrid"), "0.4"),
        "the format is one flag with a value",
    ),
    *needless("no-query-key-layer-scaling", "v2.5", "23.06", "the scaling is off unless asked for"),
    *needless("overlap-p2p-communication", "23.06", "23.06", "overlap is on unless switched off"),
    *gone("img-dim", "v2.5", "v2.6", "images have --img-h and --img-w", values=1),
    # core_v0.5 to 0.9
    *gone("moe-token-dropping", "0.5", "0.6", "give --moe-expert-capacity-factor instead"),
    *needless("enable-one-logger", "0.5", "0.7", "it is on unless --no-one-logger is given"),
    *needless("one-logger-entity", "0.5", "0.7", "the logger no longer asks for it", values=1),
    *needless("delay-param-gather", "0.4", "0.8", "gathers are aligned unless switched off"),
    renamed(
        *("no-delay-grad-reduce", "0.4", "0.8", "no-align-grad-reduce"),
        *("reductions are called aligned, not delayed",),
        values=0,
    ),
    *needless("log-batch-size-to-tensorboard", "v2.5", "0.8", "it is always logged"),
    *needless("no-log-learnig-rate-to-tensorboard", "v2.5", "0.8", "it is always logged"),
    *needless(
        *("local-rank", "v2.5", "0.19", "the launcher passes it in the environment (LOCAL_RANK)"),
        values=1,
    ),
    *needless("use-dist-ckpt", "0.6", "0.19", "checkpoints are, unless --ckpt-format torch"),
    *needless("dist-ckpt-format", "0.6", "0.19", "ignored since 0.9: see --ckpt-format", values=1),
    *needless("ckpt-fully-parallel-save", "0.6", "0.19", "it is on unless switched off"),
    *needless("use-mcore-models", "0.4", "0.19", "there are no other models: ignored since 0.8"),
    *needless("use-flash-attn", "23.04", "0.19", "only models of old read it; --attention-backend"),
    # core_v0.10 to 0.15
    *gone("standalone-embedding-stage", "23.04", "0.10", "pipelines are laid out otherwise"),
    *needless("renormalize-blend-weights", "0.9", "0.10", "weights of a blend are always summed"),
    renamed(
        *("s3-cache-path", "0.8", "0.12", "object-storage-cache-path", "it serves other stores too")
    ),
    renamed(
        *("use-custom-fsdp", "0.12", "0.13", "use-megatron-fsdp"),
        *("its name changed; it needs --ckpt-format fsdp_dtensor",),
        values=0,
    ),
    renamed(
        *("keep-fp8-transpose-cache-when-using-custom-fsdp", "0.12", "0.13"),
        *("keep-fp8-transpose-cache", "its name changed"),
        values=0,
    ),
    *gone(
        "encoder-tensor-model-parallel-size encoder-pipeline-model-parallel-size",
        *("0.9", "0.13", "encoders have no parallel sizes of their own"),
        values=1,
    ),
    *gone("pipeline-model-parallel-split-rank", "23.04", "0.13", "for encoders only", values=1),
    *needless("load-model-opt-format", "0.13", "0.14", "for ModelOpt checkpoints only"),
    *gone(
        "kitchen-config-file kitchen-recipe-number", "0.13", "0.15", "now --use-kitchen", values=1
    ),
    *gone("retro-workdir", "23.04", "0.5", RETRO, values=1),
    *gone("retro-return-doc-ids", "23.04", "0.5", RETRO),
    *gone("retro-add-retriever", "23.04", "0.15", RETRO),
    *gone("retro-no-verify-neighbor-count", "0.4", "0.15", RETRO),
    *gone(
        "retro-encoder-layers retro-num-neighbors retro-num-retrieved-chunks "
        "retro-encoder-hidden-dropout retro-encoder-attention-dropout retro-cyclic-train-iters",
        *("23.04", "0.15", RETRO),
        values=1,
    ),
    *gone("retro-attention-gate", "0.5", "0.15", RETRO, values=1),
    *gone("retro-project-dir", "0.6", "0.15", RETRO, values=1),
    *gone("retriever-seq-length", "v2.5", "0.15", RETRO, values=1),
    # core_v0.16 to 0.19
    *gone(
        *("rampup-batch-size", "v2.5", "0.19"),
        "up to 0.17 it took three integers with --train-samples; since 0.18 it is parsed and "
        "ignored, and a ramp spoils a comparison of speeds",
        values=3,
    ),
    Change(
        *("enable-cuda-graph", "0.11", "0.19", 0, ("--cuda-graph-impl", "local"), "0.15"),
        "the kind of graph is one flag with a value",
    ),
    Change(
        *("external-cuda-graph", "0.12", "0.19", 0),
        *(("--cuda-graph-impl", "transformer_engine"), "0.15"),
        "the kind of graph is one flag with a value",
    ),
    *needless("legacy-tokenizer", "0.15", "0.16", "tokenizers are read one way only"),
    *needless("no-async-tensor-model-parallel-allreduce", "23.04", "0.16", REDUCE),
    *needless("disable-async-tensor-model-parallel-allreduce", "0.16", "0.16", REDUCE),
    renamed(
        *("disable-ckpt-fully-parallel-save", "0.16", "0.16", "no-ckpt-fully-parallel-save"),
        *("its name changed",),
        values=0,
    ),
    *gone("moe-extended-tp", "0.7", "0.16", "experts have --expert-tensor-parallel-size"),
    *needless("moe-use-legacy-grouped-gemm", "0.11", "0.16", "there is one grouped GEMM"),
    *gone(
        "hybrid-attention-ratio hybrid-mlp-ratio",
        *("0.8", "0.16", "write the layers out in --hybrid-layer-pattern"),
        values=1,
    ),
    renamed(*("muon-use-nesterov", "0.16", "0.17", "muon-nesterov", "its name changed"), values=0),
    *needless("use-legacy-models", "0.8", "0.17", "models of old are gone; the core model trains"),
    *needless("no-scatter-gather-tensors-in-pipeline", "v2.5", "0.17", "only a way to send"),
    *needless("tokenizer-hf-use-fast", "0.16", "0.17", "it is on unless switched off"),
    *needless("tokenizer-hf-include-special-tokens", "0.16", "0.17", "on unless switched off"),
    renamed(
        *("tiktoken-special-tokens", "0.8", "0.17", "tokenizer-special-tokens"),
        "it serves every tokenizer",
    ),
]
HISTORY = {change.flag.replace("_", "-").lower(): change for change in CHANGES}
