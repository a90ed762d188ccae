"""All that run.json tells of the place of a run, in about the time of two calls of git."""

from __future__ import annotations

import os
import platform
import sys
import time
from pathlib import Path

from dpbench.doctor.nvml import Machine, read_used
from dpbench.environment import Environment
from dpbench.launch import Launch
from dpbench.provenance.gpus import describe_gpu, path_matrix
from dpbench.provenance.packages import installed_versions, torch_versions
from dpbench.provenance.secrets import hide_secrets
from dpbench.provenance.source import GIT_SECONDS, describe_dpbench, describe_megatron
from dpbench.provenance.system import describe_system
from dpbench.provenance.variables import relevant_variables


def describe_environment(launch: Launch) -> Environment:
    """Return programs, system, GPUs, variables and command of a run; None for what is not known."""
    deadline = time.monotonic() + GIT_SECONDS
    variables = launch.full_environment()
    on_gpu = launch.device == "cuda"
    machine = read_used(variables, launch.gpus) if on_gpu else Machine()
    torch, cuda = torch_versions()
    return Environment(
        python=platform.python_version(),
        torch=torch,
        megatron=launch.megatron.version,
        megatron_kind=launch.megatron.kind,
        gpu_names=[gpu.name or "unknown GPU" for gpu in machine.gpus],
        driver=machine.driver,
        cpu_count=os.cpu_count() or 1,
        dpbench=describe_dpbench(deadline),
        megatron_code=describe_megatron(launch.megatron, deadline),
        cuda=cuda,
        driver_cuda=".".join(map(str, machine.cuda)) if machine.cuda else None,
        packages=installed_versions(cuda),
        system=describe_system(variables),
        gpus=[describe_gpu(gpu) for gpu in machine.gpus],
        gpu_paths=path_matrix(machine),
        variables=relevant_variables(variables),
        command=list(hide_secrets(sys.argv)),
        folder=working_folder(),
    )


def working_folder() -> str | None:
    """Return where dpbench was started; None when that folder is gone."""
    try:
        return str(Path.cwd())
    except OSError:
        return None
