"""The `holdfast` command. Each command's module is imported only when that command is called."""

import inspect
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from host.release import DISTRIBUTION, release
from tools.cli.commands import COMMANDS, GROUPS, Command
from tools.cli.failure import OutputFailed, checked_output, complain

OUR_PACKAGES = {"host", "wire", "flash_store", "device", "gateway", "uplink", "cloud", "tools"}


class LazyGroup(TyperGroup):
    """Lists the commands of `tools.cli.commands`; imports a command when it is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, listed, rest = super().resolve_command(ctx, args)
        command = COMMANDS.get(f"{ctx.command_path} {name}".partition(" ")[2])
        return name, load(command) if command else listed, rest


def load(command: Command) -> Any:
    """The command's parser; imports its module (ModuleNotFoundError where its extra is not installed)."""
    module, _, name = command.target.partition(":")
    target = getattr(import_module(module), name)
    if not isinstance(target, typer.Typer):
        app = typer.Typer(add_completion=False)
        paragraphs = (inspect.getdoc(target) or "").split("\n\n")
        app.command(help="\n\n".join(" ".join(one.split()) for one in paragraphs))(target)  # lines as the terminal has
        target = app
    return typer.main.get_command(target)


def _new_group(summary: str) -> typer.Typer:
    return typer.Typer(
        cls=LazyGroup, help=summary, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
    )


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"holdfast {release()}")
        raise typer.Exit


def _holdfast(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Sensor readings from device to table: none lost, none counted twice."""


def make_app() -> typer.Typer:
    """The whole command, every subcommand listed, none imported."""
    app = _new_group("")
    app.callback()(_holdfast)
    groups = {name: _new_group(summary) for name, summary in GROUPS.items()}
    for path, command in COMMANDS.items():
        group, _, name = path.rpartition(" ")
        groups.get(group, app).command(name, help=command.summary)(lambda: None)
    for name, subcommands in groups.items():
        subcommands.callback()(lambda: None)  # with a callback, a lone subcommand is still called by its name
        group, _, word = name.rpartition(" ")
        groups.get(group, app).add_typer(subcommands, name=word)
    return app


def _config_of_gateway(arguments: list[str]) -> Path | None:
    """The configuration of `gateway run`, where the command line has nothing but it.

    Typer reads the options of every other command. It brings pydantic for that, and a gateway would keep its 14 MB of
    memory as long as it runs.
    """
    match arguments:
        case ["gateway", "run", "--config", file] | ["gateway", "run", file] if file and not file.startswith("-"):
            return Path(file)
    return None


def _command() -> str | None:
    """The command that the command line names."""
    return next((path for path in COMMANDS if sys.argv[1:][: path.count(" ") + 1] == path.split()), None)


def main() -> None:
    """Exit codes: 0 done, 1 the thing checked does not hold, 2 bad usage or configuration, or its output is lost."""
    try:
        with checked_output():
            _run()
    except OutputFailed as error:
        if error.is_fault:
            complain(_command() or "", str(error))
        sys.exit(2 if error.is_fault else 1)


def _run() -> None:
    try:
        if (config := _config_of_gateway(sys.argv[1:])) is not None:
            run = import_module("tools.cli.gateway.process").run
            try:
                run(config)
            except typer.Exit as end:
                sys.exit(end.exit_code)
        else:
            make_app()(prog_name="holdfast")
    except ModuleNotFoundError as error:
        missing, path = (error.name or "").partition(".")[0], _command()
        if missing in OUR_PACKAGES or path is None:
            raise
        print(
            f"holdfast: '{path}' needs {missing}, which is not installed. "
            f"This brings it: pip install '{DISTRIBUTION}[{COMMANDS[path].extra}]'",
            file=sys.stderr,
        )
        sys.exit(2)


if __name__ == "__main__":
    main()
