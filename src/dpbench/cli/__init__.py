"""Typer options -> one call -> echo -> exit code. Nothing heavy is imported at start."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from copy import copy
from typing import Annotated

import typer

from dpbench import __version__
from dpbench.cli.answers import TakesArms, compare, explain, report
from dpbench.cli.datasets import prep, show_data
from dpbench.cli.messages import fail, mend_streams, say
from dpbench.cli.surroundings import configs, doctor, flags, import_script
from dpbench.cli.trainings import bench, render, run
from dpbench.cli.tuning import tune
from dpbench.cli.usage import UsageError, describe
from dpbench.errors import DpbenchError, Interrupted

app = typer.Typer(
    help="Does data-parallel Megatron-LM training scale on this machine, and if not, why?",
    add_completion=False,
    context_settings={"help_option_names": ["--help", "-h"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    show: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Print the version when asked, and the help when nothing is asked."""
    if show:
        typer.echo(f"dpbench {__version__}")
        raise typer.Exit
    if not context.invoked_subcommand:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(2)


for command in (prep, run, compare, bench, tune, report, doctor, explain, render, configs, flags):
    app.command(cls=TakesArms if command in (compare, report) else None)(command)
app.command("data")(show_data)
app.command("import")(import_script)


def app_for(words: Sequence[str]) -> typer.Typer:
    """Return the app with the one command that is asked: the options of all take a while to build.

    With all of them when it is none, for the help and for what was meant.
    """
    asked = [
        command
        for command in app.registered_commands
        if command.callback and (command.name or command.callback.__name__) in words[:1]
    ]
    one = copy(app)
    one.registered_commands = asked or app.registered_commands
    return one


def main() -> None:
    """Run the app; the only place where errors become exit codes."""
    mend_streams()
    try:
        try:
            status = app_for(sys.argv[1:])(prog_name="dpbench", standalone_mode=False)
        finally:
            sys.stdout.flush()  # an answer that finds no room is an error, not one of the shutdown
    except UsageError as error:
        fail(*describe(error), 2)
    except DpbenchError as error:
        fail(str(error), error.hint, error.exit_code)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        hint = "check that the path exists, is writable and has room"
        if isinstance(error, PermissionError):
            hint = (
                "make it readable, or writable where it is to be written: ls -ld shows whose it is"
            )
        fail(f"{where}{error.strerror or error}", hint, 2)
    except (Interrupted, KeyboardInterrupt) as signal_name:
        say(f"\nstopped: {signal_name or 'SIGINT'}; no process is left")
        raise SystemExit(130) from None
    raise SystemExit(status)
