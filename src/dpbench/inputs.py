"""What a run finds here: devices and dataset; on paper, what is missing is noted instead."""

from __future__ import annotations

import os
from pathlib import Path

from dpbench.arguments import DataFlags
from dpbench.config import Config
from dpbench.data.dataset import Dataset, check_split, open_dataset
from dpbench.errors import SetupError
from dpbench.gpu import VISIBLE, gpu_names


def choose_device(config: Config, gpus: int, notes: list[str] | None) -> str:
    """Return cuda or cpu.

    Errors: SetupError when the devices that are asked for are not there; on paper (with notes)
    that is noted.
    """
    if gpus < 1:
        raise SetupError(f"--gpus {gpus}", hint="give 1 or more")
    device = "cpu" if config.launch.device == "cpu" else "cuda"
    missing = missing_cores(gpus) if device == "cpu" else missing_gpus(gpus)
    if missing is None:
        return device
    what, hint = missing
    if notes is None:
        raise SetupError(what, hint=hint)
    if device == "cuda":
        what += f": whether the GPUs can do {config.precision} is not known"
        what += ", and the fusion flags follow what is installed here"
    notes.append(what)
    return device


def missing_cores(processes: int) -> tuple[str, str] | None:
    """Return what is wrong with a number of processes on CPU, and its fix; None for nothing."""
    cores = len(os.sched_getaffinity(0))
    if processes <= max(cores, 2):
        return None
    hint = f"give --gpus {max(cores, 2)} or less: on CPU a process stands for a GPU"
    return f"--gpus {processes} on {cores} CPU core(s)", hint


def missing_gpus(gpus: int) -> tuple[str, str] | None:
    """Return what is wrong with a number of GPUs, and its fix; None for nothing."""
    present = len(gpu_names())
    if gpus <= present:
        return None
    if present:
        return f"--gpus {gpus}, but {present} visible here", f"give --gpus {present} or less"
    setting, all_of_them = os.environ.get(VISIBLE), len(gpu_names({}))
    if setting is not None and all_of_them:
        what = f"{VISIBLE}={setting!r} leaves none of {all_of_them} GPU(s)"
        return what, "give numbers, or UUIDs as nvidia-smi -L shows them, each once; or unset it"
    hint = (
        "try --config demo-cpu, a small model for CPU; "
        "--device cpu trains this one on CPU, which takes hours"
    )
    return "no NVIDIA GPU is visible here", hint


def taken[Fact](of_gpus: list[Fact], gpus: int, first_gpu: int) -> list[Fact]:
    """Return those of the visible GPUs that a run takes; beyond the last it starts over."""
    first = first_gpu % len(of_gpus) if of_gpus else 0
    return (of_gpus + of_gpus)[first : first + gpus]


def pin_gpus(gpus: int, first_gpu: int, device: str) -> dict[str, str]:
    """Return CUDA_VISIBLE_DEVICES for a run that does not start at the first visible GPU."""
    if device == "cpu" or not first_gpu:
        return {}
    present = len(gpu_names())
    if not present or first_gpu % present == 0:  # the first again: as the runs that started there
        return {}
    setting = os.environ.get(VISIBLE)
    entries = [entry.strip() for entry in (setting or "").split(",") if entry.strip()]
    visible = entries[:present] or [str(index) for index in range(present)]
    return {VISIBLE: ",".join(taken(visible, gpus, first_gpu))}


def find_dataset(config: Config, notes: list[str] | None) -> Dataset | None:
    """Return the dataset of a run with its tokenizer.

    Errors: SetupError when it is not there or cannot be split; on paper (with notes) a missing one
    is noted.
    """
    try:
        dataset = open_dataset(config.data.path, config.data.tokenizer)
        if dataset.tokenizer is None:
            hint = "name its folder: --set data.tokenizer=FOLDER"
            raise SetupError(f"{dataset.prefix} comes without a tokenizer", hint=hint)
    except SetupError as error:
        if notes is None:
            raise
        notes.append(
            f"{error}: --data-path and --tokenizer-model are where they would be, "
            "--data-cache-path and the epochs are not known"
        )
        return None
    check_split(dataset.documents, config.data.split)
    return dataset


def data_flags(config: Config, dataset: Dataset | None) -> DataFlags:
    """Return what the dataset gives to the command; for a missing one, what prep would make."""
    if dataset and dataset.tokenizer:
        return DataFlags(
            prefix=str(dataset.prefix.resolve()),
            tokenizer=str(dataset.tokenizer.resolve()),
            tokenizer_type=dataset.tokenizer_type,
            cache=str(index_cache(dataset).resolve()),
        )
    path = Path(config.data.path).absolute()
    if path.name.endswith(("_document", "_sentence")):  # the path of a pair, not of prep's folder
        tokenizer = Path(config.data.tokenizer or path.parent / "tokenizer").absolute()
        return DataFlags(prefix=str(path), tokenizer=str(tokenizer), cache=None)
    prefix = path / f"{path.name}_text_document"
    return DataFlags(prefix=str(prefix), tokenizer=str(path / "tokenizer"), cache=None)


def index_cache(dataset: Dataset) -> Path:
    """Return where Megatron keeps its sample index: beside the data, else in the user's cache.

    Megatron finds a cached index by path and settings only, so the folder carries the data's hash.
    """
    folder = dataset.prefix.parent
    if not os.access(folder, os.W_OK):
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dpbench"
    return folder / "index-cache" / dataset.digest
