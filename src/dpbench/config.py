"""The sections and keys of a configuration: frozen, typed, and nothing unknown gets past them.

Keys of `model` and `training` carry the names of Megatron's own arguments, with underscores.
"""

from __future__ import annotations

from itertools import combinations
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator
from pydantic_core import PydanticCustomError

from dpbench.errors import ConfigError
from dpbench.yaml_source import Document

LARGEST = 2**31 - 1
"""Megatron keeps counts and seeds in 32-bit integers."""
Count = Annotated[int, Field(ge=1, le=LARGEST)]
CountOrZero = Annotated[int, Field(ge=0, le=LARGEST)]
NonNegative = Annotated[float, Field(ge=0)]
Probability = Annotated[float, Field(ge=0, lt=1)]
Text = Annotated[str, Field(min_length=1)]
FlagName = Annotated[str, Field(pattern=r"^(--)?[A-Za-z0-9][A-Za-z0-9_-]*$")]
BATCH = ("micro_batch_size", "global_batch_size", "micro_batches_per_step")
"""Keys under `training` of which exactly two are given; the third follows."""
LENGTH = ("train_iters", "train_samples")
"""Keys under `training` of which exactly one is given."""
FlagValue = bool | int | float | str | list[str | int | float] | None


class Section(BaseModel):
    """A part of the configuration: frozen, strictly typed, no unknown keys, no NaN or infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Model(Section):
    """The GPT that is trained."""

    num_layers: Count
    """Transformer layers."""
    hidden_size: Count
    """Width of the model."""
    num_attention_heads: Count
    """Attention heads of a layer; hidden_size is a multiple of it."""
    seq_length: Count
    """Tokens a sample."""
    max_position_embeddings: Count | None = None
    """Longest sequence the position embeddings serve; seq_length when left out."""
    init_method_std: NonNegative = 0.02
    """Standard deviation of the initial weights."""
    attention_dropout: Probability = 0.1
    hidden_dropout: Probability = 0.1


class Training(Section):
    """Batches, steps and the optimizer."""

    model_config = ConfigDict(
        json_schema_extra={
            "allOf": [
                {"anyOf": [{"required": list(given)} for given in combinations(keys, count)]}
                for keys, count in ((BATCH, 2), (LENGTH, 1))
            ]
        }
    )

    micro_batch_size: Count | None = None
    """Samples a GPU takes in one pass; what the other two leave to each GPU when left out."""
    global_batch_size: Count | None = None
    """Samples a step takes on all GPUs together; the same at every GPU count (strong scaling)."""
    micro_batches_per_step: Count | None = None
    """Passes of each GPU a step, at any GPU count: weak scaling, or strong with a global batch."""
    train_iters: Count | None = None
    """Steps of the run."""
    train_samples: Count | None = None
    """Instead of train_iters: samples of the run."""
    rampup_batch_size: Annotated[list[Count], Field(min_length=3, max_length=3)] | None = None
    """[start, increment, samples], three integers; Megatron before 0.18 and train_samples only."""
    log_interval: Count = 10
    """Steps between two lines of the log."""
    eval_interval: Count = 1000
    """Steps between two evaluations."""
    eval_iters: CountOrZero = 0
    """Batches of an evaluation, also of the one at the end; 0 for none."""
    lr: NonNegative
    """Learning rate after the warm-up."""
    min_lr: NonNegative = 0.0
    lr_decay_style: Literal["constant", "linear", "cosine", "inverse-square-root", "WSD"] = "cosine"
    lr_decay_iters: Count | None = None
    """Steps until the learning rate is at min_lr; the whole run when left out."""
    lr_warmup_iters: CountOrZero = 0
    """Steps in which the learning rate rises."""
    weight_decay: NonNegative = 0.01
    clip_grad: NonNegative = 1.0
    seed: Count = 1234

    @model_validator(mode="after")
    def check_pairs(self) -> Self:
        """Refuse keys that say the same thing twice or leave it open."""
        for keys, count in ((BATCH, 2), (LENGTH, 1)):
            missing = [name for name in keys if getattr(self, name) is None]
            given = len(keys) - len(missing)
            if given > count:
                raise wrong_pair("both_given", *keys)
            if given < count:
                raise wrong_pair("none_given", *missing[-2:])
        return self


def wrong_pair(kind: Literal["both_given", "none_given"], *names: str) -> Exception:
    """Return the error about keys of which one is to be given, or of three one to be left out."""
    return PydanticCustomError(kind, "{names}", {"names": names})


class Data(Section):
    """The tokenized dataset, and what `dpbench prep` makes it from."""

    path: Text
    """Folder that `prep` writes, or the path of any Megatron .bin/.idx pair without the suffix."""
    source: Text | None = None
    """What `prep` reads when no input is named: python-docs, wikitext-2, owner/name on the hub."""
    tokenizer: Text | None = None
    """Tokenizer for `prep`: gpt2, trained-bpe, owner/name on the hub, a folder or a .model file;
    for `run` only with a dataset that carries none."""
    split: Text = "969,30,1"
    """Weights of the train, validation and test documents."""


class Parallel(Section):
    """Ways to divide the model; anything but 1 is no longer pure data parallelism."""

    tensor_model_parallel_size: Count = 1
    """GPUs that share the matrices of a layer."""
    pipeline_model_parallel_size: Count = 1
    """GPUs that share the layers."""
    context_parallel_size: Count = 1
    """GPUs that share a sequence."""

    @property
    def model_size(self) -> int:
        """GPUs that hold one copy of the model."""
        return (
            self.tensor_model_parallel_size
            * self.pipeline_model_parallel_size
            * self.context_parallel_size
        )


class Launch(Section):
    """How the training process is started."""

    device: Literal["auto", "cuda", "cpu"] = "auto"
    """auto: the GPUs."""
    megatron_path: Text | None = None
    """A Megatron-LM checkout; the installed package when left out."""
    master_port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Rendezvous port; a free one when left out."""
    allow_busy: bool = False
    """Train although somebody else uses the GPUs; the run says so."""
    cpu_threads: Count = 1
    """Threads of one process on CPU, so that a process stands for a device."""


