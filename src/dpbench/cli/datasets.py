"""`dpbench prep` and `dpbench data`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from dpbench.cli.messages import say
from dpbench.cli.options import DEFAULT_CONFIG, ConfigNames, Overrides


def prep(
    config: ConfigNames = None,
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
            help="Let the tokenizer add its own (BOS, CLS), as the tool of core_v0.19 does and "
            "of core_v0.16 does not.",
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
        bool, typer.Option("--force", help="Make it again if it is the same, or of other text.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the manifest.")] = False,
    overrides: Overrides = None,
) -> None:
    """Tokenize text into the dataset that `run` trains on; nothing to do if it is there."""
    from dpbench.config_file import load_config
    from dpbench.data.jobs import Recipe
    from dpbench.data.prepare import prepare
    from dpbench.data.progress import find_split_problem, progress_line, render_prepared
    from dpbench.data.request import PrepareRequest, check_format
    from dpbench.interrupts import stop_signals_raise

    data = load_config(config or [DEFAULT_CONFIG], overrides or ()).data
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
    if problem := find_split_problem(prepared, data.split):
        say(f"note: a run needs more: {problem}\n  fix: {problem.hint}")


def show_data(
    path: Annotated[
        str | None, typer.Argument(help="Dataset folder, or any .bin/.idx pair of Megatron.")
    ] = None,
    config: ConfigNames = None,
    gpus: Annotated[
        int | None, typer.Option(help="Of the run; only weak scaling asks for more with more.")
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="Folder or .model, for a pair that prep did not make.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    overrides: Overrides = None,
) -> None:
    """Show what a dataset holds, check all of it, and say if its splits suffice for the steps."""
    from dpbench.arithmetic import work_out
    from dpbench.config_file import load_config
    from dpbench.data.inspect import Demand, inspect_dataset, render_json, render_text

    loaded = load_config(config or [DEFAULT_CONFIG], overrides or ())
    numbers = work_out(loaded, gpus or loaded.parallel.model_size)
    demand = Demand(
        split=loaded.data.split,
        seq_length=loaded.model.seq_length,
        steps=numbers.steps,
        samples=numbers.samples,
        global_batch_size=numbers.global_batch_size,
        eval_interval=loaded.training.eval_interval,
        eval_iters=loaded.training.eval_iters,
    )
    inspected = inspect_dataset(path or loaded.data.path, demand, tokenizer)
    typer.echo(render_json(inspected) if as_json else render_text(inspected), nl=False)
    inspected.require_usable()
