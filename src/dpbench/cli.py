"""Typer options -> one call -> echo -> exit code. Nothing heavy is imported at start."""

from __future__ import annotations

import contextlib
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from dpbench import __version__
from dpbench.errors import DpbenchError, Interrupted

if TYPE_CHECKING:
    from dpbench.live import Detail

app = typer.Typer(
    help="Does data-parallel Megatron-LM training scale on this machine, and if not, why?",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


class OnOom(Enum):
    """What `run` does when the GPU is out of memory."""

    FAIL = "fail"
    RETRY = "retry"


EXIT_CODES = {"pass": 0, "fail": 1, "inconclusive": 3}

ConfigName = Annotated[
    str, typer.Option("--config", "-c", help="Name of a configuration, or a YAML file.")
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
    device: Annotated[
        str | None, typer.Option(help="auto, cuda or cpu; launch.device by default.")
    ] = None,
    megatron: Annotated[
        str | None,
        typer.Option(
            help="A Megatron-LM checkout instead of the installed package.",
            envvar="DPBENCH_MEGATRON",
        ),
    ] = None,
    runs: RunsFolder = Path("runs"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the command and start nothing.")
    ] = False,
    on_oom: Annotated[
        OnOom,
        typer.Option(help="retry: at CUDA's out of memory, start again with half the micro batch."),
    ] = OnOom.FAIL,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the training's own output.")
    ] = False,
    overrides: Overrides = None,
) -> None:
    """Train once with Megatron-LM and keep log, command and results."""
    from dpbench.config import load_config
    from dpbench.launch import plan_launch
    from dpbench.training import train, train_until_it_fits

    if quiet and verbose:
        fail("--quiet and --verbose", "give one of them, or none", 2)
    detail: Detail = "quiet" if quiet else "verbose" if verbose else "normal"
    chosen = list(overrides or ())
    if device:
        chosen.append(f"launch.device={device}")
    if megatron:
        chosen.append(f"launch.megatron_path={megatron}")
    loaded, name = load_config(config, chosen), Path(config).stem
    if on_oom is OnOom.RETRY and not dry_run:
        typer.echo(
            train_until_it_fits(
                loaded, gpus=gpus, name=name, runs=runs, show=sys.stderr, detail=detail
            )
        )
        return
    launch = plan_launch(loaded, gpus=gpus)
    if dry_run:
        typer.echo(launch.shell_command(), nl=False)
        return
    typer.echo(train(launch, name=name, runs=runs, show=sys.stderr, detail=detail))


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


@app.command()
def explain(
    log: Annotated[Path, typer.Argument(help="A run folder, or a Megatron log of anybody's.")],
) -> None:
    """Say what went wrong in a training run, and what to do about it.

    Exit status: 0 the cause is found, or nothing is wrong; 2 not a readable log; 3 an error that
    is not known.
    """
    from dpbench.diagnosis import explain_file, render_diagnosis, render_health

    diagnosis, read = explain_file(log)
    typer.echo(render_diagnosis(diagnosis) if diagnosis else render_health(read), nl=False)
    if diagnosis and not diagnosis.cause:
        raise typer.Exit(EXIT_CODES["inconclusive"])


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
        say(f"\nstopped: {signal_name or 'SIGINT'}; no process is left")
        raise SystemExit(130) from None


def fail(message: str, hint: str, status: int) -> NoReturn:
    """Print one line of error and one of fix, then exit."""
    say(f"error: {message}\n  fix: {hint}")
    raise SystemExit(status) from None


def say(text: str) -> None:
    """Print to standard error, if anybody is still there to read it."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
