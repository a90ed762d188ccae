"""What a log says about the run beside its steps: arguments, versions, ranks, memory."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

DUMP_START = "--- arguments ---"
DUMP_END = "end of arguments"
EARLY_MARKS = ("using world size: ", "> padded vocab (size: ", "memory (MB) |")
EARLY_RECORDS = 4
"""Sizes and memory are printed before and soon after the first step, and not looked for later."""
DUMP_LINES = 5000
"""A dump that never ends is a cut one."""
ARGUMENT = re.compile(r"^(?:\S*[\]:]|\d+:)?\s+(\w+) \.{2,} ?(.*)$")
NEOX_END = re.compile(r"\.{4,}(?:default|updated)\Z")
"""gpt-neox says behind each value where it comes from."""
NEOX_NAMES = {
    "global_num_gpus": "world_size",
    "model_parallel_size": "tensor_model_parallel_size",
    "precision": "params_dtype",
    "train_batch_size": "global_batch_size",
    "train_micro_batch_size_per_gpu": "micro_batch_size",
}
"""Its names of arguments, as Megatron-LM calls them."""
MEGATRON_VERSION = re.compile(r"> Megatron-Core version \.{1,80} (\S{1,80})")
TORCH_VERSION = re.compile(r"> PyTorch version \.{1,80} (\S{1,80})")
WORLD_SIZE = re.compile(r"using world size: (\d{1,7})\b")
VOCABULARY = re.compile(r"> padded vocab \(size: \d{1,12}\) .{1,80}\(new size: (\d{1,12})\)")
PEAK_MEMORY = re.compile(
    r"\bmemory \(MB\) \|.{1,200}?\bmax allocated: (\d{1,12}(?:\.\d{1,20})?) \|"
)


@dataclass(slots=True)
class Facts:
    """The facts of the attempt whose steps a Log holds; None for what it does not say."""

    arguments: dict[str, str] = field(default_factory=dict)
    megatron_version: str | None = None
    torch_version: str | None = None
    peak_memory_mb: float | None = None
    """The most that PyTorch had allocated on any rank that says so (MiB)."""
    padded_vocabulary: int | None = None
    """Rows of the embedding; the dump is printed before they are known."""
    ranks: int | None = None
    """Processes of the run, from other lines than the argument dump."""
    _next: dict[str, str] | None = None
    """The dump of an attempt that has no step yet."""
    _lines_left: int = 0

    @property
    def in_arguments(self) -> bool:
        """Whether the argument dump is being read."""
        return self._lines_left > 0

    @property
    def has_next(self) -> bool:
        """Whether a further attempt has begun."""
        return self._next is not None

    def start_attempt(self) -> None:
        """Forget what belongs to the attempt before; its dump goes when there is a newer one."""
        self.ranks = self.peak_memory_mb = None
        if self._next is not None:
            self.arguments, self._next = self._next, None

    def read_line(self, line: str, *, records: int) -> None:
        """Take one line; `records` is how many steps the log has had so far."""
        if DUMP_START in line:
            self._lines_left = DUMP_LINES
            if not records:
                self.arguments.clear()
            else:
                self._next = {}
        elif self._lines_left:
            self._read_argument(line)
        if " version ." in line:  # a flood of lines must not take a search each
            if version := MEGATRON_VERSION.search(line):
                self.megatron_version = version[1]
            if version := TORCH_VERSION.search(line):
                self.torch_version = version[1]
        if records <= EARLY_RECORDS and any(mark in line for mark in EARLY_MARKS):
            if size := WORLD_SIZE.search(line):
                self.ranks = int(size[1]) or None
            if vocabulary := VOCABULARY.search(line):
                self.padded_vocabulary = int(vocabulary[1])
            if memory := PEAK_MEMORY.search(line):
                self.peak_memory_mb = max(float(memory[1]), self.peak_memory_mb or 0.0)

    def _read_argument(self, line: str) -> None:
        self._lines_left = 0 if DUMP_END in line else self._lines_left - 1
        if argument := ARGUMENT.match(line.rstrip()):
            target = self.arguments if self._next is None else self._next
            name, value = argument[1], argument[2]
            if end := NEOX_END.search(value):
                name, value = NEOX_NAMES.get(name, name), value[: end.start()]
                if value == "None":  # what the launcher sets, under another name
                    return
            target.setdefault(name, value)

    def number(self, name: str) -> int | None:
        """Return a positive whole number of the argument dump, None for anything else."""
        text = self.arguments.get(name, "")
        return int(text) if re.fullmatch(r"\d{1,15}", text) and int(text) > 0 else None

    @property
    def world_size(self) -> int | None:
        """Processes of the run, one a GPU."""
        return self.number("world_size") or self.ranks

    @property
    def micro_batch_size(self) -> int | None:
        """Samples a GPU and pass."""
        return self.number("micro_batch_size")

    @property
    def global_batch_size(self) -> int | None:
        """Samples a step, from the argument dump."""
        return self.number("global_batch_size") or self.number("train_batch_size")

    @property
    def sequence_length(self) -> int | None:
        """Tokens a sample, from the argument dump."""
        return self.number("seq_length")

    @property
    def precision(self) -> str | None:
        """Type of the parameters, as `bf16`, `fp16` or `fp32`."""
        names = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32"}
        text = self.arguments.get("params_dtype", "").removeprefix("torch.")
        return names.get(text, text) or None
