"""What the tests share: the command line as a user runs it, a tiny dataset, the demo's two runs."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# the suite tries the same examples each time, on however busy a machine; HYPOTHESIS_PROFILE=search
# looks for new ones
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("suite", PATIENT, derandomize=True)
settings.register_profile("search", PATIENT)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))

# what the tests ask is on this machine, whatever proxy leads to others
os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"

# what ignores Ctrl-C (in a shell's background) or a closed terminal (nohup) passes that on to all
# that it starts, and what has a handler of its own does not
for ignored in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(ignored) is signal.SIG_IGN:
        signal.signal(ignored, lambda number, frame: None)

ROOT = Path(__file__).parents[1]
RECORDED = Path(__file__).parent / "runs"

TINY = """\
model: {num_layers: 2, hidden_size: 32, num_attention_heads: 2, seq_length: 32}
training:
  micro_batch_size: 2
  global_batch_size: 8
  train_iters: 8
  log_interval: 1
  lr: 1e-3
precision: fp32
data: {path: data, source: python-docs, tokenizer: trained-bpe, split: "95,5,0"}
launch: {device: cpu}
"""

Dpbench = Callable[..., "subprocess.CompletedProcess[str]"]


def start(*arguments: object, cwd: Path, **variables: str) -> subprocess.Popen[str]:
    """Start the command line in a folder."""
    return subprocess.Popen(
        [sys.executable, "-m", "dpbench.cli", *map(str, arguments)],
        cwd=cwd,
        env=clean_environment() | variables,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def clean_environment() -> dict[str, str]:
    """The environment without what would change dpbench's behaviour."""
    return {k: v for k, v in os.environ.items() if not k.startswith("DPBENCH_")}


def read_terminal(descriptor: int) -> str:
    """Read, and close, what is shown on a terminal until nobody has its other end any more."""
    shown = b""
    with contextlib.suppress(OSError):  # Linux says EIO then
        while chunk := os.read(descriptor, 1 << 16):
            shown += chunk
    os.close(descriptor)
    return shown.decode()


@pytest.fixture
def dpbench(tmp_path: Path) -> Dpbench:
    """Run the command line in an empty folder and return how it ended."""

    def run(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
        process = start(*arguments, cwd=tmp_path, **variables)
        out, err = process.communicate(timeout=300)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    return run


@pytest.fixture(scope="session")
def tiny_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset folder that `dpbench prep` made; read only."""
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "tiny.yaml").write_text(TINY)
    process = start("prep", "--config", "tiny.yaml", cwd=folder)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err
    return folder / "data"


@pytest.fixture
def tiny_config(tmp_path: Path, tiny_data: Path) -> Path:
    """A configuration file, in the folder that `dpbench` runs in, that trains in seconds."""
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY.replace("path: data", f"path: {tiny_data}"))
    return path


Pages = Callable[[str], str]


@pytest.fixture(scope="session")
def page_of(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    """The page of a story by its name; each is made once."""
    from pages import make_page

    def make(name: str) -> str:
        with contextlib.chdir(tmp_path_factory.mktemp("told")):
            return make_page(name, Path("runs"))

    return functools.cache(make)


@dataclass(frozen=True)
class Demo:
    """The folder in which the demo ran and its two run folders."""

    folder: Path
    baseline: Path
    scaled: Path


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """The README's demo, command by command, in a folder whose path has a blank."""
    folder = tmp_path_factory.mktemp("with a blank")
    runs = []
    for command in (["prep"], ["run", "--gpus", "1"], ["run", "--gpus", "2"]):
        process = start(*command, "--config", "demo-cpu", cwd=folder)
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, out + err
        runs.append(folder / out.strip())
    return Demo(folder, *runs[1:])


@pytest.fixture(scope="session")
def numbers() -> dict[str, Any]:
    """What layer_numbers.py finds: Megatron's layers, loss and optimizer against dpbench's."""
    environment = clean_environment() | {
        "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0", "GLOO_SOCKET_IFNAME": "lo", "TORCHDYNAMO_DISABLE": "1",
        "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    child = ROOT / "src" / "dpbench" / "child"
    ended = subprocess.run(
        [sys.executable, child / "on_cpu.py", ROOT / "tests" / "layer_numbers.py"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found | {"said": ended.stdout}
