"""Recognise what is not a log of Megatron, so that the error can say so."""

from __future__ import annotations

import re
from pathlib import Path

SAMPLE_BYTES = 1 << 20
FILES = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"PK\x03\x04": "zip"}
TRAINERS = {
    "torchtitan": r"\bstep: +\d+ .{1,200}\btps: +[\d,]+ .{1,100}\bmfu: ",
    "NeMo": r"\breduced_train_loss[:=]|\btrain_step_timing in s[:=]|\[NeMo [IWE] ",
    "nanoGPT": r"^iter \d+: loss [\d.]+, time [\d.]+ms|^step \d+: train loss [\d.]+, val loss ",
    "DeepSpeed without Megatron": r"\bRunningAvgSamplesPerSec=|\[Rank 0\] step=\d+, skipped=",
    "the Hugging Face Trainer": r"\{'loss': .{1,200}'epoch': |'train_samples_per_second': ",
    "PyTorch Lightning": r"^Epoch \d+: +\d+%\|.{1,200}\bv_num=",
    "LLM Foundry": r"\bTrain throughput/samples_per_sec: ",
    "fairseq": r"\| train_inner \| ",
}
"""Trainers by a pattern of their progress lines; the first that fits is named."""


def describe_foreign(path: Path) -> str | None:
    """Return what a file without Megatron's iterations looks like; None when it says nothing."""
    with path.open("rb") as file:
        head = file.read(SAMPLE_BYTES)
        file.seek(max(0, path.stat().st_size - SAMPLE_BYTES))
        tail = file.read(SAMPLE_BYTES)
    for magic, name in FILES.items():
        if head.startswith(magic):
            return f"it is a {name} file: unpack it first"
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "it is UTF-16: convert it with iconv -f UTF-16 -t UTF-8"
    text = (head + b"\n" + tail).decode("utf-8", "replace")
    trainer = recognise_trainer(text)
    return f"this looks like a log of {trainer}" if trainer else None


def recognise_trainer(text: str) -> str | None:
    """Return the name of another trainer whose progress lines are in the text."""
    for name, pattern in TRAINERS.items():
        if re.search(pattern, text, re.MULTILINE):
            return name
    return None
