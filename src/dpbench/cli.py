"""Typer options -> one call -> echo -> exit code. Nothing heavy is imported at start."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dpbench import __version__
from dpbench.errors import DpbenchError, Interrupted

if TYPE_CHECKING:
    from dpbench.compare import Comparison

app = typer.Typer(
    help="Does data-parallel Megatron-LM training scale on this machine, and if not, why?",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
EXIT_CODES = {"pass": 0, "fail": 1, "inconclusive": 3}

ConfigName = Annotated[
    str, typer.Option("--config", "-c", help="Name of a configuration, or a YAML file.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key; may be given again."),
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
RunsFolder = Annotated[Path, typer.Option("--runs", help="Folder that holds the runs.")]


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Print the version when asked."""
    if show:
        typer.echo(f"dpbench {__version__}")
        raise typer.Exit


@app.command()
def prep(
    config: ConfigName = "wikitext2-gpt2",
    inputs: Annotated[
        list[Path] | None,
        typer.Option("--input", "-i", help="Text: .tokens, .txt or .jsonl; may be given again."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Dataset folder; data.path of the config by default.")
    ] = None,
    vocab_file: Annotated[Path | None, typer.Option(help="GPT-2's vocab.json.")] = None,
    merge_file: Annotated[Path | None, typer.Option(help="GPT-2's merges.txt.")] = None,
    overrides: Overrides = None,
) -> None:
    """Tokenize text into the dataset that `run` trains on."""
    from dpbench.config import load_config
    from dpbench.data.prepare import PrepareRequest, prepare

    data = load_config(config, overrides or ()).data
    request = PrepareRequest(
        output=output or Path(data.path),
        inputs=tuple(inputs or ()),
        vocab_file=vocab_file,
        merge_file=merge_file,
    )
    made = prepare(data, request)
    typer.echo(
        f"{request.output}: {made.documents:,} documents, {made.tokens:,} tokens, "
        f"vocabulary {made.vocab_size:,}"
    )


@app.command()
def run(
    gpus: Annotated[int, typer.Option(help="GPUs, one process each; processes on CPU.")],
    config: ConfigName = "wikitext2-gpt2",
    device: DeviceOption = None,
    megatron: MegatronOption = None,
    runs: RunsFolder = Path("runs"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the command and start nothing.")
    ] = False,
    overrides: Overrides = None,
) -> None:
    """Train once with Megatron-LM and keep log, command and results."""
    from dpbench.config import load_config
    from dpbench.launch import plan_launch
    from dpbench.training import train

    chosen = with_launch_options(overrides, device, megatron)
    launch = plan_launch(load_config(config, chosen), gpus=gpus)
    if dry_run:
        typer.echo(launch.shell_command(), nl=False)
        return
    folder = train(launch, name=Path(config).stem, runs=runs, show=sys.stderr)
    typer.echo(folder)


@app.command()
def bench(
    gpus: Annotated[str, typer.Option(help="GPU counts, the smallest is the baseline.")] = "1,2",
    repeat: Annotated[int, typer.Option(min=1, max=20, help="Runs of each GPU count.")] = 3,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="decided", help="Stop when the speed is decided, after 3, 5 or 7 rounds."
        ),
    ] = None,
    scaling: ScalingOption = "strong",
    resume: Annotated[
        Path | None, typer.Option(help="Go on with this experiment; its plan is kept.")
    ] = None,
    config: ConfigName = "wikitext2-gpt2",
    device: DeviceOption = None,
    megatron: MegatronOption = None,
    runs: RunsFolder = Path("runs"),
    overrides: Overrides = None,
) -> None:
    """Measure the speedup with repeated, interleaved runs, and say how sure it is."""
    from dpbench import bench as experiments
    from dpbench.config import load_config

    if resume:
        experiment = experiments.open_experiment(resume)
    else:
        chosen = with_launch_options(overrides, device, megatron)
        plan = experiments.make_plan(
            Path(config).stem, gpus=gpus, repeat=repeat, until=until, scaling=scaling
        )
        experiment = experiments.new_experiment(load_config(config, chosen), plan, runs)
    comparisons = experiments.run_experiment(experiment, show=sys.stderr)
    answer(comparisons)


@app.command()
def compare(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(help="Run folders, Megatron logs, or an experiment; the newest if none."),
    ] = None,
    min_efficiency: Annotated[
        float | None, typer.Option(help="Least scaling efficiency, instead of the config's.")
    ] = None,
    max_final_loss: Annotated[
        float | None, typer.Option(help="Highest final loss, instead of the config's.")
    ] = None,
    scaling: ScalingOption = "strong",
    runs: RunsFolder = Path("runs"),
) -> None:
    """Say whether more GPUs train faster. Runs of the same GPU count are repeats.

    Exit status: 0 pass, 1 fail, 2 not comparable, 3 inconclusive.
    """
    from dpbench.bench import compare_paths, newest_paths

    given = {"min_efficiency": min_efficiency, "max_final_loss": max_final_loss}
    checks = {name: value for name, value in given.items() if value is not None}
    answer(compare_paths(paths or newest_paths(runs), scaling, checks))


@app.command()
def doctor(
    config: ConfigName = "wikitext2-gpt2",
    gpus: Annotated[
        int | None, typer.Option(min=1, help="Processes to try; one for each visible GPU if none.")
    ] = None,
    megatron: MegatronOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    overrides: Overrides = None,
) -> None:
    """Check within a minute whether machine and installation can train, and how fast the GPUs are.

    Exit status: 0 when nothing failed, 2 otherwise.
    """
    from time import monotonic

    from dpbench.doctor.check import worst
    from dpbench.doctor.examine import examine
    from dpbench.report.checks import render_check, render_checks_json, render_summary

    begun, checks = monotonic(), []
    for check in examine(config, with_launch_options(overrides, None, megatron), gpus):
        checks.append(check)
        if not as_json:
            typer.echo(render_check(check))
    render = render_checks_json if as_json else render_summary
    typer.echo(render(checks, monotonic() - begun))
    raise typer.Exit(2 if worst(checks) == "fail" else 0)


def answer(comparisons: list[Comparison]) -> None:
    """Print the verdicts and exit with the status of the worst."""
    from dpbench.report.terminal import render_comparison

    typer.echo("\n".join(map(render_comparison, comparisons)), nl=False)
    outcomes = {comparison.outcome for comparison in comparisons}
    worst = next(name for name in ("fail", "inconclusive", "pass") if name in outcomes)
    raise typer.Exit(EXIT_CODES[worst])


def with_launch_options(
    overrides: list[str] | None, device: str | None, megatron: str | None
) -> list[str]:
    """Return the overrides with those that have an option of their own."""
    chosen = list(overrides or ())
    if device:
        chosen.append(f"launch.device={device}")
    if megatron:
        chosen.append(f"launch.megatron_path={megatron}")
    return chosen


def main() -> None:
    """Run the app; the only place where errors become exit codes."""
    try:
        app()
    except DpbenchError as error:
        fail(str(error), error.hint, error.exit_code)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        hint = "check that the path exists, is writable and has room"
        fail(f"{where}{error.strerror or error}", hint, 2)
    except (Interrupted, KeyboardInterrupt) as signal_name:
        typer.echo(f"\nstopped: {signal_name or 'SIGINT'}; no process is left", err=True)
        raise SystemExit(130) from None


def fail(message: str, hint: str, status: int) -> None:
    """Print one line of error and one of fix, then exit."""
    typer.echo(f"error: {message}\n  fix: {hint}", err=True)
    raise SystemExit(status) from None


if __name__ == "__main__":
    main()
