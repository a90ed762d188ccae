"""Typer options -> one call -> echo -> exit code. Nothing heavy is imported at start."""

from __future__ import annotations

import contextlib
import sys
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from dpbench import __version__
from dpbench.errors import DpbenchError, Interrupted

if TYPE_CHECKING:
    from dpbench.compare import Comparison
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


@app.command("data")
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
    from dpbench.config import load_config
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


@app.command()
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
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the training's own output.")
    ] = False,
    overrides: Overrides = None,
) -> None:
    """Train once with Megatron-LM and keep log, command and results."""
    from dpbench.config import load_config
    from dpbench.launch import plan_launch
    from dpbench.named_configs import title_of
    from dpbench.render import render_launches
    from dpbench.training import train, train_until_it_fits

    if quiet and verbose:
        fail("--quiet and --verbose", "give one of them, or none", 2)
    names = config or [DEFAULT_CONFIG]
    loaded = load_config(names, with_launch_options(overrides, device, megatron))
    launch = plan_launch(loaded, gpus=gpus)
    if dry_run:
        typer.echo(render_launches([launch], title_of(names)), nl=False)
        return
    for note in launch.notes:
        typer.echo(f"note: {note}", err=True)
    detail: Detail = "quiet" if quiet else "verbose" if verbose else "normal"
    start = train_until_it_fits if on_oom is OnOom.RETRY else train
    typer.echo(start(launch, name=title_of(names), runs=runs, show=sys.stderr, detail=detail))


@app.command()
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
    from dpbench.config import load_config
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


@app.command()
def flags(
    pattern: Annotated[
        str, typer.Argument(help="Part of a name, or of a help text; all flags when left out.")
    ] = "",
    megatron: MegatronOption = None,
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
    config: ConfigNames = None,
    device: DeviceOption = None,
    megatron: MegatronOption = None,
    runs: RunsFolder = Path("runs"),
    on_oom: OnOomOption = OnOom.FAIL,
    overrides: Overrides = None,
) -> None:
    """Measure the speedup with repeated, interleaved runs, and say how sure it is."""
    from dpbench import bench as experiments
    from dpbench.config import load_config
    from dpbench.named_configs import title_of

    if resume:
        experiment = experiments.open_experiment(resume)
    else:
        names = config or [DEFAULT_CONFIG]
        chosen = with_launch_options(overrides, device, megatron)
        plan = experiments.make_plan(
            title_of(names), gpus=gpus, repeat=repeat, until=until, scaling=scaling
        )
        experiment = experiments.new_experiment(load_config(names, chosen), plan, runs)
    retry = on_oom is OnOom.RETRY
    measure = experiments.run_until_it_fits if retry else experiments.run_experiment
    comparisons = measure(experiment, show=sys.stderr)
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
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON, with every interval of every run.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a page with plots.")
    ] = None,
    runs: RunsFolder = Path("runs"),
) -> None:
    """Say whether more GPUs train faster. Runs of the same GPU count are repeats.

    Exit status: 0 pass, 1 fail, 2 not comparable, 3 inconclusive.
    """
    from dpbench.bench import compare_paths, newest_paths

    given = {"min_efficiency": min_efficiency, "max_final_loss": max_final_loss}
    checks = {name: value for name, value in given.items() if value is not None}
    if markdown and json:
        fail("--markdown and --json", "give one of them, or none", 2)
    if html:
        from dpbench.report.output import check_target, write_page

        check_target(html)
    comparisons = compare_paths(paths or newest_paths(runs), scaling, checks)
    if html:
        from dpbench.report.html import render_page
        from dpbench.subject import of_comparisons

        write_page(html, render_page(of_comparisons(comparisons)))
    answer(comparisons, "markdown" if markdown else "json" if json else "terminal")


@app.command()
def doctor(
    config: ConfigNames = None,
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
    for check in examine(
        config or [DEFAULT_CONFIG], with_launch_options(overrides, None, megatron), gpus
    ):
        checks.append(check)
        if not as_json:
            typer.echo(render_check(check))
    render = render_checks_json if as_json else render_summary
    typer.echo(render(checks, monotonic() - begun))
    raise typer.Exit(2 if worst(checks) == "fail" else 0)


@app.command()
def report(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(help="Runs, logs, or an experiment; failed runs too; the newest if none."),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The page to write.")
    ] = Path("report.html"),
    scaling: ScalingOption = "strong",
    runs: RunsFolder = Path("runs"),
) -> None:
    """Write a page with verdict, plots and all figures: one file that needs no network."""
    from dpbench.report.output import check_target, write_page
    from dpbench.subject import collect

    check_target(output)
    subject = collect(paths or (), runs=runs, scaling=scaling, checks={})

    from dpbench.report.html import render_page

    write_page(output, render_page(subject))
    typer.echo(output)


def answer(
    comparisons: list[Comparison], form: Literal["terminal", "markdown", "json"] = "terminal"
) -> None:
    """Print the verdict and exit with its status."""
    from dpbench.report.output import print_text, terminal_style
    from dpbench.report.words import overall

    if form == "json":
        from dpbench.report.data import render_json as render
    elif form == "markdown":
        from dpbench.report.markdown import render_markdown as render
    else:
        from dpbench.report.terminal import render_answer as render_with

        render = partial(render_with, style=terminal_style(sys.stdout))
    print_text(render(comparisons), sys.stdout)
    raise typer.Exit(EXIT_CODES[overall(comparisons)])


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


@app.command("import")
def import_script(
    script: Annotated[Path, typer.Argument(help="Launch script in bash; it is never executed.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="YAML to write; standard output if none.")
    ] = None,
    variables: Annotated[
        list[str] | None,
        typer.Option(
            "--var", metavar="NAME=VALUE", help="Value of a variable; wins over the script's."
        ),
    ] = None,
    arguments: Annotated[
        list[str] | None,
        typer.Option(
            "--arg", metavar="VALUE", help="Positional parameter of the script, in order."
        ),
    ] = None,
    launch: Annotated[
        int | None, typer.Option(help="Which launch, counted from 1, if there are several.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Dataset for data.path, instead of the script's.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the output.")] = False,
    megatron: MegatronOption = None,
) -> None:
    """Turn a launch script into a configuration, and say what had to be changed."""
    from dpbench.megatron import find_megatron
    from dpbench.options import load_options
    from dpbench.shell_import.files import import_file, parse_variables
    from dpbench.shell_import.importer import Request

    request = Request(
        variables=parse_variables(variables or ()),
        arguments=tuple(arguments or ()),
        launch=launch,
        data_path=data,
    )
    table = load_options(find_megatron(megatron))
    arity = {name: option.arity for name, option in table.by_name.items()}
    imported = import_file(script, request, output=output, force=force, arity=arity)
    for line in imported.report:
        typer.echo(line, err=True)
    if output is None:
        typer.echo(imported.yaml, nl=False)


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
