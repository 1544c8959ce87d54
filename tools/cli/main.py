"""The `holdfast` command. Each command's module is imported only when that command is called."""

import inspect
import sys
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tools.cli.failure import OutputFailed, checked_output, complain

OUR_PACKAGES = {"host", "wire", "flash_store", "device", "gateway", "uplink", "cloud", "tools"}


@dataclass(frozen=True)
class Command:
    """One command: its Typer app or function ("module:name"), a line about it, and the extra it needs ("": none)."""

    target: str
    summary: str
    extra: str


GROUPS = {
    "check": "Test a broker against the MQTT standards, and as a central broker.",
    "bench": "Measure speed, memory and bytes written, and compare with other software.",
    "device": "Build the firmware for a board, check its configuration, and look into a copy of its flash.",
    "uplink": "See and steer the routes of a gateway that runs.",
    "gateway": "Run the gateway, the broker for devices, and look after its files.",
    "network": "Work on networks of gateways.",
    "multicast": "Receive multicast groups of a gateway.",
    "torture": "Try to make parts lose or repeat messages: power cuts, noise, kills, attacks.",
    "lander": "Write messages from a broker into landing files.",
    "cloud": "Bring landing files into tables, and report on them.",
}
COMMANDS = {
    "demo": Command(
        "tools.lab.demo.command:demo",
        "Run the whole system here, break it, and count the readings in its tables.",
        "tools",
    ),
    "query": Command("tools.cli.tables.query:query", "Print rows of the tables that an SQL query selects.", "cloud"),
    "replay": Command("tools.cli.replay:replay", "Publish the rows of a CSV file as readings of a device.", ""),
    "test": Command("tools.cli.testing:app", "Run Holdfast's own style checks and tests (from a checkout).", "dev"),
    "check broker": Command("tools.lab.check.broker:broker", "Check any broker against MQTT 3.1.1 and 5.0.", ""),
    "check central": Command(
        "tools.lab.check.central:central", "Try whether a broker may have custody of a gateway's messages.", ""
    ),
    "bench flash": Command(
        "tools.lab.bench.flash.command:flash",
        "Count flash writes, erases and memory of the flash store, beside littlefs.",
        "tools",
    ),
    "bench link": Command(
        "tools.lab.bench.link.command:link", "Measure throughput and recovery of the serial link.", ""
    ),
    "bench device": Command(
        "tools.lab.bench.device.command:device",
        "Measure the heap and the speed of the firmware on MicroPython.",
        "tools",
    ),
    "bench broker": Command(
        "tools.lab.bench.broker.command:broker",
        "Measure how many publishes per second the gateway acknowledges.",
        "gateway",
    ),
    "bench fanout": Command(
        "tools.lab.bench.broker.fanout:fanout", "Measure how many messages per second reach subscribers.", "gateway"
    ),
    "bench memory": Command(
        "tools.lab.bench.broker.memory:memory", "Measure the memory and the start-up time of the gateway.", "gateway"
    ),
    "bench storage": Command(
        "tools.lab.bench.broker.storage:storage",
        "Count the bytes that the gateway writes to disk for each message.",
        "gateway",
    ),
    "bench uplink": Command(
        "tools.lab.bench.uplink.command:uplink",
        "Measure a gateway's route to the next broker, beside mosquitto's bridge.",
        "gateway",
    ),
    "bench network": Command(
        "tools.lab.bench.network.command:network",
        "Measure what a network of gateways carries, beside mosquitto's bridge.",
        "gateway",
    ),
    "bench cloud": Command(
        "tools.lab.bench.cloud.command:cloud", "Measure the job beside a plain Spark copy.", "tools"
    ),
    "bench batch": Command(
        "tools.lab.bench.batch.command:batch", "Measure what column batches save on the link.", "tools"
    ),
    "torture wire": Command("tools.lab.torture.wire.wire:wire", "Feed corrupt packets to the MQTT decoders.", ""),
    "torture flash": Command(
        "tools.lab.torture.flash.command:flash", "Cut the power of the flash store at every byte it writes.", ""
    ),
    "torture sensors": Command(
        "tools.lab.torture.sensors.command:sensors", "Feed the drivers of sensors with faulty transfers.", ""
    ),
    "torture link": Command(
        "tools.lab.torture.wire.link:link", "Run the serial link over lines that lose and corrupt bytes.", ""
    ),
    "torture broker": Command(
        "tools.lab.torture.broker.command:broker", "Send corrupt MQTT sessions to a gateway.", "tools"
    ),
    "torture attacks": Command(
        "tools.lab.torture.attacks.command:attacks", "Attack a gateway while an ordinary client publishes.", "gateway"
    ),
    "torture store": Command(
        "tools.lab.torture.store.command:store", "Cut the power of the gateway's store at each write.", "gateway"
    ),
    "torture clients": Command(
        "tools.lab.torture.clients.command:clients", "Kill a gateway between common MQTT clients.", "tools"
    ),
    "torture device": Command(
        "tools.lab.torture.device.command:device",
        "Cut the power and the connections of devices on MicroPython.",
        "tools",
    ),
    "torture uplink": Command(
        "tools.lab.torture.uplink.command:uplink",
        "Break line, processes, disk and clock of a route to the next broker.",
        "tools",
    ),
    "torture network": Command(
        "tools.lab.torture.network.command:network",
        "Break lines and gateways of networks, while subscribers come and go.",
        "tools",
    ),
    "torture lander": Command(
        "tools.lab.torture.lander.command:lander",
        "Kill a lander and the mosquitto before it, and recount the tables.",
        "tools",
    ),
    "torture cloud": Command(
        "tools.lab.torture.cloud.command:cloud",
        "Kill lander and job, cut their files, and recount the tables.",
        "tools",
    ),
    "torture proof": Command(
        "tools.lab.torture.proof.command:proof",
        "Draw histories of losses and lies, and judge what the tables conclude.",
        "cloud",
    ),
    "torture all": Command(
        "tools.lab.torture.whole_way.command:whole_way",
        "Break every hop from devices to tables, and recount the readings.",
        "tools",
    ),
    "torture soak": Command(
        "tools.lab.torture.device.soak:soak", "Send many messages through a device and watch its heap.", ""
    ),
    "device build": Command(
        "tools.cli.device.build:build", "Compile the firmware for a board, ready for `mip install`.", "tools"
    ),
    "device check-config": Command(
        "tools.cli.device.check_config:check_config", "Check a device's configuration before it goes on a board.", ""
    ),
    "device partitions": Command(
        "tools.cli.device.partitions:partitions", "Write an ESP32's partition table with room for the store.", "tools"
    ),
    "device inspect": Command(
        "tools.cli.device.inspect:inspect", "Show what is stored in a copy of a device's flash.", ""
    ),
    "gateway run": Command("tools.cli.gateway.process:run", "Run a gateway.", "gateway"),
    "gateway check-config": Command(
        "tools.cli.gateway.check_config:check_config",
        "Check a configuration file without starting a gateway.",
        "gateway",
    ),
    "gateway repair": Command("tools.cli.gateway.repair:repair_store", "Repair a damaged message store.", "gateway"),
    "gateway backup": Command("tools.cli.gateway.backup:back_up", "Copy the message store of a gateway.", "gateway"),
    "gateway restore": Command(
        "tools.cli.gateway.backup:restore", "Put a copy in the place of a message store.", "gateway"
    ),
    "gateway migrate": Command(
        "tools.cli.gateway.migrate:migrate", "Move the streams of a gateway to the folders of another.", "gateway"
    ),
    "gateway new-epoch": Command(
        "tools.cli.gateway.backup:new_epoch",
        "Begin a new epoch in a store that was restored by other means.",
        "gateway",
    ),
    "gateway devices": Command(
        "tools.cli.gateway.devices:list_devices", "List the devices that have connected to a gateway.", "gateway"
    ),
    "gateway seen": Command(
        "tools.cli.gateway.seen:seen", "Say that you have seen which messages a full store has dropped.", "gateway"
    ),
    "gateway quarantine": Command(
        "tools.cli.gateway.quarantine:list_notes", "List what a gateway could not read and has set aside.", "gateway"
    ),
    "gateway passwd": Command(
        "tools.cli.gateway.passwd:passwd", "Add an account, change its password or delete it.", "gateway"
    ),
    "network check": Command(
        "tools.cli.network.check:check",
        "Find what is wrong in a network of gateways before any of them starts.",
        "gateway",
    ),
    "network show": Command(
        "tools.cli.network.show:show", "Show the links of a gateway, and what is wanted over them.", "gateway"
    ),
    "multicast listen": Command(
        "tools.cli.multicast.listen:listen", "Print the messages of a multicast group, and what was lost.", ""
    ),
    "uplink status": Command("tools.cli.uplink.status:status", "Show links and backlogs of the routes.", "gateway"),
    "uplink refused": Command(
        "tools.cli.uplink.refused:list_refused", "List the messages that next brokers will never take.", "gateway"
    ),
    "uplink resend": Command("tools.cli.uplink.refused:resend", "Send a route's refused messages again.", "gateway"),
    "uplink discard": Command("tools.cli.uplink.refused:discard", "Drop a route's refused messages.", "gateway"),
    "uplink forget": Command(
        "tools.cli.uplink.forget:forget", "Give up what waits for a route that is no longer configured.", "gateway"
    ),
    "uplink export": Command(
        "tools.cli.uplink.carry:export", "Write what waits for a route to a file, to carry it.", "gateway"
    ),
    "uplink import": Command(
        "tools.cli.uplink.carry:import_file", "Store the messages of a file that was exported.", "gateway"
    ),
    "lander run": Command("tools.cli.lander:app", "Run a lander.", "cloud"),
    "cloud ingest": Command("tools.cli.tables.ingest:app", "Bring new landing files into the tables.", "cloud"),
    "cloud report": Command("tools.cli.report.command:report", "Write one HTML page about the tables.", "cloud"),
    "cloud requarantine": Command(
        "tools.cli.tables.requarantine:requarantine_messages", "Decode what is in quarantine again.", "cloud"
    ),
    "cloud maintain": Command(
        "tools.cli.tables.maintain:maintain_tables",
        "Keep tables and landing files small, and forget devices.",
        "cloud",
    ),
    "cloud verify": Command(
        "tools.cli.tables.verify:verify_tables", "Count the tables again, and look for faults.", "cloud"
    ),
    "cloud rebuild": Command(
        "tools.cli.tables.rebuild:rebuild_tables", "Make all tables anew from the landing files.", "cloud"
    ),
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
            f"This brings it: pip install 'holdfast[{COMMANDS[path].extra}]'",
            file=sys.stderr,
        )
        sys.exit(2)


if __name__ == "__main__":
    main()
