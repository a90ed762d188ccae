"""`dpbench compare`, `report`, `explain`: what came out of runs that are there."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from dpbench.cli.messages import fail, say
from dpbench.cli.options import RunsFolder, ScalingOption
from dpbench.selection import expand, gather

if TYPE_CHECKING:
    from dpbench.compare import Comparison


EXIT_CODES = {"pass": 0, "fail": 1, "inconclusive": 3}


class TakesArms(TyperCommand):
    """A command whose options --baseline and --scaled take as many values as follow them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the option before each of its values."""
        return super().parse_args(ctx, gather(args, ("--baseline", "--scaled")))


BaselineOption = Annotated[
    list[Path] | None,
    typer.Option(metavar="RUN...", help="Runs or logs of one side, by name or pattern."),
]
ScaledOption = Annotated[
    list[Path] | None,
    typer.Option(metavar="RUN...", help="Those of the other; the GPU count may be the same."),
]


def compare(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(help="Run folders, Megatron logs, or an experiment; the newest if none."),
    ] = None,
    baseline: BaselineOption = None,
    scaled: ScaledOption = None,
    baseline_gpus: Annotated[
        int | None, typer.Option(min=1, help="GPUs of --baseline, for logs that do not tell.")
    ] = None,
    scaled_gpus: Annotated[
        int | None, typer.Option(min=1, help="GPUs of --scaled, for logs that do not tell.")
    ] = None,
    min_efficiency: Annotated[
        float | None, typer.Option(help="Least scaling efficiency, instead of the config's.")
    ] = None,
    max_final_loss: Annotated[
        float | None, typer.Option(help="Highest loss at the end, instead of the config's.")
    ] = None,
    max_loss_difference: Annotated[
        float | None, typer.Option(help="Most that the losses of the arms may differ, a share.")
    ] = None,
    max_skipped_share: Annotated[
        float | None, typer.Option(help="Most updates that fp16 may skip once settled, a share.")
    ] = None,
    min_gpu_utilization: Annotated[
        float | None,
        typer.Option(help="Least GPU utilisation in percent, instead of the config's."),
    ] = None,
    scaling: ScalingOption = "strong",
    force: Annotated[
        bool, typer.Option("--force", help="Compare different work; the answer says so.")
    ] = False,
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
    from dpbench.subject import compare_paths, newest_paths

    given = {
        "min_efficiency": min_efficiency,
        "max_final_loss": max_final_loss,
        "min_gpu_utilization": min_gpu_utilization,
        "max_loss_difference": max_loss_difference,
        "max_skipped_share": max_skipped_share,
    }
    checks = {name: value for name, value in given.items() if value is not None}
    if markdown and json:
        fail("--markdown and --json", "give one of them, or none", 2)
    check_sides(paths, baseline, scaled, (baseline_gpus, scaled_gpus))
    if html:
        from dpbench.report.output import check_target, write_page

        check_target(html)
    if baseline and scaled:
        from dpbench.compare import compare_arms

        comparisons = compare_arms(
            expand(baseline),
            expand(scaled),
            gpus=(baseline_gpus, scaled_gpus),
            scaling=scaling,
            checks=checks,
            force=force,
        )
    else:
        comparisons = compare_paths(
            paths or newest_paths(runs, scaling), scaling, checks, force=force
        )
    if html:
        from dpbench.report.html import render_page
        from dpbench.subject import of_comparisons

        write_page(html, render_page(of_comparisons(comparisons)))
        say(f"wrote {html}")
    answer(comparisons, "markdown" if markdown else "json" if json else "terminal")


def check_sides(
    paths: list[Path] | None,
    baseline: list[Path] | None,
    scaled: list[Path] | None,
    gpus: tuple[int | None, int | None],
) -> None:
    """Refuse arms that are named by half, or beside runs that are grouped by their GPU count."""
    both = "name both arms: --baseline A --scaled B"
    if baseline and not scaled:
        fail("--baseline without --scaled", both, 2)
    if scaled and not baseline:
        fail("--scaled without --baseline", both, 2)
    if any(gpus) and not baseline:
        fail("--baseline-gpus and --scaled-gpus are for named arms", both, 2)
    if baseline and paths:
        hint = "put every run behind --baseline or --scaled"
        fail(f"{paths[0]}: belongs to neither arm", hint, 2)


def report(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(help="Runs, logs, or an experiment; failed runs too; the newest if none."),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The page to write.")
    ] = Path("report.html"),
    baseline: BaselineOption = None,
    scaled: ScaledOption = None,
    scaling: ScalingOption = "strong",
    runs: RunsFolder = Path("runs"),
) -> None:
    """Write a page with verdict, plots and all figures: one file that needs no network."""
    from dpbench.compare import compare_arms
    from dpbench.report.output import check_target, write_page
    from dpbench.subject import collect, of_comparisons

    check_sides(paths, baseline, scaled, (None, None))
    check_target(output)
    if baseline and scaled:
        subject = of_comparisons(compare_arms(expand(baseline), expand(scaled), scaling=scaling))
    else:
        subject = collect(paths or (), runs=runs, scaling=scaling, checks={})

    from dpbench.report.html import render_page

    write_page(output, render_page(subject))
    typer.echo(output)


def explain(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(help="One run or log: what went wrong. Two, or an experiment: why not 2x."),
    ] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="First make the short profile runs that are missing.")
    ] = False,
    keep_trace: Annotated[
        bool, typer.Option("--keep-trace", help="Keep the trace of torch's profiler beside them.")
    ] = False,
    scaling: ScalingOption = "strong",
    json: Annotated[bool, typer.Option("--json", help="Print JSON; not for a single run.")] = False,
    runs: RunsFolder = Path("runs"),
) -> None:
    """Say what went wrong in a training run; or why more GPUs are not faster by their number.

    Exit status: 0 the cause is found, or nothing is wrong; 2 not readable, not comparable; 3 an
    error that is not known.
    """
    from dpbench.bench import BENCH_FILE
    from dpbench.subject import newest_paths

    chosen = expand(paths or ()) or newest_paths(runs, scaling)
    if len(chosen) == 1 and not (chosen[0] / BENCH_FILE).is_file():
        if profile:
            fail(f"--profile {chosen[0]}", "name two runs of different GPU counts", 2)
        explain_one(chosen[0], json=json)
        return

    from dpbench.profile.explain import explain_paths, runs_to_profile
    from dpbench.profile.make import ProfileOptions, make_missing
    from dpbench.report.output import print_text
    from dpbench.report.why import render_why, render_why_json

    if profile:
        options = ProfileOptions(runs=runs, show=sys.stderr, keep_trace=keep_trace)
        make_missing(runs_to_profile(chosen, scaling), options)
    explanation = explain_paths(chosen, scaling)
    print_text((render_why_json if json else render_why)(explanation), sys.stdout)


def explain_one(path: Path, *, json: bool) -> None:
    """Say what went wrong in a run, or where the time of a profiled step went."""
    from dpbench.profile.record import PROFILE_FILE

    if (path / PROFILE_FILE).is_file():
        from dpbench.profile.parts import break_down
        from dpbench.profile.record import read_profile
        from dpbench.report.output import print_text
        from dpbench.report.why import render_one, render_one_json

        show = render_one_json if json else render_one
        print_text(show(break_down(read_profile(path))), sys.stdout)
        return

    from dpbench.diagnosis import render_diagnosis, render_health
    from dpbench.health import explain_run

    if json:
        fail(f"--json {path}", "give two runs, or the folder of a profile run", 2)
    diagnosis, read = explain_run(path)
    typer.echo(render_diagnosis(diagnosis) if diagnosis else render_health(read), nl=False)
    if note := read.attempts_note:
        typer.echo(f"note: {path.name} {note}")
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