class Watch(Section):
    """How long a run may say nothing in each stage before it is stopped.

    In seconds; 0 is no limit. What is left out has a default that is longer on CPU.
    """

    importing_seconds: NonNegative | None = None
    """Until PyTorch and Megatron are imported."""
    rendezvous_seconds: NonNegative | None = None
    """Until the processes have found each other."""
    building_seconds: NonNegative | None = None
    """While dataset helpers, model and datasets are built."""
    first_step_seconds: NonNegative | None = None
    """Until the first step is logged: compilation and graph capture."""
    training_seconds: NonNegative | None = None
    """Between two logged intervals; slow intervals make it longer by themselves."""
    evaluating_seconds: NonNegative | None = None
    """While the loss on validation or test data is taken."""
    saving_seconds: NonNegative | None = None
    """While a checkpoint is written."""
    exiting_seconds: NonNegative | None = None
    """After the last step; a run that is stopped then counts as finished."""


class Checks(Section):
    """The gates of `compare`."""

    min_efficiency: Annotated[float, Field(gt=0, le=1)] = 0.8
    """Least scaling efficiency (speedup / ratio of GPU counts) that passes."""
    max_final_loss: Annotated[float, Field(gt=0)] | None = None
    """The loss at the end, the median of the last 3 lines, must not be above this; no such gate
    when left out."""
    min_gpu_utilization: Annotated[float, Field(gt=1, le=100)] | None = None
    """Least utilisation of the GPUs while the run is steady, the median in percent; 80 is usual.
    No such gate when left out."""
    max_loss_difference: Annotated[float, Field(gt=0, le=1)] = 0.005
    """Most that the losses of the arms may differ at the same step, as a share: the median over a
    third of the run."""
    max_skipped_share: Annotated[float, Field(ge=0, le=1)] = 0.02
    """Most updates, as a share, that may be skipped after fp16 has found its loss scale."""


class Config(Section):
    """A whole benchmark configuration."""

    model: Model
    training: Training
    data: Data
    precision: Literal["fp32", "fp16", "bf16"] = "bf16"
    """Number format of the training."""
    parallel: Parallel = Parallel()
    launch: Launch = Launch()
    watch: Watch = Watch()
    checks: Checks = Checks()
    megatron: dict[FlagName, FlagValue] = {}
    """Any other flag of Megatron's parser, by name; true is the bare flag, false leaves it out."""

    _document: Document = PrivateAttr(default_factory=lambda: Document("configuration", {}))

    def __eq__(self, other: object) -> bool:
        """Compare what is configured, not where it was written."""
        return isinstance(other, Config) and self.model_dump() == other.model_dump()

    def flag(self, name: str) -> FlagValue:
        """Return the value of a flag under `megatron`, however it is spelled; None without one."""
        for key, value in self.megatron.items():
            if key.lstrip("-").replace("_", "-") == name:
                return value
        return None

    def error(self, dotted: str, message: str, *, hint: str) -> ConfigError:
        """Return the error about a key, with the place where it was written."""
        where = self._document.place(tuple(dotted.split(".")))
        return ConfigError(f"{where}: {dotted}: {message}", hint=hint)
