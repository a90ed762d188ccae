"""`dpbench compare`, `report`, `explain`: what came out of runs that are there."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dpbench.cli.messages import fail
from dpbench.cli.options import RunsFolder, ScalingOption

if TYPE_CHECKING:
    from dpbench.compare import Comparison


EXIT_CODES = {"pass": 0, "fail": 1, "inconclusive": 3}


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
