"""`dpbench run`, `render` and `bench`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpbench.cli.answers import answer
from dpbench.cli.messages import fail
from dpbench.cli.options import (
    DEFAULT_CONFIG,
    AllowBusyOption,
    ConfigNames,
    DeviceOption,
    MegatronOption,
    OnOom,
    OnOomOption,
    Overrides,
    RunsFolder,
    ScalingOption,
    is_given,
    with_launch_options,
)

if TYPE_CHECKING:
    from dpbench.live import Detail


def run(
    gpus: Annotated[int, typer.Option(help="GPUs, one process each; processes on CPU.")],
    config: ConfigNames = None,
    device: DeviceOption = None,
    megatron: MegatronOption = None,
    runs: RunsFolder = Path("runs"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the command and start nothing.")
    ] = False,
    on_oom: OnOomOption = OnOom.FAIL,
    allow_busy: AllowBusyOption = False,
    profile: Annotated[
        bool,
        typer.Option("--profile", help="A short run that finds where a step's time goes."),
    ] = False,
    keep_trace: Annotated[
        bool, typer.Option("--keep-trace", help="With --profile: keep the trace of each rank.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the training's own output.")
    ] = False,
    overrides: Overrides = None,
) -> None:
    """Train once with Megatron-LM and keep log, command and results."""
    from dpbench.config_file import load_config
    from dpbench.gpu import kept_open
    from dpbench.launch import plan_launch
    from dpbench.named_configs import title_of

    if quiet and verbose:
        fail("--quiet and --verbose", "give one of them, or none", 2)
    if profile and on_oom is OnOom.RETRY:
        fail("--profile and --on-oom retry", "give one of them, or none", 2)
    if keep_trace and not profile:
        fail("--keep-trace without --profile", "give both, or none", 2)
    names = config or [DEFAULT_CONFIG]
    chosen = with_launch_options(overrides, device, megatron, allow_busy=allow_busy)
    loaded = load_config(names, chosen)
    detail: Detail = "quiet" if quiet else "verbose" if verbose else "normal"
    with kept_open():  # planning and training ask the GPUs
        if profile:
            from dpbench.profile.make import ProfileOptions, make_profile, plan_profile

            if not dry_run:
                options = ProfileOptions(
                    runs=runs, show=sys.stderr, detail=detail, keep_trace=keep_trace
                )
                typer.echo(make_profile(loaded, gpus=gpus, name=title_of(names), options=options))
                return
            launch = plan_profile(loaded, gpus)
        else:
            launch = plan_launch(loaded, gpus=gpus)
        if dry_run:
            from dpbench.render import render_launches

            typer.echo(render_launches([launch], title_of(names)), nl=False)
            return
        from dpbench.training import train, train_until_it_fits

        for note in launch.notes:
            typer.echo(f"note: {note}", err=True)
        start = train_until_it_fits if on_oom is OnOom.RETRY else train
        typer.echo(start(launch, name=title_of(names), runs=runs, show=sys.stderr, detail=detail))


def render(
    gpus: Annotated[str, typer.Option(metavar="N[,N...]", help="GPU counts.")] = "1",
    config: ConfigNames = None,
    device: DeviceOption = None,
    megatron: MegatronOption = None,
    diff: Annotated[
        str | None,
        typer.Option(
            "--diff", metavar="OTHER", help="Show only what differs from this configuration or run."
        ),
    ] = None,
    overrides: Overrides = None,
) -> None:
    """Print the command of a run with its arithmetic; it works in any shell, without dpbench.

    GPUs and dataset need not be here; what is therefore not known is said.
    """
    from dpbench.config_file import load_config
    from dpbench.launch import plan_launch
    from dpbench.named_configs import title_of
    from dpbench.render import parse_counts, render_difference, render_launches
    from dpbench.results import CONFIG_FILE

    names = config or [DEFAULT_CONFIG]
    chosen = with_launch_options(overrides, device, megatron)
    loaded = load_config(names, chosen)
    launches = [plan_launch(loaded, gpus=one, on_paper=True) for one in parse_counts(gpus)]
    if diff is None:
        typer.echo(render_launches(launches, title_of(names)), nl=False)
        return
    path = str(Path(diff) / CONFIG_FILE) if Path(diff).is_dir() else diff
    other = load_config(path, with_launch_options(None, device, megatron))
    for launch in launches:
        beside = plan_launch(other, gpus=launch.gpus, on_paper=True)
        pair = (title_of(names), Path(diff).name)
        typer.echo(render_difference(launch, beside, pair), nl=False)


PLAN = {"gpus": "--gpus", "repeat": "--repeat", "until": "--until", "scaling": "--scaling",
        "warm_up": "--no-warm-up", "config": "--config", "device": "--device", "runs": "--runs",
        "overrides": "--set"}  # fmt: skip
"""Options of `bench` that an experiment has already."""


def bench(
    context: typer.Context,
    gpus: Annotated[str, typer.Option(help="GPU counts, the smallest is the baseline.")] = "1,2",
    repeat: Annotated[int, typer.Option(min=1, max=20, help="Runs of each GPU count.")] = 3,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="decided", help="Stop when the speed is decided, after 3, 5 or 7 rounds."
        ),
    ] = None,
    scaling: ScalingOption = "strong",
    warm_up: Annotated[
        bool, typer.Option(help="Begin with a short run that fills caches and does not count.")
    ] = True,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with this experiment; its plan is kept.")
    ] = None,
    config: ConfigNames = None,
    device: DeviceOption = None,
    megatron: MegatronOption = None,
    runs: RunsFolder = Path("runs"),
    on_oom: OnOomOption = OnOom.FAIL,
    allow_busy: AllowBusyOption = False,
    overrides: Overrides = None,
) -> None:
    """Measure the speedup with repeated, interleaved runs, and say how sure it is."""
    from dpbench import bench as experiments
    from dpbench.config_file import load_config
    from dpbench.named_configs import title_of

    if resume:
        given = [option for name, option in PLAN.items() if is_given(context, name)]
        if given:
            fail("--resume keeps the plan", f"leave out {' and '.join(given)}", 2)
        experiment = experiments.open_experiment(resume, allow_busy=allow_busy)
    else:
        names = config or [DEFAULT_CONFIG]
        chosen = with_launch_options(overrides, device, megatron, allow_busy=allow_busy)
        plan = experiments.make_plan(
            title_of(names),
            gpus=gpus,
            repeat=repeat,
            until=until,
            scaling=scaling,
            warm_up=warm_up,
        )
        experiment = experiments.new_experiment(load_config(names, chosen), plan, runs)
    retry = on_oom is OnOom.RETRY
    measure = experiments.run_until_it_fits if retry else experiments.run_experiment
    comparisons = measure(experiment, show=sys.stderr)
    answer(comparisons)
