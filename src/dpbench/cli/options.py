"""Options that several commands share."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import Annotated, Literal

import typer


class OnOom(Enum):
    """What `run` does when the GPU is out of memory."""

    FAIL = "fail"
    RETRY = "retry"


DEFAULT_CONFIG = "wikitext2-gpt2"


ConfigNames = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        "-c",
        metavar="NAME|FILE",
        help=f"Configuration, {DEFAULT_CONFIG} by default; given again, it adds to the one before.",
    ),
]


Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key; may be given again."),
]


OnOomOption = Annotated[
    OnOom,
    typer.Option(help="retry: at CUDA's out of memory, start again with half the micro batch."),
]


DeviceOption = Annotated[
    str | None, typer.Option("--device", help="auto, cuda or cpu; launch.device by default.")
]


MegatronOption = Annotated[
    str | None,
    typer.Option(
        "--megatron",
        help="A Megatron-LM checkout instead of the installed package.",
        envvar="DPBENCH_MEGATRON",
    ),
]


ScalingOption = Annotated[
    Literal["strong", "weak"],
    typer.Option("--scaling", help="strong: the global batch stays; weak: it grows with the GPUs."),
]


AllowBusyOption = Annotated[
    bool, typer.Option("--allow-busy", help="Train although somebody else uses the GPUs.")
]


RunsFolder = Annotated[Path, typer.Option("--runs", help="Folder that holds the runs.")]


def with_launch_options(
    overrides: list[str] | None,
    device: str | None,
    megatron: str | None,
    *,
    allow_busy: bool = False,
) -> list[str]:
    """Return the overrides with those that have an option of their own."""
    chosen = list(overrides or ())
    if device:
        chosen.append(f"launch.device={device}")
    if megatron:
        chosen.append(f"launch.megatron_path={json.dumps(megatron)}")
    if allow_busy:
        chosen.append("launch.allow_busy=true")
    return chosen


def is_given(context: typer.Context, name: str) -> bool:
    """Tell whether an option is on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
