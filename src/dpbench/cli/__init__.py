"""Typer options -> one call -> echo -> exit code. Nothing heavy is imported at start."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from dpbench import __version__
from dpbench.cli.answers import compare, explain, report
from dpbench.cli.datasets import prep, show_data
from dpbench.cli.messages import fail, say
from dpbench.cli.surroundings import configs, doctor, flags, import_script
from dpbench.cli.trainings import bench, render, run
from dpbench.errors import DpbenchError, Interrupted

app = typer.Typer(
    help="Does data-parallel Megatron-LM training scale on this machine, and if not, why?",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def version(
    show: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Print the version when asked."""
    if show:
        typer.echo(f"dpbench {__version__}")
        raise typer.Exit


for command in (prep, run, compare, bench, report, doctor, explain, render, configs, flags):
    app.command()(command)
app.command("data")(show_data)
app.command("import")(import_script)


def main() -> None:
    """Run the app; the only place where errors become exit codes."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started dpbench
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123
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
