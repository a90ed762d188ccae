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
        list[str] | None,
        typer.Option(
            "--input",
            "-i",
            help="Text: .tokens, .txt, .jsonl, .parquet, plain or compressed (.gz .zst .bz2 .xz), "
            "a pattern in quotes, or - for JSON lines from standard input; may be given again.",
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(help="wikitext-2, wikitext-2-raw, wikitext-103, or owner/name on the hub."),
    ] = None,
    parts: Annotated[
        list[str] | None,
        typer.Option("--part", help="Part of --dataset: train (default), validation, test."),
    ] = None,
    keys: Annotated[
        list[str] | None,
        typer.Option(
            "--json-key",
            "--text-column",
            help="Key or column of the text (default: text); a dataset a key if given again.",
        ),
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--format", help="tokens, txt, jsonl or parquet for all inputs.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Dataset folder; data.path by default.")
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="Folder, SentencePiece .model, owner/name on the hub, gpt2, trained-bpe."
        ),
    ] = None,
    vocab_file: Annotated[Path | None, typer.Option(help="GPT-2's vocab.json.")] = None,
    merge_file: Annotated[Path | None, typer.Option(help="GPT-2's merges.txt.")] = None,
    append_eod: Annotated[
        bool, typer.Option("--append-eod/--no-append-eod", help="End each document with a token.")
    ] = True,
    special_tokens: Annotated[
        bool,
        typer.Option(
            help="Let the tokenizer add its own (BOS, CLS), as the tool of core_v0.19 does and of core_v0.16 does not.",
        ),
    ] = True,
    split_sentences: Annotated[
        bool, typer.Option("--split-sentences", help="A sequence a sentence, cut by nltk.")
    ] = False,
    language: Annotated[str, typer.Option(help="Language of --split-sentences.")] = "english",
    workers: Annotated[int, typer.Option(min=0, help="Processes; 0: one a core.")] = 0,
    save_jsonl: Annotated[
        bool, typer.Option("--save-jsonl", help="Keep the documents as JSON lines too.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Make it again if it is the same.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the manifest.")] = False,
    overrides: Overrides = None,
) -> None:
    """Tokenize text into the dataset that `run` trains on; nothing to do if it is there."""
    from dpbench.config import load_config
    from dpbench.data.jobs import Recipe
    from dpbench.data.prepare import prepare
    from dpbench.data.progress import progress_line, render_prepared
    from dpbench.data.request import PrepareRequest, check_format
    from dpbench.process import stop_signals_raise

    data = load_config(config, overrides or ()).data
    request = PrepareRequest(
        output=output or Path(data.path),
        inputs=tuple(inputs or ()),
        format=check_format(kind),
        dataset=dataset,
        parts=tuple(parts or ("train",)),
        tokenizer=tokenizer,
        vocab_file=vocab_file,
        merge_file=merge_file,
        recipe=Recipe(
            keys=tuple(keys or ("text",)),
            append_eod=append_eod,
            special_tokens=special_tokens,
            split_sentences=split_sentences,
            language=language,
        ),
        workers=workers,
        save_jsonl=save_jsonl,
        force=force,
    )
    with stop_signals_raise(), progress_line(sys.stderr) as report:
        prepared = prepare(data, request, report)
    if as_json:
        typer.echo(prepared.manifest.model_dump_json(indent=2))
    else:
        typer.echo(render_prepared(request.output, prepared), nl=False)


@app.command("data")
def show_data(
    path: Annotated[
        str | None, typer.Argument(help="Dataset folder, or any .bin/.idx pair of Megatron.")
    ] = None,
    config: ConfigName = "wikitext2-gpt2",
    tokenizer: Annotated[
        str | None, typer.Option(help="Folder or .model, for a pair that prep did not make.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    overrides: Overrides = None,
) -> None:
    """Show what a dataset holds, check all of it, and say if its splits suffice for the steps."""
    from dpbench.config import load_config
    from dpbench.data.inspect import inspect_dataset, render_json, render_text

    loaded = load_config(config, overrides or ())
    inspected = inspect_dataset(path or loaded.data.path, loaded, tokenizer)
    typer.echo(render_json(inspected) if as_json else render_text(inspected), nl=False)
    inspected.require_usable()


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
    overrides: Overrides = None,
) -> None:
    """Train once with Megatron-LM and keep log, command and results."""
    from dpbench.config import load_config
    from dpbench.launch import plan_launch
    from dpbench.training import train

    chosen = list(overrides or ())
    if device:
        chosen.append(f"launch.device={device}")
    if megatron:
        chosen.append(f"launch.megatron_path={megatron}")
    launch = plan_launch(load_config(config, chosen), gpus=gpus)
    if dry_run:
        typer.echo(launch.shell_command(), nl=False)
        return
    folder = train(launch, name=Path(config).stem, runs=runs, show=sys.stderr)
    typer.echo(folder)


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
