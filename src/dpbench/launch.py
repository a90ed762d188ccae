"""Config + machine -> Launch: the exact command and environment of one training run."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dpbench.arguments import Installed, render_arguments
from dpbench.config import Config
from dpbench.data.dataset import Dataset, check_split, open_dataset
from dpbench.errors import SetupError
from dpbench.gpu import gpu_names
from dpbench.megatron import CHILD, Megatron, extension_suffix, find_megatron, is_installed
from dpbench.process import check_port, free_port

NOT_INHERITED = (
    "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR MASTER_PORT "
    "NVTE_FLASH_ATTN NVTE_FUSED_ATTN NVTE_UNFUSED_ATTN MAKEFLAGS"
).split()
"""Set by launchers and by Megatron itself; a stray one from the shell would change the run."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One training run, ready to start."""

    config: Config
    gpus: int
    """Processes, one a GPU; on CPU the processes themselves."""
    device: str
    """cuda or cpu."""
    megatron: Megatron
    dataset: Dataset
    command: tuple[str, ...]
    environment: Mapping[str, str]
    """What is set on top of the inherited environment."""

    def full_environment(self) -> dict[str, str]:
        """Return the whole environment of the command."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name not in NOT_INHERITED and not name.startswith(("TORCHELASTIC_", "SLURM_"))
        }
        return inherited | dict(self.environment)

    def shell_command(self) -> str:
        """Return environment and command as text that can be pasted into a shell."""
        settings = [f"{name}={shlex.quote(value)}" for name, value in self.environment.items()]
        words: list[str] = []
        for word in self.command:
            quoted = shlex.quote(word)
            if words and not word.startswith("--") and words[-1].startswith("--"):
                words[-1] += f" {quoted}"
            else:
                words.append(quoted)
        unset = "env " + " ".join(f"-u {name}" for name in NOT_INHERITED)
        return " \\\n  ".join([unset, *settings, *words]) + "\n"


def plan_launch(config: Config, *, gpus: int) -> Launch:
    """Check everything that a run needs and return it ready to start; nothing is written.

    Errors: DpbenchError for whatever would keep it from training.
    """
    device = choose_device(config, gpus)
    megatron = find_megatron(config.launch.megatron_path)
    dataset = open_dataset(config.data.path, config.data.tokenizer)
    if dataset.tokenizer is None:
        hint = "name its folder: --set data.tokenizer=FOLDER"
        raise SetupError(f"{dataset.prefix} comes without a tokenizer", hint=hint)
    check_split(dataset, config.data.split)
    installed = Installed(
        transformer_engine=device == "cuda" and is_installed("transformer_engine"),
        apex=device == "cuda" and is_installed("apex"),
    )
    arguments = render_arguments(
        config, dataset, gpus=gpus, installed=installed, cache=index_cache(dataset)
    )
    if config.launch.master_port:
        check_port(config.launch.master_port)
    port = config.launch.master_port or (free_port() if gpus == 1 else 0)
    script = [str(megatron.script)]
    if device == "cpu":
        script.insert(0, str(CHILD / "on_cpu.py"))
    return Launch(
        config=config,
        gpus=gpus,
        device=device,
        megatron=megatron,
        dataset=dataset,
        command=(*launcher(gpus, port), *script, *arguments),
        environment=environment(config, gpus, device, megatron, port),
    )


def index_cache(dataset: Dataset) -> Path:
    """Return where Megatron keeps its sample index: beside the data, else in the user's cache.

    Megatron finds a cached index by path and settings only, so the folder carries the data's hash.
    """
    folder = dataset.prefix.parent
    if not os.access(folder, os.W_OK):
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dpbench"
    return folder / "index-cache" / dataset.digest


def choose_device(config: Config, gpus: int) -> str:
    """Return cuda or cpu. Errors: SetupError when the GPUs that are asked for are not there."""
    if gpus < 1:
        raise SetupError(f"--gpus {gpus}", hint="give 1 or more")
    wanted = config.launch.device
    if wanted == "cpu":
        cores = len(os.sched_getaffinity(0))
        if gpus > max(cores, 2):
            hint = f"give --gpus {max(cores, 2)} or less: on CPU a process stands for a GPU"
            raise SetupError(f"--gpus {gpus} on {cores} CPU core(s)", hint=hint)
        return "cpu"
    present = len(gpu_names())
    if not present:
        hint = (
            "try dpbench run --config demo-cpu, a small model for CPU; "
            "--device cpu trains this one on CPU, which takes hours"
        )
        raise SetupError("no NVIDIA GPU is visible here", hint=hint)
    if gpus > present:
        hint = f"give --gpus {present} or less"
        raise SetupError(f"--gpus {gpus}, but {present} visible here", hint=hint)
    return "cuda"


def launcher(gpus: int, port: int) -> list[str]:
    """Return what stands before the script: plain python for one process, torchrun for more."""
    if gpus == 1:
        return [sys.executable]
    return [
        sys.executable, "-m", "torch.distributed.run",
        "--nnodes=1", f"--nproc-per-node={gpus}", "--rdzv-backend=c10d",
        f"--rdzv-endpoint=127.0.0.1:{port}", "--local-addr=127.0.0.1",
    ]  # fmt: skip


def environment(
    config: Config, gpus: int, device: str, megatron: Megatron, port: int
) -> dict[str, str]:
    """Return the variables that the run sets."""
    bin_folder = str(Path(sys.executable).parent)  # Megatron runs the first python3 of the path
    variables = {
        "PATH": bin_folder + os.pathsep + os.environ.get("PATH", os.defpath),
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    if gpus == 1:
        variables |= {
            "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        }  # fmt: skip
    parallel = config.parallel
    if parallel.tensor_model_parallel_size > 1 or parallel.context_parallel_size > 1:
        variables["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    if megatron.kind == "checkout":
        # the Makefile asks the first python3-config, which need not be this interpreter's
        variables["MAKEFLAGS"] = f"-- LIBEXT={extension_suffix()}"
    if device == "cpu":
        variables |= {
            "CUDA_VISIBLE_DEVICES": "",
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": str(config.launch.cpu_threads),
            "TORCHDYNAMO_DISABLE": "1",
        }
    return variables
