"""Runs of the stand-in for Megatron: where they run, how they are started, how they ended."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conftest import clean_environment
from processes import MARK, PATIENCE_SECONDS, wait_for_none

HERE = Path(__file__).parent
CONFIG = """\
model: {{num_layers: 2, hidden_size: 32, num_attention_heads: 2, seq_length: 32}}
training:
  {{micro_batch_size: 4, global_batch_size: 8, train_iters: {steps}, log_interval: 1, lr: 1e-3}}
precision: fp32
data: {{path: data_text_document, tokenizer: ., split: "90,10,0"}}
launch: {{device: cpu, megatron_path: {megatron}}}
watch: {{{watch}}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a configuration and a dataset of 20 documents of 100 tokens."""
    lengths, starts = [100] * 20, list(range(21))
    index = struct.pack("<9sQBQQ", b"MMIDIDX\x00\x00", 1, 8, 20, 21)
    index += struct.pack("<20i", *lengths)
    index += struct.pack("<20q", *(200 * n for n in range(20))) + struct.pack("<21q", *starts)
    (tmp_path / "data_text_document.idx").write_bytes(index)
    (tmp_path / "data_text_document.bin").write_bytes(bytes(4000))
    write_config(tmp_path)
    return tmp_path


def environment(folder: Path, mode: str, mark: str) -> dict[str, str]:
    cache = str(folder / "cache")
    return clean_environment() | {"FAKE_MEGATRON": mode, MARK: mark, "XDG_CACHE_HOME": cache}


def write_config(
    folder: Path, *, steps: int = 8, silent: str | None = None, seconds: float = 3
) -> None:
    """Write fake.yaml; only the stage that is to be silent may be so for few seconds.

    No other one: a busy machine holds up any process for a second or two.
    """
    watch = f"{silent.replace('-', '_')}_seconds: {seconds}" if silent else ""
    text = CONFIG.format(megatron=HERE / "fake_megatron", watch=watch, steps=steps)
    (folder / "fake.yaml").write_text(text)


@dataclass
class Done:
    """How a run ended."""

    code: int
    out: str
    err: str
    record: dict[str, Any]
    log: str


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(folder: Path, mark: str) -> Start:
    """Start a run of the stand-in; every process that it starts carries the mark."""

    def begin(mode: str, *, gpus: int = 1, detail: str = "normal", **variables: str) -> Any:
        return subprocess.Popen(
            [sys.executable, str(HERE / "fake_run.py"), "fake.yaml", str(gpus), detail],
            cwd=folder,
            env=environment(folder, mode, mark) | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return begin


def finish(process: subprocess.Popen[str], folder: Path, mark: str) -> Done:
    """Wait for the newest run; no process of it is left, and it showed no traceback."""
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert wait_for_none(mark, seconds=9) == [], "in less than the grace: not even a guard is left"
    assert (folder / "runs").is_dir(), err
    run = max((folder / "runs").iterdir(), key=lambda run: run.stat().st_ctime_ns)
    record = json.loads((run / "run.json").read_text())
    assert "Traceback" not in err
    log = (run / "run.log").read_text(errors="replace")
    return Done(process.returncode, out, err, record, log)


def wait_for(folder: Path, text: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if any(text in log.read_text(errors="replace") for log in folder.glob("runs/*/run.log")):
            return
        time.sleep(0.02)
    raise AssertionError(f"{text!r} never came")
