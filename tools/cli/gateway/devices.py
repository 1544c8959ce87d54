"""``holdfast gateway devices``: every client that a gateway has ever let in."""

import sqlite3
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from gateway.config.load import load
from gateway.errors import StoreError
from gateway.sessions.devices import FILE, Device, devices_in
from gateway.store import disk
from host.errors import HostError
from tools.cli.columns import columns, printable
from tools.cli.failure import failing_on
from tools.cli.gateway.arguments import ConfigAgain, ConfigFile, check_exists, chosen
from tools.cli.utc import utc_of

VERSIONS = {3: "3.1", 4: "3.1.1", 5: "5.0"}
HEADINGS = ("client", "user", "from", "MQTT", "connected", "last seen", "first seen", "origin", "epoch")


def list_devices(
    file: ConfigFile = None,
    config: ConfigAgain = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON array with one object for each device.")
    ] = False,
) -> None:
    """List the devices that have connected to a gateway, the latest at the end. The gateway may run."""
    with failing_on(HostError, command="gateway devices"):
        gateway_config, _ = load(chosen("gateway devices", file, config))
        devices = _devices_of(Path(gateway_config.store.path))
    if as_json:
        objects = [{"client_id": client_id, **msgspec.structs.asdict(device)} for client_id, device in devices.items()]
        typer.echo(msgspec.json.encode(objects).decode())
    else:
        typer.echo(columns([HEADINGS, *(_row(client_id, device) for client_id, device in devices.items())]))


def _devices_of(folder: Path) -> dict[str, Device]:
    check_exists(folder, FILE)
    try:
        devices = devices_in(folder)
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"device registry in {folder}: {disk.words_of(error, folder)}") from error
    return dict(sorted(devices.items(), key=lambda item: item[1].last_seen_ms))


def _row(client_id: str, device: Device) -> tuple[str, ...]:
    return (
        printable(client_id),
        printable(device.user or "-"),
        device.address,
        VERSIONS.get(device.level, str(device.level)),
        "yes" if device.connected else "no",
        utc_of(device.last_seen_ms),
        utc_of(device.first_seen_ms),
        printable(device.origin or "-"),
        f"{device.epoch:08x}" if device.origin else "-",
    )
