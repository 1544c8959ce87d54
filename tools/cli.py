"""The `holdfast` command. Each command's module is imported only when that command is called."""

import sys
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

OUR_PACKAGES = {"wire", "flash_store", "device", "gateway", "uplink", "cloud", "tools"}


@dataclass(frozen=True)
class Command:
    """One command: its Typer app or function ("module:name"), a line about it, and the extra it needs ("": none)."""

    target: str
    summary: str
    extra: str


GROUPS = {
    "check": "What a standard demands, looked at from outside.",
    "bench": "What the parts cost, counted and beside others.",
    "device": "The firmware for a board.",
    "flash": "A device's store, from a copy of its flash.",
    "gateway": "The local broker: listeners, sessions, durable message store, routes.",
    "torture": "What must hold whatever happens: power cuts, noise, ruined images.",
    "lander": "From the central broker into landing files.",
    "cloud": "From landing files into tables.",
}
COMMANDS = {
    "demo": Command("tools.demo.command:demo", "Run the real system here, break it, and prove the count.", "tools"),
    "query": Command("tools.query:query", "Print rows from the tables; without SQL, what there is.", "cloud"),
    "test": Command("tools.testing:app", "Run Holdfast's own checks and tests (from a checkout).", "dev"),
    "check broker": Command("tools.check.broker:broker", "Check any broker against the MQTT standards.", ""),
    "bench flash": Command("tools.bench.flash:flash", "Count what the flash store costs, beside littlefs.", "tools"),
    "bench link": Command("tools.bench.link:link", "Measure the serial link, simulated and real.", "gateway"),
    "bench device": Command("tools.bench.device:device", "Measure the firmware: heap, speed, bytes.", "tools"),
    "bench broker": Command("tools.bench.broker:broker", "Measure the broker, beside mosquitto.", "gateway"),
    "bench fanout": Command("tools.bench.fanout:fanout", "Measure messages to subscribers.", "gateway"),
    "bench memory": Command("tools.bench.memory:memory", "Measure the gateway's memory and start-up.", "gateway"),
    "bench storage": Command("tools.bench.storage:storage", "Count bytes written for each message.", "gateway"),
    "torture wire": Command("tools.torture.wire:wire", "Feed noise to the MQTT decoders and connections.", ""),
    "torture flash": Command("tools.torture.flash:flash", "Cut a store's power at every byte.", ""),
    "torture link": Command("tools.torture.link:link", "Run the serial link over bad lines.", ""),
    "torture broker": Command("tools.torture.broker:broker", "Storm a gateway with spoilt sessions.", "tools"),
    "torture attacks": Command(
        "tools.torture.attacks:attacks", "Attack a gateway beside an ordinary client.", "gateway"
    ),
    "torture store": Command(
        "tools.torture.store:store", "Cut the power of a gateway's store at each write.", "gateway"
    ),
    "torture device": Command("tools.torture.device:device", "Cut real devices' power and lines.", "tools"),
    "torture soak": Command("tools.torture.soak:soak", "Send messages until a device's heap would grow.", ""),
    "device build": Command("tools.device_build:build", "Compile what a board needs, for mip.", "tools"),
    "flash inspect": Command("tools.flash.inspect:inspect", "Show what a store on flash holds.", ""),
    "gateway run": Command("tools.gateway_process:run", "Run a gateway until it is told to stop.", "gateway"),
    "gateway check-config": Command(
        "tools.gateway_check_config:check_config", "Say whether a gateway would start with a configuration.", "gateway"
    ),
    "gateway repair": Command(
        "tools.gateway_repair:repair_store", "Make a damaged store whole again, with all that can be read.", "gateway"
    ),
    "gateway devices": Command("tools.gateway_devices:list_devices", "List the devices a gateway knows.", "gateway"),
    "gateway quarantine": Command(
        "tools.gateway_quarantine:list_notes", "List what a gateway could not read and has set aside.", "gateway"
    ),
    "gateway passwd": Command("tools.gateway_passwd:passwd", "Make, change or delete an account.", "gateway"),
    "lander run": Command("tools.lander:app", "Run a lander until it is told to stop.", "cloud"),
    "cloud ingest": Command("tools.cloud_ingest:app", "Take new landing files into the tables.", "cloud"),
}


class LazyGroup(TyperGroup):
    """Lists its commands from the tables above; imports a command when it is called."""

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
        app.command()(target)
        target = app
    return typer.main.get_command(target)


def _new_group(summary: str) -> typer.Typer:
    return typer.Typer(
        cls=LazyGroup, help=summary, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
    )


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"holdfast {version('holdfast')}")
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
        app.add_typer(subcommands, name=name)
    return app


def main() -> None:
    """Exit codes: 0 done, 1 the thing checked does not hold, 2 bad usage or configuration."""
    try:
        make_app()(prog_name="holdfast")
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        path = next((path for path in COMMANDS if sys.argv[1:][: path.count(" ") + 1] == path.split()), None)
        if missing in OUR_PACKAGES or path is None:
            raise
        print(
            f"holdfast: '{path}' needs {missing}, which is not installed. "
            f"This brings it: pip install 'holdfast[{COMMANDS[path].extra}]'",
            file=sys.stderr,
        )
        sys.exit(2)


if __name__ == "__main__":
    main()
