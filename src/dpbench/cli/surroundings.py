"""`dpbench doctor`, `flags`, `configs`, `import`: machine, Megatron, configurations, scripts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpbench.cli.options import (
    DEFAULT_CONFIG,
    ConfigNames,
    MegatronOption,
    Overrides,
    with_launch_options,
)


def doctor(
    config: ConfigNames = None,
    gpus: Annotated[
        int | None,
        typer.Option(min=1, max=1024, help="Processes to try; one for each visible GPU if none."),
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


def configs(
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of a configuration.")
    ] = False,
) -> None:
    """List the configurations that are found by name."""
    from dpbench.named_configs import first_line, named_configs

    if schema:
        import json

        from dpbench.config_file import json_schema

        typer.echo(json.dumps(json_schema(), indent=2))
        return
    found = named_configs()
    width = max(map(len, found), default=0)
    for name, path in found.items():
        typer.echo(f"{name:{width}}  {first_line(path)}".rstrip())


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
