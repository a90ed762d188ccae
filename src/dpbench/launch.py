"""Config + machine -> Launch: the exact command and environment of one training run."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from dpbench.arguments import collect_flags, render_arguments
from dpbench.arithmetic import Arithmetic, train_share, work_out
from dpbench.config import Config
from dpbench.data.dataset import Dataset
from dpbench.fusions import check_installed, find_installed, left_out
from dpbench.gpu import BUS_ORDER, gpu_capabilities
from dpbench.inputs import choose_device, data_flags, find_dataset, pin_gpus, taken
from dpbench.meaning import check_meaning, check_precision
from dpbench.megatron import CHILD, Megatron, extension_suffix, find_megatron
from dpbench.options import load_options
from dpbench.port import check_port
from dpbench.results import Kind

FEW_LINES = 5
PROFILER = "profile_steps.py"
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
    dataset: Dataset | None
    """None only on paper."""
    numbers: Arithmetic
    notes: tuple[str, ...]
    """What was spelled otherwise than it was given, and what is not known."""
    command: tuple[str, ...]
    environment: Mapping[str, str]
    """What is set on top of the inherited environment."""
    kind: Kind = "measured"
    is_short: bool = False
    """Whether it has too few steps for its loss to mean anything: a warm-up, a profile, a try."""

    def full_environment(self) -> dict[str, str]:
        """Return the whole environment of the command."""
        dropped = not_inherited()
        inherited = {name: value for name, value in os.environ.items() if name not in dropped}
        return inherited | dict(self.environment)

    def shell_lines(self) -> list[str]:
        """Return environment and command, shell-quoted: one setting or one flag a line."""
        unset = "env " + " ".join(f"-u {quote(name)}" for name in not_inherited())
        lines = [unset, *(f"{name}={quote(value)}" for name, value in self.environment.items())]
        open_flag = False  # the line is a flag that further words belong to
        for word in self.command:
            if word.startswith("--") or word == "-m" or not open_flag:
                lines.append(quote(word))
                open_flag = (word.startswith("--") and "=" not in word) or word == "-m"
            else:
                lines[-1] += f" {quote(word)}"
        return lines

    def shell_command(self) -> str:
        """Return environment and command as text that can be pasted into a shell."""
        return " \\\n  ".join(self.shell_lines()) + "\n"


def not_inherited() -> list[str]:
    """Return the variables that a run must not see: those above, and what is here of launchers."""
    prefixes = ("TORCHELASTIC_", "SLURM_")
    return [*NOT_INHERITED, *(name for name in sorted(os.environ) if name.startswith(prefixes))]


def plan_launch(
    config: Config,
    *,
    gpus: int,
    first_gpu: int = 0,
    on_paper: bool = False,
    kind: Kind = "measured",
) -> Launch:
    """Check everything that a run needs and return it ready to start; nothing is written.

    `first_gpu` counts among the visible GPUs, beyond the last it starts over. On paper, GPUs and
    dataset may be missing, and notes say what is therefore not known. Errors: DpbenchError for
    whatever would keep it from training.
    """
    notes: list[str] = []
    device = choose_device(config, gpus, notes if on_paper else None)
    megatron = find_megatron(config.launch.megatron_path)
    check_meaning(config, [gpus], version=megatron.version)
    installed = find_installed(device)
    check_installed(config, installed)
    if device == "cuda":
        found = taken(gpu_capabilities(), gpus, first_gpu)
        check_precision(config, [capability for capability in found if capability])
    dataset = find_dataset(config, notes if on_paper else None)
    numbers = work_out(config, gpus, train_tokens=train_tokens(config, dataset))
    flags = collect_flags(config, data_flags(config, dataset), numbers, installed)
    without = left_out(flags, device, numbers.data_parallel_size)
    flags = {name: value for name, value in flags.items() if name not in without}
    table = load_options(megatron)
    arguments, rewritten = render_arguments(flags, config, table, megatron.version)
    if config.launch.master_port and not on_paper:
        check_port(config.launch.master_port)
    port = config.launch.master_port or 0  # 0: whatever is free when the run starts
    script = [str(CHILD / "on_cpu.py")] if device == "cpu" else []
    script += [str(CHILD / PROFILER)] if kind == "profile" else []
    return Launch(
        config=config,
        gpus=gpus,
        device=device,
        megatron=megatron,
        dataset=dataset,
        numbers=numbers,
        notes=(
            *notes,
            *(f"--{name}: left out: {why}" for name, why in without.items()),
            *rewritten,
            *few_lines(config, numbers),
        ),
        command=(*launcher(gpus, port), *script, str(megatron.script), *arguments),
        environment=environment(config, gpus, device, megatron, port)
        | pin_gpus(gpus, first_gpu, device),
        kind=kind,
        is_short=kind == "profile",
    )


def few_lines(config: Config, numbers: Arithmetic) -> list[str]:
    """Note a run that logs too little to measure its speed."""
    lines = numbers.steps // config.training.log_interval
    if lines >= FEW_LINES:
        return []
    interval = max(numbers.steps // 20, 1)
    return [
        f"{numbers.steps} steps give {lines} lines of log, too few to measure the speed: "
        f"--set training.log_interval={interval}"
    ]


def train_tokens(config: Config, dataset: Dataset | None) -> int | None:
    """Return about how many tokens the train split has; None when that is not known."""
    share = train_share(config.data.split)
    return round(dataset.tokens * share) if dataset and share else None


def launcher(gpus: int, port: int) -> list[str]:
    """Return what stands before the script: plain python for one process, torchrun for more."""
    if gpus == 1:
        return [sys.executable]
    return [
        sys.executable, "-m", "torch.distributed.run",
        "--nnodes=1", f"--nproc-per-node={gpus}", "--rdzv-backend=c10d",
        f"--rdzv-endpoint=127.0.0.1:{port}", "--local-addr=127.0.0.1",
        "--log-dir=/dev/null",  # else torchrun leaves a folder in /tmp behind
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
    if device == "cuda":  # torchrun sets it to 1 for several processes; so does the baseline get it
        variables["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "1")
        variables |= BUS_ORDER
    if device == "cpu":
        variables |= {
            "CUDA_VISIBLE_DEVICES": "",
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": str(config.launch.cpu_threads),
            "TORCHDYNAMO_DISABLE": "1",
        }
    return variables
