"""Typer options -> one call -> echo -> exit code. Nothing heavy is imported at start."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from dpbench import __version__
from dpbench.errors import DpbenchError, Interrupted

app = typer.Typer(
    help="Does data-parallel Megatron-LM training scale on this machine, and if not, why?",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
EXIT_CODES = {"pass": 0, "fail": 1, "inconclusive": 3}

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
Device = Annotated[str | None, typer.Option(help="auto, cuda or cpu; launch.device by default.")]
MegatronPath = Annotated[
    str | None,
    typer.Option(
        help="A Megatron-LM checkout instead of the installed package.",
        envvar="DPBENCH_MEGATRON",
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key; may be given again."),
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
    config: ConfigNames = None,
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

    data = load_config(config or [DEFAULT_CONFIG], overrides or ()).data
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
    config: ConfigNames = None,
    device: Device = None,
    megatron: MegatronPath = None,
    runs: RunsFolder = Path("runs"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the command and start nothing.")
    ] = False,
    overrides: Overrides = None,
) -> None:
    """Train once with Megatron-LM and keep log, command and results."""
    from dpbench.config import load_config
    from dpbench.launch import plan_launch
    from dpbench.named_configs import title_of
    from dpbench.render import render_launches
    from dpbench.training import train

    names = config or [DEFAULT_CONFIG]
    chosen = all_overrides(overrides, device, megatron)
    launch = plan_launch(load_config(names, chosen), gpus=gpus)
    if dry_run:
        typer.echo(render_launches([launch], title_of(names)), nl=False)
        return
    for note in launch.notes:
        typer.echo(f"note: {note}", err=True)
    folder = train(launch, name=title_of(names), runs=runs, show=sys.stderr)
    typer.echo(folder)


def all_overrides(
    overrides: list[str] | None, device: str | None, megatron: str | None
) -> list[str]:
    """Return `--set` with what has an option of its own behind it."""
    chosen = list(overrides or ())
    if device:
        chosen.append(f"launch.device={device}")
    if megatron:
        chosen.append(f"launch.megatron_path={megatron}")
    return chosen


@app.command()
def render(
    gpus: Annotated[str, typer.Option(metavar="N[,N...]", help="GPU counts.")] = "1",
    config: ConfigNames = None,
    device: Device = None,
    megatron: MegatronPath = None,
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
    from dpbench.config import load_config
    from dpbench.launch import plan_launch
    from dpbench.named_configs import title_of
    from dpbench.render import parse_counts, render_difference, render_launches
    from dpbench.results import CONFIG_FILE

    names = config or [DEFAULT_CONFIG]
    chosen = all_overrides(overrides, device, megatron)
    loaded = load_config(names, chosen)
    launches = [plan_launch(loaded, gpus=one, on_paper=True) for one in parse_counts(gpus)]
    if diff is None:
        typer.echo(render_launches(launches, title_of(names)), nl=False)
        return
    path = str(Path(diff) / CONFIG_FILE) if Path(diff).is_dir() else diff
    other = load_config(path, all_overrides(None, device, megatron))
    for launch in launches:
        beside = plan_launch(other, gpus=launch.gpus, on_paper=True)
        pair = (title_of(names), Path(diff).name)
        typer.echo(render_difference(launch, beside, pair), nl=False)


@app.command()
def flags(
    pattern: Annotated[
        str, typer.Argument(help="Part of a name, or of a help text; all flags when left out.")
    ] = "",
    megatron: MegatronPath = None,
) -> None:
    """Search the flags of the Megatron in use; any of them may stand under `megatron:`."""
    from dpbench.megatron import find_megatron
    from dpbench.options import load_options
    from dpbench.render import render_options

    found = find_megatron(megatron)
    typer.echo(render_options(load_options(found), pattern, found.version), nl=False)


@app.command()
def configs(
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of a configuration.")
    ] = False,
) -> None:
    """List the configurations that are found by name."""
    from dpbench.named_configs import first_line, named_configs

    if schema:
        import json

        from dpbench.config import json_schema

        typer.echo(json.dumps(json_schema(), indent=2))
        return
    found = named_configs()
    width = max(map(len, found), default=0)
    for name, path in found.items():
        typer.echo(f"{name:{width}}  {first_line(path)}".rstrip())


@app.command()
def compare(
    first: Annotated[Path | None, typer.Argument(help="A run folder or a Megatron log.")] = None,
    second: Annotated[Path | None, typer.Argument(help="The other one.")] = None,
    min_efficiency: Annotated[
        float | None, typer.Option(help="Least scaling efficiency, instead of the config's.")
    ] = None,
    max_final_loss: Annotated[
        float | None, typer.Option(help="Highest final loss, instead of the config's.")
    ] = None,
    runs: RunsFolder = Path("runs"),
) -> None:
    """Say whether more GPUs train faster: the newest comparable pair, or the two that you name.

    Exit status: 0 pass, 1 fail, 2 not comparable, 3 inconclusive.
    """
    from dpbench.compare import choose_pair, compare_runs
    from dpbench.report.terminal import render_comparison

    pair = choose_pair(first, second, runs)
    comparison = compare_runs(*pair, min_efficiency=min_efficiency, max_final_loss=max_final_loss)
    typer.echo(render_comparison(comparison), nl=False)
    raise typer.Exit(EXIT_CODES[comparison.verdict.outcome])


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
