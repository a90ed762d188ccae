"""`dpbench tune`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from dpbench.cli.answers import EXIT_CODES
from dpbench.cli.messages import fail, say
from dpbench.cli.options import (
    DEFAULT_CONFIG,
    AllowBusyOption,
    ConfigNames,
    DeviceOption,
    MegatronOption,
    Overrides,
    RunsFolder,
    is_given,
    with_launch_options,
)

PLAN = {"gpus": "--gpus", "steps": "--steps", "tries": "--tries", "config": "--config",
        "device": "--device", "megatron": "--megatron", "runs": "--runs",
        "overrides": "--set"}  # fmt: skip
"""Options that what is resumed has already."""


def tune(
    context: typer.Context,
    gpus: Annotated[int, typer.Option(min=1, help="GPUs of every training.")] = 1,
    minutes: Annotated[
        float, typer.Option(min=0, help="Start no training that would not end by then.")
    ] = 30,
    steps: Annotated[int, typer.Option(min=12, help="Steps of each training.")] = 60,
    tries: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What to try, instead of the usual list.")
    ] = None,
    list_tries: Annotated[
        bool, typer.Option("--list", help="Print what is tried, as a file for --tries.")
    ] = False,
    resume: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Go on with what was begun there.")
    ] = None,
    config: ConfigNames = None,
    device: DeviceOption = None,
    megatron: MegatronOption = None,
    runs: RunsFolder = Path("runs"),
    allow_busy: AllowBusyOption = False,
    overrides: Overrides = None,
) -> None:
    """Find flags that make the same training faster here, by short trainings in turns.

    What fails or learns otherwise is dropped. Exit status: 0 faster, or nothing is; 3 not sure.
    """
    from dpbench.tune import experiment as tuning
    from dpbench.tune.plan import Plan
    from dpbench.tune.tries import SHIPPED
    from dpbench.yaml_source import read_text

    if list_tries:
        typer.echo(read_text(tries or SHIPPED), nl=False)
        return

    from dpbench.config_file import load_config
    from dpbench.named_configs import title_of
    from dpbench.report.output import print_text, terminal_style
    from dpbench.report.tuning import judge, render_row, render_tuned

    if resume:
        if given := [option for name, option in PLAN.items() if is_given(context, name)]:
            fail("--resume keeps what was begun", f"leave out {' and '.join(given)}", 2)
        begun = tuning.open_experiment(
            resume, minutes=minutes, show=sys.stderr, allow_busy=allow_busy
        )
    else:
        names = config or [DEFAULT_CONFIG]
        chosen = with_launch_options(overrides, device, megatron, allow_busy=allow_busy)
        plan = Plan(name=title_of(names), gpus=gpus, steps=steps)
        begun = tuning.new_experiment(
            load_config(names, chosen),
            plan,
            tries or SHIPPED,
            runs,
            minutes=minutes,
            show=sys.stderr,
        )
    again = shlex.join(["dpbench", "tune", "--resume", str(begun.folder)])
    say(f"if this is interrupted: {again}")
    tuned = tuning.tune(begun, tell=lambda row: say(render_row(row)))
    print_text(render_tuned(tuned, style=terminal_style(sys.stdout)), sys.stdout)
    raise typer.Exit(EXIT_CODES[judge(tuned)])
