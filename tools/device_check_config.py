"""`holdfast device check-config`: says whether a device would start with a configuration, on any machine."""

from pathlib import Path
from typing import Annotated

import typer

from device.config import load
from device.errors import ConfigError
from tools.failure import failing_on


def check_config(
    config: Annotated[Path, typer.Argument(metavar="FILE", help="The device's configuration, by custom device.json.")],
) -> None:
    """Check a device's configuration before it goes on a board."""
    with failing_on(ConfigError, command="device check-config"):
        found = load(str(config))
    sensors = ", ".join(sensor.name for sensor in found.sensors) or "no sensors"
    places = ", ".join(one.path if one.kind == "uart" else f"{one.kind} {one.host}:{one.port}" for one in found.ports)
    typer.echo(f"{config}: ok")
    typer.echo(f"{found.client_id} samples {sensors} every {found.interval_ms} ms")
    typer.echo(f"and sends to {places}, topic {found.topic}, QoS {found.qos}")
